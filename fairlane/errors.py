"""Every refusal a caller can meet: one class each, with a stable code, an HTTP status and whether to try again.

The code is the same in the JSON body, in the metric label and in the log. A class's docstring is its default message:
what happened, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final, cast

if TYPE_CHECKING:
    from fairlane.job import Job, Json


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

    @property
    def public(self) -> str:
        """The message for whoever sent the request."""
        return self.message


class InvalidRequest(FairlaneError):
    """The request cannot be understood. Correct the named parameter and send it again."""

    code, status = "invalid_request", 400


class UnknownTier(InvalidRequest):
    """There is no such tier. Use one of the configured tiers."""

    code = "unknown_tier"


class NotFound(FairlaneError):
    """There is nothing with this id, or it is past its retention."""

    code, status = "not_found", 404


class ModelNotFound(NotFound):
    """No pool serves this model. GET /v1/models lists those that are served."""

    code = "model_not_found"


class InvalidKey(FairlaneError):
    """There is no such key, or it was revoked, or it is past its end. Send `Authorization: Bearer <key>`."""

    code, status = "invalid_key", 401


class TierForbidden(FairlaneError):
    """This key may not use this tier. Use one that it may."""

    code, status = "tier_forbidden", 403


class TenantForbidden(FairlaneError):
    """This key may not act for another tenant. Leave the tenant out, or use an operator's key."""

    code, status = "tenant_forbidden", 403


class IdempotencyMismatch(FairlaneError):
    """This idempotency key was used with another request (body, tier, metadata …). Use a new key for a new request."""

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


class JobWasCancelled(FairlaneError):
    """The job was cancelled."""

    code, status = "job_cancelled", 409


class PayloadTooLarge(FairlaneError):
    """The job is larger than the limit. Send less."""

    code, status = "payload_too_large", 413


class QueueFull(FairlaneError):
    """Too many jobs wait already. Try again later, or let fewer wait at once."""

    code, status, retryable = "queue_full", 429, True


class RateLimited(FairlaneError):
    """Too many requests a minute. Try again later."""

    code, status, retryable = "rate_limited", 429, True


class StreamBroken(FairlaneError):
    """The answer broke off: what ran it is gone, and it began anew elsewhere. Send the request again."""

    code, status = "stream_broken", 502


class BackendUnreachable(FairlaneError):
    """The backend gave no answer, at each of the job's attempts."""

    code, status = "backend_unreachable", 502


class Expired(FairlaneError):
    """The job was not started before its deadline. Send it again, or give it more time."""

    code, status = "expired", 504


class Timeout(FairlaneError):
    """The backend did not answer in time, at each of the job's attempts."""

    code, status = "timeout", 504


class Draining(FairlaneError):
    """This process is about to end. Try again: another one answers."""

    code, status, retryable = "draining", 503, True


class StoreUnavailable(FairlaneError):
    """The queue gives no answer now. Try again; with the same idempotency key nothing is done twice."""

    code, status, retryable = "store_unavailable", 503, True

    @property
    def public(self) -> str:
        """Where our Redis is, and what it said, is for those who run it."""
        return type(self).__doc__ or ""


class FilesUnavailable(FairlaneError):
    """The store of the files gives no answer now, or is full. Try again later."""

    code, status, retryable = "files_unavailable", 503, True


class StoreFull(FairlaneError):
    """Redis has no memory left. What was accepted stays; try again later."""

    code, status, retryable = "store_full", 503, True


class StoreUnsuitable(FairlaneError):
    """This Redis cannot hold the queue. `fairlane doctor` says what to change."""

    code, status = "store_unsuitable", 503


class SchemaMismatch(StoreUnsuitable):
    """This Redis holds data of a schema that this version of Fairlane does not know. Use the version that wrote it."""

    code = "schema_mismatch"


# --- what only a client meets -----------------------------------------------------------------------------------------


