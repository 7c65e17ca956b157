"""What the front door says of a wait, on which numbers, and how it finds out how right it was."""

from __future__ import annotations

import json
from typing import Literal

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from fairlane.model import Policy, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from producer import promises
from producer.promises import Promises
from tests.api.door import JOB, submit
from tests.contract.acts import NOTHING_COUNTED, finish, take

PLACE = ("x-fairlane-queue-position", "x-fairlane-estimated-wait")


async def compared(http: httpx.AsyncClient) -> dict[str, float]:
    """How many promises were compared, by tier."""
    page = (await http.get("/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(page)}
    samples = families["fairlane_estimate_error_seconds"].samples
    return {sample.labels["tier"]: sample.value for sample in samples if sample.name.endswith("_count")}


async def test_what_was_promised_is_compared_once_when_the_start_becomes_known(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    job = await submit(http)
    await http.get(f"/v1/jobs/{job['id']}")
    assert await compared(http) == {}
    leases = await take(queue, pool)
    for _ in range(2):
        await http.get(f"/v1/jobs/{job['id']}")
        assert await compared(http) == {"default": 1}
    await finish(queue, pool, leases)
    await http.get(f"/v1/jobs/{job['id']}?wait=1")
    assert await compared(http) == {"default": 1}


async def test_a_long_poll_tells_it_too(http: httpx.AsyncClient, queue: Queue, pool: Pool) -> None:
    job = await submit(http, tier="flex")
    await finish(queue, pool, await take(queue, pool))
    assert (await http.get(f"/v1/jobs/{job['id']}?wait=5")).json()["state"] == "succeeded"
    assert await compared(http) == {"flex": 1}


async def test_a_job_that_never_started_teaches_nothing(http: httpx.AsyncClient) -> None:
    job = await submit(http)
    await http.delete(f"/v1/jobs/{job['id']}")
    await http.get(f"/v1/jobs/{job['id']}")
    assert await compared(http) == {}


async def test_it_remembers_a_bounded_number_of_promises(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "MOST", 2)
    registry = CollectorRegistry()
    kept = Promises(registry)
    ids = [(await submit(http))["id"] for _ in range(4)]
    for id_ in ids:
        kept.made(id_, 1.0)
    await take(queue, pool, 4)
    for id_ in ids:
        kept.heard(await queue.inspect.outcome(id_))
    labels = {"pool": "llama", "tier": "default"}
    assert registry.get_sample_value("fairlane_estimate_error_seconds_count", labels) == 2
    assert registry.get_sample_value("fairlane_estimate_error_seconds_bucket", labels | {"le": "-0.5"}) == 2


@pytest.mark.parametrize("policy", [Policy(stale_ms=3_600_000, max_waiting_tenant=1)], indirect=True)
async def test_202_and_429_say_the_place_and_the_wait(http: httpx.AsyncClient) -> None:
    answers = [await http.post("/v1/jobs", json=JOB) for _ in range(2)]
    answers.append(await http.post("/v1/chat/completions", json={"model": "llama", "messages": []}))
    assert [answer.status_code for answer in answers] == [202, 429, 429]
    for answer in answers:
        position, wait_s = (float(answer.headers[name]) for name in PLACE)
        assert position >= 0
        assert wait_s >= 0


@pytest.mark.parametrize(
    ("reason", "seen", "setting"),
    [
        ("kv", {"kv": 0.97}, {"kv_most": 0.95}),
        ("slow_tokens", {"token_ms": 200.0}, {"slow_ms": 150.0}),
        ("room", {"rooms": [1.0, 0.8, 0.8, 0.8]}, {"theta": [3, 2, 1], "reserve": 0.2, "decay": 2.5}),
        ("full", {"capacity": {"k": 8, "cap": 8}}, {"theta": [3, 2, 1]}),
    ],
)
async def test_a_shut_gate_is_explained_by_the_numbers_that_shut_it(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, reason: str, seen: dict[str, object], setting: dict[str, object]
) -> None:
    gates = {tier: TierGate(0, 0, reason) for tier in pool.policy.tiers}  # pyright: ignore[reportArgumentType]
    await queue.observe(pool, "b1", gates, counted=NOTHING_COUNTED, seen=json.dumps(seen))
    job = await submit(http)
    why = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()
    assert why["gate"] == {"backend": "b1", "reason": reason, "numbers": {"live": 0, "limit": 0, **setting, **seen}}
    assert why["estimated_start_s"] > 0


@pytest.mark.parametrize("policy", [Policy(stale_ms=1)], indirect=True)
async def test_a_stale_gate_says_since_when_and_what_counts_as_stale(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    await queue.observe(pool, "b1", {"default": TierGate(9, 0)}, counted=NOTHING_COUNTED)
    job = await submit(http)
    gate = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()["gate"]
    view = await queue.inspect.backend(pool, "b1")
    assert view.fresh_at_ms is not None
    assert gate["reason"] == "stale"
    assert gate["numbers"] == {"live": 0, "limit": 0, "stale_ms": 1, "fresh_at": view.fresh_at_ms / 1000}


async def test_nobody_knows_when_something_paused_starts(http: httpx.AsyncClient, queue: Queue, pool: Pool) -> None:
    job = await submit(http)
    await queue.pause(pool, tier="default")
    why = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()
    assert (why["position"], why["estimated_start_s"]) == (0, None)
    assert {"what": "paused"} in why["ahead"]


@pytest.mark.parametrize("what", [{}, {"tier": "default"}, {"tenant": "ann"}])
async def test_a_202_promises_no_start_of_what_is_paused(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, what: dict[str, str]
) -> None:
    await queue.pause(pool, **what)
    answer = await http.post("/v1/jobs", json=JOB)
    assert answer.status_code == 202
    assert [answer.headers.get(name) for name in PLACE] == ["0", None]


@pytest.mark.parametrize("policy", [Policy(stale_ms=3_600_000, max_waiting_tenant=1)], indirect=True)
async def test_a_pool_without_a_backend_is_explained_and_promises_nothing(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    await queue.set_backend(pool, "b1", "remove")
    answers = [await http.post("/v1/jobs", json=JOB) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 429]
    assert [answer.headers.get(PLACE[1]) for answer in answers] == [None, None]
    why = (await http.get(f"/v1/jobs/{answers[0].json()['id']}/explain")).json()
    assert (why["ahead"], why["gate"], why["estimated_start_s"]) == ([{"what": "no_backend"}], None, None)


@pytest.mark.parametrize("policy", [Policy(stale_ms=3_600_000, max_waiting_tenant=1)], indirect=True)
@pytest.mark.parametrize("how", ["down", "drain"])
async def test_while_no_backend_takes_jobs_no_start_is_promised(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, how: Literal["down", "drain"]
) -> None:
    await queue.set_backend(pool, "b1", how)
    answers = [await http.post("/v1/jobs", json=JOB) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 429]
    assert [answer.headers.get(PLACE[1]) for answer in answers] == [None, None]
    why = (await http.get(f"/v1/jobs/{answers[0].json()['id']}/explain")).json()
    down_at_ms = (await queue.inspect.backend(pool, "b1")).down_at_ms
    since = down_at_ms / 1000 if down_at_ms else None
    silent = {"name": "b1", "reason": "down" if how == "down" else "draining", "since": since}
    assert why["ahead"] == [{"what": "no_answer", "backends": [silent]}]
    assert why["estimated_start_s"] is None
    await queue.set_backend(pool, "b2", "add")
    assert (await http.get(f"/v1/jobs/{answers[0].json()['id']}/explain")).json()["estimated_start_s"] is not None


async def test_a_backend_that_is_up_is_named_before_one_that_is_not(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    """b1 is up, but over its limit; b0 is down, with nothing live."""
    seen = json.dumps({"running": 8, "waiting": 1})
    await queue.set_backend(pool, "b0", "add")
    await queue.observe(pool, "b0", {}, counted=NOTHING_COUNTED, seen=seen)
    await queue.set_backend(pool, "b0", "down")
    await submit(http)
    await take(queue, pool)
    await queue.observe(pool, "b1", {"default": TierGate(0, 0, "kv")}, counted=NOTHING_COUNTED)
    job = await submit(http)
    gate = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()["gate"]
    assert (gate["backend"], gate["reason"], gate["numbers"]["live"]) == ("b1", "kv", 1)


async def test_of_a_backend_that_is_down_only_what_holds_now_is_told(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    gates = {tier: TierGate(8, 8) for tier in pool.policy.tiers}
    await queue.observe(pool, "b1", gates, counted=NOTHING_COUNTED, seen=json.dumps({"running": 8, "waiting": 1}))
    await queue.set_backend(pool, "b1", "down")
    view = await queue.inspect.backend(pool, "b1")
    assert view.down_at_ms is not None
    job = await submit(http)
    gate = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()["gate"]
    numbers = {"live": 0, "limit": 0, "down_at": view.down_at_ms / 1000}
    assert gate == {"backend": "b1", "reason": "down", "numbers": numbers}


async def test_what_does_not_wait_has_nothing_ahead_and_no_gate(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    jobs = [await submit(http, tier="default") for _ in range(3)]
    await submit(http, tier="priority")
    await queue.pause(pool, tier="priority")
    await finish(queue, pool, await take(queue, pool))
    await take(queue, pool)
    await http.delete(f"/v1/jobs/{jobs[2]['id']}")
    await queue.pause(pool)
    for job, state in zip(jobs, ("succeeded", "leased", "cancelled"), strict=True):
        why = (await http.get(f"/v1/jobs/{job['id']}/explain")).json()
        assert why == {"state": state, "position": None, "ahead": [], "gate": None, "estimated_start_s": None}


async def test_what_the_observer_found_is_in_the_metrics(http: httpx.AsyncClient, queue: Queue, pool: Pool) -> None:
    found = {"gamma": 0.3, "replicas": 2, "freeness": -1.5, "rho": 0.9, "jain": 0.8, "gap": 7,
             "tenants": [["ann", 1.5], ["other", 0]]}  # fmt: skip
    await queue.steer(pool, None, json.dumps(found))
    page = (await http.get("/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert families["fairlane_pool_desired_replicas"].samples[0].value == 2
    assert families["fairlane_fairness_jain"].samples[0].value == 0.8
    assert families["fairlane_fairness_gap"].samples[0].value == 7
    rates = {sample.labels["tenant"]: sample.value for sample in families["fairlane_tenant_jobs_per_second"].samples}
    assert rates == {"ann": 1.5, "other": 0}
