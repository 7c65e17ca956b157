"""Trace files: CSV with a header: `arrival_s`, `input_tokens`, `output_tokens` and, if wanted, `tenant` and `tier`."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TextIO

from dispatcher.simulator.request import Arrival
from fairlane.errors import InvalidRequest
from fairlane.model import TENANT_PATTERN, TIER_PATTERN

REQUIRED: Final = ("arrival_s", "input_tokens", "output_tokens")
OPTIONAL: Final = {"tenant": TENANT_PATTERN, "tier": TIER_PATTERN}  # names that the queue takes, and their form
COLUMNS: Final = (*REQUIRED, *OPTIONAL)
LINE_MOST: Final = 10_000  # characters; both names at their longest take a few hundred
SHOWN: Final = 40  # characters of what is wrong
MOST_TOKENS: Final = 10_000_000  # more is a slip of the pen: no server has such a context


def read_trace(path: str | Path) -> list[Arrival]:
    """The requests of a trace file, from its first arrival on (which is then at 0 ms).

    The columns may stand in any order, and the rows too. Raises InvalidRequest, which names the file, the line and what
    is wrong there: an unknown column as well, since it may be a misspelt one.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            arrivals = _arrivals(str(path), _lines(file))
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}.") from None
    if not arrivals:
        raise InvalidRequest(f"{path} has no requests: a line for each has to follow the header.")
    arrivals.sort(key=lambda one: one.at_ms)
    first_ms = arrivals[0].at_ms
    return [replace(one, at_ms=one.at_ms - first_ms) for one in arrivals]


def dump_trace(arrivals: Sequence[Arrival]) -> str:
    """As a trace file's text, times to the microsecond; without tenants and tiers where the arrivals have none."""
    named = {"tenant": any(one.tenant for one in arrivals), "tier": any(one.tier for one in arrivals)}
    columns = ["arrival_s", *(name for name in OPTIONAL if named[name]), "input_tokens", "output_tokens"]
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    for one in arrivals:
        cells = {
            "arrival_s": f"{one.at_ms / 1000:.6f}",
            "tenant": one.tenant,
            "tier": one.tier,
            "input_tokens": one.prompt,
            "output_tokens": one.answer,
        }
        rows.writerow([cells[name] for name in columns])
    return file.getvalue()


def _lines(file: TextIO) -> Iterator[str]:
    """One that never ends (a device, another kind of file) is not read on until the memory is full."""
    while line := file.readline(LINE_MOST + 1):
        if len(line) > LINE_MOST:
            raise ValueError(f"the line has more than {LINE_MOST:,} characters; is this a CSV file?")
        yield line


def _arrivals(path: str, lines: Iterable[str]) -> list[Arrival]:
    rows = csv.reader(lines, strict=True)
    try:
        columns = _columns(next(rows, list[str]()))
        return [_arrival(columns, row) for row in rows if row]
    except (ValueError, csv.Error) as error:
        raise InvalidRequest(f"{path}, line {max(rows.line_num, 1)}: {error}.") from None


def _columns(header: Sequence[str]) -> list[str]:
    columns = [name.strip() for name in header]
    for name in REQUIRED:
        if name not in columns:
            raise ValueError(f"there is no column {name}; the first line names the columns ({', '.join(REQUIRED)})")
    for place, name in enumerate(columns):
        if name not in COLUMNS:
            raise ValueError(f"the column {name[:SHOWN]!r} is unknown; there may be {', '.join(COLUMNS)}")
        if name in columns[:place]:
            raise ValueError(f"the column {name} stands there twice")
    return columns


def _arrival(columns: Sequence[str], row: Sequence[str]) -> Arrival:
    if len(row) != len(columns):
        raise ValueError(f"{len(row)} values for {len(columns)} columns")
    cells = dict(zip(columns, (cell.strip() for cell in row), strict=True))
    for name, pattern in OPTIONAL.items():
        if cells.get(name) == "":
            raise ValueError(f"{name} is empty; either every request has one, or leave the column out")
        if name in cells and not re.fullmatch(pattern, cells[name]):
            raise ValueError(f"{name} is {cells[name][:SHOWN]!r}; Fairlane takes names of the form {pattern}")
    prompt, answer = _tokens(cells, "input_tokens"), _tokens(cells, "output_tokens")
    return Arrival(1000 * _seconds(cells), cells.get("tenant", ""), cells.get("tier", ""), prompt, answer)


def _seconds(cells: Mapping[str, str]) -> float:
    text = cells["arrival_s"]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= 1000 * value < math.inf:
        raise ValueError(f"arrival_s is {text[:SHOWN]!r}, not a number of seconds from 0 on")
    return value


def _tokens(cells: Mapping[str, str], name: str) -> int:
    text = cells[name]
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_TOKENS:
        raise ValueError(
            f"{name} is {text[:SHOWN]!r}, not a whole number from 1 to {MOST_TOKENS}; leave out requests that failed"
        )
    return value
