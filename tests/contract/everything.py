"""One run through every act of the queue, for tests of what holds of all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fairlane.accounts import Accounts
from fairlane.accounts.users import Users
from fairlane.audit import Audit
from fairlane.batches.finding import BatchSearch
from fairlane.batches.ledger import Ledger
from fairlane.clock import ManualClock
from fairlane.files import Files
from fairlane.ids import SeededIds
from fairlane.model import BackendSpec, JobError, Limits, Policy, Settlement, Submitted, Usage
from fairlane.queue.engine import Queue
from fairlane.queue.fleet import Fleet
from fairlane.queue.pools import Pool
from fairlane.queue.streams import Chunk
from fairlane.rebalance import Filter, Plan, Runs, Stepper, Target
from fairlane.safe_url import Guard
from fairlane.search import JobFilter, look, search
from fairlane.trend import Point, Served, TierPoint
from fairlane.webhooks.endpoints import Webhooks
from fairlane.webhooks.finding import EndpointSearch
from tests.contract.acts import REFUSED, open_backend, set_gate, spec, take, take_one
from tests.contract.outgoing import ARRIVED, LEASE_MS, Outgoing, broke, exhausted
from tests.contract.shop import Shop

TIMEOUT = JobError("timeout", "It took too long.")


async def every_act(queue: Queue, clock: ManualClock) -> AsyncIterator[str]:
    """Does one act after the other in two new pools, with what each may find; yields the name of the next before it."""
    yield "open"
    pool = await queue.pools.open("all/acts:{1}", Policy(fairness="tokens"))
    target = await queue.pools.open("all/acts:{2}", Policy())
    yield "set_backend"
    await open_backend(queue, pool, "b1", 100)
    await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://localhost:8000"))
    yield "elect"
    assert await queue.elect(pool, "observer", "d", 2_000)
    await queue.resign(pool, "observer", "d")
    yield "beat"
    await queue.beat(pool, "d", "{}")
    yield "set_limits"
    await queue.set_limits(pool, "ann", Limits(2, 50, 6000, 10**6, 90))
    await queue.set_limits(pool, "fast", Limits(requests_per_minute=6))
    yield "set_policy"
    pool = await queue.set_policy(pool, {"tiers": (*pool.policy.tiers, "night"), "valve_ms": "30000"}, by="ops")
    pool = await queue.set_policy(pool, {"tiers": pool.policy.tiers[:-1]}, by="ops")
    yield "submit"
    specs = [spec(max_attempts=1, idempotency_key=f"k{n}", deadline_ms=50_000, batch_id="b") for n in range(8)]
    specs += [spec("bob", "flex", deadline_ms=200), spec("bob", "flex", delay_ms=100), spec("fast"), spec("fast")]
    answers = [*await queue.submit_many(pool, specs), await queue.submit(pool, specs[0])]
    ids = [answer.id for answer in answers if not isinstance(answer, Exception)]
    assert len(ids) == 13
    yield "acquire"
    leases = await queue.acquire(pool, "d", 1, 20)
    assert await queue.acquire(pool, "d", 1, 20) == leases
    good, bad, dead, lost, cancelled, back, *_ = [lease for lease in leases if lease.tenant == "ann"]
    yield "renew"
    await queue.renew(pool, leases)
    yield "append"
    assert await queue.append(pool, [(good.id, Chunk(good.token, 1, 1, b"data: 1\n\n"))]) == ["ok"]
    yield "read_chunks"
    await queue.inspect.chunks(pool, good.id)
    yield "settle"
    await queue.settle(pool, good, "succeeded", status=200, result=b"1", usage=Usage(3, 4))
    await queue.settle(pool, bad, "failed", error=TIMEOUT)
    await queue.settle_many(pool, [Settlement(good, "succeeded"), Settlement(bad, "failed")])
    yield "retry"
    assert await queue.retry(pool, dead, REFUSED, delay_ms=5) == "failed"
    yield "cancel"
    await queue.cancel(cancelled.id)
    yield "release"
    await queue.release(pool, cancelled)
    await queue.release(pool, back)
    yield "requeue"
    await queue.requeue(dead.id)
    yield "retier"
    assert await queue.retier(pool, [dead.id, back.id], "flex") == [None, None]
    for scope in ({}, {"tier": "flex"}, {"tenant": "ann"}):
        yield "pause"
        await queue.pause(pool, **scope)
        yield "resume"
        await queue.resume(pool, **scope)
    yield "sweep"
    await queue.submit_many(pool, [spec("cho", "batch", deadline_ms=1), spec("cho", "batch", delay_ms=1)])
    clock.advance(30_000)
    swept = await queue.sweep(pool)
    assert (swept.lost >= 1, swept.due, swept.expired) == (True, 2, 1)
    assert (await queue.inspect.job(lost.id)).dead
    yield "move"
    (moved,) = [(await queue.submit(pool, spec("dee"))).id]
    await queue.move(moved, target)
    yield "move back"
    await queue.move(moved, pool)
    await queue.move(moved, target)
    yield "sweep moves"
    clock.advance(pool.policy.result_ttl_ms)
    assert (await queue.sweep(pool)).moves == 1
    yield "observe"
    await set_gate(queue, pool, "b1", 0)
    assert await take(queue, pool) == []
    yield "steer"
    await queue.steer(pool, 0.1, "{}")
    yield "record"
    for _ in range(2):
        await queue.record(
            pool, Point(0, 5.0, {"flex": TierPoint(1, waits={3: 1})}), Served(0, 5.0, "tokens", 0, 0, (), ())
        )
    assert len(await queue.inspect.trend(pool, "7d")) == 1
    assert len(await queue.inspect.standings(pool, await queue.inspect.notable(pool, 9))) > 1
    yield "explain"
    await queue.inspect.explain(moved)
    yield "inspect"
    await queue.inspect.overview(pool)
    await queue.inspect.load(pool)
    await queue.inspect.dispatchers(pool)
    await Fleet(queue).held(pool)
    await queue.beat(pool, "d", "{}")
    await Fleet(queue).drain("d")
    assert len(await queue.inspect.policy_history(pool)) == 2
    for tier in pool.policy.tiers:
        await queue.inspect.line(pool, tier, "ann")
        await queue.inspect.tenants(pool, tier)
        await queue.inspect.lines(pool, tier)
    for index in ("leased", "delayed", "done", "dead"):
        await queue.inspect.index(pool, index)
    yield "search"
    assert len((await search(queue, JobFilter(pool=pool.name, younger_than_s=1e9))).jobs) > 5
    await look(queue, moved)
    yield "cancel what was moved"
    assert await queue.cancel(moved) == "cancelled"
    yield "accounts"
    await account_acts(queue, pool)
    yield "users"
    await user_acts(queue)
    yield "webhook endpoints"
    await endpoint_acts(queue, pool)
    yield "outcomes for webhooks"
    await hook_acts(queue)
    yield "runs"
    await run_acts(queue, pool, target)
    yield "drain a backend"
    for act in ("drain", "undrain", "down"):
        await queue.set_backend(pool, "b1", act)
    await set_gate(queue, pool, "b1", 100)
    assert (await take_one(queue, pool)).backend == "b1"
    yield "files"
    await file_acts(queue, clock)
    yield "batches"
    await batch_acts(queue, clock)
    yield "deliveries"
    await delivery_acts(queue, clock)


async def batch_acts(queue: Queue, clock: ManualClock) -> None:
    """Each act of the batches: one is answered, one is cancelled."""
    shop = Shop(queue, await queue.pools.open("llama", Policy()), clock, "memory://every-act")
    await open_backend(queue, shop.pool, "b1", 100)
    first, second = await shop.create(2), await shop.create(2)
    await shop.steps(2)
    assert await shop.answer(2) == 2
    await shop.batches.cancel("ann", second.id)
    await shop.steps(8)
    assert len(await shop.batches.list("ann")) == 2
    assert len((await BatchSearch(queue).find()).batches) == 2
    assert (await shop.view(first)).completed + (await shop.view(second)).completed == 2
    assert await Ledger(queue.store).find_jobs(shop.pool, first, [1, 3], bar=True)


async def delivery_acts(queue: Queue, clock: ManualClock) -> None:
    """Each act of the webhooks' deliveries: one arrives, one fails and is sent again, one is lost and comes back."""
    out = Outgoing(queue, clock)
    endpoint = await out.endpoint()
    await out.add(endpoint)
    await out.add("adhoc_1", 2)
    outcomes = [ARRIVED, exhausted(), broke(1)]
    for taken, outcome in zip(await out.take(3), outcomes, strict=True):
        await out.attempt(taken, outcome)
    clock.advance(1)
    (lost,) = await out.take()
    clock.advance(LEASE_MS)
    assert [id_ for id_, _ in await out.take()] == [lost[0]]
    (failed,) = (await out.deliveries.find(None, state="failed"))[0]
    await out.deliveries.resend("ann", failed.id)
    assert await out.deliveries.recover("ann", endpoint.id, 0) == (0, None)
    assert await out.outbox.waiting() == 1
    for batch, _ in await out.outbox.batch_events(10):
        await out.outbox.done_batch(batch)
    assert await out.outbox.batch_events(10) == []


