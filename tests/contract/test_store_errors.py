"""When Redis is down, frozen, busy, forbidden or of another version: a clear error, in time, and nothing lost."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from fairlane.errors import FairlaneError, InvalidRequest, SchemaMismatch, StoreFull, StoreUnavailable, StoreUnsuitable
from fairlane.model import Policy
from fairlane.queue import keys
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.contract.acts import open_backend, spec, submit, take
from tests.contract.answering import deaf_server, refusing_server
from tests.dispatcher.scripted import until
from tests.servers import ValkeyServer

TIMEOUT_S = 0.3
SOON_S = 5 * TIMEOUT_S  # an answer within the timeout, on a machine that is busy
UNSEEN = Pool("llama", "aaaa", keys.prefix("fl", "aaaa"), Policy())


@pytest.fixture(scope="module")
def shared() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@asynccontextmanager
async def opened(url: str, timeout_s: float = 5.0) -> AsyncIterator[Queue]:
    made = Queue(connect(url, timeout_s=timeout_s), timeout_s=timeout_s)
    try:
        yield made
    finally:
        await made.close()


async def fails_in_time(queue: Queue, pool: Pool) -> None:
    """Every kind of act says that Redis is unavailable, soon, and when to try again."""
    for act in (
        lambda: queue.submit(pool, spec()),
        lambda: queue.acquire(pool, "d", 1, 1),
        lambda: queue.sweep(pool),
        lambda: queue.inspect.overview(pool),
        lambda: queue.inspect.job(f"job_{pool.code}1aaaaaaaaaaaa"),
    ):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as raised:
            await act()
        assert time.monotonic() - began < SOON_S
        assert raised.value.retryable
        assert raised.value.retry_after


async def test_a_server_that_is_not_there_is_told_in_time() -> None:
    async with opened("redis://127.0.0.1:1", timeout_s=TIMEOUT_S) as queue:
        await fails_in_time(queue, UNSEEN)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://ann:secret@127.0.0.1:1", "Redis at 127.0.0.1:1 took no connection: Connection refused."),
        ("redis://:secret@localhost:1", "Redis at localhost:1 took no connection: Connection refused."),
        ("rediss://:secret@127.0.0.1:1", "Redis at 127.0.0.1:1 took no connection: Connection refused."),
        ("unix://:secret@/gone.sock", "Redis at /gone.sock took no connection: No such file or directory."),
        ("redis+cluster://:secret@127.0.0.1:1", "The Redis Cluster at 127.0.0.1:1 took no connection: Connection refu"),
        (
            "redis+sentinel://:secret@127.0.0.1:1/main",
            "The Redis that the sentinels call 'main' took no connection: no sentinel answers",
        ),
    ],
)
async def test_a_server_that_takes_no_connection_is_named_with_the_cause_and_no_password(url: str, words: str) -> None:
    async with opened(url, timeout_s=SOON_S) as queue:
        with pytest.raises(StoreUnavailable) as raised:
            await queue.sweep(UNSEEN)
    assert raised.value.message.startswith(words)
    assert "idempotency" not in raised.value.message, "nothing was sent"
    assert "secret" not in raised.value.message
    assert "127.0.0.1" not in raised.value.public, "that is for those who run it"


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "redis+sentinel", "nonsense"])
@pytest.mark.parametrize("password", ["sec/ret", "sec?ret", "sec#ret"])
def test_a_url_that_is_none_is_refused_without_the_password(scheme: str, password: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        connect(f"{scheme}://ann:{password}@127.0.0.1:6379/main")
    assert "sec" not in raised.value.message
    assert "ret" not in raised.value.message


async def test_only_what_was_sent_may_have_been_done() -> None:
    with ValkeyServer() as server:
        async with opened(server.url, timeout_s=TIMEOUT_S) as queue:
            pool = await queue.pools.open("llama", Policy())
            os.kill(server.pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreUnavailable, match=r"did not answer in time.*idempotency key") as raised:
                    await queue.submit(pool, spec())
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert str(server.port) in raised.value.message


async def test_a_host_that_does_not_answer_is_told_in_time() -> None:
    with deaf_server() as url:
        async with opened(url, timeout_s=TIMEOUT_S) as queue:
            await fails_in_time(queue, UNSEEN)


async def test_a_server_that_went_down_is_told_in_time() -> None:
    with ValkeyServer() as server:
        async with opened(server.url, timeout_s=TIMEOUT_S) as queue:
            pool = await queue.pools.open("llama", Policy())
            server.kill()
            await fails_in_time(queue, pool)


async def test_a_server_that_froze_is_told_in_time_and_needs_no_restart() -> None:
    """Case 18."""
    with ValkeyServer() as server:
        async with opened(server.url, timeout_s=TIMEOUT_S) as queue:
            pool = await queue.pools.open("llama", Policy())
            await open_backend(queue, pool, "b1", 9)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                await fails_in_time(queue, pool)
            finally:
                os.kill(server.pid, signal.SIGCONT)
            waiting = (await queue.inspect.overview(pool)).tiers[1].depth
            await submit(queue, pool)
            assert len(await take(queue, pool, 9)) == waiting + 1


async def test_however_many_submit_to_a_frozen_server_each_is_told_in_time() -> None:
    """Case 18."""
    with ValkeyServer() as server:
        async with opened(server.url, timeout_s=TIMEOUT_S) as queue:
            pool = await queue.pools.open("llama", Policy())
            os.kill(server.pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                calls = [queue.submit(pool, spec()) for _ in range(1000)]
                answers = await asyncio.gather(*calls, return_exceptions=True)
                assert time.monotonic() - began < SOON_S
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert {type(answer) for answer in answers} == {StoreUnavailable}


@pytest.mark.parametrize("pauses", range(0, 40, 3))
async def test_a_close_leaves_no_connection_behind_whatever_is_on_its_way(shared: ValkeyServer, pauses: int) -> None:
    """Neither calls, nor their repetitions, nor a subscription open one after it."""
    with redis.Redis(port=shared.port) as admin:
        before = len(admin.client_list())
        queue = await Queue.open(shared.url, namespace="closing")
        pool = await queue.pools.open("llama", Policy())
        unseen = f"job_{pool.code}1aaaaaaaaaaaa"
        acts: list[Coroutine[Any, Any, object]] = [queue.submit(pool, spec()) for _ in range(5)]
        acts += [queue.inspect.job(unseen) for _ in range(5)]
        calls = [asyncio.create_task(act) for act in acts]
        async with queue.signals() as signals:
            calls.append(listening := asyncio.create_task(_listen(signals)))
            for _ in range(pauses):
                await asyncio.sleep(0)
            listening.cancel()
        await queue.close()
        await asyncio.wait(calls, timeout=SOON_S)
        assert all(call.done() for call in calls)
        with pytest.raises(StoreUnavailable, match="closed"):
            await queue.submit(pool, spec())
        gc.collect()

        async def gone() -> bool:
            return len(admin.client_list()) == before

        await until(gone)


async def _listen(signals: Signals) -> object:
    async with signals.listen("closing", lambda _: None):
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("READONLY You can't write against a read only replica.", StoreUnavailable),
        ("BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", StoreUnavailable),
        ("LOADING Redis is loading the dataset in memory", StoreUnavailable),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", StoreUnavailable),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnavailable),
        ("MISCONF Redis is configured to save RDB snapshots, but it is unable to persist on disk.", StoreUnavailable),
        ("CLUSTERDOWN The cluster is down", StoreUnavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", StoreUnavailable),
        ("ERR max number of clients reached", StoreUnavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        (
            "ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -OOM command not allowed",
            StoreFull,
        ),
        ("NOPERM this user has no permissions to run the 'evalsha' command", StoreUnsuitable),
        ("NOAUTH Authentication required.", StoreUnsuitable),
        ("ERR unknown command 'EVALSHA'", StoreUnsuitable),
        ("MOVED 3999 127.0.0.1:6381", StoreUnsuitable),
    ],
)
async def test_what_redis_says_becomes_an_error_that_says_whether_to_try_again(
    answer: str, error: type[FairlaneError]
) -> None:
    async with refusing_server(answer) as url, opened(url) as queue:
        for act in (
            lambda: queue.acquire(UNSEEN, "d", 1, 1),
            lambda: queue.sweep(UNSEEN),
            lambda: queue.submit(UNSEEN, spec()),
        ):
            with pytest.raises(FairlaneError) as raised:
                await act()
            assert type(raised.value) is error
            assert raised.value.retryable == (error is not StoreUnsuitable)
            assert bool(raised.value.retry_after) == raised.value.retryable


async def test_a_server_that_is_busy_with_somebodys_script_is_told_as_unavailable() -> None:
    with ValkeyServer("--busy-reply-threshold", "1") as server:
        async with opened(server.url) as queue:
            pool = await queue.pools.open("llama", Policy())
            await queue.sweep(pool)
            with server.client() as client, server.client() as intruder:
                intruder.connection_pool.get_connection().send_command("EVAL", "while true do end", "0")
                while not await is_unavailable(queue, pool):
                    pass
                client.script_kill()
                while await is_unavailable(queue, pool):
                    pass


async def is_unavailable(queue: Queue, pool: Pool) -> bool:
    try:
        await queue.sweep(pool)
    except StoreUnavailable:
        return True
    return False


@pytest.mark.parametrize("rules", [["-eval", "-evalsha"], ["-@scripting"], ["-zadd"], ["-publish"]])
async def test_a_server_that_forbids_what_the_queue_needs_is_told_as_unsuitable(
    shared: ValkeyServer, rules: list[str]
) -> None:
    """Case 19: nothing is silently off."""
    async with opened(shared.url) as queue:
        pool = await queue.pools.open("llama", Policy())
        await open_backend(queue, pool, "b1", 9)
    with shared.client() as client:
        client.execute_command("ACL SETUSER", "limited", "reset", "on", ">secret", "~*", "&*", "+@all", *rules)
    async with opened(f"redis://limited:secret@127.0.0.1:{shared.port}") as queue:
        with pytest.raises(StoreUnsuitable, match="fairlane doctor"):
            await queue.submit(pool, spec())
    async with opened(f"redis://limited:wrong@127.0.0.1:{shared.port}") as queue:
        with pytest.raises(StoreUnsuitable):
            await queue.submit(pool, spec())


async def test_data_of_another_schema_is_refused_at_the_start(shared: ValkeyServer) -> None:
    with shared.client() as client:
        client.hset(keys.schema("newer"), mapping={"schema": 99, "scripts": 1})
        client.hset(keys.schema("other"), mapping={"scripts": 99})
    for namespace in ("newer", "other"):
        with pytest.raises(SchemaMismatch, match="99"):
            await Queue.open(shared.url, namespace=namespace)
    gc.collect()  # a connection that was left open would warn here
    for _ in range(2):
        await (await Queue.open(shared.url, namespace="mine")).close()
