"""Fairlane: a fair, tiered request queue for LLM inference servers, on Redis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairlane import errors
    from fairlane.errors import (
        BatchFailed,
        FairlaneError,
        JobCancelled,
        JobExpired,
        JobFailed,
        LineFailed,
        WaitTimeout,
        WebhookInvalid,
    )
    from fairlane.job import Job
    from producer.client.batch import AsyncBatchHandle
    from producer.client.client import AsyncClient
    from producer.client.handle import AsyncHandle
    from producer.client.receiving import verify_webhook
    from producer.client.records import Batch, BatchItem, File, LineError, Progress
    from producer.client.stream import AsyncStream
    from producer.client.sync import Client, Handle, Stream
    from producer.client.sync_batches import BatchHandle
    from producer.intake import JobRequest

__all__ = [
    "AsyncBatchHandle",
    "AsyncClient",
    "AsyncHandle",
    "AsyncStream",
    "Batch",
    "BatchFailed",
    "BatchHandle",
    "BatchItem",
    "Client",
    "FairlaneError",
    "File",
    "Handle",
    "Job",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobRequest",
    "LineError",
    "LineFailed",
    "Progress",
    "Stream",
    "WaitTimeout",
    "WebhookInvalid",
    "errors",
    "verify_webhook",
]

# Where each public name is found. It is imported when it is first used: every process of ours imports this package.
_HOMES: Final = {
    "AsyncBatchHandle": "producer.client.batch",
    "AsyncClient": "producer.client.client",
    "AsyncHandle": "producer.client.handle",
    "AsyncStream": "producer.client.stream",
    "Batch": "producer.client.records",
    "BatchFailed": "fairlane.errors",
    "BatchHandle": "producer.client.sync_batches",
    "BatchItem": "producer.client.records",
    "Client": "producer.client.sync",
    "FairlaneError": "fairlane.errors",
    "File": "producer.client.records",
    "Handle": "producer.client.sync",
    "Job": "fairlane.job",
    "JobCancelled": "fairlane.errors",
    "JobExpired": "fairlane.errors",
    "JobFailed": "fairlane.errors",
    "JobRequest": "producer.intake",
    "LineError": "producer.client.records",
    "LineFailed": "fairlane.errors",
    "Progress": "producer.client.records",
    "Stream": "producer.client.sync",
    "WaitTimeout": "fairlane.errors",
    "WebhookInvalid": "fairlane.errors",
    "verify_webhook": "producer.client.receiving",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("fairlane.errors")
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
