"""A whole Fairlane with data in it, as processes on free ports, for the browser's tests and the screenshots."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx
from anyio.from_thread import start_blocking_portal

from fairlane.queue.supervise import Supervised
from fairlane.up import free_port
from tests.browser.seed import LLAMA, MISTRAL, QWEN, Seeded, seed
from tests.servers import ValkeyServer

REPOSITORY: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 30.0
SIMS: Final = {  # name → options of `fairlane sim-backend`
    (LLAMA, "h100-1"): ("--slots", "16", "--step-ms", "30"),
    (LLAMA, "h100-2"): ("--slots", "16", "--step-ms", "30", "--kv-tokens", "2200"),
    (LLAMA, "h100-3"): ("--slots", "16", "--step-ms", "30"),
    (QWEN, "a10-1"): ("--slots", "8", "--step-ms", "20"),
}


@dataclass(frozen=True)
class Stack:
    """Where it is, and what is in it."""

    url: str
    redis_url: str
    seeded: Seeded
    received: list[str]
    """The ids of the webhooks that have arrived."""


@contextmanager
def stack() -> Iterator[Stack]:
    """Everything, while the block runs."""
    with ExitStack() as started, tempfile.TemporaryDirectory(prefix="fairlane-browser-") as folder:
        redis = started.enter_context(ValkeyServer())
        received, hook_url = started.enter_context(_receiver())
        run = _Runner(started, Path(folder), redis.url, hook_url)
        backends = {pool: {} for pool in (LLAMA, QWEN, MISTRAL)} | {
            MISTRAL: {"l40s-1": f"http://127.0.0.1:{free_port()}"}
        }
        for (pool, name), options in SIMS.items():
            port = free_port()
            run("sim-backend", "--port", str(port), "--model", pool, *options)
            backends[pool][name] = f"http://127.0.0.1:{port}"
        with start_blocking_portal() as portal:  # Playwright has a loop in this thread
            seeded = portal.call(seed, redis.url, backends, hook_url, f"{folder}/files", round(time.time() * 1000))
        port = free_port()
        run("admin", "--port", str(port))
        run("dispatcher")
        run("worker")
        url = f"http://127.0.0.1:{port}"
        _await(url)
        yield Stack(url, redis.url, seeded, received)


class _Runner:
    """Starts our own commands, which end with the block; what they say is in the folder."""

    def __init__(self, started: ExitStack, folder: Path, redis_url: str, hook_url: str) -> None:
        self._started = started
        self._folder = folder
        self._settings = {
            "FAIRLANE_REDIS_URL": redis_url,
            "FAIRLANE_DATA_DIR": str(folder),
            "FAIRLANE_FILES_URL": f"{folder}/files",
            "FAIRLANE_WEBHOOK_ALLOW": httpx.URL(hook_url).netloc.decode(),
            "FAIRLANE_DRAIN_S": "1",
        }

    def __call__(self, *command: str) -> None:
        settings = [f"{name}={value}" for name, value in self._settings.items()]
        log = self._started.enter_context((self._folder / f"{command[0]}.log").open("ab"))
        program = ["env", *settings, sys.executable, "-m", "fairlane.cli", *command]
        self._started.callback(Supervised(program, cwd=REPOSITORY, log=log).stop)


@contextmanager
def _receiver() -> Iterator[tuple[list[str], str]]:
    """Takes webhooks: the list of their ids, and where it is."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            received.append(self.headers["webhook-id"])
            self.send_response(204)
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield received, f"http://127.0.0.1:{server.server_port}/orders"
        finally:
            server.shutdown()
            serving.join()


def _await(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with httpx.Client(trust_env=False) as client:
        while True:
            try:
                client.get(f"{url}/login").raise_for_status()
                return
            except httpx.HTTPError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
