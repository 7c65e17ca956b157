"""What becomes of an attempt: settled, tried again after a pause, or handed back unrun.

Only what may succeed is tried again: no answer, 429 and 5xx; never other 4xx. The pauses are full-jitter exponential
backoff (M. Brooker, "Exponential Backoff and Jitter", AWS, 2015), and never shorter than the backend's Retry-After.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from dispatcher.backends.answer import Answer, CallFailed, Fault
from dispatcher.policy.ejection import ERRORS_MOST
from fairlane.model import JobError

BASE_MS: Final = 1_000
MOST_MS: Final = 60_000
EXCUSED_S: Final = 10.0  # as long as in lua/lib/lease.lua
OBEYED_MOST_MS: Final = 3_600_000  # a backend that asks for more is asked again after an hour

_CODES: Final[dict[Fault, tuple[str, int]]] = {
    "unready": ("backend_unreachable", 502),
    "refused": ("backend_unreachable", 502),
    "reset": ("backend_unreachable", 502),
    "timeout": ("timeout", 504),
    "first_byte_timeout": ("timeout", 504),
    "idle_timeout": ("timeout", 504),
    "too_large": ("result_too_large", 502),
    "unsuitable": ("invalid_request", 400),
}
_FINAL: Final[frozenset[Fault]] = frozenset({"too_large", "unsuitable"})  # it would fail again
_ITS_OWN: Final[frozenset[Fault]] = frozenset({"reset", "timeout", "first_byte_timeout", "idle_timeout"})


@dataclass(frozen=True, slots=True)
class Settle:
    """The attempt was the last: the job succeeded, or failed for good."""

    state: Literal["succeeded", "failed"]
    error: JobError | None = None


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The attempt failed in a way that may pass. The queue ends the job if it was the last one allowed."""

    delay_ms: int
    error: JobError


@dataclass(frozen=True, slots=True)
class HandBack:
    """The backend never saw the request: no attempt was made."""


@dataclass(frozen=True, slots=True)
class Run:
    """A backend's faults in a row, and whom it last answered well and when (s), as one process saw them.

    `tenants` are those whose jobs failed, `broken` those of them whose connections it broke, `well` who was answered,
    the last one first: two of each are enough to know.
    """

    faults: int = 0
    tenants: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    well: tuple[tuple[str, float], ...] = ()

    def failed(self, outcome: Answer | CallFailed, tenant: str) -> Run:
        reset = isinstance(outcome, CallFailed) and outcome.fault == "reset"
        tenants = self.tenants | {tenant} if len(self.tenants) < 2 else self.tenants
        broken = self.broken | {tenant} if reset and len(self.broken) < 2 else self.broken
        return replace(self, faults=self.faults + 1, tenants=tenants, broken=broken)

    def answered(self, answer: Answer, tenant: str, now: float) -> Run:
        """The run has ended."""
        if not 200 <= answer.status < 300:
            return Run(well=self.well)
        others = [(who, at) for who, at in self.well if who != tenant]
        return Run(well=((tenant, now), *others[:1]))

    def goes_on(self, now: float) -> bool:
        """Whether it is long enough, and not one tenant's while another was just answered well."""
        others_well = any(now - at <= EXCUSED_S and who not in self.tenants for who, at in self.well)
        return self.faults >= ERRORS_MOST and (len(self.tenants) > 1 or not others_well)


def shuts_gate(outcome: Answer | CallFailed, run: Run, now: float) -> bool:
    """Whether the backend is down until its next good scrape: it takes no connection, breaks them, or only fails.

    What comes over a connection may be what one tenant sends: a broken one says nothing until a second tenant's is.
    """
    if isinstance(outcome, CallFailed) and outcome.fault == "refused":
        return True
    return len(run.broken) > 1 or run.goes_on(now)


def is_fault(outcome: Answer | CallFailed, *, own_timeout: bool) -> bool:
    """Whether it speaks against the backend: 5xx, a broken connection, no answer in time.

    Not 429, nor 503 with a Retry-After: it has no room now. Nor an attempt that took longer than the caller gave it
    (`own_timeout`: the job has a time of its own), or one tenant could have a backend ejected.
    """
    if isinstance(outcome, CallFailed):
        return outcome.fault in _ITS_OWN and not (own_timeout and outcome.fault == "timeout")
    return outcome.status >= 500 and not (outcome.status == 503 and outcome.retry_after_s is not None)


Verdict = Settle | TryAgain | HandBack


def verdict(outcome: Answer | CallFailed, attempt: int, chance: float) -> Verdict:
    """The verdict on attempt number `attempt` (from 1). `chance` in [0, 1) draws the pause."""
    if isinstance(outcome, CallFailed):
        return _of_fault(outcome, attempt, chance)
    if 200 <= outcome.status < 300:
        return Settle("succeeded")
    error = JobError("backend_error", f"The backend answered {outcome.status}.", outcome.status)
    if outcome.status == 429 or outcome.status >= 500:
        return TryAgain(pause_ms(attempt, chance, outcome.retry_after_s), error)
    return Settle("failed", error)


def _of_fault(failed: CallFailed, attempt: int, chance: float) -> Verdict:
    if failed.fault in ("refused", "unready"):
        return HandBack()
    code, status = _CODES[failed.fault]
    error = JobError(code, str(failed), status)
    return Settle("failed", error) if failed.fault in _FINAL else TryAgain(pause_ms(attempt, chance), error)


def pause_ms(attempt: int, chance: float, retry_after_s: float | None = None) -> int:
    """How long to wait before the next attempt, in ms: chance · min(60 s, 1 s · 2^(attempt - 1)), after Retry-After."""
    jitter = round(chance * min(MOST_MS, BASE_MS * 2 ** min(attempt - 1, 16)))
    obeyed = round(1000 * retry_after_s) if retry_after_s is not None else 0
    return min(obeyed, OBEYED_MOST_MS) + jitter
