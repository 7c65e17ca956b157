"""Looks at a Redis before jobs are entrusted to it: what it would refuse, what it would lose, and what to change."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from redis.asyncio import RedisCluster
from redis.exceptions import RedisClusterException, RedisError, ResponseError

from fairlane.errors import InvalidRequest
from fairlane.queue.connection import Client, close, connect
from fairlane.queue.schema import CURRENT, mismatch, stored_schema

Level = Literal["ok", "warn", "fail"]
Ask: TypeAlias = Callable[..., Awaitable[Any]]  # sends one command to one server

OLDEST = {"Redis": (6, 2), "Valkey": (7, 2)}
CROWDED = 0.9  # share of maxmemory in use from which we warn
SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite", "save", "appendonly", "maxmemory", "maxmemory-policy")
KINDS = ("string", "hash", "zset", "stream", "set", "list", "bits")
SCRIPT = "redis.call('TIME') redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) return redis.call('GET', KEYS[1])"


@dataclass(frozen=True)
class Finding:
    """One thing that was checked. `warn`: it works, but you should know; `fail`: it cannot be used like this."""

    name: str
    level: Level
    what: str
    advice: str = ""


@dataclass(frozen=True)
class Node:
    """What one server told about itself; a fact that is absent was not told."""

    address: str
    facts: Mapping[str, str]


async def examine(url: str, namespace: str = "fl") -> list[Finding]:
    """Checks the Redis, Valkey or Cluster at `url`; it writes keys under `<namespace>:{doctor}:` and deletes them.

    A server that cannot be reached is a finding, not an exception. Raises `InvalidRequest` if the URL is malformed.
    """
    try:
        client = connect(url, timed=True)
    except (ValueError, RedisClusterException) as error:
        raise InvalidRequest(f"{_address(url)} is no Redis URL: {error}", param="redis") from error
    try:
        return await _examine(client, url, namespace)
    except (RedisError, RedisClusterException, OSError) as error:
        advice = "Check the address, the user and password in the URL, and that the server runs."
        return [Finding("reachable", "fail", f"{_address(url)}: {error}", advice)]
    finally:
        await close(client)


async def _examine(client: Client, url: str, namespace: str) -> list[Finding]:
    scratch = f"{namespace}:{{doctor}}:{secrets.token_hex(8)}:"  # no key of the queue: a tag of its own, one slot
    if isinstance(client, RedisCluster):
        await client.initialize()
        asks: dict[str, Ask] = {node.name: node.execute_command for node in client.get_primaries()}
        owner = client.nodes_manager.get_node_from_slot(client.keyslot(scratch))  # pyright: ignore[reportUnknownMemberType]
        home = asks[owner.name]
    else:
        home = cast(Ask, client.execute_command)  # pyright: ignore[reportUnknownMemberType]
        asks = {_address(url): home}
    await home("PING")
    nodes = [Node(address, await _facts(ask)) for address, ask in asks.items()]
    topology = _topology(nodes, is_cluster_client=isinstance(client, RedisCluster))
    findings = [Finding("reachable", "ok", ", ".join(asks)), topology, *judge(nodes)]
    if topology.level == "fail":
        return findings  # every try on a replica or through a wrong URL would fail for this one reason
    return [*findings, *await _try_commands(client, home, scratch), await _check_schema(client, namespace)]


def judge(nodes: Iterable[Node]) -> Iterator[Finding]:
    """What follows from the facts; a finding that differs between the nodes of a Cluster names the nodes."""
    nodes = list(nodes)
    for check in (_version, _eviction, _memory, _persistence):
        found: dict[Finding, list[str]] = {}
        for node in nodes:
            found.setdefault(check(node.facts), []).append(node.address)
        for finding, addresses in found.items():
            yield finding if len(found) == 1 else replace(finding, what=f"{', '.join(addresses)}: {finding.what}")


async def _facts(ask: Ask) -> dict[str, str]:
    """INFO, and of CONFIG what INFO does not say. Managed servers often forbid CONFIG: what is refused is left out."""
    facts: dict[str, str] = {}
    with contextlib.suppress(ResponseError):
        facts |= {name: str(value) for name, value in (await ask("INFO")).items()}
    for setting in SETTINGS:
        try:
            values = await ask("CONFIG GET", setting)
        except ResponseError:
            break
        facts |= {_text(name).replace("-", "_"): _text(value) for name, value in values.items()}
    return facts


def _topology(nodes: list[Node], *, is_cluster_client: bool) -> Finding:
    replicas = [node.address for node in nodes if node.facts.get("role") == "slave"]
    if replicas:
        what = f"{', '.join(replicas)} is a read-only replica."
        return Finding("topology", "fail", what, "Name the primary, or use redis+sentinel://host:port,…/service/db.")
    if is_cluster_client:
        advice = "Celery does not run on a Cluster: set FAIRLANE_CELERY_BROKER_URL to another server."
        return Finding("topology", "ok", f"A Cluster of {len(nodes)} primaries.", advice)
    if nodes[0].facts.get("cluster_enabled") == "1":
        advice = f"Use redis+cluster://{nodes[0].address}."
        return Finding("topology", "fail", "This is one node of a Cluster.", advice)
    return Finding("topology", "ok", "One primary.")


def _version(facts: Mapping[str, str]) -> Finding:
    kind = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get(f"{kind.lower()}_version")
    if version is None:
        return Finding("version", "warn", "Cannot tell the version: INFO is not allowed.", _needed_version())
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST[kind]:
        return Finding("version", "fail", f"{kind} {version} is too old.", _needed_version())
    return Finding("version", "ok", f"{kind} {version}")


def _needed_version() -> str:
    return "Use " + " or ".join(f"{kind} {major}.{minor}" for kind, (major, minor) in OLDEST.items()) + " or newer."


def _eviction(facts: Mapping[str, str]) -> Finding:
    policy = facts.get("maxmemory_policy")
    advice = "CONFIG SET maxmemory-policy noeviction (and the same in the configuration file)."
    if policy is None:
        return Finding("eviction", "warn", "Cannot tell the eviction policy: INFO and CONFIG are not allowed.", advice)
    if policy != "noeviction":
        return Finding("eviction", "fail", f"With {policy} a full server throws waiting jobs away.", advice)
    return Finding("eviction", "ok", "noeviction: a full server refuses new jobs and keeps the old.")


def _memory(facts: Mapping[str, str]) -> Finding:
    advice = "CONFIG SET maxmemory to about three quarters of the machine's memory."
    if "maxmemory" not in facts:
        return Finding("memory", "warn", "Cannot tell the memory limit: INFO and CONFIG are not allowed.", advice)
    limit, used = int(facts["maxmemory"]), int(facts.get("used_memory", 0))
    if limit == 0:
        return Finding("memory", "warn", "No memory limit: the system kills a full server, with all it serves.", advice)
    if used > CROWDED * limit:
        return Finding("memory", "warn", f"{used / limit:.0%} of {limit} bytes are in use.", "Raise maxmemory.")
    return Finding("memory", "ok", f"Limited to {limit} bytes.")


def _persistence(facts: Mapping[str, str]) -> Finding:
    append_only = facts.get("aof_enabled", {"yes": "1", "no": "0"}.get(facts.get("appendonly", "")))
    if append_only is None:
        what = "Cannot tell what a crash would lose: INFO and CONFIG are not allowed."
        return Finding("persistence", "warn", what, "Ask for appendonly yes and appendfsync always.")
    if append_only == "1":
        return _append_only(facts)
    advice = "CONFIG SET appendonly yes, CONFIG SET appendfsync always (and the same in the configuration file)."
    match facts.get("save"):
        case None:
            what = "No append-only file; cannot tell whether snapshots are taken. A crash loses jobs."
        case "":
            what = "Nothing is kept on disk: a restart loses every job."
        case points:
            what = f"Snapshots only (save {points}): a crash loses all jobs since the last one."
    return Finding("persistence", "warn", what, advice)


def _append_only(facts: Mapping[str, str]) -> Finding:
    if facts.get("aof_last_write_status", "ok") != "ok":
        what = "The append-only file cannot be written: the disk may be full."
        return Finding("persistence", "fail", what, "See the server's log, and make room.")
    advice = "CONFIG SET appendfsync always (and the same in the configuration file)."
    match facts.get("appendfsync"):
        case "always":
            if facts.get("no_appendfsync_on_rewrite") == "yes":
                what = "While the append-only file is rewritten, a crash may lose acknowledged jobs."
                return Finding("persistence", "warn", what, "CONFIG SET no-appendfsync-on-rewrite no.")
            return Finding("persistence", "ok", "appendfsync always: no acknowledged job is lost.")
        case "everysec":
            what = "appendfsync everysec: a crash may lose the last 1 to 2 s of acknowledged jobs."
        case "no":
            what = "appendfsync no: a crash of the machine may lose the last 30 s of acknowledged jobs, or more."
        case _:
            what = "An append-only file is kept; cannot tell how soon: CONFIG is not allowed."
    return Finding("persistence", "warn", what, advice)


async def _try_commands(client: Client, ask: Ask, scratch: str) -> list[Finding]:
    """Runs what the queue runs, for real: a user's rights and a managed server's limits show in no other way."""
    try:
        scripts = await _refused(ask, [("EVAL", SCRIPT, "1", f"{scratch}string", "1"), ("SCRIPT LOAD", SCRIPT)])
        if not scripts:
            digest = _text(await ask("SCRIPT LOAD", SCRIPT))
            scripts = await _refused(ask, [("EVALSHA", digest, "1", f"{scratch}string", "1")])
        commands = await _refused(ask, trials(scratch)) | await _refused_subscription(client, f"{scratch}channel")
    finally:
        await _refused(ask, [("DEL", *(scratch + kind for kind in KINDS))])
    return [
        _allowed("scripts", scripts, "EVAL, EVALSHA and SCRIPT LOAD work."),
        _allowed("commands", commands, "All commands that the queue needs work."),
    ]


def _allowed(name: str, refused: Mapping[str, str], otherwise: str) -> Finding:
    if not refused:
        return Finding(name, "ok", otherwise)
    names = " ".join("+" + command.lower().replace(" ", "|") for command in refused)
    advice = f"Allow them (ACL SETUSER … {names}); a managed service that forbids them cannot hold the queue."
    return Finding(name, "fail", "Refused: " + "; ".join(f"{what} ({why})" for what, why in refused.items()), advice)


async def _refused(ask: Ask, trials: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """The commands that the server refused, and why."""
    refused: dict[str, str] = {}
    for trial in trials:
        try:
            await ask(*trial)
        except ResponseError as error:
            refused[trial[0]] = str(error)
    return refused


async def _refused_subscription(client: Client, channel: str) -> dict[str, str]:
    subscription = client.pubsub()  # pyright: ignore[reportUnknownMemberType]
    try:
        await subscription.subscribe(channel)
        await subscription.get_message(timeout=1)
    except ResponseError as error:
        return {"SUBSCRIBE": str(error)}
    finally:
        await subscription.aclose()
    return {}


def trials(scratch: str) -> list[tuple[str, ...]]:
    """One call of each command that the scripts and the engine use, on keys that start with `scratch`."""
    string, fields, scores, stream, names, parts, bits = (scratch + kind for kind in KINDS)
    return [
        ("TIME",),
        ("SET", string, "1", "PX", "60000"),
        ("GET", string),
        ("INCR", string),
        ("PERSIST", string),
        ("PEXPIRE", string, "60000"),
        ("RENAME", string, string),
        ("HSET", fields, "a", "1"),
        ("HSETNX", fields, "b", "1"),
        ("HINCRBY", fields, "a", "1"),
        ("HGET", fields, "a"),
        ("HMGET", fields, "a", "b"),
        ("HGETALL", fields),
        ("HEXISTS", fields, "a"),
        ("HDEL", fields, "b"),
        ("HLEN", fields),
        ("HSTRLEN", fields, "a"),
        ("ZADD", scores, "GT", "CH", "2", "a"),
        ("ZADD", scores, "LT", "CH", "1", "a"),
        ("ZINCRBY", scores, "1", "a"),
        ("ZSCORE", scores, "a"),
        ("ZRANK", scores, "a"),
        ("ZCOUNT", scores, "-inf", "+inf"),
        ("ZRANGE", scores, "0", "0", "WITHSCORES"),
        ("ZRANGEBYSCORE", scores, "-inf", "+inf", "LIMIT", "0", "1"),
        ("ZRANGEBYLEX", scores, "-", "+", "LIMIT", "0", "1"),
        ("ZREVRANGEBYSCORE", scores, "+inf", "-inf", "LIMIT", "0", "1"),
        ("ZREVRANGEBYLEX", scores, "+", "-", "LIMIT", "0", "1"),
        ("ZREMRANGEBYLEX", scores, "-", "(a"),
        ("ZCARD", scores),
        ("ZREM", scores, "a"),
        ("ZREMRANGEBYRANK", scores, "0", "0"),
        ("ZREMRANGEBYSCORE", scores, "-inf", "0"),
        ("XADD", stream, "1-0", "a", "1"),
        ("XLEN", stream),
        ("XRANGE", stream, "-", "+", "COUNT", "1"),
        ("XREVRANGE", stream, "+", "-", "COUNT", "1"),
        ("XREAD", "COUNT", "1", "STREAMS", stream, "0"),
        ("XGROUP CREATE", stream, "doctor", "0"),
        ("XREADGROUP", "GROUP", "doctor", "doctor", "COUNT", "1", "STREAMS", stream, ">"),
        ("XINFO GROUPS", stream),
        ("XPENDING", stream, "doctor"),
        ("XACK", stream, "doctor", "1-0"),
        ("XDEL", stream, "1-0"),
        ("XTRIM", stream, "MAXLEN", "0"),
        ("SADD", names, "a"),
        ("SCARD", names),
        ("SREM", names, "a"),
        ("RPUSH", parts, "a"),
        ("LLEN", parts),
        ("LRANGE", parts, "0", "0"),
        ("LTRIM", parts, "1", "-1"),
        ("SETBIT", bits, "1", "1"),
        ("GETBIT", bits, "1"),
        ("PUBLISH", f"{scratch}channel", "1"),
        ("EXISTS", string),
        ("DEL", string),
        ("UNLINK", string),
    ]


async def _check_schema(client: Client, namespace: str) -> Finding:
    try:
        stored = await stored_schema(client, namespace)
    except ResponseError as error:
        return Finding("schema", "fail", f"Cannot read the schema version: {error}", f"Allow keys ~{namespace}:*.")
    if stored is None:
        return Finding("schema", "ok", f"No Fairlane data in namespace {namespace} yet.")
    if stored != CURRENT:
        return Finding("schema", "fail", mismatch(stored))
    return Finding("schema", "ok", f"{CURRENT}, as this version of Fairlane writes it.")


def _address(url: str) -> str:
    """Where the URL leads, without the password."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()
