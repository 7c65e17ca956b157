"""What reading a metrics page costs the observer: python -m benchmarks.scrape"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from benchmarks.figures import Figure, table
from dispatcher.backends.scrape import read_page

PAGE_BYTES: Final = 250_000
ROUNDS: Final = 200
LIMIT_MS: Final = 2.0
HISTOGRAMS: Final = (
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "time_to_first_token_seconds",
    "e2e_request_latency_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
)


def page(size: int) -> bytes:
    """A page of vLLM with as many engines as it takes to have `size` bytes, most of them histograms' buckets."""
    lines = ["process_start_time_seconds 1.79598459564e+09"]
    written, engine = 0, 0
    while written < size:
        added = _engine(f'engine="{engine}",model_name="meta-llama/Llama-3.3-70B-Instruct"')
        written += sum(len(line) + 1 for line in added)
        lines += added
        engine += 1
    return "\n".join(lines).encode()[:size].rpartition(b"\n")[0] + b"\n"


def _engine(labels: str) -> list[str]:
    lines = [
        f"vllm:num_requests_running{{{labels}}} 8.0",
        f"vllm:num_requests_waiting{{{labels}}} 2.0",
        f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} 2.0',
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.25",
        f"vllm:generation_tokens_total{{{labels}}} 1234567.0",
        f"vllm:prompt_tokens_total{{{labels}}} 7654321.0",
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} 4711.0',
    ]
    for name in HISTOGRAMS:
        lines.append(f"# HELP vllm:{name} Histogram of {name}.")
        lines += [f'vllm:{name}_bucket{{{labels},le="{0.001 * 2**n}"}} {n}.0' for n in range(24)]
        lines += [f"vllm:{name}_count{{{labels}}} 24.0", f"vllm:{name}_sum{{{labels}}} 1.5"]
    return lines


def cost_ms(read: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """CPU time, sorted, so that a busy machine's waits do not count."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.thread_time()
        read()
        times.append(1000 * (time.thread_time() - began))
    return sorted(times)


def whole(text: bytes) -> int:
    """The yardstick: prometheus_client's own parser, which reads every line."""
    return sum(len(family.samples) for family in text_string_to_metric_families(text.decode()))


def main() -> None:
    text = page(PAGE_BYTES)
    whole_ms = cost_ms(partial(whole, text), ROUNDS // 10)[0]
    figures: list[Figure] = []
    for name, family in (("family known", "vllm"), ("family found out", None)):
        times = cost_ms(partial(read_page, text, family))
        figures.append(
            Figure(
                f"a page of {len(text) // 1000} kB, {name}",
                times[0],
                "ms",
                yardstick=whole_ms,
                target=f"< {LIMIT_MS:g} ms",
                holds=times[0] < LIMIT_MS,
                digits=2,
                note=f"median {median(times):.2f}",
                yardstick_note="prometheus_client's parser",
            )
        )
    Console().print(table(figures, f"reading a metrics page, CPU time, best of {ROUNDS}"))


if __name__ == "__main__":
    main()
