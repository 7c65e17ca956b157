"""httpx over aiohttp's connections: half the CPU of its own, and calls are most of what a dispatcher does."""

from __future__ import annotations

import ssl
from typing import Final

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from dispatcher.backends.answer import Fault

CONNECT_S: Final = 5.0
KEEPALIVE_S: Final = 3.0  # below the 5 s after which uvicorn (vLLM, SGLang) closes an idle connection
LINE_MOST: Final = 64 << 10  # bytes of one header of an answer
ERRORS: Final = (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, ValueError)


def connect(tls: ssl.SSLContext | bool) -> httpx.AsyncClient:
    """A client for one backend. It keeps its connections, as many as there are calls; timeouts are the caller's."""

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=LINE_MOST,
            max_field_size=LINE_MOST,
        )

    return httpx.AsyncClient(
        transport=AiohttpTransport(verify=tls, client=session),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=CONNECT_S),
    )


def fault_of(error: Exception) -> tuple[Fault, str]:
    """What an error of a call (ERRORS) means for the job, and in words.

    The transport names some broken connections as if none had been made: aiohttp's own error says which it was.
    """
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError) else error
    if isinstance(cause, aiohttp.ConnectionTimeoutError):
        return "refused", f"took no connection within {CONNECT_S:g} s"
    if isinstance(cause, aiohttp.ClientConnectorError):
        return "refused", "took no connection"
    if isinstance(cause, ValueError | httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return "unsuitable", "cannot be sent this request"
    return "reset", "broke the connection"
