"""Tenants: who is registered, who has work, and what each may do; and the form in which a change is prepared.

Nothing is changed here. The form's answer leads to the confirmation of the act `tenant.limits`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from flask import Blueprint, jsonify, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from admin_ui import limits, tenancy
from admin_ui.access import current, needs
from admin_ui.bridge import Stores
from admin_ui.listing import AFTER, asked, first_page, page_after
from admin_ui.reading import ask, cached
from admin_ui.tenancy import KEYS_SHOWN, NAME, POOLS_MOST, Place, Tenant
from fairlane.accounts.values import Account
from fairlane.errors import InvalidRequest, NotFound

page = Blueprint("tenants", __name__)


@page.get("/tenants")
@needs("viewer")
def index() -> str:
    """Those that are registered; or, with `pool`, those with queued work there. Of a viewer with tenants, these."""
    starts, after, pool = asked("q") or "", asked(AFTER) or "", asked("pool")
    mine = current().scope
    pools = cached(("pool names",), _pool_names)
    if mine is not None:
        names = [name for name in mine if name.startswith(starts)]
        rows, following = cached(("tenants", mine, starts), lambda stores: tenancy.named(stores, names)), None
    elif pool is not None:
        return _waiting(pool, after, pools)
    else:
        rows, following = cached(("tenants", starts, after), lambda stores: tenancy.registered(stores, starts, after))
    return render_template(
        "tenants.html",
        rows=rows,
        following=page_after(following),
        first=first_page(),
        pools=pools,
        starts=starts,
        may_be=starts if NAME.fullmatch(starts) else None,
        pools_most=POOLS_MOST,
    )


@page.get("/tenants/<tenant>")
@needs("viewer")
def tenant(tenant: str) -> str:
    """One tenant, also one that is not registered. Raises NotFound for one that is not this viewer's."""
    return render_template(
        "tenant.html",
        one=cached(("tenant", _known(tenant)), lambda stores: tenancy.tenant(stores, tenant)),
        settings=limits.SETTINGS,
        granted=limits.GRANTED,
        texts=limits.texts,
        account_texts=limits.account_texts,
        held_words=limits.held_words,
        keys_shown=KEYS_SHOWN,
    )


@page.get("/tenants/<tenant>/export.json")
@needs("viewer")
def export(tenant: str) -> Response:
    """One tenant as JSON. Raises NotFound."""
    found = ask(lambda stores: tenancy.tenant(stores, _known(tenant)))
    answer = jsonify(_exported(found))
    answer.headers["Content-Disposition"] = f'attachment; filename="tenant-{tenant}.json"'
    return answer


@page.get("/tenants/<tenant>/limits")
@needs("operator")
def change(tenant: str) -> str | Response | tuple[str, int]:
    """Limits to fill in, of a tenant in all pools or in the one that `pool` names. Raises NotFound."""
    if not current().sees(None):
        raise NotFound()
    only = asked("pool")
    found = ask(lambda stores: tenancy.tenant(stores, _known(tenant)))
    now = _now(found, only)
    words = {name: request.args[name] for name in now if name in request.args}
    error: InvalidRequest | None = None
    try:
        difference = limits.changed(now, words)
    except InvalidRequest as wrong:
        error, difference = wrong, {}
    if difference:
        after = {name: text for name, (_, text) in difference.items()}
        to = url_for("acts.confirm", name="tenant.limits", tenant=tenant, **({"pool": only} if only else {}), **after)  # pyright: ignore[reportArgumentType]
        return redirect(to, 303)
    filled_in = render_template(
        "tenant_change.html",
        one=found,
        only=only,
        settings=[one for one in (*limits.SETTINGS, *limits.GRANTED) if one.name in now],
        now=now,
        given=now | words,
        error=error,
        same=bool(words) and error is None,
    )
    return (filled_in, error.status) if error else filled_in


def _waiting(pool: str, after: str, pools: Sequence[str]) -> str:
    rows, following = cached(("waiting", pool, after), lambda stores: tenancy.waiting(stores, pool, after))
    return render_template(
        "tenants_waiting.html",
        rows=rows,
        pool=pool,
        pools=pools,
        following=page_after(following),
        first=first_page(),
        held_words=limits.held_words,
    )


async def _pool_names(stores: Stores) -> list[str]:
    return [pool.name for pool in await stores.queue.pools.all()]


def _known(tenant: str) -> str:
    """Raises NotFound for what cannot be a tenant, and for one that is not this viewer's."""
    if not NAME.fullmatch(tenant) or not current().sees(tenant):
        raise NotFound(f"There is no tenant {tenant[:128]!r}.")
    return tenant


def _now(found: Tenant, only: str | None) -> dict[str, str]:
    """What can be set, as text. Raises NotFound."""
    if found.account and not only:
        return limits.account_texts(found.account)
    places = [place.standing.limits for place in found.places if only in (None, place.pool.name)]
    if not places:
        raise NotFound("There is no such pool." if only else "There is no pool yet, in which it could have limits.")
    return limits.in_pools(places)


def _exported(found: Tenant) -> dict[str, Any]:
    return {
        "tenant": found.name,
        "exported_at_ms": round(time.time() * 1000),
        "account": _account(found.account) if found.account else None,
        "keys": [asdict(key) | _grants(key.tiers, key.pools) for key in found.keys],
        "pools": [_place(place) for place in found.places],
    }


def _account(account: Account) -> dict[str, Any]:
    return asdict(account) | _grants(account.tiers, account.pools)


def _grants(tiers: frozenset[str] | None, pools: frozenset[str] | None) -> dict[str, list[str] | None]:
    grants = {"tiers": tiers, "pools": pools}
    return {name: None if grant is None else sorted(grant) for name, grant in grants.items()}


def _place(place: Place) -> dict[str, Any]:
    kept = asdict(place.standing)
    kept.pop("tenant")
    return {"pool": place.pool.name, "max_waiting": place.max_waiting} | kept
