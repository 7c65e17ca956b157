"""The metrics page: vLLM's names, labels and buckets.

It is written here, line by line from prepared beginnings, since prometheus-client needs 60 times as long for a page
and several µs for each observation, of which there is one a token.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, Literal

from dispatcher.backends.simulated.options import Options

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["gauge", "counter", "histogram"]
SUCCESS: Final = "vllm:request_success_total"
BLOCK_TOKENS: Final = 16
FINISHED_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
LATENCY_S: Final = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
FIRST_TOKEN_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
TOKEN_S: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
STEP_TOKENS: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def token_buckets(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 … up to the longest request."""
    bounds = (mantissa * 10**power for power in range(len(str(most))) for mantissa in (1, 2, 5))
    return tuple(bound for bound in bounds if bound <= most)


class Histogram:
    """Counts by bucket."""

    def __init__(self, name: str, about: str, bounds: Iterable[float], labels: Mapping[str, str]) -> None:
        self._bounds = tuple(bounds)
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        self._counts = [0] * len(names)
        self._sum = 0.0
        self._top = _top(name, "histogram", about)
        self._buckets = [_sample(f"{name}_bucket", {**labels, "le": le}) for le in names]
        self._count_line, self._sum_line = _sample(f"{name}_count", labels), _sample(f"{name}_sum", labels)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def text(self) -> str:
        totals = list(accumulate(self._counts))
        lines = [f"{bucket}{total}.0" for bucket, total in zip(self._buckets, totals, strict=True)]
        lines += [f"{self._count_line}{totals[-1]}.0", f"{self._sum_line}{self._sum}\n"]
        return self._top + "\n".join(lines)


class Metrics:
    """Everything on the page. The engine writes the numbers; the gauges are as of its last step."""

    def __init__(self, options: Options) -> None:
        self.running = self.waiting = self.preemptions = 0
        self.prompt_tokens = self.generation_tokens = 0
        self.kv = 0.0
        self.finished = dict.fromkeys(FINISHED_REASONS, 0)
        self._labels = {"engine": "0", "model_name": options.models[0]}
        self._fixed = _fixed(options)
        self._histograms: list[Histogram] = []
        lengths = token_buckets(options.max_model_len)
        new = self._histogram
        self.step_tokens = new("iteration_tokens_total", "Histogram of number of tokens per engine_step.", STEP_TOKENS)
        self.first_token = new("time_to_first_token_seconds", "Histogram of time to first token.", FIRST_TOKEN_S)
        self.inter_token = new("inter_token_latency_seconds", "Histogram of inter-token latency.", TOKEN_S)
        self.per_token = new("request_time_per_output_token_seconds", "Time per output token, per request.", TOKEN_S)
        self.whole = new("e2e_request_latency_seconds", "Histogram of end to end request latency.", LATENCY_S)
        self.queue = new("request_queue_time_seconds", "Time spent in WAITING phase for request.", LATENCY_S)
        self.inference = new("request_inference_time_seconds", "Time spent in RUNNING phase for request.", LATENCY_S)
        self.prefill = new("request_prefill_time_seconds", "Time spent in PREFILL phase for request.", LATENCY_S)
        self.decode = new("request_decode_time_seconds", "Time spent in DECODE phase for request.", LATENCY_S)
        self.prompt = new("request_prompt_tokens", "Number of prefill tokens processed.", lengths)
        self.generation = new("request_generation_tokens", "Number of generation tokens processed.", lengths)
        self.max_tokens = new("request_params_max_tokens", "The max_tokens request parameter.", lengths)

    def _histogram(self, name: str, about: str, bounds: Iterable[float]) -> Histogram:
        made = Histogram(f"vllm:{name}", about, bounds, self._labels)
        self._histograms.append(made)
        return made

    def page(self) -> bytes:
        """The whole page, in Prometheus' text format."""
        one = self._one
        reasons = "".join(
            f"{_sample(SUCCESS, {**self._labels, 'finished_reason': reason})}{count}.0\n"
            for reason, count in self.finished.items()
        )
        parts = [
            self._fixed,
            one("num_requests_running", "gauge", "Number of requests in model execution batches.", self.running),
            one("num_requests_waiting", "gauge", "Number of requests waiting to be processed.", self.waiting),
            one("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", self.kv),
            one("num_preemptions_total", "counter", "Cumulative number of preemption.", self.preemptions),
            one("prompt_tokens_total", "counter", "Number of prefill tokens processed.", self.prompt_tokens),
            one("generation_tokens_total", "counter", "Number of generation tokens processed.", self.generation_tokens),
            _top(SUCCESS, "counter", "Count of successfully processed requests."),
            reasons,
            *(histogram.text() for histogram in self._histograms),
        ]
        return "".join(parts).encode()

    def _one(self, name: str, kind: Kind, about: str, value: float) -> str:
        return f"{_top(f'vllm:{name}', kind, about)}{_sample(f'vllm:{name}', self._labels)}{float(value)}\n"


def _fixed(options: Options) -> str:
    """What never changes."""
    started, config = "process_start_time_seconds", "vllm:cache_config_info"
    blocks = options.speed.kv_tokens // BLOCK_TOKENS
    labels = {"block_size": str(BLOCK_TOKENS), "engine": "0", "num_gpu_blocks": str(blocks)}
    return (
        f"{_top(started, 'gauge', 'Start time of the process since unix epoch in seconds.')}{started} {time.time()}\n"
        f"{_top(config, 'gauge', 'Information of the LLMEngine CacheConfig')}{_sample(config, labels)}1.0\n"
    )


def _top(name: str, kind: Kind, about: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def _sample(name: str, labels: Mapping[str, str]) -> str:
    """A sample's line up to its value."""
    pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
    return f"{name}{{{pairs}}} "


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
