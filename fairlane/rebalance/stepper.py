"""Carries runs out, in whatever admin process holds them: one bounded step after the other, each safe to repeat.

A process holds a run for HOLD_S at a time, by a role in Redis, and takes it again before each step; when it dies,
another goes on where it was. Two that step the same run do no harm: a step names its chunk, and a chunk is done once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import structlog

from fairlane.errors import FairlaneError, IllegalTransition, NotFound, StoreFull, StoreUnavailable
from fairlane.queue import replies
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.rebalance.moving import Chosen, Mover
from fairlane.rebalance.runs import Runs, state_of
from fairlane.rebalance.values import OPEN, Run, RunState
from fairlane.rebalance.weighing import weigh

HOLD_S: Final = 5.0
MARGIN_S: Final = 2.0  # before the hold ends, nothing new is begun
LOOK_S: Final = 0.5
CHUNK: Final = 100  # jobs, as in lua/lib/run.lua
AGAIN_S: Final = 1.0  # after Redis was away, or full
log = structlog.get_logger()


class Stepper:
    """Looks for runs that have a next step, and takes it. `run` it as a task."""

    def __init__(self, queue: Queue, who: str | None = None) -> None:
        self._queue = queue
        self._runs = Runs(queue)
        self._who = who or f"admin-{secrets.token_hex(6)}"
        self._working: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until it is cancelled; what it holds it then gives up, so that another can go on at once."""
        try:
            while True:
                try:
                    await self._look()
                except FairlaneError as error:
                    log.warning("runs_not_seen", code=error.code)
                except Exception:  # else no run would go on in this process
                    log.exception("stepper_broke")
                await asyncio.sleep(LOOK_S)
        finally:
            for task in self._working.values():
                task.cancel()
            if self._working:
                await asyncio.wait(self._working.values())

    async def carry(self, run_id: str) -> Run:
        """Takes all steps that a run has now, unless another process holds it. Raises NotFound."""
        pool = await self._runs.pool_of(run_id)
        hold = Hold(self._queue, pool, f"run:{run_id}", self._who)
        steps = Steps(self._queue, self._runs, pool, hold)
        try:
            while await hold.take() and await steps.next(run_id) in OPEN:
                pass
        finally:
            await hold.give_up()
        return await self._runs.get(run_id)

    async def _look(self) -> None:
        self._working = {run_id: task for run_id, task in self._working.items() if not task.done()}
        for run_id, _ in await self._runs.open():
            if run_id not in self._working:
                self._working[run_id] = asyncio.create_task(self._watched(run_id))

    async def _watched(self, run_id: str) -> None:
        try:
            await self.carry(run_id)
        except NotFound:
            pass  # past its time, or its pool was removed
        except (StoreUnavailable, StoreFull) as error:
            log.warning("run_waits", run=run_id, code=error.code)
            await asyncio.sleep(AGAIN_S)
        except Exception:  # it is taken up again at the next look
            log.exception("run_broke", run=run_id)
            await asyncio.sleep(AGAIN_S)


class Hold:
    """A role of one process, for HOLD_S at a time."""

    def __init__(self, queue: Queue, pool: Pool, role: str, who: str) -> None:
        self._store = queue.store
        self._prefix = pool.prefix
        self._args = (role, who)
        self._until = 0.0

    async def take(self) -> bool:
        """Takes it, or holds it on: False if another process has it."""
        asked_at = asyncio.get_running_loop().time()
        won = await self._store.run("elect", self._prefix, *self._args, str(round(1000 * HOLD_S)))
        self._until = asked_at + HOLD_S if replies.number(won) else 0.0
        return bool(self._until)

    def holds(self) -> bool:
        """Whether something may still be begun."""
        return asyncio.get_running_loop().time() < self._until - MARGIN_S

    async def give_up(self) -> None:
        if self._until:
            with suppress(FairlaneError):
                await self._store.run("resign", self._prefix, *self._args)


class Steps:
    """The next step of a run, by its state."""

    def __init__(self, queue: Queue, runs: Runs, pool: Pool, hold: Hold) -> None:
        self._queue = queue
        self._store = queue.store
        self._runs = runs
        self._pool = pool
        self._mover = Mover(queue, pool, hold.holds)

    async def next(self, run_id: str) -> RunState | None:
        """Takes one step; returns the state that the run is in then, None if it is gone."""
        run = await self._runs.get(run_id)
        match run.state:
            case "counting":
                return state_of(await self._store.run("count_run", self._pool.prefix, run_id))
            case "weighing":
                return await self._weigh(run)
            case "applying" | "stopping" | "undoing" if run.plan.target.act == "move":
                return await self._move(run)
            case "applying":
                return await self._within(run, "step_run", run.step)
            case "undoing":
                return await self._within(run, "unstep_run", run.back)
            case _:
                return run.state

    async def _weigh(self, run: Run) -> RunState:
        pool = await self._queue.pools.current(self._pool)
        found = await weigh(self._queue, pool, run)
        try:
            return (await self._runs.weighed(run.id, found)).state
        except IllegalTransition:  # it was aborted meanwhile
            return "aborted"

    async def _within(self, run: Run, script: str, chunk: int) -> RunState | None:
        return state_of(await self._store.run(script, self._pool.prefix, run.id, str(chunk)))

    async def _move(self, run: Run) -> RunState | None:
        """A chunk of moves: opened, gone through, and closed with what became of it."""
        reply = replies.items(await self._store.run("begin_run", self._pool.prefix, run.id))
        state, chunk, text = state_of(reply[0]), replies.text(reply[1]), replies.text(reply[3])
        ids = text.split()
        if state == "undoing":
            counts = await self._mover.back(list(zip(ids[::2], ids[1::2], strict=True)))
            return state if counts is None else await self._record(run, "back", chunk, "", counts)
        if state not in ("applying", "stopping"):
            return state
        targets = [await self._target(name) for name in run.plan.target.pools]
        rows = [reply[n : n + 5] for n in range(4, len(reply), 5)]
        jobs = [
            Chosen(
                id_, *map(replies.text, row[:4]), in_batch=replies.number(row[4]) == 1,
                target=targets[(CHUNK * int(chunk) + n) % len(targets)],
            )
            for n, (id_, row) in enumerate(zip(ids, rows, strict=True))
        ]  # fmt: skip
        again = replies.number(reply[2]) == 1
        outcome = await self._mover.forth(jobs, again=again, only_look=state == "stopping")
        if outcome is None:
            return state
        undo = " ".join(f"{id_} {code}" for id_, code in outcome.went.items())
        return await self._record(run, "forth", chunk, undo, outcome.counts)

    async def _record(self, run: Run, way: str, chunk: str, undo: str, counts: Mapping[str, int]) -> RunState | None:
        told = [part for name, n in counts.items() for part in (name, str(n))]
        return state_of(await self._store.run("record_run", self._pool.prefix, run.id, way, chunk, undo, *told))

    async def _target(self, name: str) -> Pool | None:
        try:
            return await self._queue.pools.by_name(name)
        except NotFound:
            return None
