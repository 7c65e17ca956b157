"""A pool, files and batches, with a dispatcher that answers as it is told: for tests of batches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from fairlane.accounts import Caller
from fairlane.batches import Batches, BatchView
from fairlane.batches.work import BatchWork, due
from fairlane.clock import ManualClock
from fairlane.files import Files, FileView
from fairlane.head import Head
from fairlane.model import JobError, Lease, Settlement, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import take

CHAT: Final = "/v1/chat/completions"
ANN: Final = Caller("ann")
ANSWER: Final = b'{"choices": [{"message": {"content": "Hi"}}]}'


def request_line(custom_id: str, **body: Any) -> bytes:
    whole = {"model": "llama", "messages": [{"role": "user", "content": "Hello"}]} | body
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": CHAT, "body": whole}).encode()


def good(lease: Lease) -> Settlement:
    return Settlement(lease, "succeeded", 200, ANSWER, usage=Usage(3, 4))


def refused(lease: Lease) -> Settlement:
    """The backend says that the request is wrong."""
    return Settlement(lease, "failed", 400, b'{"error": "no"}', JobError("bad", "No.", 400))


def unanswered(lease: Lease) -> Settlement:
    return Settlement(lease, "failed", error=JobError("timeout", "It took too long."))


class Shop:
    """One process that works on batches, and what surrounds it."""

    def __init__(self, queue: Queue, pool: Pool, clock: ManualClock, url: str | Path) -> None:
        self.queue = queue
        self.pool = pool
        self.clock = clock
        self.files = Files(queue, str(url))
        self.batches = Batches(queue, self.files)
        self.work = BatchWork(queue, self.files, max_body_bytes=100_000)
        self.ran: list[tuple[str, int]] = []
        """Batch and line of each job that was taken out of the queue."""

    async def upload(self, lines: Iterable[bytes], purpose: str = "batch", tenant: str = "ann") -> FileView:
        async def pieces() -> AsyncIterator[bytes]:
            for line in lines:
                yield line + b"\n"

        return await self.files.put(tenant, "in.jsonl", purpose, pieces(), 1 << 30)

    async def create(self, lines: Iterable[bytes] | int, caller: Caller = ANN, **terms: Any) -> BatchView:
        """A batch of these lines, or of so many."""
        if isinstance(lines, int):
            lines = [request_line(f"c{n}") for n in range(1, lines + 1)]
        file = await self.upload(lines, tenant=caller.tenant)
        return await self.batches.create(caller, file.id, CHAT, **terms)

    async def step(self) -> bool:
        """Does once what is due; False if nothing is."""
        found = await due(self.queue)
        for code in found.pools:
            await self.work.collect(code)
        for batch_id in found.batches:
            await self.work.advance(batch_id)
        return bool(found.batches or found.pools)

    async def steps(self, seconds: int = 6) -> None:
        """Does what is due now and in the next few seconds."""
        for _ in range(2 * seconds):
            await self.step()
            self.clock.advance(500)

    async def answer(self, n: int = 100, how: Callable[[Lease], Settlement] = good) -> int:
        """Runs up to `n` jobs that wait; returns how many there were."""
        leases = await take(self.queue, self.pool, n) if n else []
        for lease in leases:
            self.note(lease)
        await self.queue.settle_many(self.pool, map(how, leases))
        return len(leases)

    def note(self, lease: Lease) -> None:
        head = Head.decode(lease.head)
        self.ran.append((lease.id, head.line or 0))

    async def view(self, batch: BatchView) -> BatchView:
        return await self.batches.get(batch.tenant, batch.id)

    async def read(self, batch: BatchView, file_id: str | None) -> list[Mapping[str, Any]]:
        """The lines of one of a batch's files; none if there is no such file."""
        if file_id is None:
            return []
        file = await self.files.get(batch.tenant, file_id)
        content = b"".join([piece async for piece in self.files.read(file)])
        return [json.loads(line) for line in content.splitlines()]

    async def results(self, batch: BatchView) -> tuple[BatchView, dict[str, Mapping[str, Any]]]:
        """An ended batch, whose files have one line for each request between them, by custom_id."""
        batch = await self.view(batch)
        assert batch.ended, batch
        output, error = await self.read(batch, batch.output_file_id), await self.read(batch, batch.error_file_id)
        assert (len(output), len(error)) == (batch.completed, batch.failed)
        assert batch.completed + batch.failed == batch.total
        lines = {line["custom_id"]: line for line in output + error}
        assert len({line["id"] for line in output + error}) == batch.total
        assert all(line["response"]["status_code"] < 400 for line in output)
        return batch, lines

    async def check_nothing_is_left(self, *kept: FileView) -> None:
        """Of all ended batches there are their hashes and their files, and no job."""
        for pause_ms in (0, 0, 0, 1_000, 11_000, 1_000, 3_600_000):  # an hour for what nobody holds any more
            self.clock.advance(pause_ms)
            await self.step()
        while await self.files.sweep(100):
            pass
        client: Any = self.queue.store.raw
        account = f"{self.queue.store.namespace}:{{acct}}:"
        waiting = ("batch_turns:*", "batches_handed:*", "batches_due", "pools_due")
        for name in ("batch_done:*", "batch_open:*", "batch_parts:*", "uploads", *waiting):
            assert await client.keys(account + name) == [], name
        left = {await client.hget(key, "state") for key in await client.keys(self.pool.key("job", "*"))}
        assert left <= {b"cancelled"}, "only of those that ran when they were cancelled"
        assert await client.exists(self.pool.key("batching")) == 0