async def file_acts(queue: Queue, clock: ManualClock) -> None:
    """Each act of the files, with what it may find."""
    files = Files(queue, "memory://every-act")

    async def content() -> AsyncIterator[bytes]:
        yield b"{}"

    first, second = [await files.put("ann", "f", "batch", content(), 9, expires_after_s=n) for n in (1, 3600)]
    await files.hold(await files.new_id())
    assert len((await files.list("ann")).files) == 2
    await files.delete("ann", second.id)
    clock.advance(600_000)
    assert await files.sweep() == 2
    assert (await files.list("ann", after=first.id, order="asc")).files == []


async def hook_acts(queue: Queue) -> None:
    """Each act of a pool's outcomes that webhooks tell of."""
    pool = await queue.pools.open("all/acts:hooks", Policy())
    await open_backend(queue, pool, "b1", 1)
    await queue.hooks.set(pool, "eve", True, 1)
    await queue.submit(pool, spec("eve", hook=True))
    lease = await take_one(queue, pool)
    await queue.settle(pool, lease, "succeeded", status=200, result=b"{}")
    _, events = await queue.hooks.events(pool)
    assert await queue.hooks.results(pool, [event.job for event in events], 2) == [b"{}"]
    await queue.hooks.ack(pool, events)
    await queue.hooks.set(pool, "eve", False, 2)


