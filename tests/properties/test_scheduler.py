"""Random lives of two pools, on real servers, step by step against the oracle.

Submits, acquires (with lost replies and dispatchers that crash), outcomes right, late and twice, cancels, pauses,
limits, weights, gates, moves and a clock that jumps both ways. Each acquire must lease exactly the jobs, in exactly the
order, on exactly the backends that the oracle says; after one that left `none`, nothing can run before a wake. At the
end all that Redis holds must be what the oracle says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from fairlane.clock import ManualClock
from fairlane.errors import FairlaneError, IllegalTransition, LeaseLost, QueueFull
from fairlane.ids import SeededIds
from fairlane.model import BackendCounts, JobError, JobSpec, Lease, Limits, Policy, TierGate, Usage
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.properties.oracle import Oracle, OracleBackend, OracleJob, OracleTenant
from tests.properties.snapshot import of_oracle, of_redis
from tests.servers import RedisServer, ValkeyServer, redis_binary, required

T = TypeVar("T")
TIERS = ("priority", "default", "batch")
# Lopsided, so that lines grow long and tenants meet in one ring.
tenants = st.sampled_from(["ann", "ann", "bob", "cem"])
tiers = st.sampled_from(["default", "default", "priority", "batch"])
pools = st.sampled_from([0, 0, 0, 1])
tokens = st.sampled_from([0, 1, 50, 4000])
usages = st.none() | st.tuples(tokens, tokens)
_runs = count()


class SchedulerMachine(RuleBasedStateMachine):
    url = ""

    jobs = Bundle("jobs")
    leases = Bundle("leases")

    @initialize(
        fairness=st.sampled_from(["requests", "tokens"]),
        gamma=st.sampled_from([0.0, 0.05, None]),
        most=st.sampled_from([6, 1000, 1000]),
    )
    def begin(self, fairness: Any, gamma: float | None, most: int) -> None:
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.client = connect(self.url)
        self.queue = Queue(self.client, namespace=f"p{os.getpid()}x{next(_runs)}", clock=self.clock, ids=SeededIds(1))
        policy = Policy(
            tiers=TIERS, fairness=fairness, gamma=gamma, valve_ms=200, lease_ms=5_000, max_waiting_tenant=most
        )
        self.oracles = [Oracle(policy, self.clock.now_ms()) for _ in range(2)]
        self.pools: list[Pool] = []
        self.calls = count(1)
        self.ears: list[Any] = []
        self.left_none = [False, False]
        for name in ("one", "two"):
            self.pools.append(self.do(self.queue.pools.open(name, policy)))
            self.ears.append(Redis.from_url(self.url).pubsub())
            self.ears[-1].subscribe(self.pools[-1].key("wake"))
        for pool in (0, 1):
            for backend in ("b1", "b2"):
                self.do(self.queue.set_backend(self.pools[pool], backend, "add"))
                self.oracles[pool].backends[backend] = OracleBackend()

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(act)

    def where(self, job_id: str) -> tuple[int, OracleJob]:
        (pool,) = (n for n, oracle in enumerate(self.oracles) if job_id in oracle.jobs)
        return pool, self.oracles[pool].jobs[job_id]

    # --- callers ------------------------------------------------------------------------------------------------------

    @rule(
        target=jobs, pool=pools, tenant=tenants, tier=tiers, size=st.tuples(tokens, tokens),
        n=st.sampled_from([1, 2, 4, 12]),
        expected=st.sampled_from([1, 500, 20_000]), delay=st.sampled_from([0, 0, 700]),
        deadline=st.sampled_from([None, None, 400, 6_000]), most=st.integers(1, 3),
    )  # fmt: skip
    def submit(
        self, pool: int, tenant: str, tier: str, size: tuple[int, int], n: int, expected: int, delay: int,
        deadline: int | None, most: int,
    ) -> Any:  # fmt: skip
        spec = JobSpec(
            tenant, tier, b"{}", input_tokens=size[0], output_tokens=size[1], expected_ms=expected, delay_ms=delay,
            deadline_ms=deadline, max_attempts=most,
        )  # fmt: skip
        accepted: list[str] = []
        for answer in self.do(self.queue.submit_many(self.pools[pool], [spec] * n)):
            oracle, name = self.oracles[pool], f"refused{n}"
            if not isinstance(answer, FairlaneError):
                name = answer.id
                accepted.append(name)
            state = "delayed" if delay else "queued"
            job = OracleJob(
                name, tenant, tier, 0, oracle.now, *size, oracle.boost(tenant, tier, size, expected), most, state,
                due=oracle.now + delay if delay else None, deadline=None if deadline is None else oracle.now + deadline,
            )  # fmt: skip
            assert (oracle.submit(name, job) == "full") == isinstance(answer, QueueFull)
        return multiple(*accepted)

    @rule(job=jobs)
    def cancel(self, job: str) -> None:
        pool, known = self.where(job)
        assert self.do(self.queue.cancel(job)) == self.oracles[pool].finish(known, "cancelled")

    @rule(job=jobs)
    def requeue(self, job: str) -> None:
        pool, known = self.where(job)
        if self.oracles[pool].requeue(known):
            assert self.do(self.queue.requeue(job)) == "queued"
        else:
            with pytest.raises(IllegalTransition):
                self.do(self.queue.requeue(job))

    # --- dispatchers --------------------------------------------------------------------------------------------------

    @rule(
        target=leases,
        pool=pools,
        n=st.sampled_from([1, 2, 5, 30]),
        fate=st.sampled_from(["ok", "ok", "reply lost", "crashed"]),
    )
    def acquire(self, pool: int, n: int, fate: str) -> Any:
        call_no = next(self.calls)
        got = self.do(self.queue.acquire(self.pools[pool], "d", call_no, n))
        if fate == "reply lost":
            assert self.do(self.queue.acquire(self.pools[pool], "d", call_no, n)) == got
        assert [(lease.id, lease.backend) for lease in got] == self.oracles[pool].acquire(n)
        runnable = any(tier.since is not None for tier in self.oracles[pool].tiers.values())
        assert got.rest == ("none" if not runnable else "more" if len(got) == n else "shut")
        assert self.told(pool) or not self.left_none[pool] or not got
        self.left_none[pool] = got.rest == "none"
        return multiple(*[(pool, lease) for lease in got] if fate != "crashed" else [])

    def told(self, pool: int) -> bool:
        """Whether a wake was published since we asked last."""
        self.ears[pool].ping()
        kinds = list(iter(lambda: self.ears[pool].get_message(timeout=5)["type"], "pong"))
        return "message" in kinds

    @rule(
        held=consumes(leases) | leases, way=st.sampled_from(["succeeded", "failed"]), usage=usages, twice=st.booleans()
    )
    def settle(self, held: tuple[int, Lease], way: Any, usage: tuple[int, int] | None, twice: bool) -> None:
        pool, lease = held
        job = self.oracles[pool].jobs.get(lease.id)
        act = self.queue.settle(self.pools[pool], lease, way, status=200, usage=Usage(*usage) if usage else None)
        if job and self.holds(job, lease):
            assert self.do(act) == self.oracles[pool].settle(job, way, usage)
            if twice:
                assert self.do(self.queue.settle(self.pools[pool], lease, way)) == job.state
        elif job and job.token == lease.token and job.state in ("succeeded", "failed", "cancelled"):
            assert self.do(act) == job.state  # settled by this very lease before: nothing changes
        else:
            with pytest.raises(LeaseLost):
                self.do(act)

    @rule(held=leases, delay=st.sampled_from([0, 900]), usage=usages)
    def retry(self, held: tuple[int, Lease], delay: int, usage: tuple[int, int] | None) -> None:
        pool, lease = held
        reported = Usage(*usage) if usage else None
        act = self.queue.retry(self.pools[pool], lease, JobError("e", "m", 500), delay_ms=delay, usage=reported)
        self.end(held, act, lambda job: self.oracles[pool].retry(job, delay, usage))

    @rule(held=leases)
    def release(self, held: tuple[int, Lease]) -> None:
        pool, lease = held
        self.end(held, self.queue.release(self.pools[pool], lease), self.oracles[pool].release)

    @rule(held=leases)
    def renew(self, held: tuple[int, Lease]) -> None:
        pool, lease = held
        job = self.oracles[pool].jobs.get(lease.id)
        (word,) = self.do(self.queue.renew(self.pools[pool], [lease]))
        if job is None or not self.holds(job, lease):
            assert word == "lost"
        elif job.state != "leased":
            assert word == "cancelled"
        else:
            assert word == "ok"
            job.lease_until = self.oracles[pool].now + 5_000

    def end(self, held: tuple[int, Lease], act: Coroutine[Any, Any, str], expected: Any) -> None:
        job = self.oracles[held[0]].jobs.get(held[1].id)
        if job and self.holds(job, held[1]):
            assert self.do(act) == expected(job)
        elif job and job.token == held[1].token:
            assert self.do(act) == job.state  # its own holder ended this lease before: nothing changes
        else:
            with pytest.raises(LeaseLost):
                self.do(act)

    @staticmethod
    def holds(job: OracleJob, lease: Lease) -> bool:
        return job.token == lease.token and job.lease_until is not None

    # --- time and operators -------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 150, 600, 2_500, 6_000, 40_000, -3_000]))
    def clock_jumps(self, ms: int) -> None:
        self.clock.advance(ms)
        for oracle in self.oracles:
            oracle.now = self.clock.now_ms()

    @rule(pool=pools)
    def sweep(self, pool: int) -> None:
        self.do(self.queue.sweep(self.pools[pool]))
        self.oracles[pool].sweep()

    @rule(
        pool=pools,
        backend=st.sampled_from(["b1", "b2"]),
        limits=st.lists(st.sampled_from([0, 1, 3, 6, 40]), min_size=3, max_size=3),
    )
    def observe(self, pool: int, backend: str, limits: list[int]) -> None:
        gates = {tier: TierGate(limit, limit // 2) for tier, limit in zip(TIERS, limits, strict=True)}
        self.do(self.queue.observe(self.pools[pool], backend, gates, counted=BackendCounts(0, 0, 0)))
        known = self.oracles[pool].backends[backend]
        known.gates, known.fresh_at = gates, self.oracles[pool].now
        known.status = "up" if known.status == "down" else known.status

    @rule(pool=pools, act=st.sampled_from(["drain", "undrain", "down"]))
    def change_backend(self, pool: int, act: Any) -> None:
        self.do(self.queue.set_backend(self.pools[pool], "b1", act))
        known = self.oracles[pool].backends["b1"]
        if act != "down" or known.status == "up":
            known.status = {"drain": "draining", "undrain": "up", "down": "down"}[act]

    @rule(
        pool=pools, tenant=tenants, weight=st.sampled_from([0.5, 1.0, 3.0]), inflight=st.sampled_from([None, 1, 1, 2]),
        rpm=st.sampled_from([None, 30, 600]), tpm=st.sampled_from([None, 6_000]),
    )  # fmt: skip
    def set_limits(
        self, pool: int, tenant: str, weight: float, inflight: int | None, rpm: int | None, tpm: int | None
    ) -> None:
        limits = Limits(weight, inflight, rpm, tpm)
        self.do(self.queue.set_limits(self.pools[pool], tenant, limits))
        self.oracles[pool].set_limits(tenant, limits)

    @rule(pool=pools, tenant=tenants, pause=st.booleans())
    def pause_tenant(self, pool: int, tenant: str, pause: bool) -> None:
        self.do((self.queue.pause if pause else self.queue.resume)(self.pools[pool], tenant=tenant))
        self.oracles[pool].pause_tenant(tenant, pause)

    @rule(pool=pools, tier=st.none() | tiers, pause=st.sampled_from([True, False, False]))
    def pause(self, pool: int, tier: str | None, pause: bool) -> None:
        self.do((self.queue.pause if pause else self.queue.resume)(self.pools[pool], tier=tier))
        self.oracles[pool].pause(tier, pause)

    @rule(some=st.lists(jobs, min_size=1, max_size=4, unique=True), tier=tiers)
    def retier(self, some: list[str], tier: str) -> None:
        pool = self.where(some[0])[0]
        here = [job for job in some if self.where(job)[0] == pool]
        answers = self.do(self.queue.retier(self.pools[pool], here, tier))
        for job, answer in zip(here, answers, strict=True):
            assert self.oracles[pool].retier(self.where(job)[1], tier) == (answer is None)

    @rule(job=jobs, to=pools)
    def move(self, job: str, to: int) -> None:
        source, known = self.where(job)
        if source == to or known.state not in ("queued", "delayed"):
            if source != to:
                with pytest.raises(IllegalTransition):
                    self.do(self.queue.move(job, self.pools[to]))
            return
        self.do(self.queue.move(job, self.pools[to]))
        del self.oracles[source].jobs[job]
        self.oracles[source].seat(known.tenant)
        there = self.oracles[to]
        known.places[source] = known.seq
        if to not in known.places:  # else it takes its old place again
            there.seq += 1
        known.seq = known.places.get(to, there.seq)
        there.tenants.setdefault(known.tenant, OracleTenant())
        there.jobs[job] = known
        there.seat(known.tenant)

    # A rule is drawn as often as it has names: most of a life is work, not operators' acts.
    submit_too, acquire_too, acquire_as_well, settle_too, retry_too = submit, acquire, acquire, settle, retry
    sweep_too, sweep_as_well, clock_jumps_too, cancel_too = sweep, sweep, clock_jumps, cancel

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            for pool, oracle in zip(self.pools, self.oracles, strict=True):
                assert self.do(of_redis(self.client, pool)) == of_oracle(oracle)
        finally:
            for ear in self.ears:
                ear.close()
                ear.connection_pool.disconnect()
            self.do(self.queue.close())
            self.runner.close()


def check(url: str, examples: int) -> None:
    machine = type("Machine", (SchedulerMachine,), {"url": url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=80, deadline=None, suppress_health_check=[HealthCheck.too_slow],
            print_blob=True, report_multiple_bugs=False,
        ),
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_valkey_does_what_the_oracle_says() -> None:
    with ValkeyServer() as server:
        check(server.url, int(os.environ.get("FAIRLANE_TEST_EXAMPLES", "100")))


@pytest.mark.timeout(300)
@pytest.mark.skipif(
    redis_binary() is None and not required("redis"),
    reason="redis-server is not installed",
)
def test_redis_does_what_the_oracle_says() -> None:
    with RedisServer() as server:
        check(server.url, int(os.environ.get("FAIRLANE_TEST_EXAMPLES", "30")))
