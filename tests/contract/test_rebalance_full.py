"""Rebalancing while Redis is full: a purge makes room, and other runs wait until there is some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.errors import StoreFull
from fairlane.model import Policy
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.rebalance import Filter, Plan, Runs, Stepper, Target
from tests.contract.acts import open_backend, submit
from tests.contract.invariants import check_invariants
from tests.servers import ValkeyServer


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as started:
        yield started


async def test_on_a_full_server_a_purge_goes_on_and_other_runs_wait(server: ValkeyServer) -> None:
    queue = Queue(connect(server.url))
    pool = await queue.pools.open("llama", Policy())
    await open_backend(queue, pool, "b1", 1000)
    await submit(queue, pool, "ann", n=250)
    await submit(queue, pool, "bob", n=150)
    runs, stepper = Runs(queue), Stepper(queue)
    moved = await runs.create(Plan(Filter("llama", tenant="bob"), Target(tier="batch")), "ops")
    await stepper.carry(moved.id)
    await runs.apply(moved.id)
    with server.client() as client:
        client.config_set("maxmemory", 1)
    with pytest.raises(StoreFull):
        await stepper.carry(moved.id)
    assert (await runs.get(moved.id)).moved == 0
    with pytest.raises(StoreFull):
        await runs.create(Plan(Filter("llama"), Target(tier="flex")), "ops")
    purge = await runs.create(Plan(Filter("llama", tenant="ann"), Target(purge=True)), "ops")
    await stepper.carry(purge.id)
    await runs.apply(purge.id)
    purge = await stepper.carry(purge.id)
    assert (purge.state, purge.moved) == ("done", 250)
    await check_invariants(queue, pool)
    with server.client() as client:
        client.config_set("maxmemory", 0)
    assert (await stepper.carry(moved.id)).moved == 150
    await check_invariants(queue, pool)
    await queue.close()
