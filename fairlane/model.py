"""What every process agrees on: a job's states and legal transitions, and the values that pass between the parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

State = Literal["queued", "delayed", "leased", "succeeded", "failed", "cancelled", "expired", "moving", "moved"]
Act = Literal[
    "submit", "acquire", "settle", "retry", "release", "lose", "wake", "expire", "cancel", "requeue", "retier",
    "depart", "arrive", "leave_stub",
]  # fmt: skip
Fairness = Literal["requests", "tokens"]
Affinity = Literal["none", "prefix"]
Role = Literal["observer", "sweeper"]
GateReason = Literal["open", "down", "draining", "stale", "full", "room", "kv", "slow_tokens"]

# The one table of legal transitions: act -> state before -> states after. None: the job is not there yet.
# The scripts enforce it (scripts.py hands each the states that its acts may start from), docs/states.md draws it, and
# tests/contract/test_transitions.py tries every pair of act and state.
TRANSITIONS: Final[Mapping[Act, Mapping[State | None, frozenset[State]]]] = {
    "submit": {None: frozenset({"queued", "delayed"})},
    "acquire": {"queued": frozenset({"leased"})},
    "settle": {"leased": frozenset({"succeeded", "failed"})},
    "retry": {"leased": frozenset({"queued", "delayed", "failed"})},
    "release": {"leased": frozenset({"queued"})},
    "lose": {"leased": frozenset({"queued", "failed", "expired"})},
    "wake": {"delayed": frozenset({"queued"})},
    "expire": {"queued": frozenset({"expired"}), "delayed": frozenset({"expired"})},
    "cancel": {s: frozenset({"cancelled"}) for s in ("queued", "delayed", "leased")},
    "requeue": {"failed": frozenset({"queued"})},
    "retier": {"queued": frozenset({"queued"}), "delayed": frozenset({"delayed"})},
    "depart": {"queued": frozenset({"moving"}), "delayed": frozenset({"moving"})},
    "arrive": {s: frozenset({"queued", "delayed"}) for s in (None, "moved", "moving")},
    "leave_stub": {"moving": frozenset({"moved"})},
}
FINISHED: Final[frozenset[State]] = frozenset({"succeeded", "failed", "cancelled", "expired"})

DEFAULT_TIERS: Final = ("priority", "default", "flex", "batch")
TENANT_PATTERN: Final = r"[A-Za-z0-9._@-]{1,128}"
TIER_PATTERN: Final = r"[a-z0-9_-]{1,32}"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job to submit.

    `head` is small JSON that the queue keeps but does not read (model, endpoint, metadata, webhook …); `body` is the
    request's body as bytes. `input_tokens` and `output_tokens` are estimates until the backend reports its usage;
    `expected_ms` is how long the work should take, for the boost. `delay_ms` and `deadline_ms` count from the submit;
    the deadline bounds the wait, not the work. `batch_id` names the batch that the job is a line of. `prefix` holds
    hashes of the prompt's leading blocks, the shortest first, for pools that keep equal prompts on one backend. `hook`:
    its head has a webhook, by which somebody is to be told of its outcome. `inbox`: whoever submits it hears of its
    outcome on the pool's channel `settled:<inbox>` too, together with those of its other jobs (not once it has moved).
    """

    tenant: str
    tier: str
    body: bytes
    head: bytes = b"{}"
    input_tokens: int = 0
    output_tokens: int = 0
    expected_ms: int = 1000
    max_attempts: int = 3
    delay_ms: int = 0
    deadline_ms: int | None = None
    idempotency_key: str | None = None
    batch_id: str | None = None
    prefix: tuple[str, ...] = ()
    hook: bool = False
    inbox: str | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer to a submit: the job's id, and whether this call made it or an earlier one with the same key."""

    id: str
    created: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a backend reports to have used."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A dispatcher's time-limited hold on one job. `token` fences it: only the latest lease can write.

    `arrived_at_ms` is when the job was submitted, `phi_ms` is that less the job's boost: the smaller, the sooner.
    `attempt` counts from 1. `until_ms` is when the lease ends unless it is renewed.
    """

    id: str
    token: int
    backend: str
    tenant: str
    tier: str
    attempt: int
    max_attempts: int
    arrived_at_ms: int
    phi_ms: int
    until_ms: int
    input_tokens: int
    output_tokens: int
    head: bytes = field(repr=False)
    body: bytes = field(repr=False)


Rest = Literal["none", "shut", "more"]


class Leases(list[Lease]):
    """What one acquire leased, and the `rest`: whether what waits could run now.

    `none`: no, and a `wake` is published as soon as some can. `shut`: but for a gate. `more`: ask again.
    """

    def __init__(self, leases: Iterable[Lease] = (), rest: Rest = "more") -> None:
        super().__init__(leases)
        self.rest: Final = rest


Renewal = Literal["ok", "cancelled", "lost"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a job on a backend. `outcome` is None while it runs."""

    n: int
    backend: str
    started_at_ms: int
    ended_at_ms: int | None
    outcome: str | None
    status: int | None


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: a stable code, a sentence, and the backend's HTTP status if it answered."""

    code: str
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of a leased job. `status` and `result` are the backend's answer."""

    lease: Lease
    state: Literal["succeeded", "failed"]
    status: int | None = None
    result: bytes = field(default=b"", repr=False)
    error: JobError | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Everything about one job, as it stands in Redis. Times are milliseconds since the epoch."""

    id: str
    pool: str
    tenant: str
    tier: str
    state: State
    dead: bool
    created_at_ms: int
    not_before_ms: int | None
    deadline_at_ms: int | None
    started_at_ms: int | None
    finished_at_ms: int | None
    attempts: tuple[Attempt, ...]
    max_attempts: int
    batch_id: str | None
    head: bytes = field(repr=False)
    body: bytes | None = field(repr=False)
    status: int | None
    result: bytes | None = field(repr=False)
    error: JobError | None
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tenant may do in one pool. None: no limit (or, for `max_waiting`, the pool's own default)."""

    weight: float = 1.0
    max_inflight: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for a whole pool, and can be changed while it runs. docs/policy.md tells what each is for.

    `gamma` is per second: None lets the thermostat set it, 0 gives no boost. `theta` says how many jobs of each tier
    may wait in a backend, from the highest tier down; for those further down the last one holds. `reserve` and `decay`
    give the headroom H_q = reserve · e^(-decay / (K - 1) · q) that tier q keeps from those below it.
    """

    tiers: tuple[str, ...] = DEFAULT_TIERS
    fairness: Fairness = "requests"
    affinity: Affinity = "none"
    lease_ms: int = 30_000
    stale_ms: int = 600
    valve_ms: int = 60_000
    gamma: float | None = None
    boost_max_ms: int = 30_000
    theta: tuple[int, ...] = (3, 2, 1)
    reserve: float = 0.20
    decay: float = 2.5
    kv_most: float = 0.95
    slow_ms: float = 150.0
    result_ttl_ms: int = 86_400_000
    dead_ttl_ms: int = 7 * 86_400_000
    max_waiting_pool: int = 1_000_000
    max_waiting_tenant: int = 10_000


# The kinds of server that are known; dispatcher/backends/families.py says what each calls its metrics.
FAMILY_NAMES: Final = ("vllm", "sglang", "tgi", "llamacpp", "trtllm", "triton", "ray", "openai")


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """Where a backend is: `http(s)://…`, or `null://` for one that answers at once inside the dispatcher.

    `family` is the kind of server, one of FAMILY_NAMES (None: found out), `key_env` names the environment variable with
    its API key, `slots` is how many requests it runs at once, if that is known.
    """

    url: str
    family: str | None = None
    key_env: str | None = None
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class TierGate:
    """How many leases a backend may carry, of all tiers, for one tier to send it one more; decided at a scrape.

    `limit` holds while the metrics are fresh, and `why` is the reason given at the limit; `fallback` holds when they
    are stale.
    """

    limit: int
    fallback: int
    why: GateReason = "full"


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did; `moves` are those it looked at.

    `more`: there is more to do at once. `next_at_ms`: when the next thing is due, if known.
    """

    lost: int
    due: int
    expired: int
    moves: int
    more: bool
    next_at_ms: int | None


@dataclass(frozen=True, slots=True)
class BackendCounts:
    """What a pool's scripts counted for one backend since the last observation that took note of it."""

    live: int
    done: int
    denied: int
