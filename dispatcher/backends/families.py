"""What each family of inference servers calls the few metrics that the gate needs: the one table of their names.

Names that changed are listed newest first; the first that a page shows is the one that is read. What each really
measures, and how that was found out, is in docs/families.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from dispatcher.backends import exposition


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of server. Each field lists the names of one quantity, newest first, as they stand on its page.

    `running` and `waiting` are gauges of requests in the batch and in the server's own queue: without both a page is
    useless. `kv` is a gauge, the share of the KV cache in use, 0 to 1. `token_seconds` are histograms (base names) of
    the seconds between two output tokens. `progress` are counters that move while the server works: all that are there
    are added up.
    """

    name: str
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv: tuple[str, ...]
    token_seconds: tuple[str, ...]
    progress: tuple[str, ...]

    @property
    def load(self) -> tuple[str, ...]:
        """The names that only a page of this family shows."""
        return self.running + self.waiting

    @property
    def wanted(self) -> tuple[str, ...]:
        """Every name to look for on a page, those of histograms with their endings."""
        histograms = tuple(f"{name}{ending}" for name in self.token_seconds for ending in ("_sum", "_count"))
        return self.load + self.kv + histograms + self.progress


VLLM: Final = Family(
    name="vllm",
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    token_seconds=(
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "vllm:request_time_per_output_token_seconds",  # means of finished requests: late, and 0 for one token
    ),
    progress=("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total"),
)

FAMILIES: Final[Mapping[str, Family]] = {family.name: family for family in (VLLM,)}


def detect(page: bytes) -> Family | None:
    """The family whose running or waiting requests the page shows, None if it shows nobody's.

    Raises exposition.Unreadable.
    """
    return owner(exposition.read(page, [name for family in FAMILIES.values() for name in family.load]))


def owner(shown: Collection[str]) -> Family | None:
    """The family to which a page with these names belongs."""
    return next((family for family in FAMILIES.values() if any(name in shown for name in family.load)), None)
