"""Connections to Redis: one server, a Sentinel's master, or a Cluster; and what their failures mean to us.

No command is retried behind our back: a lost reply does not say whether the script ran. The engine repeats those acts
that are safe to repeat.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    OutOfMemoryError,
    RedisError,
    TimeoutError,
)

from fairlane.errors import FairlaneError, InvalidRequest, StoreFull, StoreUnavailable, StoreUnsuitable

Client: TypeAlias = "Redis | RedisCluster"

TIMEOUT_S: Final = 5.0
MAX_CONNECTIONS: Final = 64  # a caller beyond that waits for a free one
# What a server says during a failover or while its disk is full: it will pass.
_PASSING: Final = ("READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "BUSY ")
_NEVER: Final = Retry(NoBackoff(), 0)
_OPTIONS: Final = {"protocol": 2, "socket_connect_timeout": TIMEOUT_S, "retry": _NEVER}


def connect(url: str, *, timeout_s: float = TIMEOUT_S) -> Client:
    """A client for `url`; it connects on first use. `timeout_s` bounds every call, the wait for a connection included.

    Known forms: `redis://`, `rediss://`, `unix://`, `redis+cluster://host:port`,
    `redis+sentinel://[:password@]host:port[,host:port…]/service[/db]`. Raises InvalidRequest for any other.
    """
    scheme, _, rest = url.partition("://")
    if scheme in ("redis", "rediss", "unix"):
        pool = BlockingConnectionPool.from_url(
            url, max_connections=MAX_CONNECTIONS, timeout=timeout_s, socket_timeout=timeout_s, **_OPTIONS
        )
        return Redis.from_pool(pool)
    if scheme in ("redis+cluster", "rediss+cluster"):
        plain = scheme.removesuffix("+cluster") + "://" + rest
        # RedisCluster's retries repeat whole commands; its redirections (MOVED, ASK) do not count as retries.
        return RedisCluster.from_url(plain, socket_timeout=timeout_s, **_OPTIONS)
    if scheme == "redis+sentinel":
        return _sentinel(url, timeout_s)
    raise InvalidRequest(f"{scheme}:// is no Redis URL. Use redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://.")


def _sentinel(url: str, timeout_s: float) -> Client:
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not hosts or not service:
        raise InvalidRequest("A Sentinel URL names its hosts and the service: redis+sentinel://host:26379,host:26379/mymaster/0")
    addresses = [(host, int(port or 26379)) for host, _, port in (h.partition(":") for h in hosts.split(","))]
    user, _, password = credentials.partition(":")
    options = {
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        "db": int(db or 0),
        "socket_timeout": timeout_s,
        **dict(parse_qsl(parts.query)),
        **_OPTIONS,
    }
    sentinel = Sentinel(addresses, sentinel_kwargs={"socket_timeout": timeout_s, **_OPTIONS}, **options)
    return sentinel.master_for(service, redis_class=Redis)


def store_error(error: RedisError) -> FairlaneError:
    """What a failure of Redis itself means to a caller. Errors of our own scripts never come here."""
    words = str(error)
    if isinstance(error, OutOfMemoryError) or "-OOM " in words:  # Redis 6.2 wraps what happens inside a script
        return StoreFull(retry_after=5)
    if isinstance(error, ConnectionError | TimeoutError) and not isinstance(error, AuthenticationError):
        return StoreUnavailable(retry_after=1)
    if any(word in words for word in _PASSING):
        return StoreUnavailable(f"Redis cannot write now: {error}", retry_after=1)
    return StoreUnsuitable(f"Redis refused this: {error}. `fairlane doctor` says what to change.")
