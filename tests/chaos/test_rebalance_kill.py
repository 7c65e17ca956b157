"""The process that carries a run out is killed in the middle of it, on the way there and on the way back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fairlane.model import JobSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.rebalance import Filter, Plan, Run, Runs, Target
from fairlane.rebalance.values import RunState
from tests.contract.acts import submit_all
from tests.contract.invariants import check_invariants

JOBS = 900
SOON_S = 30.0
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def stepping(url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that carries runs out; it is killed at the end, if it is not yet."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.chaos.stepping", url, cwd=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(runs: Runs, run_id: str, come: Callable[[Run], bool]) -> Run:
    """The run, as soon as it has come so far."""
    async with asyncio.timeout(SOON_S):
        while not come(run := await runs.get(run_id)):
            await asyncio.sleep(0.005)
    return run


def is_in(state: RunState) -> Callable[[Run], bool]:
    return lambda run: run.state == state


async def test_another_process_goes_on_where_a_killed_one_was(valkey_url: str) -> None:
    """Between two pools: within one a step is a single script."""
    queue = await Queue.open(valkey_url)
    runs = Runs(queue)
    pools = [await queue.pools.open(name, Policy()) for name in ("here", "there", "beyond")]
    ids = await submit_all(
        queue, pools[0], [JobSpec(tenant=f"t{n % 3}", tier="default", body=b"{}") for n in range(JOBS)]
    )
    run = await runs.create(Plan(Filter("here"), Target(pools=("there", "beyond"))), "ops")
    async with stepping(valkey_url) as first:
        await until(runs, run.id, is_in("ready"))
        await runs.apply(run.id)
        killed = await until(runs, run.id, lambda run: run.step >= 4)
        first.kill()
    async with stepping(valkey_url) as second:
        run = await until(runs, run.id, is_in("done"))
        assert killed.moved < run.moved == JOBS
        await runs.undo(run.id)
        killed = await until(runs, run.id, lambda run: run.back >= 4)
        second.kill()
    async with stepping(valkey_url):
        run = await until(runs, run.id, is_in("undone"))
    assert killed.returned < run.returned == JOBS
    for pool in pools:
        await check_invariants(queue, pool)
    for n in range(3):
        line, _ = await queue.inspect.line(pools[0], "default", f"t{n}", limit=1000)
        assert [job.id for job in line] == ids[n::3]
    await queue.close()
