"""How much of the machine others used while something was measured (Linux; elsewhere nothing is said)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")
IDLE: Final = slice(3, 5)  # of the times in /proc/stat: idle, and waiting for a disk
STEAL: Final = 7
COUNTED: Final = 8  # what follows is counted before already


class Noise:
    """From when it is made until it is printed. Ours: this process and all that it started."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._before = _busy_s()

    def __str__(self) -> str:
        """The share of all cores that others used; the load generator's own share of one core is not in it."""
        if self._before is None or (now := _busy_s()) is None:
            return "CPU of others: unknown."
        whole_s = (time.monotonic() - self._began_s) * (os.cpu_count() or 1)
        all_s, ours_s, stolen_s = (later - earlier for later, earlier in zip(now, self._before, strict=True))
        others = max(0.0, all_s - ours_s) / whole_s
        return f"CPU of others: {others:.0%}, stolen by the host: {stolen_s / whole_s:.0%}."


def _busy_s() -> tuple[float, float, float] | None:
    """Seconds that all cores worked, that our processes did, and that were stolen."""
    try:
        times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return None
    stolen = times[STEAL]
    busy = sum(times[:COUNTED]) - sum(times[IDLE]) - stolen
    return busy / TICKS, _ours(os.getpid()) / TICKS, stolen / TICKS


def _ours(root: int) -> int:
    """Ticks of a process and its descendants, those that have ended included where they were waited for."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        process = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(process)
        ticks[process] = sum(int(field) for field in fields[11:15])
    found, ours = [root], 0
    while found:
        process = found.pop()
        ours += ticks.get(process, 0)
        found += parents.get(process, [])
    return ours
