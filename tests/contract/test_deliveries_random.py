"""Random lives of deliveries, step by step against the oracle: couriers that die at each step, answer late and twice,
receivers that fail, slow down, pause and go, endpoints that are disabled and deleted, and time that passes."""

from __future__ import annotations

import random

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, LeaseLost
from fairlane.queue.engine import Queue
from fairlane.webhooks.delivery import LaneRules, Outcome, Try
from tests.contract.lane_oracle import Oracle
from tests.contract.outgoing import DAY_MS, HOUR_MS, LEASE_MS, Outgoing, Taken

RULES = LaneRules(concurrency=4, breaker_ms=10_000, disable_after_ms=12 * HOUR_MS)
STEPS = 150
PASSES_MS = (0, 1, 500, 5_000, 10_000, 20_000, LEASE_MS - 1, LEASE_MS, 5 * 60_000, HOUR_MS, 6 * HOUR_MS)


class Life:
    """One run. What was given out is in `held`, by whoever was given it, for as long as it remembers."""

    def __init__(self, out: Outgoing, seed: int) -> None:
        self.out = out
        self.dice = random.Random(seed)
        self.endpoints: list[str] = []
        self.oracle = Oracle(RULES, set())
        self.held: list[Taken] = []
        self.made = 0

    @property
    def now(self) -> int:
        return self.out.clock.now_ms()

    async def open(self) -> None:
        self.by_id = {one.id: one for one in [await self.out.endpoint() for _ in range(3)]}
        self.endpoints = list(self.by_id)
        self.oracle.endpoints = set(self.endpoints)
        for name in (*self.endpoints, "adhoc_1"):
            self.oracle.lane(name)

    async def step(self) -> None:
        acts = [self.add, self.take, self.settle, self.crash, self.pass_time, self.resend, self.steer, self.recover]
        (act,) = self.dice.choices(acts, [6, 8, 14, 1, 5, 1, 0.6, 0.3])
        await act()

    # --- acts ---------------------------------------------------------------------------------------------------------

    async def add(self) -> None:
        lane = self.dice.choice([*self.endpoints, "adhoc_1"])
        ids = [f"msg_{self.made + n}" for n in range(self.dice.choice([1, 2, 8]))]
        ids.append(f"msg_{self.dice.randint(0, self.made)}")  # most likely not for the first time
        self.made += len(ids)
        new = [self.out.new(self.by_id.get(lane, lane), id_) for id_ in dict.fromkeys(ids)]
        expected = sum(self.oracle.add(one.id, lane, self.now) for one in new)
        assert await self.out.outbox.add(new) == expected

    async def take(self) -> None:
        most = self.dice.choice([1, 3, 100])
        self.oracle.fail_old(self.now)
        taken = await self.out.take(most)
        self.oracle.check_take(taken, most, self.now)
        for name in self.endpoints:
            await self.learn_of_barred(name)
        self.held += taken

    async def learn_of_barred(self, name: str) -> None:
        """Of a lane that nothing goes to, what is due fails when the lane is looked at: that may be later."""
        barred = self.oracle.lane(name).barred
        for id_ in self.oracle.due(name, self.now) if barred else ():
            state = await self.out.state(id_)
            assert state in ("pending", f"failed {barred}")
            if state != "pending":
                self.oracle.end(id_, "failed", barred)

    async def settle(self) -> None:
        """Of one that was given out some time: this may come late, or twice."""
        if not self.held:
            return
        at = self.dice.randrange(len(self.held))
        taken = self.held[at]
        if self.dice.random() < 0.9:
            del self.held[at]
        if self.oracle.deliveries[taken[0]].unsure:
            return
        mine = self.oracle.holds(taken)
        barred = self.oracle.lane(self.oracle.deliveries[taken[0]].lane).barred
        if self.dice.random() < 0.8:
            sending = await self.out.outbox.begin(*taken, LEASE_MS)
            assert (sending is not None) == (mine and not barred)
            if sending:
                assert sending.n == self.oracle.deliveries[taken[0]].n + 1
                self.oracle.deliveries[taken[0]].lease_end = self.now + LEASE_MS
            elif mine:
                self.oracle.end(taken[0], "failed", barred)
                mine = False
        if mine:
            outcome = self.outcome()
            expected = self.oracle.settle(taken[0], outcome, self.now)
            for _ in range(self.dice.choice([1, 2])):
                assert await self.out.outbox.settle(*taken, outcome) == expected
        elif not await self.was_settled(taken):
            with pytest.raises(LeaseLost):
                await self.out.outbox.settle(*taken, self.outcome())

    async def was_settled(self, taken: Taken) -> bool:
        """By the same holder: then a second settle changes nothing, and says what the first one said."""
        before = await self.out.deliveries.get("ann", taken[0])
        try:
            await self.out.outbox.settle(*taken, self.outcome())
        except LeaseLost:
            return False
        finally:
            assert await self.out.deliveries.get("ann", taken[0]) == before
        return True

    def outcome(self) -> Outcome:
        attempt = Try(self.now, 5, 200, None, "x")
        kind = self.dice.choices(["delivered", "again", "failed", "gone"], [8, 9, 2, 0.3])[0]
        delay_ms = self.dice.choice([0, 5_000, HOUR_MS, DAY_MS])
        slow, pause_ms = self.dice.random() < 0.2, self.dice.choice([0, 0, 0, 20_000, 3 * HOUR_MS])
        match kind:
            case "again":
                return Outcome(attempt, "again", delay_ms, slow=slow, pause_ms=pause_ms)
            case "failed":
                return Outcome(attempt, "failed", reason="exhausted", slow=slow)
            case "gone":
                return Outcome(attempt, "gone")
            case _:
                return Outcome(attempt, "delivered")

    async def crash(self) -> None:
        self.held.clear()

    async def pass_time(self) -> None:
        self.out.clock.advance(self.dice.choice(PASSES_MS))

    async def resend(self) -> None:
        if not self.oracle.deliveries:
            return
        id_ = self.dice.choice(list(self.oracle.deliveries))
        one = self.oracle.deliveries[id_]
        if one.unsure:
            return
        if self.oracle.lane(one.lane).barred:
            with pytest.raises(IllegalTransition):
                await self.out.deliveries.resend("ann", id_)
            return
        await self.out.deliveries.resend("ann", id_)
        self.restart(id_)

    async def recover(self) -> None:
        name = self.dice.choice(self.endpoints)
        if self.oracle.lane(name).barred:
            return
        failed = [i for i, one in self.oracle.deliveries.items() if one.lane == name and one.state == "failed"]
        count, cursor = await self.out.deliveries.recover("ann", name, 0)
        assert (count, cursor) == (len(failed), None)
        for id_ in failed:
            self.restart(id_)

    def restart(self, id_: str) -> None:
        one = self.oracle.deliveries[id_]
        one.state, one.reason, one.since, one.next, one.n = "pending", None, self.now, self.now, 0
        one.resent = one.lease_end is not None
        self.oracle.forget_ills(one.lane)

    async def steer(self) -> None:
        name = self.dice.choice(self.endpoints)
        lane = self.oracle.lane(name)
        if lane.barred:
            await self.out.webhooks.enable("ann", name)
            lane.barred = lane.failing_since = None
            self.oracle.forget_ills(name)
        else:
            await self.out.webhooks.disable("ann", name)
            lane.barred = "disabled"

    # --- what must hold -----------------------------------------------------------------------------------------------

    async def check(self) -> None:
        for id_, one in self.oracle.deliveries.items():
            delivery = await self.out.deliveries.get("ann", id_)
            assert (delivery.state, delivery.reason, len(delivery.tries)) == (one.state, one.reason, min(one.tries, 30))
            assert delivery.next_at_ms == (one.next if one.state == "pending" else None)
        pending = sum(one.state == "pending" for one in self.oracle.deliveries.values())
        assert (await self.out.outbox.counts()).pending == pending

    async def drain(self) -> None:
        """With receivers that take everything, all that is left arrives, or fails with its endpoint."""
        self.held.clear()
        while any(one.state == "pending" for one in self.oracle.deliveries.values()):
            self.out.clock.advance(4 * HOUR_MS)
            self.oracle.fail_old(self.now)
            taken = await self.out.take()
            self.oracle.check_take(taken, 100, self.now)
            for one in taken:
                outcome = Outcome(Try(self.now, 5, 200, None), "delivered")
                self.oracle.settle(one[0], outcome, self.now)
                await self.out.outbox.settle(*one, outcome)
            for name in self.endpoints:
                await self.learn_of_barred(name)
        assert (await self.out.outbox.counts()).pending == 0


@pytest.mark.parametrize("seed", range(3))
async def test_deliveries_fare_as_the_oracle_says(queue: Queue, clock: ManualClock, seed: int) -> None:
    life = Life(Outgoing(queue, clock, RULES), seed)
    await life.open()
    for _ in range(STEPS):
        await life.step()
    await life.check()
    await life.drain()
    await life.check()
