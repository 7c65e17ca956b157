"""One delivery at a time: what is sent, and what is made of the answer."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from dispatcher.webhooks import courier as courier_module
from dispatcher.webhooks.attempt import MOST_READ, Answered, attempt, legible, words
from dispatcher.webhooks.courier import Courier
from dispatcher.webhooks.safe_http import SafeTransport
from dispatcher.webhooks.verdict import verdict
from fairlane.errors import LeaseLost, StoreUnavailable
from fairlane.safe_url import Guard
from fairlane.settings import Settings
from fairlane.webhooks.delivery import Outcome, Sending

SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"
SCHEDULE = (0.0, 5.0, 300.0)
SENDING = Sending("msg_1", "ann", "", {}, (SECRET,), b'{"type":"job.succeeded"}', 1, 0, "whe_1")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def receiver(handler: Handler) -> AsyncIterator[str]:
    """The URL of a server."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = SafeTransport(Guard.of("127.0.0.1", ",".join(map(str, range(1, 65_536)))))
    async with httpx.AsyncClient(transport=transport, trust_env=False) as made:
        yield made


async def tried(client: httpx.AsyncClient, handler: Handler, timeout_s: float = 5.0, **more: Any) -> Answered:
    async with receiver(handler) as url:
        return await attempt(client, replace(SENDING, url=f"{url}/hook?x=1", **more), timeout_s)


async def test_what_is_sent_can_be_checked_and_is_ours(client: httpx.AsyncClient) -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, str(request.rel_url), dict(request.headers), await request.read()))
        return web.Response(text="thanks")

    own = {"Authorization": "Bearer x", "User-Agent": "theirs", "Webhook-Id": "theirs"}
    answered = await tried(client, handler, headers=own)
    ((method, target, headers, body),) = seen
    assert (method, target, body) == ("POST", "/hook?x=1", SENDING.payload)
    assert Webhook(SECRET).verify(body, headers) == json.loads(body)
    lower = {name.lower(): value for name, value in headers.items()}
    assert lower["webhook-id"] == "msg_1"
    assert lower["content-type"] == "application/json"
    assert lower["user-agent"].startswith("Fairlane-Webhooks/")
    assert lower["authorization"] == "Bearer x"
    assert (answered.status, answered.error, answered.excerpt) == (200, None, "thanks")


async def test_a_redirect_is_a_failure_and_is_not_followed(client: httpx.AsyncClient) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=302, headers={"location": "/elsewhere"})

    answered = await tried(client, handler)
    assert (answered.status, answered.error) == (302, "answered 302: redirects are not followed")
    assert seen == ["/hook"]


async def test_who_does_not_answer_in_time_has_failed(client: httpx.AsyncClient) -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    answered = await tried(client, handler, 0.2)
    assert (answered.status, answered.error) == (None, "timed out after 0.2 s")
    assert 200 <= answered.duration_ms < 2_000


