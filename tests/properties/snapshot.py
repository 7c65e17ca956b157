"""All scheduling state of a pool, read raw from Redis and computed from the oracle, in one form that can be compared."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fairlane.queue.connection import Client
from fairlane.queue.pools import Pool
from tests.properties.oracle import Oracle

Snapshot = dict[str, Any]


async def of_redis(client: Client, pool: Pool) -> Snapshot:
    tiers = pool.policy.tiers
    keys = [
        key.decode().removeprefix(pool.prefix) async for key in client.scan_iter(match=pool.prefix + "*", count=1000)
    ]
    assert all(not key.startswith(pool.prefix) for key in keys)
    shared = {k.decode(): v.decode() for k, v in (await client.hgetall(pool.key("pool"))).items()}
    jobs: dict[str, tuple[Any, ...]] = {}
    order: dict[str, list[str]] = {}
    for key in keys:
        kind, _, rest = key.partition(":")
        if kind == "job":
            names = ["state", "tenant", "tier", "tries", "token", "dead"]
            state, tenant, tier, tries, token, dead = await client.hmget(pool.prefix + key, names)
            if state != b"moved":
                jobs[rest] = (
                    state.decode(),
                    tenant.decode(),
                    tier.decode(),
                    int(tries or 0),
                    int(token or 0),
                    bool(dead),
                )
            assert (await client.pttl(pool.prefix + key) > 0) == (
                state in (b"succeeded", b"failed", b"expired", b"cancelled")
                and await client.zscore(pool.key("leases"), rest) is None
            ), f"retention of {rest}, {state}"
        elif kind in ("line", "rejoin"):
            entries: list[tuple[int, str]]
            if kind == "line":
                streamed = await client.xrange(pool.prefix + key)
                assert streamed, f"an empty stream: {key}"
                entries = [(int(i.split(b"-")[0]), f[b"j"].split()[0].decode()) for i, f in streamed]
            else:
                entries = [
                    (int(s), j.decode()) for j, s in await client.zrange(pool.prefix + key, 0, -1, withscores=True)
                ]
            order.setdefault(rest, []).extend(entries)  # pyright: ignore[reportArgumentType]
    snapshot: Snapshot = {
        "jobs": jobs,
        "lines": {line: [job for _, job in sorted(entries)] for line, entries in order.items()},
        "leases": {j.decode(): int(s) for j, s in await client.zrange(pool.key("leases"), 0, -1, withscores=True)},
        "due": {j.decode(): int(s) for j, s in await client.zrange(pool.key("due"), 0, -1, withscores=True)},
        "deadlines": {
            j.decode(): int(s) for j, s in await client.zrange(pool.key("deadlines"), 0, -1, withscores=True)
        },
        "held": {t.decode(): s for t, s in await client.zrange(pool.key("held"), 0, -1, withscores=True)},
        "waiting": int(shared.get("waiting", 0)),
        "since": {tier: int(shared[f"since:{tier}"]) for tier in tiers if f"since:{tier}" in shared},
        "clock": {tier: int(shared.get(f"clock:{tier}", 0)) for tier in tiers},
        "queued": {tier: int(shared.get(f"waiting:{tier}", 0)) for tier in tiers},
        "ring": {},
        "oldest": {},
        "tenants": {},
        "live": {},
    }
    for tier in tiers:
        rings = [await client.zrange(pool.key(kind, tier), 0, -1, withscores=True) for kind in ("ring", "shelf")]
        assert not all(rings), "a tier has both a ring and a shelf"
        paused = "paused" in shared or f"paused:{tier}" in shared
        assert not rings[0 if paused else 1], "the ring is where it should not be"
        snapshot["ring"][tier] = {t.decode(): int(s) for ring in rings for t, s in ring}
        oldest = await client.zrange(pool.key("oldest", tier), 0, -1, withscores=True)
        snapshot["oldest"][tier] = {t.decode(): int(s) for t, s in oldest}
    for key in keys:
        if key.startswith("tenant:"):
            waiting, inflight = await client.hmget(pool.prefix + key, ["waiting", "inflight"])
            if int(waiting or 0) or int(inflight or 0):
                snapshot["tenants"][key.removeprefix("tenant:")] = (int(waiting or 0), int(inflight or 0))
        if key.startswith("backend:"):
            taken, ended = await client.hmget(pool.prefix + key, ["taken", "ended"])
            snapshot["live"][key.removeprefix("backend:")] = int(taken or 0) - int(ended or 0)
    return snapshot


def of_oracle(oracle: Oracle) -> Snapshot:
    jobs = {name: (j.state, j.tenant, j.tier, j.tries, j.token, j.dead) for name, j in oracle.jobs.items()}
    waiting = [j for j in oracle.jobs.values() if j.state in ("queued", "delayed")]
    lines: dict[str, list[str]] = defaultdict(list)
    for job in sorted((j for j in waiting if j.state == "queued"), key=lambda j: j.seq):
        lines[f"{job.tier}:{job.tenant}"].append(job.name)
    counts = {name: (oracle.waiting(name), oracle.inflight(tenant=name)) for name in oracle.tenants}
    return {
        "jobs": jobs,
        "lines": dict(lines),
        "leases": {j.name: j.lease_until for j in oracle.jobs.values() if j.lease_until is not None},
        "due": {j.name: j.due for j in waiting if j.state == "delayed"},
        "deadlines": {j.name: j.deadline for j in waiting if j.deadline is not None},
        "held": {name: t.held_until for name, t in oracle.tenants.items() if t.held_until is not None},
        "waiting": oracle.waiting(),
        "since": {name: t.since for name, t in oracle.tiers.items() if t.since is not None},
        "clock": {name: t.clock for name, t in oracle.tiers.items()},
        "queued": {tier: sum(j.state == "queued" and j.tier == tier for j in waiting) for tier in oracle.tiers},
        "ring": {tier: {t: oracle.score(tier, t) for t in oracle.tiers[tier].runnable} for tier in oracle.tiers},
        "oldest": {
            tier: {t: oracle.line(tier, t)[0].at for t in oracle.tenants if oracle.line(tier, t)}
            for tier in oracle.tiers
        },
        "tenants": {name: count for name, count in counts.items() if any(count)},
        "live": {name: oracle.inflight(backend=name) for name in oracle.backends},
    }
