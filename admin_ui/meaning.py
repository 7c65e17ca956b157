"""What a pool's settings mean: how the page groups, names and explains them. docs/policy.md tells the whole of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlane.model import Policy
from fairlane.queue import policies


def short(texts: Mapping[str, str]) -> dict[str, str]:
    """Settings as people write them: 150, not 150.0."""
    return {name: text.removesuffix(".0") for name, text in texts.items()}


DEFAULTS: Final[Mapping[str, str]] = short(policies.texts(policies.DEFAULTS))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a pool's policy: `what` it does, what it may be (`allowed`), and `since` when a change holds."""

    name: str
    label: str
    what: str
    allowed: str
    since: str
    choices: tuple[str, ...] = ()

    @property
    def is_ms(self) -> bool:
        """Whether it is a time in ms that reads better as a duration."""
        return self.name.endswith("_ms") and self.name != "slow_ms"


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that are looked at, and changed, together."""

    key: str
    title: str
    settings: tuple[Setting, ...]


GROUPS: Final = (
    Group(
        "heads",
        "Head starts of the tiers",
        (
            Setting(
                "theta",
                "Waiting in a backend (θ)",
                "How many jobs may wait in a backend’s own queue, for each tier from the highest down; further down, "
                "the last one.",
                "1 to 10 whole numbers from 0 to 1000, none larger than the one before",
                "the next scrape",
            ),
            Setting(
                "reserve",
                "Reserve",
                "The share of a backend that the highest tier keeps from all others while it is active; 0 keeps "
                "nothing.",
                "0 to 0.9, so that the lowest tier keeps some room",
                "the next scrape",
            ),
            Setting(
                "decay",
                "Decay of the reserve",
                "How fast the reserve falls from tier to tier.",
                "0 to 100",
                "the next scrape",
            ),
        ),
    ),
    Group(
        "gates",
        "Thresholds of the gates",
        (
            Setting(
                "kv_most",
                "Most KV cache in use",
                "Above this share of its KV cache, times the tier’s room, a backend gets no more of lower tiers.",
                "0.01 to 1",
                "the next scrape",
            ),
            Setting(
                "slow_ms",
                "Slow tokens (ms)",
                "A backend whose recent time per output token is longer is shut, until it is below 0.9 of this.",
                "0.1 to 600000",
                "the next scrape",
            ),
            Setting(
                "stale_ms",
                "Stale metrics (ms)",
                "Metrics older than this count as stale: then nothing may wait in the backend. Three times the scrape "
                "interval.",
                "from 1",
                "the next pop",
            ),
        ),
    ),
    Group(
        "boost",
        "Boost and thermostat",
        (
            Setting(
                "gamma",
                "γ per second",
                "How expected work counts against age: auto lets the thermostat set it, a number pins it, 0 gives no "
                "boost.",
                "auto, or 0 to 1000",
                "jobs taken in from then on",
            ),
            Setting(
                "boost_max_ms",
                "Largest boost (ms)",
                "The most that a job’s boost is worth in waiting time.",
                "from 1 (from 4 while γ is auto)",
                "jobs taken in from then on",
            ),
        ),
    ),
    Group(
        "turns",
        "Tiers and turns",
        (
            Setting(
                "tiers",
                "Tiers",
                "The tiers, from the highest down. Waiting jobs stay in theirs; one goes only when no job needs it.",
                "1 to 10 names of a-z 0-9 _ -, each once, with commas between them",
                "scripts: at once; front doors: within a second",
            ),
            Setting(
                "fairness",
                "What a turn costs",
                "The same for each request, or by its input + 2 × output tokens.",
                "requests or tokens",
                "the next pop; once, a tenant’s place may be off by one turn",
                ("requests", "tokens"),
            ),
            Setting(
                "affinity",
                "Affinity",
                "prefix: a job goes to the backend that has served the start of its prompt, unless that is much fuller "
                "than others.",
                "none or prefix",
                "jobs taken in from then on",
                ("none", "prefix"),
            ),
            Setting(
                "valve_ms",
                "Valve opens after (ms)",
                "A tier that was not served for so long gets a bounded share of the turns.",
                "from 1",
                "the next pop",
            ),
        ),
    ),
    Group(
        "bounds",
        "How much may wait",
        (
            Setting(
                "max_waiting_pool",
                "Most that wait in the pool",
                "Beyond, every submit is refused with 429 queue_full.",
                "from 1",
                "the next submit",
            ),
            Setting(
                "max_waiting_tenant",
                "Most that wait of one tenant",
                "Unless its own limit says otherwise.",
                "from 1",
                "the next submit",
            ),
        ),
    ),
    Group(
        "times",
        "Leases and retention",
        (
            Setting(
                "lease_ms",
                "Lease (ms)",
                "How long a dispatcher’s hold on a job lasts unless it is renewed, so how soon the job of a dead one "
                "runs again.",
                "250 to 3600000",
                "the next lease or renewal",
            ),
            Setting(
                "result_ttl_ms",
                "Finished jobs are kept for (ms)",
                "With their results; then they are gone.",
                "from 1000",
                "jobs that end from then on",
            ),
            Setting(
                "dead_ttl_ms",
                "Dead jobs are kept for (ms)",
                "How long a job that used up its attempts is listed, and can be requeued.",
                "from 1000",
                "the next sweep",
            ),
        ),
    ),
)
BY_KEY: Final[Mapping[str, Group]] = {group.key: group for group in GROUPS}
SETTINGS: Final[Mapping[str, Setting]] = {one.name: one for group in GROUPS for one in group.settings}


def given(policy: Policy, words: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Of the settings that were filled in, the text before and after of those that are another one.

    Raises InvalidRequest, which names the setting, for a policy that makes no sense with them.
    """
    named = {name: words[name].strip() for name in policies.NAMES if name in words}
    difference = policies.difference(policy, policies.changed(policy, named))
    before, after = (short({name: pair[n] for name, pair in difference.items()}) for n in (0, 1))
    return {name: (before[name], after[name]) for name in difference}
