"""Between what passes from Redis and the views in which people and observers see the queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from fairlane.model import BackendCounts, GateReason, State, TierGate, Usage
from fairlane.queue import replies
from fairlane.queue.scripts import Reply
from fairlane.standing import (
    BackendView,
    Explanation,
    Finish,
    GateView,
    LineView,
    PolicyChange,
    PoolLoad,
    TierLoad,
    TierView,
)

Fields = dict[bytes, bytes]


def tier_view(tier: str, answers: Sequence[object]) -> TierView:
    """A tier from what `Inspection.overview` asked about it."""
    counts, tenants, runnable, first, paused = answers
    depth, inflight = (int(n or 0) for n in cast("list[bytes | None]", counts))
    oldest = cast("list[tuple[bytes, float]]", first)
    return TierView(
        tier=tier,
        depth=depth,
        inflight=inflight,
        tenants=cast(int, tenants),
        runnable=cast(int, runnable),
        oldest_ms=int(oldest[0][1]) if oldest else None,
        paused=bool(paused),
    )


def line_view(tenant: str, oldest_ms: int, streamed: object, back: object, held: object, limits: object) -> LineView:
    """A line from what `Inspection.lines` asked about it."""
    jobs = cast(int, streamed) + cast(int, back)
    return LineView(tenant, jobs, oldest_ms, held is not None, replies.limits(cast("bytes | None", limits)))


def backend_view(name: str, fields: Fields) -> BackendView:
    """A backend from its hash."""
    by_kind: dict[str, dict[str, str]] = {"gate": {}, "said": {}, "n": {}}
    for field, value in fields.items():
        kind, _, rest = field.decode().partition(":")
        if rest:
            by_kind[kind][rest] = value.decode()
    gates = {tier: _gate(packed) for tier, packed in by_kind["gate"].items()}

    def whole(name: bytes) -> int:
        return int(fields.get(name, 0))

    return BackendView(
        name=name,
        status=fields[b"status"].decode(),
        counts=BackendCounts(
            live=whole(b"taken") - whole(b"ended"),
            done=whole(b"ended") - whole(b"unfinished") - whole(b"noted"),
            denied=whole(b"denied"),
        ),
        fresh_at_ms=whole(b"fresh_at") or None,
        gates=gates,
        said=by_kind["said"],
        decisions={name: int(n) for name, n in by_kind["n"].items()},
        finished=whole(b"ended") - whole(b"unfinished"),
        answered=whole(b"ended") - whole(b"unfinished") + whole(b"rejected"),
        faults=whole(b"faults"),
        blamers=whole(b"blamers"),
        excused=whole(b"excused"),
        epoch=whole(b"epoch"),
        no_priority=fields.get(b"no_priority") == fields.get(b"epoch", b"0"),
        down_at_ms=whole(b"down_at") or None,
        seen=fields.get(b"seen", b"{}").decode(),
        spec=replies.backend_spec(fields.get(b"spec")),
    )


def _fields(row: Reply) -> Fields:
    """A hash as a script returns it."""
    flat = iter(cast("list[bytes]", row))
    return dict(zip(flat, flat, strict=True))


def _gate(packed: str) -> TierGate:
    limit, fallback, why = packed.split(" ")
    return TierGate(int(limit), int(fallback), cast(GateReason, why))


def explanation(reply: Reply) -> Explanation:
    """The reply of explain.lua."""
    state, tenant, tier, ahead, rank, tenants, held_by, held_until, paused, depths, gates = replies.items(reply)
    flat, row = replies.items(depths), replies.items(gates)
    views = (
        GateView(
            replies.text(row[i]),
            replies.number(row[i + 1]),
            replies.number(row[i + 2]),
            cast(GateReason, replies.text(row[i + 3])),
            replies.text(row[i + 4]),
        )
        for i in range(0, len(row), 5)
    )
    return Explanation(
        state=cast(State, replies.text(state)),
        tenant=replies.text(tenant),
        tier=replies.text(tier),
        ahead_in_line=replies.number(ahead),
        rank=replies.number(rank) if replies.number(rank) >= 0 else None,
        tenants=replies.number(tenants),
        held_by=replies.text(held_by) or None,
        held_until_ms=int(replies.text(held_until)) if held_until else None,
        paused=replies.number(paused) == 1,
        depths={replies.text(flat[i]): replies.number(flat[i + 1]) for i in range(0, len(flat), 2)},
        gates=tuple(views),
    )


def finish(fields: Fields) -> Finish:
    """An entry of `events`."""
    tier, at, began, ended, *usage = fields[b"times"].decode().split(" ")
    tokens = [int(n) for n in usage if n]
    return Finish(
        job=fields[b"job"].decode(),
        state=cast(State, fields[b"state"].decode()),
        tenant=fields[b"tenant"].decode(),
        tier=tier,
        ready_at_ms=int(at),
        started_at_ms=None if began == "-" else int(began),
        ended_at_ms=int(ended),
        usage=Usage(*tokens) if tokens else None,
    )


def policy_change(entry: str) -> PolicyChange:
    """An entry of the policy's history as set_policy.lua writes it."""
    version, at, told = entry.split(" ", 2)
    said = json.loads(told)
    changes = {name: (before, after) for name, (before, after) in said["changes"].items()}
    return PolicyChange(int(version), int(at), said["by"], changes)


def pool_load(reply: Reply) -> PoolLoad:
    """The reply of load.lua."""
    now, work, backends, version, steer = replies.items(reply)
    tiers, named = replies.items(work), replies.items(backends)
    loads = (
        TierLoad(replies.text(tiers[i]), waiting, since if since >= 0 else None, inflight, moved)
        for i in range(0, len(tiers), 5)
        for waiting, inflight, since, moved in [map(replies.number, tiers[i + 1 : i + 5])]
    )
    rows = zip(named[::2], named[1::2], strict=True)
    known = (backend_view(replies.text(name), _fields(row)) for name, row in rows)
    return PoolLoad(tuple(loads), tuple(known), replies.number(now), replies.number(version), replies.text(steer))
