"""Webhooks: 10,000 events at 100/s to 50 endpoints, some dead, slow or flaky. A worker, the dispatcher that sweeps, and
Redis are killed on the way, and started again at once.

Real jobs on a backend that answers at once; two dispatchers, two `fairlane worker --only webhooks`, Redis as
`fairlane up` runs it. Every live endpoint must get every event, and healthy ones soon.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.figures import Figure, markdown, table
from benchmarks.receiver import Behaviour, Ear, Receipt, Receiver, receiving
from dispatcher.processes import Child
from fairlane.errors import FairlaneError
from fairlane.head import Head
from fairlane.model import JobSpec, Policy
from fairlane.queue.embedded import EmbeddedServer
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.up import free_port
from fairlane.webhooks.delivery import Counts
from fairlane.webhooks.endpoints import Webhooks
from fairlane.webhooks.outbox import Outbox

EVENTS: Final = 10_000
PER_S: Final = 100.0
ENDPOINTS: Final = 50
SETTINGS: Final = {
    "FAIRLANE_WEBHOOK_ALLOW": "127.0.0.1",
    "FAIRLANE_WEBHOOK_TIMEOUT_S": "1.5",
    "FAIRLANE_WEBHOOK_SCHEDULE": "0" + ",1" * 30,  # half the time fails: thirty times in a row never
    "FAIRLANE_WEBHOOK_BREAKER_S": "1",
}
POOL: Final = "sim"
BODY: Final = b'{"model":"sim","prompt":"x","max_tokens":2}'
FAIRLANE: Final = ("-m", "fairlane.cli")
DRAIN_S: Final = 120.0
P99_S: Final = 2.0


@dataclass(frozen=True)
class Plan:
    """`endpoints` of one tenant each. Kills happen at these shares of the run; `lease_ms` is that of jobs."""

    events: int = EVENTS
    per_s: float = PER_S
    endpoints: int = ENDPOINTS
    slow: int = 5
    flaky: int = 5
    dead: int = 5
    worker_dies: float = 0.25
    dispatcher_dies: float = 0.45
    redis_dies: float = 0.65
    lease_ms: int = 30_000


class House:
    """The processes."""

    def __init__(
        self, folder: Path, store: EmbeddedServer, more: Mapping[str, str], fairlane: Sequence[str], quiet: bool
    ) -> None:
        self.store = store
        environment = os.environ | SETTINGS | dict(more)
        environment |= {"FAIRLANE_REDIS_URL": store.url, "FAIRLANE_DATA_DIR": str(folder)}
        base = [sys.executable, *fairlane]
        level = ["--log-level", "error" if quiet else "info"]
        dispatcher = [*base, "dispatcher", "--backend", f"{POOL}=null://", *level]
        worker = [*base, "worker", "--only", "webhooks", *level]
        self.dispatchers = [Child(dispatcher, env=environment) for _ in range(2)]
        self.workers = [Child(worker, env=environment) for _ in range(2)]

    def look(self) -> None:
        if not self.store.alive:
            self.store.start()
        for child in (*self.dispatchers, *self.workers):
            child.look()

    def end(self) -> None:
        for child in (*self.workers, *self.dispatchers):
            child.terminate()
        for child in (*self.workers, *self.dispatchers):
            child.reap(10)


@contextmanager
def running(folder: Path, more: Mapping[str, str], fairlane: Sequence[str], quiet: bool) -> Iterator[House]:
    with EmbeddedServer(folder) as store:
        house = House(folder, store, more, fairlane, quiet)
        try:
            house.look()
            yield house
        finally:
            house.end()


async def create_endpoints(queue: Queue, plan: Plan, ports: Sequence[int]) -> list[Ear]:
    """One of each tenant; returns those that live, which are the first ones."""
    webhooks = Webhooks(queue, Guard.of(SETTINGS["FAIRLANE_WEBHOOK_ALLOW"], ",".join(map(str, ports))))
    well = plan.endpoints - plan.slow - plan.flaky - plan.dead
    of_kinds: dict[Behaviour, int] = {"slow": plan.slow, "flaky": plan.flaky, "well": well}
    kinds: list[Behaviour] = [kind for kind, many in of_kinds.items() for _ in range(many)]
    ears: list[Ear] = []
    for n, port in enumerate(ports):
        _, secret = await webhooks.create(tenant(n), f"http://127.0.0.1:{port}/hook", events=["job.*"])
        ears += [Ear(port, secret, kinds[n])] if n < len(kinds) else []
    return ears


def free_ports(n: int) -> list[int]:
    """Ports that nobody uses at this moment."""
    found: set[int] = set()
    while len(found) < n:
        found.add(free_port())
    return list(found)


def tenant(n: int) -> str:
    return f"t{n:02}"


async def submit_all(queue: Queue, pool: Pool, plan: Plan) -> dict[str, int]:
    """At an even pace, to each tenant in turn; returns each job's tenant by number. Redis may be away for a moment."""
    head, began, made = Head("/v1/completions", POOL).encode(), time.monotonic(), dict[str, int]()
    for n in range(plan.events):
        await asyncio.sleep(max(0.0, began + n / plan.per_s - time.monotonic()))
        of = n % plan.endpoints
        spec = JobSpec(tenant(of), "default", BODY, head=head, idempotency_key=f"bench-{n}")
        while True:
            try:
                made[(await queue.submit(pool, spec)).id] = of
                break
            except FairlaneError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.05)
    return made


async def sweeper_of(queue: Queue, pool: Pool) -> int:
    """The pid of the dispatcher that sweeps."""
    while True:
        for view in await queue.inspect.dispatchers(pool):
            info = json.loads(view.info)
            if "sweeper" in info["roles"]:
                return info["pid"]
        await asyncio.sleep(0.1)


