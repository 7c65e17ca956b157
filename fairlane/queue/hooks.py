"""Outcomes that webhooks are to tell of: read in the order in which they came, and acknowledged once they are made.

Who reads and dies before it acknowledges finds the same ones again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from fairlane.model import State
from fairlane.queue import replies
from fairlane.queue.checks import check_tenant
from fairlane.queue.pools import Pool
from fairlane.queue.store import Store

EVENTS: Final = 500  # looked at by one call


@dataclass(frozen=True, slots=True)
class HookEvent:
    """A job has come to an outcome. `id` is the entry of the pool's stream `events`."""

    id: str
    job: str
    state: State
    tenant: str


class Hooks:
    """The part of a pool's events that somebody is told of. Every method may raise what the queue's do."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def events(self, pool: Pool, most: int = EVENTS) -> tuple[int, list[HookEvent]]:
        """How many events were looked at (-1: nobody wants webhooks in this pool), and those to be told of."""
        # repeated, it returns as unacknowledged what the lost reply had
        looked, *rest = replies.items(await self._store.run("read_hooks", pool.prefix, str(most)))
        words = [replies.text(word) for word in rest]
        rows = zip(words[::4], words[1::4], words[2::4], words[3::4], strict=True)
        return replies.number(looked), [HookEvent(id_, job, cast(State, state), who) for id_, job, state, who in rows]

    async def results(self, pool: Pool, job_ids: Sequence[str], most: int) -> list[bytes | None]:
        """The results of jobs, `b""` of one without; None of one that has more than `most` bytes, which is not read."""
        keys = [pool.key("job", id_) for id_ in job_ids]
        pipe = self._store.client.pipeline(transaction=False)
        for key in keys:
            pipe.hstrlen(key, "result")
        sizes = cast("list[int]", await self._store.bounded(pipe.execute()))
        small = [key for key, size in zip(keys, sizes, strict=True) if size <= most]
        pipe = self._store.client.pipeline(transaction=False)
        for key in small:
            pipe.hget(key, "result")
        read = dict(zip(small, cast("list[bytes | None]", await self._store.bounded(pipe.execute())), strict=True))
        return [(read[key] or b"") if key in read else None for key in keys]

    async def ack(self, pool: Pool, events: Sequence[HookEvent]) -> None:
        """Their webhooks were made."""
        if events:
            args = [word for event in events for word in (event.id, event.job)]
            await self._store.run("ack_hooks", pool.prefix, *args)

    async def set(self, pool: Pool, tenant: str, wanted: bool, version: int) -> None:
        """Whether a tenant's endpoints want events of its jobs, unless what the pool has is of a later version.

        What settles after it has its event. Raises InvalidRequest.
        """
        check_tenant(tenant)
        await self._store.run("set_hooks", pool.prefix, tenant, "1" if wanted else "", str(version))
