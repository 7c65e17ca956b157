"""Reads the few wanted lines of a Prometheus text page, and no others.

A page of an inference server has thousands of lines (histograms, mostly), of which the observer needs ten, five times
a second. So a line is looked at closely only if it starts with a wanted name. What is read is bounded, since a page may
come from anything that listens at a configured address; whatever it holds, the only error is `Unreadable`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

MAX_BYTES: Final = 4 * 1024 * 1024
MAX_LINES: Final = 200_000
MAX_LINE: Final = 16_384  # bytes of a wanted line
MAX_SERIES: Final = 10_000  # wanted lines: engines times names, on any real page a few dozen

_LABELS: Final = rb'\{(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+\}'  # a value may hold braces, spaces and escaped quotes
_NAME: Final = re.compile(rb"[ \t]*+([A-Za-z0-9_:]++)")
_REST: Final = re.compile(rb"[ \t]*+(?:" + _LABELS + rb")?+[ \t]*+([^\s{}]++)(?:\s.*+)?+")  # never goes back
_NUMBER: Final = re.compile(rb"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE)


class Unreadable(ValueError):
    """The page is too large, or one of the wanted lines is not what the format allows."""


def read(page: bytes, names: Collection[str]) -> dict[str, list[float]]:
    """The values of each of `names` that is on the page, one for each of its series, in the page's order.

    Labels may come in any order and are not looked at; timestamps and exemplars are dropped. A value may be NaN or
    infinite: what that means is for the caller to say. Raises Unreadable.
    """
    if len(page) > MAX_BYTES:
        raise Unreadable(f"the page has more than {MAX_BYTES} bytes")
    if page.count(b"\n") > MAX_LINES:
        raise Unreadable(f"the page has more than {MAX_LINES} lines")
    wanted = {name.encode(): name for name in names}
    starts = tuple(wanted)
    found: dict[str, list[float]] = {}
    series = 0
    for line in [line for line in page.split(b"\n") if line.lstrip(b" \t").startswith(starts)]:
        name = _NAME.match(line)
        if name is None or name[1] not in wanted:  # it only starts like one
            continue
        series += 1
        if series > MAX_SERIES:
            raise Unreadable(f"the page has more than {MAX_SERIES} series of the wanted metrics")
        found.setdefault(wanted[name[1]], []).append(_value(line, name.end()))
    return found


def _value(line: bytes, start: int) -> float:
    """The number of a sample whose name ends at `start`."""
    rest = _REST.fullmatch(line, start) if len(line) <= MAX_LINE else None
    if rest is None or not _NUMBER.fullmatch(rest[1]):
        raise Unreadable(f"not a sample: {line.strip()[:120].decode(errors='backslashreplace')}")
    return float(rest[1])
