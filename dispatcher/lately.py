"""What happened in a pool lately: the last minute, round by round, and the newest jobs that ended well."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Final

from dispatcher.policy.fairness import Due, Fairness, Round, covers, dues, fairness
from dispatcher.policy.thermostat import WINDOW, Sample
from fairlane.standing import Finish, LineView

MINUTE_MS: Final = 60_000
SERVICES: Final = 100  # jobs whose time in the backend is remembered for estimates


@dataclass(frozen=True, slots=True)
class Look:
    """What one round saw at `now_ms`: each tier's lines, the jobs that ended since the look before, and the load.

    `whole`: none of those that ended is missing. `work` are the jobs of each tier that wait or run, less those that
    were moved into it, which did not come. `rho` are leases over capacity, None if no capacity is known.
    """

    now_ms: int
    lines: Mapping[str, Sequence[LineView]]
    work: Mapping[str, int]
    finishes: Sequence[Finish]
    whole: bool
    rho: float | None

    @property
    def oldest_wait_ms(self) -> int:
        """Of the jobs whose tenant may run."""
        waits = (self.now_ms - line.oldest_ms for lines in self.lines.values() for line in lines if not line.held)
        return max(0, max(waits, default=0))


@dataclass(frozen=True, slots=True)
class _Past:
    """One round: from one look to the next."""

    from_ms: int
    to_ms: int
    services: Round
    ended: Mapping[str, int]  # by tenant
    tokens: Mapping[str, int]  # by tenant
    came: Mapping[str, int]  # by tier
    rho: float | None


class Lately:
    """Remembers the rounds of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=WINDOW)
        self._services_ms: deque[int] = deque(maxlen=SERVICES)
        self._rounds: deque[_Past] = deque()
        self._before: Look | None = None

    def note(self, look: Look, *, by_tokens: bool) -> None:
        """`by_tokens`: a turn costs what it takes from the engine, else each the same."""
        before, self._before = self._before, look
        for finish in look.finishes:
            if finish.started_at_ms is not None:
                service_ms = finish.ended_at_ms - finish.started_at_ms
                self._services_ms.append(service_ms)
                if finish.state == "succeeded":
                    self._samples.append(Sample(finish.ended_at_ms - finish.ready_at_ms, service_ms))
        if before and look.whole and look.now_ms > before.now_ms:
            services = _services(before, look, by_tokens=by_tokens)
            ended_of = Counter(finish.tenant for finish in look.finishes)
            tokens_of: Counter[str] = Counter()
            for finish in look.finishes:
                tokens_of[finish.tenant] += tokens(finish)
            came = arrivals(before, look)
            self._rounds.append(_Past(before.now_ms, look.now_ms, services, ended_of, tokens_of, came, look.rho))
        while self._rounds and self._rounds[0].to_ms <= look.now_ms - MINUTE_MS:
            self._rounds.popleft()

    @property
    def samples(self) -> Sequence[Sample]:
        return tuple(self._samples)

    @property
    def fairness(self) -> Fairness:
        return fairness(past.services for past in self._rounds)

    @property
    def dues(self) -> Mapping[str, Mapping[str, Due]]:
        """By tier and tenant."""
        return dues(past.services for past in self._rounds)

    @property
    def took_s(self) -> float:
        """How much of the last minute is known."""
        return sum(past.to_ms - past.from_ms for past in self._rounds) / 1000

    @property
    def ended(self) -> Mapping[str, int]:
        """The jobs of each tenant that got their outcome."""
        return _total(past.ended for past in self._rounds)

    @property
    def tokens(self) -> Mapping[str, int]:
        """The tokens that each tenant's jobs used."""
        return _total(past.tokens for past in self._rounds)

    @property
    def rho(self) -> float | None:
        """The mean of the looks of the last minute, the last one at least; None if no capacity is known."""
        seen = [past.rho for past in self._rounds if past.rho is not None]
        return fmean(seen) if seen else self._before.rho if self._before else None

    @property
    def service_s(self) -> float | None:
        """How long the newest jobs ran, on average; None if there were none."""
        return fmean(self._services_ms) / 1000 if self._services_ms else None

    @property
    def met_ms(self) -> float:
        """How long a job takes in all that is met running, by the newest that ended well: E[S²]/E[S]; 0 if none did."""
        took = [sample.service_ms for sample in islice(reversed(self._samples), SERVICES)]
        return sum(ms * ms for ms in took) / total if (total := sum(took)) else 0.0

    @property
    def ended_per_s(self) -> Mapping[str, float]:
        """How many jobs of each tenant got their outcome."""
        return self._per_s(self.ended)

    @property
    def came_per_s(self) -> Mapping[str, float]:
        """How many jobs came into each tier."""
        return self._per_s(_total(past.came for past in self._rounds))

    def _per_s(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        return {name: max(0, n) / self.took_s for name, n in counts.items()}


def tokens(finish: Finish) -> int:
    """What a job's last attempt used, in and out."""
    return finish.usage.input_tokens + finish.usage.output_tokens if finish.usage else 0


def _total(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for of in counts:
        total.update(of)
    return total


def arrivals(before: Look, look: Look) -> Mapping[str, int]:
    """By tier: those that are there now and were not, and those that ended. (A job that rests between two attempts is
    not there: it goes and comes again.)"""
    ended = Counter(finish.tier for finish in look.finishes)
    return {tier: n - before.work.get(tier, 0) + ended[tier] for tier, n in look.work.items()}


def _services(before: Look, look: Look, *, by_tokens: bool) -> Round:
    """Of each tier, the service per weight of those tenants that had waiting work from one look to the next.

    That is so if they had some at both, and what they had waited for its start without a gap in between.
    """
    ran: dict[tuple[str, str], list[Finish]] = defaultdict(list)
    for finish in look.finishes:
        if finish.started_at_ms is not None:
            ran[finish.tier, finish.tenant].append(finish)
    services: dict[str, dict[str, float]] = {}
    for tier, lines in look.lines.items():
        waited = {line.tenant for line in before.lines.get(tier, ()) if not line.held}
        for line in lines:
            own = ran[tier, line.tenant]
            spans = [(finish.ready_at_ms, finish.started_at_ms or 0) for finish in own]
            spans.append((line.oldest_ms, look.now_ms))
            if line.tenant in waited and not line.held and covers(spans, before.now_ms, look.now_ms):
                cost = sum(_cost(finish) if by_tokens else 1 for finish in own)
                services.setdefault(tier, {})[line.tenant] = cost / line.limits.weight
    return services


def _cost(finish: Finish) -> int:
    """As the ring charges it (lua/lib/ring.lua). One that reported no usage counts as one token."""
    usage = finish.usage
    return max(1, usage.input_tokens + 2 * usage.output_tokens) if usage else 1
