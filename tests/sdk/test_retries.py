"""The client tries again by itself, and waits as long as we say."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.sdk.both import Client, done, opened
from tests.sdk.stage import Recorder, Said, Seen, Stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
SLACK_S = 4.0


def paused_as_told(seen: list[Seen]) -> None:
    """Between two tries there is the time of Retry-After, no less, and hardly more."""
    for first, second in pairwise(seen):
        assert first.retry_after is not None
        assert int(first.retry_after) <= second.at_s - first.at_s <= int(first.retry_after) + SLACK_S


@pytest.mark.parametrize("face", ["async"], indirect=True)  # it waits for some seconds
async def test_a_full_queue_is_tried_again_when_there_is_room(played: Stage, client: Client) -> None:
    model = "org/no-backend"
    waiting = await done(client.responses.create(model=model, input="Hello", background=True))
    before = len(played.door.seen)

    def make_room() -> None:
        """Once the first try was refused."""
        while len(played.door.seen) == before:
            threading.Event().wait(0.01)
        played.run(played.queue.cancel(waiting.id.removeprefix("resp_")))

    room = threading.Thread(target=make_room)
    room.start()
    again = await done(client.with_options(max_retries=2).responses.create(model=model, input="Hi", background=True))
    room.join()
    tries = played.door.seen[before:]
    assert [one.status for one in tries] == [429, 200]
    paused_as_told(tries)
    await done(client.responses.cancel(again.id))


@pytest.mark.parametrize(("face", "status"), [("sync", 429), ("async", 503)], indirect=["face"])
async def test_a_busy_backend_is_tried_again(played: Stage, client: Client, recorder: Recorder, status: int) -> None:
    recorder.then(Said(status, {"error": {"message": "Busy.", "type": "x", "param": None, "code": "busy"}}))
    before = len(played.door.seen)
    create = client.with_options(max_retries=1).chat.completions.create
    answer = await done(create(model="recorded", messages=HELLO))
    assert answer.choices[0].message.content == "Hi"
    tries = played.door.seen[before:]
    assert [one.status for one in tries] == [status, 200]
    paused_as_told(tries)
    assert len(recorder.asked) == 2


async def test_a_client_that_gives_up_cancels_its_job_down_to_the_backend(
    played: Stage, face: type[Client], recorder: Recorder
) -> None:
    recorder.then(Said(after_s=30.0))
    async with opened(face(base_url=played.url, api_key="ann", max_retries=0, timeout=0.5)) as client:
        with pytest.raises(openai.APITimeoutError):
            await done(client.chat.completions.create(model="recorded", messages=HELLO))
        async with asyncio.timeout(10):
            while not recorder.aborted.is_set():
                await asyncio.sleep(0.01)
