"""What can be done to a pool's backends while it works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Field, Proposal, act
from admin_ui.actions.place import pool_of
from admin_ui.bridge import Stores
from admin_ui.numerals import whole
from admin_ui.showing import number
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound
from fairlane.model import FAMILY_NAMES, BackendSpec
from fairlane.options import BackendOption, backend_of
from fairlane.queue.checks import check_backend, check_spec
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView

COMES_BACK = "A backend that was named to fairlane up (--backend …) is back when that starts again."


@dataclass(frozen=True, slots=True)
class Place:
    """A pool, one of its backends, and how many others take jobs."""

    pool: Pool
    view: BackendView
    others_up: int


@act("backend.add", role="admin")
class AddBackend(Act):
    """Adds a backend, or replaces what is known of one."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        pool = await pool_of(stores, asked)
        _need_no_secret(asked.values.get("url", ""))
        option = _option_if_valid(pool, asked.values)
        known = await _known(stores, pool, option.name) if option else None
        return Proposal(
            title=f"Add a backend to {pool.name}",
            button="Add the backend",
            target=f"{pool.name} / {option.name}" if option else pool.name,
            tenant=None,
            back=url_for("pools.pool", pool=pool.name),
            before=told_spec(known.spec) if known else {},
            after=told_spec(option.spec) if option else {},
            tells=(
                (
                    f"It gets jobs of {pool.name} at once, one at a time until its metrics were seen. One of the same "
                    "host and path that is there already gets what you say of it now."
                ),
                "An API key is never typed here: name the environment variable that has it where dispatchers run.",
            ),
            fields=_FIELDS,
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        pool = await pool_of(stores, asked)
        option = _option(pool, asked.values)
        await stores.queue.set_backend(pool, option.name, "add", spec=option.spec)
        return Done(f"{option.name} of {pool.name} was {'changed' if proposal.before else 'added'}.")


class _Switch(Act):
    """Changes whether a backend takes jobs."""

    verb: Literal["drain", "undrain", "reopen"]
    title: str
    then: str

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        place = await _place(stores, asked)
        name, status = place.view.name, place.view.status
        if why := self.refused(status):
            raise IllegalTransition(f"{name} {why}.")
        return Proposal(
            title=f"{self.title} {name}?",
            button=self.title,
            target=f"{place.pool.name} / {name}",
            tenant=None,
            back=url_for("pools.pool", pool=place.pool.name),
            before={"state": status},
            after={"state": self.then},
            tells=self.told(place),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        place = await _place(stores, asked)
        await stores.queue.set_backend(place.pool, place.view.name, self.verb)
        return Done(f"{place.view.name} was {self.verb}ed.")

    def refused(self, status: str) -> str:
        """Why it cannot be done to a backend of this status; '' if it can."""
        raise NotImplementedError

    def told(self, place: Place) -> tuple[str, ...]:
        """What follows."""
        raise NotImplementedError


@act("backend.drain", role="operator")
class DrainBackend(_Switch):
    """Sends a backend nothing more."""

    verb, title, then = "drain", "Drain", "draining"

    def refused(self, status: str) -> str:
        return "is draining already" if status == "draining" else ""

    def told(self, place: Place) -> tuple[str, ...]:
        live = place.view.counts.live
        told = (f"{number(live)} {'job runs' if live == 1 else 'jobs run'} there and go on; it gets nothing more.",)
        if place.others_up:
            return told
        return (*told, f"Careful: no other backend of {place.pool.name} is up. Its jobs wait until one is.")


@act("backend.undrain", role="operator")
class UndrainBackend(_Switch):
    """Lets a backend that was drained take jobs again."""

    verb, title, then = "undrain", "Undrain", "up"

    def refused(self, status: str) -> str:
        return "" if status == "draining" else "is not drained"

    def told(self, place: Place) -> tuple[str, ...]:
        return (f"It takes jobs of {place.pool.name} again, as its gates allow.",)


@act("backend.reopen", role="operator")
class ReopenBackend(_Switch):
    """Sends to a backend again that was found to be down."""

    verb, title, then = "reopen", "Reopen", "up"

    def refused(self, status: str) -> str:
        return "" if status == "down" else "is not down"

    def told(self, place: Place) -> tuple[str, ...]:
        return (
            "It is opened by itself as soon as its metrics can be read; this does not wait for that.",
            "A job that it takes no connection for goes back to its place, and shuts the backend again.",
        )


@act("backend.remove", role="admin")
class RemoveBackend(Act):
    """Removes a backend that runs nothing."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        place = await _place(stores, asked)
        pool, view = place.pool, place.view
        if view.counts.live:
            raise IllegalTransition(f"{view.name} runs {number(view.counts.live)} jobs. Drain it first.")
        last = "" if place.others_up else f"Careful: no other backend of {pool.name} is up. Its jobs wait until one is."
        return Proposal(
            title=f"Remove {view.name} from {pool.name}?",
            button="Remove the backend",
            target=f"{pool.name} / {view.name}",
            tenant=None,
            back=url_for("pools.pool", pool=pool.name),
            before={"state": view.status} | told_spec(view.spec),
            after={"state": "gone"},
            tells=("What was learned and counted of it is forgotten.", COMES_BACK, *([last] if last else [])),
            typed=view.name,
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        pool = await pool_of(stores, asked)
        await stores.queue.set_backend(pool, asked.param("backend"), "remove")
        return Done(f"{asked.param('backend')} was removed from {pool.name}.")


def address_of(spec: BackendSpec) -> str:
    """A backend's URL without what may be secret in it."""
    parts = urlsplit(spec.url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def told_spec(spec: BackendSpec | None) -> dict[str, object]:
    """What is known of where a backend is, for the confirmation, the audit and the export."""
    if spec is None:
        return {}
    told = {"url": address_of(spec), "family": spec.family, "slots": spec.slots, "key_env": spec.key_env}
    return {name: value for name, value in told.items() if value is not None}


async def _place(stores: Stores, asked: Asked) -> Place:
    """Raises NotFound."""
    pool, name = await pool_of(stores, asked), asked.param("backend")
    views = (await stores.queue.inspect.load(pool)).backends
    for view in views:
        if view.name == name:
            return Place(pool, view, sum(one.status == "up" for one in views if one is not view))
    raise NotFound(f"There is no backend {name!r} in {pool.name}.")


async def _known(stores: Stores, pool: Pool, name: str) -> BackendView | None:
    try:
        return await stores.queue.inspect.backend(pool, name)
    except NotFound:
        return None


def _option_if_valid(pool: Pool, values: Mapping[str, str]) -> BackendOption | None:
    """None before anything was filled in, and for what carrying out will refuse with a word at its field."""
    try:
        return _option(pool, values) if values else None
    except InvalidRequest:
        return None


def _option(pool: Pool, values: Mapping[str, str]) -> BackendOption:
    """What was filled in. Raises InvalidRequest, which names the field."""
    given = {name: values.get(name, "").strip() for name in ("url", "family", "slots", "key_env")}
    if "," in given["url"]:
        raise InvalidRequest("A URL has no comma here.", param="url")
    if given["slots"] and whole(given["slots"], 10**9) is None:  # check_spec says how many there may be
        raise InvalidRequest("slots is a whole number.", param="slots")
    extras = [f"{name}={value}" for name, value in given.items() if value and name != "url"]
    try:
        option = backend_of(pool.name, ",".join([given["url"], *extras]), typed=given["url"] or "URL")
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param="url") from error
    except ValueError as error:
        raise InvalidRequest("This is no URL.", param="url") from error
    check_spec(option.spec, "add")
    check_backend(option.name)
    return option


def _need_no_secret(url: str) -> None:
    """Raises InvalidRequest before anything is kept of a URL that may hold a secret."""
    if "@" in url or "?" in url:
        raise InvalidRequest(
            "A URL here has neither a password nor a query: name the variable that has the key.", param="url"
        )


_FIELDS = (
    Field("url", "URL", required=True, help="http://gpu3:8000"),
    Field("family", "Kind of server", "select", choices=(("", "find out"), *((each, each) for each in FAMILY_NAMES))),
    Field("slots", "Slots", "number", help="How many requests it runs at once, if that is known."),
    Field("key_env", "Variable with its API key", help="Its name, such as GPU3_KEY. Not the key."),
)
