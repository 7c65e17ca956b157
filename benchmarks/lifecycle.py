"""Redis's time for one lifecycle (submit, acquire, settle) by single-job calls, beside the least it could take.

The least: XADD + HSET | XRANGE + XDEL + HSET | HSET with the same body and result, which any durable queue on streams
has to do: the body waits in the stream, the hash keeps the state, the result goes into the hash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Protocol, Self

from redis import Redis

from benchmarks.pools import BODY, TIER, open_pool
from benchmarks.servers import Measured
from fairlane.ids import RANDOM_LENGTH, RandomIds
from fairlane.model import JobSpec, Lease, Settlement
from fairlane.queue import replies
from fairlane.queue.pools import Pool
from fairlane.queue.scripts import script

DEPTH: Final = 100  # jobs in one pipeline
RESULT: Final = BODY


@dataclass(frozen=True)
class Cost:
    """Redis's time per job, in µs: CPU time of the process, step by step, and what INFO commandstats counts."""

    submit: float
    acquire: float
    settle: float
    commands: float

    @property
    def cpu(self) -> float:
        return self.submit + self.acquire + self.settle

    @classmethod
    def median(cls, costs: list[Self]) -> Self:
        names = ("submit", "acquire", "settle", "commands")
        return cls(*(median(getattr(cost, name) for cost in costs) for name in names))


class Side(Protocol):
    """One of the two ways. Each step does `n` jobs in one pipeline."""

    commands: frozenset[str]  # those whose time commandstats must count: not the ones that a script runs

    def submit(self, n: int) -> None: ...

    def acquire(self, n: int) -> None: ...

    def settle(self, n: int) -> None: ...


class Yardstick:
    """The raw commands, one stream for each tenant."""

    commands = frozenset({"xadd", "xrange", "xdel", "hset"})

    def __init__(self, client: Redis, tenants: int) -> None:
        self._client = client
        self._tenants = tenants
        self._seq = 0
        self._waiting: deque[int] = deque()
        self._leased: deque[int] = deque()

    def submit(self, n: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for seq in range(self._seq + 1, self._seq + n + 1):
            pipe.xadd(self._line(seq), {"body": BODY}, id=f"{seq}-0")
            pipe.hset(
                f"job:{seq}", mapping={"state": "queued", "tenant": f"tenant-{seq % self._tenants}", "tier": TIER}
            )
            self._waiting.append(seq)
        self._seq += n
        pipe.execute()

    def acquire(self, n: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for _ in range(n):
            seq = self._waiting.popleft()
            pipe.xrange(self._line(seq), count=1)
            pipe.xdel(self._line(seq), f"{seq}-0")
            pipe.hset(f"job:{seq}", mapping={"state": "leased", "token": 1})
            self._leased.append(seq)
        got = pipe.execute()
        assert all(entries[0][1] == {b"body": BODY} for entries in got[::3])

    def settle(self, n: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for _ in range(n):
            pipe.hset(f"job:{self._leased.popleft()}", mapping={"state": "succeeded", "status": 200, "result": RESULT})
        pipe.execute()

    def _line(self, seq: int) -> str:
        return f"line:{seq % self._tenants}"


class Fairlane:
    """Our scripts, run as the queue runs them, `at_once` jobs a call. The tenants submit and are served in turn."""

    commands = frozenset({"evalsha"})

    def __init__(self, client: Redis, pool: Pool, tenants: int, body: bytes = BODY, at_once: int = 1) -> None:
        self._client = client
        self._pool = pool
        self._at_once = at_once
        self._body = body
        self._ids = RandomIds()
        self._next = deque(f"tenant-{n}" for n in range(tenants))
        self._leased: deque[Lease] = deque()
        self._calls = 0
        for act in ("submit", "acquire", "settle"):
            client.script_load(script(act).source)

    def submit(self, n: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for some in self._calls_of(n):
            args: list[str | bytes] = []
            for _ in range(some):
                spec = JobSpec(tenant=self._next[0], tier=TIER, body=self._body)
                self._next.rotate(-1)
                args += replies.submit_args(spec, self._ids.token(RANDOM_LENGTH))
            pipe.evalsha(script("submit").sha, 1, self._pool.prefix, "", self._pool.code, *args)
        got: Any = pipe.execute()
        assert all(answer[::2] == [b"new"] * (len(answer) // 2) for answer in got)

    def acquire(self, n: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for some in self._calls_of(n):
            self._calls += 1
            pipe.evalsha(script("acquire").sha, 1, self._pool.prefix, "", "bench", str(self._calls), str(some))
        got: Any = pipe.execute()
        leases = [lease for answer in got for lease in replies.leases(answer)]
        assert len(leases) == n
        self._leased += leases

    def settle(self, n: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for some in self._calls_of(n):
            ends = [Settlement(self._leased.popleft(), "succeeded", 200, RESULT) for _ in range(some)]
            pipe.evalsha(
                script("settle").sha, 1, self._pool.prefix, "", *(a for s in ends for a in replies.settle_args(s))
            )
        got: Any = pipe.execute()
        assert all(set(states) == {b"succeeded"} for states in got)

    def _calls_of(self, n: int) -> Iterator[int]:
        """How many jobs each call takes, for `n` jobs."""
        return (min(self._at_once, n - start) for start in range(0, n, self._at_once))


def measure(server: Measured, client: Redis, side: Side, jobs: int, depth: int) -> Cost:
    """What `jobs` lifecycles take, `depth` of them at a time."""
    steps: tuple[Callable[[int], None], ...] = (side.submit, side.acquire, side.settle)
    spent = [0.0] * len(steps)
    commands = _commands_us(client, side.commands)
    at = server.cpu_us()
    for _ in range(jobs // depth):
        for n, step in enumerate(steps):
            step(depth)
            before, at = at, server.cpu_us()
            spent[n] += at - before
    commands = _commands_us(client, side.commands) - commands
    submit, acquire, settle, total = (us / (jobs // depth * depth) for us in (*spent, commands))
    return Cost(submit, acquire, settle, total)


def compare(server: Measured, *, rounds: int, jobs: int, depth: int, tenants: int) -> tuple[Cost, Cost]:
    """The yardstick and ours, in turn, each time on an empty server: the medians."""
    theirs, ours = [], []
    with server.client() as client:
        for _ in range(rounds):
            client.flushall()
            theirs.append(_warm(server, client, Yardstick(client, tenants), jobs, depth))
            client.flushall()
            ours.append(_warm(server, client, Fairlane(client, opened(server), tenants), jobs, depth))
    return Cost.median(theirs), Cost.median(ours)


def opened(server: Measured) -> Pool:
    """The pool on `server`, made if it is not there."""

    async def run() -> Pool:
        async with open_pool(server.url) as (_, pool):
            return pool

    return asyncio.run(run())


def _warm(server: Measured, client: Redis, side: Side, jobs: int, depth: int) -> Cost:
    measure(server, client, side, max(depth, jobs // 10), depth)
    return measure(server, client, side, jobs, depth)


def _commands_us(client: Redis, names: frozenset[str]) -> float:
    stats: Any = client.info("commandstats")
    return sum(stats[f"cmdstat_{name}"]["usec"] for name in names if f"cmdstat_{name}" in stats)
