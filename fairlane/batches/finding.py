"""Batches of all tenants, as an operator sees them: found by tenant and state, and how far they are."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fairlane.batches.ledger import Ledger, Record, view
from fairlane.batches.view import BatchState, BatchView
from fairlane.errors import InvalidRequest, NotFound
from fairlane.queue import replies
from fairlane.queue.engine import Queue

PAGE_MOST: Final = 100
_ID: Final = re.compile(r"batch_[!-~]{1,60}")


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Some batches, the newest first, of the `looked` ones that were looked at; `after`: where to go on (None: that was
    all). Their faults, metadata and webhooks are left out."""

    batches: tuple[BatchView, ...]
    after: str | None
    looked: int


@dataclass(frozen=True, slots=True)
class BatchStanding:
    """One batch, and what is going on with it.

    `pool` is where its jobs run (None: not known yet, or gone). Of its requests `fed` were submitted as jobs, of which
    `open_jobs` have no outcome that was collected. `waits_for_room`: the queue was full when it was last fed.
    `paused`: its tenant is disabled. `now_ms` is when it was read.
    """

    batch: BatchView
    pool: str | None
    fed: int
    open_jobs: int
    waits_for_room: bool
    paused: bool
    now_ms: int

    @property
    def done(self) -> int:
        """The requests that have an answer, or never get one."""
        return self.batch.completed + self.batch.failed

    @property
    def left_ms(self) -> int | None:
        """How long it takes yet if it goes on as since its start; None: nobody can tell."""
        began = self.batch.in_progress_at_ms
        if self.batch.status != "in_progress" or began is None or not self.done or self.now_ms <= began:
            return None
        return (self.batch.total - self.done) * (self.now_ms - began) // self.done


class BatchSearch:
    """Every method may raise StoreUnavailable."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._ledger = Ledger(queue.store)

    async def find(
        self,
        tenants: Collection[str] | None = None,
        states: Collection[BatchState] = (),
        after: str | None = None,
        most: int = 50,
    ) -> BatchPage:
        """A page of the batches of these tenants (None: of all) in these states (none named: in all), in one call that
        looks at 500 of them at the most: what it finds may be few. Raises InvalidRequest.
        """
        if not 1 <= most <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} batches.", param="limit")
        if after is not None and not _ID.fullmatch(after):
            raise InvalidRequest("This is not a cursor that a page came with.", param="cursor")
        if tenants is not None and not tenants:
            return BatchPage((), None, 0)
        one, several = replies.scope(tenants)
        args = (one, after or "", f" {' '.join(states)} " if states else "", str(most), *several)
        following, looked, *rows = replies.items(
            await self._queue.store.run("find_batches", self._ledger.prefix, *args)
        )
        found: list[BatchView] = []
        for id_, fields in map(replies.items, rows):
            known = {name: value.decode() for name, value in replies.pairs(replies.items(fields))}
            found.append(view(replies.text(id_), known))
        return BatchPage(tuple(found), replies.text(following) or None, replies.number(looked))

    async def get(self, batch_id: str) -> BatchStanding:
        """Whoever's it is. Raises NotFound."""
        record = await self._ledger.load(batch_id)
        return BatchStanding(
            batch=record.view,
            pool=await self._pool(record),
            fed=record.fed,
            open_jobs=record.open_jobs,
            waits_for_room=record.full_ms > 0,
            paused=record.disabled,
            now_ms=record.now_ms,
        )

    async def _pool(self, record: Record) -> str | None:
        with suppress(NotFound):
            return (await self._queue.pools.by_code(record.pool)).name if record.pool else None
        return None
