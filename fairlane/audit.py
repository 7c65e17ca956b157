"""The audit: what was done on the admin page, by whom and from where; written before it is done, then its outcome.

The last KEPT entries are there. Nothing can be changed or taken away from within Fairlane.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from fairlane.errors import InvalidRequest
from fairlane.queue import keys, replies
from fairlane.queue.engine import Queue
from fairlane.queue.scripts import Reply

KEPT: Final = 100_000
PAGE_MOST: Final = 500
LOOKED_MOST: Final = 500  # entries that a read looks at, so that a filter that finds little does not hold Redis up
JSON_MOST: Final = 4096
TEXT_MOST: Final = 512
ID_MOST: Final = 2**64 - 1  # of both parts of an id, as Redis has them
_ID: Final = re.compile(r"([0-9]{1,40})-([0-9]{1,40})")
FILTERS: Final = ("who", "act", "target", "tenant")

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was done. `tenant` None: it concerns all. `outcome` is `done`, an error's code, or None while
    nobody knows: it goes on, or whatever did it was killed. `words` say what came of it."""

    id: str
    at_ms: int
    who: str
    role: str
    address: str
    act: str
    target: str
    tenant: str | None
    params: Facts
    before: Facts
    after: Facts
    outcome: str | None
    words: str


@dataclass(frozen=True, slots=True)
class Page:
    """Entries, the newest first. `following` is the id before which the next page starts, or None; `looked` how many
    entries were looked at for these."""

    entries: tuple[Entry, ...]
    following: str | None
    looked: int


class Audit:
    """The audit on the queue's Redis. Every method may raise what the queue's do."""

    def __init__(self, queue: Queue) -> None:
        self._store = queue.store
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)

    async def begin(
        self,
        *,
        who: str,
        role: str,
        address: str,
        act: str,
        target: str,
        tenant: str | None = None,
        params: Facts | None = None,
        before: Facts | None = None,
        after: Facts | None = None,
    ) -> str:
        """Writes down what is about to be done; returns the entry's id, for `end`. Never put a secret in."""
        texts = {"who": who, "role": role, "address": address, "act": act, "target": target, "tenant": tenant or ""}
        facts = {"params": params, "before": before, "after": after}
        fields = {name: _cut(text) for name, text in texts.items()} | {n: _json(f) for n, f in facts.items() if f}
        kept = [part for field in fields.items() for part in field]
        # a second run would write it twice
        return replies.text(await self._store.run("begin_audit", self._prefix, str(KEPT), *kept, repeat=False))

    async def end(
        self, entry: str, *, outcome: str, words: str = "", before: Facts | None = None, after: Facts | None = None
    ) -> None:
        """Adds what came of it, once. `before` and `after` replace those that were foreseen."""
        told: dict[str, object] = {"outcome": outcome, "words": _cut(words)}
        told |= {name: json.loads(_json(facts)) for name, facts in (("before", before), ("after", after)) if facts}
        await self._store.run("end_audit", self._prefix, entry, json.dumps(told))

    async def read(
        self,
        before: str = "",
        *,
        who: str = "",
        act: str = "",
        target: str = "",
        tenant: str = "",
        scope: Collection[str] | None = None,
        limit: int = 50,
    ) -> Page:
        """Entries from the one before `before` on, the newest first, that match all that is not empty.

        `act` may be the first part of one: `tenant.`. `scope`: only what concerns one of these tenants. At most
        LOOKED_MOST are looked at, so that a page may have few entries, or none, and another one follow. Raises
        InvalidRequest.
        """
        if not 1 <= limit <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} entries.", param="limit")
        wanted = zip(FILTERS, (who, act, target, tenant), strict=True)
        place = _place(before)
        if before and place is None:
            return Page((), None, 0)
        filters = [part for name, value in wanted if value for part in (name, value)]
        tenants = "" if scope is None else json.dumps(sorted(scope))
        most = limit + 1 if not filters and scope is None else LOOKED_MOST
        args = (f"{place[0]}-{place[1]}" if place else "", str(limit), str(most), tenants, *filters)
        following, looked, rows = replies.items(await self._store.run("read_audit", self._prefix, *args))
        entries = tuple(_entry(*replies.items(row)) for row in replies.items(rows))
        return Page(entries, replies.text(following) or None, replies.number(looked))

    async def entry(self, id_: str) -> Entry | None:
        """The entry of this id, if it is there. Raises InvalidRequest."""
        if (place := _place(id_)) is None:
            return None
        page = await self.read(f"{place[0]}-{place[1] + 1}", limit=1)
        return next((entry for entry in page.entries if entry.id == id_), None)


State = Literal["begun", "done", "refused", "unknown"]
UNKNOWN: Final = "unknown"  # an outcome: Redis did not answer, and it may have been done


def state_of(entry: Entry) -> State:
    """What came of it, in a word."""
    if entry.outcome is None:
        return "begun"
    return cast(State, entry.outcome) if entry.outcome in ("done", UNKNOWN) else "refused"


def _place(text: str) -> tuple[int, int] | None:
    """The parts of an entry's id; None for '' and for one that no entry has. Raises InvalidRequest."""
    match = _ID.fullmatch(text)
    if text and match is None:
        raise InvalidRequest("This is no place in the audit.", param="before")
    parts = (int(match[1]), int(match[2])) if match else (0, 0)
    return parts if parts != (0, 0) and max(parts) <= ID_MOST else None


def _entry(id_: Reply, fields: Reply, ended: Reply) -> Entry:
    kept = {name: value.decode() for name, value in replies.pairs(replies.items(fields))}
    outcome = cast("dict[str, Any]", json.loads(replies.text(ended) or "{}"))
    before, after = (outcome.get(name) or json.loads(kept.get(name, "{}")) for name in ("before", "after"))
    return Entry(
        replies.text(id_),
        int(kept["at"]),
        kept["who"],
        kept["role"],
        kept["address"],
        kept["act"],
        kept["target"],
        kept["tenant"] or None,
        json.loads(kept.get("params", "{}")),
        before,
        after,
        outcome.get("outcome"),
        outcome.get("words", ""),
    )


def _cut(text: str) -> str:
    """What is stored of a text: valid UTF-8 of a bounded length. Control characters stay; who shows them escapes."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= TEXT_MOST else text[: TEXT_MOST - 1] + "…"


def _json(facts: Facts | None) -> str:
    """Facts as they are kept: in place of more than JSON_MOST characters, their beginning."""
    text = json.dumps(facts or {}, default=str)
    return text if len(text) <= JSON_MOST else json.dumps({"cut": text[: JSON_MOST // 2]})
