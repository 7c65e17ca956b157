"""Dispatchers that are killed while they stream: who has read of it is told, and who comes anew gets the whole."""

from __future__ import annotations

import asyncio
import signal

import pytest

from fairlane import sse
from fairlane.errors import StreamBroken
from fairlane.head import Head
from fairlane.model import JobSpec
from fairlane.queue.streams import Position
from producer.streaming import Ended, Pause, Streams
from tests.chaos.test_dispatcher_kill import PATIENCE_S, Fleet, fleet, url

__all__ = ["fleet", "url"]  # fixtures
TOKENS = 120
BODY = b'{"model":"sim","prompt":"x","ignore_eos":true,"max_tokens":%d,"stream":true}' % TOKENS
HEAD = Head("/v1/completions", "sim", stream=True).encode()


async def test_a_stream_survives_the_kill_of_its_dispatcher(fleet: Fleet) -> None:
    """Case 16 too: nothing is left at work or counted."""
    doomed = fleet.start()
    id_ = (await fleet.queue.submit(fleet.pool, JobSpec("ann", "default", BODY, HEAD))).id
    async with fleet.queue.signals() as signals, asyncio.timeout(PATIENCE_S):
        streams = Streams(fleet.queue, signals)
        text, at = await read(streams, id_, enough=10)
        assert len(sse.events_of(text)) >= 10
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        other = fleet.start()
        with pytest.raises(StreamBroken):
            await read(streams, id_, after=at)
        text, _ = await read(streams, id_)
        assert sse.data_of(sse.events_of(text)[-1]) == sse.DONE
    job = await fleet.queue.inspect.job(id_)
    *lost, last = [attempt.outcome for attempt in job.attempts]  # the other may be starved for a lease's time, too
    assert (job.state, job.result, set(lost), last) == ("succeeded", text, {"lost"}, "succeeded")
    await fleet.all_end([id_])
    other.send_signal(signal.SIGTERM)
    assert other.wait(PATIENCE_S) == 0


async def read(
    streams: Streams, id_: str, enough: int = 10**9, after: Position | None = None
) -> tuple[bytes, Position | None]:
    """Events, to the end or until there are enough, and the last one's place."""
    text = b""
    items = streams.events(id_, after)
    try:
        async for item in items:
            if isinstance(item, Ended) or enough <= 0:
                break
            if not isinstance(item, Pause):
                text += b"".join(event.data for event in item)
                after = item[-1].position
                enough -= len(item)
    finally:
        await items.aclose()
    return text, after
