"""What the door says of a prompt's beginning, for pools that keep equal ones on one backend."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.accounts import Caller
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from producer.intake import Intake, JobRequest

SYSTEM = "You are a helpful assistant. " * 30


def asking(question: str) -> JobRequest:
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    return JobRequest("llama", "/v1/chat/completions", {"messages": messages})


@pytest.mark.parametrize("policy", [Policy(affinity="prefix")], indirect=True, ids=["prefix"])
async def test_prompts_that_begin_alike_say_so_as_long_as_the_pool_wants_to_know(queue: Queue, pool: Pool) -> None:
    intake = Intake(queue, guard=Guard.of("", "443"))
    _, one = await intake.job(asking("Who was first?"), Caller("ann"))
    _, other = await intake.job(asking("And who was last?"), Caller("bob"))
    assert one.prefix == other.prefix
    assert len(one.prefix) == 2
    await queue.submit(pool, one)  # such hashes are taken
    await queue.set_policy(pool, {"affinity": "none"}, by="test")
    _, later = await intake.job(asking("Who was first?"), Caller("ann"))
    assert later.prefix == ()
