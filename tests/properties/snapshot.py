"""All scheduling state of a pool in one form that can be compared: read raw from Redis, and from the oracle."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fairlane.model import FINISHED
from fairlane.queue.pools import Pool
from fairlane.queue.replies import kept_spec
from tests.properties.oracle import Oracle

Snapshot = dict[str, Any]


async def of_redis(client: Any, pool: Pool) -> Snapshot:
    """`client` is Redis or RedisCluster with bytes; its replies are taken as they come."""

    async def scores(key: str) -> dict[str, float]:
        return {member.decode(): score for member, score in await client.zrange(key, 0, -1, withscores=True)}

    tiers = pool.policy.tiers
    keys = [k.decode().removeprefix(pool.prefix) async for k in client.scan_iter(match=pool.prefix + "*", count=1000)]
    shared = {k.decode(): v.decode() for k, v in (await client.hgetall(pool.key("pool"))).items()}
    leases = await scores(pool.key("leases"))
    return {
        "jobs": await _jobs(client, pool, keys, set(leases)),
        "lines": await _lines(client, pool, keys),
        "leases": leases,
        "due": await scores(pool.key("due")),
        "deadlines": await scores(pool.key("deadlines")),
        "held": await scores(pool.key("held")),
        "waiting": int(shared.get("waiting", 0)),
        "since": {tier: int(shared[f"since:{tier}"]) for tier in tiers if f"since:{tier}" in shared},
        "clock": {tier: int(shared.get(f"clock:{tier}", 0)) for tier in tiers},
        "queued": {tier: int(shared.get(f"waiting:{tier}", 0)) for tier in tiers},
        "inflight": {tier: int(shared.get(f"inflight:{tier}", 0)) for tier in tiers},
        "ring": {tier: await _ring(client, pool, tier, shared) for tier in tiers},
        "left": {tier: await scores(pool.key("left", tier)) for tier in tiers},
        "oldest": {tier: await scores(pool.key("oldest", tier)) for tier in tiers},
        "valve": (int(shared.get("valve", 0)), int(shared.get("valved_at", 0))),
        "rates": await _rates(client, pool, keys),
        "tenants": await _counts(client, pool, keys, "tenant:", ["waiting", "inflight"]),
        "live": {
            name: taken - ended
            for name, (taken, ended) in (
                await _counts(client, pool, keys, "backend:", ["taken", "ended"], keep_zero=True)
            ).items()
        },
    }


async def _jobs(client: Any, pool: Pool, keys: list[str], leases: set[str]) -> dict[str, tuple[Any, ...]]:
    jobs: dict[str, tuple[Any, ...]] = {}
    for job_id in (key.removeprefix("job:") for key in keys if key.startswith("job:")):
        key = pool.key("job", job_id)
        values = await client.hmget(key, ["state", "spec", "tries", "token", "dead"])
        state, packed, tries, token, dead = (value.decode() if value else "" for value in values)
        if state != "moved":
            spec = kept_spec(packed.encode())
            jobs[job_id] = (state, spec.tenant, spec.tier, int(tries or 0), int(token or 0), bool(dead))
        kept = state not in FINISHED or job_id in leases
        assert (await client.pttl(key) < 0) == kept, f"retention of {job_id}, {state}"
    return jobs


async def _lines(client: Any, pool: Pool, keys: list[str]) -> dict[str, list[str]]:
    entries: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for key in keys:
        kind, _, line = key.partition(":")
        if kind == "line":
            streamed = await client.xrange(pool.prefix + key)
            assert streamed, f"an empty stream: {key}"
            entries[line] += [(int(i.split(b"-")[0]), f[b"j"].split()[0].decode()) for i, f in streamed]
        elif kind == "rejoin":
            back = await client.zrange(pool.prefix + key, 0, -1, withscores=True)
            entries[line] += [(int(seq), job_id.decode()) for job_id, seq in back]
    return {line: [job_id for _, job_id in sorted(both)] for line, both in entries.items()}


async def _ring(client: Any, pool: Pool, tier: str, shared: dict[str, str]) -> dict[str, float]:
    rings = [await client.zrange(pool.key(kind, tier), 0, -1, withscores=True) for kind in ("ring", "shelf")]
    paused = "paused" in shared or f"paused:{tier}" in shared
    assert not rings[0 if paused else 1], f"the ring of {tier} is not where it should be"
    return {tenant.decode(): score for tenant, score in rings[1 if paused else 0]}


async def _rates(client: Any, pool: Pool, keys: list[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for key in (key for key in keys if key.startswith("tenant:")):
        if rates := await client.hget(pool.prefix + key, "rates"):
            found[key.removeprefix("tenant:")] = tuple(int(at) for at in rates.split())
    return found


async def _counts(
    client: Any, pool: Pool, keys: list[str], kind: str, fields: list[str], *, keep_zero: bool = False
) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for key in (key for key in keys if key.startswith(kind)):
        counts = tuple(int(value or 0) for value in await client.hmget(pool.prefix + key, fields))
        if keep_zero or any(counts):
            found[key.removeprefix(kind)] = counts
    return found


def of_oracle(oracle: Oracle) -> Snapshot:
    waiting = [j for j in oracle.jobs.values() if j.state in ("queued", "delayed")]
    lines: dict[str, list[str]] = defaultdict(list)
    for job in sorted((j for j in waiting if j.state == "queued"), key=lambda j: j.seq):
        lines[f"{job.tier}:{job.tenant}"].append(job.name)
    heads = {(tier, t): oracle.line(tier, t)[:1] for tier in oracle.tiers for t in oracle.tenants}
    counts = {name: (oracle.waiting(name), oracle.inflight(tenant=name)) for name in oracle.tenants}
    return {
        "jobs": {name: (j.state, j.tenant, j.tier, j.tries, j.token, j.dead) for name, j in oracle.jobs.items()},
        "lines": dict(lines),
        "leases": {j.name: j.lease_until for j in oracle.jobs.values() if j.lease_until is not None},
        "due": {j.name: j.due for j in waiting if j.state == "delayed"},
        "deadlines": {j.name: j.deadline for j in waiting if j.deadline is not None},
        "held": {name: t.held_until for name, t in oracle.tenants.items() if t.held_until is not None},
        "waiting": oracle.waiting(),
        "since": {name: t.since for name, t in oracle.tiers.items() if t.since is not None},
        "clock": {name: t.clock for name, t in oracle.tiers.items()},
        "queued": {tier: sum(j.state == "queued" and j.tier == tier for j in waiting) for tier in oracle.tiers},
        "inflight": {tier: oracle.inflight(tier=tier) for tier in oracle.tiers},
        "ring": {tier: {t: oracle.score(tier, t) for t in oracle.tiers[tier].v} for tier in oracle.tiers},
        "left": {name: tier.left for name, tier in oracle.tiers.items()},
        "oldest": {tier: {t: heads[tier, t][0].at for t in oracle.tenants if heads[tier, t]} for tier in oracle.tiers},
        "valve": (oracle.valve, oracle.valved_at),
        "rates": {
            name: (t.requests_at, t.tokens_at) for name, t in oracle.tenants.items() if t.requests_at or t.tokens_at
        },
        "tenants": {name: count for name, count in counts.items() if any(count)},
        "live": {name: oracle.inflight(backend=name) for name in oracle.backends},
    }
