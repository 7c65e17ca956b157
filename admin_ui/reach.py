"""Thresholds against what backends show: one that no backend can reach never shuts a gate, and nobody would notice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from fairlane.model import Policy
from fairlane.standing import BackendView

FAR: Final = 10  # times what the slowest backend shows
STALE_LEAST_MS: Final = 600  # an idle backend is scraped every 500 ms


@dataclass(frozen=True, slots=True)
class Doubt:
    """A setting that does nothing, or harm, with these backends. `shuts`: it keeps work from some of them now."""

    setting: str
    words: str
    shuts: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """What a backend's last good scrape showed; None: it does not say. `kv` is a share, `slots` what it runs at once
    as far as was learned."""

    name: str
    kv: float | None
    token_ms: float | None
    slots: int | None


def shown(views: Sequence[BackendView]) -> list[Shown]:
    """What those of the backends show that were scraped."""
    return [found for view in views if (found := _shown(view)) is not None]


def doubts(policy: Policy, views: Sequence[BackendView]) -> list[Doubt]:
    """What to be warned of in a policy that is valid by itself."""
    backends = shown(views)
    return [*_slow(policy, backends), *_kv(policy, backends), *_theta(policy, backends), *_stale(policy)]


def _shown(view: BackendView) -> Shown | None:
    try:
        seen = json.loads(view.seen)
    except ValueError:
        return None
    if not isinstance(seen, dict) or "kv" not in seen:  # it has no metrics that can be read
        return None
    fields = cast("Mapping[str, Any]", seen)
    capacity = cast("Mapping[str, Any]", fields.get("capacity") or {})
    slots = None if capacity.get("ramp", True) else _number(capacity.get("k"))
    return Shown(
        view.name, _number(fields["kv"]), _number(fields.get("token_ms")), None if slots is None else round(slots)
    )


def _slow(policy: Policy, backends: Sequence[Shown]) -> Iterator[Doubt]:
    times = {one.name: one.token_ms for one in backends if one.token_ms is not None}
    if not times:
        return
    name, most = max(times.items(), key=lambda pair: pair[1])
    if policy.slow_ms > FAR * most:
        yield Doubt(
            "slow_ms",
            f"No backend comes near {policy.slow_ms:g} ms a token: the slowest, {name}, shows {most:.3g} ms. "
            "This gate is always open.",
        )
    shut = sorted(name for name, ms in times.items() if ms >= policy.slow_ms)
    if shut:
        yield Doubt(
            "slow_ms",
            f"{_named(shut)} {'is' if len(shut) == 1 else 'are'} slower than {policy.slow_ms:g} ms a token now "
            f"({max(times[name] for name in shut):.3g} ms): shut for all tiers.",
            shuts=True,
        )


def _kv(policy: Policy, backends: Sequence[Shown]) -> Iterator[Doubt]:
    if backends and all(one.kv is None for one in backends):
        yield Doubt("kv_most", "No backend of this pool says how full its KV cache is: kv_most does nothing here.")
    elif policy.kv_most >= 1:
        yield Doubt(
            "kv_most",
            "No backend shows more than 1: a lower tier that is alone there is shut only when the KV cache is full to "
            "the last block. In effect this gate is always open.",
        )
    full = sorted(one.name for one in backends if one.kv is not None and one.kv >= policy.kv_most)
    if full:
        yield Doubt("kv_most", f"{_named(full)} has more in use now: no more of lower tiers goes there.", shuts=True)


def _theta(policy: Policy, backends: Sequence[Shown]) -> Iterator[Doubt]:
    known = [(one.slots, one.name) for one in backends if one.slots is not None]
    if known and policy.theta[0] > max(known)[0]:
        slots, name = max(known)
        yield Doubt(
            "theta",
            f"{policy.theta[0]} jobs may wait in a backend, and the largest, {name}, runs about {slots} at once: the "
            "queue forms in the backends then, where no turn and no tier counts.",
        )


def _stale(policy: Policy) -> Iterator[Doubt]:
    if policy.stale_ms < STALE_LEAST_MS:
        yield Doubt(
            "stale_ms",
            f"A backend at rest is scraped every 500 ms: with {policy.stale_ms} ms its metrics count as stale most of "
            "the time.",
        )


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
