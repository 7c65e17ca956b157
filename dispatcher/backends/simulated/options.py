"""What a simulated backend is like: its models, size, speed and faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from dispatcher.backends.simulated.faults import Faults
from dispatcher.backends.timing import Speed

VLLM_VERSION: Final = "0.32.0"  # whose behaviour is simulated
# What becomes of a request's `priority`. vLLM obeys it under `--scheduling-policy priority`; without, it ignores it
# (0.11 and later, whatever its documentation says) or answers 400 (the V0 engine of the versions before).
Priority = Literal["obeyed", "ignored", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A simulated backend's options. The first of `models` is the name in the metrics, the others are aliases.

    `max_model_len` is in tokens: prompt and answer together. `mean_answer` is how many tokens an answer has on average
    (exponentially distributed) where `max_tokens` and `ignore_eos` do not decide it; `seed` decides the answers.
    """

    models: tuple[str, ...] = ("sim",)
    speed: Speed = field(default_factory=Speed)
    max_model_len: int = 8192
    mean_answer: float = 128.0
    priority: Priority = "ignored"
    seed: int = 0
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("a backend serves one model at least")
        if min(self.speed.slots, self.speed.kv_tokens, self.speed.step_tokens, self.max_model_len) < 1:
            raise ValueError("slots, kv_tokens, step_tokens and max_model_len are 1 or more")
        if self.mean_answer <= 0:
            raise ValueError("mean_answer is more than 0")
