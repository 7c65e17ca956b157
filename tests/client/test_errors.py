"""Errors: one class for each code, the same on both sides of the wire, and whole after pickling."""

from __future__ import annotations

import pickle

import pytest

import fairlane
from fairlane import FairlaneError, Job, JobCancelled, JobExpired, JobFailed, WaitTimeout, errors
from fairlane.errors import class_of

RAW = {
    "object": "job", "id": "job_1", "pool": "llama", "model": "llama", "endpoint": "/v1/completions", "tenant": "ann",
    "tier": "default", "state": "failed", "dead": True, "created_at": 1.5, "not_before": None, "deadline_at": None,
    "started_at": 2.5, "finished_at": 3.5, "attempts": [], "max_attempts": 3, "result": None,
    "error": {"code": "timeout", "message": "Too slow.", "status": None}, "usage": None, "metadata": {},
    "batch_id": None, "new": "a later version's",
}  # fmt: skip


def test_a_job_is_what_its_json_says() -> None:
    job = Job.parse(RAW)
    assert (job.state, job.finished, job.created_at, job.metadata, job.raw["new"]) == (
        "failed", True, 1.5, {}, "a later version's",
    )  # fmt: skip
    with pytest.raises(AttributeError):
        job.state = "queued"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="no job"):
        Job.parse({"id": "job_1"})


def test_a_failed_job_has_its_own_code_and_a_status() -> None:
    error = JobFailed(Job.parse(RAW))
    assert (error.code, error.status, error.body, str(error)) == ("timeout", 504, None, "timeout: Too slow.")
    answered = {
        **RAW,
        "result": {"status": 422, "body": {"no": 1}},
        "error": {"code": "x", "message": "", "status": 422},
    }
    error = JobFailed(Job.parse(answered))
    assert (error.code, error.status, error.body) == ("x", 422, {"no": 1})


@pytest.mark.parametrize("code", ["queue_full", "unknown_tier", "store_unavailable", "expired", "job_cancelled"])
def test_a_code_leads_to_its_class(code: str) -> None:
    assert class_of(code).code == code
    assert class_of(code)("Why.", param="p", retry_after=2).retry_after == 2


def test_an_unknown_code_leads_to_the_base_class() -> None:
    assert class_of("none") is FairlaneError


def test_every_code_but_a_jobs_own_means_one_class() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, FairlaneError)]
    made_by_server = [one for one in classes if not issubclass(one, errors.NoResult | errors.Refused)]
    assert [one for one in made_by_server if class_of(one.code) is not one] == []


def test_outcomes_are_pythons_own_kinds_of_error_too() -> None:
    assert issubclass(WaitTimeout, TimeoutError)
    assert issubclass(errors.ConnectionFailed, ConnectionError)


@pytest.mark.parametrize(
    "error",
    [
        errors.QueueFull("Full.", param="p", retry_after=3.5),
        WaitTimeout("Later."),
        errors.ConnectionFailed("Nobody.", retry_after=1),
        errors.Refused("No.", code="censored", status=451, param="p", retry_after=2),
        JobFailed(Job.parse(RAW)),
        JobCancelled(Job.parse(RAW)),
        JobExpired(Job.parse(RAW)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_handed_to_another_process(error: FairlaneError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.code, copy.status, copy.retryable) == (
        str(error), error.code, error.status, error.retryable,
    )  # fmt: skip
    assert (copy.param, copy.retry_after) == (error.param, error.retry_after)
    assert getattr(copy, "job", None) == getattr(error, "job", None)


def test_what_the_package_offers_is_there() -> None:
    assert set(fairlane.__all__) <= set(dir(fairlane))
    assert all(getattr(fairlane, name) for name in fairlane.__all__)
    assert fairlane.errors is errors
    with pytest.raises(AttributeError, match="no attribute 'none'"):
        fairlane.none  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018
