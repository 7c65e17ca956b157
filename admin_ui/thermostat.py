"""What the thermostat has made of a pool's boost, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from admin_ui.gating import part
from fairlane.queue.pools import Pool

_WHY: Final[Mapping[str, str]] = {
    "start": "It has not been steered yet: γ₀ is 0.3 of what the load suggests.",
    "few": "Fewer than 200 jobs in its window: it stays as it is.",
    "steered": "Each step is 0.7 of what it was and 0.3 of its target.",
    "held": "No step down while the oldest job has waited longer than the largest boost.",
}


@dataclass(frozen=True, slots=True)
class Thermostat:
    """The boost's γ per second: what it is and where it is going, its range, and why. `pinned`: by the policy."""

    gamma: float | None
    pinned: bool
    target: float | None
    least: float | None
    most: float | None
    tail: float | None
    samples: int
    rho: float | None
    why: str


def thermostat_of(pool: Pool, steer: Mapping[str, Any]) -> Thermostat:
    """As the last observer left it in `steer`."""
    known = part(steer, "thermostat")
    tail, most = known.get("tail"), known.get("most")
    pinned = pool.policy.gamma is not None
    return Thermostat(
        gamma=pool.policy.gamma if pinned else steer.get("gamma"),
        pinned=pinned,
        target=None if tail is None or most is None else max(known["least"], most / (1 + 4 * max(tail - 1, 0))),
        least=known.get("least"),
        most=most,
        tail=tail,
        samples=known.get("samples", 0),
        rho=steer.get("rho"),
        why="The policy pins it." if pinned else _WHY.get(known.get("why", ""), "No observer has steered it yet."),
    )
