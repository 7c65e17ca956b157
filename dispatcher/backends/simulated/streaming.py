"""An answer as a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from dispatcher.backends.simulated.answers import Shape
from dispatcher.backends.simulated.asks import StreamOptions
from dispatcher.backends.simulated.responses import ResponseShape
from dispatcher.backends.simulated.running import Request, RunningEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream. `say` gives the tokens from one to another of its answer.

    After `cut` tokens it breaks off: the connection is reset, by `reset`.
    """

    engine: RunningEngine
    request: Request
    shape: Shape | ResponseShape
    say: Callable[[int, int], str]
    options: StreamOptions
    cut: int | None
    reset: Callable[[], None]

    async def events(self) -> AsyncIterator[bytes]:
        """One event for each token, or for several if the caller reads slower than they are made, as vLLM does."""
        request, shape = self.request, self.shape
        continuous = bool(self.options.include_usage and self.options.continuous_usage_stats)
        sent = 0
        self.engine.add(request)
        try:
            while request.finish is None or sent < request.out:
                await request.changed.wait()
                request.changed.clear()
                out = request.out if self.cut is None else min(request.out, self.cut)
                if self.cut == out == sent:
                    self.reset()
                    return
                finish = request.finish if out == request.out else None
                opening = b"" if sent else shape.opening(with_usage=continuous)
                yield opening + shape.piece(self.say(sent, out), finish, out if continuous else None)
                sent = out
            yield shape.ending(sent, with_usage=bool(self.options.include_usage))
        finally:
            self.engine.abort(request)
