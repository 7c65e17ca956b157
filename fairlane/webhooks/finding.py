"""Webhook endpoints of all tenants, as an operator sees them: found by tenant and by how they are."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from fairlane.errors import InvalidRequest, NotFound
from fairlane.queue import keys, replies
from fairlane.queue.engine import Queue
from fairlane.queue.scripts import Reply
from fairlane.webhooks import values
from fairlane.webhooks.values import Endpoint

PAGE_MOST: Final = 100
EndpointState = Literal["well", "failing", "shut", "disabled"]
_ID: Final = re.compile(r"whe_[!-~]{1,60}")


@dataclass(frozen=True, slots=True)
class EndpointStanding:
    """An endpoint, with how many deliveries wait to be sent to it, or are on their way, and how many have failed in the
    last 11 days and were not sent again."""

    endpoint: Endpoint
    waiting: int
    failed: int


@dataclass(frozen=True, slots=True)
class EndpointPage:
    """Some endpoints, the newest first, of the `looked` ones that were looked at; `after`: where to go on (None: that
    was all)."""

    endpoints: tuple[EndpointStanding, ...]
    after: str | None
    looked: int


class EndpointSearch:
    """Every method may raise StoreUnavailable."""

    def __init__(self, queue: Queue) -> None:
        self._store = queue.store
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)

    async def find(
        self,
        tenants: Collection[str] | None = None,
        state: EndpointState | None = None,
        after: str | None = None,
        most: int = 50,
    ) -> EndpointPage:
        """A page of these tenants' endpoints (None: of all) that are as said, in one call that looks at 500 of them at
        the most. `shut`: nothing is sent there for a while. Raises InvalidRequest.
        """
        if not 1 <= most <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} endpoints.", param="limit")
        if after is not None and not _ID.fullmatch(after):
            raise InvalidRequest("This is not a cursor that a page came with.", param="cursor")
        if tenants is not None and not tenants:
            return EndpointPage((), None, 0)
        one, several = replies.scope(tenants)
        args = (one, after or "", state or "", str(most), *several)
        following, looked, *rows = replies.items(await self._store.run("find_endpoints", self._prefix, *args))
        found = tuple(_standing(row) for row in rows)
        return EndpointPage(found, replies.text(following) or None, replies.number(looked))

    async def tenant_of(self, endpoint_id: str) -> str:
        """Whose it is. Raises NotFound."""
        key = keys.account(self._store.namespace, "endpoint", endpoint_id)
        tenant = await self._store.bounded(self._store.client.hget(key, "tenant"))
        if tenant is None:
            raise NotFound(f"There is no webhook endpoint {endpoint_id[:100]!r}.")
        return tenant.decode()


def _standing(row: Reply) -> EndpointStanding:
    shown, waiting, failed = replies.items(row)
    id_, fields = replies.items(shown)
    endpoint = values.endpoint(replies.text(id_), dict(replies.pairs(replies.items(fields))))
    return EndpointStanding(endpoint, replies.number(waiting), replies.number(failed))