class ConnectionFailed(FairlaneError, ConnectionError):
    """The front door cannot be reached. See that the URL is right and that it runs."""

    code, status, retryable = "connection_failed", 503, True


class NotSupported(FairlaneError):
    """This is not to be had over this kind of URL. Use the front door's (http://…)."""

    code, status = "not_supported", 501


class WaitTimeout(FairlaneError, TimeoutError):
    """The time to wait is over and the job goes on. Wait again, or cancel it."""

    code, status = "wait_timeout", 504


class Refused(FairlaneError):
    """A refusal with a code that this version does not know: `code` and `status` are what the server said."""

    def __init__(
        self, message: str, *, code: str, status: int, param: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, param=param, retry_after=retry_after)
        vars(self).update(code=code, status=status, retryable=status in RETRYABLE)

    def __reduce__(self) -> tuple[object, ...]:
        return (_refused, (self.message, self.code, self.status, self.param, self.retry_after))


class NoResult(FairlaneError):
    """The job ended without a good answer. `job` is the whole of it."""

    def __init__(self, job: Job, message: str | None = None) -> None:
        super().__init__(message)
        self.job = job

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.job,))


class JobFailed(NoResult):
    """The job failed. `code` and `status` say why; `body` is the backend's own error body, if it answered."""

    def __init__(self, job: Job) -> None:
        error = job.error
        super().__init__(job, failure(job))
        self.body: Json = job.result.body if job.result else None
        if error:
            vars(self).update(code=error.code, status=error.status or class_of(error.code).status)


def failure(job: Job) -> str | None:
    """Why a job failed, in words: what we say of it, and what its backend said."""
    return f"{job.error.code}: {job.error.message}{_reason(job)}" if job.error else None


def _reason(job: Job) -> str:
    """What the backend itself said, as OpenAI-compatible servers say it."""
    body = job.result.body if job.result else None
    said = cast("Mapping[str, object]", body).get("error") if isinstance(body, dict) else None
    text = cast("Mapping[str, object]", said).get("message") if isinstance(said, dict) else said
    return f" {text[:500]}" if isinstance(text, str) and text else ""


class JobCancelled(NoResult):
    """The job was cancelled."""

    code, status = JobWasCancelled.code, JobWasCancelled.status


class JobExpired(NoResult):
    """The job was not started before its deadline. Send it again, or give it more time."""

    code, status = Expired.code, Expired.status


class LineFailed(FairlaneError):
    """A line of a batch has no good answer. `code` and `status` say why; `body` is the backend's own error body."""

    code, status = "line_failed", 500

    def __init__(self, message: str, code: str, status: int | None, body: Json) -> None:
        super().__init__(message)
        self.body: Json = body
        vars(self).update(code=code, status=status or class_of(code).status)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.message, self.code, self.status, self.body))


class BatchFailed(FairlaneError):
    """The batch's input file was refused. Its errors say which lines are wrong; correct them and submit it again."""

    code, status = "batch_failed", 400


class WebhookInvalid(FairlaneError):
    """This was not sent by who knows the secret, or not lately. Answer 401, and do nothing that it says."""

    code, status = "webhook_invalid", 401


RETRYABLE: Final = frozenset({429, 502, 503, 504})


def class_of(code: str) -> type[FairlaneError]:
    """The class of a code that is read from the wire; FairlaneError for one that is not known."""
    return _classes().get(code, FairlaneError)


@cache
def _classes() -> Mapping[str, type[FairlaneError]]:
    found: list[type[FairlaneError]] = [FairlaneError]
    for one in found:
        found += one.__subclasses__()
    # the first class with a code is the one that a server means
    return {one.code: one for one in reversed(found) if not issubclass(one, NoResult | Refused)}


def _refused(message: str, code: str, status: int, param: str | None, retry_after: float | None) -> Refused:
    return Refused(message, code=code, status=status, param=param, retry_after=retry_after)
