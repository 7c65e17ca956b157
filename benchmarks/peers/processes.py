"""The worker processes of one queue: started, frozen, let go on, and ended with all that they have started (Linux)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fairlane.queue.supervise import Supervised

LOOK_S: Final = 0.25
QUIET_SHARE: Final = 0.15  # of one core: workers that wait take less
READY_S: Final = 60.0
LOG_TAIL: Final = 2_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Processes:
    """A command and all its descendants."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            words = ["env", *(f"{name}={value}" for name, value in env.items()), *command]  # execs the command
            self._main = Supervised(words, cwd=Path.cwd(), log=output)

    def stop(self) -> None:
        """Freezes them all."""
        self._tell(signal.SIGSTOP)

    def go_on(self) -> None:
        self._tell(signal.SIGCONT)

    def settle(self, least: int) -> None:
        """Returns when at least so many processes are there, and they wait for work. Raises RuntimeError."""
        ends, before = time.monotonic() + READY_S, -1.0
        while time.monotonic() < ends:
            if not self._main.alive:
                break
            time.sleep(LOOK_S)
            pids = self._pids()
            now = sum(map(_cpu_s, pids))
            if len(pids) >= least and 0 <= now - before < QUIET_SHARE * LOOK_S:
                return
            before = now
        raise RuntimeError(f"the workers do not come to rest. Their log ends: {self.tail()}")

    def tail(self) -> str:
        return self.log.read_bytes()[-LOG_TAIL:].decode(errors="replace")

    def end(self) -> None:
        """Ends them: gently, then by force. None is left."""
        pids = self._pids()
        self._tell(signal.SIGCONT)
        self._main.stop()
        for pid, started in pids.items():
            if _started(pid) == started:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _tell(self, what: signal.Signals) -> None:
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def _pids(self) -> dict[int, str]:
        """Our processes, each with its start time, which tells it from a later one of the same id."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*"):
            if stat := _stat(int(path.name)):
                children.setdefault(int(stat[1]), []).append(int(path.name))
        found: dict[int, str] = {}
        todo = [self._main.pid]
        while todo:
            pid = todo.pop()
            found[pid] = _started(pid)
            todo += children.get(pid, [])
        return found


@contextmanager
def processes(command: Sequence[str], env: Mapping[str, str], least: int) -> Iterator[Processes]:
    """Runs the command while the block does; begins when at least so many processes wait for work."""
    with TemporaryDirectory(prefix="fairlane-peers-") as folder:
        running = Processes(command, env, Path(folder) / "workers.log")
        try:
            running.settle(least)
            yield running
        except BaseException:
            print(running.tail())
            raise
        finally:
            running.end()


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; none if there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _started(pid: int) -> str:
    stat = _stat(pid)
    return stat[19] if stat else ""


def _cpu_s(pid: int) -> float:
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / _TICKS if stat else 0.0