async def endpoint_acts(queue: Queue, pool: Pool) -> None:
    """Each act of webhook endpoints and their secrets."""
    webhooks = Webhooks(queue, Guard.of("", "443"))
    made, secret = await webhooks.create("eve", "https://example.com/hook", headers={"x-a": "b"})
    assert await webhooks.create("eve", made.url, headers={"x-a": "b"}) == (made, secret)
    await webhooks.set("eve", made.id, url="https://example.com/other")
    assert [one.id for one in await webhooks.list("eve")] == [made.id]
    assert len((await EndpointSearch(queue).find()).endpoints) == 1
    for signer in (made.id, "default"):
        secret = await webhooks.secret("eve", signer)
        assert await webhooks.rotate("eve", signer) != secret
    await webhooks.copy_hooks(pool, "eve")
    await webhooks.delete("eve", made.id)


async def run_acts(queue: Queue, pool: Pool, target: Pool) -> None:
    """Each act of rebalancing runs: within a pool, over two, and a purge."""
    runs, stepper = Runs(queue, SeededIds(7)), Stepper(queue, "a")
    ids = [answer.id for answer in await queue.submit_many(pool, [spec("fay")] * 3) if isinstance(answer, Submitted)]
    await queue.submit(pool, spec("fay", delay_ms=50_000))
    for to in (Target(tier="flex"), Target(pools=(pool.name, target.name)), Target(purge=True)):
        run = await runs.create(Plan(Filter(pool.name, tenant="fay"), to), "ops")
        assert (await stepper.carry(run.id)).chosen == 4
        await runs.apply(run.id)
        run = await stepper.carry(run.id)
        assert run.state == "done"
        if run.may("undo"):
            await runs.undo(run.id)
            assert (await stepper.carry(run.id)).returned == run.moved
    assert len((await runs.list())[0]) == 3
    assert await runs.open() == []
    assert (await queue.inspect.job(ids[0])).state == "cancelled"
    await runs.abort((await runs.create(Plan(Filter(pool.name), Target(tier="flex")), "ops")).id)


async def user_acts(queue: Queue) -> None:
    users, audit = Users(queue), Audit(queue)
    await users.create("olga", "operator", {"ann"}, "a long enough password")
    await users.set("olga", "viewer", None)
    assert [user.role for user in (await users.users())[0]] == ["viewer"]
    assert (await users.sign_in("olga", "another password", "::1")).token is None
    token = (await users.sign_in("olga", "a long enough password", "::1")).token
    entered = await users.enter_once(await users.allow_once("olga"), "::1")
    assert token
    assert entered
    assert await users.sittings.find(token, "::1")
    await users.sittings.end(token)
    assert await users.page_secret() == await users.page_secret()
    entry = await audit.begin(who="olga", role="viewer", address="::1", act="login.password", target="olga")
    await audit.end(entry, outcome="done")
    assert len((await audit.read(act="login.")).entries) == 1


async def account_acts(queue: Queue, pool: Pool) -> None:
    """Each act of tenants and keys."""
    accounts = Accounts(queue)
    await accounts.create_tenant("eve", {"weight": 2, "tiers": "flex"})
    await accounts.set_tenant("eve", {"weight": "1", "tiers": "all"})
    assert len((await accounts.tenants())[0]) == 1
    key, secret = await accounts.create_key("eve", lasts_s=60)
    assert (await accounts.authenticate(secret)).tenant == "eve"
    await accounts.rotate(key.prefix)
    await accounts.revoke(key.prefix)
    assert len(await accounts.keys("eve")) == 2
    assert (await queue.inspect.allowance(pool, "eve")).limits.weight == 1
