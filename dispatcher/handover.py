"""Hands a job's place on to the engine, where that takes one: its own queue then has the order that ours had.

vLLM's `priority` is a whole number, the lowest first. A caller's own never reaches an engine: ours comes last in the
body, and readers of JSON take the last of two equal names.
"""

from __future__ import annotations

import re
from typing import Final

from dispatcher.backends.answer import Answer
from dispatcher.backends.call import Hear
from dispatcher.backends.known import Backends
from dispatcher.policy.lead import engine_priority
from fairlane.head import Head
from fairlane.model import Lease

EPOCH_MS: Final = 1_767_225_600_000  # 2026: the same for all pools and for ever, as engine_priority asks
INVALID: Final = (400, 422)
LOOKED_AT: Final = 4096  # bytes of a refusal
_SPACE: Final = b" \t\r\n"
_NAMED: Final = re.compile(
    rb"""priority(?![\\"']+\s*:\s*-?\d)""", re.IGNORECASE
)  # and not ours, in an echo of the body


async def call(backends: Backends, lease: Lease, head: Head, hear: Hear) -> Answer:
    """Sends the job to its backend; `hear` is told what comes of a stream. Raises CallFailed.

    One that refuses the `priority` gets the request once more without it, within the same attempt: it had not begun.
    If that is served, it is remembered for the whole fleet until it restarts.
    """
    backend = await backends.get(lease.backend)
    if not backends.takes_priority(lease.backend):
        return await backend.call(lease.id, head, lease.body, hear)
    body = with_priority(lease.body, _priority(backends, lease))
    answer = await backend.call(lease.id, head, body, hear)
    if not refuses_priority(answer):
        return answer
    answer = await backend.call(lease.id, head, lease.body, hear)
    if 200 <= answer.status < 300:  # else it minds something else, and any caller could switch this off for all
        await backends.priority_refused(lease.backend)
    return answer


def with_priority(body: bytes, priority: int) -> bytes:
    """The JSON object with this `priority` at its end. What is no object stays as it is: the backend will say so."""
    start, end = body[:64].lstrip(_SPACE), body.rstrip(_SPACE)
    if not start.startswith(b"{") or not end.endswith(b"}"):
        return body
    fields = end[:-1].rstrip(_SPACE)
    comma = b"" if fields.endswith(b"{") else b","  # a brace before the last one: the object is empty
    return b'%b%b"priority":%d}' % (fields, comma, priority)


def refuses_priority(answer: Answer) -> bool:
    """Whether the backend would not take the request for its `priority`, before any work on it."""
    return answer.status in INVALID and _NAMED.search(answer.body[:LOOKED_AT]) is not None


def _priority(backends: Backends, lease: Lease) -> int:
    tiers = backends.pool.policy.tiers
    tier = tiers.index(lease.tier) if lease.tier in tiers else len(tiers) - 1  # it was removed a moment ago
    return engine_priority(lease.phi_ms, tier, len(tiers), backends.lead_ms, EPOCH_MS)
