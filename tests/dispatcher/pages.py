"""A backend's metrics page that a test writes."""

from __future__ import annotations

import httpx


class Page:
    """What the backend's `/metrics` shows next. Its counters move with each look unless it is `frozen`."""

    def __init__(self) -> None:
        self.running = self.waiting = 0
        self.kv = 0.0
        self.tokens, self.token_s = 0.0, 0.0
        self.token_ms = 20.0
        self.started_at = 1_000.0
        self.frozen = False
        self.counts = True
        self.names = {"running": "vllm:num_requests_running", "kv": "vllm:kv_cache_usage_perc"}
        self.status = 200
        self.broken: Exception | None = None
        self.looks = 0

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.looks += 1
        if self.broken:
            raise self.broken
        if not self.frozen:
            self.tokens += 10
            self.token_s += 10 * self.token_ms / 1000
        engine = '{engine="0",model_name="llama"}'
        lines = [
            f"{self.names['running']}{engine} {self.running}",
            f"vllm:num_requests_waiting{engine} {self.waiting}",
            f"{self.names['kv']}{engine} {self.kv}",
            f"vllm:generation_tokens_total{engine} {self.tokens}",
            f"vllm:inter_token_latency_seconds_sum{engine} {self.token_s}",
            f"vllm:inter_token_latency_seconds_count{engine} {self.tokens}",
            f"process_start_time_seconds {self.started_at}",
        ]
        if not self.counts:
            lines = [line for line in lines if "_total" not in line]
        return httpx.Response(self.status, text="\n".join(lines) + "\n")
