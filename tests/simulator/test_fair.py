"""Fair schedulers with one line in front of modelled backends: whose turn it is, and where the request goes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.backends.timing import Speed
from dispatcher.simulator.fair import FAIR
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival, Request
from dispatcher.simulator.world import Run, run

TIERS = ("high", "low")
SLOW = Profile("one slot", Speed(slots=1, kv_tokens=10_000, step_tokens=10_000))


def lived(name: str, arrivals: Sequence[Arrival], profile: Profile = SLOW, backends: int = 1) -> Run:
    way = FAIR[name]
    return asyncio.run(run(arrivals, way.scheduler(), profile, backends=backends, order=way.order, tiers=TIERS))


def by_turn(outcome: Run) -> list[Request]:
    return sorted(outcome.requests, key=lambda one: one.sent_ms)


def tenants_by_turn(name: str, arrivals: Sequence[Arrival]) -> str:
    return "".join(one.tenant for one in by_turn(lived(name, arrivals)))


def of(tenant: str, *, at_ms: float = 0.0, prompt: int = 10, answer: int = 10, tier: str = "low") -> Arrival:
    return Arrival(at_ms, tenant, tier, prompt, answer)


workloads = st.lists(
    st.builds(
        Arrival,
        st.floats(0, 2_000),
        st.sampled_from("abc"),
        st.sampled_from(TIERS),
        st.integers(1, 150),
        st.integers(1, 60),
    ),
    max_size=25,
)


@pytest.mark.parametrize("name", sorted(FAIR))
@settings(max_examples=12, deadline=None)
@given(workloads, st.integers(1, 3))
def test_everybody_is_served_and_the_same_each_time(name: str, arrivals: list[Arrival], backends: int) -> None:
    profile = Profile("small", Speed(4, 400, 100, block_tokens=16), overhead_ms=1.5)
    first, second = (lived(name, arrivals, profile, backends) for _ in range(2))
    assert all(one.made == one.answer and one.done_ms >= one.first_ms >= one.sent_ms for one in first.requests)
    assert [one.done_ms for one in first.requests] == [one.done_ms for one in second.requests]


@pytest.mark.parametrize("name", sorted(FAIR.keys() - {"direct"}))
def test_whoever_is_sent_has_a_place(name: str) -> None:
    """Nobody waits in a backend but for its next step, though 20 s of work come at once."""
    profile = Profile("roomy", Speed(slots=4, kv_tokens=1_000_000, step_tokens=10_000, prompt_token_ms=0.0))
    arrivals = [of("ab"[n % 2], prompt=50, answer=20 + n, tier=TIERS[n % 2]) for n in range(40)]
    outcome = lived(name, arrivals, profile, backends=2)
    waits_ms = [one.first_ms - one.sent_ms for one in outcome.requests]
    assert max(waits_ms) < 20  # two steps of 8 ms and a bit
    assert max(one.sent_ms for one in outcome.requests) > 500


def test_a_full_cache_is_no_place() -> None:
    profile = Profile("small cache", Speed(slots=8, kv_tokens=1_000, step_tokens=10_000))
    outcome = lived("fcfs", [of("a", prompt=450, answer=20) for _ in range(6)], profile)
    assert sum(one.preemptions for one in outcome.backends) == 0
    assert Counter(one.sent_ms for one in outcome.requests).most_common(1)[0][1] == 2


def test_a_request_goes_to_the_backend_with_the_fewest() -> None:
    profile = Profile("roomy", Speed(slots=10))
    for name in ("direct", "fcfs"):
        outcome = lived(name, [of("a", at_ms=n / 10, answer=500) for n in range(9)], profile, backends=3)
        assert Counter(one.backend for one in outcome.requests) == {"b1": 3, "b2": 3, "b3": 3}


def test_direct_sends_at_once() -> None:
    outcome = lived("direct", [of("a", at_ms=n) for n in range(5)])
    assert all(one.sent_ms == one.arrived_ms for one in outcome.requests)
    assert outcome.requests[-1].first_ms > 4 * 80  # it waits in the engine, which has one slot


# one of x takes the only slot; the others come while it runs
BUSY = of("x", answer=100)


def test_fcfs_knows_no_tenants() -> None:
    arrivals = [BUSY, *(of("h", at_ms=1 + n) for n in range(4)), of("l", at_ms=9.0)]
    assert tenants_by_turn("fcfs", arrivals) == "xhhhhl"


def test_round_robin_gives_each_tenant_a_turn() -> None:
    arrivals = [BUSY, *(of("h", at_ms=1 + n) for n in range(4)), *(of("l", at_ms=9.0 + n) for n in range(2))]
    assert tenants_by_turn("tenant-round-robin", arrivals) == "xhlhlhh"


def test_a_tenant_that_leaves_and_comes_back_gains_no_turn() -> None:
    """l resubmits as soon as it is served, and still gets every other turn."""
    arrivals = [
        BUSY,
        *(of("h", at_ms=1.0 + n / 10) for n in range(6)),
        *(of("l", at_ms=800 + 160.0 * n) for n in range(3)),
    ]
    order = tenants_by_turn("tenant-round-robin", arrivals)
    assert "ll" not in order


def test_strict_priority_serves_the_low_tier_last() -> None:
    arrivals = [
        BUSY,
        *(of("l", at_ms=1 + n) for n in range(3)),
        *(of("h", at_ms=5.0 + n, tier="high") for n in range(3)),
    ]
    assert tenants_by_turn("strict-priority", arrivals) == "xhhhlll"


def test_hrrn_prefers_the_short_and_does_not_forget_the_long() -> None:
    long, shorts = of("l", at_ms=1.0, answer=200), [of("s", at_ms=700.0 + 95 * n) for n in range(60)]
    order = tenants_by_turn("hrrn", [BUSY, long, *shorts])
    assert order.startswith("xs")
    assert "l" in order[:-5]


# --- VTC --------------------------------------------------------------------------------------------------------------


def cost(request: Request) -> int:
    return request.prompt + 2 * request.made


def test_vtc_serves_tenants_alike_whatever_their_requests_are_like() -> None:
    """Of two that both always have work: at any moment within 2·max(cost of one request) of each other."""
    arrivals = [BUSY]
    arrivals += [of("b", at_ms=1.0, prompt=200, answer=10) for _ in range(60)]
    arrivals += [of("s", at_ms=1.0, prompt=10, answer=60) for _ in range(100)]
    served, gaps = Counter[str](), list[int]()
    turns = by_turn(lived("vtc", arrivals))[1:]
    for number, one in enumerate(turns):
        served[one.tenant] += cost(one)
        if {later.tenant for later in turns[number + 1 :]} == {"b", "s"}:
            gaps.append(abs(served["b"] - served["s"]))
    assert len(gaps) > 100
    assert max(gaps) <= 2 * (200 + 2 * 10)


def test_vtc_charges_what_was_made_so_far() -> None:
    """h's answer under way counts already: at the next place l, which has had one request, is before h."""
    profile = Profile("two slots", Speed(slots=2))
    arrivals = [of("h", answer=400), of("l", at_ms=1.0, prompt=10, answer=100)]
    arrivals += [of("h", at_ms=2.0), of("l", at_ms=3.0)]
    assert "".join(one.tenant for one in by_turn(lived("vtc", arrivals, profile))) == "hllh"


def test_vtc_gives_no_credit_for_having_been_away() -> None:
    arrivals = [of("a", at_ms=float(n), answer=20) for n in range(40)]
    arrivals += [of("b", at_ms=3_000.0 + n, answer=20) for n in range(10)]
    turns = tenants_by_turn("vtc", arrivals)
    both = turns[turns.index("b") : turns.rindex("b")]
    assert both.count("a") >= both.count("b") - 1


def test_vtc_lifts_a_tenant_that_comes_to_an_empty_line_to_the_one_that_left_it_last() -> None:
    """b was never served; a was, for long. Then both come at once: they take turns."""
    arrivals = [of("a", at_ms=500.0 * n, answer=40) for n in range(10)]
    arrivals += [of("b", at_ms=6_000.0), *(of("b", at_ms=6_001.0) for _ in range(5))]
    arrivals += [of("a", at_ms=6_002.0) for _ in range(5)]
    turns = tenants_by_turn("vtc", arrivals)[10:]
    assert "bbb" not in turns
