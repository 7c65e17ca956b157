"""`fairlane policy`, `pool`, `tenants` and `explain`: the queue seen and changed from a terminal while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlane.model import DEFAULT_TIERS, Limits, Policy
from fairlane.queue.engine import Queue
from tests.contract.acts import finish, open_backend, submit, take
from tests.servers import ValkeyServer
from tests.unit.commands import REFUSED, USAGE, llama, on, said, told

pytestmark = pytest.mark.usefixtures("server")


# --- policy -----------------------------------------------------------------------------------------------------------


def test_a_policy_is_set_and_shown(server: ValkeyServer) -> None:
    words = said("policy", "set", "--pool", "llama", "theta=4,2,1", "gamma=0.5", "valve_ms=30000", "--by", "ops")
    assert words == "llama: valve_ms 60000 → 30000; gamma auto → 0.5; theta 3,2,1 → 4,2,1 (version 1)\n"
    rows = dict(line.split(maxsplit=1) for line in said("policy", "show").splitlines()[1:])
    assert rows["tiers"] == ",".join(DEFAULT_TIERS)
    assert (rows["theta"], rows["gamma"], rows["valve_ms"], rows["version"]) == ("4,2,1", "0.5", "30000", "1")
    (shown,) = told("policy", "show", "--pool", "llama")["pools"]
    assert (shown["pool"], shown["version"], shown["policy"]["theta"]) == ("llama", 1, [4, 2, 1])
    assert shown["history"][0]["by"] == "ops"
    assert shown["history"][0]["changes"]["gamma"] == ["auto", "0.5"]
    assert "ops" in said("policy", "show", "--history")
    assert on(server, llama).policy == Policy(theta=(4, 2, 1), gamma=0.5, valve_ms=30_000)


def test_what_is_set_can_be_shown_and_set_again() -> None:
    """As JSON, too, a policy has what `set` takes."""
    shown = told("policy", "set", "gamma=0.25", "tiers=fast,slow")["pools"][0]["policy"]
    words = [f"{n}={','.join(map(str, v)) if isinstance(v, list) else v}" for n, v in shown.items()]
    assert said("policy", "set", *words) == "llama: nothing to change (version 1)\n"
    assert told("policy", "set", "gamma=auto")["pools"][0]["policy"]["gamma"] == "auto"


def test_who_did_it_is_the_login_name_unless_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    said("policy", "set", "valve_ms=5")
    assert told("policy", "show")["pools"][0]["history"][0]["by"] == "ann"


@pytest.mark.parametrize("wrong", ["valve_ms", "valve_ms=x", "valve=5", "theta=1,2", "=5", "gamma=-1"])
def test_a_wrong_setting_is_a_usage_error_and_changes_nothing(server: ValkeyServer, wrong: str) -> None:
    assert wrong.split("=")[0] in said("policy", "set", "lease_ms=5000", wrong, exit_code=USAGE)
    assert on(server, llama).version == 0


def test_of_several_pools_one_must_be_named(server: ValkeyServer) -> None:
    on(server, lambda queue: queue.pools.open("mistral", Policy()))
    assert "mistral" in said("policy", "set", "valve_ms=5", exit_code=USAGE)
    said("policy", "set", "valve_ms=5", "--pool", "mistral", "--pool", "llama")
    head, *rows = said("policy", "show").splitlines()
    assert head.split() == ["llama", "mistral"]
    assert ["valve_ms", "5", "5"] in [row.split() for row in rows]
    assert "no pool" in said("policy", "set", "valve_ms=5", "--pool", "gone", exit_code=REFUSED)


def test_a_tier_that_is_needed_stays(server: ValkeyServer) -> None:
    async def queue_one(queue: Queue) -> None:
        await submit(queue, await llama(queue), tier="flex")

    on(server, queue_one)
    on(server, lambda queue: queue.pools.open("a", Policy()))
    words = said("policy", "set", "--pool", "a", "--pool", "llama", "tiers=priority,default,batch", exit_code=REFUSED)
    assert "queued jobs in flex" in words
    assert "a: tiers" in words, "what was changed before is said"


# --- which queue ------------------------------------------------------------------------------------------------------


def test_without_a_url_it_is_the_one_that_runs_here(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FAIRLANE_REDIS_URL")
    assert "--redis" in said("policy", "show", exit_code=USAGE)
    (tmp_path / "up.json").write_text(json.dumps({"url": None, "redis_url": server.url}))
    assert "llama" in said("policy", "show")


def test_a_redis_that_is_away_is_said() -> None:
    assert said("pool", "list", "--redis", "redis://127.0.0.1:1/0", exit_code=REFUSED)
    said("pool", "list", "--redis", "nonsense", exit_code=USAGE)


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Queue, "open", interrupt)
    said("pool", "list", exit_code=130)


# --- pool -------------------------------------------------------------------------------------------------------------


def test_pools_are_listed_with_their_backends_and_gates(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> None:
        pool = await llama(queue)
        await open_backend(queue, pool, "b1", 1)
        await submit(queue, pool, n=3)
        await take(queue, pool)

    on(server, work)
    lines = [line.split() for line in said("pool", "list").splitlines()]
    assert ["llama", "default", "open", "2", "1", "1"] in [line[:6] for line in lines]
    (pool,) = told("pool", "list")["pools"]
    (backend,) = pool["backends"]
    assert {tier["tier"]: tier["depth"] for tier in pool["tiers"]}["default"] == 2
    assert backend["says"].keys() == set(DEFAULT_TIERS)
    assert set(backend["says"].values()) <= {"full", "stale"}


def test_a_pool_or_a_tier_of_it_is_paused_and_resumed(server: ValkeyServer) -> None:
    async def takes(queue: Queue) -> int:
        return len(await take(queue, await llama(queue), 1, dispatcher=f"d{id(queue)}"))

    async def work(queue: Queue) -> None:
        await open_backend(queue, await llama(queue), "b1", 1000)
        await submit(queue, await llama(queue), n=9)

    on(server, work)
    for scope in ([], ["--tier", "default"], ["--tenant", "ann"]):
        assert "is paused." in said("pool", "pause", "llama", *scope)
        assert "already" in said("pool", "pause", "llama", *scope)
        assert on(server, takes) == 0
        assert told("pool", "resume", "llama", *scope) == {"pool": "llama", "changed": True}
        assert on(server, takes) == 1
    assert "no tier" in said("pool", "pause", "llama", "--tier", "gone", exit_code=USAGE)


def test_backends_come_and_go_while_it_works(server: ValkeyServer) -> None:
    assert said("pool", "add", "llama", "http://gpu1:8000/v1,slots=4", "http://gpu2:8000") == (
        "llama has gpu1:8000, gpu2:8000.\n"
    )
    assert "already" not in said("pool", "drain", "llama", "gpu1:8000")
    states = {backend["name"]: backend["status"] for backend in told("pool", "list")["pools"][0]["backends"]}
    assert states == {"gpu1:8000": "draining", "gpu2:8000": "up"}
    said("pool", "undrain", "llama", "gpu1:8000")
    said("pool", "remove", "llama", "http://gpu2:8000")
    (left,) = told("pool", "list")["pools"][0]["backends"]
    assert (left["name"], left["status"], left["spec"]["slots"]) == ("gpu1:8000", "up", 4)
    assert "no such backend" in said("pool", "remove", "llama", "gpu9", exit_code=REFUSED)
    said("pool", "add", "llama", "gpu3:8000", exit_code=USAGE)
    said("pool", "add", "new", "null://")
    assert len(told("pool", "list")["pools"]) == 2


def test_a_pool_without_backends_and_jobs_is_removed() -> None:
    said("pool", "add", "llama", "http://gpu1:8000")
    assert "its backends are gpu1:8000" in said("pool", "remove", "llama", exit_code=REFUSED)
    said("pool", "remove", "llama", "gpu1:8000")
    assert said("pool", "remove", "llama") == "The pool llama is removed.\n"
    assert told("pool", "list")["pools"] == []


def test_a_drain_waits_for_what_runs(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> Any:
        pool = await llama(queue)
        await open_backend(queue, pool, "b1", 1000)
        await submit(queue, pool, n=2)
        return await take(queue, pool)

    leases = on(server, work)
    assert "1 job still runs" in said("pool", "drain", "llama", "--wait", "0", exit_code=REFUSED)
    said("pool", "drain", "llama", "b1", "--wait", "0.3", exit_code=REFUSED)
    assert "Drain it first" in said("pool", "remove", "llama", "b1", exit_code=REFUSED)

    async def end(queue: Queue) -> None:
        await finish(queue, await llama(queue), leases)

    on(server, end)
    assert told("pool", "drain", "llama") == {"pool": "llama", "backend": None, "running": 0}
    said("pool", "drain", "llama", "b1")
    said("pool", "remove", "llama", "b1")


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_limits_are_set_one_by_one_in_each_pool(server: ValkeyServer) -> None:
    on(server, lambda queue: queue.pools.open("mistral", Policy()))
    said("tenants", "set", "ann", "weight=2", "max_inflight=5", "requests_per_minute=60")
    said("tenants", "set", "ann", "max_inflight=none", "max_waiting=7", "--pool", "llama")
    shown = {one["pool"]: one["limits"] for one in told("tenants", "show", "ann")["pools"]}
    assert Limits(**shown["llama"]) == Limits(2, None, 60, None, 7)
    assert Limits(**shown["mistral"]) == Limits(2, 5, 60)
    for wrong in ("speed=1", "weight=none", "weight=0", "max_inflight=x", "weight=nan"):
        assert wrong.split("=")[0] in said("tenants", "set", "ann", wrong, exit_code=USAGE)
    rows = [line.split() for line in said("tenants", "show", "ann").splitlines()]
    assert rows[0] == ["llama", "mistral"]
    assert ["state", "may", "run", "may", "run"] in rows
    assert ["max_inflight", "-", "5"] in rows


def test_who_waits_is_listed(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> None:
        await submit(queue, await llama(queue), "ann", n=3)
        await submit(queue, await llama(queue), "bob", "batch")
        await queue.pause(await llama(queue), tenant="bob")

    on(server, work)
    found = {(one["tenant"], one["tier"]): one for one in told("tenants", "list")["tenants"]}
    assert found.keys() == {("ann", "default"), ("bob", "batch")}
    assert (found["ann", "default"]["waiting"], found["ann", "default"]["held"]) == (3, False)
    assert (found["bob", "batch"]["held"], found["bob", "batch"]["held_until_ms"]) == (True, None)
    assert "paused" in said("tenants", "list").splitlines()[2]
    assert "paused" in said("tenants", "show", "bob")


# --- explain ----------------------------------------------------------------------------------------------------------


def test_it_says_why_a_job_waits(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> str:
        pool = await llama(queue)
        await open_backend(queue, pool, "b1", 0)
        await submit(queue, pool, tier="priority", n=3)
        *_, last = await submit(queue, pool, n=2)
        await queue.pause(pool, tier="default")
        return last

    job = on(server, work)
    why = told("explain", job)
    assert (why["state"], why["gate"]["backend"]) == ("queued", "b1")
    words = said("explain", job)
    for part in (f"{job} is queued", "3 jobs wait in the tier priority", "1 job of its own tenant", "paused", "b1"):
        assert part in words
    assert "nothing with this id" in said("explain", "job_gone", exit_code=REFUSED)
