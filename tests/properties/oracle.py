"""The scheduler in plain Python: what the scripts promise, short enough to be read beside them.

No Redis, no ids, no payloads. A line is what sorting the queued jobs by seq gives; a ring is the tenants that may run.
Only what has a memory is stored: virtual times, clocks, the valve, rates, leases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fairlane.model import Limits, Policy, TierGate

MILLION = 1_000_000
BURST_US = 5_000_000
GAMMA_FIRST = 0.2


def bucket(output: int) -> int:
    """Of the classes: outputs up to 1, 4, 16, … tokens, ten in all."""
    return next(n for n in range(10) if output <= 4**n or n == 9)


def kept(number: float) -> float:
    """As Redis keeps it."""
    return float(f"{number:.3f}")


@dataclass
class OracleJob:
    name: str
    tenant: str
    tier: str
    seq: int
    at: int
    input: int
    output: int
    boost: int
    most: int
    state: str
    due: int | None = None
    deadline: int | None = None
    tries: int = 0
    token: int = 0
    dead: bool = False
    backend: str = ""
    charged: int = 0
    started: int = 0
    lease_until: int | None = None  # not None while a lease counts, whatever the state
    places: dict[int, int] = field(default_factory=dict[int, int])  # its seq in each pool that it was moved out of

    @property
    def tokens(self) -> int:
        return self.input + 2 * self.output


@dataclass
class OracleTenant:
    limits: Limits = field(default_factory=Limits)
    paused: bool = False
    requests_at: int = 0
    tokens_at: int = 0
    held_until: float | None = None  # None: it may run


@dataclass
class OracleBackend:
    gates: dict[str, TierGate] = field(default_factory=dict)
    fresh_at: int = 0
    status: str = "up"


@dataclass
class OracleTier:
    clock: int = 0
    since: int | None = None
    valved: int = 0  # when the valve last served it
    paused: bool = False
    v: dict[str, int] = field(default_factory=dict)  # virtual times of those in the ring
    left: dict[str, int] = field(default_factory=dict)  # … and of those who left it


class Oracle:
    def __init__(self, policy: Policy, now: int) -> None:
        self.policy = policy
        self.now = now
        self.jobs: dict[str, OracleJob] = {}
        self.tenants: dict[str, OracleTenant] = {}
        self.tiers = {tier: OracleTier() for tier in policy.tiers}
        self.backends: dict[str, OracleBackend] = {}
        self.paused = False
        self.seq = self.valve = self.valved_at = 0
        self.classes: dict[tuple[str, int], tuple[int, float]] = {}  # n, w in ms
        self.work: dict[str, tuple[int, float, float, float]] = {}  # n; means of output in tokens, ms, work

    # --- what follows from the jobs -----------------------------------------------------------------------------------

    def line(self, tier: str, tenant: str) -> list[OracleJob]:
        queued = (j for j in self.jobs.values() if (j.state, j.tier, j.tenant) == ("queued", tier, tenant))
        return sorted(queued, key=lambda job: job.seq)

    def waiting(self, tenant: str | None = None) -> int:
        return sum(j.state in ("queued", "delayed") and tenant in (None, j.tenant) for j in self.jobs.values())

    def inflight(self, *, tenant: str | None = None, backend: str | None = None, tier: str | None = None) -> int:
        asked = (tenant, backend, tier)
        leased = [(j.tenant, j.backend, j.tier) for j in self.jobs.values() if j.lease_until is not None]
        return sum(all(want in (None, has) for want, has in zip(asked, job, strict=True)) for job in leased)

    def cost(self, tenant: str, tokens: int) -> int:
        units = 1000 * max(1, tokens) if self.policy.fairness == "tokens" else MILLION
        return math.floor(units / self.tenants[tenant].limits.weight)

    @property
    def gamma(self) -> float:
        """Per ms; where the policy leaves it to a thermostat that nobody runs, what it begins with."""
        return (GAMMA_FIRST if self.policy.gamma is None else self.policy.gamma) / 1000

    def boost(self, tenant: str, tier: str, size: tuple[int, int], guess: int) -> int:
        """b(γ, w) = (1/γ)·ln(1/(1 - e^(-γw))), capped, in ms; w as its class showed it, or its tier, or a guess."""
        work, gamma = self.work.get(tier), self.gamma
        expected = self.classes.get((tenant, bucket(size[1])), (0, 0.0))[1]
        if not expected:
            expected = (size[0] + 2 * min(size[1], work[1])) * work[2] / work[3] if work else guess
        if gamma <= 0:
            return 0
        short = 1 - math.exp(-min(50, gamma * max(1, expected)))
        return math.floor(min(self.policy.boost_max_ms, math.log(1 / short) / gamma))

    def learn(self, job: OracleJob, usage: tuple[int, int] | None) -> None:
        """w = ln(M)/γ, where M is the mean of e^(γS) over the service times S of a class."""
        took: float = max(1, self.now - job.started)
        ran, gamma, key = took, self.gamma, (job.tenant, bucket(job.output))
        n, w = self.classes.get(key, (0, 0.0))
        part = 1 / min(n + 1, 50)
        if gamma > 0:
            w, took = min(w, 5 / gamma), min(took, 5 / gamma)
            top = gamma * max(w, took)
            w = (top + math.log((1 - part) * math.exp(gamma * w - top) + part * math.exp(gamma * took - top))) / gamma
        else:
            w += part * (took - w)
        self.classes[key] = (n + 1, kept(w))
        if usage and sum(usage):
            n, output, ms, work = self.work.get(job.tier, (0, 0.0, 0.0, 0.0))
            part = 1 / min(n + 1, 100)
            ms += part * (ran - ms)
            work += part * (usage[0] + 2 * usage[1] - work)
            self.work[job.tier] = (n + 1, kept(output + part * (usage[1] - output)), kept(ms), kept(work))

    def score(self, tier: str, tenant: str) -> int:
        """The place in the ring: virtual time less the credit of the head, at most one turn."""
        return self.tiers[tier].v[tenant] - self.credit(tier, tenant)

    def credit(self, tier: str, tenant: str) -> int:
        head = self.line(tier, tenant)[0]
        share = min(1, head.boost / self.policy.boost_max_ms)
        return math.floor(share * self.cost(tenant, head.tokens))

    def hold_of(self, name: str) -> float | None:
        tenant, limits = self.tenants[name], self.tenants[name].limits
        if tenant.paused or (limits.max_inflight is not None and self.inflight(tenant=name) >= limits.max_inflight):
            return math.inf
        rpm, tpm = limits.requests_per_minute, limits.tokens_per_minute
        requests = tenant.requests_at - max(0, BURST_US - 60 * MILLION // rpm) if rpm else 0
        tokens = tenant.tokens_at - BURST_US if tpm else 0
        until = math.ceil(max(requests, tokens) / 1000)
        return until if until > self.now else None

    # --- who may run --------------------------------------------------------------------------------------------------

    def seat(self, tenant: str) -> None:
        """Puts the tenant into the rings where it may run and out of the others; call it after anything changed."""
        for name, tier in self.tiers.items():
            may = bool(self.line(name, tenant)) and self.tenants[tenant].held_until is None
            if may and tenant not in tier.v:
                turn = self.cost(tenant, self.line(name, tenant)[0].tokens)
                start = self.start(name, self.credit(name, tenant) + turn)
                tier.v[tenant] = max(start, tier.left.pop(tenant, 0))
            elif not may and tenant in tier.v:
                v = tier.v.pop(tenant)
                start = self.start(name, 0)
                for gone in sorted((at, t) for t, at in tier.left.items() if at <= start)[:4]:
                    del tier.left[gone[1]]
                tier.left[tenant] = v
            self.start_wait(tier)

    def start(self, tier: str, own: int) -> int:
        """Where a newcomer starts: at the clock, but not more than `own` behind the first in the ring."""
        ring = self.tiers[tier]
        first = min((self.score(tier, t) for t in ring.v), default=None)
        return ring.clock if first is None else min(ring.clock, first + own)

    def start_wait(self, tier: OracleTier) -> None:
        runs = bool(tier.v) and not tier.paused and not self.paused
        tier.since = None if not runs else self.now if tier.since is None else tier.since

    def place(self, tenant: str) -> None:
        self.tenants[tenant].held_until = self.hold_of(tenant)
        self.seat(tenant)

    def charge_rates(self, name: str, requests: int, tokens: int) -> None:
        tenant, limits, now_us = self.tenants[name], self.tenants[name].limits, self.now * 1000
        if rpm := limits.requests_per_minute:
            tenant.requests_at = max(tenant.requests_at, now_us) + math.floor(requests * 60 * MILLION / rpm)
        if tpm := limits.tokens_per_minute:
            tenant.tokens_at = max(tenant.tokens_at, now_us) + math.floor(tokens * 60 * MILLION / tpm)

    def correct(self, job: OracleJob, by: int) -> None:
        tier = self.tiers[job.tier]
        if by and job.tenant in tier.v:
            tier.v[job.tenant] += by
        elif by and (job.tenant in tier.left or by > 0):
            tier.left[job.tenant] = tier.left.get(job.tenant, self.start(job.tier, 0)) + by

    # --- acts ---------------------------------------------------------------------------------------------------------

    def submit(self, name: str, job: OracleJob) -> str:
        tenant = self.tenants.setdefault(job.tenant, OracleTenant())
        most = tenant.limits.max_waiting
        if self.waiting() >= self.policy.max_waiting_pool:
            return "full"
        if self.waiting(job.tenant) >= (self.policy.max_waiting_tenant if most is None else most):
            return "full"
        self.seq += 1
        job.seq = self.seq
        self.jobs[name] = job
        self.seat(job.tenant)
        return job.state

    def limit(self, backend: OracleBackend, tier: str) -> int:
        if backend.status != "up":
            return 0
        gate = backend.gates.get(tier, TierGate(1, 1))
        return gate.fallback if self.now - backend.fresh_at > self.policy.stale_ms else gate.limit

    def open_backend(self, tier: str) -> str | None:
        room = {n: self.limit(b, tier) - self.inflight(backend=n) for n, b in sorted(self.backends.items())}
        best = max(room, key=lambda name: room[name], default=None)
        return best if best is not None and room[best] > 0 else None

    def not_ahead(self, time: int) -> int:
        """After the clock was set back, a time that is still to come counts as now."""
        return self.now if time > self.now + 1000 else time

    def turns(self) -> Iterator[tuple[str, str]]:
        """The tier and backend of each pop of one acquire, as long as there are any."""
        names, served, shut = list(self.tiers), set[str](), set[str]()
        for tier in self.tiers.values():
            if tier.since is not None:
                tier.since = self.not_ahead(tier.since)
        while True:
            waits = {n: self.now - t.since for n, t in self.tiers.items() if t.since is not None and n not in served}
            arrears = [n for n in waits if waits[n] >= self.policy.valve_ms]
            last = {n: max(self.now - waits[n], self.not_ahead(self.tiers[n].valved)) for n in arrears}
            late = min(arrears, key=lambda n: last[n], default=None)
            longest = max((waits[n] for n in arrears), default=0)
            share = min(MILLION / 4, MILLION * longest // (16 * self.policy.valve_ms))
            due = self.valve + share if late else 0
            if late and due >= MILLION and (backend := self.open_backend(names[0])):
                self.valve, self.valved_at = due - MILLION, self.now
                self.tiers[late].valved = max(
                    self.now, 1 + max(self.not_ahead(tier.valved) for tier in self.tiers.values())
                )
                yield late, backend
                continue
            for tier in (n for n in names if self.tiers[n].since is not None and n not in shut):
                if backend := self.open_backend(tier):
                    served.add(tier)
                    self.valve = min(due, MILLION)
                    self.tiers[tier].since = self.now
                    yield tier, backend
                    break
                shut.add(tier)
            else:
                if not late or self.now - self.not_ahead(self.valved_at) < self.policy.valve_ms / 16:
                    return
                if not (backend := self.open_backend(names[0])):
                    return
                self.valved_at = self.now
                self.tiers[late].valved = max(
                    self.now, 1 + max(self.not_ahead(tier.valved) for tier in self.tiers.values())
                )
                yield late, backend

    def acquire(self, n: int) -> list[tuple[str, str]]:
        taken: list[tuple[str, str]] = []
        turns = self.turns()
        while len(taken) < n and (turn := next(turns, None)):
            tier, backend = turn
            if job := self.pop(tier, backend):
                taken.append((job, backend))
        return taken

    def pop(self, tier: str, backend: str) -> str | None:
        """The job that is leased; None if it was past its deadline and expired instead."""
        ring = self.tiers[tier]
        tenant = min(ring.v, key=lambda name: (self.score(tier, name), name))
        job = self.line(tier, tenant)[0]
        if job.deadline is not None and job.deadline <= self.now:
            self.finish(job, "expired")
            return None
        job.state, job.backend, job.lease_until = "leased", backend, self.now + self.policy.lease_ms
        job.started = self.now
        job.tries, job.token, job.charged = job.tries + 1, job.token + 1, self.cost(tenant, job.tokens)
        ring.clock = max(ring.clock, ring.v[tenant])
        ring.v[tenant] += job.charged
        if not self.line(tier, tenant):  # it leaves: its turn moves the clock by its share
            ring.clock += job.charged // len(ring.v)
        self.charge_rates(tenant, 1, job.input + job.output)
        self.place(tenant)
        return job.name

    def end_lease(
        self, job: OracleJob, *, usage: tuple[int, int] | None = None, refund: bool = False, told: bool = False
    ) -> None:
        """`told`: what was charged at the pop stays if no usage is reported."""
        if not usage and not refund and not told and job.tier in self.work:
            self.charge_time(job)
        if usage:
            if self.policy.fairness == "tokens":
                self.correct(job, self.cost(job.tenant, usage[0] + 2 * usage[1]) - job.charged)
            self.charge_rates(job.tenant, 0, sum(usage) - job.input - job.output)
        if refund:
            self.correct(job, -job.charged)
            self.charge_rates(job.tenant, -1, -(job.input + job.output))
        job.lease_until = None
        self.place(job.tenant)

    def charge_time(self, job: OracleJob) -> None:
        """Nobody said what it used: what its tier's jobs use in the time that it ran."""
        _, _, ms, work = self.work[job.tier]
        used = min(16 * max(1, job.tokens), math.floor(max(0, self.now - job.started) * work / ms))
        if self.policy.fairness == "tokens":
            self.correct(job, self.cost(job.tenant, used) - job.charged)
        if job.tokens:
            self.charge_rates(job.tenant, 0, math.floor((used / job.tokens - 1) * (job.input + job.output)))

    def wait_again(self, job: OracleJob, due: int | None = None) -> str:
        job.state, job.due = ("queued", job.due) if due is None else ("delayed", due)
        self.seat(job.tenant)
        return job.state

    def settle(self, job: OracleJob, state: str, usage: tuple[int, int] | None) -> str:
        self.end_lease(job, usage=usage, told=state == "succeeded")
        if state == "succeeded":
            self.learn(job, usage)
        if job.state == "leased":
            job.state = state
        return job.state

    def retry(self, job: OracleJob, delay: int, usage: tuple[int, int] | None) -> str:
        self.end_lease(job, usage=usage)
        if job.state != "leased":
            return job.state
        if job.tries >= job.most:
            job.state, job.dead = "failed", True
            return "failed"
        return self.wait_again(job, self.now + delay if delay else None)

    def release(self, job: OracleJob) -> str:
        if job.state != "leased":
            self.end_lease(job)
            return job.state
        self.end_lease(job, refund=True)
        job.tries -= 1
        return self.wait_again(job)

    def finish(self, job: OracleJob, state: str) -> str:
        """Cancel or expiry: of a leased job the outcome is written, its lease stays."""
        if job.state in ("queued", "delayed", "leased"):
            job.state = state
            self.seat(job.tenant)
        return job.state

    def sweep(self) -> None:
        jobs = self.jobs
        for id_ in self.past({id_: job.lease_until for id_, job in jobs.items()}):
            self.lose(jobs[id_])
        for id_ in self.past({id_: job.deadline for id_, job in jobs.items() if job.state != "leased"}):
            self.finish(jobs[id_], "expired")
        for id_ in self.past({id_: job.due for id_, job in jobs.items() if job.state == "delayed"}):
            self.wait_again(jobs[id_])
        for name in self.past({name: tenant.held_until for name, tenant in self.tenants.items()}):
            self.place(name)

    def past(self, times: Mapping[str, float | None]) -> list[str]:
        """Whose time has come, in its order; of the same time, in the order of their names."""
        return [
            name for at, name in sorted((at, name) for name, at in times.items() if at is not None) if at <= self.now
        ]

    def lose(self, job: OracleJob) -> None:
        self.end_lease(job, told=True)
        if job.state != "leased":
            return
        job.token += 1
        if job.tries >= job.most:
            job.state, job.dead = "failed", True
        elif job.deadline is not None and job.deadline <= self.now:
            job.state = "expired"
        else:
            self.wait_again(job)

    def retier(self, job: OracleJob, tier: str) -> bool:
        if job.state not in ("queued", "delayed"):
            return False
        job.tier = tier
        self.seat(job.tenant)
        return True

    def requeue(self, job: OracleJob) -> bool:
        if not job.dead:
            return False
        self.seq += 1
        job.seq, job.at, job.tries, job.dead, job.deadline = self.seq, self.now, 0, False, None
        self.wait_again(job)
        return True

    def set_limits(self, tenant: str, limits: Limits) -> None:
        self.tenants.setdefault(tenant, OracleTenant()).limits = limits
        self.place(tenant)

    def pause_tenant(self, tenant: str, paused: bool) -> None:
        self.tenants.setdefault(tenant, OracleTenant()).paused = paused
        self.place(tenant)

    def pause(self, tier: str | None, paused: bool) -> None:
        if tier is None:
            self.paused = paused
        else:
            self.tiers[tier].paused = paused
        for each in self.tiers.values():
            self.start_wait(each)
