"""Fairlane as it is, and with one part at a time taken out or exchanged: what each part earns is the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dispatcher.backends.known import GAMMA_FIRST
from dispatcher.backends.sequences import ByPriority, Order
from dispatcher.simulator.production import Setting
from fairlane.model import Policy

NEVER_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Variant:
    """How it is set up, which order the engines behind it have, and in a few words what is different."""

    what: str
    setting: Setting = field(default_factory=Setting)
    order: Callable[[], Order] = ByPriority


OURS: Final[Mapping[str, Variant]] = {
    "ours": Variant("everything, as `fairlane up` sets it"),
    "ours-tokens": Variant("turns by tokens (VTC) instead of requests", Setting(Policy(fairness="tokens"))),
    "ours-no-boost": Variant("without the boost (γ = 0)", Setting(Policy(gamma=0))),
    "ours-fixed-gamma": Variant(f"without the thermostat (γ = {GAMMA_FIRST}/s)", Setting(Policy(gamma=GAMMA_FIRST))),
    "ours-half-rooms": Variant("half the breathing room (reserve .10)", Setting(Policy(reserve=0.1))),
    "ours-no-rooms": Variant("without breathing room (reserve 0)", Setting(Policy(reserve=0))),
    "ours-no-valve": Variant("without the valve", Setting(Policy(valve_ms=NEVER_MS))),
    "ours-no-turns": Variant("without turns among tenants (all jobs are one tenant's)", Setting(one_tenant=True)),
    "ours-no-tiers": Variant("without tiers", Setting(one_tier=True)),
    "ours-no-hand-over": Variant("without handing the order to the engine", Setting(hands_over=False), Order),
    "ours-no-gate": Variant("without backpressure: sends at once", Setting(gated=False)),
}
