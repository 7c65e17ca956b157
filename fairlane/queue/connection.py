"""Connections to Redis: one server, a Sentinel's master, or a Cluster; and what their failures mean to us.

No command is retried behind our back: a lost reply does not say whether the script ran. `Store` repeats those acts that
are safe to repeat.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable
from typing import Any, Final, TypeAlias, TypeVar, cast
from urllib.parse import unquote, urlsplit

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio import Connection as TcpConnection
from redis.asyncio import SSLConnection as TlsConnection
from redis.asyncio import UnixDomainSocketConnection as UnixConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
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
_QUOTED: Final = re.compile(r"( as|:) '.*", re.DOTALL)
_NO_CONNECTION: Final = re.compile(r"Error (?:(-?\d+) )?connecting to (.*)", re.DOTALL)


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
_DRIVER: Final = DriverInfo()  # else redis-py reads its version from its package's files, for every connection anew


def connect(url: str, *, timeout_s: float = TIMEOUT_S, timed: bool = False) -> Client:
    """A client for `url`; it connects on first use. `timeout_s` bounds reaching it, and the wait for a connection.

    Whoever calls bounds the call as a whole, as Store and Signals do. `timed`: each write and read is bounded by itself
    too. redis-py starts a task for each such write, a quarter of what a call costs. The nodes of a Cluster, and
    sentinels, are asked one after another, and so they always have it.

    Known forms: `redis://`, `rediss://`, `unix://`, `redis+cluster://host:port`, `rediss+cluster://…`,
    `redis+sentinel://[:password@]host:port[,host:port…]/service[/db]`. Raises InvalidRequest for any other.
    """
    try:
        return _connect(url, timeout_s, timed=timed)
    except (ValueError, RedisClusterException) as error:
        words = _QUOTED.sub("", str(error)).rstrip(".")  # a part of the password, if that has a `/`
        raise InvalidRequest(
            f"This is no Redis URL: {words}. In a password write / as %2F, # as %23 and ? as %3F.", param="redis"
        ) from None


def _connect(url: str, timeout_s: float, *, timed: bool) -> Client:
    scheme, _, rest = url.partition("://")
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": _NEVER,
        "driver_info": _DRIVER,
    }
    of_server: dict[str, Any] = options if timed else {**options, "socket_timeout": None}
    if scheme in ("redis", "rediss", "unix"):
        kind = {"max_connections": MAX_CONNECTIONS, "timeout": timeout_s, "connection_class": _CONNECTIONS[scheme]}
        pool = BlockingConnectionPool.from_url(url, **of_server, **kind)  # pyright: ignore[reportUnknownMemberType]
        return Redis.from_pool(pool)
    if scheme in ("redis+cluster", "rediss+cluster"):
        # RedisCluster's retries repeat whole commands; its redirections (MOVED, ASK) do not count as retries.
        return RedisCluster.from_url(scheme.removesuffix("+cluster") + "://" + rest, **options)
    if scheme == "redis+sentinel":
        return _sentinel(url, options, of_server)
    raise ValueError("use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://")


def _sentinel(url: str, of_sentinels: dict[str, Any], of_server: dict[str, Any]) -> Client:
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
        **of_server,
    }
    # They are asked one after another, all within the time of one call: a silent one must not use it up.
    each_s = of_sentinels["socket_timeout"] / (len(addresses) + 1)
    of_sentinels = {**of_sentinels, "socket_timeout": each_s, "socket_connect_timeout": each_s}
    sentinel = Sentinel(addresses, sentinel_kwargs=of_sentinels, **of_master)
    return sentinel.master_for(service)  # pyright: ignore[reportUnknownMemberType]


async def close(client: Client) -> None:
    """Ends a client's connections, those to sentinels too: the client of their master leaves them open."""
    await client.aclose()
    if isinstance(client, Redis) and isinstance(client.connection_pool, SentinelConnectionPool):
        await cast("Sentinel", client.connection_pool.sentinel_manager).aclose()  # pyright: ignore[reportUnknownMemberType]


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


def place(client: Client) -> str:
    """Where a client's Redis is, in words. Without the user and the password."""
    if isinstance(client, RedisCluster):
        return f"The Redis Cluster at {', '.join(client.nodes_manager.startup_nodes)}"
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"The Redis that the sentinels call {cast('str', pool.service_name)!r}"  # pyright: ignore[reportUnknownMemberType]
    known = pool.connection_kwargs
    path, host, port = known.get("path"), known.get("host", "localhost"), known.get("port", 6379)
    return f"Redis at {path or f'{host}:{port}'}"


def no_answer(at: str, what: str = "did not answer in time") -> StoreUnavailable:
    """For what was sent, and may have been done."""
    return StoreUnavailable(
        f"{at} {what}. What was sent may have been done; a submit can be sent again with the same idempotency key.",
        retry_after=1,
    )


def store_error(error: RedisError | RedisClusterException, at: str) -> FairlaneError:
    """What a failure of Redis itself, which is `at` a place, means to a caller. Not for errors of our scripts."""
    # redis-py keeps the server's code in `status_code` and strips it from the text of errors that it has a class for
    words = f"{getattr(error, 'status_code', '')} {error}"
    if isinstance(error, OutOfMemoryError) or "-OOM " in words:  # Redis 6.2 wraps what happens inside a script
        return StoreFull(retry_after=5)
    if isinstance(error, ConnectionError | TimeoutError | RedisClusterException) and not isinstance(
        error, AuthenticationError
    ):
        return _unreachable(error, at)
    if any(word in words for word in _PASSING):
        return StoreUnavailable(f"{at} cannot write now: {error}", retry_after=1)
    return StoreUnsuitable(f"Redis refused this: {str(error).rstrip('.')}. `fairlane doctor` says what to change.")


def _unreachable(error: Exception, at: str) -> StoreUnavailable:
    """Whether it took no connection, so that nothing was sent, or gave no answer; and why."""
    if found := _NO_CONNECTION.search(str(error)):
        return _refused_us(at, _reason(found[1], found[2]))
    if isinstance(error, MasterNotFoundError):
        return _refused_us(at, "no sentinel answers that knows it")
    if isinstance(error, TimeoutError):
        return _refused_us(at, "timed out") if "connecting" in str(error) else no_answer(at)
    return no_answer(at, f"broke off: {str(error).rstrip('.')}")


def _refused_us(at: str, why: str) -> StoreUnavailable:
    return StoreUnavailable(f"{at} took no connection: {why.rstrip('.')}.", retry_after=1)


def _reason(number: str | None, words: str) -> str:
    """asyncio replaces the system's words for a failed connect by its own; `localhost` fails once per address."""
    if "Connect call failed" in words and (code := number or re.findall(r"Errno (\d+)", words)[0]):
        return os.strerror(int(code))
    return words.partition(". ")[2] or words
