"""Deliveries as their tenant sees them, or an operator: listed, looked at, sent again."""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection
from typing import Final

from fairlane.errors import IllegalTransition, InvalidRequest, NotFound
from fairlane.queue import keys, replies
from fairlane.queue.engine import Queue
from fairlane.webhooks.delivery import DELIVERY_STATES, Delivery, DeliveryState, delivery

PAGE_MOST: Final = 100
LOOKS_MOST: Final = 10  # calls for one page: a list has 10,000 entries at the most, and one call looks at 1,000
_CURSOR: Final = re.compile(r"([0-9]{1,16})\.([!-~]{1,100})")


class Deliveries:
    """An id that is not the tenant's is NotFound. The lists go back for a week, and 10,000 entries at the most."""

    def __init__(self, queue: Queue) -> None:
        self._store = queue.store
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)

    async def list(
        self,
        tenant: str,
        endpoint: str | None = None,
        state: DeliveryState | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> tuple[list[Delivery], str | None]:
        """A page of deliveries without their payloads, the newest first, and the cursor of the next page, if any.

        Raises InvalidRequest, and NotFound for an endpoint that the tenant has not, and of which nothing is known.
        """
        return await self.find([tenant], endpoint, state, cursor, limit)

    async def find(
        self,
        tenants: Collection[str] | None,
        endpoint: str | None = None,
        state: DeliveryState | None = None,
        cursor: str | None = None,
        limit: int = 20,
        looks: int = LOOKS_MOST,
    ) -> tuple[builtins.list[Delivery], str | None]:
        """As `list`, of these tenants (None: of all). It looks at 1,000 entries, `looks` times, so it may find few,
        though there are more of them."""
        if state is not None and state not in DELIVERY_STATES:
            raise InvalidRequest(f"A delivery is {', '.join(DELIVERY_STATES)}.", param="state")
        if not 1 <= limit <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} deliveries.", param="limit")
        if tenants is not None and not tenants:
            return [], None
        one, several = replies.scope(tenants)
        first, found = cursor is None, builtins.list[Delivery]()
        for _ in range(looks):
            args = (one, endpoint or "", state or "", *_after(cursor), str(limit - len(found)), *several)
            next_, *rows = replies.items(await self._store.run("list_deliveries", self._prefix, *args))
            for id_, fields in map(replies.items, rows):
                found.append(delivery(replies.text(id_), dict(replies.pairs(replies.items(fields)))))
            cursor = replies.text(next_) or None
            if cursor is None or len(found) == limit:
                break
        if endpoint and first and not found and cursor is None:
            await self._check_endpoint(tenants, endpoint)
        return found, cursor

    async def get(self, tenant: str | None, delivery_id: str, *, payload: bool = True) -> Delivery:
        """One delivery with its attempts and, if asked for, its payload. Tenant None: whoever's it is."""
        args = (tenant or "", delivery_id, "1" if payload else "")
        reply = await self._store.run("get_delivery", self._prefix, *args)
        if reply is None:
            raise _unknown(delivery_id)
        return delivery(delivery_id, dict(replies.pairs(replies.items(reply))))

    async def resend(self, tenant: str, delivery_id: str) -> Delivery:
        """Sends it again, whatever became of it: now, by a fresh schedule, under the same id.

        Raises IllegalTransition if its endpoint is disabled or deleted.
        """
        reply = await self._store.run("resend_delivery", self._prefix, tenant, delivery_id)
        if reply is None:
            raise _unknown(delivery_id)
        _check(replies.text(reply))
        return await self.get(tenant, delivery_id)

    async def recover(
        self, tenant: str, endpoint_id: str, since_ms: int, cursor: str | None = None
    ) -> tuple[int, str | None]:
        """Sends again what was made since then and has failed: some of it, the oldest first. Returns how many these
        are, and the cursor to go on with; None: that was all.

        Raises NotFound, InvalidRequest, and IllegalTransition if the endpoint is disabled.
        """
        after = _after(cursor)
        args = (tenant, endpoint_id, str(max(since_ms, 0)), *after)
        reply = await self._store.run("recover_deliveries", self._prefix, *args)
        if reply is None:
            raise NotFound(f"There is no webhook endpoint {endpoint_id[:100]!r}.")
        barred, count, next_ = replies.items(reply)
        _check(replies.text(barred))
        return replies.number(count), replies.text(next_) or None

    async def _check_endpoint(self, tenants: Collection[str] | None, endpoint_id: str) -> None:
        key = keys.account(self._store.namespace, "endpoint", endpoint_id)
        tenant = await self._store.bounded(self._store.client.hget(key, "tenant"))
        if tenant is None or (tenants is not None and tenant.decode() not in tenants):
            raise NotFound(f"There is no webhook endpoint {endpoint_id[:100]!r}.", param="endpoint")


def _after(cursor: str | None) -> tuple[str, str]:
    """The time and the id of the last entry of the page before; both empty at the start."""
    if cursor is None:
        return "", ""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidRequest("This is not a cursor that a page came with.", param="cursor")
    return match[1], match[2]


def _check(barred: str) -> None:
    if barred == "disabled":
        raise IllegalTransition("The endpoint is disabled. Enable it, and send this again then.")
    if barred:
        raise IllegalTransition("The endpoint was deleted. Nothing can be sent there any more.")


def _unknown(delivery_id: str) -> NotFound:
    return NotFound(f"There is no webhook delivery {delivery_id[:100]!r}.")
