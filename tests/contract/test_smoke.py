import pytest

from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.contract.acts import drain, submit

pytestmark = pytest.mark.usefixtures("invariants")


async def test_tenants_take_turns(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, "ann", n=3)
    await submit(queue, pool, "bob", n=2)
    assert [lease.tenant for lease in await drain(queue, pool)] == ["ann", "bob", "ann", "bob", "ann"]
