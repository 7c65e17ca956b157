"""Between Python values and what passes to and from Redis: a script's arguments and replies, and the job's hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, fields
from functools import lru_cache
from typing import NamedTuple, cast

from fairlane.errors import (
    FairlaneError,
    IdempotencyMismatch,
    IllegalTransition,
    InvalidRequest,
    LeaseLost,
    NotFound,
    QueueFull,
    StaleCall,
    UnknownTier,
)
from fairlane.model import (
    Attempt,
    BackendSpec,
    Job,
    JobError,
    JobSpec,
    Lease,
    Leases,
    Limits,
    Rest,
    Settlement,
    State,
    Submitted,
    Usage,
)
from fairlane.queue.scripts import Reply


class MovedAway(Exception):
    """The job is in another pool, or on its way there. `stage` is the state of what it left behind."""

    def __init__(self, stage: str, code: str) -> None:
        super().__init__(f"{stage} to {code}")
        self.stage = stage
        self.code = code


def text(reply: Reply) -> str:
    return cast(bytes, reply).decode()


def texts(reply: Reply) -> list[str]:
    return [text(item) for item in items(reply)]


def items(reply: Reply) -> list[Reply]:
    return cast("list[Reply]", reply)


def number(reply: Reply) -> int:
    return int(cast(bytes | int, reply))


def scope(tenants: Collection[str] | None) -> tuple[str, list[str]]:
    """Whose entries a script is to find: the one tenant whose own list has them all, or '' and those to look for in the
    list of all (none: everybody's)."""
    if tenants is not None and len(tenants) == 1:
        return next(iter(tenants)), []
    return "", sorted(tenants or ())


def refusal(words: str) -> FairlaneError | MovedAway | None:
    """The error that a script's refusal stands for; None if it is not one of ours."""
    word, _, rest = words.partition(" ")
    match word:
        case "NOTFOUND":
            return NotFound("There is no such backend in this pool." if "backend" in rest else None)
        case "ILLEGAL":
            return IllegalTransition(f"The job is {rest}; that does not allow this.")
        case "LOST" | "STALE":
            return LeaseLost() if word == "LOST" else StaleCall()
        case "TIER":
            return UnknownTier(f"The pool has no tier {rest!r}.", param="tier")
        case "BATCH":
            return IllegalTransition("A job of a batch stays in its pool. It can change its tier.")
        case "FULL":
            return InvalidRequest("A pool has 64 backends at the most.")
        case "TIERINUSE":
            return IllegalTransition(
                f"There are {rest}. A tier is taken away when no job needs it: stop sending to it and let it run "
                "empty, cancel its jobs, or move them with `Queue.retier`, first."
            )
        case "INUSE":
            return IllegalTransition(f"The backend still runs {rest} jobs. Drain it first.")
        case "ELSEWHERE":
            return MovedAway(*rest.split())
        case _:
            return _pool_refusal(word, rest) or _account_refusal(word, rest)


def _pool_refusal(word: str, rest: str) -> FairlaneError | None:
    if word == "POOLINUSE":
        return IllegalTransition(f"A pool is removed when nothing needs it any more; {rest}.")
    if word == "RUNSFULL":
        return IllegalTransition(f"{rest} runs are under way in this pool, which is the most. Abort one first.")
    if word == "ILLEGALRUN":
        return IllegalTransition(f"The run is {rest}; that does not allow this.")
    if word == "RUNLATE":
        return IllegalTransition("A run is undone within 24 hours; what it did is not known any more.")
    if word == "CLOSED":
        return IllegalTransition("This pool is being removed. Remove it again to end that, then add it anew.")
    return None


def _account_refusal(word: str, rest: str) -> FairlaneError | None:
    match word:
        case "TENANTTHERE":
            return IllegalTransition(f"There is a tenant {rest!r} already.")
        case "NOTENANT":
            return NotFound(f"There is no tenant {rest!r}. `fairlane tenants create {rest}` makes one.")
        case "NOKEY":
            return NotFound(f"There is no key {rest!r}. `fairlane keys list` shows those that there are.")
        case "KEYSTATE":
            return IllegalTransition(f"The key is {rest}; that does not allow this.")
        case "KEYSFULL":
            return IllegalTransition(f"The tenant has {rest} keys, which is the most. Revoke those it does not need.")
        case _:
            return _webhook_refusal(word, rest) or _user_refusal(word, rest)


def _user_refusal(word: str, rest: str) -> FairlaneError | None:
    match word:
        case "USERTHERE":
            return IllegalTransition(f"There is a user {rest!r} already.")
        case "NOUSER":
            return NotFound(f"There is no user {rest!r}. `fairlane users create {rest}` makes one.")
        case "USEROFF":
            return IllegalTransition(f"The user {rest!r} is disabled. Enable them first.")
        case _:
            return None


def _webhook_refusal(word: str, rest: str) -> FairlaneError | None:
    match word:
        case "NOENDPOINT":
            return NotFound(f"There is no webhook endpoint {rest!r}.")
        case "ENDPOINTTHERE":
            return IllegalTransition(f"{rest} has this url and these events already. Change or enable that one.")
        case "ENDPOINTSFULL":
            return IllegalTransition(f"The tenant has {rest} webhook endpoints, which is the most. Delete one first.")
        case _:
            return None


def submit_args(spec: JobSpec, random_part: str) -> list[str | bytes]:
    """One job's arguments of submit.lua."""
    digest, request = "", ""
    if spec.idempotency_key is not None:
        digest = hashlib.sha256(spec.idempotency_key.encode()).hexdigest()[:32]
        asked = b"\0".join([spec.tier.encode(), spec.head, spec.body])
        request = hashlib.sha256(asked).hexdigest()[:32]
    numbers = (
        f"{spec.max_attempts} {spec.input_tokens} {spec.output_tokens} {spec.expected_ms} {spec.delay_ms} "
        f"{'-' if spec.deadline_ms is None else spec.deadline_ms} {1 if spec.hook else 0} "
        f"{spec.inbox or '-'}"
    )
    keyed = f"{digest} {request}" if digest else ""
    return [
        random_part,
        spec.tenant,
        spec.tier,
        numbers,
        keyed,
        spec.batch_id or "",
        spec.head,
        spec.body,
        " ".join(spec.prefix),
    ]


class KeptSpec(NamedTuple):
    """What the queue keeps of a JobSpec in one field of the job's hash. (A tuple: one is made for each lease.)"""

    tenant: str
    tier: str
    seq: int
    at_ms: int
    boost_ms: int
    input_tokens: int
    output_tokens: int
    max_attempts: int


def kept_spec(field: bytes) -> KeptSpec:
    """The field `spec` as lua/lib/job.lua writes it."""
    tenant, tier, seq, at, boost, input_, output, most = field.decode().split(" ")
    return KeptSpec(tenant, tier, int(seq), int(at), int(boost), int(input_), int(output), int(most))


def settle_args(settlement: Settlement) -> list[str | bytes]:
    """One job's arguments of settle.lua."""
    lease, error = settlement.lease, settlement.error
    return [
        lease.id, str(lease.token), settlement.state, or_empty(settlement.status), settlement.result,
        error_json(error) if error else "", *usage_args(settlement.usage),
    ]  # fmt: skip


def or_empty(value: int | None) -> str:
    return "" if value is None else str(value)


def usage_args(usage: Usage | None) -> tuple[str, str]:
    return (str(usage.input_tokens), str(usage.output_tokens)) if usage else ("", "")


def submitted(word: bytes, value: bytes) -> Submitted | FairlaneError:
    """One job's answer of submit.lua."""
    match word:
        case b"new" | b"old":
            return Submitted(value.decode(), created=word == b"new")
        case b"mismatch":
            return IdempotencyMismatch()
        case b"no_tier" if not value:
            return NotFound("This pool was removed.")
        case b"no_tier":
            return UnknownTier(f"The tiers are {', '.join(value.decode().split(','))}.", param="tier")
        case b"tenant_full":
            words = f"{int(value)} jobs of this tenant wait already. Let fewer wait at once."
            return QueueFull(words, param="max_waiting_tenant", retry_after=5)
        case _:
            words = f"{int(value)} jobs wait in this pool already. Try again later."
            return QueueFull(words, param="max_waiting_pool", retry_after=5)


def leases(reply: Reply) -> Leases:
    """The jobs that acquire.lua leased, and what it left."""
    rest, rows = items(reply)
    return Leases((_lease(cast("list[bytes]", row)) for row in items(rows)), cast(Rest, text(rest)))


def _lease(row: list[bytes]) -> Lease:
    id_, token, backend, packed, attempt, until, head, body = row
    tenant, tier, _, at, boost, input_tokens, output_tokens, most = kept_spec(packed)
    return Lease(
        id_.decode(), int(token), backend.decode(), tenant, tier, int(attempt), most, at, at - boost, int(until),
        input_tokens, output_tokens, head, body,
    )  # fmt: skip


def limits_field(limits: Limits) -> str:
    """A tenant's limits as lua/lib/tenant.lua reads them."""
    return " ".join("-" if value is None else str(value) for value in astuple(limits))


def limits(field: bytes | None) -> Limits:
    """The inverse of `limits_field`; the defaults if none were set."""
    if field is None:
        return Limits()
    weight, *most = field.decode().split(" ")
    return Limits(float(weight), *(None if value == "-" else int(value) for value in most))


def backend_spec_json(spec: BackendSpec) -> str:
    return json.dumps(asdict(spec))


@lru_cache(256)  # it is read with every look at a backend, and seldom changes
def backend_spec(field: bytes | None) -> BackendSpec | None:
    """The inverse of `backend_spec_json`; None if none was given."""
    if field is None:
        return None
    known = {each.name for each in fields(BackendSpec)}
    return BackendSpec(**{name: value for name, value in json.loads(field).items() if name in known})


def error_json(error: JobError) -> str:
    return json.dumps({"code": error.code, "message": error.message, "status": error.status})


def pairs(reply: Iterable[Reply]) -> Iterator[tuple[str, bytes]]:
    """The names and values of a hash as a script returns it."""
    flat = iter(cast("Iterable[bytes]", reply))
    return ((name.decode(), value) for name, value in zip(flat, flat, strict=True))


def job(id_: str, pool: str, fields: Mapping[str, bytes]) -> Job:
    """A job from its hash."""

    def whole(name: str) -> int | None:
        return int(fields[name]) if name in fields else None

    spec = kept_spec(fields["spec"])
    state = cast(State, fields["state"].decode())
    if state == "moving":
        state = cast(State, fields["was"].decode())
    tries = attempts(fields.get("attempts", b""))
    if state == "leased":
        backend, started, *_ = fields["lease"].decode().split(" ")
        tries += (Attempt(int(fields["tries"]), backend, int(started), None, None, None),)
    return Job(
        id=id_,
        pool=pool,
        tenant=spec.tenant,
        tier=spec.tier,
        state=state,
        dead="dead" in fields,
        created_at_ms=int(fields.get("created", spec.at_ms)),
        not_before_ms=whole("due"),
        deadline_at_ms=whole("deadline"),
        started_at_ms=tries[0].started_at_ms if tries else None,
        finished_at_ms=whole("ended"),
        attempts=tries,
        max_attempts=spec.max_attempts,
        batch_id=fields["batch"].decode() if "batch" in fields else None,
        head=fields["head"],
        body=fields.get("body"),
        status=whole("status"),
        result=fields.get("result"),
        error=job_error(fields.get("error")),
        usage=usage_of(fields.get("usage")),
    )


def job_error(field: bytes | None) -> JobError | None:
    """The field `error` of a job's hash."""
    error = json.loads(field) if field else None
    return JobError(error["code"], error["message"], error.get("status")) if error else None


def usage_of(field: bytes | None) -> Usage | None:
    """The field `usage` of a job's hash: "input output"."""
    return Usage(*map(int, field.split())) if field else None


def attempts(field: bytes) -> tuple[Attempt, ...]:
    """The field `attempts` of a job's hash: those that have ended, one a line."""
    return tuple(_attempt(line) for line in field.decode().splitlines())


def _attempt(line: str) -> Attempt:
    n, backend, started, ended, outcome, status = line.split(" ")
    return Attempt(int(n), backend, int(started), int(ended), outcome, int(status) if status else None)
