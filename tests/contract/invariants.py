"""What must hold of a pool's keys at every moment, recounted from the raw keys."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from fairlane.model import FINISHED
from fairlane.queue import keys
from fairlane.queue.engine import Queue
from fairlane.queue.pools import FADE_MS, Pool
from fairlane.queue.replies import kept_spec

Kind = Literal["set", "hash", "zset", "stream", "string"]
KINDS: Final[dict[str, Kind]] = {
    "pool": "hash", "class": "hash", "prefixes": "hash", "tenant": "hash", "backend": "hash", "job": "hash",
    "line": "stream", "events": "stream", "chunks": "stream",
    "rejoin": "zset", "ring": "zset", "shelf": "zset", "left": "zset", "oldest": "zset", "held": "zset",
    "leases": "zset", "due": "zset", "deadlines": "zset", "moves": "zset", "done": "zset", "dead": "zset",
    "history": "zset", "trend": "zset", "served": "string",
    "beats": "zset", "dispatchers": "hash", "drains": "zset", "elected": "string", "call": "string", "idem": "string",
    "batching": "set",
    "run": "hash", "run_jobs": "hash", "run_lines": "hash", "runs": "zset", "runs_open": "zset",
}  # fmt: skip
WAITING: Final = ("queued", "delayed")
FOREVER: Final = -1
DONE_MOST: Final = 10_000  # finished jobs that the list remembers
GONE: Final = -2  # it expired while we looked
Fields = dict[str, str]
Place = tuple[int, str]


@dataclass
class Snapshot:
    """All keys of one pool, by name; a zset is member -> score, a stream is a list of (seq, fields)."""

    hashes: dict[str, Fields] = field(default_factory=dict)
    zsets: dict[str, dict[str, float]] = field(default_factory=dict)
    streams: dict[str, list[tuple[str, Fields]]] = field(default_factory=dict)
    ttls: dict[str, int] = field(default_factory=dict)

    def under(self, kind: str) -> dict[str, Fields]:
        """The hashes named `<kind>:<rest>`, by their rest."""
        return {name.removeprefix(f"{kind}:"): h for name, h in self.hashes.items() if name.startswith(f"{kind}:")}

    def zset(self, *parts: str) -> dict[str, float]:
        return self.zsets.get(":".join(parts), {})

    @cached_property
    def jobs(self) -> dict[str, Fields]:
        return self.under("job")

    @property
    def pool(self) -> Fields:
        return self.hashes["pool"]

    @property
    def tiers(self) -> list[str]:
        return self.pool["tiers"].split(",")

    def ids(self, *states: str) -> set[str]:
        return {id_ for id_, job in self.jobs.items() if job["state"] in states}


async def check_invariants(queue: Queue, pool: Pool) -> None:
    """Fails if anything that is kept twice in `pool` disagrees, or if anything is left behind."""
    s = await _snapshot(queue, pool)
    _check_leases(s)
    _check_tenants(s)
    _check_counts(s)
    _check_lines(s)
    for tier in s.tiers:
        _check_ring(s, tier)
    _check_held(s)
    _check_clocks(s)
    _check_retention(s)


async def _snapshot(queue: Queue, pool: Pool) -> Snapshot:
    client: Any = queue._store.client
    namespace = queue._store.namespace
    prefixes = [keys.prefix(namespace, keys.ACCOUNT), *(p.prefix for p in await queue.pools.all())]
    names = sorted({key.decode() async for key in client.scan_iter(match=f"{namespace}:*", count=1000)})
    strays = [name for name in names if not name.startswith(tuple(prefixes))]
    strays = [name for name in strays if not 0 < await client.pttl(name) <= FADE_MS]  # those of a pool that was removed
    assert not strays, f"keys outside every slot that Fairlane knows: {strays}"
    snapshot = Snapshot()
    mine = [name.removeprefix(pool.prefix) for name in names if name.startswith(pool.prefix)]
    unknown = [name for name in mine if name.split(":")[0] not in KINDS]
    assert not unknown, f"keys that keys.py does not know: {unknown}"
    pipe = client.pipeline(transaction=False)
    for name in mine:
        _read(pipe, pool.prefix + name, KINDS[name.split(":")[0]])
        pipe.pttl(pool.prefix + name)
    answers = iter(await pipe.execute())
    for name, value, ttl in zip(mine, answers, answers, strict=True):
        if ttl != GONE:
            _keep(snapshot, name, value, ttl)
    return snapshot


def _read(pipe: Any, key: str, kind: Kind) -> None:
    match kind:
        case "hash":
            pipe.hgetall(key)
        case "zset":
            pipe.zrange(key, 0, -1, withscores=True)
        case "stream":
            pipe.xrange(key)
        case "string":
            pipe.get(key)
        case "set":
            pipe.smembers(key)


def _keep(s: Snapshot, name: str, value: Any, ttl: int) -> None:
    s.ttls[name] = ttl
    match KINDS[name.split(":")[0]]:
        case "hash":
            binary = ("head", "body", "result")
            fields = {k.decode(): "" if k.decode() in binary else v.decode() for k, v in value.items()}
            if spec := value.get(b"spec") if name.startswith("job:") else None:
                fields |= {name: str(part) for name, part in kept_spec(spec)._asdict().items()}
            s.hashes[name] = fields
        case "zset":
            s.zsets[name] = {member.decode(): score for member, score in value}
        case "stream":
            if name.startswith("chunks:"):
                assert ttl > 0, f"{name} would stay for ever"
            entries = [(i.decode(), {k.decode(): v.decode(errors="replace") for k, v in f.items()}) for i, f in value]
            s.streams[name] = entries
        case "string":
            assert ttl > 0, f"{name} would stay for ever"


def _check_leases(s: Snapshot) -> None:
    """A lease for each job that runs, or that was cancelled while it ran; each counted for its backend."""
    kept = {id_ for id_ in s.ids("cancelled") if s.ttls[f"job:{id_}"] == FOREVER}
    assert set(s.zset("leases")) == s.ids("leased") | kept
    live = Counter(s.jobs[id_]["lease"].split(" ")[0] for id_ in s.zset("leases"))
    counted = {name: int(b.get("taken", 0)) - int(b.get("ended", 0)) for name, b in s.under("backend").items()}
    assert counted == {name: live[name] for name in counted}
    assert set(live) <= set(counted)
    assert set(s.pool.get("backends", "").split()) == set(counted)


def _check_tenants(s: Snapshot) -> None:
    """What a tenant has waiting and in flight, and no hash for one who has nothing to be remembered."""
    waiting = Counter(job["tenant"] for job in s.jobs.values() if job["state"] in WAITING)
    inflight = Counter(s.jobs[id_]["tenant"] for id_ in s.zset("leases"))
    tenants = s.under("tenant")
    for name, t in tenants.items():
        counted = (int(t.get("waiting", 0)), int(t.get("inflight", 0)))
        assert counted == (waiting[name], inflight[name]), f"{name} counts {counted}"
        assert any(counted) or {"limits", "paused", "hooks"} & t.keys(), f"nothing to be remembered of {name}"
    assert waiting.keys() | inflight.keys() <= tenants.keys()


def _check_counts(s: Snapshot) -> None:
    assert int(s.pool.get("waiting", 0)) == len(s.ids(*WAITING))
    queued = Counter(s.jobs[id_]["tier"] for id_ in s.ids("queued"))
    leased = Counter(s.jobs[id_]["tier"] for id_ in s.zset("leases"))
    for tier in s.tiers:
        assert int(s.pool.get(f"waiting:{tier}", 0)) == queued[tier], f"waiting:{tier}"
        assert int(s.pool.get(f"inflight:{tier}", 0)) == leased[tier], f"inflight:{tier}"


def _lines(s: Snapshot) -> dict[tuple[str, str], list[Place]]:
    """What stands in each line, stream and rejoin together, by (tier, tenant)."""
    lines: dict[tuple[str, str], list[Place]] = defaultdict(list)
    for name, entries in s.streams.items():
        kind, _, rest = name.partition(":")
        if kind == "line":
            assert entries, f"{name} is empty and would keep 4.5 KB"
            tier, tenant = rest.split(":", 1)
            for entry, fields in entries:
                id_, *numbers = fields["j"].split(" ")
                job = s.jobs[id_]
                assert numbers == [
                    job["at_ms"],
                    job["boost_ms"],
                    str(int(job["input_tokens"]) + 2 * int(job["output_tokens"])),
                ]
                lines[tier, tenant].append((int(entry.split("-")[0]), id_))
    for name, members in s.zsets.items():
        kind, _, rest = name.partition(":")
        if kind == "rejoin":
            tier, tenant = rest.split(":", 1)
            lines[tier, tenant] += [(int(seq), id_) for id_, seq in members.items()]
    return lines


def _check_lines(s: Snapshot) -> None:
    """Each queued job stands in exactly one place, its own; nothing else stands anywhere."""
    stand = [(line, place) for line, places in _lines(s).items() for place in places]
    should = [((j["tier"], j["tenant"]), (int(j["seq"]), id_)) for id_, j in s.jobs.items() if j["state"] == "queued"]
    assert sorted(stand) == sorted(should)


def _check_ring(s: Snapshot, tier: str) -> None:
    """In the ring (on the shelf, if paused) stand those with queued work who are not held; `oldest` is their head's."""
    heads = {tenant: min(places)[1] for (t, tenant), places in _lines(s).items() if t == tier}
    runnable = heads.keys() - s.zset("held").keys()
    paused = "paused" in s.pool or f"paused:{tier}" in s.pool
    assert set(s.zset("shelf", tier)) == (runnable if paused else set()), f"shelf:{tier}"
    assert set(s.zset("ring", tier)) == (set() if paused else runnable), f"ring:{tier}"
    assert not s.zset("left", tier).keys() & runnable, f"in the ring and in left:{tier}"
    assert (f"since:{tier}" in s.pool) == bool(s.zset("ring", tier)), f"since:{tier}"
    assert s.zset("oldest", tier) == {tenant: int(s.jobs[id_]["at_ms"]) for tenant, id_ in heads.items()}


