"""The batches of all tenants, as the front door and the page use them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import aclosing, suppress
from hashlib import sha256
from typing import Any, Final

from fairlane.accounts import Caller
from fairlane.asking import ENDPOINTS
from fairlane.batches.answers import read_part
from fairlane.batches.ledger import Ledger
from fairlane.batches.view import OUTPUT_S, BatchView
from fairlane.errors import IdempotencyMismatch, IllegalTransition, InvalidRequest, NotFound, TierForbidden
from fairlane.files import Files, FileView
from fairlane.ids import RANDOM_LENGTH, Ids, RandomIds
from fairlane.model import Policy
from fairlane.queue.engine import Queue

TIER: Final = "batch"
WINDOWS_MS: Final = {"24h": 86_400_000}
MOST_BYTES: Final = 200_000_000  # of an input file
MOST_PAIRS: Final = 16
MOST_NAME: Final = 64
MOST_VALUE: Final = 512
MOST_PARTS: Final = 50
SHORTEST_S: Final = 3600  # that an output file is kept
RESULTS_BYTES: Final = 4 << 20


def tier_of(policy: Policy) -> str:
    """Where a batch's jobs go: the tier `batch`, or the lowest that the pool has."""
    return TIER if TIER in policy.tiers else policy.tiers[-1]


