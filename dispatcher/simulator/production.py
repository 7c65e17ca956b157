"""Ours: the production queue, its scripts on a real server, its watch and its steering, under the virtual clock.

One dispatcher without a network: what is answered is settled, and what may run is sent, in the same moment. A page is
read as often as in production, and only what it shows is known of a backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from dispatcher.activity import Activity
from dispatcher.backends.known import GAMMA_FIRST
from dispatcher.backends.scrape import Reading, ScrapeFailed
from dispatcher.policy import lead
from dispatcher.seen import fields
from dispatcher.simulator.backend import Backend
from dispatcher.simulator.request import Request
from dispatcher.simulator.world import World
from dispatcher.steering import EVERY_S, Steering
from dispatcher.watch import Moment, ReadPage, Watch
from fairlane.asking import OUTPUT_TOKENS, START_MS, TOKEN_MS
from fairlane.clock import ManualClock
from fairlane.ids import SeededIds
from fairlane.model import BackendSpec, JobSpec, Lease, Policy, Settlement, Usage
from fairlane.queue.connection import Client
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

MOST: Final = 64  # of one acquire
LEASE_MS: Final = 3_600_000  # the most there is; nobody renews, and nobody takes what has run out
STALE_SCRAPES: Final = 3
DISPATCHER: Final = "d1"
SPEC: Final = BackendSpec("http://modelled", family="vllm")


@dataclass(frozen=True, slots=True)
class Setting:
    """How Fairlane is set up in a run.

    `policy`: its tiers are the world's, its times as here. `estimate`: the bound on an answer that every caller gives
    (tokens); the real length is known only in the end. `one_tenant`, `one_tier`: all jobs are one tenant's, of the
    highest tier. `gated`: sends no more than the learned capacity allows; else everything at once. `hands_over`: the
    order reaches the engine (its order must be ByPriority).
    """

    policy: Policy = field(default_factory=Policy)
    scrape_ms: int = 200
    estimate: int = OUTPUT_TOKENS
    one_tenant: bool = False
    one_tier: bool = False
    gated: bool = True
    hands_over: bool = True


class Production:
    """One pool with all backends of the world. Use it for one run, on a Redis of its own."""

    def __init__(self, client: Client, setting: Setting | None = None, seed: int = 0) -> None:
        self.setting = setting or Setting()
        self.gammas: list[float] = []
        self._manual = ManualClock()
        self._began_ms = self._manual.now_ms()
        self._queue = Queue(client, namespace="sim", clock=self._manual, ids=SeededIds(seed), timeout_s=60)
        self._pool: Pool | None = None
        self._calls = count(1)
        self._running: dict[int, Lease] = {}
        self._by_number: dict[int, Request] = {}
        self._arrived: list[Request] = []
        self._answered: list[Request] = []
        self._waiting = 0  # submitted, not yet sent
        self._activity = Activity()
        self._watches: dict[str, Watch] = {}
        self._due: set[str] = set()  # whose page is to be read now
        self._steering: Steering | None = None
        self._steering_due = False

    def begin(self, world: World) -> None:
        self._world = world
        self._backends = {backend.name: backend for backend in world.backends}
        setting = self.setting
        self._policy = replace(
            setting.policy, tiers=world.tiers, lease_ms=LEASE_MS, stale_ms=STALE_SCRAPES * max(setting.scrape_ms, 200)
        )
        gamma = GAMMA_FIRST if self._policy.gamma is None else self._policy.gamma
        self._lead_ms = lead.wanted_ms(len(world.tiers), gamma)

    def arrive(self, request: Request) -> None:
        self._arrived.append(request)

    def ended(self, request: Request) -> None:
        self._answered.append(request)

    async def act(self) -> None:
        pool = self._pool or await self._open()
        if not (self._due or self._steering_due or self._answered or self._arrived):
            return
        self._manual.advance(self._began_ms + int(self._world.clock.now) - self._manual.now_ms())
        if self._answered:
            answered, self._answered = self._answered, []
            await self._settle(pool, answered)
        if self._due:
            await self._look(pool)
        if self._steering and self._steering_due:
            await self._steer(self._steering)
        if self._arrived:
            arrived, self._arrived = self._arrived, []
            await self._submit(pool, arrived)
        if self._waiting:
            await self._acquire(pool)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _submit(self, pool: Pool, requests: Sequence[Request]) -> None:
        for answer in await self._queue.submit_many(pool, [self._spec(request) for request in requests]):
            if isinstance(answer, Exception):
                raise answer
        for request in requests:
            self._by_number[request.number] = request
        self._waiting += len(requests)

    def _spec(self, request: Request) -> JobSpec:
        estimate = self.setting.estimate
        return JobSpec(
            "all" if self.setting.one_tenant else request.tenant,
            self._world.tiers[0] if self.setting.one_tier else request.tier,
            str(request.number).encode(),
            input_tokens=request.prompt,
            output_tokens=estimate,
            expected_ms=START_MS + TOKEN_MS * estimate,
        )

    async def _acquire(self, pool: Pool) -> None:
        got = MOST
        while got == MOST and self._waiting:
            leases = await self._queue.acquire(pool, DISPATCHER, next(self._calls), MOST)
            got = len(leases)
            self._waiting -= got
            for lease in leases:
                self._send(lease)

    def _send(self, lease: Lease) -> None:
        request = self._by_number.pop(int(lease.body))
        self._running[request.number] = lease
        if self.setting.hands_over:
            tiers = self._world.tiers
            phi_ms = lease.phi_ms - self._began_ms
            tier = tiers.index(lease.tier)
            request.priority = lead.engine_priority(phi_ms, tier, len(tiers), self._lead_ms, 0)
        self._world.send(request, self._backends[lease.backend])

    async def _settle(self, pool: Pool, requests: Sequence[Request]) -> None:
        outcomes = [
            Settlement(
                self._running.pop(one.number), "succeeded", 200, b"{}", usage=Usage(one.prompt, one.answer)
            )
            for one in requests
        ]  # fmt: skip
        for answer in await self._queue.settle_many(pool, outcomes):
            if isinstance(answer, Exception):
                raise answer

    # --- what the observer does ---------------------------------------------------------------------------------------

    async def _open(self) -> Pool:
        self._manual.advance(self._began_ms - self._manual.now_ms())
        await self._queue.check()
        pool = self._pool = await self._queue.pools.open("model", self._policy)
        spec = SPEC if self.setting.gated else replace(SPEC, family="openai", slots=10_000)
        for name, backend in self._backends.items():
            await self._queue.set_backend(pool, name, "add", spec=spec)
            if not self.setting.hands_over:
                await self._queue.set_backend(pool, name, "no_priority")
            view = await self._queue.inspect.backend(pool, name)
            read_page = _reader(backend, self.setting.gated)
            interval_s = self.setting.scrape_ms / 1000
            self._watches[name] = Watch(self._queue, view, spec, read_page, self._moment, interval_s)
            self._due.add(name)
        self._steering = Steering(self._queue, pool, 10)
        self._steer_again()
        return pool

    async def _look(self, pool: Pool) -> None:
        load = await self._queue.inspect.load(pool)
        self._activity.note(load, self._world.clock.now)
        due, self._due = [name for name in self._watches if name in self._due], set()
        for name in due:
            pause_s = await self._watches[name].once()
            self._world.clock.after(max(1000 * pause_s, 1), lambda name=name: self._due.add(name))

    def _moment(self) -> Moment:
        if self._pool is None:
            raise RuntimeError("There is no pool yet.")
        rooms = self._activity.rooms(self._policy, self._world.clock.now)
        return Moment(self._pool, rooms, self._activity.ahead(self._policy), self._manual.now_ms())

    async def _steer(self, steering: Steering) -> None:
        self._steering_due = False
        await steering.round()
        self._world.clock.after(1000 * EVERY_S, self._steer_again)
        if self._pool is None:
            return
        steer = fields((await self._queue.inspect.load(self._pool)).steer)
        self._lead_ms = float(steer["lead_ms"])
        if self._policy.gamma is None:
            self.gammas.append(float(steer.get("gamma") or GAMMA_FIRST))

    def _steer_again(self) -> None:
        self._steering_due = True


def _reader(backend: Backend, gated: bool) -> ReadPage:
    """Reads what the backend's page shows, without a page."""

    async def read() -> Reading:
        if not gated:
            raise ScrapeFailed("unknown", "Not looked at.")
        page = backend.page()
        return Reading(
            running=page.running,
            waiting=page.waiting,
            kv=page.kv,
            token_sum=page.token_s,
            token_count=page.tokens,
            progress=page.progress,
            started_at=1.0,
            missing=(),
            family="vllm",
        )

    return read
