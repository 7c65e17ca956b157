"""Faults on demand: what a backend does wrong, how often, and who is hit."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated

Fate = Literal["served", "error", "hang", "reset", "stream_reset"]
Share = Annotated[float, Field(ge=0, le=1)]


@validated(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Faults:
    """What goes wrong. A share is the part of the requests for inference, 0 to 1, that it happens to.

    `error_share` are answered with `error_status`, and with Retry-After if `retry_after_s` is given; `hang_share` are
    accepted and never answered; for `reset_share` the connection is reset without an answer; of the other streams,
    `stream_reset_share` are reset after `stream_reset_tokens` tokens.

    `metrics`: `frozen` keeps the page as it is now, `off` answers 404. For `start_s` seconds after the start, or after
    they were set, the server is not ready: every path answers 503, or, at the start and with `start_refused`,
    connections are refused.
    """

    error_share: Share = 0.0
    error_status: Literal[429, 500, 502, 503, 504] = 500
    retry_after_s: Annotated[int, Field(ge=0)] | None = None
    hang_share: Share = 0.0
    reset_share: Share = 0.0
    stream_reset_share: Share = 0.0
    stream_reset_tokens: Annotated[int, Field(ge=0)] = 1
    metrics: Literal["live", "frozen", "off"] = "live"
    start_s: Annotated[float, Field(ge=0)] = 0.0
    start_refused: bool = False

    def __post_init__(self) -> None:
        if self.error_share + self.hang_share + self.reset_share > 1:
            raise ValueError("error_share, hang_share and reset_share are 1 together at the most")


FAULTS = TypeAdapter(Faults)


@dataclass(slots=True)
class Fates:
    """Draws who is hit. The same seed and faults hit the same requests of a sequence of requests."""

    dice: random.Random

    def draw(self, faults: Faults, *, stream: bool) -> Fate:
        point = self.dice.random()
        shares: tuple[tuple[Fate, float], ...] = (
            ("error", faults.error_share),
            ("hang", faults.hang_share),
            ("reset", faults.reset_share),
        )
        for fate, share in shares:
            if point < share:
                return fate
            point -= share
        return "stream_reset" if stream and self.dice.random() < faults.stream_reset_share else "served"
