"""How free a backend is: F = (M - ΣV) / B, for how many more steps of its batch the cache lasts (Llumnix, OSDI 2024).

M is the cache in tokens, B the requests in the batch. The virtual usage V of a request is what it has of the cache; of
the request that waits at the head of the line, all that it demands (so that a queue makes F negative); of those behind
it, nothing. Each priority that runs there adds its headroom once, each of its requests a share of that.

Our reading: who waits only for the end of the step is in the batch already (else a burst within one step would see the
same F each time, and all of it would go to one backend), and so is who is on the move to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatcher.simulator.backend import Backend
from dispatcher.simulator.request import Request


def freeness(backend: Backend, headroom: Sequence[float], moving: Iterable[Request] = ()) -> float:
    """In tokens for each request of the batch; below 0 if more is asked for than there is.

    `headroom` is each priority's, as a share of the cache; `moving` are those on the move to the backend.
    """
    queue = [*moving, *backend.queue]  # before all else: it brings the requests' own records up to date
    speed, running = backend.profile.speed, backend.engine.running
    tokens, batch = sum([one.need for one in running]), len(running)
    priorities = {one.priority for one in running}
    for one in queue:
        tokens += one.need
        if tokens > speed.kv_tokens or batch >= speed.slots:
            break  # it is the head of the line
        batch += 1
        priorities.add(one.priority)
    kept = speed.kv_tokens * sum(share for priority, share in enumerate(headroom) if priority in priorities)
    return (speed.kv_tokens - tokens - kept) / max(1, batch)