async def trickle(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(1_000):
        await response.write(b"drip ")
        await asyncio.sleep(0.01)
    return response


async def test_an_answer_that_never_ends_takes_no_longer_than_the_time_out(client: httpx.AsyncClient) -> None:
    answered = await tried(client, trickle, 0.3)
    assert answered.duration_ms < 2_000
    assert (answered.status, answered.error) == (200, None)  # it has said that it has taken it
    assert answered.excerpt.startswith("drip ")


async def test_no_more_than_16_kb_of_an_answer_is_read(client: httpx.AsyncClient) -> None:
    written = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        while written < 64 << 20:
            await response.write(b"x" * 65_536)
            written += 65_536
        return response

    answered = await tried(client, handler)
    assert answered.error is None
    assert answered.excerpt == "x" * MOST_READ
    assert written < 16 << 20  # what the sockets have taken before the connection was closed


async def test_why_nothing_was_answered_is_said_in_words(client: httpx.AsyncClient) -> None:
    async with receiver(trickle) as url:
        pass
    nobody = await tried_at(client, url)
    assert (nobody.status, nobody.error, nobody.excerpt) == (None, "connection refused", "")
    inside = await tried_at(client, "http://10.0.0.1/")
    assert str(inside.error).startswith("refused: ")
    assert "10.0.0.1" in str(inside.error) or "private" in str(inside.error)
    async with receiver(trickle) as url:
        plain = await tried_at(client, url.replace("http:", "https:"))
    assert str(plain.error).startswith("TLS failed")


async def tried_at(client: httpx.AsyncClient, url: str) -> Answered:
    return await attempt(client, replace(SENDING, url=url), 5.0)


def test_a_bad_certificate_is_named() -> None:
    fault = ssl.SSLCertVerificationError("bad")
    fault.verify_message = "self-signed certificate"
    error = httpx.ConnectError("all of it")
    error.__cause__ = fault
    assert words(error) == "certificate not accepted: self-signed certificate"


async def test_what_breaks_off_has_failed(client: httpx.AsyncClient) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    answered = await tried(client, handler)
    assert answered.status is None
    assert answered.error


def test_an_excerpt_cannot_mislead_who_reads_it() -> None:
    assert legible(b"a\x1b[31m\x00b\xff\r\nc\td\xe2\x80\xae") == "a�[31m�b�\nc\td�"
    assert len(legible(b"\xff" * MOST_READ).encode()) <= MOST_READ


@pytest.mark.parametrize(
    ("status", "after_s", "expected"),
    [
        (200, None, ("delivered", 0, False, 0)),
        (204, 60, ("delivered", 0, False, 0)),
        (302, 60, ("again", 5_000, False, 0)),
        (400, 60, ("again", 5_000, False, 0)),
        (410, None, ("gone", 0, False, 0)),
        (429, 60, ("again", 60_000, True, 60_000)),
        (429, None, ("again", 5_000, True, 0)),
        (500, 60, ("again", 5_000, False, 0)),
        (502, 60, ("again", 5_000, True, 0)),
        (503, 1, ("again", 5_000, False, 1_000)),
        (503, 10**8, ("again", 3_600_000, False, 3_600_000)),
        (504, None, ("again", 5_000, True, 0)),
        (None, None, ("again", 5_000, False, 0)),
    ],
)
def test_what_follows_from_an_answer(status: int | None, after_s: float | None, expected: tuple[Any, ...]) -> None:
    error = None if status in (200, 204) else "words"
    outcome = verdict(Answered(0, 1, status, error, "", after_s), 1, SCHEDULE, 0.5)
    assert (outcome.verdict, outcome.delay_ms, outcome.slow, outcome.pause_ms) == expected


def test_after_the_last_attempt_it_has_failed() -> None:
    last = verdict(Answered(0, 1, 429, "words", "", 60), len(SCHEDULE), SCHEDULE, 0.5)
    assert (last.verdict, last.reason, last.pause_ms) == ("failed", "exhausted", 60_000)


@dataclass
class Outbox:
    """Gives out one delivery; away as often as it is told."""

    url: str = ""
    begins: list[Any] = field(default_factory=list)
    settles: list[Any] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    async def begin(self, delivery_id: str, token: int, lease_ms: int) -> Sending | None:
        said = self.begins.pop(0) if self.begins else replace(SENDING, url=self.url)
        if isinstance(said, Exception):
            raise said
        return said

    async def settle(self, delivery_id: str, token: int, outcome: Outcome) -> str | None:
        said = self.settles.pop(0) if self.settles else None
        if isinstance(said, Exception):
            raise said
        self.outcomes.append(outcome)
        return said


class Counted:
    """A handler that counts."""

    def __init__(self) -> None:
        self.calls = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.calls += 1
        return web.Response()


async def carried(client: httpx.AsyncClient, outbox: Outbox, **how: Any) -> tuple[int, list[Any]]:
    """How often it was sent, and what was told of disabled endpoints."""
    told: list[Any] = []
    handler = Counted()

    async def tell(sending: Sending, reason: Any) -> None:
        told.append((sending.endpoint_id, reason))

    async with receiver(handler.handle) as outbox.url:
        made: Any = outbox
        await Courier(made, client, Settings(), tell).deliver("msg_1", 1, **how)
    return handler.calls, told


async def test_a_delivery_that_is_not_ours_is_not_sent(client: httpx.AsyncClient) -> None:
    outbox = Outbox(begins=[None])
    assert await carried(client, outbox) == (0, [])
    assert outbox.outcomes == []


async def test_what_came_of_it_is_noted_as_soon_as_redis_is_back(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier_module, "AGAIN_S", 0.01)
    outbox = Outbox(begins=[StoreUnavailable(), StoreUnavailable()], settles=[StoreUnavailable()] * 3)
    assert (await carried(client, outbox))[0] == 1
    assert [outcome.verdict for outcome in outbox.outcomes] == ["delivered"]


async def test_what_cannot_be_noted_within_the_lease_is_left(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(courier_module, "lease_ms", lambda settings: 100)
    outbox = Outbox(settles=[StoreUnavailable()] * 100_000)
    async with asyncio.timeout(5):
        assert (await carried(client, outbox))[0] == 1
    assert outbox.outcomes == []


async def test_a_lost_lease_or_a_fault_of_ours_ends_only_this_delivery(client: httpx.AsyncClient) -> None:
    assert (await carried(client, Outbox(settles=[LeaseLost()])))[0] == 1
    assert (await carried(client, Outbox(begins=[RuntimeError("broken")])))[0] == 0


async def test_nothing_new_is_sent_once_it_drains(client: httpx.AsyncClient) -> None:
    outbox = Outbox()
    assert (await carried(client, outbox, going_on=lambda: False))[0] == 0
    assert outbox.outcomes == []


async def test_who_disables_an_endpoint_tells_it(client: httpx.AsyncClient) -> None:
    assert await carried(client, Outbox(settles=["failing"])) == (1, [("whe_1", "failing")])
