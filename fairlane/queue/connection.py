"""Connections to Redis: one server, a Sentinel's master, or a Cluster; and what their failures mean to us.

No command is retried behind our back: a lost reply does not say whether the script ran. `Store` repeats those acts that
are safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio import Connection as TcpConnection
from redis.asyncio import SSLConnection as TlsConnection
from redis.asyncio import UnixDomainSocketConnection as UnixConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    OutOfMemoryError,
    RedisClusterException,
    RedisError,
    TimeoutError,
)

from fairlane.errors import FairlaneError, InvalidRequest, StoreFull, StoreUnavailable, StoreUnsuitable

Client: TypeAlias = "Redis | RedisCluster"
T = TypeVar("T")

TIMEOUT_S: Final = 5.0
MAX_CONNECTIONS: Final = 64  # a caller beyond that waits for a free one
# What a server says during a failover or while its disk is full: it will pass.
_PASSING: Final = ("READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "BUSY ", "LOADING")


class _Packing:
    """Packs commands with hiredis; redis-py's asyncio connections do it in Python, at a fifth of a submit's cost."""

    def pack_command(self, *args: Any) -> list[bytes]:
        words = args[0].split() if isinstance(args[0], str) else [args[0]]  # "CLIENT SETINFO" is two words on the wire
        return [hiredis.pack_command((*words, *args[1:]))]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportArgumentType]


class _Tcp(_Packing, TcpConnection):
    """redis://"""


class _Tls(_Packing, TlsConnection):
    """rediss://"""


class _Unix(_Packing, UnixConnection):
    """unix://"""


_CONNECTIONS: Final = {"redis": _Tcp, "rediss": _Tls, "unix": _Unix}
_NEVER: Final = Retry(NoBackoff(), 0)


def connect(url: str, *, timeout_s: float = TIMEOUT_S) -> Client:
    """A client for `url`; it connects on first use. `timeout_s` bounds every call, the wait for a connection included.

    Known forms: `redis://`, `rediss://`, `unix://`, `redis+cluster://host:port`, `rediss+cluster://…`,
    `redis+sentinel://[:password@]host:port[,host:port…]/service[/db]`. Raises InvalidRequest for any other.
    """
    try:
        return _connect(url, timeout_s)
    except (ValueError, RedisClusterException) as error:
        raise InvalidRequest(f"This is no Redis URL: {error}") from error


def _connect(url: str, timeout_s: float) -> Client:
    scheme, _, rest = url.partition("://")
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": _NEVER,
    }
    if scheme in ("redis", "rediss", "unix"):
        options |= {"max_connections": MAX_CONNECTIONS, "timeout": timeout_s, "connection_class": _CONNECTIONS[scheme]}
        pool = BlockingConnectionPool.from_url(url, **options)  # pyright: ignore[reportUnknownMemberType]
        return Redis.from_pool(pool)
    if scheme in ("redis+cluster", "rediss+cluster"):
        # RedisCluster's retries repeat whole commands; its redirections (MOVED, ASK) do not count as retries.
        return RedisCluster.from_url(scheme.removesuffix("+cluster") + "://" + rest, **options)
    if scheme == "redis+sentinel":
        return _sentinel(url, options)
    raise ValueError("use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://")


def _sentinel(url: str, options: dict[str, Any]) -> Client:
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not hosts or not service:
        raise ValueError("name the hosts and the service: redis+sentinel://host:26379,host:26379/mymaster/0")
    addresses = [(host, int(port or 26379)) for host, _, port in (h.partition(":") for h in hosts.split(","))]
    user, _, password = credentials.partition(":")
    of_master: dict[str, Any] = {
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        "db": int(db or 0),
        **options,
    }
    sentinel = Sentinel(addresses, sentinel_kwargs=dict(options), **of_master)
    return sentinel.master_for(service)  # pyright: ignore[reportUnknownMemberType]


async def cancellable(command: Awaitable[T]) -> T:
    """The answer of a command, unless the task was cancelled meanwhile.

    redis-py writes within `asyncio.wait_for`, which on Python 3.11 may swallow a cancel: the task would go on for ever.
    """
    task = asyncio.current_task()
    cancels = task.cancelling() if task else 0
    answer = await command
    if task and task.cancelling() > cancels:
        raise asyncio.CancelledError
    return answer


def store_error(error: RedisError | RedisClusterException) -> FairlaneError:
    """What a failure of Redis itself means to a caller. Errors of our own scripts never come here."""
    # redis-py keeps the server's code in `status_code` and strips it from the text of errors that it has a class for
    words = f"{getattr(error, 'status_code', '')} {error}"
    if isinstance(error, OutOfMemoryError) or "-OOM " in words:  # Redis 6.2 wraps what happens inside a script
        return StoreFull(retry_after=5)
    if isinstance(error, ConnectionError | TimeoutError | RedisClusterException) and not isinstance(
        error, AuthenticationError
    ):
        return StoreUnavailable(retry_after=1)
    if any(word in words for word in _PASSING):
        return StoreUnavailable(f"Redis cannot write now: {error}", retry_after=1)
    return StoreUnsuitable(f"Redis refused this: {error}. `fairlane doctor` says what to change.")
