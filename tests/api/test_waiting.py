"""Long polls: each waiter gets its own job's outcome, at once, and none is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import httpx
import pytest

from fairlane.model import JobError
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from producer import waiting
from producer.api.state import State
from producer.waiting import Waiting
from tests.api.door import JOB, Served, submit
from tests.contract.acts import take, take_one
from tests.dispatcher.scripted import until
from tests.servers import ValkeyServer

SOON_S = 2.0  # the promise is 50 ms, on a quiet machine (`python -m benchmarks.waiters`); far below a re-read


async def wait(http: httpx.AsyncClient, job_id: str, seconds: float = 30) -> dict[str, object]:
    response = await http.get(f"/v1/jobs/{job_id}", params={"wait": seconds})
    assert response.status_code == 200, response.text
    return response.json()


async def subscribed(queue: Queue, valkey: ValkeyServer, pool: Pool, n: int) -> None:
    """Until `n` jobs are waited for."""
    client = connect(valkey.url)

    async def are() -> bool:
        return len(await client.pubsub_channels(pool.key("settled", "*"))) == n

    await until(are)
    await client.aclose()


async def test_five_hundred_waiters_get_each_its_own_outcome_soon(
    door: Served,
    queue: Queue,
    pool: Pool,
    valkey: ValkeyServer,
    record_property: Callable[[str, object], None],
) -> None:
    async with door.client() as http:
        jobs = (await http.post("/v1/jobs", json={"jobs": [JOB] * 500})).json()["jobs"]
    heard: dict[str, float] = {}

    async def one(job_id: str) -> None:
        answer = await door.ask("GET", f"/v1/jobs/{job_id}?wait=60")
        heard[job_id] = time.monotonic()
        assert (answer["id"], answer["state"]) == (job_id, "succeeded")
        assert answer["result"] == {"status": 200, "body": {"for": job_id}}

    waiters = [asyncio.create_task(one(job["id"])) for job in jobs]
    await subscribed(queue, valkey, pool, 500)
    settled: dict[str, float] = {}
    while leases := await take(queue, pool, 10):
        for lease in leases:
            settled[lease.id] = time.monotonic()
            await queue.settle(pool, lease, "succeeded", status=200, result=b'{"for":"%b"}' % lease.id.encode())
    await asyncio.gather(*waiters)
    late = sorted(heard[id_] - settled[id_] for id_ in settled)
    record_property("ms after the settle: p50, max (promise: 50)", (1000 * late[250], 1000 * late[-1]))
    assert len(late) == 500
    assert late[-1] < SOON_S


async def test_ten_waiters_on_one_job_all_get_it_and_none_gets_anothers(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    """Case 10."""
    mine, other = await submit(http), await submit(http)
    on_mine = [asyncio.create_task(wait(http, mine["id"])) for _ in range(10)]
    on_other = [asyncio.create_task(wait(http, other["id"])) for _ in range(3)]
    await subscribed(queue, valkey, pool, 2)
    await queue.settle(pool, await take_one(queue, pool), "succeeded", status=200, result=b'"mine"')
    async with asyncio.timeout(SOON_S):
        answers = await asyncio.gather(*on_mine)
    assert [answer["id"] for answer in answers] == [mine["id"]] * 10
    assert [answer["result"] for answer in answers] == [{"status": 200, "body": "mine"}] * 10
    assert not any(task.done() for task in on_other)
    await http.delete(f"/v1/jobs/{other['id']}")
    assert [answer["state"] for answer in await asyncio.gather(*on_other)] == ["cancelled"] * 3
    await subscribed(queue, valkey, pool, 0)  # nothing is left behind


async def test_one_waiter_leaving_takes_nothing_from_the_others(
    state: State, http: httpx.AsyncClient, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    job = await submit(http)
    leaves = asyncio.create_task(state.waiting.job(job["id"], 30))
    stays = asyncio.create_task(state.waiting.job(job["id"], 30))
    times_out = asyncio.create_task(state.waiting.job(job["id"], 0.01))
    await subscribed(queue, valkey, pool, 1)
    leaves.cancel()
    assert (await times_out).state == "queued"
    await queue.cancel(job["id"])
    async with asyncio.timeout(SOON_S):
        assert (await stays).state == "cancelled"


Ending = Callable[[Queue, Pool, str], Awaitable[object]]


async def _succeed(queue: Queue, pool: Pool, job_id: str) -> None:
    await queue.settle(pool, await take_one(queue, pool), "succeeded", status=200, result=b"{}")


async def _fail(queue: Queue, pool: Pool, job_id: str) -> None:
    await queue.settle(pool, await take_one(queue, pool), "failed", status=400, error=JobError("backend_error", "Bad."))


async def _die(queue: Queue, pool: Pool, job_id: str) -> None:
    await queue.retry(pool, await take_one(queue, pool), JobError("timeout", "Slow."), delay_ms=0)


async def _cancel(queue: Queue, pool: Pool, job_id: str) -> None:
    await queue.cancel(job_id)


async def _expire(queue: Queue, pool: Pool, job_id: str) -> None:
    async def expired() -> bool:
        return (await queue.sweep(pool)).expired == 1

    await until(expired)


ENDINGS: dict[str, Ending] = {
    "succeeded": _succeed,
    "failed": _fail,
    "dead": _die,
    "cancelled": _cancel,
    "expired": _expire,
}


@pytest.mark.parametrize("end", ENDINGS)
async def test_every_outcome_reaches_who_waits(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, valkey: ValkeyServer, end: str
) -> None:
    """Case 4 and its kin: none ends in silence."""
    job = await submit(http, max_attempts=1, **({"deadline_s": 0.3} if end == "expired" else {}))
    waiter = asyncio.create_task(wait(http, job["id"]))
    await subscribed(queue, valkey, pool, 1)
    await ENDINGS[end](queue, pool, job["id"])
    async with asyncio.timeout(SOON_S):
        ended = await waiter
    assert (ended["state"], ended["dead"]) == ("failed" if end == "dead" else end, end == "dead")
    if end == "expired":
        assert ended["error"]["code"] == "expired"  # type: ignore[index]
    assert await wait(http, job["id"]) == ended  # and whoever comes later


async def test_an_outcome_between_submit_and_wait_is_not_missed(
    http: httpx.AsyncClient, queue: Queue, pool: Pool
) -> None:
    """Case 20."""
    job = await submit(http)
    await _succeed(queue, pool, job["id"])
    async with asyncio.timeout(SOON_S):
        assert (await wait(http, job["id"]))["state"] == "succeeded"


async def test_an_outcome_between_the_first_look_and_the_subscription_is_not_missed(
    state: State, http: httpx.AsyncClient, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 20: whatever the moment. The outcome is written while the waiter is about to subscribe, and just after."""
    for at in ("home", "outcomes"):
        job = await submit(http)
        where = state.queue if at == "home" else state.queue.inspect
        real: Callable[..., Awaitable[object]] = getattr(where, at)

        async def meanwhile(
            *args: object, real: Callable[..., Awaitable[object]] = real, id_: str = job["id"]
        ) -> object:
            monkeypatch.undo()
            found = await real(*args)
            await queue.cancel(id_)
            return found

        monkeypatch.setattr(where, at, meanwhile)
        async with asyncio.timeout(SOON_S):
            assert (await state.waiting.job(job["id"], 30)).state == "cancelled"