async def kill_all(queue: Queue, pool: Pool, house: House, plan: Plan) -> None:
    """One after the other; and looks after the house."""
    whole_s, began = plan.events / plan.per_s, time.monotonic()
    todo = [(plan.worker_dies, "worker"), (plan.dispatcher_dies, "dispatcher"), (plan.redis_dies, "Redis")]
    while True:
        house.look()
        if todo and time.monotonic() - began > todo[0][0] * whole_s:
            _, what = todo.pop(0)
            print(f"  {time.monotonic() - began:.0f} s: kill -9 {what}", flush=True)
            if what == "worker":
                process = house.workers[0].process
                assert process is not None
                os.kill(process.pid, signal.SIGKILL)
            elif what == "dispatcher":
                os.kill(await sweeper_of(queue, pool), signal.SIGKILL)
            else:
                os.kill(house.store.pid, signal.SIGKILL)
        await asyncio.sleep(0.1)


async def drained(queue: Queue, receiver: Receiver, wanted: set[tuple[int, str]]) -> float:
    """Waits until everything that can arrive has arrived; returns how long that took, in seconds."""
    began = time.monotonic()
    while time.monotonic() < began + DRAIN_S:
        got = {(one.port, one.object_id) for one in await asyncio.to_thread(receiver.received) if one.accepted}
        if wanted <= got:
            break
        await asyncio.sleep(0.5)
    return time.monotonic() - began


@dataclass(frozen=True)
class Found:
    """What a run came to. `wanted`: each live endpoint's port with each of its jobs; `more_s`: from the last submit."""

    ears: list[Ear]
    wanted: set[tuple[int, str]]
    receipts: list[Receipt]
    more_s: float
    counts: Counts

    @property
    def lost(self) -> set[tuple[int, str]]:
        return self.wanted - {(one.port, one.object_id) for one in self.receipts if one.accepted}


def figures(plan: Plan, found: Found) -> list[Figure]:
    wanted, receipts = found.wanted, found.receipts
    behaviours = {ear.port: ear.behaviour for ear in found.ears}
    first: dict[tuple[int, str], float] = {}
    for one in receipts:
        first.setdefault((one.port, one.object_id), one.delay_s)
    delays = sorted(delay for (port, _), delay in first.items() if behaviours[port] == "well")
    p50, p99 = (delays[min(len(delays) - 1, int(share * len(delays)))] for share in (0.5, 0.99))
    times = Counter((one.port, one.object_id) for one in receipts if one.accepted)
    doubles = sum(count - 1 for count in times.values())
    lost, bad = len(found.lost), sum(not one.verified for one in receipts)
    late = sum(delay > P99_S for delay in delays)
    return [
        Figure("events for endpoints that live", len(wanted), "", None, "", None),
        Figure("of these lost", lost, "", None, "0", lost == 0),
        Figure("events for dead endpoints", plan.events - len(wanted), ""),
        Figure("median delay, healthy", p50, "s", digits=3),
        Figure("p99 delay, healthy", p99, "s", None, f"≤ {P99_S:g}", p99 <= P99_S, digits=3),
        Figure("later than that", late, "", note=f"of {len(delays):,}"),
        Figure("largest delay, healthy", delays[-1], "s", digits=1),
        Figure("taken twice", doubles, "", None, "counted", None),
        Figure("signatures that do not verify", bad, "", None, "0", bad == 0),
        Figure("until the last event was taken", found.more_s, "s", digits=1),
        Figure("deliveries given up, all to dead endpoints", found.counts.failed, ""),
        Figure("attempts that another one followed", found.counts.retried, ""),
    ]


async def run(folder: Path, plan: Plan, *, quiet: bool = True, fairlane: Sequence[str] = FAIRLANE) -> Found:
    """`fairlane`: how Python runs the command."""
    ports = free_ports(plan.endpoints)
    allowed = ",".join(map(str, ports))
    with running(folder, {"FAIRLANE_WEBHOOK_PORTS": allowed}, fairlane, quiet) as house:
        queue = await Queue.open(house.store.url)
        try:
            pool = await queue.pools.open(POOL, Policy(lease_ms=plan.lease_ms))
            ears = await create_endpoints(queue, plan, ports)
            with receiving(ears) as receiver:
                await sweeper_of(queue, pool)
                tending = asyncio.create_task(kill_all(queue, pool, house, plan))
                made = await submit_all(queue, pool, plan)
                wanted = {(ears[of].port, job) for job, of in made.items() if of < len(ears)}
                more_s = await drained(queue, receiver, wanted)
                tending.cancel()
                counts = await Outbox(queue.store).counts()
                receipts = await asyncio.to_thread(receiver.received)
        finally:
            await queue.close()
    return Found(ears, wanted, receipts, more_s, counts)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="20 s in place of 100 s")
    asked.add_argument("--calm", action="store_true", help="kill nothing")
    asked.add_argument("--loud", action="store_true", help="show the processes' logs")
    asked.add_argument("--markdown", action="store_true")
    options = asked.parse_args()
    kills: dict[str, Any] = (
        dict.fromkeys(("worker_dies", "dispatcher_dies", "redis_dies"), float("inf")) if options.calm else {}
    )
    plan = Plan(events=2_000 if options.quick else EVENTS, **kills)
    with tempfile.TemporaryDirectory() as folder:
        found = figures(plan, asyncio.run(run(Path(folder), plan, quiet=not options.loud)))
    killed = "" if options.calm else ", worker, sweeping dispatcher and Redis killed"
    Console().print(table(found, f"{plan.events:,} events at {plan.per_s:g}/s to {plan.endpoints} endpoints{killed}"))
    if options.markdown:
        print(markdown(found))
    sys.exit(any(figure.holds is False for figure in found))


if __name__ == "__main__":
    main()
