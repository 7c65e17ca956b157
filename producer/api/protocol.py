"""HTTP/1.1 connections: uvicorn's, with bounds on what comes before a request is whole."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairlane import strictjson
from fairlane.errors import InvalidRequest
from producer.api.errors import error_body

HEAD_BYTES: Final = 64 << 10
HEAD_S: Final = 30.0
ABORT: Final = "fairlane.abort"  # of a scope's extensions: ends the connection, whatever still waits to be sent


def _refusal(status: str, message: str) -> bytes:
    error = InvalidRequest(message)
    body = strictjson.dump(error_body(error))
    head = (
        f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


_TOO_LARGE: Final = _refusal(
    "431 Request Header Fields Too Large", f"The request line and headers have {HEAD_BYTES} bytes at the most."
)
_NO_HTTP: Final = _refusal("400 Bad Request", "This is no HTTP/1.1 request that can be understood.")


class Protocol(HttpToolsProtocol):
    """Request line and headers: HEAD_BYTES within HEAD_S, or the connection ends. httptools itself has no bound."""

    _head_bytes = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.transport.abort}  # pyright: ignore[reportGeneralTypeIssues]
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_ended()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._late is None or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._end(_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:
        self._end(_NO_HTTP)

    def _end(self, refusal: bytes) -> None:
        self.transport.write(refusal)
        self.transport.close()

    def _expect_head(self) -> None:
        self._head_ended()
        self._late = self.loop.call_later(HEAD_S, lambda: self.transport.close())

    def _head_ended(self) -> None:
        self._head_bytes = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
