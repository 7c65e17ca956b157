"""The place that a job has with us is its place in the engine's own queue, where the engine takes one."""

from __future__ import annotations

import json
import ssl

import httpx
import pytest
from prometheus_client import CollectorRegistry

from dispatcher.backends.answer import Answer
from dispatcher.backends.call import HttpBackend, Timeouts
from dispatcher.backends.families import FAMILIES
from dispatcher.backends.known import Backends
from dispatcher.meters import Meters
from dispatcher.worker import Worker, WorkerOptions
from fairlane.head import Head
from fairlane.model import BackendSpec, Job, JobSpec, Policy, TierGate
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.contract.acts import NOTHING_COUNTED
from tests.dispatcher.scripted import (
    HEAD,
    OK,
    Script,
    answer,
    finished,
    in_state,
    make_worker,
    speak,
    submit,
    until,
    working,
)
from tests.simulated.server import simulated

TAKE_ONE = [name for name, family in FAMILIES.items() if family.priority]
FOR_EVER = 3_600_000
REFUSAL = Answer(400, b'{"error":{"message":"Got priority 7 but Priority scheduling is not enabled."}}')


async def observe(queue: Queue, pool: Pool, family: str | None, epoch: int = 0) -> None:
    """What an observer would write of a backend of that family, with room for 100."""
    gates = {tier: TierGate(100, 100) for tier in pool.policy.tiers}
    seen = json.dumps({"family": family})
    await queue.observe(pool, "b1", gates, counted=NOTHING_COUNTED, seen=seen, epoch=epoch)


def priority_of(body: bytes) -> int | None:
    return json.loads(body).get("priority")


async def run_one(queue: Queue, pool: Pool, signals: Signals, script: Script, tier: str = "default") -> Job:
    """By a worker that has just started, and knows only what stands in Redis."""
    async with working(make_worker(queue, pool, script), signals):
        (id_,) = await submit(queue, pool, tier=tier)
        return await finished(queue, id_)


@pytest.mark.parametrize("family", TAKE_ONE)
@pytest.mark.parametrize("policy", [Policy(stale_ms=FOR_EVER, gamma=0.0)], indirect=True, ids=["without-boost"])
async def test_who_came_first_and_who_is_in_a_higher_tier_is_first_in_the_engine_too(
    queue: Queue, pool: Pool, signals: Signals, script: Script, family: str
) -> None:
    await observe(queue, pool, family)
    found: list[int] = []
    for tier in ("flex", "flex", "default", "priority"):
        await run_one(queue, pool, signals, script, tier)
        place = priority_of(script.bodies[-1])
        assert place is not None
        found.append(place)
    assert found[0] <= found[1]
    assert found[1] > found[2] > found[3]
    assert all(abs(place) < 2**31 for place in found)


@pytest.mark.parametrize("family", [None, *sorted({*FAMILIES} - {*TAKE_ONE}), "nobody's"])
async def test_a_backend_that_was_not_seen_to_take_one_gets_the_body_as_it_is(
    queue: Queue, pool: Pool, signals: Signals, script: Script, family: str | None
) -> None:
    await observe(queue, pool, family)
    await run_one(queue, pool, signals, script)
    assert script.bodies == [b"{}"]


@pytest.mark.parametrize(
    ("policy", "steered", "lead_s"),
    [
        (Policy(stale_ms=FOR_EVER, gamma=1.0), {}, 4.159),  # (K - 1)·ln 4/γ
        (Policy(stale_ms=FOR_EVER, gamma=None), {"gamma": 0.1}, 41.59),
        (Policy(stale_ms=FOR_EVER, gamma=None), {"gamma": 0.001}, 120.0),
        (Policy(stale_ms=FOR_EVER, gamma=0.0), {}, 120.0),
        (Policy(stale_ms=FOR_EVER, gamma=1.0), {"lead_ms": 300_000.0}, 300.0),  # what the steering has come to
        (Policy(stale_ms=FOR_EVER, gamma=1.0), {"lead_ms": None}, 4.159),
    ],
    indirect=["policy"],
)
async def test_the_head_start_of_a_tier_follows_gamma_until_the_steering_says_more(
    queue: Queue, pool: Pool, signals: Signals, script: Script, steered: dict[str, float | None], lead_s: float
) -> None:
    await observe(queue, pool, "vllm")
    if steered:
        await queue.steer(pool, steered.get("gamma"), json.dumps(steered))
    async with working(make_worker(queue, pool, script), signals):
        ids = await submit(queue, pool, tier="batch") + await submit(queue, pool, tier="priority")
        for id_ in ids:
            await finished(queue, id_)
    places = dict(zip(script.calls, map(priority_of, script.bodies), strict=True))
    lowest, highest = (places[id_] for id_ in ids)
    assert lowest is not None
    assert highest is not None
    assert lowest - highest == pytest.approx(10 * lead_s, abs=30)  # in steps of 100 ms; the boosts are the same


