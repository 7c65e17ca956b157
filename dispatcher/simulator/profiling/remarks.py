"""What to know of a fitted profile before it is used: what could not be seen, and what may mislead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dispatcher.backends.timing import Speed
from dispatcher.simulator.profiling.checks import Check
from dispatcher.simulator.profiling.seen import Seen

POOR: Final = 0.15  # relative error of the model from which on it explains a load poorly
BUSY: Final = 0.8  # of a core


def notes_on(seen: Seen, step_tokens_seen: bool, speed: Speed) -> list[str]:
    """What could not be seen, and what stands there instead."""
    notes: list[str] = []
    if not seen.limited:
        notes.append(
            f"slots: {seen.slots} ran at once and nothing had to wait; it may have more. Say --concurrency higher."
        )
    if seen.kv_tokens is None:
        notes.append(
            f"kv_tokens: not visible; {speed.kv_tokens:,} stands there. The server's log tells it at its start."
        )
    if not step_tokens_seen:
        notes.append(f"step_tokens: no step was seen to be full; {speed.step_tokens:,} stands there.")
    if seen.foreign is None:
        notes.append("No metrics page: whether others used the backend meanwhile could not be seen.")
    if not seen.exact:
        notes.append("The backend does not know `ignore_eos` or `stream_options`: answers ended where the model liked.")
    return notes


def warnings_of(seen: Seen, checks: Sequence[Check]) -> list[str]:
    """Why this profile may mislead."""
    warnings = [
        f"Poor fit: {one.what}: {one.seen_ms:.1f} ms seen, {one.model_ms:.1f} ms by the model ({one.error:+.0%})."
        for one in checks
        if abs(one.error) > POOR
    ]
    if seen.foreign:
        warnings.append(f"Others used the backend: up to {seen.foreign} requests. Profile it again while it is idle.")
    if seen.own_cpu > BUSY:
        needed = f"This process needed {seen.own_cpu:.0%} of a core"
        warnings.append(f"{needed}: it may have been slower than the backend. Say --concurrency lower.")
    return warnings
