"""What the served OpenAPI document says where the code's types do not: bodies that are read by hand, and answers."""

from __future__ import annotations

from typing import Any, Final, cast

from fastapi import FastAPI

from producer.api.wire import JobIn

Schema = dict[str, Any]

_ERROR: Final[Schema] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
_TIME: Final[Schema] = {"type": ["number", "null"], "description": "Unix seconds"}
_JOB: Final[Schema] = {
    "type": "object",
    "required": ["object", "id", "state", "model", "endpoint", "tenant", "tier"],
    "properties": {
        "object": {"const": "job"},
        "id": {"type": "string"},
        "state": {"enum": ["queued", "delayed", "leased", "succeeded", "failed", "cancelled", "expired"]},
        "dead": {"type": "boolean"},
        **{name: {"type": "string"} for name in ("pool", "model", "endpoint", "tenant", "tier")},
        **dict.fromkeys(("created_at", "not_before", "deadline_at", "started_at", "finished_at"), _TIME),
        "attempts": {"type": "array", "items": {"type": "object"}},
        "max_attempts": {"type": "integer"},
        "result": {"type": ["object", "null"]},
        "error": {"type": ["object", "null"]},
        "usage": {"type": ["object", "null"]},
        "metadata": {"type": "object"},
        "batch_id": {"type": ["string", "null"]},
    },
}


def _answer(what: str, schema: Schema) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


JOB: Final = _answer("The job.", _JOB)
PAGE: Final = _answer(
    "A page of jobs.",
    {
        "type": "object",
        "required": ["data", "next_cursor"],
        "properties": {
            "data": {"type": "array", "items": _JOB},
            "next_cursor": {"type": ["string", "null"]},
        },
    },
)
JOB_OR_LIST: Final = _answer(
    "The job; or, for a list, each job or why it was refused, in the same order.",
    {
        "oneOf": [
            _JOB,
            {
                "type": "object",
                "required": ["jobs"],
                "properties": {"jobs": {"type": "array", "items": {"oneOf": [_JOB, _ERROR]}}},
            },
        ]
    },
)
RESPONSE: Final = _answer(
    "The response: the backend's own once it is there.",
    {
        "type": "object",
        "required": ["object", "id", "status"],
        "properties": {
            "object": {"const": "response"},
            "id": {"type": "string"},
            "status": {"enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]},
            "created_at": {"type": "number"},
            "background": {"type": ["boolean", "null"]},
            "model": {"type": "string"},
            "output": {"type": "array", "items": {"type": "object"}},
            "usage": {"type": ["object", "null"]},
            "error": {"type": ["object", "null"]},
        },
    },
)
EXPLANATION: Final = _answer(
    "Why it waits.",
    {
        "type": "object",
        "required": ["state", "position", "ahead", "gate", "estimated_start_s"],
        "properties": {
            "state": {"type": "string"},
            "position": {"type": ["integer", "null"], "description": "About how many jobs start before it."},
            "ahead": {"type": "array", "items": {"type": "object", "required": ["what"]}},
            "gate": {
                "type": ["object", "null"],
                "required": ["backend", "reason", "numbers"],
                "properties": {
                    "backend": {"type": "string"},
                    "reason": {"type": "string"},
                    "numbers": {"type": "object"},
                },
            },
            "estimated_start_s": {"type": ["number", "null"]},
        },
    },
)
EVENTS: Final = {
    "description": "Server-sent events, each in the backend's own bytes and with an `id` that it is resumed after. If "
    "the job ended before its first event: what an ordinary request would be answered.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
READINESS: Final = _answer(
    "Whether jobs can be taken in.",
    {
        "type": "object",
        "required": ["status"],
        "properties": {
            "status": {"enum": ["ready", "not_ready"]},
            "reasons": {"type": "array", "items": {"type": "string"}},
        },
    },
)
METRICS: Final = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
ERROR: Final = _answer("A refusal.", _ERROR)
RESPONSES: Final[dict[int | str, dict[str, Any]]] = dict.fromkeys((400, 401, 403, 404, 409, 413, 429, 500, 503), ERROR)
_INFERENCE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = RESPONSES | {502: ERROR, 504: ERROR}
STORE_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {503: ERROR}

# A backend's own answer comes back as it is, whatever its status.
ANY: Final = {"description": "The backend's status and body, unchanged."}

_ONE: Final[Schema] = JobIn.model_json_schema(ref_template="#/components/schemas/{model}")
WEBHOOK: Final[Schema] = _ONE.pop("$defs")["WebhookIn"]
_ONE["properties"]["webhook"]["anyOf"][0] = WEBHOOK
CREATE_BODY: Final[Schema] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "oneOf": [
                    _ONE,
                    {
                        "type": "object",
                        "required": ["jobs"],
                        "additionalProperties": False,
                        "properties": {"jobs": {"type": "array", "minItems": 1, "maxItems": 1000, "items": _ONE}},
                    },
                ]
            }
        }
    },
}
_INFERENCE_BODY: Final[Schema] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["model"],
                "properties": {
                    "model": {"type": "string"},
                    "stream": {"type": ["boolean", "null"], "description": "Then the answer is `text/event-stream`."},
                    "service_tier": {"type": "string", "description": "The tier; `auto` is `default`."},
                },
            }
        }
    },
}

# For the decorators of OpenAI's endpoints.
INFERENCE: Final[dict[str, Any]] = {
    "openapi_extra": {"requestBody": _INFERENCE_BODY},
    "responses": {200: ANY, "default": ANY, **_INFERENCE_RESPONSES},
    "response_model": None,
}


def describe(app: FastAPI) -> None:
    """Makes the served document say what we do: how a key is sent, and that a request that is not valid gets 400, never
    FastAPI's 422."""
    draw = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            drawn = draw()
            drawn["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            drawn["security"] = [{"key": []}, {}]
            for path in drawn["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                drawn.get("components", {}).get("schemas", {}).pop(name, None)
        return cast("dict[str, Any]", app.openapi_schema)

    app.openapi = openapi  # pyright: ignore[reportAttributeAccessIssue]
