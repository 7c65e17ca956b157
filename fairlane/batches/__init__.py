"""Batches: files of requests that are worked off in the background, each line a job of the tier `batch`.

`Batches` is what the front door and the page use; `BatchWork` (work.py) is what the Celery worker does. docs/batches.md
tells how it goes. The state lives in the account's slot, written by scripts alone; each step may be done again after a
crash at any point, and loses and doubles nothing.
"""

from fairlane.batches.store import Batches
from fairlane.batches.view import BatchFault, BatchState, BatchView

__all__ = ["BatchFault", "BatchState", "BatchView", "Batches"]
