"""Every refusal in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`, and when to try again."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final, cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from fairlane.errors import FairlaneError, InvalidRequest
from producer.api.answers import Json

JITTER: Final = 0.5  # of the time to wait, on top: those who were refused together do not come back together
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def error_body(error: FairlaneError) -> dict[str, Any]:
    return {
        "error": {
            "message": error.public,
            "type": _TYPES.get(error.status, "server_error"),
            "param": error.param,
            "code": error.code,
        }
    }


def error_response(error: FairlaneError, **headers: str) -> Response:
    if error.status in (429, 503):
        headers["retry-after"] = str(retry_after_s(error))
    if error.status == 409:
        headers["x-should-retry"] = "false"  # OpenAI's client takes each 409 for a lock that is about to go
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.status == 413:
        headers["connection"] = "close"  # the rest of what was sent is not read
    return Json(error_body(error), error.status, headers)


def retry_after_s(error: FairlaneError | None = None) -> int:
    """When to try again, in whole seconds."""
    after_s = error.retry_after if error and error.retry_after is not None else 1.0
    return math.ceil(after_s * (1 + JITTER * random.random()))


def fault_of(errors: Sequence[Any], within: int = 0) -> InvalidRequest:
    """What pydantic found, as one sentence and the first parameter's name; `within` parts of its place are left out."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"][within:])
    return InvalidRequest(f"{where}: {first['msg']}." if where else f"{first['msg']}.", param=where or None)


def install(app: FastAPI) -> None:
    """Turns whatever is raised into our errors."""

    @app.exception_handler(FairlaneError)
    async def ours(_: Request, error: Exception) -> Response:  # pyright: ignore[reportUnusedFunction]
        return error_response(cast(FairlaneError, error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Exception) -> Response:  # pyright: ignore[reportUnusedFunction]
        return error_response(fault_of(cast(RequestValidationError, error).errors(), within=1))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: Exception) -> Response:  # pyright: ignore[reportUnusedFunction]
        raised = cast(HTTPException, error)
        codes = {404: "not_found", 405: "method_not_allowed"}
        body = {
            "message": str(raised.detail),
            "type": _TYPES.get(raised.status_code, "invalid_request_error"),
            "param": None,
            "code": codes.get(raised.status_code, "invalid_request"),
        }
        return Json({"error": body}, raised.status_code, raised.headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:  # pyright: ignore[reportUnusedFunction]
        return error_response(FairlaneError())
