"""What the table needs of a queue: how its workers are started, and how a program puts jobs in and gets results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

URL_VAR: Final = "PEERS_REDIS_URL"
RESULTS_VAR: Final = "PEERS_RESULTS"  # "1" or "0": whether the workers store results
BODY: Final[dict[str, Any]] = {"model": "sim", "prompt": "Tell me a story.", "max_tokens": 16}
ANSWER: Final[dict[str, Any]] = {"object": "null"}  # what the job that does nothing returns
RESULT_S: Final = 120.0  # a result that takes longer is a fault


def answer(tenant: str, body: dict[str, Any]) -> dict[str, Any]:
    """The job: it does nothing."""
    return ANSWER


class Workers(Protocol):
    """The running workers of a queue."""

    def stop(self) -> None:
        """Freezes them."""
        ...

    def go_on(self) -> None: ...


class Caller(Protocol):
    """A program that uses a queue, and is connected to it. Every call returns when what it asks for is done."""

    def submit(self, tenants: Iterable[str], callers: int) -> None:
        """A job for each of the tenants, one call for each, `callers` of them at once."""
        ...

    def submit_batch(self, tenants: Sequence[str]) -> None:
        """The same by the queue's call for many jobs. Not called if the peer has none (`Peer.batches`)."""
        ...

    def submit_one(self, tenant: str) -> Any:
        """One job; returns what `result` asks with."""
        ...

    def result(self, handle: Any) -> None:
        """Waits for the result of one job. Raises AssertionError if it is not ANSWER."""
        ...

    def round_trips(self, times: int) -> list[float]:
        """Seconds from the submit of a job to its result, one job at a time, in the way that learns of it first."""
        ...

    def left(self) -> int:
        """The jobs that are not done."""
        ...

    def hold(self, workers: Workers) -> None:
        """From now on no job is begun."""
        ...

    def release(self, workers: Workers) -> None: ...


@dataclass(frozen=True)
class Peer:
    """One queue. `packages` are those whose versions are shown, `given` says in which form it runs.

    `command` is the command line of its workers, for a number of processes; they find URL_VAR and RESULTS_VAR in their
    environment. `connect` makes a caller for a Redis URL, with or without results.
    """

    name: str
    packages: tuple[str, ...]
    given: str
    command: Callable[[int], Sequence[str]]
    connect: Callable[[str, bool], AbstractContextManager[Caller]]
    batches: bool = False
