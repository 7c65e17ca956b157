"""A simulated backend in a process of its own, for tests; it cannot outlive pytest, even if that is killed."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlane.queue.supervise import Supervised

REPOSITORY = Path(__file__).parents[2]
READY_S = 30.0


@dataclass(frozen=True)
class Server:
    """Where it is, and which process it is."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def simulated(*options: str) -> Generator[Server, None, None]:
    """Runs one while the block does. `options` as in `python -m dispatcher.backends.simulated --help`:
    `"--slots", "64", "--priority", "obeyed"`, and `"--port", …` to start one again where another one was.
    """
    command = [sys.executable, "-m", "dispatcher.backends.simulated", *options]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        with path.open("wb") as log:
            process = Supervised(command, cwd=REPOSITORY, log=log)
        try:
            yield Server(_port(process, path), process.pid)
        finally:
            process.stop()


def _port(process: Supervised, log: Path) -> int:
    """The first line that it prints."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        said = log.read_text()
        if said.endswith("\n") and said.strip().isdecimal():
            return int(said)
        if not process.alive:
            raise OSError(f"the simulated backend did not start: {said}")
        time.sleep(0.01)
    raise TimeoutError(f"the simulated backend did not start within {READY_S} s: {log.read_text()}")
