"""When the highest tier may go ahead of what the engines have put back."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from dispatcher.activity import Activity
from fairlane.model import Policy
from fairlane.queue.views import backend_view
from fairlane.standing import BackendView, PoolLoad, TierLoad


def backend(waiting: object, *, status: str = "up", **seen: object) -> BackendView:
    seen = {"capacity": {"k": 10}, "waiting": waiting} | seen
    return backend_view("b", {b"status": status.encode(), b"seen": json.dumps(seen).encode()})


@pytest.mark.parametrize(
    ("backends", "inflight", "most"),
    [
        ([backend(4)], 3, 10 - 3),  # θ_0 is 3: the fourth was put back
        ([backend(3)], 3, 0),
        ([backend(6), backend(8)], 3, 9),  # each its share of 20 - 3, rounded up
        ([backend(6), backend(0)], 3, 0),  # the other has a place sooner
        ([backend(6), backend(None)], 3, 0),  # … or nobody knows
        ([backend(6), backend(0, status="down")], 3, 10 - 3),
        ([backend(6), backend(0, slow=True)], 3, 10 - 3),
        ([backend(6), backend(0, health={"until_ms": 1})], 3, 10 - 3),  # left alone for its errors
        ([backend(6, health={"until_ms": 0})], 3, 10 - 3),
        ([backend("six", capacity=[], health=[])], 0, 0),  # another version's
        ([backend(6)], 12, 0),  # the tier fills the pool: it would wait for itself
        ([], 0, 0),
    ],
)
def test_only_where_no_backend_has_a_place_sooner(backends: Sequence[BackendView], inflight: int, most: int) -> None:
    activity = Activity()
    tiers = (TierLoad("priority", 1, 0, inflight), TierLoad("batch", 9, 0, 7))
    activity.note(PoolLoad(tiers, tuple(backends), 0, 1, "{}"), 0.0)
    assert activity.ahead(Policy(tiers=("priority", "batch"))) == most
