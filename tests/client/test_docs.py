"""What docs/client.md shows is what happens."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from dispatcher.backends.answer import Answer
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from producer.api.app import create_app
from tests.client.doors import serving
from tests.client.working_batches import batches_worked_off
from tests.dispatcher.scripted import Act, Script, answer, speak
from tests.servers import ValkeyServer

PAGE = (Path(__file__).parents[2] / "docs/client.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
TEXT = {"choices": [{"message": {"role": "assistant", "content": "Hello, you."}}], "usage": USAGE}


@pytest.fixture
def namespace() -> str:
    return "fl"


async def run(program: str) -> str:
    """What it prints. In a thread: a process of its own takes seconds for its imports."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        async with asyncio.timeout(30):
            await asyncio.to_thread(exec, program, {"__name__": "__main__"})
    return said.getvalue()


def talk(script: Script) -> Act:
    """Answers in words, or token by token where that was asked for."""
    words = [{"choices": [{"delta": {"content": word}}]} for word in ("one ", "two ", "three")]
    events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in words]
    streamed, whole = speak(script, *events, b"data: [DONE]\n\n"), answer(Answer(200, json.dumps(TEXT).encode()))

    async def act() -> Answer:
        return await (streamed if b'"stream":true' in script.bodies[-1] else whole)()

    return act


@pytest.mark.usefixtures("worker")
async def test_the_examples_print_what_they_say(valkey: ValkeyServer, queue: Queue, script: Script) -> None:
    script.then(talk(script))
    files_url = "memory://docs"
    app = create_app(Settings(auth="open", files_url=files_url), queue=queue)
    async with serving(app) as url, batches_worked_off(queue, files_url):
        for program, printed in EXAMPLES:
            there = program.replace("http://127.0.0.1:8080", url).replace("redis://127.0.0.1:6379/0", valkey.url)
            assert await run(there) == printed


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 10
