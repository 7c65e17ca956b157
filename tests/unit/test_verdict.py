"""What becomes of an attempt."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.backends.answer import Answer, CallFailed, Fault
from dispatcher.policy.verdict import HandBack, Run, Settle, TryAgain, is_fault, pause_ms, shuts_gate, verdict

RESET = CallFailed("reset", "The backend broke the connection.")


@pytest.mark.parametrize("status", range(100, 600))
def test_only_what_may_succeed_is_tried_again(status: int) -> None:
    found = verdict(Answer(status, b""), attempt=1, chance=0.5)
    if 200 <= status < 300:
        assert found == Settle("succeeded")
    elif status == 429 or status >= 500:
        assert isinstance(found, TryAgain)
        assert found.error.status == status
    else:
        assert isinstance(found, Settle)
        assert found.state == "failed"
        assert found.error is not None
        assert found.error.status == status


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        ("refused", HandBack, None), ("unready", HandBack, None),
        ("reset", TryAgain, "backend_unreachable"), ("timeout", TryAgain, "timeout"),
        ("first_byte_timeout", TryAgain, "timeout"), ("idle_timeout", TryAgain, "timeout"),
        ("too_large", Settle, "result_too_large"), ("unsuitable", Settle, "invalid_request"),
    ],
)  # fmt: skip
def test_each_fault_has_its_verdict(fault: Fault, kind: type, code: str | None) -> None:
    found = verdict(CallFailed(fault, "why"), attempt=1, chance=0.5)
    assert isinstance(found, kind)
    error = getattr(found, "error", None)
    assert (error and error.code) == code


def run_of(fault: Answer | CallFailed, tenants: str, before: Run | None = None) -> Run:
    """One fault of a job of each of these tenants, a letter each."""
    run = before or Run()
    for tenant in tenants:
        run = run.failed(fault, tenant)
    return run


def test_only_a_refused_connection_shuts_the_gate_at_the_first_time() -> None:
    outcomes = [CallFailed(fault, "why") for fault in get_args(Fault)]
    assert [out.fault for out in outcomes if shuts_gate(out, run_of(out, "a"), 0)] == ["refused"]
    assert not any(shuts_gate(out, run_of(out, "a"), 0) for out in (Answer(500, b""), Answer(503, b"")))


@pytest.mark.parametrize(
    ("tenants", "shut"), [("a", False), ("aaaa", False), ("ab", True), ("aaab", True), ("aaaaa", True)]
)
def test_connections_that_break_shut_the_gate_once_they_are_two_tenants(tenants: str, shut: bool) -> None:
    """A backend that was killed breaks all of them; one request can make it break its own."""
    assert shuts_gate(RESET, run_of(RESET, tenants), 0) is shut


@pytest.mark.parametrize("fault", [Answer(500, b""), RESET, CallFailed("idle_timeout", "late")])
def test_one_tenant_s_faults_shut_no_gate_while_another_is_answered_well(fault: Answer | CallFailed) -> None:
    well = Run().answered(Answer(200, b""), "bob", now=100)
    for status in (404, 200) * 10:  # of eve's own answers; they end the run, and bob's still counts
        failing = run_of(fault, "e" * 50, well)
        assert not shuts_gate(fault, failing, now=110)
        well = failing.answered(Answer(status, b""), "e", now=105)
    assert shuts_gate(fault, run_of(fault, "eeeee", well), now=110.1), "that was too long ago"
    assert shuts_gate(fault, run_of(fault, "eeeeb", well), now=100), "bob's fail too"
    alone = Run().answered(Answer(200, b""), "e", now=100)
    assert shuts_gate(fault, run_of(fault, "eeeee", alone), now=100), "nobody else is answered well"


@given(attempt=st.integers(1, 100), chance=st.floats(0, 1, exclude_max=True))
def test_pauses_are_jittered_over_the_whole_of_a_bound_that_doubles(attempt: int, chance: float) -> None:
    bound = min(60_000, 1_000 * 2 ** (attempt - 1))
    assert pause_ms(attempt, chance) == round(chance * bound)


@given(attempt=st.integers(1, 100), chance=st.floats(0, 1, exclude_max=True), asked=st.floats(0, 1e9))
def test_retry_after_is_obeyed_within_an_hour(attempt: int, chance: float, asked: float) -> None:
    pause = pause_ms(attempt, chance, asked)
    assert min(round(1000 * asked), 3_600_000) <= pause <= 3_600_000 + 60_000


@pytest.mark.parametrize("status", range(100, 600))
def test_only_server_errors_speak_against_a_backend_and_no_503_that_says_when_to_come_again(status: int) -> None:
    assert is_fault(Answer(status, b""), own_timeout=True) == (status >= 500)
    assert is_fault(Answer(status, b"", retry_after_s=1), own_timeout=True) == (status >= 500 and status != 503)


def test_a_time_that_the_caller_set_does_not_speak_against_the_backend() -> None:
    """Else one tenant could have a backend ejected, with a timeout that is too short for any answer."""
    for fault in get_args(Fault):
        found = [is_fault(CallFailed(fault, "why"), own_timeout=own) for own in (True, False)]
        its_own = fault in ("reset", "timeout", "first_byte_timeout", "idle_timeout")
        assert found == [its_own and fault != "timeout", its_own]
