"""Whose request it is: shares of tenants for traces that name none, and tenants that come and go."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dispatcher.simulator.request import Arrival

Shares = Mapping[str, float]  # weights of the tenants; they need not add up to 1


def even(tenants: int) -> Shares:
    """All alike."""
    return zipf(tenants, 0.0)


def zipf(tenants: int, exponent: float = 1.0) -> Shares:
    """The n-th gets 1/n^`exponent` of what the first gets. Of 43 tenants and with 1.0 the first has 23 %."""
    width = len(str(tenants))
    return {f"tenant-{n:0{width}}": n**-exponent for n in range(1, tenants + 1)}


def heavy(others: int, times: float = 10.0) -> Shares:
    """One tenant, `heavy`, with `times` the requests of each of the others."""
    return {"heavy": times, **even(others)}


def with_tenants(arrivals: Sequence[Arrival], shares: Shares, seed: int) -> list[Arrival]:
    """The same arrivals, each of a tenant, drawn by the shares. The load stays as it is."""
    drawn = random.Random(f"{seed} tenants").choices(list(shares), list(shares.values()), k=len(arrivals))
    return [replace(one, tenant=tenant) for one, tenant in zip(arrivals, drawn, strict=True)]


def on_off(arrivals: Sequence[Arrival], on_s: float, off_s: float, seed: int) -> list[Arrival]:
    """Each tenant is silent for `off_s` and then busy for `on_s`, over and over, from a moment of its own.

    What it would have sent in a cycle comes in the busy part, denser by (on + off) / on: the number of its requests
    stays, each comes up to `off_s` later than before.
    """
    cycle_ms = 1000 * (on_s + off_s)
    phases: dict[str, float] = {}

    def later(one: Arrival) -> Arrival:
        if one.tenant not in phases:
            phases[one.tenant] = random.Random(f"{seed} phase {one.tenant}").uniform(0.0, cycle_ms)
        place_ms = (one.at_ms + phases[one.tenant]) % cycle_ms
        return replace(one, at_ms=one.at_ms + 1000 * off_s * (1 - place_ms / cycle_ms))

    return sorted(map(later, arrivals), key=lambda one: one.at_ms)
