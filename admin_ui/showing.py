"""How numbers, times and acts are written on the page."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from flask import Flask, request, url_for
from markupsafe import Markup

from admin_ui.access import viewer
from admin_ui.acting import ACTS, may

NONE: Final = "–"
_UNITS: Final = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def duration(ms: float | None) -> str:
    """Milliseconds in the largest unit that fits: 840 ms, 12.3 s, 4.2 min, 3.1 h, 2.0 d."""
    if ms is None:
        return NONE
    seconds = max(0.0, ms) / 1000
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def number(n: float | None, digits: int = 0) -> str:
    """A number with thin spaces between thousands."""
    return NONE if n is None else f"{n:,.{digits}f}".replace(",", "\u202f")


def percent(ratio: float | None, digits: int = 0) -> str:
    """A ratio in %."""
    return NONE if ratio is None else f"{100 * ratio:.{digits}f}\u202f%"


def stamp(ms: float | None) -> Markup:
    """A moment (Unix, ms); app.js writes it in the viewer's zone."""
    return _time(ms, "stamp")


def ago(ms: float | None) -> Markup:
    """How long ago a moment was; its date is in the title."""
    return _time(ms, "ago")


def act_button(name: str, label: str, *, kind: str = "", **params: object) -> Markup:
    """A link that opens an act's confirmation; nothing if the viewer's role does not allow the act."""
    act, who = ACTS[name], viewer()
    if who is None or not may(who, act):
        return Markup()
    given = {key: str(value) for key, value in params.items() if value is not None}
    href = url_for("acts.confirm", name=name, **given)  # pyright: ignore[reportArgumentType]
    return Markup('<a class="button {}" role="button" href="{}" data-dialog>{}</a>').format(kind, href, label)


def move_link(label: str, **chosen: object) -> Markup:
    """A link to a new rebalancing of these jobs (`pool`, `tenant`, `tier` …); nothing for who may not start one."""
    who = viewer()
    if who is None or not may(who, ACTS["run.create"]):
        return Markup()
    given = {key: str(value) for key, value in chosen.items() if value is not None}
    return Markup('<a class="button" href="{}">{}</a>').format(url_for("rebalance.new", **given), label)  # pyright: ignore[reportArgumentType]


def here() -> str:
    """The address of this page, with its query."""
    return request.script_root + request.full_path.rstrip("?")


def now_ms() -> float:
    """The time (Unix, ms)."""
    return time.time() * 1000


def register(app: Flask) -> None:
    """Makes these known to the templates."""
    for each in (duration, number, percent, stamp, ago):
        app.add_template_filter(each)
    for each in (act_button, move_link, here, now_ms):
        app.add_template_global(each)


def _time(ms: float | None, how: str) -> Markup:
    if ms is None:
        return Markup("–")
    at = datetime.fromtimestamp(ms / 1000, UTC)
    words = f"{duration(now_ms() - ms)} ago" if how == "ago" else f"{at:%Y-%m-%d %H:%M:%S} UTC"
    iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" data-show="{}" title="{} UTC">{}</time>').format(
        iso, how, f"{at:%Y-%m-%d %H:%M:%S}", words
    )
