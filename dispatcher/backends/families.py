"""What each family of inference servers calls the few metrics that the gate needs: the one table of their names.

Names that changed are listed newest first; the first that a page shows is the one that is read. Where a page shows
several series of one name that do not add up, a name says which it means, as in PromQL: `name{label="value"}`; the
value "" is that of a series without the label too. What each really measures, and how that was found out, is in
docs/families.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final


@dataclass(frozen=True)
class Family:
    """One kind of server. Each field lists the names of one quantity, newest first, as they stand on its page.

    `running` and `waiting` are gauges of requests in the batch and in the server's own queue: without both a page is
    useless. `kv` is a gauge, the share of the KV cache in use, 0 to 1. `token_seconds` are pairs of counters: seconds
    spent on output tokens, and how many tokens (or steps, if each gives a request one token). `progress` are counters
    that move while the server works: all that are there are added up. `stamp` are gauges that change whenever `running`
    and `waiting` are renewed, for a server that does not renew them at each step. `retired` are names that its newest
    version no longer shows: read where they are, not missed where they are not.

    `paths` are where its page may be. `priority`: whether requests may carry vLLM's `priority`, the lower the sooner.
    """

    name: str
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    token_seconds: tuple[tuple[str, str], ...] = ()
    progress: tuple[str, ...] = ()
    stamp: tuple[str, ...] = ()
    retired: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ("/metrics",)
    priority: bool = False

    @cached_property
    def load(self) -> tuple[str, ...]:
        return self.running + self.waiting

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """Every name to look for on a page."""
        speed = tuple(name for pair in self.token_seconds for name in pair)
        return tuple(dict.fromkeys(self.load + self.kv + speed + self.progress + self.stamp))


def _histogram(name: str, labels: str = "") -> tuple[str, str]:
    return f"{name}_sum{labels}", f"{name}_count{labels}"


def _under(prefixes: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names for prefix in prefixes)


VLLM: Final = Family(
    name="vllm",
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    token_seconds=(
        _histogram("vllm:inter_token_latency_seconds"),
        _histogram("vllm:time_per_output_token_seconds"),
        # means of finished requests: late, and 0 for one token
        _histogram("vllm:request_time_per_output_token_seconds"),
    ),
    progress=("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total"),
    priority=True,
)


def _ray(*names: str) -> tuple[str, ...]:
    """vLLM's names as Ray exports them: newer versions with only the characters that OpenTelemetry allows."""
    return _under(("ray_vllm_", "ray_vllm:"), *(name.removeprefix("vllm:") for name in names))


RAY: Final = Family(
    name="ray",
    running=_ray(*VLLM.running),
    waiting=_ray(*VLLM.waiting),
    kv=_ray(*VLLM.kv),
    token_seconds=tuple(zip(*(_ray(*names) for names in zip(*VLLM.token_seconds, strict=True)), strict=True)),
    progress=_ray(*VLLM.progress),
)

_SGLANG: Final = ("sglang:", "sglang_")  # as it shows them itself, and as its router passes them on

SGLANG: Final = Family(
    name="sglang",
    # with priority scheduling there is also one series for each priority, beside that of all
    running=_under(_SGLANG, 'num_running_reqs{priority=""}'),
    waiting=_under(_SGLANG, 'num_queue_reqs{priority=""}'),
    kv=_under(_SGLANG, "token_usage"),
    token_seconds=tuple(
        _histogram(name) for name in _under(_SGLANG, "inter_token_latency_seconds", "time_per_output_token_seconds")
    ),
    # the tokens of older versions count when a request ends: only the time between tokens moves before
    progress=_under(
        _SGLANG,
        "realtime_tokens_total",
        "generation_tokens_total",
        "prompt_tokens_total",
        "inter_token_latency_seconds_sum",
        "time_per_output_token_seconds_sum",
    ),
    stamp=_under(_SGLANG, "num_used_tokens", "gen_throughput"),
)

TGI: Final = Family(
    name="tgi",
    running=("tgi_batch_current_size",),
    waiting=("tgi_queue_size",),
    token_seconds=(
        _histogram("tgi_batch_inference_duration", '{method="decode"}'),
        _histogram("tgi_request_mean_time_per_token_duration"),  # means of finished requests: late
    ),
    progress=("tgi_batch_inference_count", "tgi_batch_inference_success", "tgi_request_success"),
)

LLAMACPP: Final = Family(
    name="llamacpp",
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    kv=("llamacpp:kv_cache_usage_ratio",),
    token_seconds=(("llamacpp:tokens_predicted_seconds_total", "llamacpp:tokens_predicted_total"),),
    progress=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
    retired=frozenset({"llamacpp:kv_cache_usage_ratio"}),
)

TRTLLM: Final = Family(
    name="trtllm",
    running=("trtllm_num_requests_running",),
    waiting=("trtllm_num_requests_waiting",),
    kv=("trtllm_kv_cache_utilization",),
    token_seconds=(_histogram("trtllm_time_per_output_token_seconds"),),  # means of finished requests: late
    # tokens count when a request ends: only the blocks of the KV cache move before
    progress=(
        "trtllm_generation_tokens_total",
        "trtllm_prompt_tokens_total",
        "trtllm_num_requests_completed_total",
        "trtllm_kv_cache_gen_alloc_blocks_total",
        "trtllm_kv_cache_missed_blocks_total",
    ),
    stamp=("trtllm_iteration_latency_seconds", "trtllm_kv_cache_used_blocks"),
    paths=("/prometheus/metrics",),
)

TRITON: Final = Family(
    name="triton",
    running=('nv_trt_llm_request_metrics{request_type="active"}',),
    waiting=('nv_trt_llm_request_metrics{request_type="waiting"}',),
    kv=('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}',),
    progress=('nv_trt_llm_general_metrics{general_type="iteration_counter"}',),
)

OPENAI: Final = Family(name="openai", paths=("/v1/models",))  # shows no metrics; only whether it answers is looked at

FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family for family in (VLLM, SGLANG, TGI, LLAMACPP, TRTLLM, TRITON, RAY, OPENAI)
}
PATHS: Final = ("/metrics", "/prometheus/metrics")  # where to look while the family is not known


def owner(shown: Collection[str]) -> Family | None:
    """The family to which a page with these names belongs: by its load, else by anything that it shows."""
    by_load = (family for family in FAMILIES.values() if any(name in shown for name in family.load))
    by_any = (family for family in FAMILIES.values() if any(name in shown for name in family.wanted))
    return next(by_load, None) or next(by_any, None)
