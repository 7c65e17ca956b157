"""Where rooms hold lower tiers back K is felt for, and no more."""

from __future__ import annotations

import pytest

from dispatcher.policy.capacity import QUIET_MS, Capacity, Scrape, learn


def held_back(known: Capacity, now_ms: int) -> Scrape:
    """Two thirds of K run, nothing waits, and a pop was refused."""
    live = 2 * known.k // 3
    return Scrape(now_ms, running=live, waiting=0, live=live, done=1, denied=1, progress=float(now_ms), started_at=1.0)


def at_work(k: int, *, ramp: bool) -> Capacity:
    return Capacity(k=k, cap=k, ramp=ramp, fresh_at_ms=1, confirmed_at_ms=1, started_at=1.0, progress=0.5)


@pytest.mark.parametrize("k", [4, 16, 64, 256])
def test_in_the_ramp_it_grows_by_an_eighth_at_a_scrape(k: int) -> None:
    known = at_work(k, ramp=True)
    assert learn(known, held_back(known, 100), theta=3).k == k + max(1, k // 8)


def test_later_it_grows_by_an_eighth_every_thirty_seconds() -> None:
    known, ks = at_work(64, ramp=False), list[int]()
    for now_ms in range(200, 2 * QUIET_MS + 1_000, 200):
        known = learn(known, held_back(known, now_ms), theta=3)
        ks.append(known.k)
    assert sorted(set(ks)) == [64, 72, 81]


def test_what_is_reached_grows_as_before() -> None:
    known = at_work(64, ramp=True)
    full = Scrape(100, running=64, waiting=0, live=64, done=40, denied=1, progress=9.0, started_at=1.0)
    assert learn(known, full, theta=3).k == 96
