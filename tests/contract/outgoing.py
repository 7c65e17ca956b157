"""For tests of deliveries: endpoints, things to send there, and a courier whose attempts come out as told."""

from __future__ import annotations

from itertools import count

from fairlane.clock import ManualClock
from fairlane.queue.engine import Queue
from fairlane.safe_url import Guard
from fairlane.webhooks.deliveries import Deliveries
from fairlane.webhooks.delivery import Disabled, LaneRules, NewDelivery, Outcome, Own, Try
from fairlane.webhooks.endpoints import Webhooks
from fairlane.webhooks.outbox import Outbox
from fairlane.webhooks.values import Endpoint

LEASE_MS = 30_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
Taken = tuple[str, int]

ARRIVED = Outcome(Try(0, 5, 200, None, "ok"), "delivered")
GONE = Outcome(Try(0, 5, 410, "answered 410"), "gone")
BUSY = Outcome(Try(0, 5, 429, "answered 429"), "again", delay_ms=1, slow=True)


def broke(delay_ms: int = 5_000, *, pause_ms: int = 0, excerpt: str = "") -> Outcome:
    """An attempt that failed, after which there is another one."""
    return Outcome(Try(0, 5, 500, "answered 500", excerpt), "again", delay_ms=delay_ms, pause_ms=pause_ms)


def exhausted() -> Outcome:
    """An attempt that failed, after which there is none."""
    return Outcome(Try(0, 5, None, "connection refused"), "failed", reason="exhausted")


class Outgoing:
    """What is on its way out, of one tenant if nothing else is said."""

    def __init__(self, queue: Queue, clock: ManualClock, rules: LaneRules | None = None) -> None:
        self.clock = clock
        self.outbox = Outbox(queue.store, rules or LaneRules())
        self.webhooks = Webhooks(queue, Guard.of("", "443"))
        self.deliveries = Deliveries(queue)
        self._numbers = count()

    async def endpoint(self, tenant: str = "ann") -> Endpoint:
        self.clock.advance(1)  # so that their ids are in order
        endpoint, _ = await self.webhooks.create(tenant, f"https://example.com/{next(self._numbers)}")
        return endpoint

    async def add(self, to: Endpoint | str, n: int = 1, tenant: str = "ann", payload: bytes = b"{}") -> list[str]:
        """`to`: an endpoint, or the lane of own hooks."""
        new = [self.new(to, f"msg_{next(self._numbers):06}", tenant, payload) for _ in range(n)]
        assert await self.outbox.add(new) == n
        return [one.id for one in new]

    def new(self, to: Endpoint | str, id_: str, tenant: str = "ann", payload: bytes = b"{}") -> NewDelivery:
        if isinstance(to, Endpoint):
            return NewDelivery(id_, to.tenant, to.id, to.id, None, "job.succeeded", "job_1", payload)
        own = Own("https://example.com/own", "whsec_own", {"x-a": "1"})
        return NewDelivery(id_, tenant, to, None, own, "job.succeeded", "job_1", payload)

    async def take(self, most: int = 100) -> list[Taken]:
        return await self.outbox.take(most, LEASE_MS)

    async def attempt(self, taken: Taken, outcome: Outcome = ARRIVED) -> Disabled | None:
        """Sends and settles one that was given out."""
        assert await self.outbox.begin(*taken, LEASE_MS)
        return await self.outbox.settle(*taken, outcome)

    async def round(self, outcome: Outcome = ARRIVED, most: int = 100) -> list[str]:
        """Everything that `take` gives out now comes out like this; their ids."""
        taken = await self.take(most)
        for one in taken:
            await self.attempt(one, outcome)
        return [id_ for id_, _ in taken]

    async def state(self, id_: str, tenant: str = "ann") -> str:
        """Its state, and the reason if it failed."""
        delivery = await self.deliveries.get(tenant, id_)
        return f"{delivery.state} {delivery.reason}" if delivery.reason else delivery.state
