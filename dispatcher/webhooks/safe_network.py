"""Connections for webhooks: looked up once, checked, and made to the very address that was checked."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, cast

import anyio
import anyio.lowlevel
import httpcore
import httpx

from fairlane.safe_url import Guard

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
CONNECT_S: Final = 10.0  # for a caller that sets no timeout for connecting
LOOKUPS: Final = 512  # threads, at the most: one may hang for half a minute, in libc; twice a tenant's share
ANSWER_MOST: Final = 32 << 10  # bytes of an answer, headers and all: of its body 16 KB are kept
PIECE: Final = 4 << 10
NAMED: Final = 3  # refused addresses in a message


class Refused(httpx.ConnectError):
    """The guard does not allow this call. The message says why; nothing was sent."""


class Lookups:
    """Names, looked up in threads of their own: in the loop's few, the names that hang would hold up all others."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS, "lookup")

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """What libc says, in its order."""
        found = await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(address[0]) for _, _, _, _, address in found]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Network(httpcore.AsyncNetworkBackend):
    """Connects to whatever it is told, but by TCP only."""

    def __init__(self) -> None:
        self._sockets = cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        timeout = CONNECT_S if timeout is None else timeout
        return _Stream(await self._sockets.connect_tcp(host, port, timeout, local_address, socket_options))

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise Refused("Webhooks go by TCP, not to Unix sockets.")

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class GuardedNetwork(Network):
    """Connects to those addresses of a host that the guard allows."""

    def __init__(self, guard: Guard, resolve: Resolve) -> None:
        super().__init__()
        self._guard = guard
        self._resolve = resolve

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """`timeout` is for the look-up and all addresses. Each gets a share of what is left: the first may be dead."""
        until = anyio.current_time() + (CONNECT_S if timeout is None else timeout)
        addresses = self._allowed(host, port, await self._addresses(host, port, until))
        for left in range(len(addresses), 0, -1):
            share = max(0.0, until - anyio.current_time()) / left
            try:
                return await super().connect_tcp(addresses[-left], port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 1:
                    raise
        raise httpcore.ConnectError("the host's name has no address")

    async def _addresses(self, host: str, port: int, until: float) -> Sequence[str]:
        if ":" in host or host.rpartition(".")[2].isdigit():
            return [host]
        try:
            with anyio.fail_after(until - anyio.current_time()):
                return list(dict.fromkeys(await self._resolve(host, port)))
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("the host's name was not found in time") from error
        except OSError as error:
            raise httpcore.ConnectError(f"the host's name was not found: {error}") from error

    def _allowed(self, host: str, port: int, addresses: Sequence[str]) -> Sequence[str]:
        reasons = {address: self._guard.refusal(host, port, address) for address in addresses}
        allowed = [address for address, reason in reasons.items() if not reason]
        if reasons and not allowed:
            said = [reason for reason in reasons.values() if reason]
            more = f" (and {len(said) - NAMED} more)" if len(said) > NAMED else ""
            raise Refused(f"{host} may not be called: {', '.join(said[:NAMED])}{more}.")
        return allowed


class _Stream(httpcore.AsyncNetworkStream):
    """A connection whose other end says only so much. It is closed, as httpcore's own is not, if it is given up in the
    midst of TLS's handshake."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = ANSWER_MOST

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore.AsyncNetworkStream:
        try:
            return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            await close(self._stream)
            raise

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Little at a time, and not more than ANSWER_MOST in all: what comes is parsed on the loop that all share, and
        may be a thousand headers, or chunks of a byte."""
        if self._left == 0:
            raise httpcore.ReadError(f"it answered more than {ANSWER_MOST >> 10} KB")
        await anyio.lowlevel.checkpoint()
        raw = await self._stream.read(min(max_bytes, PIECE, self._left), timeout)
        self._left -= len(raw)
        return raw

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


async def close(what: httpcore.AsyncConnectionPool | httpcore.AsyncNetworkStream) -> None:
    """Also if the task is being cancelled."""
    with anyio.CancelScope(shield=True):
        await what.aclose()
