"""Fairlane: a fair, tiered request queue for LLM inference servers, on Redis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairlane import errors
    from fairlane.errors import FairlaneError, JobCancelled, JobExpired, JobFailed, WaitTimeout
    from fairlane.job import Job
    from producer.client.client import AsyncClient
    from producer.client.handle import AsyncHandle
    from producer.client.sync import Client, Handle
    from producer.intake import JobRequest

__all__ = [
    "AsyncClient",
    "AsyncHandle",
    "Client",
    "FairlaneError",
    "Handle",
    "Job",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobRequest",
    "WaitTimeout",
    "errors",
]

# Where each public name is found. It is imported when it is first used: every process of ours imports this package.
_HOMES: Final = {
    "AsyncClient": "producer.client.client",
    "AsyncHandle": "producer.client.handle",
    "Client": "producer.client.sync",
    "FairlaneError": "fairlane.errors",
    "Handle": "producer.client.sync",
    "Job": "fairlane.job",
    "JobCancelled": "fairlane.errors",
    "JobExpired": "fairlane.errors",
    "JobFailed": "fairlane.errors",
    "JobRequest": "producer.intake",
    "WaitTimeout": "fairlane.errors",
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
