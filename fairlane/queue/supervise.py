"""Runs a program that cannot outlive the process that started it, however that process ends.

Between the two stands a guard: this file, run by a bare interpreter with the standard library only. It ends the program
when the owner's end of a pipe closes, which the kernel does even after SIGKILL. The other ways are weaker: an `atexit`
does not run after SIGKILL; PR_SET_PDEATHSIG exists on Linux only, fires when the *thread* that forked ends, and needs
code between fork and exec, which is unsafe in an owner with threads. The guard has one thread; it uses the signal for
the one case that is left, its own death by SIGKILL (so that case is covered on Linux only).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

GRACE_S = 5.0  # from SIGTERM to SIGKILL
OWNER_CHECK_S = 0.5
_PR_SET_PDEATHSIG = 1


class Supervised:
    """A running program and its guard, as the owner sees them."""

    def __init__(self, command: Sequence[str], *, cwd: Path, log: BinaryIO, keep_fds: Sequence[int] = ()) -> None:
        """Starts `command` with its output appended to `log`; it inherits `keep_fds` and holds them while it lives.

        Raises `OSError` if the program cannot be run; the reason is then in `log`.
        """
        self._owner = os.getpid()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self._owner), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=cwd,
            pass_fds=keep_fds,
            start_new_session=True,  # Ctrl-C in a terminal reaches the owner only, which stops things in its own order
        )
        assert self._guard.stdin is not None  # noqa: S101 - for the type checker: both are pipes
        assert self._guard.stdout is not None  # noqa: S101
        self._life_line = self._guard.stdin
        with self._guard.stdout as report:
            pid = report.readline()
        if not pid:
            self.stop()
            raise OSError(f"{command[0]} could not be run")
        self.pid = int(pid)

    @property
    def alive(self) -> bool:
        """Whether the program still runs."""
        return self._guard.poll() is None

    def stop(self) -> None:
        """Ends the program: SIGTERM, after `GRACE_S` SIGKILL. Returns when it is gone; repeatable."""
        if os.getpid() != self._owner:
            return  # a forked copy of the owner that leaves a `with` block must not end what the owner still uses
        with contextlib.suppress(BrokenPipeError, ValueError):  # the guard is gone; stopped before
            self._life_line.write(b".")  # closing is not seen while a forked copy holds the pipe too
            self._life_line.close()
        self._guard.wait()


def guard(owner: int, command: Sequence[str]) -> None:
    """Runs `command`, tells its pid on stdout, and ends it as soon as process `owner` or its end of stdin is gone."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)  # a child's end then interrupts `select`, without a race
    signal.signal(signal.SIGCHLD, _on_child_end)
    signal.signal(signal.SIGTERM, _on_sigterm)
    program = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        close_fds=False,  # hands on the owner's `keep_fds`
        preexec_fn=_die_with_guard if sys.platform == "linux" else None,  # safe here: one thread
    )
    try:
        os.write(sys.stdout.fileno(), b"%d\n" % program.pid)
        # The pipe alone is not enough: a process that the owner forked without exec (multiprocessing) keeps it open.
        while program.poll() is None and os.getppid() == owner:
            readable, _, _ = select.select([sys.stdin, woken], [], [], OWNER_CHECK_S)
            if sys.stdin in readable:
                break
            if woken in readable:
                os.read(woken, 1)  # also when the program is stopped or continued, not only at its end
    finally:
        _end(program)


def _on_child_end(signum: int, frame: FrameType | None) -> None:
    """Nothing to do: that there is a handler wakes `select`."""


def _on_sigterm(signum: int, frame: FrameType | None) -> None:
    sys.exit()


def _die_with_guard() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(program: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program.terminate()
    try:
        program.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2:])
