"""A job's life as it is drawn: every stretch in its place, none too narrow to be seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from admin_ui.timeline import LEAST, moments, numbered, stretches, waited_ms
from fairlane.model import Attempt, Job, Usage

NEW: Final = Job(
    id="job_1", pool="llama", tenant="ann", tier="default", state="queued", dead=False, created_at_ms=1000,
    not_before_ms=None, deadline_at_ms=None, started_at_ms=None, finished_at_ms=None, attempts=(), max_attempts=3,
    batch_id=None, head=b"{}", body=None, status=None, result=None, error=None, usage=None,
)  # fmt: skip
FAILED: Final = Attempt(1, "b1", 1500, 1700, "backend_error", 503)
GOOD: Final = Attempt(2, "b2", 1900, 2000, "succeeded", 200)


def drawn(job: Job, now_ms: int) -> list[tuple[str, float, float]]:
    return [(part.kind, round(part.x, 2), round(part.width, 2)) for part in stretches(job, now_ms)]


@pytest.mark.parametrize(
    ("job", "found"),
    [
        (NEW, [("waiting", 0, 100)]),
        (replace(NEW, state="delayed", not_before_ms=9000), [("delayed", 0, 100)]),
        (replace(NEW, state="cancelled", finished_at_ms=1500), [("waiting", 0, 100)]),
        (
            replace(NEW, state="succeeded", attempts=(FAILED, GOOD), finished_at_ms=2000),
            [("waiting", 0, 50), ("failed", 50, 20), ("waiting", 70, 20), ("succeeded", 90, 10)],
        ),
        (
            replace(
                NEW, state="leased", not_before_ms=1400, attempts=(replace(GOOD, n=1, ended_at_ms=None, outcome=None),)
            ),
            [("delayed", 0, 40), ("waiting", 40, 50), ("running", 90, 10)],
        ),
        (
            replace(NEW, state="queued", attempts=(FAILED, replace(GOOD, n=1, outcome="timeout"))),
            [("waiting", 0, 50), ("failed", 50, 20), ("dead", 70, 20), ("failed", 90, 10), ("waiting", 99.4, 0.6)],
        ),
    ],
)
def test_a_life_is_drawn_from_submit_to_end_or_now(job: Job, found: list[tuple[str, float, float]]) -> None:
    assert drawn(job, 2000) == found


def test_a_short_attempt_in_a_long_life_is_seen() -> None:
    job = replace(NEW, state="succeeded", attempts=(replace(FAILED, ended_at_ms=1501),), finished_at_ms=10**9)
    (_, attempt) = stretches(job, 0)
    assert attempt.width == LEAST
    assert attempt.x + attempt.width <= 100


def test_attempts_are_numbered_on_after_a_requeue() -> None:
    again = replace(FAILED, started_at_ms=3000, ended_at_ms=3100)
    job = replace(NEW, attempts=(FAILED, GOOD, again, replace(again, n=2)))
    assert [no for no, _ in numbered(job.attempts)] == [1, 2, 3, 4]
    assert "Attempt 3 on b1" in [moment.words for moment in moments(job)]
    assert [part.kind for part in stretches(job, 4000)].count("dead") == 1


def test_what_happened_is_told_in_order() -> None:
    job = replace(NEW, state="succeeded", attempts=(FAILED, GOOD), finished_at_ms=2000, usage=Usage(12, 1200))
    assert [(moment.at_ms, moment.words, moment.note) for moment in moments(job)] == [
        (1000, "Submitted", "by ann, tier default"),
        (1500, "Attempt 1 on b1", "after 500 ms"),
        (1700, "Attempt 1 ended: backend error, status 503", "ran for 200 ms"),
        (1900, "Attempt 2 on b2", "after 200 ms"),
        (2000, "Attempt 2 ended: succeeded, status 200", "ran for 100 ms"),
        (2000, "Settled: succeeded", "12 tokens in, 1\u202f200 out"),
    ]
    assert waited_ms(job, 0) == 700
