"""Looking for jobs: the right ones, page by page, none twice or left out while jobs come and go; bounded reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model import Job, JobError, Policy
from fairlane.queue import searching
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.search import LIMIT_MOST, STATES, JobFilter, search
from tests.contract.acts import REFUSED, finish, spec, submit, submit_all, take
from tests.contract.shop import Shop

pytestmark = pytest.mark.usefixtures("invariants")
BAD: Final = JobError("bad", "No.", 400)


async def pages(queue: Queue, wanted: JobFilter, clock: ManualClock, limit: int = 3, **scope: Any) -> list[Job]:
    """The jobs of all pages."""
    jobs: list[Job] = []
    cursor: str | None = None
    for _ in range(1000):
        page = await search(queue, wanted, cursor=cursor, limit=limit, now_ms=clock.now_ms(), **scope)
        assert len(page.jobs) <= limit
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            return jobs
    raise AssertionError("the pages have no end")


async def found(queue: Queue, clock: ManualClock, limit: int = 3, **wanted: Any) -> list[str]:
    return [job.id for job in await pages(queue, JobFilter(**wanted), clock, limit)]


async def test_queued_jobs_come_in_the_order_in_which_they_came(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Whosesoever they are, also those that came back to their old place, and from another tier."""
    ids: list[str] = []
    for n in range(20):
        ids += await submit(queue, pool, f"t{n * 7 % 6}", n=1 + n % 3)
        clock.advance(n % 2)
    for lease in await take(queue, pool, 5):
        await queue.release(pool, lease)
    flex = await submit(queue, pool, "t1", "flex", n=3)
    await queue.retier(pool, [flex[1]], "default")
    assert await found(queue, clock, state="queued", tier="default") == [*ids, flex[1]]
    assert await found(queue, clock, 50, state="queued") == [*ids, flex[1], flex[0], flex[2]]
    assert await found(queue, clock, state="queued", tenant="t1", tier="flex") == [flex[0], flex[2]]


@pytest.mark.parametrize("age", [JobFilter(), JobFilter(older_than_s=0), JobFilter(younger_than_s=1e6)])
async def test_no_job_is_shown_twice_or_left_out_while_lines_move(
    queue: Queue, pool: Pool, clock: ManualClock, age: JobFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "FIRST_LINES", 2)
    ids: list[str] = []
    for n in range(50):
        ids += await submit(queue, pool, f"t{n * n % 23}")
        clock.advance(n % 2)
    seen: list[str] = []
    cursor: str | None = None
    for n in range(100):
        page = await search(queue, replace(age, state="queued"), cursor=cursor, limit=4, now_ms=clock.now_ms())
        seen += [job.id for job in page.jobs]
        if (cursor := page.cursor) is None:
            break
        leases = await take(queue, pool, 2 - n % 2)
        await queue.release(pool, leases[0])
        if n % 3 == 0:
            await queue.cancel(ids[-1 - n])
        await submit(queue, pool, f"t{n}", n=2)
        clock.advance(1)
    assert len(seen) == len(set(seen))
    assert seen[:4] == ids[:4]
    stayed = [id_ for id_ in ids if (await queue.inspect.job(id_)).state == "queued"]
    assert set(stayed) <= set(seen)
    assert len(stayed) > 10


async def test_jobs_are_found_by_what_became_of_them(
    queue: Queue, pool: Pool, target: Pool, clock: ManualClock
) -> None:
    by: dict[str, list[str]] = {"delayed": await submit_all(queue, pool, [spec(delay_ms=2000), spec(delay_ms=1000)])}
    by["delayed"].reverse()
    by["leased"] = await submit(queue, pool, n=2)
    await take(queue, pool, 2)
    ended = await submit(queue, pool, n=7, max_attempts=1)
    good, failed, *dead = await take(queue, pool, 4)
    await finish(queue, pool, [good])
    await queue.settle(pool, failed, "failed", status=400, error=BAD)
    for lease in dead:
        clock.advance(1)
        await queue.retry(pool, lease, REFUSED, delay_ms=0)
    await queue.cancel(ended[4])
    by |= {"succeeded": [good.id], "dead": [dead[1].id, dead[0].id], "cancelled": [ended[4]]}
    by |= {"failed": [failed.id, *by["dead"]], "queued": ended[5:], "expired": await submit(queue, pool, deadline_ms=1)}
    clock.advance(2)
    await queue.sweep(pool)
    elsewhere = await submit(queue, target)
    assert {state: await found(queue, clock, 1, state=state, pool=pool.name) for state in STATES} == by
    everything = await found(queue, clock, 2)
    assert sorted(everything) == sorted(
        [*(id_ for state in STATES if state != "dead" for id_ in by[state]), *elsewhere]
    )
    assert await found(queue, clock, pool=target.name) == elsewhere


