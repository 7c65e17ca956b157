"""What may be sent to a backend whose metrics cannot be read: the whole table."""

from __future__ import annotations

import pytest

from dispatcher.backends.scrape import Reason
from dispatcher.policy.blind import slots_without_metrics


@pytest.mark.parametrize(
    ("reason", "answered", "slots", "learned", "expected"),
    [
        ("unreachable", None, 5, 20, None),  # it is down
        ("unreachable", None, None, None, None),
        ("timeout", None, None, None, None),  # it may answer the next time
        ("timeout", None, None, 20, None),
        ("timeout", None, 5, None, 5),
        ("status", 404, None, None, 8),  # it has no metrics
        ("status", 404, None, 20, 20),
        ("status", 404, 5, 20, 5),
        ("status", 500, None, None, 8),
        ("status", 500, None, 20, None),  # it did better before: stale
        ("status", 401, 5, None, 5),
        ("unknown", None, None, 3, 8),
        ("missing", None, None, None, 8),
        ("missing", None, 5, 20, 5),
        ("unreadable", None, None, None, 8),
        ("unreadable", None, None, 20, None),
        ("too_large", None, 5, 20, 5),
    ],
)
def test_the_table(
    reason: Reason, answered: int | None, slots: int | None, learned: int | None, expected: int | None
) -> None:
    assert slots_without_metrics(reason, answered, slots=slots, learned=learned) == expected
