"""Whoever works on a batch may die between any two steps: nothing is lost, doubled, or left behind."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.batches import BatchView
from fairlane.clock import ManualClock
from fairlane.contents import Contents
from fairlane.model import Policy
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.store import Store
from tests.contract.acts import open_backend
from tests.contract.shop import Shop, good, refused, unanswered
from tests.servers import ValkeyServer

HOW: Final = {"good": good, "refused": refused, "unanswered": unanswered}
OUTLASTS_MS: Final = 10_500  # whatever a dead worker held
END: Final = 200
DAY_MS: Final = 86_400_000
_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ValkeyServer() as started:
        yield started.url


class Died(BaseException):
    """The process is gone: nothing that it would have done happens any more, its `finally` included."""


class Life:
    """Ends a process at its n-th word to Redis or to the files: the word itself may have been heard."""

    def __init__(self, shop: Shop, words: int | None, *, heard: bool) -> None:
        self._left = words
        self._heard = heard
        self._instead(shop.queue.store, "run")
        self._instead(shop.files.contents, "_in_thread")

    def _instead(self, of: Store | Contents, name: str) -> None:
        act: Callable[..., Awaitable[Any]] = getattr(of, name)

        async def mortal(*args: Any, **options: Any) -> Any:
            if self._left is None:
                return await act(*args, **options)
            self._left -= 1
            if self._left == 0 and self._heard:
                await act(*args, **options)
            if self._left <= 0:
                raise Died
            return await act(*args, **options)

        setattr(of, name, mortal)


async def process(client: Any, namespace: str, clock: ManualClock, url: str) -> Shop:
    """As a process sees it all that has just started."""
    queue = Queue(client, namespace=namespace, clock=clock)
    await queue.check()
    pool = await queue.pools.open("llama", Policy(max_waiting_tenant=4))
    return Shop(queue, pool, clock, url)


async def run(server: str, lines: list[str], deaths: list[tuple[int, bool]], interrupt: str, at: int) -> None:
    """A batch whose lines fare as told; its workers die as told; it is cancelled, or expires, before the step `at`."""
    client = connect(server)
    clock, namespace = ManualClock(), f"crash{next(_numbers)}"
    with tempfile.TemporaryDirectory() as folder:
        outside = await process(client, namespace, clock, folder)
        await open_backend(outside.queue, outside.pool, "b1", 1000)
        batch = await outside.create(len(lines))
        fates = iter(deaths)
        worker = await reborn(fates, client, namespace, clock, folder)
        for step in range(END):
            if step == at:
                await interrupted(outside, batch, interrupt)
            try:
                await worker.step()
            except Died:
                worker = await reborn(fates, client, namespace, clock, folder)
                clock.advance(OUTLASTS_MS)
            await outside.answer(2, lambda lease: HOW[lines[line_of(outside, lease.id)]](lease))
            clock.advance(500)
            if (await outside.view(batch)).ended:
                break
        await check(outside, batch, lines, interrupt)
    await client.aclose()


async def reborn(fates: Iterator[tuple[int, bool]], *where: Any) -> Shop:
    worker = await process(*where)
    words, heard = next(fates, (None, False))
    Life(worker, words, heard=heard)
    return worker


def line_of(shop: Shop, job: str) -> int:
    return next(line for id_, line in shop.ran if id_ == job) - 1


async def interrupted(shop: Shop, batch: BatchView, how: str) -> None:
    if how == "cancel" and (await shop.view(batch)).status in ("validating", "in_progress"):
        await shop.batches.cancel("ann", batch.id)
    elif how == "expire":
        shop.clock.advance(DAY_MS)
        await shop.queue.sweep(shop.pool)


async def check(shop: Shop, batch: BatchView, lines: list[str], interrupt: str) -> None:
    ended, found = await shop.results(batch)
    assert len({line for _, line in shop.ran}) == len(shop.ran), "a line ran twice"
    if interrupt == "none":
        assert ended.status == "completed"
        assert ended.total == len(lines)
    else:
        assert ended.status in ("completed", "cancelled", "expired")
    for custom_id, line in found.items():
        fate = lines[int(custom_id[1:]) - 1]
        if line["response"]:
            assert line["response"]["status_code"] == {"good": 200, "refused": 400}[fate]
        elif line["error"]["code"] == "timeout":
            assert fate == "unanswered"
        else:
            assert line["error"]["code"] in ("batch_cancelled", "batch_expired", "job_cancelled")
            assert interrupt != "none"
    await shop.check_nothing_is_left()


LINES = st.lists(st.sampled_from(list(HOW)), min_size=1, max_size=8)
DEATHS = st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=4)


@settings(max_examples=20, deadline=None, print_blob=True)
@given(LINES, DEATHS, st.sampled_from(["none", "cancel", "expire"]), st.integers(0, 20))
def test_all_lines_are_accounted_for_whoever_dies(
    server: str, lines: list[str], deaths: list[tuple[int, bool]], interrupt: str, at: int
) -> None:
    asyncio.run(run(server, lines, deaths, interrupt, at))


@pytest.mark.parametrize("heard", [True, False])
def test_a_worker_may_die_at_any_single_word(server: str, heard: bool) -> None:
    """All of them together come to every word: this one takes every third."""
    for words in range(2 + heard, 62, 3):
        asyncio.run(run(server, ["good", "refused", "unanswered"], [(words, heard)], "none", 0))
