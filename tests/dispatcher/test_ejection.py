"""A backend that fails is left alone, and its work goes elsewhere; when it is well again it gets its share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from dispatcher.backends.answer import Answer, CallFailed
from dispatcher.backends.call import Hear
from dispatcher.policy.ejection import ERRORS_MOST
from fairlane.head import Head
from fairlane.model import BackendSpec, JobSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.dispatcher.fleet import SLOTS, in_slots, served, work
from tests.dispatcher.observing import seen, view
from tests.dispatcher.scripted import (
    HEAD,
    OK,
    PATIENCE_S,
    Act,
    Script,
    answer,
    fail,
    finished,
    make_worker,
    submit,
    until,
    working,
)

PAUSE_MS = 300
BROKEN = answer(Answer(500, b'{"error":{"message":"the engine died"}}'))


@pytest.fixture
def policy() -> Policy:
    return Policy(stale_ms=2_000)


@pytest.fixture
def scripts() -> dict[str, Script]:
    return {"b1": Script(), "b2": Script()}


@pytest.fixture
async def pool(queue: Queue, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Two backends. Pauses are short."""
    monkeypatch.setattr("dispatcher.policy.ejection.FIRST_PAUSE_MS", PAUSE_MS)
    monkeypatch.setattr("dispatcher.policy.ejection.LONGEST_PAUSE_MS", PAUSE_MS)
    monkeypatch.setattr("dispatcher.policy.ejection.ALONE_PAUSE_MS", PAUSE_MS)
    monkeypatch.setattr("dispatcher.watch.DOWN_MOST_MS", PAUSE_MS)
    monkeypatch.setattr("dispatcher.policy.verdict.BASE_MS", 20)
    made = await queue.pools.open("llama", policy)
    for name in ("b1", "b2"):
        await queue.set_backend(made, name, "add", spec=BackendSpec(f"http://{name}", slots=SLOTS))
    return made


async def work_until(queue: Queue, pool: Pool, so: Callable[[], Awaitable[bool]]) -> None:
    """Floods both backends, since the freest one alone gets what little there is."""
    async with asyncio.timeout(PATIENCE_S):
        while not await so():
            await work(queue, pool, 60)


async def is_well(queue: Queue, pool: Pool) -> bool:
    return not await is_ejected(queue, pool)


async def is_ejected(queue: Queue, pool: Pool, name: str = "b1") -> bool:
    return (await seen(queue, pool, name)).get("health", {}).get("until_ms", 0) > 0


@pytest.mark.parametrize(
    ("status", "fault"),
    [(200, BROKEN), (404, BROKEN), (200, fail(CallFailed("idle_timeout", "late")))],
    ids=["500", "500-without-metrics", "late"],
)
async def test_a_backend_that_fails_gets_only_probes_and_its_share_when_it_is_well_again(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script], status: int, fault: Act
) -> None:
    bad, good = scripts["b1"], scripts["b2"]
    bad.then(fault)
    good.then(in_slots(OK, 0.005))
    async with served(queue, pool, signals, scripts, status=status):
        began = asyncio.get_running_loop().time()
        await work_until(queue, pool, lambda: is_ejected(queue, pool))
        await work(queue, pool, 100)
        pauses = 1000 * (asyncio.get_running_loop().time() - began) / PAUSE_MS
        assert len(bad.calls) <= ERRORS_MOST + 2 * SLOTS + 2 * pauses
        assert {gate.why for gate in (await view(queue, pool)).gates.values()} == {"down"}
        bad.then(in_slots(OK, 0.005))
        await work_until(queue, pool, lambda: is_well(queue, pool))
        before = len(bad.calls)

        async def has_its_share() -> bool:
            return len(bad.calls) >= before + 50

        await work_until(queue, pool, has_its_share)


async def test_the_only_backend_s_jobs_wait_and_do_not_die(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script]
) -> None:
    await queue.set_backend(pool, "b2", "remove")
    scripts["b1"].then(BROKEN)
    async with served(queue, pool, signals, scripts):
        ids = await submit(queue, pool, 50, max_attempts=6)
        await until(lambda: is_ejected(queue, pool))
        scripts["b1"].then(in_slots(OK, 0.005))
        states = [(await finished(queue, id_)).state for id_ in ids]
    assert states == ["succeeded"] * 50


async def test_a_caller_s_own_timeout_ejects_nobody(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script]
) -> None:
    """Else one tenant could stop the pool for all."""
    hasty = JobSpec("eve", "default", b"{}", head=HEAD[:-1] + b',"timeout_s":0.01}', max_attempts=1)
    for script in scripts.values():
        script.then(fail(CallFailed("timeout", "late")))
    async with served(queue, pool, signals, scripts):
        for answered in await queue.submit_many(pool, [hasty] * 40):
            assert not isinstance(answered, Exception)
            await finished(queue, answered.id)
        for name in scripts:
            assert (await view(queue, pool, name)).faults == 0
            assert (await seen(queue, pool, name))["health"]["level"] == 0


