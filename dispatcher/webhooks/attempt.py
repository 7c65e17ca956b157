"""One attempt at a delivery: POST it, and say in words what came of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

import httpx
import structlog

from dispatcher.backends.answer import retry_after_s
from dispatcher.webhooks.safe_http import Refused
from dispatcher.webhooks.signing import signed
from fairlane.webhooks.delivery import Sending

MOST_READ: Final = 16 << 10  # bytes of the answer
USER_AGENT: Final = f"Fairlane-Webhooks/{version('fairlane')}"
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of one attempt. `error` is for people, and None if the receiver has taken it; times in Unix ms."""

    at_ms: int
    duration_ms: int
    status: int | None
    error: str | None
    excerpt: str = ""
    retry_after_s: float | None = None


async def attempt(client: httpx.AsyncClient, sending: Sending, timeout_s: float) -> Answered:
    """Takes at most `timeout_s` seconds, all in all. Never raises (but CancelledError)."""
    now, began = datetime.now(UTC), time.monotonic()
    status: int | None = None
    error, excerpt, after_s = None, bytearray(), None
    try:
        async with asyncio.timeout(timeout_s):
            async with client.stream(
                "POST", sending.url, content=sending.payload, headers=_headers(sending, now), follow_redirects=False
            ) as response:
                status = response.status_code
                after_s = retry_after_s(response.headers.get("retry-after"))
                await _read(response, excerpt)
    except (TimeoutError, httpx.TimeoutException):
        error = f"timed out after {timeout_s:g} s"
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as fault:
        error = words(fault)
    except Exception as fault:
        log.exception("webhook_attempt_broke", delivery=sending.id)
        error = f"could not be sent: {type(fault).__name__}"
    if status is not None:  # it has decided: what then happens to the rest of its answer does not matter
        error = _status_words(status)
    took_ms = round(1000 * (time.monotonic() - began))
    return Answered(round(1000 * now.timestamp()), took_ms, status, error, legible(bytes(excerpt)), after_s)


def _headers(sending: Sending, now: datetime) -> dict[str, str]:
    """The endpoint's own headers, but ours go first."""
    ours = {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "accept-encoding": "identity",  # an excerpt of what is packed would tell nobody anything
        **signed(sending.id, sending.payload, sending.secrets, now),
    }
    return {name: value for name, value in sending.headers.items() if name.lower() not in ours} | ours


async def _read(response: httpx.Response, into: bytearray) -> None:
    """At most MOST_READ bytes; a longer answer is left where it is, and its connection closed by the caller."""
    async for chunk in response.aiter_raw():
        into += chunk[: MOST_READ - len(into)]
        if len(into) >= MOST_READ:
            return


def legible(raw: bytes) -> str:
    """UTF-8 text of at most MOST_READ bytes; what is no text or could mislead a terminal or a page is shown as �."""
    text = "".join(
        char if char in "\n\t" or unicodedata.category(char)[0] != "C" else "\ufffd"
        for char in raw.decode(errors="replace").replace("\r\n", "\n")
    )
    return text.encode()[:MOST_READ].decode(errors="ignore")


def _status_words(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed"
    if status == 410:
        return "answered 410: the endpoint is gone"
    return f"answered {status}"


def words(fault: BaseException) -> str:
    """Why nothing was answered, in words for whoever owns the endpoint."""
    known = next((said for cause in _causes(fault) if (said := _known(cause))), None)
    if known:
        return known
    if isinstance(fault, httpx.ReadError) and "KB" in str(fault):
        return str(fault)
    if isinstance(fault, httpx.ProtocolError):
        return f"no HTTP: {fault}"
    if isinstance(fault, httpx.NetworkError) and not isinstance(fault, httpx.ConnectError):
        return "the connection broke off"
    return f"could not be sent: {fault or type(fault).__name__}"


def _known(cause: BaseException) -> str | None:
    match cause:
        case Refused():
            return f"refused: {cause}"
        case ssl.SSLCertVerificationError():
            return f"certificate not accepted: {cause.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {cause.reason or cause}"
        case socket.gaierror():
            return f"the host's name was not found: {cause.strerror}"
        case ConnectionRefusedError():
            return "connection refused"
        case OSError() if cause.strerror:
            return f"connection failed: {cause.strerror}"
        case _:
            return None


def _causes(fault: BaseException | None) -> Iterator[BaseException]:
    """The fault, and what was behind it, the innermost last."""
    for _ in range(8):
        if fault is None:
            return
        yield fault
        fault = fault.__cause__ or fault.__context__
