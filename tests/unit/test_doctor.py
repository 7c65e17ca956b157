"""The doctor tells what a Redis would refuse and what it would lose, before any job is entrusted to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

import fairlane.queue
from fairlane.doctor import Finding, Node, examine, judge, trials
from fairlane.errors import InvalidRequest
from fairlane.queue.connection import connect
from fairlane.queue.schema import CURRENT, ensure_schema
from tests.servers import Cluster, RedisServer, ValkeyServer, redis_binary

CAREFUL = {"appendonly": "yes", "appendfsync": "always", "maxmemory": "100mb", "maxmemory-policy": "noeviction"}
DEFAULTS = {"appendonly": "no", "maxmemory": "0", "maxmemory-policy": "noeviction", "save": ""}


@pytest.fixture(scope="module")
def shared() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def server(shared: ValkeyServer) -> Iterator[ValkeyServer]:
    yield shared
    with shared.client() as client:
        configure(client, DEFAULTS)
        client.flushall()
        client.acl_deluser("limited")


def configure(client: Redis, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        client.config_set(name, value)


def findings(url: str) -> dict[str, Finding]:
    found = asyncio.run(examine(url))
    assert len({finding.name for finding in found}) == len(found)
    return {finding.name: finding for finding in found}


def limited(server: ValkeyServer, *rules: str) -> str:
    """The URL of a user who may do all but what `rules` take away."""
    with server.client() as client:
        client.execute_command("ACL SETUSER", "limited", "on", ">secret", "~fl:*", "&fl:*", "+@all", *rules)
    return f"redis://limited:secret@127.0.0.1:{server.port}/0"


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    return subprocess.run(
        [sys.executable, "-m", "fairlane.cli", "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_careful_server_has_nothing_to_change(server: ValkeyServer) -> None:
    with server.client() as client:
        configure(client, CAREFUL)
        found = findings(server.url)
        assert {name: finding.level for name, finding in found.items()} == dict.fromkeys(found, "ok")
        assert not any(finding.advice for finding in found.values())
        assert found["version"].what.startswith("Valkey 9")


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
def test_redis_is_told_from_valkey() -> None:
    with RedisServer() as server:
        found = findings(server.url)
    assert found["version"].what.startswith("Redis ")
    assert all(finding.level != "fail" for finding in found.values())


def test_it_leaves_nothing_behind(server: ValkeyServer) -> None:
    findings(server.url)
    with server.client() as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize(
    ("settings", "level", "what", "advice"),
    [
        ({"appendonly": "yes", "appendfsync": "always"}, "ok", "no acknowledged job is lost", ""),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "warn", "1 to 2 s", "appendfsync always"),
        ({"appendonly": "yes", "appendfsync": "no"}, "warn", "30 s", "appendfsync always"),
        ({"appendonly": "no", "save": "3600 1"}, "warn", "since the last one", "appendonly yes"),
        ({"appendonly": "no", "save": ""}, "warn", "every job", "appendonly yes"),
    ],
)
def test_it_tells_what_a_crash_would_lose(
    server: ValkeyServer, settings: dict[str, str], level: str, what: str, advice: str
) -> None:
    with server.client() as client:
        configure(client, settings)
    found = findings(server.url)["persistence"]
    assert found.level == level
    assert what in found.what
    assert advice in found.advice


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_must_not_be_used(server: ValkeyServer, policy: str) -> None:
    with server.client() as client:
        configure(client, {"maxmemory-policy": policy})
    found = findings(server.url)["eviction"]
    assert found.level == "fail"
    assert policy in found.what
    assert "CONFIG SET maxmemory-policy noeviction" in found.advice


@pytest.mark.parametrize(
    ("rules", "check", "named"),
    [
        (["-eval"], "scripts", "EVAL"),
        (["-evalsha"], "scripts", "EVALSHA"),
        (["-script"], "scripts", "SCRIPT LOAD"),
        (["-xadd", "-zadd"], "commands", "ZADD"),
        (["-publish"], "commands", "PUBLISH"),
        (["-subscribe"], "commands", "SUBSCRIBE"),
        (["resetchannels"], "commands", "PUBLISH"),
        (["resetkeys", "~other:*"], "commands", "HSET"),
    ],
)
def test_a_command_that_this_user_may_not_run_is_named(
    server: ValkeyServer, rules: list[str], check: str, named: str
) -> None:
    found = findings(limited(server, *rules))[check]
    assert found.level == "fail"
    assert f"{named} (" in found.what
    assert "+" + named.lower().replace(" ", "|") in found.advice


def test_every_command_of_the_scripts_is_tried() -> None:
    lua = Path(fairlane.queue.__file__).parent / "lua"
    used = {name for path in lua.rglob("*.lua") for name in re.findall(r"redis\.p?call\('(\w+)'", path.read_text())}
    assert used
    assert used <= {trial[0].split()[0] for trial in trials("")}


def test_without_info_and_config_it_cannot_tell_but_does_not_fail(server: ValkeyServer) -> None:
    found = findings(limited(server, "-info", "-config"))
    for name in ("version", "eviction", "memory", "persistence"):
        assert found[name].level == "warn"
        assert "Cannot tell" in found[name].what
    assert all(finding.level != "fail" for finding in found.values())


def test_without_config_it_uses_what_info_says(server: ValkeyServer) -> None:
    with server.client() as client:
        configure(client, {**CAREFUL, "maxmemory-policy": "allkeys-lfu"})
    found = findings(limited(server, "-config"))
    assert found["eviction"].level == "fail"
    assert found["memory"].level == "ok"
    assert "cannot tell how soon" in found["persistence"].what


def test_a_replica_must_not_be_used(server: ValkeyServer) -> None:
    with ValkeyServer("--replicaof", "127.0.0.1", str(server.port)) as replica:
        found = findings(replica.url)["topology"]
    assert found.level == "fail"
    assert "replica" in found.what


def test_a_cluster_wants_a_cluster_url() -> None:
    with Cluster() as cluster:
        found = findings(cluster.url)
        node = findings(cluster.nodes[0].url)["topology"]
    assert found["topology"].what == "A Cluster of 3 primaries."
    assert all(finding.level != "fail" for finding in found.values())
    assert node.level == "fail"
    assert "redis+cluster://" in node.advice


def test_a_cluster_url_wants_a_cluster(server: ValkeyServer) -> None:
    found = findings(server.url.replace("redis://", "redis+cluster://").removesuffix("/0"))
    assert found["reachable"].level == "fail"


def test_an_odd_node_of_a_cluster_is_named() -> None:
    careful, careless = {"maxmemory_policy": "noeviction"}, {"maxmemory_policy": "allkeys-lru"}
    found = [
        f for f in judge([Node("a:1", careful), Node("b:1", careless), Node("c:1", careful)]) if f.name == "eviction"
    ]
    assert [(finding.level, finding.what.split(": ")[0]) for finding in found] == [("ok", "a:1, c:1"), ("fail", "b:1")]


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        ({"redis_version": "6.0.16"}, "fail"),
        ({"redis_version": "6.2.0"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, "ok"),
        ({"redis_version": "10.0"}, "ok"),
        ({}, "warn"),
    ],
)
def test_old_versions_are_refused(facts: dict[str, str], level: str) -> None:
    assert [f.level for f in judge([Node("a", facts)]) if f.name == "version"] == [level]


def test_an_append_only_file_that_cannot_be_written_is_a_failure() -> None:
    facts = {"aof_enabled": "1", "appendfsync": "always", "aof_last_write_status": "err"}
    assert [f.level for f in judge([Node("a", facts)]) if f.name == "persistence"] == ["fail"]


def test_a_nearly_full_server_is_a_warning() -> None:
    facts = {"maxmemory": "1000", "used_memory": "950"}
    assert [f.level for f in judge([Node("a", facts)]) if f.name == "memory"] == ["warn"]


def test_a_schema_that_we_do_not_know_is_refused_by_both_versions(server: ValkeyServer) -> None:
    async def mark() -> None:
        client = connect(server.url)
        await ensure_schema(client, "fl")
        await client.aclose()

    asyncio.run(mark())
    assert findings(server.url)["schema"].what.startswith(str(CURRENT))
    with server.client() as client:
        client.hset("fl:{acct}:schema", "scripts", "99")
    found = findings(server.url)["schema"]
    assert found.level == "fail"
    assert "scripts 99" in found.what
    assert str(CURRENT) in found.what
    assert asyncio.run(examine(server.url, namespace="other"))[-1].level == "ok"


def test_no_password_is_shown(server: ValkeyServer) -> None:
    url = limited(server).replace("secret", "wrong-password")
    found = findings(url)["reachable"]
    assert found.level == "fail"
    assert "wrong-password" not in found.what + found.advice


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://localhost:port", "redis+sentinel://x"])
def test_a_malformed_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        asyncio.run(examine(url))


def test_the_command_exits_0_if_the_server_can_be_used(server: ValkeyServer) -> None:
    plain, as_json = doctor("--redis", server.url), doctor("--redis", server.url, "--json")
    assert plain.returncode == as_json.returncode == 0
    assert any(line.startswith("warn  persistence  Nothing is kept") for line in plain.stdout.splitlines())
    report = json.loads(as_json.stdout)
    assert report["ok"] is True
    assert {"name", "level", "what", "advice"} == set(report["findings"][0])


def test_the_command_exits_3_if_it_cannot(server: ValkeyServer) -> None:
    for url in ("redis://127.0.0.1:1", limited(server, "-eval")):
        result = doctor("--redis", url, "--json")
        assert result.returncode == 3
        assert json.loads(result.stdout)["ok"] is False


def test_the_command_exits_2_without_a_usable_url() -> None:
    assert doctor("--redis", "http://localhost").returncode == 2
    result = doctor()
    assert result.returncode == 2
    assert "FAIRLANE_REDIS_URL" in result.stderr
