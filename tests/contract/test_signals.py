"""One subscription a process, fanned out: nobody misses a word that comes after they listen, or they are told so."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from typing import Any

import pytest
from redis import Redis

from fairlane.errors import StoreUnavailable
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.contract.acts import finish, submit, take_one
from tests.servers import ValkeyServer

PATIENCE_S = 5.0


class Ear:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._something = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.heard.append(text)
        self._something.set()

    async def next(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            await self._something.wait()
        self._something.clear()
        return self.heard[-1]

    async def soon(self) -> str | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                return await self.next()
        return None


@pytest.fixture
async def signals(queue: Queue) -> AsyncIterator[Signals]:
    async with queue.signals() as made:
        yield made


async def test_who_listens_hears_what_is_said_next(queue: Queue, pool: Pool, signals: Signals) -> None:
    for _ in range(5):
        (id_,) = await submit(queue, pool)
        ear = Ear()
        async with signals.listen(pool.key("settled", id_), ear):
            await finish(queue, pool, [await take_one(queue, pool)])
            assert "succeeded" in await ear.next()


async def test_many_listen_to_many_jobs_and_each_hears_its_own(queue: Queue, pool: Pool, signals: Signals) -> None:
    ids = await submit(queue, pool, n=50)
    ears = {id_: [Ear(), Ear()] for id_ in ids}
    entered = asyncio.Semaphore(0)

    async def wait(id_: str, ear: Ear) -> str:
        async with signals.listen(pool.key("settled", id_), ear):
            entered.release()
            return await ear.next()

    tasks = [asyncio.create_task(wait(id_, ear)) for id_ in ids for ear in ears[id_]]
    for _ in tasks:
        await entered.acquire()
    for n, id_ in enumerate(ids):
        if n % 2:
            await queue.cancel(id_)
        else:
            await finish(queue, pool, [await take_one(queue, pool)])
    wanted = [word for n in range(50) for word in (["succeeded", "cancelled"][n % 2],) * 2]
    for word, heard in zip(wanted, await asyncio.gather(*tasks), strict=True):
        assert word in heard
    assert all(len(ear.heard) == 1 for pair in ears.values() for ear in pair)


async def test_who_left_hears_nothing_more(queue: Queue, pool: Pool, signals: Signals) -> None:
    first, second = Ear(), Ear()
    channel = pool.key("control")
    await submit(queue, pool, n=2)
    one, two = await take_one(queue, pool), await take_one(queue, pool)
    async with signals.listen(channel, second):
        async with signals.listen(channel, first):
            await queue.cancel(one.id)
            await first.next()
            await second.next()
        await queue.cancel(two.id)
        assert await second.next() == f"cancel {two.id}"
    assert first.heard == [f"cancel {one.id}"]


async def test_a_channel_can_be_left_and_entered_again_at_once(queue: Queue, pool: Pool, signals: Signals) -> None:
    channel = pool.key("control")
    for _ in range(20):
        ear = Ear()
        async with signals.listen(channel, ear):
            (id_,) = await submit(queue, pool)
            await take_one(queue, pool)
            await queue.cancel(id_)
            assert await ear.next() == f"cancel {id_}"


async def test_a_channel_that_nobody_listens_to_is_given_up(
    pool: Pool, signals: Signals, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.queue.signals.POLL_S", 0.05)
    stays, goes, ear = pool.key("settled", "job_1"), [pool.key("settled", f"job_{n}") for n in range(2, 5)], Ear()

    async def said(channel: str) -> int:
        return await client.publish(channel, "x")

    async with signals.listen(stays, ear):
        for channel in goes:
            async with signals.listen(channel, ear):
                assert await said(channel) == 1
        async with asyncio.timeout(PATIENCE_S):
            while any([await said(channel) for channel in goes]):
                await asyncio.sleep(0.01)
        assert await said(stays) == 1


@pytest.mark.parametrize("store", ["valkey", "redis", "cluster"], indirect=True)
async def test_after_a_broken_connection_all_are_told_and_hear_again(
    queue: Queue, pool: Pool, signals: Signals, client: Any
) -> None:
    ear, (id_,) = Ear(), await submit(queue, pool)
    await take_one(queue, pool)
    nodes = {"target_nodes": "all"} if hasattr(client, "get_nodes") else {}
    async with signals.listen(pool.key("control"), ear):
        for _ in range(3):
            await client.execute_command("CLIENT KILL", "TYPE", "pubsub", **nodes)
            assert await ear.next() == ""
        await queue.cancel(id_)
        assert await ear.next() == f"cancel {id_}"


async def test_a_redis_that_is_away_is_said_within_the_timeout() -> None:
    client = connect("redis://127.0.0.1:1", timeout_s=0.2)
    async with Signals(client, timeout_s=0.3) as signals:
        with pytest.raises(StoreUnavailable):
            async with signals.listen("x", Ear()):
                pass
    await client.aclose()


@pytest.mark.parametrize("silent", [0, 1], ids=["the first", "the one after a reset"])
async def test_a_connection_on_which_nothing_is_answered_is_given_up_for_a_new_one(silent: int) -> None:
    """A firewall that forgot it, say: without an end of its own the reader would wait on it for ever."""
    with ValkeyServer() as server:
        met: list[StreamWriter] = []

        async def relay(reader: StreamReader, writer: StreamWriter) -> None:
            met.append(writer)
            if len(met) == silent + 1:
                return
            there, to = await asyncio.open_connection("127.0.0.1", server.port)
            await asyncio.gather(pump(reader, to), pump(there, writer))

        async with await asyncio.start_server(relay, "127.0.0.1", 0) as front:
            client = connect(f"redis://127.0.0.1:{front.sockets[0].getsockname()[1]}")
            async with Signals(client, timeout_s=0.5) as signals:
                for n in range(silent):
                    async with asyncio.timeout(PATIENCE_S), signals.listen("x", Ear()):
                        met[n].transport.abort()
                with closing(connected(server)) as sender:
                    async with asyncio.timeout(2 * PATIENCE_S):
                        while not await heard(signals, sender, Ear()):
                            pass
            await client.aclose()
            assert len(met) > silent + 1
            for one in met:
                one.close()


def connected(server: ValkeyServer) -> Redis:
    return Redis.from_url(server.url)


async def heard(signals: Signals, sender: Redis, ear: Ear) -> bool:
    """Whether a word is heard; while there is no subscription, listening takes its timeout."""
    try:
        async with signals.listen("x", ear):
            sender.publish("x", "hello")
            return await ear.soon() == "hello"
    except StoreUnavailable:
        return False


async def pump(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
