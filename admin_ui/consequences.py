"""What follows from a change of a pool's policy, in sentences, for whoever is about to confirm it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from admin_ui.reach import doubts
from admin_ui.showing import duration, number, percent
from fairlane.model import Policy
from fairlane.standing import BackendView, TierLoad

SHORT_LEASE_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Change:
    """A policy and the next, and what the pool holds at this moment."""

    old: Policy
    new: Policy
    tiers: Sequence[TierLoad]
    backends: Sequence[BackendView]

    @property
    def waiting(self) -> int:
        return sum(tier.waiting for tier in self.tiers)


def sentences(change: Change, names: Sequence[str]) -> tuple[str, ...]:
    """What follows from the settings of these names being others, then what to be careful about."""
    told = [words for name in names for words in _TOLD[name](change)]
    known = {(one.setting, one.words) for one in doubts(change.old, change.backends)}
    fresh = [one for one in doubts(change.new, change.backends) if one.setting in names]
    again = [one for one in fresh if (one.setting, one.words) in known]
    careful = [f"Careful: {one.words}" for one in fresh if one not in again]
    return (*told, *careful, *(f"As before: {one.words}" for one in again))


def destroys(old: Policy, new: Policy) -> bool:
    """Whether something goes at once that cannot be had back."""
    return new.dead_ttl_ms < old.dead_ttl_ms or not set(old.tiers) <= set(new.tiers)


def rooms(policy: Policy) -> dict[str, float]:
    """The share of a backend that each tier may fill while all tiers are active: 1 - Σ H_q over those above it."""
    above = len(policy.tiers) - 1
    room, found = 1.0, dict[str, float]()
    for q, tier in enumerate(policy.tiers):
        found[tier] = room
        room -= policy.reserve * math.exp(-policy.decay / above * q) if above else 0.0
    return found


def boost_ms(policy: Policy, gamma: float, work_s: float) -> float:
    """How much older a job of so much expected work counts: b = (1/γ)·ln(1/(1 - e^(-γw))), boost_max_ms at the most."""
    if gamma == 0:
        return 0.0
    left = -math.expm1(-min(50.0, gamma * work_s))
    return min(float(policy.boost_max_ms), 1000 * math.log(1 / left) / gamma)


def theta_of(policy: Policy, tier: str) -> int:
    """How many jobs of a tier may wait in a backend."""
    return policy.theta[min(policy.tiers.index(tier), len(policy.theta) - 1)]


# --- one function a setting -------------------------------------------------------------------------------------------


def _theta(change: Change) -> Iterator[str]:
    old, new = change.old, change.new
    for tier in new.tiers:
        then, now = theta_of(new, tier), theta_of(old, tier) if tier in old.tiers else None
        if now is None or then == now:
            continue
        more = f"{abs(then - now)} {'more' if then > now else 'fewer'} than now"
        yield f"Up to {_jobs(then)} of the tier {tier} {'waits' if then == 1 else 'wait'} in each backend, {more}."
    if sum(new.theta) > sum(old.theta):
        yield "What waits in a backend is served in that server’s own order, and can no longer be moved or overtaken."
    if not any(new.theta):
        yield "Nothing waits in a backend: it may stand idle between the end of a job and the arrival of the next."


def _room(change: Change) -> Iterator[str]:
    before, after = rooms(change.old), rooms(change.new)
    parts = [
        f"{tier} {percent(room)}" + (f" (now {percent(before[tier])})" if tier in before else "")
        for tier, room in after.items()
    ]
    yield f"While all tiers are active each may fill, of a backend: {', '.join(parts)}."
    if change.new.reserve == 0:
        yield "With a reserve of 0 no tier keeps room from those below it."


def _kv_most(change: Change) -> Iterator[str]:
    lowest, room = list(rooms(change.new).items())[-1]
    yield (
        f"A backend whose KV cache is over {percent(change.new.kv_most)} in use gets no more of lower tiers; of "
        f"{lowest}, while all tiers are active, from {percent(change.new.kv_most * room)} on. The highest tier is "
        "never shut by this."
    )


def _slow_ms(change: Change) -> Iterator[str]:
    slow = change.new.slow_ms
    yield (
        f"A backend whose recent time per output token is {slow:g} ms or more gets nothing more, of any tier, until "
        f"it is below {0.9 * slow:g} ms."
    )


def _stale_ms(change: Change) -> Iterator[str]:
    yield f"A backend that has shown nothing for {duration(change.new.stale_ms)} is stale: nothing waits in it then."


def _gamma(change: Change) -> Iterator[str]:
    gamma = change.new.gamma
    if gamma is None:
        yield "The thermostat steers again: every 5 s it sets γ from the longest waits that it sees."
        return
    yield f"γ is pinned at {gamma:g}/s: the thermostat no longer steers."
    if gamma == 0:
        yield "Without a boost jobs go by age alone, whatever work is expected of them."
    else:
        short, long = (duration(boost_ms(change.new, gamma, work_s)) for work_s in (0.5, 5.0))
        yield f"A job of about 0.5 s counts as {short} older than it is, one of 5 s as {long}."
    yield "Jobs that wait already keep their boost."


def _boost_max_ms(change: Change) -> Iterator[str]:
    yield f"No boost is worth more than {duration(change.new.boost_max_ms)} of waiting. Jobs that wait keep theirs."


def _tiers(change: Change) -> Iterator[str]:
    old, new = change.old.tiers, change.new.tiers
    loads = {load.tier: load for load in change.tiers}
    for tier in new:
        if tier not in old:
            yield f"{tier} is new. A backend gets one of its jobs at a time until its gate is decided, within a second."
    for tier in old:
        if tier not in new:
            load = loads.get(tier)
            work = f" Now {load.waiting} wait and {load.inflight} run." if load else ""
            yield (
                f"{tier} goes, with its pause and its statistics; its dead jobs can no longer be requeued. This is "
                f"refused while one of its jobs is queued, delayed or running.{work}"
            )
    yield f"From the highest down: {', '.join(new)}. Waiting jobs stay in their tier."


def _fairness(change: Change) -> Iterator[str]:
    if change.new.fairness == "tokens":
        yield "A turn costs a tenant by its input + 2 × output tokens: who asks for long answers has fewer turns."
    else:
        yield "A turn costs each tenant the same, however long its requests are."
    yield "Once, a tenant’s place may be off by one turn."


def _affinity(change: Change) -> Iterator[str]:
    if change.new.affinity == "prefix":
        yield (
            "Jobs taken in from now on go to the backend that has served the start of their prompt, unless that is "
            "much fuller than others."
        )
    else:
        yield "Jobs taken in from now on go to the backend that is most free."


def _valve_ms(change: Change) -> Iterator[str]:
    yield (
        f"A tier that was not served for {duration(change.new.valve_ms)} gets one turn in sixteen at first, one in "
        "four at the most."
    )


def _max_waiting_pool(change: Change) -> Iterator[str]:
    most = change.new.max_waiting_pool
    now = number(change.waiting)
    yield f"When {_jobs(most)} wait in the pool, one more is refused with 429 queue_full. Now {now} wait."
    if change.waiting >= most:
        yield "Careful: so many wait already. They stay, and every submit is refused until fewer wait."


def _max_waiting_tenant(change: Change) -> Iterator[str]:
    yield (
        f"A tenant without a limit of its own has at most {_jobs(change.new.max_waiting_tenant)} waiting; one more is "
        "refused with 429 queue_full. What waits stays."
    )


def _lease_ms(change: Change) -> Iterator[str]:
    lease = change.new.lease_ms
    yield f"The job of a dispatcher that dies runs again after {duration(lease)}."
    if lease < SHORT_LEASE_MS:
        yield f"Careful: a dispatcher that pauses for {duration(lease)} loses its work, and others do it again."


def _result_ttl_ms(change: Change) -> Iterator[str]:
    kept = duration(change.new.result_ttl_ms)
    yield f"Jobs that end from now on are kept for {kept}, with their results. Nothing changes for earlier ones."


def _dead_ttl_ms(change: Change) -> Iterator[str]:
    kept = duration(change.new.dead_ttl_ms)
    if change.new.dead_ttl_ms < change.old.dead_ttl_ms:
        yield f"Dead jobs older than {kept} are gone from the list at the next sweep, and can’t be requeued from it."
    else:
        yield f"Dead jobs are listed, and can be requeued, for {kept}."


def _jobs(n: int) -> str:
    return f"{number(n)} {'job' if n == 1 else 'jobs'}"


_TOLD: Final[Mapping[str, Callable[[Change], Iterator[str]]]] = {
    "theta": _theta,
    "reserve": _room,
    "decay": lambda change: iter(()) if change.old.reserve != change.new.reserve else _room(change),
    "kv_most": _kv_most,
    "slow_ms": _slow_ms,
    "stale_ms": _stale_ms,
    "gamma": _gamma,
    "boost_max_ms": _boost_max_ms,
    "tiers": _tiers,
    "fairness": _fairness,
    "affinity": _affinity,
    "valve_ms": _valve_ms,
    "max_waiting_pool": _max_waiting_pool,
    "max_waiting_tenant": _max_waiting_tenant,
    "lease_ms": _lease_ms,
    "result_ttl_ms": _result_ttl_ms,
    "dead_ttl_ms": _dead_ttl_ms,
}