def _check_held(s: Snapshot) -> None:
    """Held are those who are paused, have all in flight that they may, or wait for their rate; only they."""
    tenants = s.under("tenant")
    for name, till in s.zset("held").items():
        t = tenants[name]
        most = t["limits"].split(" ")[1] if "limits" in t else "-"
        stuck = "paused" in t or (most != "-" and int(t.get("inflight", 0)) >= int(most))
        assert stuck == math.isinf(till), f"{name} is held until {till}"
        assert stuck or "rates" in t, f"{name} is held by nothing"
    for name, t in tenants.items():
        assert "paused" not in t or name in s.zset("held"), f"{name} is paused and not held"


def _check_clocks(s: Snapshot) -> None:
    """What the sweeper goes by."""
    assert s.zset("due") == {id_: int(s.jobs[id_]["due"]) for id_ in s.ids("delayed")}
    bounded = {id_: job for id_, job in s.jobs.items() if job["state"] in WAITING and "deadline" in job}
    assert s.zset("deadlines") == {id_: int(job["deadline"]) for id_, job in bounded.items()}
    assert set(s.zset("moves")) == s.ids("moving", "moved")


def _check_retention(s: Snapshot) -> None:
    """A finished job goes in the end, unless a lease still counts for it; no other does."""
    for id_, job in s.jobs.items():
        goes = job["state"] in FINISHED and id_ not in s.zset("leases")
        assert (s.ttls[f"job:{id_}"] > 0) == goes, f"{id_} is {job['state']} and has the TTL {s.ttls[f'job:{id_}']}"
        listed = id_ in s.zset("done") or "collected" in job  # its batch needs it no more
        assert listed == (job["state"] in FINISHED) or len(s.zset("done")) == DONE_MOST, f"{id_} is {job['state']}"
    assert set(s.zset("dead")) == {id_ for id_, job in s.jobs.items() if "dead" in job}


async def raw_state(queue: Queue, pool: Pool, job_id: str) -> str | None:
    """The state that `pool` itself keeps of a job, `moving` and `moved` included; None if it keeps nothing."""
    client: Any = queue._store.client
    state = await client.hget(pool.key("job", job_id), "state")
    return None if state is None else state.decode()


async def end_lease_early(queue: Queue, pool: Pool, job_id: str) -> None:
    """The lease ends now, as if the clock had jumped."""
    client: Any = queue._store.client
    await client.zadd(pool.key("leases"), {job_id: 1})


async def note_finished(queue: Queue, pool: Pool, n: int) -> None:
    """Writes `n` jobs that finished, and are past their retention, into the list of them."""
    client: Any = queue._store.client
    await client.zadd(pool.key("done"), {f"job_{i}": i for i in range(n)})


async def note_events(queue: Queue, pool: Pool, n: int) -> None:
    """Writes `n` events that no job led to."""
    client: Any = queue._store.client
    fill = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'job', i, 'state', 'failed') end"
    await client.eval(fill, 1, pool.key("events"), n)
