"""The scripts themselves: short, described, found again when a server forgot them, and within one slot."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.queue import keys
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.scripts import names, script
from tests.contract.everything import every_act

LUA = files("fairlane.queue") / "lua"
PARTS = sorted(entry.name for entry in (LUA / "lib").iterdir())
WALKS = {"KEYS", "SCAN", "SSCAN", "HSCAN", "ZSCAN", "SMEMBERS", "RANDOMKEY", "SORT", "FLUSHALL", "FLUSHDB"}
# Where a command has its keys, or its channel, if not in its first argument only.
FIRST = slice(1)
WHERE = {
    "DEL": slice(None), "RENAME": slice(2), "XINFO": slice(1, 2), "XGROUP": slice(1, 2), "XREADGROUP": slice(-2, -1),
    "TIME": slice(0),
}  # fmt: skip
HEADER = ("KEYS[1]", "ARGV", "returns", "errors", "events", "cost")


@pytest.mark.parametrize("name", names())
def test_a_script_is_short_and_says_what_it_does(name: str) -> None:
    lines = (LUA / f"{name}.lua").read_text().splitlines()
    assert len(lines) <= 100
    head = lines[: next(n for n, line in enumerate(lines) if not line.startswith("--"))]
    assert re.match(r"-- [A-Z].+", head[0]), "first a sentence"
    fields = [match[1] for line in head if (match := re.match(r"-- (KEYS\[1\]|[A-Za-z]+) {2,}\S", line))]
    assert tuple(fields) == HEADER


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_short_and_says_what_it_is(name: str) -> None:
    lines = (LUA / "lib" / name).read_text().splitlines()
    assert len(lines) <= 100
    assert re.match(r"-- \S.+", lines[0])


@pytest.mark.parametrize("name", names())
def test_a_script_never_walks_all_keys_and_names_none_itself(name: str) -> None:
    """Case 22; and only keys.py spells a key."""
    source = script(name).source
    commands = set(re.findall(r"redis\.p?call\('(\w+)'", source))
    assert commands
    assert not commands & WALKS
    texts = [path.read_text() for path in (LUA / f"{name}.lua", *(LUA / "lib" / part for part in PARTS))]
    assert not any(re.search(r"KEYS\[1\] *\.\.", text) for text in texts)
    assert set(re.findall(r"KEYS\[(\d+)\]", source)) <= {"1"}


async def test_a_script_that_the_server_forgot_is_loaded_again_at_once(
    queue: Queue, client: Any, clock: ManualClock, invariants: None
) -> None:
    """Case 23: as after a failover, before every single act."""
    async for _ in every_act(queue, clock):
        await client.script_flush()


async def monitored(queue: Queue, client: Any, clock: ManualClock, url: str) -> list[dict[str, Any]]:
    """What a server does in the course of every act, as MONITOR tells it."""
    watcher: Any = connect(url)
    seen: list[dict[str, Any]] = []
    async with watcher.monitor() as monitor:
        async for _ in every_act(queue, clock):
            pass
        await client.echo("the end")
        async for command in monitor.listen():
            if command["command"] == "ECHO the end":
                break
            seen.append(command)
    await watcher.aclose()
    return seen


@pytest.mark.parametrize("store", ["valkey"], indirect=True)
async def test_whatever_a_script_touches_starts_with_its_prefix(
    queue: Queue, client: Any, clock: ManualClock, store: str, urls: dict[str, str], invariants: None
) -> None:
    """Case 24: then it is of one slot, which the same suite tries on a Cluster."""
    seen = await monitored(queue, client, clock, urls[store])
    lines = {command["command"] for command in seen if command["client_type"] == "lua"}
    assert len(lines) > 300
    codes = [keys.ACCOUNT, *(pool.code for pool in await queue.pools.all())]
    prefixes = tuple(keys.prefix(queue._store.namespace, code) for code in codes)
    for line in lines:
        command, *args = line.split(" ")
        touched = args[WHERE.get(command, FIRST)]
        assert touched or command == "TIME", line
        assert all(key.startswith(prefixes) for key in touched), line


@pytest.mark.parametrize("store", ["valkey"], indirect=True)
async def test_no_act_walks_all_keys(
    queue: Queue, client: Any, clock: ManualClock, store: str, urls: dict[str, str]
) -> None:
    """Case 22."""
    seen = await monitored(queue, client, clock, urls[store])
    used = {command["command"].split(" ")[0].upper() for command in seen}
    assert {"EVALSHA", "ZADD", "XADD"} <= used
    assert not used & WALKS
