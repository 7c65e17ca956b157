"""Many deliveries at once in a thread: how many, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import pytest

from dispatcher.webhooks import rounds as rounds_module
from dispatcher.webhooks.rounds import Rounds
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from fairlane.webhooks.delivery import Counts, NewDelivery, Own
from fairlane.webhooks.outbox import Outbox
from tests.servers import ValkeyServer

SECRET: Final = f"whsec_{base64.b64encode(bytes(32)).decode()}"
LEASE_MS: Final = 30_000
PATIENCE_S: Final = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as started:
        yield started


class Door:
    """A receiver that keeps everybody waiting until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.came = 0
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            self.came += 1
        self.opened.wait(PATIENCE_S)

    def until(self, came: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.came < came:
            assert time.monotonic() < end, f"only {self.came} of {came} came"
            time.sleep(0.01)


@contextmanager
def listening(door: Door) -> Iterator[int]:
    """Its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            door.wait()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Says nothing."""

    class Listener(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Who hurries hangs up."""

    with Listener(("127.0.0.1", 0), Handler) as listener:
        threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield listener.server_address[1]
        finally:
            door.opened.set()
            listener.shutdown()


def given_out(settings: Settings, port: int, n: int) -> list[tuple[str, int]]:
    """Deliveries by id and token."""

    async def give() -> list[tuple[str, int]]:
        queue = await Queue.open(str(settings.redis_url), namespace=settings.namespace)
        outbox = Outbox(queue.store)
        own = Own(f"http://127.0.0.1:{port}/", SECRET)
        await outbox.add([NewDelivery(f"msg_{i}", "ann", f"adhoc_{i}", None, own, "x", "j", b"{}") for i in range(n)])
        given = await outbox.take(n, LEASE_MS)
        await queue.close()
        return given

    return asyncio.run(give())


def counted(settings: Settings) -> Counts:
    async def count() -> Counts:
        queue = await Queue.open(str(settings.redis_url), namespace=settings.namespace)
        counts = await Outbox(queue.store).counts()
        await queue.close()
        return counts

    return asyncio.run(count())


def settings_for(server: ValkeyServer, port: int, namespace: str) -> Settings:
    return Settings(
        redis_url=server.url,
        namespace=namespace,
        webhook_allow=f"127.0.0.1:{port}",
        webhook_timeout_s=PATIENCE_S,
    )


def test_whoever_hands_over_waits_while_there_is_enough_under_way(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "MOST", 4)
    door = Door()
    with listening(door) as port, ThreadPoolExecutor() as threads:
        settings = settings_for(server, port, "full")
        with Rounds(settings) as rounds:
            handing = threads.submit(rounds.hand, given_out(settings, port, 10))
            door.until(4)
            assert not handing.done()
            assert door.came == 4
            door.opened.set()
            handing.result(PATIENCE_S)
            door.until(10)
    assert counted(settings).delivered == 10


def test_at_the_end_what_is_under_way_arrives_and_nothing_new_begins(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "MOST", 2)
    door = Door()
    with listening(door) as port, ThreadPoolExecutor() as threads:
        settings = settings_for(server, port, "ends")
        with Rounds(settings) as rounds:
            handing = threads.submit(rounds.hand, given_out(settings, port, 5))
            door.until(2)
            rounds.drain()
            handing.result(PATIENCE_S)  # it does not wait for room any more
            threads.submit(door.opened.set)
        assert door.came == 2
    counts = counted(settings)
    assert (counts.delivered, counts.pending) == (2, 3)


def test_in_a_hurry_nothing_is_waited_for(server: ValkeyServer) -> None:
    door = Door()
    with listening(door) as port:
        settings = settings_for(server, port, "hurry")
        with Rounds(settings) as rounds:
            rounds.hand(given_out(settings, port, 3))
            door.until(3)
            began = time.monotonic()
            rounds.drain()
            rounds.drain(hurry=True)
        assert time.monotonic() - began < PATIENCE_S / 2
    counts = counted(settings)
    assert (counts.delivered, counts.failed, counts.pending) == (0, 0, 3)


def test_it_ends_though_redis_was_never_there() -> None:
    with Rounds(Settings(redis_url="redis://127.0.0.1:1/0")) as rounds:
        rounds.drain()
        rounds.hand([("msg_1", 1)])
