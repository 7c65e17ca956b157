"""What a process submits and waits for is told to it by letter; whatever becomes of letters, no outcome is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from fairlane.errors import StoreUnavailable
from fairlane.model import BackendSpec, Job
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from producer import mailbox
from producer import waiting as waiting_module
from producer.api.state import State
from producer.mailbox import UNREAD_MOST, Mailbox
from producer.waiting import Waiting
from tests.contract.acts import set_gate, spec, take
from tests.dispatcher.scripted import until
from tests.servers import ValkeyServer

SOON_S = 5.0


@pytest.fixture
async def waiting(queue: Queue, signals: Signals) -> AsyncIterator[Waiting]:
    made = Waiting(queue, signals)
    yield made
    await made.close()


async def settle(queue: Queue, pool: Pool, result: bytes = b"1") -> None:
    """The next job, as soon as there is one."""
    async with asyncio.timeout(SOON_S):
        while not (leases := await take(queue, pool)):
            await asyncio.sleep(0.001)
    await queue.settle(pool, leases[0], "succeeded", status=200, result=result)


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


def box_of(waiting: Waiting) -> Mailbox:
    return waiting._mailbox  # pyright: ignore[reportPrivateUsage]


def proven(waiting: Waiting) -> set[str]:
    return box_of(waiting)._proven  # pyright: ignore[reportPrivateUsage]


async def opened(waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer) -> None:
    """Until letters come, and nothing else is listened to."""
    while pool.code not in proven(waiting):
        await one_trip(waiting, queue, pool)
    await until(lambda: only_the_inbox(waiting, queue, pool, valkey))


async def only_the_inbox(waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer) -> bool:
    return await channels(valkey, pool) == 1


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
    early = box_of(waiting)._early  # pyright: ignore[reportPrivateUsage]

    async def slow(*args: object) -> object:
        made = await real(*args)  # type: ignore[arg-type]
        await settle(queue, pool)
        while not early:
            await asyncio.sleep(0.001)
        return made

    monkeypatch.setattr(queue, "submit", slow)
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
    async with asyncio.timeout(0.9 * waiting_module.LETTER_S):
        assert await waiter == await queue.inspect.outcome(made.id)


async def test_a_job_that_moved_is_followed_at_once(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    """To a pool in which this process has an inbox too."""
    target = await queue.pools.open("mistral", pool.policy)
    await set_up(queue, target)
    for one in (pool, target):
        while one.code not in proven(waiting):
            await one_trip(waiting, queue, one)
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await asyncio.sleep(0)
    await queue.move(made.id, target)
    await settle(queue, target)
    async with asyncio.timeout(0.9 * waiting_module.LETTER_S):
        assert await waiter == await queue.inspect.outcome(made.id)
    assert (await waiter).pool == "mistral"


async def set_up(queue: Queue, pool: Pool) -> None:
    await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://scripted"))
    await set_gate(queue, pool, "b1", 1000)


async def test_a_job_that_takes_long_is_told_by_letter_too(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "LETTER_S", 0.02)
    await opened(waiting, queue, pool, valkey)
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))

    async def looked() -> bool:
        return made.id in reads

    await until(looked)
    assert await channels(valkey, pool) == 1
    await settle(queue, pool)
    async with asyncio.timeout(0.9 * waiting_module.REREAD_S[0]):
        assert await waiter == await queue.inspect.outcome(made.id)
    assert (reads.count(made.id), pool.code in proven(waiting)) == (1, True)
    assert not box_of(waiting)._early  # pyright: ignore[reportPrivateUsage]


async def without_inbox(valkey: ValkeyServer, pool: Pool, job_id: str) -> None:
    """As if a dispatcher of an earlier version settled it."""
    with valkey.client() as client:
        assert client.hdel(pool.key("job", job_id), "inbox") == 1


async def test_where_no_letters_come_nobody_waits_for_them_twice(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(waiting, queue, pool, valkey)
    monkeypatch.setattr(waiting_module, "LETTER_S", 0.05)
    other = await waiting.submit(pool, spec())
    await without_inbox(valkey, pool, other.id)
    also = asyncio.create_task(waiting.job(other.id, 30))
    await asyncio.sleep(0)
    await settle(queue, pool)
    async with asyncio.timeout(SOON_S):
        assert (await also).state == "succeeded"

    async def is_distrusted() -> bool:
        return pool.code not in proven(waiting)

    await until(is_distrusted)
    monkeypatch.setattr(waiting_module, "LETTER_S", 60.0)
    async with asyncio.timeout(SOON_S):
        for _ in range(3):
            made = await waiting.submit(pool, spec())
            with valkey.client() as client:
                assert not client.hexists(pool.key("job", made.id), "inbox")
            waiter = asyncio.create_task(waiting.job(made.id, 30))
            await settle(queue, pool)
            assert (await waiter).state == "succeeded"


async def test_who_waits_when_letters_turn_out_not_to_come_is_told_in_the_other_way(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer
) -> None:
    await opened(waiting, queue, pool, valkey)
    made = await waiting.submit(pool, spec())
    await without_inbox(valkey, pool, made.id)
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await asyncio.sleep(0)
    box_of(waiting).distrust(pool)
    await settle(queue, pool)
    async with asyncio.timeout(0.9 * waiting_module.LETTER_S):
        assert (await waiter).state == "succeeded"


@pytest.mark.parametrize("message", ["nonsense", "job_x y succeeded", "job_x 1 default state:9\nx", "job_x 1 \n", "\n"])
async def test_a_letter_that_makes_no_sense_harms_nobody(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, message: str
) -> None:
    await opened(waiting, queue, pool, valkey)
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await asyncio.sleep(0)
    with valkey.client() as client:
        (inbox,) = client.pubsub_channels(pool.key("settled", "*"))
        assert client.publish(inbox, message.replace("job_x", made.id)) == 1
    await settle(queue, pool)
    async with asyncio.timeout(0.9 * waiting_module.LETTER_S):
        assert await waiter == await queue.inspect.outcome(made.id)


@pytest.mark.parametrize("when", ["while it waits", "before the answer to the submit"])
async def test_a_broken_subscription_has_all_who_wait_look(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    await opened(waiting, queue, pool, valkey)
    monkeypatch.setattr(waiting_module, "LETTER_S", 60.0)
    real = queue.submit

    async def breaks() -> None:
        gaps = box_of(waiting)._gaps  # pyright: ignore[reportPrivateUsage]
        with valkey.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await settle(queue, pool)

        async def noticed() -> bool:
            return box_of(waiting)._gaps > gaps  # pyright: ignore[reportPrivateUsage]

        await until(noticed)

    async def broken(*args: object) -> object:
        made = await real(*args)  # type: ignore[arg-type]
        await breaks()
        return made

    if when != "while it waits":
        monkeypatch.setattr(queue, "submit", broken)
    made = await waiting.submit(pool, spec())
    waiter = asyncio.create_task(waiting.job(made.id, 30))
    await asyncio.sleep(0)
    if when == "while it waits":
        await breaks()
    async with asyncio.timeout(SOON_S):
        assert (await waiter).state == "succeeded"
    monkeypatch.undo()
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
    last = await waiting.submit(pool, spec())
    with valkey.client() as client:
        assert not client.hexists(pool.key("job", last.id), "inbox")


@pytest.mark.parametrize(("kept", "held", "left"), [(3, 1 << 20, 3), (1000, 2_500, 2)])
async def test_what_nobody_waits_for_is_forgotten(
    waiting: Waiting,
    queue: Queue,
    pool: Pool,
    valkey: ValkeyServer,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
    held: int,
    left: int,
) -> None:
    """After so many jobs, and when so much was told."""
    monkeypatch.setattr(mailbox, "KEPT", kept)
    monkeypatch.setattr(mailbox, "HELD", held)
    await opened(waiting, queue, pool, valkey)
    ids = [(await waiting.submit(pool, spec())).id for _ in range(5)]
    for _ in ids:
        await settle(queue, pool, b"x" * 1000)
    expected = box_of(waiting)._expected  # pyright: ignore[reportPrivateUsage]

    async def told() -> bool:
        return all(one.told.done() for one in expected.values())

    await until(told)
    assert list(expected) == ids[-left:]
    async with asyncio.timeout(SOON_S):
        assert [(await waiting.job(id_, 30)).result for id_ in ids] == [b"x" * 1000] * 5
    assert (len(expected), box_of(waiting)._held) == (0, 0)  # pyright: ignore[reportPrivateUsage]


async def test_few_large_letters_take_the_place_of_many_small_ones(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "HELD", 5_000)
    await opened(waiting, queue, pool, valkey)
    expected = box_of(waiting)._expected  # pyright: ignore[reportPrivateUsage]
    for size in (*[1] * 10, 4_500, 4_500):
        await waiting.submit(pool, spec())
        await settle(queue, pool, b"x" * size)

    async def told() -> bool:
        return all(one.told.done() for one in expected.values())

    await until(told)
    assert sum(one.held for one in expected.values()) == box_of(waiting)._held  # pyright: ignore[reportPrivateUsage]
    assert box_of(waiting)._held <= 5_000  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("letters", [True, False])
async def test_who_waits_when_it_is_closed_is_told_at_once(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, letters: bool
) -> None:
    if letters:
        await opened(waiting, queue, pool, valkey)
    made = await waiting.submit(pool, spec())
    waiters = [asyncio.create_task(waiting.job(made.id, 30)) for _ in range(2)]
    await until(lambda: only_the_inbox(waiting, queue, pool, valkey))
    await waiting.close()
    async with asyncio.timeout(1):
        for waiter in waiters:
            with pytest.raises(StoreUnavailable, match="closed"):
                await waiter


async def test_more_waiters_than_letters_are_kept_for_are_all_told(
    waiting: Waiting, queue: Queue, pool: Pool, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "KEPT", 3)
    await opened(waiting, queue, pool, valkey)
    waiters: list[asyncio.Task[Job]] = []
    for _ in range(10):
        made = await waiting.submit(pool, spec())
        waiters.append(asyncio.create_task(waiting.job(made.id, 30)))
        await asyncio.sleep(0)
    for _ in waiters:
        await settle(queue, pool)
    async with asyncio.timeout(0.9 * waiting_module.LETTER_S):
        assert [job.state for job in await asyncio.gather(*waiters)] == ["succeeded"] * 10


async def test_the_front_door_waits_for_letters(
    http: httpx.AsyncClient, state: State, queue: Queue, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def chat() -> None:
        asked = {"model": pool.name, "messages": []}
        waiter = asyncio.create_task(http.post("/v1/chat/completions", json=asked))
        await settle(queue, pool, b"{}")
        assert (await waiter).status_code == 200

    while pool.code not in proven(state.waiting):
        await chat()
    listened: list[str] = []
    monkeypatch.setattr(Signals, "listen", lambda _, channel, hear: listened.append(channel))
    for _ in range(5):
        await chat()
    assert listened == []


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
