"""What a process submits and waits for is told to it by letter; whatever becomes of letters, no outcome is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fairlane.model import Job
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from producer import mailbox
from producer.mailbox import UNREAD_MOST
from producer.waiting import Waiting
from tests.contract.acts import spec, take_one
from tests.dispatcher.scripted import until
from tests.servers import ValkeyServer

SOON_S = 5.0


@pytest.fixture
async def signals(queue: Queue) -> AsyncIterator[Signals]:
    async with queue.signals() as made:
        yield made


@pytest.fixture
async def waiting(queue: Queue, signals: Signals) -> AsyncIterator[Waiting]:
    made = Waiting(queue, signals)
    yield made
    await made.close()


async def settle(queue: Queue, pool: Pool, result: bytes = b"1") -> None:
    await queue.settle(pool, await take_one(queue, pool), "succeeded", status=200, result=result)


async def channels(valkey: ValkeyServer, pool: Pool) -> int:
    client = connect(valkey.url)
    try:
        return len(await client.pubsub_channels(pool.key("settled", "*")))
    finally:
        await client.aclose()


async def one_trip(waiting: Waiting, queue: Queue, pool: Pool, result: bytes = b"1") -> Job:
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await settle(queue, pool, result)
    async with asyncio.timeout(SOON_S):
        return await waiter


async def opened(waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer) -> None:
    """Until letters come."""
    await one_trip(waiting, queue, pool)  # the first has none
    await one_trip(waiting, queue, pool)  # and has it listen

    async def stands() -> bool:
        return await channels(valkey, pool) == 1

    await until(stands)
    await asyncio.sleep(0)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, queue: Queue) -> list[str]:
    """What was read to learn of outcomes."""
    found: list[str] = []
    real = queue.inspect.outcomes

    async def outcomes(pool: Pool, ids: list[str]) -> list[Job]:
        found.extend(ids)
        return await real(pool, ids)

    monkeypatch.setattr(queue.inspect, "outcomes", outcomes)
    return found


async def test_who_submits_and_waits_neither_subscribes_nor_reads(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, reads: list[str]
) -> None:
    await opened(waiting, queue, pool, valkey)
    reads.clear()
    for n in range(10):
        job = await one_trip(waiting, queue, pool, b"%d" % n)
        assert job == await queue.inspect.outcome(job.id)
        assert job.result == b"%d" % n
    made = await waiting.submit(pool, spec())
    await settle(queue, pool, b"before it is waited for")
    async with asyncio.timeout(SOON_S):
        assert (await waiting.job(made.id, 30)).result == b"before it is waited for"
    assert (reads, await channels(valkey, pool)) == ([], 1)
    assert (await waiting.job(made.id, 30)).result == b"before it is waited for"  # again, in the other way
    assert reads == [made.id]


async def test_a_letter_that_is_quicker_than_the_answer_to_the_submit_is_kept(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(waiting, queue, pool, valkey)
    reads.clear()
    real = queue.submit
    heard = asyncio.Event()
    deliver = waiting._mailbox._deliver  # pyright: ignore[reportPrivateUsage]

    def delivered(letter: object) -> None:
        deliver(letter)  # type: ignore[arg-type]
        heard.set()

    async def slow(*args: object) -> object:
        made = await real(*args)  # type: ignore[arg-type]
        await settle(queue, pool)
        await heard.wait()
        return made

    monkeypatch.setattr(queue, "submit", slow)
    monkeypatch.setattr(waiting._mailbox, "_deliver", delivered)  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(SOON_S):
        made = await waiting.submit(pool, spec())
        assert (await waiting.job(made.id, 30)).state == "succeeded"
    assert reads == []


Ending = Callable[[Queue, Pool, str], Awaitable[object]]
ENDINGS: dict[str, Ending] = {
    "large": lambda queue, pool, _: settle(queue, pool, b"x" * 20_000),
    "cancelled": lambda queue, pool, id_: queue.cancel(id_),
}


@pytest.mark.parametrize("end", ENDINGS)
async def test_what_a_letter_does_not_tell_is_read(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, end: str
) -> None:
    await opened(waiting, queue, pool, valkey)
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await ENDINGS[end](queue, pool, made.id)
    async with asyncio.timeout(0.9 * mailbox.LETTER_S):
        assert await waiter == await queue.inspect.outcome(made.id)


async def test_a_job_that_moved_is_followed(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "LETTER_S", 0.05)
    await opened(waiting, queue, pool, valkey)
    target = await queue.pools.open("mistral", pool.policy)
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await queue.move(made.id, target)
    await queue.cancel(made.id)
    async with asyncio.timeout(SOON_S):
        assert ((await waiter).state, (await waiter).pool) == ("cancelled", "mistral")


async def test_a_lost_letter_costs_time_but_no_outcome(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "LETTER_S", 0.05)
    await opened(waiting, queue, pool, valkey)
    monkeypatch.setattr(waiting._mailbox, "_deliver", lambda _: None)  # pyright: ignore[reportPrivateUsage]
    made = await waiting.submit(pool, spec())
    await settle(queue, pool)
    async with asyncio.timeout(SOON_S):
        assert (await waiting.job(made.id, 30)).state == "succeeded"


async def test_a_broken_subscription_has_all_who_wait_look(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "LETTER_S", 60.0)
    await opened(waiting, queue, pool, valkey)
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    with valkey.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await settle(queue, pool)
    async with asyncio.timeout(SOON_S):
        assert (await waiter).state == "succeeded"
    assert (await one_trip(waiting, queue, pool)).state == "succeeded"


async def test_who_only_submits_gets_no_letters(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    ids = [(await waiting.submit(pool, spec())).id for _ in range(3)]
    assert await channels(valkey, pool) == 0
    await queue.cancel(ids[0])
    await waiting.job(ids[0], 30)
    for _ in range(UNREAD_MOST + 1):
        await waiting.submit(pool, spec())
    assert waiting._mailbox.inbox(pool) is None  # pyright: ignore[reportPrivateUsage]


async def test_what_nobody_waits_for_is_forgotten(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "KEPT", 3)
    await opened(waiting, queue, pool, valkey)
    ids = [(await waiting.submit(pool, spec())).id for _ in range(5)]
    for _ in ids:
        await settle(queue, pool)
    box = waiting._mailbox  # pyright: ignore[reportPrivateUsage]
    async with asyncio.timeout(SOON_S):
        assert [(await waiting.job(id_, 30)).state for id_ in ids] == ["succeeded"] * 5
    assert max(len(box._expected), len(box._early)) <= 3  # pyright: ignore[reportPrivateUsage]


async def test_a_waiter_that_leaves_does_not_take_the_letter_of_who_comes_next(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    await opened(waiting, queue, pool, valkey)
    made = await waiting.submit(pool, spec())
    assert (await waiting.job(made.id, 0.01)).state == "queued"
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await settle(queue, pool)
    async with asyncio.timeout(SOON_S):
        assert (await waiter).state == "succeeded"
