"""What the tests of the simulated backend share: one inside the test's own process, and its page as numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dispatcher.backends.simulated import Options, serve

SOON_S = 10.0
SPLIT = ("finished_reason", "le")


@asynccontextmanager
async def running(options: Options) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client of a backend that runs while the block does."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(options, ready=port.set_result))
    try:
        url = f"http://127.0.0.1:{await port}"
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=SOON_S, verify=False) as client:
            yield client
    finally:
        server.cancel()
        with suppress(asyncio.CancelledError):
            await server


async def numbers(client: httpx.AsyncClient) -> dict[str, float]:
    """Each sample of the page by its name; those with a reason or a bucket's bound as `name/reason`."""
    page = (await client.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {_name(sample): sample.value for sample in samples}


def _name(sample: Sample) -> str:
    return "/".join([sample.name, *(sample.labels[label] for label in SPLIT if label in sample.labels)])


async def until(client: httpx.AsyncClient, holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """Reads the page until it is as wanted. Raises TimeoutError if it never is."""
    with anyio.fail_after(SOON_S):
        while not holds(page := await numbers(client)):
            await anyio.sleep(0.005)
    return page


def completion(**fields: object) -> dict[str, object]:
    """A body for /v1/completions, as long as `max_tokens` says exactly."""
    return {"model": "sim", "prompt": "Say something.", "max_tokens": 4, "ignore_eos": True, **fields}
