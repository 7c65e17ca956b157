"""What is known of batches, in Redis: the scripts of the account's slot, and those of a pool's events, typed.

When they are looked at is in turns.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, cast

from fairlane.batches.answers import Outcome
from fairlane.batches.view import ENDED, OUTPUT_S, TURNS, BatchFault, BatchState, BatchView
from fairlane.errors import FilesUnavailable, NotFound
from fairlane.model import State, Usage
from fairlane.queue import keys, replies
from fairlane.queue.checks import OURS
from fairlane.queue.pools import Pool
from fairlane.queue.store import Store

KEEP_MS: Final = 31 * 86_400_000  # an ended batch
CALL_BYTES: Final = 4 << 20  # of answers in one reply
EVENTS: Final = 500  # looked at by one call
BAR_MS: Final = 86_400_000  # how late a feeder may be that was thought dead
Ending = Literal["completed", "expired", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Record:
    """A batch with what the work on it has to know. `now_ms` is when it was read.

    `fed` requests were submitted, which end at the byte `offset` of the file, and up to `sent` may have been;
    `open_jobs` of the former, with `open_bytes`, have no outcome that was collected. `ending`: nothing more is
    collected, and this will be its end state. `output_id` and `error_id` are what its files will be called. `late` of
    its jobs have expired; `answer_bytes` is how long answers are of late. `tiers` and `pools` are those that its
    caller may use; None: all. `full_ms`: how long it waits of late, since the queue was full. `disabled`: its tenant
    may do nothing now.
    """

    view: BatchView
    now_ms: int
    open_jobs: int
    open_bytes: int
    fed: int
    sent: int
    offset: int
    pool: str
    ending: Ending | None
    output_id: str
    error_id: str
    checked_ms: int
    late: int
    answer_bytes: int
    tiers: frozenset[str] | None
    pools: frozenset[str] | None
    full_ms: int
    disabled: bool

    @property
    def marked(self) -> int:
        """The requests that are done."""
        return self.view.completed + self.view.failed


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of a pool's stream: the job `job` of the batch `batch` has its outcome. `id` '': there is none."""

    id: str
    job: str
    batch: str


@dataclass(frozen=True, slots=True)
class Row:
    """What the queue holds of a job. `status` is None without an answer of a backend."""

    batch: str
    state: State
    head: bytes
    status: int | None
    result: bytes
    error: Mapping[str, str]
    usage: Usage | None


