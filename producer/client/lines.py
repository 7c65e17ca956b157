"""The lines of a batch's input file, out of what a caller gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from fairlane.errors import InvalidRequest
from producer.client.bulk import Item
from producer.client.submission import Submission, submission_of
from producer.intake import JobRequest

ENDPOINT: Final = "/v1/chat/completions"  # of a file whose first line does not say it: the front door will refuse that
_WHOLE: Final = frozenset({"url", "body"})


class Lines:
    """Makes lines one after the other. `endpoint` and `model` are for those that do not say theirs.

    The batch's endpoint is that of the first line, unless it was given.
    """

    def __init__(self, endpoint: str | None, model: str | None) -> None:
        self.endpoint = endpoint
        self._given = endpoint
        self._model = model
        self._count = 0

    def of(self, item: Item) -> bytes:
        """A line of JSON. A request without a `custom_id` gets `request-<n>`, counted from 1. Raises InvalidRequest."""
        self._count += 1
        own_id = f"request-{self._count}"
        if isinstance(item, Mapping) and item.keys() >= _WHOLE:
            line: dict[str, object] = {"custom_id": own_id, "method": "POST", **item}
        else:
            line = self._made(item, own_id)
        if self.endpoint is None and isinstance(url := line["url"], str):
            self.endpoint = url
        try:
            return json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise self._wrong(f"it cannot be written as JSON: {error}") from error

    def _made(self, item: Item, own_id: str) -> dict[str, object]:
        try:
            request, custom_id = self._request(item), own_id
        except (InvalidRequest, TypeError) as error:
            raise self._wrong(str(error)) from error
        if isinstance(item, Mapping) and "custom_id" in item:
            custom_id = cast(str, item["custom_id"])
        body = {"model": request.model, **request.body}
        return {"custom_id": custom_id, "method": "POST", "url": request.endpoint, "body": body}

    def _request(self, item: Item) -> JobRequest:
        """Raises InvalidRequest also for what a job may have, but not a line."""
        if isinstance(item, JobRequest):
            asked = Submission.of(item, None)
        else:
            given: dict[str, Any] = {name: value for name, value in item.items() if name != "custom_id"}
            given.setdefault("model", self._model)
            if self._given:
                given.setdefault("endpoint", self._given)
            asked = submission_of(given)
        request = asked.request
        bare = JobRequest(request.model, request.endpoint, request.body, idempotency_key=request.idempotency_key)
        if request != bare or asked.tenant is not None:
            raise InvalidRequest("A line is a request and no more: the tier, times and metadata are the batch's.")
        return request

    def _wrong(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"Request {self._count} cannot be a line of a batch: {why}", param="items")


def endpoint_of(line: bytes) -> str:
    """Which endpoint the first line of a file names."""
    try:
        url = cast("dict[str, object]", json.loads(line))["url"]
    except (ValueError, KeyError, TypeError):
        return ENDPOINT
    return url if isinstance(url, str) else ENDPOINT
