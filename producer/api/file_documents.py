"""What the served OpenAPI document says of files and batches."""

from __future__ import annotations

from typing import Any, Final

from fairlane.asking import ENDPOINTS
from producer.api.documents import WEBHOOK

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_TIME: Final[Schema] = {"type": ["integer", "null"], "description": "Unix seconds"}
_STATUSES: Final = (
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled",
)  # fmt: skip
_TIMES: Final = (
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at",
)  # fmt: skip


def _answer(what: str, schema: Schema) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _object(required: dict[str, Schema], **more: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": required | more}


def _page(one: Schema) -> Schema:
    return _object(
        {
            "object": {"const": "list"},
            "data": {"type": "array", "items": one},
            "first_id": _TEXT_OR_NULL,
            "last_id": _TEXT_OR_NULL,
            "has_more": {"type": "boolean"},
        }
    )


_FILE: Final = _object(
    {
        "id": _TEXT,
        "object": {"const": "file"},
        "bytes": {"type": "integer"},
        "created_at": {"type": "integer"},
        "filename": _TEXT,
        "purpose": _TEXT,
        "status": {"const": "processed"},
    },
    expires_at=_TIME,
)
_BATCH: Final = _object(
    {
        "id": _TEXT,
        "object": {"const": "batch"},
        "endpoint": _TEXT,
        "input_file_id": _TEXT,
        "completion_window": _TEXT,
        "status": {"enum": list(_STATUSES)},
        "created_at": {"type": "integer"},
        "request_counts": _object({name: {"type": "integer"} for name in ("total", "completed", "failed")}),
    },
    model=_TEXT_OR_NULL,
    output_file_id=_TEXT_OR_NULL,
    error_file_id=_TEXT_OR_NULL,
    errors={"type": ["object", "null"]},
    usage={"type": ["object", "null"]},
    metadata={"type": ["object", "null"]},
    **dict.fromkeys(_TIMES, _TIME),
)

FILE: Final = _answer("The file.", _FILE)
FILE_PAGE: Final = _answer("A page of files.", _page(_FILE))
DELETED: Final = _answer("It is gone.", _object({"id": _TEXT, "object": {"const": "file"}, "deleted": {"const": True}}))
CONTENT: Final[dict[str, Any]] = {
    "description": "What the file holds.",
    "content": {kind: {"schema": {}} for kind in ("application/jsonl", "application/octet-stream")},
}
BATCH: Final = _answer("The batch.", _BATCH)
BATCH_PAGE: Final = _answer("A page of batches.", _page(_BATCH))
BATCH_RESULTS: Final = _answer(
    "What the batch has so far.",
    _object({"object": {"const": "list"}, "data": {"type": "array", "items": {"type": "object"}}, "next": _TEXT}),
)

UPLOAD: Final[Schema] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file", "purpose"],
                "additionalProperties": False,
                "properties": {
                    "purpose": {"enum": ["batch", "user_data"]},
                    "file": {"type": "string", "format": "binary", "description": "Up to 200 MB, with a file's name."},
                    "expires_after[anchor]": {"const": "created_at"},
                    "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
                },
                "dependentRequired": {
                    "expires_after[anchor]": ["expires_after[seconds]"],
                    "expires_after[seconds]": ["expires_after[anchor]"],
                },
            }
        }
    },
}
BATCH_BODY: Final[Schema] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["input_file_id", "endpoint", "completion_window"],
                "additionalProperties": False,
                "properties": {
                    "input_file_id": {"type": "string", "minLength": 1, "maxLength": 100},
                    "endpoint": {"enum": list(ENDPOINTS)},
                    "completion_window": {"const": "24h"},
                    "metadata": {
                        "type": ["object", "null"],
                        "maxProperties": 16,
                        "propertyNames": {"maxLength": 64},
                        "additionalProperties": {"type": "string", "maxLength": 512},
                    },
                    "webhook": {"anyOf": [WEBHOOK, {"type": "null"}]},
                    "output_expires_after": {
                        "type": ["object", "null"],
                        "required": ["anchor", "seconds"],
                        "additionalProperties": False,
                        "properties": {
                            "anchor": {"const": "created_at"},
                            "seconds": {"type": "integer", "minimum": 3600, "maximum": 2592000},
                        },
                    },
                },
            }
        }
    },
}
