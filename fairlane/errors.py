"""Every refusal a caller can meet: one class each, with a stable code, an HTTP status and whether to try again.

The code is the same in the JSON body, in the metric label and in the log. A class's docstring is its default message:
what happened, and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class FairlaneError(Exception):
    """Something went wrong inside Fairlane. Look at the log of the process that answered."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str | None = None, *, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message or (self.__doc__ or "").strip())
        self.param = param
        self.retry_after = retry_after

    @property
    def message(self) -> str:
        return str(self)


class InvalidRequest(FairlaneError):
    """The request cannot be understood. Correct the named parameter and send it again."""

    code, status = "invalid_request", 400


class UnknownTier(InvalidRequest):
    """There is no such tier. Use one of the configured tiers."""

    code = "unknown_tier"


class NotFound(FairlaneError):
    """There is nothing with this id, or it is past its retention."""

    code, status = "not_found", 404


class IdempotencyMismatch(FairlaneError):
    """This idempotency key was used with another body. Use a new key for a new request."""

    code, status = "idempotency_mismatch", 409


class IllegalTransition(FairlaneError):
    """The job is not in a state that allows this."""

    code, status = "illegal_transition", 409


class LeaseLost(FairlaneError):
    """This lease has ended and the job may run elsewhere. Drop the result; it must not be written."""

    code, status = "lease_lost", 409


class StaleCall(FairlaneError):
    """A later acquire of this dispatcher was already answered. Calls of one dispatcher must be serial."""

    code, status = "stale_call", 409


class PayloadTooLarge(FairlaneError):
    """The job is larger than the limit. Send less."""

    code, status = "payload_too_large", 413


class QueueFull(FairlaneError):
    """Too many jobs wait already. Try again later, or let fewer wait at once."""

    code, status, retryable = "queue_full", 429, True


class StoreUnavailable(FairlaneError):
    """Redis did not answer in time. Nothing is known to have changed; try again with the same idempotency key."""

    code, status, retryable = "store_unavailable", 503, True


class StoreFull(FairlaneError):
    """Redis has no memory left. What was accepted stays; try again later."""

    code, status, retryable = "store_full", 503, True


class StoreUnsuitable(FairlaneError):
    """This Redis cannot hold the queue. `fairlane doctor` says what to change."""

    code, status = "store_unsuitable", 503


class SchemaMismatch(StoreUnsuitable):
    """This Redis holds data of a schema that this version of Fairlane does not know. Use the version that wrote it."""

    code = "schema_mismatch"
