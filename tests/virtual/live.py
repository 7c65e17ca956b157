"""The production queue in virtual time: its scripts on a real server, the production watch, the engine model.

One dispatcher without a network: what is answered is settled, and what may run is sent, in the same moment. What
distance and delay do to the learner of capacity is tests/virtual/fleet.py's; here it is who gets which turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import httpx

from dispatcher.activity import Activity
from dispatcher.backends.known import GAMMA_FIRST
from dispatcher.backends.sequences import Sequence as Request
from dispatcher.backends.timing import Speed
from dispatcher.policy import lead
from dispatcher.simulator.clock import Clock
from dispatcher.steering import EVERY_S, Steering
from dispatcher.watch import Moment, Watch, over_http
from fairlane.clock import ManualClock
from fairlane.model import BackendSpec, JobSpec, Lease, Settlement, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView
from tests.virtual.server import Page, Server

BACKEND: Final = "b1"
MOST: Final = 64  # of one acquire
_ENGINE: Final = '{engine="0",model_name="llama"}'
_calls = count(1)


@dataclass(frozen=True, slots=True)
class Pop:
    """One job that was sent: when, and how it was just before.

    `live`: how many were in flight. `waiting`: how many of those will find no slot at the next step. `shown`: how many
    waited by the last page that the gate was made from, less those that were answered since.
    """

    at_ms: float
    lease: Lease
    live: int
    waiting: int
    shown: int


def job(tenant: str, tier: str, answer: int, *, prompt: int = 10, estimate: int | None = None) -> JobSpec:
    """A job that makes `answer` tokens; its tenant may have estimated another number."""
    body = json.dumps([prompt, answer]).encode()
    return JobSpec(tenant, tier, body, input_tokens=prompt, output_tokens=answer if estimate is None else estimate)


class Live:
    """One pool with one backend. `at_pop` and `at_end` say which jobs arrive when one was sent, and was answered.

    `by_priority`: the backend goes by the priority that is handed over. `steers`: γ is set as in production.

    `pops` are all jobs that were sent, `done` says when each was answered (ms), `found` what each scrape found written
    by the one before it.
    """

    def __init__(
        self,
        queue: Queue,
        pool: Pool,
        manual: ManualClock,
        speed: Speed,
        *,
        at_pop: Callable[[Lease], Iterable[JobSpec]] = lambda lease: (),
        at_end: Callable[[Lease], Iterable[JobSpec]] = lambda lease: (),
        scrape_ms: int = 200,
        by_priority: bool = False,
        steers: bool = False,
    ) -> None:
        self.queue, self.pool, self.clock = queue, pool, Clock()
        self.server = Server(self.clock, speed, by_priority=by_priority)
        self.pops: list[Pop] = []
        self.done: dict[str, float] = {}
        self.found: list[tuple[float, BackendView]] = []
        self._manual, self.began_ms = manual, manual.now_ms()
        self._at_pop, self._at_end, self._scrape_ms = at_pop, at_end, scrape_ms
        self._arrived: list[JobSpec] = []
        self._answered: list[Lease] = []
        self._live = self._shown = 0
        self._scrape_due = True
        self._watch: Watch | None = None
        self._steering = Steering(queue, pool, 10) if steers else None
        self._steering_due = steers
        self._activity = Activity()

    def arrive(self, *specs: JobSpec) -> None:
        """They are submitted at this moment; may be called by an act of the clock."""
        self._arrived += specs

    async def run(self, until_ms: float) -> None:
        await self._act()
        while self.clock.next_ms <= until_ms:
            self.clock.run(self.clock.next_ms)
            await self._act()
        self.clock.run(until_ms)
        await self._act()

    async def _act(self) -> None:
        if not (self._scrape_due or self._steering_due or self._answered or self._arrived):
            return
        self._manual.advance(self.began_ms + int(self.clock.now) - self._manual.now_ms())
        if self._answered:
            answered, self._answered = self._answered, []
            await self._settle(answered)
        if self._scrape_due:
            self._scrape_due = False
            await self._scrape()
        if self._steering and self._steering_due:
            self._steering_due = False
            await self._steering.round()
            self.clock.after(1000 * EVERY_S, self._steer_again)
        await self._submit()
        await self._acquire()

    async def _submit(self) -> None:
        if self._arrived:
            specs, self._arrived = self._arrived, []
            for answer in await self.queue.submit_many(self.pool, specs):
                assert not isinstance(answer, Exception), answer

    async def _acquire(self) -> None:
        got = MOST
        while got == MOST:
            leases = await self.queue.acquire(self.pool, "d1", next(_calls), MOST)
            for lease in leases:
                self.pops.append(Pop(self.clock.now, lease, self._live, self._waiting(), max(0, self._shown)))
                self._live += 1
                self._send(lease)
                self._arrived += self._at_pop(lease)
            got = len(leases)
            await self._submit()  # what came of that runs when something else has happened

    def _waiting(self) -> int:
        return max(0, self._live - self.server.engine.speed.slots)

    def _send(self, lease: Lease) -> None:
        prompt, answer = json.loads(lease.body)
        tiers = self.pool.policy.tiers
        phi_ms = lease.phi_ms - self.began_ms
        lead_ms = lead.wanted_ms(len(tiers), GAMMA_FIRST)
        priority = lead.engine_priority(phi_ms, tiers.index(lease.tier), len(tiers), lead_ms, 0)
        self.server.send(Request(prompt, answer, priority), lambda _: self._answered.append(lease))

    async def _settle(self, leases: Sequence[Lease]) -> None:
        outcomes = [self.outcome(lease) for lease in leases]
        for lease, state in zip(leases, await self.queue.settle_many(self.pool, outcomes), strict=True):
            assert state == "succeeded", state
            self.done[lease.id] = self.clock.now
            self._arrived += self._at_end(lease)
        self._live -= len(leases)
        self._shown -= len(leases)

    def outcome(self, lease: Lease) -> Settlement:
        return Settlement(lease, "succeeded", 200, b"{}", usage=Usage(*json.loads(lease.body)))

    # --- the observer -------------------------------------------------------------------------------------------------

    async def _scrape(self) -> None:
        watch = self._watch or await self._new_watch()
        load = await self.queue.inspect.load(self.pool)
        self.found.append((self.clock.now, load.backends[0]))
        self._activity.note(load, self.clock.now)
        pause_s = await watch.once()
        self.clock.after(max(1000 * pause_s, 1), self._scrape_again)

    def _scrape_again(self) -> None:
        self._scrape_due = True

    def _steer_again(self) -> None:
        self._steering_due = True

    async def _new_watch(self) -> Watch:
        spec = BackendSpec("http://virtual", family="vllm")
        await self.queue.set_backend(self.pool, BACKEND, "add", spec=spec)
        view = await self.queue.inspect.backend(self.pool, BACKEND)
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._page))
        interval_s = self._scrape_ms / 1000
        self._watch = Watch(self.queue, view, spec, over_http(spec, client), self._moment, interval_s)
        return self._watch

    def _moment(self) -> Moment:
        rooms = self._activity.rooms(self.pool.policy, self.clock.now)
        return Moment(self.pool, rooms, self._activity.ahead(self.pool.policy), self._manual.now_ms())

    def _page(self, _: httpx.Request) -> httpx.Response:
        page = self.server.page()
        self._shown = page.waiting if page else 0
        return httpx.Response(200, text=_text(page)) if page else httpx.Response(503)


def _text(page: Page) -> str:
    lines = (
        f"vllm:num_requests_running{_ENGINE} {page.running}",
        f"vllm:num_requests_waiting{_ENGINE} {page.waiting}",
        f"vllm:kv_cache_usage_perc{_ENGINE} {page.kv}",
        f"vllm:generation_tokens_total{_ENGINE} {page.progress}",
        f"vllm:inter_token_latency_seconds_sum{_ENGINE} {page.token_s}",
        f"vllm:inter_token_latency_seconds_count{_ENGINE} {page.tokens}",
        f"process_start_time_seconds {page.started_at}",
    )
    return "\n".join(lines) + "\n"
