"""What deliveries and their lanes should come to, in plain Python, with no order but the one that is promised."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlane.webhooks.delivery import LaneRules, Outcome
from tests.contract.outgoing import DAY_MS, LEASE_MS, Taken

OLDEST_MS = 4 * DAY_MS


@dataclass
class OracleDelivery:
    lane: str
    since: int
    next: int
    state: str = "pending"
    reason: str | None = None
    n: int = 0
    tries: int = 0
    token: int = 0
    lease_end: int | None = None  # it is out, as far as its lane knows
    resent: bool = False
    unsure: bool = False  # its lease was lost, and a call that was full may not have come to look at its lane


@dataclass
class OracleLane:
    fails: int = 0
    shut: int | None = None
    shut_ms: int = 0
    pause: int = 0
    limit: int = 0
    good: int = 0
    barred: str | None = None  # disabled | deleted
    failing_since: int | None = None

    def is_open(self, now: int) -> bool:
        return max(self.shut or 0, self.pause) <= now

    @property
    def most(self) -> int:
        return 1 if self.shut is not None else self.limit


@dataclass
class Oracle:
    rules: LaneRules
    endpoints: set[str]
    deliveries: dict[str, OracleDelivery] = field(default_factory=dict[str, OracleDelivery])
    lanes: dict[str, OracleLane] = field(default_factory=dict[str, OracleLane])

    def lane(self, name: str) -> OracleLane:
        return self.lanes.setdefault(name, OracleLane(limit=self.rules.concurrency))

    def forget_ills(self, name: str) -> None:
        """Its receiver was seen to."""
        lane = self.lane(name)
        lane.fails, lane.shut, lane.pause, lane.limit, lane.good = 0, None, 0, self.rules.concurrency, 0

    def add(self, id_: str, lane: str, now: int) -> bool:
        if id_ in self.deliveries:
            return False
        self.lane(lane)
        self.deliveries[id_] = OracleDelivery(lane, now, now)
        return True

    def end(self, id_: str, state: str, reason: str | None = None) -> None:
        one = self.deliveries[id_]
        one.state, one.reason, one.lease_end = state, reason, None

    # --- take ---------------------------------------------------------------------------------------------------------

    def fail_old(self, now: int) -> None:
        for id_, one in self.deliveries.items():
            out = one.lease_end is not None and one.lease_end > now
            if one.state == "pending" and now >= one.since + OLDEST_MS and not out:
                self.end(id_, "failed", "too_old")

    def out(self, lane: str) -> list[OracleDelivery]:
        return [one for one in self.deliveries.values() if one.lane == lane and one.lease_end is not None]

    def due(self, lane: str, now: int) -> list[str]:
        found = [
            (one.next, id_)
            for id_, one in self.deliveries.items()
            if one.lane == lane and one.state == "pending" and one.lease_end is None and one.next <= now
        ]
        return [id_ for _, id_ in sorted(found)]

    def may_give(self, lane: str, now: int) -> list[str]:
        """What may be given out of it, in order, when everything is looked at."""
        state = self.lane(lane)
        if state.barred or not state.is_open(now):
            return []
        return self.due(lane, now)[: max(state.most - len(self.out(lane)), 0)]

    def check_take(self, taken: list[Taken], most: int, now: int) -> None:
        """Fails if that is not what was to be given out; then notes it."""
        self._take_back(taken, most, now)
        able = {name: self.may_give(name, now) for name in self.lanes}
        given: dict[str, list[str]] = {name: [] for name in self.lanes}
        for id_, token in taken:
            one = self.deliveries[id_]
            assert token == one.token + 1, "the token grows by one each time"
            given[one.lane].append(id_)
            one.token, one.resent = token, False
        assert len(taken) == min(most, sum(map(len, able.values()))), (able, given)
        for name, ids in given.items():
            assert ids == able[name][: len(ids)], f"the oldest first in {name}"
        turns = max(map(len, given.values()), default=0)
        for name, ids in given.items():
            assert len(ids) == len(able[name]) or len(ids) >= turns - 1, f"its turn was passed over: {name}"
        for id_, _ in taken:
            self.deliveries[id_].lease_end = now + LEASE_MS

    def _take_back(self, taken: list[Taken], most: int, now: int) -> None:
        """Lost leases, of lanes that were looked at."""
        seen = {self.deliveries[id_].lane for id_, _ in taken}
        for one in self.deliveries.values():
            if one.lease_end is not None and one.lease_end <= now:
                one.lease_end, one.unsure = None, True
            one.unsure = one.unsure and len(taken) == most and one.lane not in seen

    # --- settle -------------------------------------------------------------------------------------------------------

    def holds(self, taken: Taken) -> bool:
        one = self.deliveries[taken[0]]
        return one.token == taken[1] and one.lease_end is not None

    def settle(self, id_: str, outcome: Outcome, now: int) -> str | None:
        """Why its endpoint is disabled by this."""
        one, verdict, delay_ms = self.deliveries[id_], outcome.verdict, outcome.delay_ms
        said = self._at_endpoint(one.lane, verdict, now)
        self._at_lane(self.lane(one.lane), outcome, now)
        one.n, one.tries, one.lease_end = one.n + 1, one.tries + 1, None
        if verdict == "failed" and one.resent:
            verdict, delay_ms = "again", 0
        one.resent = False
        if verdict == "again" and now + delay_ms < one.since + OLDEST_MS:
            one.next = now + delay_ms
        elif verdict == "delivered":
            self.end(id_, "delivered")
        else:
            self.end(id_, "failed", {"again": "too_old", "gone": "gone"}.get(verdict, outcome.reason))
        return said

    def _at_lane(self, lane: OracleLane, outcome: Outcome, now: int) -> None:
        if outcome.verdict == "delivered":
            lane.fails, lane.shut = 0, None
            if lane.limit < self.rules.concurrency:
                lane.good += 1
                if lane.good == 10:
                    lane.limit, lane.good = lane.limit + 1, 0
        elif outcome.verdict != "gone":
            lane.fails += 1
            if lane.shut is None and lane.fails >= 5:
                lane.shut_ms = self.rules.breaker_ms
                lane.shut = now + lane.shut_ms
            elif lane.shut is not None and lane.shut <= now:
                lane.shut_ms = min(2 * lane.shut_ms, 20 * self.rules.breaker_ms)
                lane.shut = now + lane.shut_ms
        if outcome.slow:
            lane.limit, lane.good = max(1, lane.limit // 2), 0
        if outcome.pause_ms:
            lane.pause = max(lane.pause, now + min(outcome.pause_ms, 3_600_000))

    def _at_endpoint(self, name: str, verdict: str, now: int) -> str | None:
        lane = self.lane(name)
        if name not in self.endpoints or lane.barred == "deleted":
            return None
        if verdict == "delivered":
            lane.failing_since = None
            return None
        if lane.failing_since is None:
            lane.failing_since = now
        late = now - lane.failing_since >= self.rules.disable_after_ms
        if lane.barred or not (verdict == "gone" or late):
            return None
        lane.barred = "disabled"
        return "gone" if verdict == "gone" else "failing"