async def test_a_lost_message_costs_time_but_no_outcome(
    state: State, http: httpx.AsyncClient, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 20."""
    monkeypatch.setattr(Signals, "_deliver", _deaf(Signals._deliver))
    monkeypatch.setattr(waiting, "REREAD_S", (0.1, 0.1))
    job = await submit(http)
    waiter = asyncio.create_task(wait(http, job["id"]))
    await asyncio.sleep(0)
    await queue.cancel(job["id"])
    async with asyncio.timeout(5):
        assert (await waiter)["state"] == "cancelled"


def _deaf(deliver: Callable[[Signals, dict[str, object]], None]) -> Callable[[Signals, dict[str, object]], None]:
    """All but the confirmations is lost."""

    def hear(self: Signals, message: dict[str, object]) -> None:
        if message["type"] == "subscribe":
            deliver(self, message)

    return hear


async def test_a_broken_subscription_is_mended_and_misses_nothing(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    job = await submit(http)
    waiter = asyncio.create_task(wait(http, job["id"]))
    await subscribed(queue, valkey, pool, 1)
    with valkey.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await queue.cancel(job["id"])
    async with asyncio.timeout(5):
        assert (await waiter)["state"] == "cancelled"


async def test_a_job_that_is_moved_is_followed(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    target = await queue.pools.open("mistral", pool.policy)
    job = await submit(http)
    waiter = asyncio.create_task(wait(http, job["id"]))
    await subscribed(queue, valkey, pool, 1)
    await queue.move(job["id"], target)
    await queue.cancel(job["id"])
    async with asyncio.timeout(5):
        ended = await waiter
    assert (ended["state"], ended["pool"], ended["id"]) == ("cancelled", "mistral", job["id"])


async def test_a_wait_that_is_over_returns_the_job_as_it_is(http: httpx.AsyncClient) -> None:
    job = await submit(http)
    began = time.monotonic()
    assert (await wait(http, job["id"], 0.2))["state"] == "queued"
    assert 0.2 <= time.monotonic() - began < SOON_S
    assert (await wait(http, job["id"], 0))["state"] == "queued"


async def test_a_waiter_that_hangs_up_is_forgotten(
    door: Served, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    async with door.client() as http:
        job = await submit(http)
    _, writer = await door.connect()
    writer.write(f"GET /v1/jobs/{job['id']}?wait=60 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ann\r\n\r\n".encode())
    await subscribed(queue, valkey, pool, 1)
    writer.close()
    await subscribed(queue, valkey, pool, 0)
    assert (await queue.inspect.job(job["id"])).state == "queued"  # it only looked


async def test_waiting_for_what_is_gone_is_not_found(http: httpx.AsyncClient, state: State) -> None:
    assert (await http.get("/v1/jobs/job_gone", params={"wait": 5})).status_code == 404
    assert isinstance(state.waiting, Waiting)
