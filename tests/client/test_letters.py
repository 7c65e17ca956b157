"""Over Redis, who submits and waits needs no subscription for each job."""

from __future__ import annotations

import asyncio

import pytest

from fairlane import AsyncClient
from fairlane.errors import FairlaneError
from fairlane.queue.signals import Signals
from tests.client.conftest import Reach
from tests.dispatcher.scripted import Script


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("via", ["redis"])
async def test_a_client_that_waits_for_what_it_submits_hears_of_it_by_letter(
    reach: Reach, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    listened: list[str] = []
    listen = Signals.listen

    def heard(self: Signals, channel: str, hear: object) -> object:
        listened.append(channel)
        return listen(self, channel, hear)  # type: ignore[arg-type]

    monkeypatch.setattr(Signals, "listen", heard)

    async def trips(client: AsyncClient, n: int) -> int:
        before = len(listened)
        for _ in range(n):
            handle = await client.submit(model="llama", prompt="x")
            assert (await handle.wait(timeout=20)).state == "succeeded"
        return len(listened) - before

    async with reach.client() as client:
        assert await trips(client, 20) > 0
        assert await trips(client, 20) == 0


@pytest.mark.parametrize("via", ["http", "redis"])
async def test_who_waits_when_the_client_is_closed_is_told_at_once(reach: Reach) -> None:
    client = reach.client()
    handle = await client.submit(model="llama", prompt="x")
    waiter = asyncio.create_task(handle.wait(timeout=60))
    await asyncio.sleep(0.2)  # whatever it does by then
    await client.close()
    async with asyncio.timeout(5):
        with pytest.raises((RuntimeError, FairlaneError), match="closed"):
            await waiter
