"""The first page: every pool, the one that needs an operator most first; and a page for each, with its history."""

from __future__ import annotations

import time
from typing import Final, cast, get_args

from flask import Blueprint, jsonify, render_template, request
from werkzeug.wrappers import Response

from admin_ui.access import needs
from admin_ui.bridge import Stores
from admin_ui.charting import charted
from admin_ui.glance import PoolGlance, glance, glances
from admin_ui.reading import cached
from fairlane.errors import InvalidRequest
from fairlane.trend import Span

page = Blueprint("overview", __name__)
TIERS_SHOWN: Final = 6  # pools up to which the tiers of each are shown
CHARTS_SHOWN: Final = 4  # pools
SPANS: Final = {"15m": "15 min", "6h": "6 h", "7d": "7 d"}


@page.get("/")
@needs("viewer")
def index() -> str:
    """All pools."""
    pools = cached(("overview",), glances)
    return render_template(
        "overview.html", pools=pools, tiers_shown=len(pools) <= TIERS_SHOWN, charts_shown=CHARTS_SHOWN
    )


@page.get("/pools/<path:pool>")
@needs("viewer")
def pool(pool: str) -> str:
    """One pool."""
    found = cached(("pool", pool), lambda stores: _glance(stores, pool))
    return render_template("pool.html", one=found, span=_span(), spans=SPANS)


@page.get("/trend/<path:pool>")
@needs("viewer")
def trend(pool: str) -> Response:
    """One pool's history, for its charts."""
    span = _span()

    async def read(stores: Stores) -> object:
        known = await stores.queue.pools.by_name(pool)
        points = await stores.queue.inspect.trend(known, span)
        return charted(points, known.policy.tiers, span, round(time.time() * 1000))

    return jsonify(cached(("trend", pool, span), read))


async def _glance(stores: Stores, name: str) -> PoolGlance:
    return await glance(stores, await stores.queue.pools.by_name(name))


def _span() -> Span:
    """Raises InvalidRequest."""
    asked = request.args.get("span", "15m")
    if asked not in get_args(Span):
        raise InvalidRequest(f"There are the spans {', '.join(SPANS)}.", param="span")
    return cast(Span, asked)
