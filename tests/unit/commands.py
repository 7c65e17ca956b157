"""Runs `fairlane …` in this process, and looks at the queue beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from typer.testing import CliRunner, Result

from fairlane.cli import app
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.servers import ValkeyServer

DONE, USAGE, REFUSED = 0, 2, 3


def on(server: ValkeyServer, act: Callable[[Queue], Awaitable[Any]]) -> Any:
    """Does something with the queue."""

    async def run() -> Any:
        queue = await Queue.open(server.url)
        try:
            return await act(queue)
        finally:
            await queue.close()

    return asyncio.run(run())


def fairlane(*words: str, exit_code: int = DONE) -> Result:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == exit_code, result.output
    return result


def said(*words: str, exit_code: int = DONE) -> str:
    return fairlane(*words, exit_code=exit_code).output


def told(*words: str) -> Any:
    """What a command says as JSON."""
    return json.loads(fairlane(*words, "--json").stdout)


async def llama(queue: Queue) -> Pool:
    return await queue.pools.by_name("llama")