class Batches:
    """Creates, reads, lists and cancels batches. Every method may raise StoreUnavailable, and `create` StoreFull."""

    def __init__(self, queue: Queue, files: Files, *, ids: Ids | None = None) -> None:
        self._queue = queue
        self._files = files
        self._ledger = Ledger(queue.store)
        self._ids = ids or RandomIds()

    async def create(
        self,
        caller: Caller,
        input_file_id: str,
        endpoint: str,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        *,
        output_lasts_s: int = OUTPUT_S,
        webhook: Mapping[str, Any] | None = None,
    ) -> BatchView:
        """A new batch, `validating`, of a file of the caller's with the purpose `batch`.

        Only the window `24h` is known. `metadata`: up to 16 pairs, of 64 and 512 characters. `output_lasts_s`: how long
        its output and error files are kept, 3600 s to 30 days from their making. `webhook`, which was checked, is
        told of its end. The same idempotency key
        and order is the same batch, also if its file was uploaded anew. Raises InvalidRequest, NotFound for the file,
        IdempotencyMismatch, TierForbidden if the caller may use the tier for batches in no pool.
        """
        if endpoint not in ENDPOINTS:
            raise InvalidRequest(f"endpoint is one of {', '.join(ENDPOINTS)}.", param="endpoint")
        if completion_window not in WINDOWS_MS:
            raise InvalidRequest(f"completion_window is {' or '.join(WINDOWS_MS)}.", param="completion_window")
        _check_metadata(metadata or {})
        if not SHORTEST_S <= output_lasts_s <= OUTPUT_S:
            raise InvalidRequest(f"It is {SHORTEST_S} to {OUTPUT_S} seconds.", param="output_expires_after.seconds")
        _check_file(await self._files.get(caller.tenant, input_file_id))
        await self._check_tier(caller)
        fields = {
            "input": input_file_id,
            "endpoint": endpoint,
            "window": completion_window,
            "metadata": json.dumps(dict(metadata or {})),
            "output_s": str(output_lasts_s),
        }
        if webhook is not None:
            fields["webhook"] = json.dumps(webhook)
        for name, allowed in (("tiers", caller.tiers), ("pools", caller.pools)):
            if allowed is not None:
                fields[name] = json.dumps(sorted(allowed))
        token = self._ids.token(RANDOM_LENGTH)
        id_ = await self._ledger.create(caller.tenant, token, WINDOWS_MS[completion_window], fields, idempotency_key)
        made = await self.get(caller.tenant, id_)
        order = (endpoint, completion_window, dict(metadata or {}), output_lasts_s, webhook)
        if order != (made.endpoint, made.completion_window, dict(made.metadata), made.output_lasts_s, made.webhook):
            raise IdempotencyMismatch()
        if made.input_file_id != input_file_id:
            await self._check_alike(caller.tenant, made.input_file_id, input_file_id)
        return made

    async def get(self, tenant: str, batch_id: str) -> BatchView:
        """Raises NotFound, also for a batch of another tenant."""
        found = (await self._ledger.load(batch_id)).view
        if found.tenant != tenant:
            raise NotFound(f"There is no batch {batch_id[:100]!r}.", param="batch_id")
        return found

    async def list(self, tenant: str, after: str | None = None, limit: int = 20) -> list[BatchView]:
        """Up to `limit` of a tenant's batches, the newest first; from behind the id `after` on."""
        return await self._ledger.list(tenant, after, limit)

    async def cancel(self, tenant: str, batch_id: str) -> BatchView:
        """Ends a batch early: what was answered by then is kept. Safe to repeat.

        Raises NotFound; IllegalTransition if it has ended otherwise, or is about to.
        """
        await self.get(tenant, batch_id)
        await self._ledger.turn(batch_id, "", "cancelling")
        found = await self.get(tenant, batch_id)
        if found.status not in ("cancelling", "cancelled"):
            raise IllegalTransition(f"The batch is {found.status}; it cannot be cancelled any more.")
        return found

    async def results(self, tenant: str, batch_id: str, first: int) -> tuple[list[bytes], int]:
        """What a batch has so far: lines as its files will have them, from the part `first` on; and the next part.

        About RESULTS_BYTES, but one part at least if there is any. After a crash a line may come twice; the first one
        stands. Raises NotFound; IllegalTransition once the batch has ended: its files have all.
        """
        await self.get(tenant, batch_id)
        lines: list[bytes] = []
        size, following = 0, first
        for name in await self._ledger.parts(batch_id, first, MOST_PARTS):
            part = b""
            with suppress(NotFound):  # it is lost, or the batch has ended, and its parts are being deleted
                async with aclosing(self._files.contents.read(name)) as pieces:
                    part = b"".join([piece async for piece in pieces])
            lines += [text for row in part.split(b"\n") if row and (text := read_part(row)[2])]
            size, following = size + len(part), following + 1
            if size >= RESULTS_BYTES:
                break
        if (await self.get(tenant, batch_id)).ended:
            raise IllegalTransition("The batch has ended. Its output and error files have all results.")
        return lines, following

    async def _check_alike(self, tenant: str, first: str, second: str) -> None:
        """Raises IdempotencyMismatch, unless two files hold the same."""
        try:
            one, other = await self._files.get(tenant, first), await self._files.get(tenant, second)
            alike = one.bytes == other.bytes and await self._digest(one) == await self._digest(other)
        except NotFound as error:
            raise IdempotencyMismatch("The file of the batch that this idempotency key made is gone.") from error
        if not alike:
            raise IdempotencyMismatch("This idempotency key was used with another file. Use a new key for it.")

    async def _digest(self, file: FileView) -> bytes:
        digest = sha256()
        async with aclosing(self._files.read(file)) as pieces:
            async for piece in pieces:
                digest.update(piece)
        return digest.digest()

    async def _check_tier(self, caller: Caller) -> None:
        """Early, for the caller's sake: what counts is the pool's policy when the file was read."""
        if caller.tiers is None:
            return
        pools = [pool for pool in await self._queue.pools.all() if caller.pools is None or pool.name in caller.pools]
        tiers = {tier_of(pool.policy) for pool in pools} or {TIER}
        if not tiers & caller.tiers:
            raise TierForbidden(f"This key may not use the tier {min(tiers)!r}, in which batches run.")


def _check_file(file: FileView) -> None:
    if file.purpose != "batch":
        raise InvalidRequest(f"The file's purpose is {file.purpose!r}. Upload it for `batch`.", param="input_file_id")
    if file.bytes > MOST_BYTES:
        raise InvalidRequest(f"A batch's file has {MOST_BYTES} bytes at the most. Split it.", param="input_file_id")


def _check_metadata(metadata: Mapping[str, object]) -> None:
    fits = len(metadata) <= MOST_PAIRS and all(
        len(name) <= MOST_NAME and isinstance(value, str) and len(value) <= MOST_VALUE
        for name, value in metadata.items()
    )
    if not fits:
        words = f"metadata has up to {MOST_PAIRS} pairs: names of {MOST_NAME} and texts of {MOST_VALUE} characters."
        raise InvalidRequest(words, param="metadata")
