"""The examples of docs/http.md do what stands under them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dispatcher.backends.answer import Answer
from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from tests.api.door import Served
from tests.contract.acts import set_gate
from tests.dispatcher.scripted import Script, answer, make_worker, working

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
CHAT = (
    b'{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"Hi"}}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":4}}'
)


@pytest.fixture
async def pool(queue: Queue, policy: Policy) -> Pool:
    """The one that the examples name."""
    made = await queue.pools.open("sim", policy)
    await queue.set_backend(made, "b1", "add", spec=BackendSpec("http://scripted"))
    await set_gate(queue, made, "b1", 1000)
    return made


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
async def test_every_example_prints_what_stands_under_it(
    door: Served, queue: Queue, pool: Pool, signals: Signals, script: Script, tmp_path: Path
) -> None:
    script.then(answer(Answer(200, CHAT)))
    examples = re.findall(r"```sh\n(.*?)```\n\n```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == PAGE.read_text().count("```sh")
    async with working(make_worker(queue, pool, script), signals):
        lines = ["set -eu", "export no_proxy=127.0.0.1"]
        lines += [f"{{ {run.strip()}\n}} > out{n}" for n, (run, _) in enumerate(examples)]
        text = "\n".join(lines).replace("http://127.0.0.1:8080", door.url)
        bash = await asyncio.create_subprocess_exec("bash", "-c", text, cwd=tmp_path)
        assert await asyncio.wait_for(bash.wait(), 60) == 0
    for n, (run, shown) in enumerate(examples):
        printed = json.loads((tmp_path / f"out{n}").read_text())
        shown = shown.replace('"queued"', '"…"')  # the worker may have it already
        assert fits(json.loads(shown), printed), f"{run}\nprinted {printed}"


def fits(shown: Any, printed: Any) -> bool:
    """Whether what is shown is all there. `…` stands for anything, a number for any number."""
    if isinstance(shown, dict):
        return all(name in printed and fits(value, printed[name]) for name, value in shown.items())
    if isinstance(shown, list):
        return len(shown) <= len(printed) and all(map(fits, shown, printed))
    if isinstance(shown, str):
        pattern = ".*".join(map(re.escape, shown.split("…")))
        return isinstance(printed, str) and re.fullmatch(pattern, printed, re.DOTALL) is not None
    if isinstance(shown, int) and not isinstance(shown, bool):
        return isinstance(printed, int | float)
    return shown == printed
