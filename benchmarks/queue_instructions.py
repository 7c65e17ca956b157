"""Counts the instructions that Redis needs for each step of a lifecycle, under callgrind: no noise from other work.

`python -m benchmarks.queue_instructions --help`. Needs valgrind. A step's figure is that of a job, 100 in a pipeline.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from redis import Redis

from benchmarks.lifecycle import DEPTH, Fairlane, Side, Yardstick, opened
from benchmarks.servers import Measured, StoreName, binary
from fairlane.queue.launch import free_ports, start_server

TENANTS: Final = 10
_TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_instructions", description=__doc__)
    parser.add_argument("--store", choices=("valkey", "redis"), default="redis")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=1, help="jobs a call, as under load")
    parser.add_argument("--functions", type=Path, metavar="FOLDER", help="keep callgrind's files there, for each step")
    options = parser.parse_args()
    if not shutil.which("callgrind_control"):
        parser.error("valgrind is not installed")
    with TemporaryDirectory() as folder:
        kept = options.functions or Path(folder)
        with _watched(options.store, Path(folder)) as running, running.client() as client:
            theirs = _count(running, client, Yardstick(client, TENANTS), options.jobs, kept / "raw")
            client.flushall()
            side = Fairlane(client, opened(running), TENANTS, at_once=options.at_once)
            ours = _count(running, client, side, options.jobs, kept / "ours")
    for name, raw in theirs.items():
        print(f"{name:8} {ours[name]:9,.0f}  yardstick {raw:7,.0f}  {ours[name] / raw:5.2f} ×")


@contextmanager
def _watched(store: StoreName, folder: Path) -> Iterator[Measured]:
    command = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", binary(store),
        "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
    ]  # fmt: skip
    server = start_server(lambda port: [*command, "--port", str(port)], free_ports(), log=folder / "server.log")
    try:
        yield Measured(f"redis://127.0.0.1:{server.port}/0", server.process.pid)
    finally:
        server.process.stop()


def _count(server: Measured, client: Redis, side: Side, jobs: int, keep: Path) -> dict[str, float]:
    """Instructions of a job's steps, and of all of them."""
    steps: dict[str, Callable[[int], None]] = {"submit": side.submit, "acquire": side.acquire, "settle": side.settle}
    for step in steps.values():
        step(DEPTH)
    counts = dict.fromkeys(steps, 0.0)
    for name, step in steps.items():
        _dump(server)
        for _ in range(jobs // DEPTH):
            step(DEPTH)
        counts[name] = _dump(server, keep.with_name(f"{keep.name}-{name}")) / (jobs // DEPTH * DEPTH)
    return counts | {"all": sum(counts.values())}


def _dump(server: Measured, keep: Path | None = None) -> int:
    """The instructions since the last dump."""
    before = set(_folder(server).glob("out.*"))
    subprocess.run(["callgrind_control", "--dump=step", str(server.pid)], check=True, capture_output=True)
    (written,) = set(_folder(server).glob("out.*")) - before
    text = written.read_text()
    if keep:
        keep.write_text(text)
    return int(_TOTAL.findall(text)[-1])


def _folder(server: Measured) -> Path:
    return Path(f"/proc/{server.pid}/cwd").resolve()


if __name__ == "__main__":
    main()
