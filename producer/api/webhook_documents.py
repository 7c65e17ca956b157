"""What the served OpenAPI document says of webhooks."""

from __future__ import annotations

from typing import Any, Final

from fairlane.webhooks.delivery import DELIVERY_STATES
from fairlane.webhooks.values import DESCRIPTION_MOST, FILTERS, HEADERS_MOST, OVERLAP_MOST_S, URL_MOST

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_WHOLE_OR_NULL: Final[Schema] = {"type": ["integer", "null"]}
_TIME: Final[Schema] = {"type": ["number", "null"], "description": "Unix seconds"}
_SECRET: Final[Schema] = {"type": "string", "pattern": "^whsec_[A-Za-z0-9+/]{32,88}={0,2}$"}

ENDPOINT_EXAMPLE: Final[dict[str, Any]] = {
    "object": "webhook_endpoint",
    "id": "whe_1764480000000q8t2m4zk7c1x",
    "tenant": "ann",
    "url": "https://hooks.example.com/fairlane",
    "events": ["job.*", "batch.completed"],
    "description": "nightly results",
    "headers": {},
    "enabled": True,
    "disabled_reason": None,
    "created_at": 1764480000.0,
    "failing_since": None,
    "last_attempt_at": 1764480360.25,
    "last_status": 204,
    "shut_until": None,
}
SECRET_EXAMPLE: Final = "whsec_" + "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"  # of Standard Webhooks' own text
DELIVERY_EXAMPLE: Final[dict[str, Any]] = {
    "object": "webhook_delivery",
    "id": "msg_5f0c2c8b3d7e4a61b0f1d2c3e4a5b6c7",
    "tenant": "ann",
    "endpoint_id": ENDPOINT_EXAMPLE["id"],
    "url": ENDPOINT_EXAMPLE["url"],
    "event": "job.succeeded",
    "object_id": "job_0a1b1q8t2m4zk7c1x",
    "state": "pending",
    "reason": None,
    "created_at": 1764480360.0,
    "next_attempt_at": 1764480365.4,
    "attempts": [
        {"at": 1764480360.1, "duration_ms": 150, "status": 500, "error": "It answered 500.", "excerpt": "oops"}
    ],
}


def _answer(what: str, schema: Schema, example: object) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema, "example": example}}}


