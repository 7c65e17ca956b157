"""Fairlane beside taskiq-redis, Dramatiq, Huey, RQ and Celery, in one run on one Redis: prints the table (Markdown).

In each round each queue is measured once, another one first in each. A queue does 1. batches, without workers; 2.
single submits while its workers are held, then their drain, without results; 3. round trips one at a time, then 10,000
jobs of a heavy tenant and one of a light one while its workers are held, and their drain, with results. The table has
the medians of the rounds; Fairlane is compared with the best of the others within each round. Exit code 1: it is not
ahead in everything, or one of them failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks import servers
from benchmarks.peers.measure import Figures, Size, measure
from benchmarks.peers.peer import Peer
from benchmarks.peers.table import markdown, standings

NAMES: Final = ("fairlane", "taskiq", "dramatiq", "huey", "rq", "celery")
QUICK: Final = Size(submit_s=0.2, batch=1_000, heavy=1_000, round_trips=50)


def main() -> None:
    given = _options()
    peers = [_peer(name) for name in given.queues]
    began, load = time.monotonic(), os.getloadavg()[0]
    rounds: list[dict[str, Figures]] = []
    with servers.server("redis", given.appendfsync) as server:
        for n in range(given.rounds):
            rounds.append({peer.name: figures for peer in _turned(peers, n) if (figures := _try(peer, server, given))})
            _say(f"round {n + 1} of {given.rounds} after {time.monotonic() - began:.0f} s")
    inorder = [{peer.name: one[peer.name] for peer in peers if peer.name in one} for one in rounds]
    compared = standings(inorder)
    print(f"{_setting(given, load)}\n\n{_versions(peers)}\n\n{markdown(inorder)}\n")
    for standing in compared:
        print(f"- {standing.line()}{'' if standing.ahead else ' – NOT AHEAD'}")
    if given.json:
        given.json.write_text(json.dumps([{name: asdict(f) for name, f in one.items()} for one in inorder], indent=1))
    whole = all(len(one) == len(peers) for one in rounds)
    raise SystemExit(0 if whole and all(standing.ahead for standing in compared) else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--queues", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="worker processes of each queue")
    parser.add_argument("--appendfsync", choices=servers.PERSISTENCES, default="everysec", help="none: no AOF")
    parser.add_argument("--quick", action="store_true", help="few jobs: whether it works, not how fast it is")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures of all rounds there")
    return parser.parse_args()


def _peer(name: str) -> Peer:
    return import_module(f"benchmarks.peers.with_{name}").PEER


def _turned(peers: Sequence[Peer], n: int) -> list[Peer]:
    """Another one is the first in each round."""
    n %= len(peers)
    return [*peers[n:], *peers[:n]]


def _try(peer: Peer, server: servers.Measured, given: argparse.Namespace) -> Figures | None:
    """None if it failed: the others are measured all the same."""
    began = time.monotonic()
    try:
        found = measure(peer, server, given.workers, QUICK if given.quick else Size())
    except Exception as error:  # noqa: BLE001  # of whatever library
        _say(f"{peer.name} FAILED: {error!r}")
        return None
    said = ", ".join(f"{name} {value:,.1f}" for name, value in asdict(found).items() if value is not None)
    _say(f"{peer.name} ({time.monotonic() - began:.0f} s): {said}")
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _setting(given: argparse.Namespace, load: float) -> str:
    keeps = "no AOF" if given.appendfsync == "none" else f"appendonly yes, appendfsync {given.appendfsync}"
    return (
        f"{servers.version('redis')} ({keeps}), Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {load:.1f} at the start; {given.workers} worker processes each, medians of "
        f"{given.rounds} rounds{' (quick: figures mean nothing)' if given.quick else ''}."
    )


def _versions(peers: Sequence[Peer]) -> str:
    found: Mapping[str, str] = {name: version(name) for peer in peers for name in (*peer.packages, "redis", "hiredis")}
    return "Versions: " + ", ".join(f"{name} {number}" for name, number in found.items()) + "."


if __name__ == "__main__":
    main()
