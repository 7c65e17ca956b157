"""What several commands take on their command line: backends, as `NAME=URL[,slots=N][,key_env=VAR][,family=F]`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from fairlane.errors import IllegalTransition, InvalidRequest
from fairlane.model import FAMILY_NAMES, BackendSpec, Policy
from fairlane.queue.engine import Queue

EXTRAS: Final = "[,slots=N][,key_env=VAR][,family=F]"
SCHEMES: Final = ("http://", "https://", "null://")


@dataclass(frozen=True, slots=True)
class BackendOption:
    """One backend of the pool `pool`; several with one pool's name form the pool."""

    pool: str
    name: str
    spec: BackendSpec


def parse_backend(text: str) -> BackendOption:
    """`NAME=URL,…`, as after --backend. Raises InvalidRequest, which says what is wrong."""
    pool, found, rest = text.partition("=")
    if not found or not pool or not rest:
        raise InvalidRequest(f"--backend {text}: say NAME=URL{EXTRAS}.", param="backend")
    return backend_of(pool, rest, typed=f"--backend {text}")


def backend_of(pool: str, text: str, *, typed: str | None = None) -> BackendOption:
    """`URL,…` as a backend of the pool; `typed` is what a refusal quotes. Raises InvalidRequest."""
    typed = typed or text
    url, *extras = text.split(",")
    if not url.startswith(SCHEMES):
        raise InvalidRequest(f"{typed}: the URL begins with http:// or https://.", param="backend")
    given: dict[str, str] = {}
    for extra in extras:
        name, _, value = extra.partition("=")
        if name in given:
            raise InvalidRequest(f"{typed}: {name} is there twice.", param="backend")
        given[name] = value
    if unknown := given.keys() - {"slots", "key_env", "family"}:
        words = f"{typed}: {', '.join(sorted(unknown))} is no option of a backend. Say URL{EXTRAS}."
        raise InvalidRequest(words, param="backend")
    slots, family = given.get("slots"), given.get("family")
    if slots is not None and not slots.isdecimal():
        raise InvalidRequest(f"{typed}: slots is a whole number.", param="backend")
    if family is not None and family not in FAMILY_NAMES:
        raise InvalidRequest(f"{typed}: family is one of {', '.join(FAMILY_NAMES)}.", param="backend")
    spec = BackendSpec(url, family, given.get("key_env"), int(slots) if slots else None)
    try:
        return BackendOption(pool, _name(url), spec)
    except ValueError as error:  # urlsplit's, such as of `http://[`
        raise InvalidRequest(f"{typed}: this is no URL ({error}).", param="backend") from error


async def register(queue: Queue, backends: Iterable[BackendOption], policy: Policy) -> None:
    """Opens the pools, and adds the backends to them. Raises InvalidRequest, StoreUnavailable."""
    for option in backends:
        pool = await queue.pools.open(option.pool, policy)
        await queue.set_backend(pool, option.name, "add", spec=option.spec)


async def register_only(queue: Queue, backends: Sequence[BackendOption], policy: Policy) -> None:
    """As `register`, and they are drained no more; others of these pools are removed, or drained while they work."""
    await register(queue, backends, policy)
    for name in {option.pool for option in backends}:
        pool = await queue.pools.by_name(name)
        kept = {option.name for option in backends if option.pool == name}
        for view in (await queue.inspect.load(pool)).backends:
            if view.name in kept and view.status == "draining":
                await queue.set_backend(pool, view.name, "undrain")
            elif view.name not in kept:
                try:
                    await queue.set_backend(pool, view.name, "remove")
                except IllegalTransition:
                    await queue.set_backend(pool, view.name, "drain")


def _name(url: str) -> str:
    """A backend's name: where it is, without what may be secret in the URL."""
    parts = urlsplit(url)
    if parts.scheme == "null":
        return "null" + (f":{parts.netloc}" if parts.netloc else "")
    host = parts.netloc.rpartition("@")[2].replace("[", "").replace("]", "")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return host + path
