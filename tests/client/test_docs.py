"""What docs/client.md shows is what happens."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dispatcher.backends.answer import Answer
from fairlane.settings import Settings
from producer.api.app import create_app
from tests.client.doors import serving
from tests.dispatcher.scripted import Script, answer
from tests.servers import ValkeyServer

PAGE = (Path(__file__).parents[2] / "docs/client.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
TEXT = {"choices": [{"message": {"role": "assistant", "content": "Hello, you."}}]}


@pytest.fixture
def namespace() -> str:
    return "fl"


async def run(program: str) -> str:
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "default", "-c", program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(30):
        said, _ = await ran.communicate()
    return said.decode()


@pytest.mark.usefixtures("worker")
async def test_the_examples_print_what_they_say(valkey: ValkeyServer, queue: object, script: Script) -> None:
    script.then(answer(Answer(200, json.dumps(TEXT).encode())))
    async with serving(create_app(Settings(auth="open"), queue=queue)) as url:  # pyright: ignore[reportArgumentType]
        for program, printed in EXAMPLES:
            there = program.replace("http://127.0.0.1:8080", url).replace("redis://127.0.0.1:6379/0", valkey.url)
            assert await run(there) == printed


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 4
