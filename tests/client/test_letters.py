"""Over Redis, who submits and waits needs no subscription for each job."""

from __future__ import annotations

import pytest

from fairlane import AsyncClient
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
