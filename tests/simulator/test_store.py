"""The simulator's blocking client answers as redis-py's own does, and its server is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from dispatcher.simulator.store import BlockingRedis, private_store


@pytest.fixture(scope="module")
def redis() -> Iterator[BlockingRedis]:
    with private_store() as client:
        assert isinstance(client, BlockingRedis)
        yield client


async def test_answers_have_redis_pys_shapes(redis: BlockingRedis) -> None:
    await redis.flushall()
    await redis.hset("h", mapping={"a": "1", "b": "2"})
    await redis.zadd("z", {"x": 1.5, "y": 2.0})
    assert await redis.hgetall("h") == {b"a": b"1", b"b": b"2"}
    assert await redis.zrange("z", 0, -1, withscores=True) == [(b"x", 1.5), (b"y", 2.0)]
    assert await redis.get("absent") is None
    big = b"x" * 1_000_000
    await redis.set("big", big)
    assert await redis.get("big") == big


@pytest.mark.parametrize("transaction", [False, True])
async def test_a_pipeline_answers_in_order(redis: BlockingRedis, transaction: bool) -> None:
    await redis.flushall()
    pipe = redis.pipeline(transaction=transaction)
    pipe.hset("h", "a", "1")
    pipe.hgetall("h")
    pipe.zcard("z")
    assert await pipe.execute() == [1, {b"a": b"1"}, 0]


async def test_refusals_are_redis_pys_errors(redis: BlockingRedis) -> None:
    await redis.set("text", "x")
    with pytest.raises(NoScriptError):
        await redis.evalsha("0" * 40, 0)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await redis.hget("text", "a")  # pyright: ignore[reportGeneralTypeIssues]
    assert await redis.get("text") == b"x", "the connection goes on"


async def test_the_server_is_gone_afterwards() -> None:
    with private_store() as client:
        await client.ping()
    with pytest.raises((ConnectionError, OSError)):
        await client.ping()
