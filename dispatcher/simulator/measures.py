"""What a run came to: times, throughput, use of the backends. Over all requests, by tier, by tenant, or by any class.

Percentiles are by nearest rank: p99 is the smallest of the values that 99 % of them do not exceed. A request that was
not answered when the run ended counts, as infinitely late: a scheduler gains nothing by letting some wait for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean
from typing import Final

from dispatcher.simulator.request import Request
from dispatcher.simulator.service import Fairness, fairness
from dispatcher.simulator.world import Run
from fairlane.model import DEFAULT_TIERS


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a run that is measured, without warm-up and cool-down: [`from_ms`, `until_ms`)."""

    from_ms: float = 0.0
    until_ms: float = math.inf

    def holds(self, ms: float) -> bool:
        return self.from_ms <= ms < self.until_ms


WHOLE: Final = Span()


@dataclass(frozen=True, slots=True)
class Times:
    """Of a set of requests, in ms; nan if there were none, infinite where one was not answered."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Group:
    """Some requests: how many, how many of them were answered, their times to the first token and to the end."""

    n: int
    done: int
    ttft: Times
    e2e: Times


@dataclass(frozen=True, slots=True)
class Slo:
    """Bounds on one request's times: it is met if neither is exceeded."""

    ttft_ms: float = math.inf
    e2e_ms: float = math.inf

    def met(self, request: Request) -> bool:
        return request.is_done and ttft_ms(request) <= self.ttft_ms and e2e_ms(request) <= self.e2e_ms


@dataclass(frozen=True, slots=True)
class Goodput:
    """The share of requests that met their SLO, and how many a second that is."""

    share: float
    per_s: float


@dataclass(frozen=True, slots=True)
class Measures:
    """All of one run. Times are of the requests that came within the span, rates of those that ended within it.

    `utilisation`, `preemptions` and `wasted_tokens` (computed in vain) are the backends', over the whole run.
    """

    all: Group
    tiers: Mapping[str, Group]
    tenants: Mapping[str, Group]
    requests_per_s: float
    prompt_tokens_per_s: float
    answer_tokens_per_s: float
    fairness: Fairness
    utilisation: float
    preemptions: int
    wasted_tokens: int


def measure(run: Run, *, span: Span = WHOLE, tiers: Sequence[str] = DEFAULT_TIERS) -> Measures:
    """`tiers`: in the order that they are to have; those without requests are left out, others follow."""
    came = within(run.requests, span)
    ended = [one for one in run.requests if span.holds(one.done_ms)]
    per_s = _per_s(run, span)
    return Measures(
        all=group(came),
        tiers=groups(came, attrgetter("tier"), tiers),
        tenants=groups(came, attrgetter("tenant")),
        requests_per_s=len(ended) * per_s,
        prompt_tokens_per_s=sum(one.prompt for one in ended) * per_s,
        answer_tokens_per_s=sum(one.answer for one in ended) * per_s,
        fairness=fairness(run.requests, run.end_ms),
        utilisation=fmean(backend.busy_ms for backend in run.backends) / run.end_ms if run.end_ms else 0.0,
        preemptions=sum(backend.preemptions for backend in run.backends),
        wasted_tokens=sum(backend.wasted_tokens for backend in run.backends),
    )


def goodput(run: Run, slos: Mapping[str, Slo], *, span: Span = WHOLE) -> Goodput:
    """Of the requests that came within the span, by each tier's SLO. Without one, a request only has to be answered."""
    came = within(run.requests, span)
    met = sum(slos.get(one.tier, Slo()).met(one) for one in came)
    return Goodput(met / len(came) if came else math.nan, met * _per_s(run, span))


def within(requests: Iterable[Request], span: Span) -> list[Request]:
    """Those that came in that time."""
    return [one for one in requests if span.holds(one.arrived_ms)]


def group(requests: Sequence[Request]) -> Group:
    done = sum(one.is_done for one in requests)
    return Group(len(requests), done, times(map(ttft_ms, requests)), times(map(e2e_ms, requests)))


def groups(requests: Iterable[Request], key: Callable[[Request], str], order: Sequence[str] = ()) -> dict[str, Group]:
    """The requests by their key: first the keys of `order`, then the others by name."""
    found: dict[str, list[Request]] = {}
    for one in requests:
        found.setdefault(key(one), []).append(one)
    first = [name for name in order if name in found]
    return {name: group(found[name]) for name in [*first, *sorted(found.keys() - first)]}


def times(values_ms: Iterable[float]) -> Times:
    ranked = sorted(values_ms)
    if not ranked:
        return Times(math.nan, math.nan, math.nan, math.nan)
    return Times(fmean(ranked), *(percentile(ranked, percent) for percent in (50, 95, 99)))


def percentile(ranked: Sequence[float], percent: float) -> float:
    """By nearest rank, of values in ascending order; nan if there are none."""
    if not ranked:
        return math.nan
    rank = math.ceil(round(percent * len(ranked) / 100, 9))  # 7 % of 100 is 7.000000000000001
    return ranked[max(rank, 1) - 1]


def ttft_ms(request: Request) -> float:
    """From its arrival to its first token."""
    return _since_arrival(request, request.first_ms)


def e2e_ms(request: Request) -> float:
    """From its arrival to the end of its answer."""
    return _since_arrival(request, request.done_ms)


def _since_arrival(request: Request, ms: float) -> float:
    return math.inf if math.isnan(ms) else ms - request.arrived_ms


def _per_s(run: Run, span: Span) -> float:
    """1 ÷ the seconds of the span that lie in the run; nan if there are none."""
    length_ms = min(span.until_ms, run.end_ms) - span.from_ms
    return 1000 / length_ms if length_ms > 0 else math.nan
