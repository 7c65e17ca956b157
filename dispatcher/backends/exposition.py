"""Reads the few wanted lines of a Prometheus text page, and no others.

A page of an inference server has thousands of lines (histograms, mostly), of which the observer needs ten, five times
a second. So a line is looked at closely only if it starts with a wanted name. What is read is bounded, since a page may
come from anything that listens at a configured address; whatever it holds, the only error is `Unreadable`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_BYTES: Final = 4 * 1024 * 1024
MAX_LINES: Final = 200_000
MAX_LINE: Final = 16_384  # bytes of a wanted line
MAX_SERIES: Final = 10_000  # wanted lines: engines times names, on any real page a few dozen

_LABELS: Final = rb'\{(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+\}'  # a value may hold braces, spaces and escaped quotes
_NUMBER: Final = rb"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:e[+-]?\d++)?+|inf(?:inity)?+|nan)"
_REST: Final = re.compile(  # never goes back
    rb"[ \t]*+(" + _LABELS + rb")?+[ \t]*+(" + _NUMBER + rb")(?:\s.*+)?+", re.IGNORECASE
)
_LABEL: Final = re.compile(rb'([A-Za-z0-9_]++)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"')
_SELECTOR: Final = re.compile(r'(?P<name>[A-Za-z0-9_:]+)(?:\{(?P<label>\w+)="(?P<value>\w*)"\})?')


class Unreadable(ValueError):
    """The page is too large, or one of the wanted lines is not what the format allows."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is asked for under one metric's name: the key of the answer, and the label that its series must have."""

    key: str
    label: bytes
    value: bytes


def read(page: bytes, names: Collection[str]) -> dict[str, list[float]]:
    """The values of each of `names` that is on the page, one for each of its series, in the page's order.

    A name may say which series it means: `name{label="value"}`; without that all count, whatever their labels and the
    order of these. Timestamps and exemplars are dropped. A value may be NaN or infinite: what that means is for the
    caller to say. Raises Unreadable.
    """
    if len(page) > MAX_BYTES:
        raise Unreadable(f"the page has more than {MAX_BYTES} bytes")
    if page.count(b"\n") > MAX_LINES:
        raise Unreadable(f"the page has more than {MAX_LINES} lines")
    wanted = _by_metric(tuple(names))
    lines = _wanted_lines(page, wanted)
    if len(lines) > MAX_SERIES:
        raise Unreadable(f"the page has more than {MAX_SERIES} series of the wanted metrics")
    found: dict[str, list[float]] = {}
    for line, name in lines:
        labels, value = _sample(line, line.index(name) + len(name))
        for each in wanted[name]:
            if not each.label or _label(labels, each.label) == each.value:
                found.setdefault(each.key, []).append(value)
    return found


def _wanted_lines(page: bytes, wanted: Container[bytes]) -> list[tuple[bytes, bytes]]:
    """The lines that start with a wanted name, and that name."""
    return [
        (line, start[0])
        for line in page.split(b"\n")
        if (start := line.partition(b"{")[0].split(None, 1)) and start[0] in wanted
    ]


@lru_cache(maxsize=64)
def _by_metric(names: tuple[str, ...]) -> Mapping[bytes, list[_Wanted]]:
    found: dict[bytes, list[_Wanted]] = {}
    for key in names:
        parts = _SELECTOR.fullmatch(key)
        if parts is None:
            raise ValueError(f"no name of a metric: {key}")
        wanted = _Wanted(key, (parts["label"] or "").encode(), (parts["value"] or "").encode())
        found.setdefault(parts["name"].encode(), []).append(wanted)
    return found


def _sample(line: bytes, start: int) -> tuple[bytes, float]:
    """The labels, as they stand there, and the number of a sample whose name ends at `start`."""
    rest = _REST.fullmatch(line, start) if len(line) <= MAX_LINE else None
    if rest is None:
        raise Unreadable(f"not a sample: {line.strip()[:120].decode(errors='backslashreplace')}")
    return rest[1] or b"", float(rest[2])


def _label(labels: bytes, name: bytes) -> bytes:
    """The value of one label, its escapes as they are; empty if it is not there."""
    return next((label[2] for label in _LABEL.finditer(labels) if label[1] == name), b"")
