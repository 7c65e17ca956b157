"""How many backends a load needs: the smallest number with which every SLO is met, and what others would come to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dispatcher.simulator.alone import alone_ms, capacity_per_s
from dispatcher.simulator.measures import Measures, measure
from dispatcher.simulator.offer import Load
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival
from dispatcher.simulator.slo import Target, shown
from dispatcher.simulator.stage import Stage, Tell
from fairlane.errors import FairlaneError, InvalidRequest

GROWTHS: Final = (1.25, 1.5, 2.0)
AS_IT_IS: Final = 1.0
BREATH: Final = 100  # requests


class Unattainable(FairlaneError):
    """No number of these backends meets that SLO. Allow more time, or use a faster backend."""

    code, status = "unattainable", 409


@dataclass(frozen=True, slots=True)
class Trial:
    """So many times the load on so many backends; `seen_ms` is what each target came to."""

    growth: float
    backends: int
    measures: Measures
    seen_ms: Mapping[Target, float]

    @property
    def missed(self) -> list[Target]:
        return [target for target, ms in self.seen_ms.items() if not target.allows(ms)]


@dataclass(frozen=True, slots=True)
class Need:
    """The fewest backends that meet all SLOs at so many times the load; None: not even the most that were allowed."""

    growth: float
    backends: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """`backends` is the answer; `needs` are those at growth; `trials` all that was run, in that order."""

    backends: int
    needs: Sequence[Need]
    trials: Sequence[Trial]

    def trial(self, backends: int, growth: float = AS_IT_IS) -> Trial | None:
        """None if that was not run."""
        return next((one for one in self.trials if (one.backends, one.growth) == (backends, growth)), None)

    @property
    def around(self) -> list[Trial]:
        """One fewer, the answer, one more."""
        found = (self.trial(self.backends + more) for more in (-1, 0, 1))
        return [one for one in found if one]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be met by which way on which backends. `most`: no more of them are tried."""

    load: Load
    targets: Sequence[Target]
    profile: Profile
    way: str
    most: int


async def planned(question: Question, stage: Stage, tell: Callable[[float, int, int], Tell]) -> Plan:
    """`tell(growth, backends, requests)` is asked for each run. Raises InvalidRequest, Unattainable."""
    arrivals = question.load.at(AS_IT_IS)
    question.load.at(max(GROWTHS))  # too large is said now, not after an hour
    await check_attainable(question, arrivals)
    trials: dict[tuple[float, int], Trial] = {}

    async def tried(growth: float, backends: int) -> Trial:
        if (growth, backends) not in trials:
            trials[growth, backends] = await _trial(question, stage, growth, backends, tell)
        return trials[growth, backends]

    async def need(growth: float, guess: int) -> int | None:
        async def enough(backends: int) -> bool:
            return not (await tried(growth, backends)).missed

        return await smallest(enough, min(guess, question.most), question.most)

    capacity = await capacity_per_s(arrivals, question.profile)
    guess = math.ceil(question.load.rate_per_s() / capacity)
    answer = await need(AS_IT_IS, guess)
    if answer is None:
        raise _beyond(question, list(trials.values()))
    await tried(AS_IT_IS, answer + 1)
    needs = [Need(growth, await need(growth, answer)) for growth in GROWTHS]
    return Plan(answer, needs, list(trials.values()))


async def smallest(enough: Callable[[int], Awaitable[bool]], guess: int, most: int) -> int | None:
    """The smallest of 1 … `most` that is enough, if more are never worse; None if `most` is not.

    From the guess on it steps away, farther and farther, until one is enough and one is not; then it halves.
    """
    low, high, step, n = 0, most + 1, 1, guess  # `low` is too few; `high` is enough, or too many
    while high - low > 1:
        if await enough(n):
            high = n
            n = max(1, high - step) if low == 0 else (low + high) // 2
        else:
            low = n
            n = min(most, low + step) if high > most else (low + high) // 2
        step *= 2
    return high if high <= most else None


def too_few(question: Question) -> list[tuple[Target, int]]:
    """Targets whose percentile is the worst of all its tier's requests, since they are so few; with their number."""
    arrivals = question.load.at(AS_IT_IS)
    counts = [(target, sum(one.tier == target.tier for one in arrivals)) for target in question.targets]
    return [(target, count) for target, count in counts if 0 < count * (100 - target.percent) < 100]


async def check_attainable(question: Question, arrivals: Sequence[Arrival]) -> None:
    """Whether each target could be met if every request were alone. Raises InvalidRequest, Unattainable."""
    lone: dict[tuple[int, int], tuple[float, float]] = {}
    for target in question.targets:
        theirs = [one for one in arrivals if one.tier == target.tier]
        if not theirs:
            raise InvalidRequest(f"No request of this load is in the tier {target.tier}: leave its SLO out.")
        times: list[tuple[float, int, int]] = []
        for n, one in enumerate(theirs):
            if n % BREATH == BREATH - 1:
                await asyncio.sleep(0)  # Ctrl-C is heard
            size = one.prompt, one.answer
            lone[size] = lone.get(size) or alone_ms(question.profile, *size)
            times.append((lone[size][target.metric == "e2e"], *size))
        ms = target.of(time for time, _, _ in times)
        if not target.allows(ms):
            _, prompt, answer = next(each for each in times if each[0] == ms)
            what = f"an answer of {answer:,} tokens" if target.metric == "e2e" else f"a prompt of {prompt:,} tokens"
            raise Unattainable(
                f"No number of backends meets {target}: {what} takes {ms / 1000:.3g} s by itself on "
                f"{question.profile.name}, and it is the one at P{target.percent}. Allow more, or use a faster one."
            )


async def _trial(
    question: Question, stage: Stage, growth: float, backends: int, tell: Callable[[float, int, int], Tell]
) -> Trial:
    arrivals, tiers = question.load.at(growth), question.load.tiers
    run = await stage.run(
        question.way, arrivals, question.profile,
        tiers=tiers, backends=backends, tell=tell(growth, backends, len(arrivals)),
    )  # fmt: skip
    seen_ms = {target: target.seen_ms(run.requests) for target in question.targets}
    return Trial(growth, backends, measure(run, tiers=tiers), seen_ms)


def _beyond(question: Question, trials: Sequence[Trial]) -> Unattainable:
    last = max(trials, key=lambda one: one.backends)
    missed = ", ".join(f"{target} (it is {shown(last.seen_ms[target])})" for target in last.missed)
    tried = ", ".join(str(one.backends) for one in trials)
    backends = "1 backend does" if last.backends == 1 else f"{last.backends} backends do"
    return Unattainable(f"{backends} not meet {missed}. Tried: {tried}. Allow more backends by --most, or more time.")
