"""When batches are looked at, and pools in which their outcomes are collected: the scripts that keep it, typed.

Each tenant has a few batches handed over at a time, and tenants take turns: lua/lib/batch.lua tells how.
"""

from __future__ import annotations

from fairlane.queue import keys, replies
from fairlane.queue.store import Store


class Turns:
    """Reads and writes. What was handed over, and nothing was said of, is due again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._prefix = keys.prefix(store.namespace, keys.ACCOUNT)

    async def due(self, most: int, again_ms: int) -> tuple[list[str], list[str]]:
        """Codes of pools, and ids of batches, up to `most` of each.

        Each is said again in `again_ms`, unless `look_at_pool` or `look_at` says otherwise.
        """
        reply = await self._store.run("due_batches", self._prefix, str(most), str(again_ms))
        pools, batches = replies.items(reply)
        return replies.texts(pools), replies.texts(batches)

    async def look_at(self, batch_id: str, pause_s: float | None) -> None:
        """A step is done: the next is due in `pause_s`, or as soon as was said meanwhile; None: never."""
        await self._store.run("look_at_batch", self._prefix, batch_id, _ms(pause_s))

    async def look_at_pool(self, code: str, pause_s: float | None) -> None:
        """Outcomes are to be collected in `pause_s`, or earlier; None: never again."""
        await self._store.run("look_at_pool", self._prefix, code, _ms(pause_s))


def _ms(pause_s: float | None) -> str:
    return "" if pause_s is None else str(round(1000 * pause_s))