async def test_jobs_are_found_by_their_age(queue: Queue, pool: Pool, target: Pool, clock: ManualClock) -> None:
    """Also those that came from another pool, which stand behind younger ones."""
    old = await submit(queue, target, "ann")
    ids: list[str] = []
    for n in range(30):
        ids += await submit(queue, pool, f"t{n % 4}")
        clock.advance(1000)
    await queue.move(old[0], pool)
    assert await found(queue, clock, state="queued", older_than_s=25.5) == [*ids[:5], *old]
    assert await found(queue, clock, state="queued", younger_than_s=5.5) == ids[25:]
    middle = await found(queue, clock, 2, state="queued", older_than_s=10.5, younger_than_s=20.5)
    assert middle == ids[10:20]
    leases = await take(queue, pool, 31)
    assert len(await found(queue, clock, older_than_s=10.5)) == 21
    await finish(queue, pool, leases)
    assert set(await found(queue, clock, state="succeeded", younger_than_s=3.5)) == set(ids[27:])


async def test_a_page_keeps_to_the_ages_of_the_first_one(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    ids = await submit(queue, pool, n=4)
    clock.advance(1000)
    await submit(queue, pool, n=4)
    wanted = JobFilter(older_than_s=0.5)
    first = await search(queue, wanted, limit=2, now_ms=clock.now_ms())
    clock.advance(60_000)
    rest = await search(queue, wanted, limit=10, cursor=first.cursor, now_ms=clock.now_ms())
    assert [job.id for job in (*first.jobs, *rest.jobs)] == ids


async def test_what_has_ended_at_the_same_time_is_shown_once(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    await submit(queue, pool, n=20)
    await finish(queue, pool, await take(queue, pool, 20))
    page = await search(queue, JobFilter(state="succeeded"), limit=7)
    clock.advance(1)
    await submit(queue, pool, n=5)
    await finish(queue, pool, await take(queue, pool, 5))  # the newest come first: none of them comes into later pages
    ids = [job.id for job in page.jobs]
    while page.cursor:
        page = await search(queue, JobFilter(state="succeeded"), limit=7, cursor=page.cursor)
        ids += [job.id for job in page.jobs]
    assert (len(ids), len(set(ids))) == (20, 20)


async def test_running_jobs_are_shown_once_although_their_leases_are_renewed(
    queue: Queue, pool: Pool, clock: ManualClock
) -> None:
    ids = await submit(queue, pool, n=12)
    leases = await take(queue, pool, 12)
    page = await search(queue, JobFilter(state="leased"), limit=5)
    seen = [job.id for job in page.jobs]
    clock.advance(1000)
    await queue.renew(pool, leases[:5])
    while page.cursor:
        page = await search(queue, JobFilter(state="leased"), limit=5, cursor=page.cursor)
        seen += [job.id for job in page.jobs]
    assert seen == ids


async def test_a_scope_shows_nothing_of_other_tenants(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """Each list, queued, delayed, running, finished and dead."""
    for tenant in ("ann", "bob", "cho"):
        await submit(queue, pool, tenant, n=3, max_attempts=1)
        await submit(queue, pool, tenant, delay_ms=1000)
    for lease in (await take(queue, pool, 6))[:3]:
        await queue.retry(pool, lease, REFUSED, delay_ms=0)
    for tenants in ({"ann"}, {"ann", "cho"}, set[str]()):
        jobs = await pages(queue, JobFilter(), clock, scope=frozenset(tenants))
        assert {job.tenant for job in jobs} == tenants
        assert len(jobs) == 4 * len(tenants)
        assert await pages(queue, JobFilter(tenant="bob"), clock, scope=frozenset(tenants)) == []


async def test_jobs_of_a_batch_come_in_the_order_of_its_file(
    queue: Queue, pool: Pool, clock: ManualClock, tmp_path: Any
) -> None:
    shop = Shop(queue, pool, clock, f"memory://{tmp_path.name}")
    batch, other = await shop.create(5), await shop.create(2)
    await shop.steps(2)
    jobs = await pages(queue, JobFilter(batch=batch.id), clock, 2)
    assert [job.batch_id for job in jobs] == [batch.id] * 5
    assert [job.id for job in jobs] == [
        job.id for job in await pages(queue, JobFilter(), clock) if job.batch_id != other.id
    ]
    assert await pages(queue, JobFilter(batch=batch.id, state="succeeded"), clock) == []
    for unknown, scope in (("batch_nothing", None), (batch.id, frozenset({"bob"}))):
        with pytest.raises(NotFound):
            await search(queue, JobFilter(batch=unknown), scope=scope)


async def test_a_page_says_how_much_it_looked_at_and_goes_on(
    queue: Queue, pool: Pool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 22: a filter that finds little has its page, too, after so many reads."""
    monkeypatch.setattr(searching, "LOOKS", 10)
    monkeypatch.setattr("fairlane.search.LOOKS_MOST", 30)
    await submit(queue, pool, "ann", n=100, delay_ms=1000)
    (wanted,) = await submit(queue, pool, "bob", delay_ms=1001)
    page = await search(queue, JobFilter(state="delayed", tenant="bob"))
    assert (page.jobs, page.looked) == ((), 30)
    assert page.cursor
    assert await found(queue, clock, state="delayed", tenant="bob") == [wanted]


async def test_jobs_are_shown_without_requests_and_results(queue: Queue, pool: Pool) -> None:
    await submit(queue, pool, n=2, body=b"x" * 1000)
    (lease,) = await take(queue, pool)
    await queue.settle(pool, lease, "succeeded", status=200, result=b"y")
    assert [(job.body, job.result) for job in (await search(queue, JobFilter())).jobs] == [(None, None)] * 2


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "....", "a.queued:default...x", "zzzz.done...", "zzzz.queued:default...1", "a.b.1.2.3.4", "a.done...('"],
)
async def test_a_cursor_that_was_not_given_out_is_refused(queue: Queue, pool: Pool, cursor: str) -> None:
    for text in (cursor, cursor.replace("zzzz", pool.code) + "x", f"{pool.code}.queued:default...{'9' * 20}"):
        with pytest.raises(InvalidRequest):
            await search(queue, JobFilter(), cursor=text)


async def test_what_does_not_exist_is_said(queue: Queue, pool: Pool) -> None:
    with pytest.raises(InvalidRequest):
        await search(queue, JobFilter(state="lost"))
    for limit in (0, LIMIT_MOST + 1):
        with pytest.raises(InvalidRequest):
            await search(queue, JobFilter(), limit=limit)
    with pytest.raises(NotFound):
        await search(queue, JobFilter(pool="nothing"))
    assert (await search(queue, JobFilter(tier="nothing"))).jobs == ()


@pytest.mark.parametrize("store", ["valkey"], indirect=True)
@pytest.mark.parametrize("policy", [Policy(max_waiting_tenant=100_000)], indirect=True)
async def test_jobs_moved_in_their_masses_are_paged_by_age(queue: Queue, pool: Pool, clock: ManualClock) -> None:
    """They stand in `rejoin`, where ages have no order: they are looked at one by one, and pages go on after them."""
    flood = await submit(queue, pool, "ann", n=2100)
    clock.advance(1000)
    late = await submit(queue, pool, "ann", n=2)
    await queue.retier(pool, [*flood, *late], "batch")
    assert await found(queue, clock, 50, state="queued", younger_than_s=0.5) == late
