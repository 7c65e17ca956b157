"""What a backend's metrics page tells of it while it is profiled: how many run and wait, and how large its cache is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx

from dispatcher.backends import exposition
from dispatcher.backends.scrape import MetricsPage, Reading, ScrapeFailed
from dispatcher.simulator.profile import MOST_WHOLE
from dispatcher.simulator.profiling.asking import Asker
from dispatcher.simulator.profiling.refusing import beginning

POLL_S: Final = 0.05
SCRAPE_S: Final = 5.0
# vLLM's cache as labels: blocks, and tokens in each. SGLang shows the tokens themselves.
_CACHE: Final = re.compile(rb"^(?:ray_)?vllm[:_]cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL: Final = re.compile(rb'(\w+)="(\d{1,12})"')
_TOKENS: Final = ("sglang:max_total_num_tokens", "sglang_max_total_num_tokens")


@dataclass(frozen=True, slots=True)
class Cache:
    """The KV cache: tokens in all, and in one block."""

    tokens: int
    block_tokens: int = 1


@dataclass(slots=True)
class Watched:
    """What the page showed during one load. `foreign`: requests, at the most, that were not ours.

    `slots`: the most that ran while others waited; 0 if none ever had to.
    """

    most_running: int = 0
    slots: int = 0
    foreign: int = 0


class Page:
    """The metrics page of the backend that `asker` asks; `shown` is False where there is none that can be read."""

    def __init__(self, asker: Asker, headers: Mapping[str, str]) -> None:
        self._asker = asker
        self._headers = headers
        self._page = MetricsPage(asker.url)
        self.shown = True

    async def read(self) -> Reading | None:
        try:
            return await self._page.scrape(self._asker.client, timeout_s=SCRAPE_S, headers=self._headers)
        except ScrapeFailed:
            return None

    async def cache(self) -> Cache | None:
        """The size of the KV cache, where the page says it."""
        try:
            async with (
                asyncio.timeout(SCRAPE_S),
                self._asker.client.stream("GET", f"{self._asker.url}/metrics", headers={**self._headers}) as answer,
            ):
                page = await beginning(answer, exposition.MAX_BYTES)
        except (httpx.HTTPError, TimeoutError):
            return None
        return cache_on(page) if answer.is_success else None

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[Watched]:
        """Looks at the page while the block runs."""
        found = Watched()
        if not self.shown:
            yield found
            return
        watching = asyncio.create_task(self._watch(found))
        try:
            yield found
        finally:
            watching.cancel()
            await asyncio.wait((watching,))

    async def _watch(self, found: Watched) -> None:
        ours_before = 0
        while True:
            ours = self._asker.in_flight
            if reading := await self.read():
                most = max(ours_before, ours, self._asker.in_flight)
                found.foreign = max(found.foreign, reading.running + reading.waiting - most)
                found.most_running = max(found.most_running, reading.running)
                if reading.waiting:
                    found.slots = max(found.slots, reading.running)
            ours_before = ours
            await asyncio.sleep(POLL_S)


def cache_on(page: bytes) -> Cache | None:
    """The KV cache that a page tells of; of several engines the first one's."""
    if found := _CACHE.search(page):
        labels = {name: int(value) for name, value in _LABEL.findall(found[1])}
        blocks, size = labels.get(b"num_gpu_blocks", 0), labels.get(b"block_size", 0)
        return Cache(blocks * size, size) if 0 < blocks * size <= MOST_WHOLE else None
    try:
        sizes = exposition.read(page, _TOKENS)
    except exposition.Unreadable:
        return None
    return next((Cache(int(values[0])) for values in sizes.values() if values and 1 <= values[0] <= MOST_WHOLE), None)
