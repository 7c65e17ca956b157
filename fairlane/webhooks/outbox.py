"""Deliveries as the dispatcher sees them: added once, given out when they are due, settled by who holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, cast

from fairlane.errors import LeaseLost
from fairlane.queue import keys, replies
from fairlane.queue.store import Store
from fairlane.webhooks import values
from fairlane.webhooks.delivery import (
    EXCERPT_MOST,
    Counts,
    Disabled,
    LaneRules,
    NewDelivery,
    Outcome,
    Sending,
    cut,
    packed_try,
)
from fairlane.webhooks.values import Endpoint

CALL_DELIVERIES: Final = 100  # added by one script
CALL_BYTES: Final = 4 << 20  # of payloads in it
TAKE_MOST: Final = 500
RULES: Final = LaneRules()


class Outbox:
    """A lane is an endpoint, or the origin of a tenant's own hooks. No lane has to wait for another one."""

    def __init__(self, store: Store, rules: LaneRules = RULES) -> None:
        self._store = store
        self._rules = rules
        self._prefix = keys.prefix(store.namespace, keys.ACCOUNT)

    async def add(self, new: Sequence[NewDelivery]) -> int:
        """Queues deliveries, due now; says how many are new. One that is there already is left as it is."""
        added = 0
        for part in _calls(new):
            args = [word for one in part for word in _packed(one)]
            added += replies.number(await self._store.run("add_deliveries", self._prefix, *args))
        return added

    async def take(self, most: int, lease_ms: int) -> list[tuple[str, int]]:
        """Up to `most` (at the most TAKE_MOST) deliveries that are due, as (id, token): one of each lane in turn, the
        lane first that has waited longest. They are nobody else's for `lease_ms`."""
        args = (str(min(most, TAKE_MOST)), str(lease_ms), str(self._rules.concurrency))
        # repeated, it would leave what the lost reply had given out until its lease ends: no harm, so it may be
        reply = replies.texts(await self._store.run("take_deliveries", self._prefix, *args))
        return [(id_, int(token)) for id_, token in zip(reply[::2], reply[1::2], strict=True)]

    async def begin(self, delivery_id: str, token: int, lease_ms: int) -> Sending | None:
        """What to send, and `lease_ms` from now to do it; None if it is not to be sent (by whoever has this token)."""
        args = (delivery_id, str(token), str(lease_ms), str(self._rules.concurrency))
        reply = replies.items(await self._store.run("begin_delivery", self._prefix, *args))
        if not reply:
            return None
        tenant, endpoint, url, headers, payload, n, created, *secrets = cast("list[bytes]", reply)
        return Sending(
            id=delivery_id,
            tenant=tenant.decode(),
            url=url.decode(),
            headers=json.loads(headers),
            secrets=tuple(secret.decode() for secret in secrets) or (await self._default_secret(tenant.decode()),),
            payload=payload,
            n=int(n),
            created_at_ms=int(created),
            endpoint_id=endpoint.decode() or None,
        )

    async def settle(self, delivery_id: str, token: int, outcome: Outcome) -> Disabled | None:
        """Notes what came of an attempt; says why its endpoint was disabled by that, if it was. Safe to repeat.

        Raises LeaseLost if somebody else has the delivery now.
        """
        rules, attempt = self._rules, outcome.attempt
        reply = await self._store.run(
            "settle_delivery", self._prefix, delivery_id, str(token), outcome.verdict, str(max(outcome.delay_ms, 0)),
            outcome.reason, "1" if outcome.slow else "", str(max(outcome.pause_ms, 0)),
            "" if attempt.status is None else str(attempt.status), packed_try(attempt),
            cut(attempt.excerpt, EXCERPT_MOST), str(rules.concurrency), str(rules.breaker_ms),
            str(rules.disable_after_ms), str(rules.keep_ms),
        )  # fmt: skip
        if reply is None:
            raise LeaseLost("This delivery has been given out again, or is settled.")
        return cast("Disabled | None", replies.text(reply) or None)

    async def waiting(self) -> int:
        """How many deliveries `take` could give out now, counted up to a bound."""
        return (await self.counts()).due

    async def counts(self) -> Counts:
        return Counts(*map(replies.number, replies.items(await self._store.run("count_deliveries", self._prefix))))

    # --- what deliveries are made from --------------------------------------------------------------------------------

    async def endpoints_for(self, tenant: str, event: str) -> list[Endpoint]:
        """The tenant's enabled endpoints that want events of this type."""
        return [endpoint for endpoint in await self.enabled_endpoints(tenant) if endpoint.wants(event)]

    async def enabled_endpoints(self, tenant: str) -> list[Endpoint]:
        """Those that are sent something."""
        rows = replies.items(await self._store.run("list_endpoints", self._prefix, tenant))
        found: list[Endpoint] = []
        for id_, fields in map(replies.items, rows):
            endpoint = values.endpoint(replies.text(id_), dict(replies.pairs(replies.items(fields))))
            if endpoint.enabled:
                found.append(endpoint)
        return found

    async def batch_events(self, most: int) -> list[tuple[str, int]]:
        """Batches that have ended and whose event was not fanned out, as (id, when in ms), the oldest first."""
        key = keys.account(self._store.namespace, "batch_events")
        rows = await self._store.bounded(self._store.client.zrange(key, 0, most - 1, withscores=True))
        return [(id_.decode(), round(score)) for id_, score in rows]

    async def done_batch(self, batch_id: str) -> None:
        """Its event was fanned out."""
        await self._store.run("forget_batch_event", self._prefix, batch_id)

    async def _default_secret(self, tenant: str) -> str:
        args = (tenant, values.DEFAULT, values.new_secret())
        return replies.text(await self._store.run("signing_secret", self._prefix, *args))


def _calls(new: Sequence[NewDelivery]) -> Iterator[list[NewDelivery]]:
    """In parts that one script can take."""
    part: list[NewDelivery] = []
    size = 0
    for one in new:
        if part and (len(part) >= CALL_DELIVERIES or size + len(one.payload) > CALL_BYTES):
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one.payload)
    if part:
        yield part


def _packed(one: NewDelivery) -> tuple[str | bytes, ...]:
    own = one.own
    return (
        one.id, one.tenant, one.lane, one.endpoint_id or "", one.event, one.object_id, one.payload,
        own.url if own else "", own.secret or "" if own else "", json.dumps(dict(own.headers)) if own else "",
    )  # fmt: skip
