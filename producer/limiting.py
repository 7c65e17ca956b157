"""Sees to it that a pool has the limits of whoever submits there, and knows whether they want webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from fairlane.accounts import Accounts
from fairlane.model import Limits
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.webhooks.endpoints import Webhooks
from producer.fresh import Fresh

CHECK_S: Final = 60.0  # a change is copied at once by whoever makes it; this mends what broke off there
MOST: Final = 20_000  # tenants and pools that are remembered


class Limiting:
    """A tenant's first submit to a pool, in this process, looks for its limits and its hooks in the account, and
    copies them."""

    def __init__(self, queue: Queue, guard: Guard) -> None:
        self._queue = queue
        self._accounts = Accounts(queue)
        self._webhooks = Webhooks(queue, guard)
        self._copies = Fresh(self._copy, CHECK_S, MOST)

    async def ensure(self, pool: Pool, tenant: str) -> Limits | None:
        """The tenant's limits, as the account had them lately; None if it has none for it. Raises StoreUnavailable."""
        return await self._copies.get((pool.code, tenant))

    async def ensure_all(self, pool: Pool, tenants: Iterable[str]) -> None:
        """As `ensure`, of several tenants."""
        await asyncio.gather(*(self.ensure(pool, tenant) for tenant in set(tenants)))

    async def _copy(self, key: tuple[str, str]) -> Limits | None:
        code, tenant = key
        pool = await self._queue.pools.by_code(code)
        await self._webhooks.copy_hooks(pool, tenant)
        return await self._accounts.copy_limits(pool, tenant)