class Ledger:
    """Reads and writes. Who works on a batch gives `who`, by which it holds the batch (lock.py): else it is refused."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.prefix = keys.prefix(store.namespace, keys.ACCOUNT)

    # --- a batch ------------------------------------------------------------------------------------------------------

    async def create(self, tenant: str, token: str, window_ms: int, fields: Mapping[str, str], key: str | None) -> str:
        """The id of a new batch, or of the one that this idempotency key made before."""
        args = (tenant, token, str(window_ms), str(KEEP_MS), idem_digest(key) if key else "", *_flat(fields))
        return replies.text(await self._store.run("create_batch", self.prefix, *args, repeat=key is not None))

    async def load(self, batch_id: str) -> Record:
        """Raises NotFound."""
        now, open_jobs, disabled, fields = replies.items(await self._store.run("load_batch", self.prefix, batch_id))
        if not fields:
            raise NotFound(f"There is no batch {batch_id[:100]!r}.", param="batch_id")
        known = {name: value.decode() for name, value in replies.pairs(replies.items(fields))}
        return _record(batch_id, known, *map(replies.number, (now, open_jobs, disabled)))

    async def list(self, tenant: str, after: str | None, limit: int) -> list[BatchView]:
        bound = f"({after}" if after else "+"
        reply = replies.items(await self._store.run("list_batches", self.prefix, tenant, bound, str(limit)))
        rows = zip(map(replies.text, reply[::2]), map(replies.items, reply[1::2]), strict=True)
        return [
            view(id_, {name: value.decode() for name, value in replies.pairs(fields)}) for id_, fields in rows if fields
        ]

    async def turn(self, batch_id: str, who: str, to: BatchState, fields: Mapping[str, object] | None = None) -> bool:
        """To another state, from one that allows it; False if it has none of these, or another holds the batch."""
        before = [state for state, after in TURNS.items() if to in after]
        return await self._turn(batch_id, who, before, to, fields or {})

    async def note(self, batch_id: str, who: str, state: BatchState, fields: Mapping[str, object]) -> bool:
        """Some fields, if it is in this state and `who` holds it."""
        return await self._turn(batch_id, who, [state], "", fields)

    async def _turn(
        self, batch_id: str, who: str, before: Iterable[str], to: str, fields: Mapping[str, object]
    ) -> bool:
        kept = str(KEEP_MS) if to in ENDED else ""
        args = (batch_id, who, f" {' '.join(before)} ", to, kept, *_flat(fields))
        return replies.number(await self._store.run("turn_batch", self.prefix, *args)) == 1

    async def fed(self, record: Record, who: str, fed: int, offset: int, jobs: Sequence[tuple[str, int, int]]) -> bool:
        """`jobs`: id, ordinal, bytes. False if another holds the batch, or it is not in progress any more."""
        flat = [str(part) for job in jobs for part in job]
        args = (record.view.id, who, str(fed), str(offset), *flat)
        return replies.number(await self._store.run("feed_batch", self.prefix, *args)) == 1

    async def mark(self, batch_id: str, part: str, size: int, outcomes: Sequence[Outcome]) -> tuple[bool, int]:
        """`size` is the part's, in bytes. Returns whether it is the batch's now, and how many it has.

        Raises FilesUnavailable if it was given up.
        """
        flat = [
            str(value)
            for one in outcomes
            for value in (one.ordinal, one.job, one.mark, one.input_tokens, one.output_tokens)
        ]
        reply = await self._store.run("mark_batch", self.prefix, batch_id, part, str(size), *flat)
        taken, parts = map(replies.number, replies.items(reply))
        if taken < 0:
            raise FilesUnavailable("It took too long to write this.")
        return taken == 1, parts

    async def marked(self, batch_id: str, ordinals: Sequence[int]) -> list[bool]:
        reply = await self._store.run("marked_lines", self.prefix, batch_id, *map(str, ordinals))
        return [replies.number(bit) == 1 for bit in replies.items(reply)]

    async def open_jobs(self, batch_id: str) -> dict[str, int]:
        """Job -> ordinal."""
        reply = replies.items(await self._store.run("open_lines", self.prefix, batch_id))
        return {job: int(value.split()[0]) for job, value in replies.pairs(reply)}

    async def parts(self, batch_id: str, first: int, count: int, take_off: int = 0) -> list[str]:
        """Names of contents, from the one numbered `first` on, after the first `take_off` were taken off."""
        args = (batch_id, str(take_off), str(first), str(count))
        return replies.texts(await self._store.run("batch_parts", self.prefix, *args, repeat=not take_off))

    # --- a pool's events ----------------------------------------------------------------------------------------------

    async def join(self, pool: Pool, batch_id: str) -> None:
        """The outcomes of what is submitted from now on are kept until they are collected."""
        await self._store.run("join_events", pool.prefix, batch_id)

    async def leave(self, pool: Pool, batch_id: str) -> None:
        await self._store.run("leave_events", pool.prefix, batch_id)

    async def events(self, pool: Pool) -> tuple[int, list[Event]]:
        """How many were looked at (-1: no batch runs in this pool), and those of batches among them."""
        # repeated, it would return as pending what the lost reply had
        looked, *rest = replies.items(await self._store.run("read_events", pool.prefix, str(EVENTS)))
        words = [replies.text(word) for word in rest]
        triples = zip(words[::3], words[1::3], words[2::3], strict=True)
        return replies.number(looked), [Event(id_, job, batch) for id_, job, batch in triples]

    async def outcomes(self, pool: Pool, jobs: Sequence[str]) -> list[Row | None]:
        """Of the first of these jobs, as many as fit into a reply; None for one that is gone."""
        reply = replies.items(await self._store.run("outcomes", pool.prefix, str(CALL_BYTES), *jobs))
        return [_row(cast("list[bytes]", row)) if row else None for row in reply]

    async def find_jobs(self, pool: Pool, batch: BatchView, ordinals: Sequence[int], *, bar: bool) -> dict[str, int]:
        """The jobs that requests have become, job -> ordinal. `bar`: the others become none from here on."""
        found: dict[str, int] = {}
        for start in range(0, len(ordinals), EVENTS):
            part = ordinals[start : start + EVENTS]
            digests = [idem_digest(idempotency_key(batch.id, ordinal)) for ordinal in part]
            args = (batch.tenant, str(BAR_MS) if bar else "", *digests)
            ids = replies.texts(await self._store.run("find_jobs", pool.prefix, *args))
            found |= {id_: ordinal for id_, ordinal in zip(ids, part, strict=True) if id_}
        return found

    async def forget(self, pool: Pool, jobs: Sequence[tuple[str, str, str]]) -> None:
        """`jobs`: the event's id or '', the job's id or '' for the event alone, its idempotency key or ''."""
        if jobs:
            flat = [part for event, job, key in jobs for part in (event, job, key and idem_digest(key))]
            await self._store.run("forget_jobs", pool.prefix, *flat)


def idempotency_key(batch_id: str, ordinal: int) -> str:
    """Of a request of a batch: submitted again it is the same job."""
    return f"{OURS}{batch_id}:{ordinal}"


def idem_digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def packed_faults(faults: Iterable[BatchFault]) -> str:
    return json.dumps([asdict(fault) for fault in faults])


def view(id_: str, known: Mapping[str, str]) -> BatchView:
    """A batch from its hash."""

    def ms(name: str) -> int | None:
        return int(known[name]) if name in known else None

    tokens = int(known.get("input_tokens", 0)), int(known.get("output_tokens", 0))
    return BatchView(
        id=id_,
        tenant=known["tenant"],
        endpoint=known["endpoint"],
        input_file_id=known["input"],
        completion_window=known["window"],
        status=cast(BatchState, known["status"]),
        created_at_ms=int(known["created"]),
        expires_at_ms=int(known["expires"]),
        model=known.get("model"),
        in_progress_at_ms=ms("in_progress_at"),
        finalizing_at_ms=ms("finalizing_at"),
        completed_at_ms=ms("completed_at"),
        failed_at_ms=ms("failed_at"),
        expired_at_ms=ms("expired_at"),
        cancelling_at_ms=ms("cancelling_at"),
        cancelled_at_ms=ms("cancelled_at"),
        output_file_id=known.get("output_file_id"),
        error_file_id=known.get("error_file_id"),
        total=int(known.get("total", 0)),
        completed=int(known.get("completed", 0)),
        failed=int(known.get("failed", 0)),
        usage=Usage(*tokens) if any(tokens) else None,
        faults=tuple(BatchFault(**fault) for fault in json.loads(known.get("faults", "[]"))),
        metadata=json.loads(known.get("metadata", "{}")),
        output_lasts_s=int(known.get("output_s", OUTPUT_S)),
        webhook=json.loads(known["webhook"]) if "webhook" in known else None,
    )


def _record(id_: str, known: Mapping[str, str], now_ms: int, open_jobs: int, disabled: int) -> Record:
    def names(field: str) -> frozenset[str] | None:
        return frozenset(json.loads(known[field])) if field in known else None

    return Record(
        view=view(id_, known),
        now_ms=now_ms,
        open_jobs=open_jobs,
        open_bytes=int(known.get("open_bytes", 0)),
        fed=int(known.get("fed", 0)),
        sent=int(known.get("sent", 0)),
        offset=int(known.get("offset", 0)),
        pool=known.get("pool", ""),
        ending=cast("Ending | None", known.get("ending")),
        output_id=known.get("output_id", ""),
        error_id=known.get("error_id", ""),
        checked_ms=int(known.get("checked", 0)),
        late=int(known.get("late", 0)),
        answer_bytes=int(known.get("answer_bytes", 0)),
        tiers=names("tiers"),
        pools=names("pools"),
        full_ms=int(known.get("full", 0)),
        disabled=disabled == 1,
    )


def _row(row: list[bytes]) -> Row:
    batch, state, head, status, result, error, usage = row
    return Row(
        batch=batch.decode(),
        state=cast(State, state.decode()),
        head=head,
        status=int(status) if status else None,
        result=result,
        error=json.loads(error) if error else {},
        usage=Usage(*map(int, usage.split())) if usage else None,
    )


def _flat(fields: Mapping[str, object]) -> list[str]:
    return [part for name, value in fields.items() for part in (name, str(value))]
