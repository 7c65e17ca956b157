"""Receives webhooks on this machine's loopback, and verifies them: `fairlane webhooks listen`, and the demo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Final, Self

from fairlane.errors import FairlaneError
from fairlane.process import check_port

LOCAL: Final = "127.0.0.1"
BODY_MOST: Final = 16 << 20  # bytes
SLOW_S: Final = 10.0  # for a request to come whole


@dataclass(frozen=True, slots=True)
class Received:
    """A request: the event that it tells of, or why it is not believed."""

    webhook_id: str
    event: Mapping[str, Any] | None
    error: str | None = None


class Receiver:
    """Answers 204 to what is signed with `secret`, else 401. `hear` is called with each, in a thread of the server's.

    Port 0 is any free one. A context manager: it listens within the block. Raises PortInUse.
    """

    def __init__(self, secret: str, hear: Callable[[Received], object], port: int = 0) -> None:
        check_port(LOCAL, port)
        self._server = _Server((LOCAL, port), _handler(secret, hear))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://{LOCAL}:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    """(http.server's own asks the DNS for this machine's name, and bears five connections at once.)"""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def _handler(secret: str, hear: Callable[[Received], object]) -> type[BaseHTTPRequestHandler]:
    from producer.client.receiving import verify_webhook

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = SLOW_S

        def do_POST(self) -> None:
            length = self.headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_MOST:
                self.close_connection = True
                self._answer(413)
                return
            body = self.rfile.read(int(length))
            id_ = self.headers.get("webhook-id", "")
            try:
                received = Received(id_, verify_webhook(body, dict(self.headers.items()), secret))
            except FairlaneError as error:
                received = Received(id_, None, error.message)
            hear(received)
            self._answer(204 if received.error is None else 401)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
            pass

    return Handler
