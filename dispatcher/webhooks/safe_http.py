"""The wall between webhooks and the inside network: an httpx transport that calls only what the guard allows.

A name is looked up once, what it has for addresses is checked, and the very address that was checked is connected to:
there is no second look-up that could give another answer. TLS goes by the URL's name, as ever. Redirects are no matter
of a transport: who lets its client follow them has each of them checked like the first.

One request has one connection, which ends with it. So each delivery is checked anew, no tenant's connection serves
another, and no receiver that closes an idle connection makes a delivery fail.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import httpcore
import httpx

from dispatcher.webhooks.safe_network import GuardedNetwork, Lookups, Network, Resolve, close
from dispatcher.webhooks.safe_network import Refused as Refused
from fairlane.errors import InvalidRequest
from fairlane.safe_url import Guard, SafeUrl
from fairlane.safe_url.spelling import DEFAULT_PORTS

FAULTS: Final[dict[type, type[httpx.TransportError]]] = {
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.WriteTimeout: httpx.WriteTimeout,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.TimeoutException: httpx.TimeoutException,
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.NetworkError: httpx.NetworkError,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore.ProtocolError: httpx.ProtocolError,
    httpcore.ProxyError: httpx.ProxyError,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
}


class SafeTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1, to what `guard` allows, at once to any number of receivers. It heeds no variable of the environment.

    With a `proxy` (`http://user:password@host:port`) every call goes through it, and the guard's rules do not count for
    the proxy itself. Then the URL's form, its port and an address in it are checked as ever, but a name is left to the
    proxy, which looks it up where we cannot see it: the proxy has to refuse inside addresses itself.

    `tls` verifies receivers (the system's authorities by default). `resolve` gives a name's addresses, in the order in
    which they are to be tried; it raises OSError.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._guard = guard
        self._proxy = _proxy(proxy) if proxy else None
        self._tls = tls or ssl.create_default_context()
        self._lookups = Lookups()
        self._resolve = resolve or self._lookups.resolve

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises Refused, and httpx's other errors."""
        url = self._checked(request)
        pool = self._pool()
        timeouts = cast("dict[str, Any]", request.extensions.get("timeout", {}))
        call = httpcore.Request(
            request.method,
            httpcore.URL(scheme=url.scheme, host=url.host, port=_odd_port(url), target=url.target),
            headers=request.headers.raw,
            content=request.stream,
            extensions={"timeout": timeouts},  # and no `sni_hostname`: TLS goes by the URL
        )
        try:
            with _as_httpx():
                answer = await pool.handle_async_request(call)
        except BaseException:
            await close(pool)
            raise
        extensions = cast("dict[str, Any]", answer.extensions)  # pyright: ignore[reportUnknownMemberType]
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer, pool), extensions=extensions)

    async def aclose(self) -> None:
        self._lookups.close()

    def _checked(self, request: httpx.Request) -> SafeUrl:
        """A URL may have been kept since before today's rules, and httpx has read it in its own way."""
        try:
            url = self._guard.check(str(request.url), unseen=bool(self._proxy))
        except InvalidRequest as error:
            raise Refused(error.message) from None
        if self._proxy and ":" in url.host:
            raise Refused("An IPv6 address cannot be called through the proxy. Use a name.")
        return url

    def _pool(self) -> httpcore.AsyncConnectionPool:
        """Of one connection."""
        if not self._proxy:
            return httpcore.AsyncConnectionPool(self._tls, network_backend=GuardedNetwork(self._guard, self._resolve))
        return httpcore.AsyncHTTPProxy(
            self._proxy.url, proxy_auth=self._proxy.auth, ssl_context=self._tls, network_backend=Network()
        )


class _Body(httpx.AsyncByteStream):
    """The answer's body. The connection ends with it, however much of it was read."""

    def __init__(self, answer: httpcore.Response, pool: httpcore.AsyncConnectionPool) -> None:
        self._answer = answer
        self._pool = pool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for part in self._answer.aiter_stream():
                yield part

    async def aclose(self) -> None:
        try:
            await self._answer.aclose()
        finally:
            await close(self._pool)


def _proxy(text: str) -> httpcore.Proxy:
    parts = urlsplit(text)
    login = (unquote(parts.username or ""), unquote(parts.password or "")) if parts.username else None
    return httpcore.Proxy(
        httpcore.URL(scheme="http", host=parts.hostname or "", port=parts.port, target="/"),
        auth=login and (login[0].encode(), login[1].encode()),
    )


def _odd_port(url: SafeUrl) -> int | None:
    return url.port if url.port != DEFAULT_PORTS[url.scheme] else None


@contextmanager
def _as_httpx() -> Generator[None]:
    try:
        yield
    except Exception as error:
        fault = next((FAULTS[kind] for kind in type(error).__mro__ if kind in FAULTS), None)
        if fault is None:
            raise
        raise fault(str(error)) from error
