"""What a batch is, as anyone may see it: OpenAI's batch object. And the one table of its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fairlane.model import Usage

BatchState = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
]

# state -> those that may follow. docs/batches.md draws it; lua/turn_batch.lua enforces it.
TURNS: Final[Mapping[BatchState, frozenset[BatchState]]] = {
    "validating": frozenset({"in_progress", "failed", "cancelling"}),
    "in_progress": frozenset({"finalizing", "cancelling"}),
    "finalizing": frozenset({"completed", "expired", "failed"}),
    "cancelling": frozenset({"cancelled"}),
}
ENDED: Final[frozenset[BatchState]] = frozenset({"completed", "failed", "expired", "cancelled"})
OUTPUT_S: Final = 30 * 86_400  # how long an output or error file is kept, unless the order says otherwise


@dataclass(frozen=True, slots=True)
class BatchFault:
    """What is wrong with a batch's file: a stable code, a sentence, and the line (from 1; None: the whole file)."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class BatchView:
    """One batch. Times are milliseconds since the epoch; None: not yet, or never.

    `total`, `completed` and `failed` count requests; in every end state completed + failed = total, and so many lines
    have the output file and the error file (None: it would be empty). `faults` are the first 1,000 of a file that was
    refused; its error file has all of them. `model` is known once the file was found good. `output_lasts_s`: how long
    its output and error files are kept, in seconds from their making. `webhook` is `{"url", "secret"?, "headers"?}`.
    """

    id: str
    tenant: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchState
    created_at_ms: int
    expires_at_ms: int
    model: str | None = None
    in_progress_at_ms: int | None = None
    finalizing_at_ms: int | None = None
    completed_at_ms: int | None = None
    failed_at_ms: int | None = None
    expired_at_ms: int | None = None
    cancelling_at_ms: int | None = None
    cancelled_at_ms: int | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0
    usage: Usage | None = None
    faults: tuple[BatchFault, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    output_lasts_s: int = OUTPUT_S
    webhook: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def ended(self) -> bool:
        """Whether it is in one of the end states."""
        return self.status in ENDED
