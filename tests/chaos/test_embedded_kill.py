"""Whatever is killed around the embedded server: no acknowledged write is lost, and no server is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import ConnectionError as Disconnected
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fairlane.queue.embedded import DataDirInUse, EmbeddedServer

ROUNDS = 7
CONNECTIONS = 4
ACKNOWLEDGED_PER_ROUND = 400
GONE_S = 2.0  # after its owner's death

OWNER = """
import multiprocessing, sys, time
from fairlane.queue.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
server.start()
if "fork" in sys.argv:
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,)).start()
print(server.pid, server.url, flush=True)
sys.stdin.read()
"""


class Writer(threading.Thread):
    """Appends 0, 1, 2 … to a stream of its own until the server is gone; `acknowledged` counts the answers."""

    def __init__(self, url: str, stream: str, start: int) -> None:
        super().__init__()
        self.url, self.stream, self.acknowledged = url, stream, start

    def run(self) -> None:
        with Redis.from_url(self.url, retry=Retry(NoBackoff(), 0)) as client:
            try:
                while True:
                    client.xadd(self.stream, {"n": self.acknowledged})
                    self.acknowledged += 1
            except Disconnected:
                pass


def test_a_killed_server_loses_no_acknowledged_write(tmp_path: Path) -> None:
    written = dict.fromkeys((f"stream{n}" for n in range(CONNECTIONS)), 0)
    server = EmbeddedServer(tmp_path)
    for _ in range(ROUNDS):
        server.start()
        written = read_back(server.url, at_least=written)
        writers = [Writer(server.url, stream, start) for stream, start in written.items()]
        before = sum(written.values())
        for writer in writers:
            writer.start()
        wait_until(lambda: sum(w.acknowledged for w in writers) >= before + ACKNOWLEDGED_PER_ROUND)  # noqa: B023
        os.kill(server.pid, signal.SIGKILL)
        for writer in writers:
            writer.join()
        written = {writer.stream: writer.acknowledged for writer in writers}
        wait_until(lambda: not server.alive)
    with server:
        read_back(server.url, at_least=written)


def read_back(url: str, at_least: dict[str, int]) -> dict[str, int]:
    """How long each stream is. It must hold all acknowledged numbers in order, and may hold one more."""
    lengths: dict[str, int] = {}
    with Redis.from_url(url) as client:
        for stream, acknowledged in at_least.items():
            entries: Any = client.xrange(stream)
            numbers = [int(fields[b"n"]) for _, fields in entries]
            assert numbers == list(range(len(numbers)))
            assert acknowledged <= len(numbers) <= acknowledged + 1
            lengths[stream] = len(numbers)
    return lengths


@pytest.mark.parametrize("children", ["none", "fork"])
def test_the_server_dies_with_its_owner(tmp_path: Path, children: str) -> None:
    """Also when a process that the owner forked, and which holds copies of all its file descriptors, lives on."""
    with owner(tmp_path, children) as (process, pid, _):
        process.kill()
        process.wait()
        wait_until(lambda: not exists(pid), GONE_S)


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal")
def test_the_server_dies_with_its_guard(tmp_path: Path) -> None:
    """As when someone kills everything that has `fairlane` in its command line."""
    with owner(tmp_path) as (process, pid, _):
        guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        process.kill()
        wait_until(lambda: not exists(pid), GONE_S)


def test_a_second_owner_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, pid, _):
        with pytest.raises(DataDirInUse, match=f"process {process.pid}"):
            EmbeddedServer(tmp_path).start()
        assert exists(pid)


@pytest.mark.parametrize("children", ["none", "fork"])
def test_a_killed_owner_can_be_replaced_at_once(tmp_path: Path, children: str) -> None:
    """Its lock is no obstacle, and its server, which may need a moment to end, is waited for."""
    with owner(tmp_path, children) as (process, pid, url):
        with Redis.from_url(url) as client:
            client.set("kept", "yes")
        process.kill()
        with EmbeddedServer(tmp_path) as server, Redis.from_url(url) as client:
            assert server.url == url
            assert client.get("kept") == b"yes"
            assert not exists(pid)


def test_ctrl_c_reaches_the_owner_only(tmp_path: Path) -> None:
    """So that the owner can drain: what else it started still needs the store."""
    with owner(tmp_path) as (process, pid, _):
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        wait_until(lambda: not exists(pid), GONE_S)
    assert "User requested shutdown" in (tmp_path / "valkey" / "valkey.log").read_text()
    assert "SIGINT" not in (tmp_path / "valkey" / "valkey.log").read_text()


@contextmanager
def owner(data_dir: Path, children: str = "none") -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Another process that has started the server: it, the server's pid and URL."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data_dir), children],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    )
    with process:
        try:
            assert process.stdout
            pid, url = process.stdout.readline().split()
            yield process, int(pid), url
        finally:
            process.kill()
            if children == "fork":
                os.killpg(process.pid, signal.SIGKILL)


def exists(pid: int) -> bool:
    """Whether the process lives. One that is dead but not reaped yet (by whoever inherited it) does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def wait_until(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
