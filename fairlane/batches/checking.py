"""How far the check of a batch's file has come, and what was found wrong. It goes on from there in the next step.

It is kept in memory: if the worker dies another begins anew.
"""

from __future__ import annotations

from typing import Final, Self

from fairlane.batches.answers import fault_line
from fairlane.batches.lines import MOST_LINES, Checker, Line
from fairlane.batches.view import BatchFault, BatchView

FAULTS: Final = 1_000  # shown with the batch; its error file has all


class Check:
    """`requests` in `lines` were read, which end at the byte `offset`; `done`: there is no more to be read.

    `count` faults were found: the first FAULTS are in `faults`, the lines of the error file in `text`.
    """

    def __init__(self, batch: BatchView, max_body_bytes: int) -> None:
        self._batch_id = batch.id
        self._checker = Checker(batch.endpoint, max_body_bytes)
        self.requests = 0
        self.lines = 0
        self.offset = 0
        self.done = False
        self.count = 0
        self.faults: list[BatchFault] = []
        self.text = bytearray()

    @classmethod
    def failed(cls, batch: BatchView, fault: BatchFault) -> Self:
        """One that has found a fault of the file as a whole."""
        check = cls(batch, 0)
        check.blame(fault)
        return check

    @property
    def model(self) -> str | None:
        """The one model of the file."""
        return self._checker.model

    def take(self, line: Line) -> bool:
        """Checks the next line. False behind the first that is too many: nothing is read then."""
        self.requests, self.lines, self.offset = line.ordinal, line.number, line.end
        if fault := self._checker.fault(line):
            self.blame(fault)
        self.done = line.ordinal > MOST_LINES
        return not self.done

    def blame(self, fault: BatchFault) -> None:
        """Notes a fault."""
        self.count += 1
        self.text += fault_line(self._batch_id, fault)
        if len(self.faults) < FAULTS:
            self.faults.append(fault)
