"""What is sent: an event as OpenAI and Standard Webhooks have it, as bytes. Pure; the same again for the same event.

`{"id": "evt_…", "object": "event", "created_at": Unix seconds, "type", "timestamp": ISO 8601, "data"}`
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fairlane import strictjson
from fairlane.jobview import job_view
from fairlane.model import FINISHED, Job
from fairlane.webhooks import values
from fairlane.webhooks.values import Endpoint

if TYPE_CHECKING:
    from fairlane.batches import BatchView

RESULT_MOST: Final = 16 << 10  # bytes of a result's body; there is a link in place of a larger one
FAULTS_MOST: Final = 20  # of a batch's file; GET /v1/batches/{id} has more of them, the error file all


def job_event(job: Job, event: str, public_url: str = "", *, large: bool = False) -> bytes:
    """`job.<state>` of a finished job, with contract.md's job as data. `event` is the id that the pool's stream gave to
    its outcome. `public_url`: of the front door, for the link. `large`: the result has more than RESULT_MOST bytes, and
    was not read. Raises ValueError if the job is not finished.
    """
    if job.state not in FINISHED or job.finished_at_ms is None:
        raise ValueError(f"the job {job.id} is {job.state}, and has no outcome")
    return _event(job.id, event, f"job.{job.state}", job.finished_at_ms, _job(job, public_url, large))


def batch_event(batch: BatchView, ended_at_ms: int) -> bytes:
    """`batch.<status>` of one that has ended, with OpenAI's batch as data. Raises ValueError if it has not ended."""
    from fairlane.batches.document import batch_view  # who only submits over Redis needs not all that batches need

    if not batch.ended:
        raise ValueError(f"the batch {batch.id} is {batch.status}, and has not ended")
    data = batch_view(replace(batch, faults=batch.faults[:FAULTS_MOST]))
    return _event(batch.id, str(ended_at_ms), f"batch.{batch.status}", ended_at_ms, data)


def test_event(endpoint: Endpoint, occasion: str, at_ms: int) -> bytes:
    """`webhook.test`, with the endpoint as data. Another `occasion` makes another event."""
    return _event(endpoint.id, occasion, values.TEST, at_ms, _endpoint(endpoint))


def disabled_event(endpoint: Endpoint, at_ms: int) -> bytes:
    """`webhook_endpoint.disabled`, for the tenant's other endpoints."""
    return _event(endpoint.id, str(at_ms), values.DISABLED, at_ms, _endpoint(endpoint))


def delivery_id(subject: str, event: str, type_: str, to: str) -> str:
    """Of a delivery, and its `webhook-id`: the same whenever this event is to be delivered there.

    `subject` is the id of what it is about, `event` as in `job_event` (of a batch: when it ended, in ms), `to` an
    endpoint's id, or the lane of a job's or batch's own hook.
    """
    return f"msg_{_digest(subject, event, type_, to)}"


def endpoint_view(endpoint: Endpoint) -> dict[str, Any]:
    """An endpoint as the outside sees it, without its secret. Times in Unix seconds."""
    return {
        "object": "webhook_endpoint",
        "id": endpoint.id,
        "tenant": endpoint.tenant,
        "url": endpoint.url,
        "events": list(endpoint.events),
        "description": endpoint.description,
        "headers": dict(endpoint.headers),
        "enabled": endpoint.enabled,
        "disabled_reason": endpoint.disabled_reason,
        "created_at": _seconds(endpoint.created_at_ms),
        "failing_since": _seconds(endpoint.failing_since_ms),
        "last_attempt_at": _seconds(endpoint.last_attempt_at_ms),
        "last_status": endpoint.last_status,
        "shut_until": _seconds(endpoint.shut_until_ms),
    }


def _event(subject: str, event: str, type_: str, at_ms: int, data: dict[str, Any]) -> bytes:
    return _json(
        {
            "id": f"evt_{_digest(subject, event, type_)}",
            "object": "event",
            "created_at": at_ms // 1000,
            "type": type_,
            "timestamp": _iso(at_ms),
            "data": data,
        }
    )


def _job(job: Job, public_url: str, large: bool) -> dict[str, Any]:
    large = large or (job.result is not None and len(job.result) > RESULT_MOST)
    view = job_view(replace(job, result=None) if large else job)
    if not large and view["result"] is not None:
        large = len(_json(view["result"]["body"])) > RESULT_MOST  # it may need escapes
    if large:
        view |= {"result": None, "result_url": f"{public_url.rstrip('/')}/v1/jobs/{job.id}"}
    return view


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    """Without headers: they may hold a credential that no other endpoint should learn."""
    return {name: value for name, value in endpoint_view(endpoint).items() if name != "headers"}


def _json(value: Any) -> bytes:
    try:
        return strictjson.dump(value)
    except ValueError:  # half a surrogate pair in a backend's answer stays the escape that it was
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03}Z"


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
