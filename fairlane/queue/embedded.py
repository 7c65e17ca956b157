"""A private Valkey for when no Redis URL is given: it keeps everything on disk, and lives and dies with its owner.

Nothing here is Fairlane's own format: the folder holds Valkey's append-only files, its configuration and its log, and
beside them `access.json` (port and password, so that old URLs go on working after a restart) and `lock`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from fairlane.errors import FairlaneError
from fairlane.queue.launch import RunningServer, find_binary, free_ports, start_server

HANDOVER_S = 10.0  # how long a dead owner's server may take to leave the folder
DYING_S = 2.0  # an owner that seems to live for so long after that does live: it is neither dying nor a zombie
POLL_S = 0.01

Fsync = Literal["always", "everysec"]


class DataDirInUse(FairlaneError):
    """Another process uses this data directory. Stop it, or choose another directory."""

    code, status = "data_dir_in_use", 503

    def __init__(self, data_dir: Path, pid: int) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f"{data_dir} is in use by {holder}. Stop it, or choose another data directory.")
        self.pid = pid


class EmbeddedServer:
    """A Valkey server of our own on a loopback port; its files are in `<data_dir>/valkey` (mode 0700).

    Use it as a context manager, or call `start()` and `stop()` from one and the same process. It must be that process
    that stays: when it ends, however it ends, the server ends too. All calls block; use a thread in async code.
    """

    def __init__(self, data_dir: Path | str, *, appendfsync: Fsync = "always") -> None:
        """`appendfsync="everysec"` is faster on slow disks and may lose the last 1 to 2 s of acknowledged jobs."""
        self.data_dir = Path(data_dir).absolute()
        self._folder = self.data_dir / "valkey"
        self._appendfsync: Fsync = appendfsync
        self._running: RunningServer | None = None
        self._password = ""

    @property
    def url(self) -> str:
        """`redis://:password@127.0.0.1:port/0`, for any Redis client."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._started().process.pid

    @property
    def port(self) -> int:
        return self._started().port

    @property
    def alive(self) -> bool:
        """Whether the server process runs; false before `start()`, after `stop()` and some ms after a crash."""
        return self._running is not None and self._running.process.alive

    def start(self) -> None:
        """Starts the server and returns when it answers, with all its data loaded (which may take minutes).

        After a crash of the server it starts a new one. Raises `DataDirInUse`, `StoreUnsuitable` if there is no server
        program on this machine, and `StoreUnavailable` with the end of the log if the server does not come up.
        """
        if self.alive:
            raise DataDirInUse(self.data_dir, os.getpid())
        self.stop()
        binary = find_binary()
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(exist_ok=True)
        self._folder.chmod(0o700)
        lock = _take_lock(self._folder / "lock", self.data_dir)
        try:
            self._launch(binary, lock)
        except BaseException:
            self.stop()
            raise
        finally:
            os.close(lock)

    def stop(self) -> None:
        """Stops the server, which frees the folder: SIGTERM, then SIGKILL after 5 s. Repeatable."""
        if self._running is not None:
            self._running.process.stop()
            self._running = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _started(self) -> RunningServer:
        if self._running is None:
            raise RuntimeError("the embedded server is not started")
        return self._running

    def _launch(self, binary: str, lock: int) -> None:
        old = _read_access(self._folder / "access.json")
        self._password = old.password if old else secrets.token_urlsafe(32)
        log = self._folder / "valkey.log"
        if log.exists():
            log.replace(log.with_suffix(".log.old"))
        config = self._folder / "valkey.conf"

        def command(port: int) -> list[str]:
            # In a private file, since everyone can see a command line.
            write_private(config, _configuration(port, self._password, self._appendfsync))
            return [binary, config.name]

        ports = free_ports(first=old.port if old else None)
        self._running = start_server(command, ports, log=log, password=self._password, keep_fds=[lock])
        write_private(self._folder / "access.json", json.dumps(asdict(_Access(self._running.port, self._password))))


def _take_lock(path: Path, data_dir: Path) -> int:
    """An open file with the folder's lock and our pid in it. The kernel frees the lock when its last holder ends.

    The server and its guard inherit it and are soon its only holders: the folder is locked until a server whose owner
    was killed is really gone, and not a moment longer, whatever the owner has forked. That moment is waited for.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _named_in(lock)
            if time.monotonic() - began > (DYING_S if _is_alive(owner) else HANDOVER_S):
                os.close(lock)
                raise DataDirInUse(data_dir, owner) from None
            time.sleep(POLL_S)
        else:
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d" % os.getpid(), 0)
            return lock


def _named_in(lock: int) -> int:
    return int(os.pread(lock, 20, 0) or 0)


def _is_alive(pid: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


@dataclass(frozen=True)
class _Access:
    port: int
    password: str


def _read_access(path: Path) -> _Access | None:
    try:
        return _Access(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def write_private(path: Path, text: str) -> None:
    """Replaces the file in one step, readable by its owner only from the first moment."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _configuration(port: int, password: str, appendfsync: Fsync) -> str:
    """Directives that Redis 6.2 and Valkey share. Files go to the working directory."""
    return f"""\
bind 127.0.0.1
port {port}
requirepass {password}
daemonize no
appendonly yes
appendfsync {appendfsync}
no-appendfsync-on-rewrite no
aof-use-rdb-preamble yes
aof-load-truncated yes
save ""
maxmemory-policy noeviction
"""