async def test_a_refusal_costs_no_attempt_and_the_fleet_asks_again_only_when_it_has_restarted(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    await observe(queue, pool, "vllm", epoch=3)
    script.then(answer(REFUSAL), answer(OK))
    job = await run_one(queue, pool, signals, script)
    assert (job.state, job.status, [a.outcome for a in job.attempts]) == ("succeeded", 200, ["succeeded"])
    await run_one(queue, pool, signals, script)
    await observe(queue, pool, "vllm", epoch=3)  # whoever observes it
    await run_one(queue, pool, signals, script)
    asked = [priority_of(body) is not None for body in script.bodies]
    assert asked == [True, False, False, False]
    await observe(queue, pool, "vllm", epoch=4)
    await run_one(queue, pool, signals, script)
    assert priority_of(script.bodies[-1]) is not None


async def test_what_is_refused_without_it_too_is_the_caller_s_fault_and_teaches_nothing(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    await observe(queue, pool, "vllm")
    echo = Answer(422, b'{"detail":[{"msg":"messages is missing","input":{"priority":1}}]}')
    script.then(answer(echo))
    job = await run_one(queue, pool, signals, script)
    assert (job.state, job.status, job.result) == ("failed", 422, echo.body)
    assert not (await queue.inspect.backend(pool, "b1")).no_priority


@pytest.mark.parametrize(
    "second", [Answer(400, b"no messages"), Answer(422, b"{}"), Answer(404, b""), Answer(403, b"")]
)
async def test_only_a_good_answer_without_it_is_remembered(
    queue: Queue, pool: Pool, signals: Signals, script: Script, second: Answer
) -> None:
    """Else one malformed request would switch it off for the fleet."""
    await observe(queue, pool, "vllm")
    script.then(answer(REFUSAL), answer(second))
    job = await run_one(queue, pool, signals, script)
    assert (job.state, job.status) == ("failed", second.status)
    assert not (await queue.inspect.backend(pool, "b1")).no_priority
    await run_one(queue, pool, signals, script)
    assert [priority_of(body) is not None for body in script.bodies] == [True, False, True]


@pytest.fixture
def tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def http_worker(queue: Queue, pool: Pool, tls: ssl.SSLContext) -> Worker:
    backends = Backends(queue, pool, lambda spec: HttpBackend(spec, Timeouts(30), tls=tls))
    return Worker(queue, pool, "w", backends, Meters(CollectorRegistry()), WorkerOptions())


async def ask(queue: Queue, pool: Pool, tier: str, body: bytes) -> str:
    return (await queue.submit(pool, JobSpec("ann", tier, body, head=HEAD))).id


async def test_a_caller_s_own_priority_does_not_jump_the_engine_s_queue(
    queue: Queue, pool: Pool, signals: Signals, tls: ssl.SSLContext
) -> None:
    with simulated("--slots", "1", "--priority", "obeyed", "--step-ms", "2", "--model", "llama") as server:
        await queue.set_backend(pool, "b1", "add", spec=BackendSpec(server.url))
        await observe(queue, pool, "vllm")

        async def waiting(n: int) -> None:
            async def so_many() -> bool:
                page = (await client.get(f"{server.url}/metrics")).text
                lines = [line for line in page.splitlines() if line.startswith("vllm:num_requests_waiting{")]
                return sum(float(line.split()[-1]) for line in lines) == n

            await until(so_many)

        say = b'{"model":"llama","messages":[{"role":"user","content":"hi"}],"ignore_eos":true,"max_tokens":%d'
        async with httpx.AsyncClient(verify=tls) as client, working(http_worker(queue, pool, tls), signals):
            first = await ask(queue, pool, "default", say % 300 + b"}")
            await in_state(queue, first, "leased")
            pushy = await ask(queue, pool, "batch", say % 50 + b',"priority":-2000000000}\n ')
            await waiting(1)
            modest = await ask(queue, pool, "priority", say % 50 + b"}")
            await waiting(2)
            jobs = [await finished(queue, id_) for id_ in (first, modest, pushy)]
    assert [job.status for job in jobs] == [200] * 3
    ends = [job.finished_at_ms or 0 for job in jobs]
    assert ends == sorted(ends)


async def test_a_server_that_refuses_the_field_serves_all_the_same(
    queue: Queue, pool: Pool, signals: Signals, tls: ssl.SSLContext
) -> None:
    with simulated("--priority", "refused", "--step-ms", "2", "--model", "llama") as server:
        await queue.set_backend(pool, "b1", "add", spec=BackendSpec(server.url))
        await observe(queue, pool, "vllm")
        async with working(http_worker(queue, pool, tls), signals):
            say = b'{"model":"llama","messages":[{"role":"user","content":"hi"}],"max_tokens":%d}'
            ids = [await ask(queue, pool, "default", say % tokens) for tokens in (-1, -1, 2, 2, 2, 2, 2)]
            jobs = [await finished(queue, id_) for id_ in ids]
    assert [job.status for job in jobs] == [400] * 2 + [200] * 5
    assert {len(job.attempts) for job in jobs} == {1}
    assert (await queue.inspect.backend(pool, "b1")).no_priority


async def test_a_stream_that_is_refused_for_its_place_is_sent_again_and_comes_whole(
    queue: Queue, pool: Pool, signals: Signals, script: Script
) -> None:
    await observe(queue, pool, "vllm")
    events = [b"data: 1\n\n", b"data: 2\n\n"]
    script.then(answer(REFUSAL), speak(script, *events))
    async with working(make_worker(queue, pool, script), signals):
        head = Head("/v1/chat/completions", "llama", stream=True).encode()
        id_ = (await queue.submit(pool, JobSpec("ann", "default", b"{}", head))).id
        assert (await finished(queue, id_)).result == b"".join(events)
    assert [priority_of(body) is None for body in script.bodies] == [False, True]
    page = await queue.inspect.chunks(pool, id_)
    assert b"".join(text for _, text in page.chunks) == b"".join(events)