async def test_the_next_observer_knows_who_is_ejected(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.policy.ejection.ALONE_PAUSE_MS", 60_000)  # all jobs are one tenant's
    scripts["b1"].then(BROKEN)
    async with served(queue, pool, signals, scripts):
        await work_until(queue, pool, lambda: is_ejected(queue, pool))
        calls, epoch = len(scripts["b1"].calls), (await view(queue, pool)).epoch
    async with served(queue, pool, signals, scripts) as pages:
        pages["b1"].tokens = 1e6  # its counters go on: else it would have restarted
        await work(queue, pool, 20)
    assert len(scripts["b1"].calls) == calls
    assert (await view(queue, pool)).epoch == epoch  # nor has it restarted


async def test_one_whose_metrics_cannot_be_read_any_more_is_shut_and_probed_all_the_same(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script]
) -> None:
    await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://b1"))  # nobody says how many it takes
    scripts["b2"].then(in_slots(OK, 0.005))
    async with served(queue, pool, signals, scripts) as pages:

        async def is_known() -> bool:
            return len(scripts["b1"].calls) > 5

        await work_until(queue, pool, is_known)
        pages["b1"].broken = httpx.ReadTimeout("late")
        looks = pages["b1"].looks

        async def has_looked() -> bool:
            return pages["b1"].looks > looks + 2

        await until(has_looked)
        scripts["b1"].then(BROKEN)
        await work_until(queue, pool, lambda: is_ejected(queue, pool))
        scripts["b1"].then(in_slots(OK, 0.005))
        await work_until(queue, pool, lambda: is_well(queue, pool))


async def test_a_backend_that_restarted_is_well(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.policy.ejection.ALONE_PAUSE_MS", 60_000)  # all jobs are one tenant's
    scripts["b1"].then(BROKEN)
    async with served(queue, pool, signals, scripts) as pages:
        await work_until(queue, pool, lambda: is_ejected(queue, pool))
        calls, epoch = len(scripts["b1"].calls), (await view(queue, pool)).epoch
        scripts["b1"].then(in_slots(OK, 0.005))
        pages["b1"].started_at += 100

        async def is_used() -> bool:
            return len(scripts["b1"].calls) > calls

        await work_until(queue, pool, is_used)
        assert (await view(queue, pool)).epoch == epoch + 1


class Poisoned(Script):
    """Fails eve's jobs at once, and answers everybody else's after a while."""

    def __init__(self, fault: Act) -> None:
        super().__init__()
        self._fault = fault
        self.failed = 0

    async def call(self, job_id: str, head: Head, body: bytes, hear: Hear | None = None) -> Answer:
        if b"eve" not in body:
            return await super().call(job_id, head, body)
        self.failed += 1
        await asyncio.sleep(0.002)
        return await self._fault()


@pytest.mark.parametrize(
    "fault", [BROKEN, fail(CallFailed("reset", "it broke")), fail(CallFailed("idle_timeout", "late"))],
    ids=["500", "reset", "late"],
)  # fmt: skip
async def test_one_tenant_s_failing_jobs_do_not_take_the_pool_from_the_others(
    queue: Queue, pool: Pool, signals: Signals, monkeypatch: pytest.MonkeyPatch, fault: Act
) -> None:
    monkeypatch.setattr("dispatcher.policy.ejection.ALONE_PAUSE_MS", 60_000)
    await queue.set_backend(pool, "b2", "remove")
    script = Poisoned(fault)
    script.then(in_slots(OK, 0.01))
    async with served(queue, pool, signals, {"b1": script}):
        await work(queue, pool, 10)  # ann's: it is known to answer her well
        await queue.submit_many(pool, [JobSpec("eve", "default", b'{"by":"eve"}', head=HEAD, max_attempts=3)] * 100)
        for _ in range(30):
            await work(queue, pool, 4)
        found = await view(queue, pool)
    assert script.failed > 50
    assert found.excused == found.faults
    assert found.status == "up"
    assert (await seen(queue, pool))["health"]["until_ms"] == 0


async def test_a_backend_that_breaks_the_connections_of_two_tenants_is_shut_at_once(
    queue: Queue, pool: Pool, signals: Signals, scripts: dict[str, Script]
) -> None:
    await queue.set_backend(pool, "b2", "remove")
    scripts["b1"].then(fail(CallFailed("reset", "killed")))
    async with working(make_worker(queue, pool, scripts["b1"]), signals):  # and no observer
        for tenant in ("ann", "bob"):
            await submit(queue, pool, tenant=tenant)

        async def is_down() -> bool:
            return (await view(queue, pool)).status == "down"

        await until(is_down)
    assert len(scripts["b1"].calls) == 2