def _object(required: dict[str, Schema], **more: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": required | more}


def _page(one: Schema) -> Schema:
    return _object({"data": {"type": "array", "items": one}, "next_cursor": _TEXT_OR_NULL})


def _body(required: tuple[str, ...], example: object, **properties: Schema) -> dict[str, Any]:
    """For `openapi_extra`. Without a required field the body itself may be left out."""
    schema = {"type": "object", "required": list(required), "additionalProperties": False, "properties": properties}
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": bool(required), "content": content}}


_ENDPOINT: Final = _object(
    {
        "object": {"const": "webhook_endpoint"},
        "id": _TEXT,
        "tenant": _TEXT,
        "url": _TEXT,
        "events": {"type": "array", "items": {"enum": list(FILTERS)}},
        "description": _TEXT,
        "headers": {"type": "object", "additionalProperties": _TEXT},
        "enabled": {"type": "boolean"},
        "disabled_reason": {"enum": ["asked", "gone", "failing", None]},
        "created_at": {"type": "number", "description": "Unix seconds"},
        "failing_since": _TIME,
        "last_attempt_at": _TIME,
        "last_status": _WHOLE_OR_NULL,
        "shut_until": _TIME | {"description": "Unix seconds; nothing is sent there before, since too much has failed"},
    }
)
_NEW_ENDPOINT: Final[Schema] = {"allOf": [_ENDPOINT, _object({"secret": _SECRET})]}
_SECRET_OBJECT: Final = _object({"object": {"const": "webhook_secret"}, "id": _TEXT, "secret": _SECRET})
_ATTEMPT: Final = _object(
    {
        "at": {"type": "number", "description": "Unix seconds"},
        "duration_ms": {"type": "integer"},
        "status": _WHOLE_OR_NULL,
        "error": _TEXT_OR_NULL,
        "excerpt": {"type": "string", "description": "How the answer begins"},
    }
)
_DELIVERY: Final = _object(
    {
        "object": {"const": "webhook_delivery"},
        "id": {"type": "string", "description": "Also its `webhook-id`, the same at each attempt"},
        "tenant": _TEXT,
        "endpoint_id": {"type": ["string", "null"], "description": "null: to a job's or batch's own webhook"},
        "url": _TEXT,
        "event": _TEXT,
        "object_id": {"type": "string", "description": "The job or batch that it tells of"},
        "state": {"enum": list(DELIVERY_STATES)},
        "reason": _TEXT_OR_NULL,
        "created_at": {"type": "number", "description": "Unix seconds"},
        "next_attempt_at": _TIME,
        "attempts": {"type": "array", "items": _ATTEMPT},
    },
    payload={"type": "object", "description": "What is sent; not in lists"},
)

ENDPOINT: Final = _answer("The endpoint.", _ENDPOINT, ENDPOINT_EXAMPLE)
NEW_ENDPOINT: Final = _answer(
    "The endpoint and its secret.", _NEW_ENDPOINT, ENDPOINT_EXAMPLE | {"secret": SECRET_EXAMPLE}
) | {"headers": {"Location": {"description": "Where it is", "schema": _TEXT}}}
ENDPOINT_PAGE: Final = _answer(
    "A page of endpoints.", _page(_ENDPOINT), {"data": [ENDPOINT_EXAMPLE], "next_cursor": None}
)
ENDPOINT_DELETED: Final = _answer(
    "It is gone.",
    _object({"id": _TEXT, "object": {"const": "webhook_endpoint"}, "deleted": {"const": True}}),
    {"id": ENDPOINT_EXAMPLE["id"], "object": "webhook_endpoint", "deleted": True},
)
SECRET: Final = _answer(
    "The secret.",
    _SECRET_OBJECT,
    {"object": "webhook_secret", "id": ENDPOINT_EXAMPLE["id"], "secret": SECRET_EXAMPLE},
)
NEW_SECRET: Final = _answer(
    "The endpoint with its new secret; for `default` the secret alone.",
    {"oneOf": [_NEW_ENDPOINT, _SECRET_OBJECT]},
    ENDPOINT_EXAMPLE | {"secret": SECRET_EXAMPLE},
)
RECOVERED: Final = _answer("How many are sent again.", _object({"recovered": {"type": "integer"}}), {"recovered": 12})
DELIVERY: Final = _answer(
    "The delivery.", _DELIVERY, DELIVERY_EXAMPLE | {"payload": {"type": "job.succeeded", "data": {"object": "job"}}}
)
DELIVERY_PAGE: Final = _answer(
    "A page of deliveries.", _page(_DELIVERY), {"data": [DELIVERY_EXAMPLE], "next_cursor": None}
)

_URL: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": URL_MOST,
    "description": "http or https, to a public address unless FAIRLANE_WEBHOOK_ALLOW names it",
}
_CHANGES: Final[dict[str, Schema]] = {
    "url": _URL | {"type": ["string", "null"]},
    "events": {"type": ["array", "null"], "minItems": 1, "maxItems": len(FILTERS), "items": {"enum": list(FILTERS)}},
    "description": {"type": ["string", "null"], "maxLength": DESCRIPTION_MOST},
    "headers": {"type": ["object", "null"], "maxProperties": HEADERS_MOST, "additionalProperties": _TEXT},
}
_NEW_SECRET: Final[Schema] = _SECRET | {"type": ["string", "null"]}

ENDPOINT_BODY: Final = _body(
    ("url",),
    {"url": ENDPOINT_EXAMPLE["url"], "events": ENDPOINT_EXAMPLE["events"]},
    **(_CHANGES | {"url": _URL, "secret": _NEW_SECRET}),
)
ENDPOINT_CHANGES: Final = _body((), {"events": ["*"]}, **_CHANGES)
ROTATE_BODY: Final = _body(
    (),
    {"overlap_s": 86_400},
    overlap_s={"type": ["number", "null"], "minimum": 0, "maximum": OVERLAP_MOST_S},
    secret=_NEW_SECRET,
)
RECOVER_BODY: Final = _body(
    ("since",), {"since": 1764480000}, since={"type": "number", "minimum": 0, "description": "Unix seconds"}
)
