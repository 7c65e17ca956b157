"""Settings of pools: what holds, what it means, who changed it; and the forms in which changes are prepared.

Nothing is changed here. A form's answer leads to the confirmation of the act `policy.set`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flask import Blueprint, jsonify, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from admin_ui.access import current, needs
from admin_ui.actions.backends import address_of, told_spec
from admin_ui.actions.policy import gamma_now
from admin_ui.bridge import Stores
from admin_ui.consequences import rooms, theta_of
from admin_ui.meaning import BY_KEY, DEFAULTS, GROUPS, Group, given, short
from admin_ui.reach import Doubt, doubts
from admin_ui.reading import ask, cached
from fairlane.errors import InvalidRequest, NotFound
from fairlane.queue import policies
from fairlane.queue.pools import Pool
from fairlane.standing import Overview, PolicyChange

page = Blueprint("pools", __name__)
HISTORY_SHOWN: Final = 30


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """A pool with its policy, what is in it, and what to doubt of its settings; `history` has the latest first."""

    pool: Pool
    view: Overview
    history: Sequence[PolicyChange]
    doubts: Sequence[Doubt]

    @property
    def texts(self) -> Mapping[str, str]:
        """The settings as they are typed."""
        return short(policies.texts(self.pool.policy))

    @property
    def gamma(self) -> float | None:
        """What the thermostat has set; None if γ is pinned, or none was set yet."""
        return gamma_now(self.view.steer) if self.pool.policy.gamma is None else None

    @property
    def back_to(self) -> frozenset[int]:
        """The versions that the policy can be set back to: as far as no later change is forgotten."""
        return frozenset(range(self.pool.version - len(self.history), self.pool.version))


@page.get("/settings")
@needs("viewer")
def index() -> str | Response:
    """All pools; a pool that is the only one at once."""
    found = cached(("settings",), _all)
    if len(found) == 1:
        return redirect(url_for("pools.pool", pool=found[0].pool.name), 303)
    return render_template("settings_of_all.html", found=found)


@page.get("/settings/<path:pool>")
@needs("viewer")
def pool(pool: str) -> str | Response | tuple[str, int]:
    """One pool; with `change`, the form for a group of its settings."""
    if group := request.args.get("change"):
        return _form(pool, group)
    found = cached(("settings", pool), lambda stores: _settings(stores, pool))
    return render_template(
        "settings.html",
        found=found,
        groups=GROUPS,
        defaults=DEFAULTS,
        rooms=rooms(found.pool.policy),
        thetas={tier: theta_of(found.pool.policy, tier) for tier in found.pool.policy.tiers},
        address_of=address_of,
        shown=HISTORY_SHOWN,
    )


@page.get("/settings.json/<path:pool>")
@needs("viewer")
def export(pool: str) -> Response:
    """One pool's settings as JSON."""
    answer = jsonify(exported(ask(lambda stores: _settings(stores, pool)), whole=current().sees(None)))
    file = re.sub(r"[^A-Za-z0-9._-]+", "-", pool)  # a pool's name may have slashes
    answer.headers["Content-Disposition"] = f'attachment; filename="settings-{file}.json"'
    return answer


def exported(found: PoolSettings, *, whole: bool) -> dict[str, Any]:
    """A pool's settings as JSON has them. Not `whole`: for who may not see all of the pool."""
    kept = {"pool": found.pool.name, "version": found.pool.version, "policy": dict(found.texts)}
    if not whole:
        return kept
    return kept | {
        "exported_at_ms": round(time.time() * 1000),
        "paused": found.view.paused,
        "paused_tiers": [tier.tier for tier in found.view.tiers if tier.paused],
        "backends": [{"name": one.name, "state": one.status} | told_spec(one.spec) for one in found.view.backends],
        "history": [
            {"version": one.version, "at_ms": one.at_ms, "by": one.by, "changes": dict(one.changes)}
            for one in found.history
        ],
    }


def _form(name: str, key: str) -> str | Response | tuple[str, int]:
    """A group's settings to fill in; what is filled in leads to the confirmation, or back with a word at its field."""
    if (group := BY_KEY.get(key)) is None:
        raise InvalidRequest(f"There are the groups {', '.join(BY_KEY)}.", param="change")
    if not (current().may("operator") and current().sees(None)):
        raise NotFound()
    known = ask(lambda stores: stores.queue.pools.by_name(name))
    words = {one.name: request.args[one.name] for one in group.settings if one.name in request.args}
    try:
        difference = given(known.policy, words)
    except InvalidRequest as error:
        return _fill_in(known, group, words, error), 400
    if not difference:
        return _fill_in(known, group, words, None)
    after = {setting: text for setting, (_, text) in difference.items()}
    return redirect(url_for("acts.confirm", name="policy.set", pool=name, **after), 303)  # pyright: ignore[reportArgumentType]


def _fill_in(known: Pool, group: Group, words: Mapping[str, str], error: InvalidRequest | None) -> str:
    texts = short(policies.texts(known.policy))
    return render_template(
        "settings_change.html",
        pool=known,
        group=group,
        texts=texts,
        given=texts | dict(words),
        defaults=DEFAULTS,
        error=error,
        same=bool(words) and error is None,
    )


async def _settings(stores: Stores, name: str) -> PoolSettings:
    known = await stores.queue.pools.by_name(name)
    inspect = stores.queue.inspect
    view, history = await asyncio.gather(inspect.overview(known), inspect.policy_history(known))
    return PoolSettings(known, view, history, doubts(known.policy, view.backends))


async def _all(stores: Stores) -> Sequence[PoolSettings]:
    pools = await stores.queue.pools.all()
    return await asyncio.gather(*(_settings(stores, one.name) for one in pools))
