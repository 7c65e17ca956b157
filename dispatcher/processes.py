"""Runs commands as processes side by side: starts them, starts one that dies again, and ends them all in order."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Final

import structlog

POLL_S: Final = 0.1
AGAIN_S: Final = (0.2, 10.0)  # after a death; doubled each time until the process has lived for STEADY_S
STEADY_S: Final = 30.0
log = structlog.get_logger()


class Child:
    """One of the processes. It is not ours to keep alive after us: give it `--parent`, and it ends when we do."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, output: IO[bytes] | None = None
    ) -> None:
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self._env = env
        self._output = output
        self._start_at = self._started = 0.0
        self._pause_s = AGAIN_S[0]

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def look(self) -> None:
        """Starts it if it does not run, later and later if it dies again and again."""
        now = time.monotonic()
        if self.process is not None and not self.alive:
            what = " ".join(self.command[3:5])  # after `python -m fairlane.cli`
            log.warning("process_died", pid=self.process.pid, status=self.process.returncode, command=what)
            steady = now - self._started > STEADY_S
            self._pause_s = AGAIN_S[0] if steady else min(AGAIN_S[1], 2 * self._pause_s)
            self.process, self._start_at = None, now + self._pause_s
        if self.process is None and now >= self._start_at:
            # a session of its own: Ctrl-C reaches us only, and we end them in order
            self.process = subprocess.Popen(
                self.command, env=self._env, stdout=self._output, stderr=self._output, start_new_session=True
            )
            self._started = now

    def terminate(self) -> None:
        """SIGTERM."""
        if self.process and self.alive:
            self.process.send_signal(signal.SIGTERM)

    def reap(self, grace_s: float) -> None:
        """Waits for its end; SIGKILL after `grace_s`. (Not SIGTERM again: that means to hurry.)"""
        if self.process:
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def run_copies(commands: Sequence[Sequence[str]]) -> None:
    """Runs each command as a process until SIGTERM or SIGINT, which are passed on; returns when all have ended."""
    asked, woken = [0], threading.Event()
    children = [Child(command) for command in commands]

    def ask(signum: int, frame: object) -> None:
        asked[0] += 1
        woken.set()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, ask)
    while not asked[0]:
        for child in children:
            child.look()
        woken.wait(POLL_S)
    passed_on = 0
    while any(child.alive for child in children):
        if passed_on < asked[0]:
            passed_on += 1
            for child in children:
                child.terminate()
        woken.clear()
        woken.wait(POLL_S)
