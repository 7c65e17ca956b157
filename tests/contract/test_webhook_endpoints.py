"""Webhook endpoints: what a tenant may say of them, their secrets, and pools that learn at once what is wanted."""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, StoreFull, StoreUnavailable
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.safe_url import Guard
from fairlane.webhooks.endpoints import ENDPOINTS_MOST, Webhooks
from fairlane.webhooks.outbox import Outbox
from fairlane.webhooks.values import Endpoint, check_secret, new_secret
from tests.contract.acts import finish, open_backend, spec, take_one

URL = "https://hooks.example.com/fairlane"
GONE = "whe_1700000000000000000000000"
DAY_S = 86_400


@pytest.fixture
def webhooks(queue: Queue) -> Webhooks:
    return Webhooks(queue, Guard.of("", "443,8443"))


async def reported(queue: Queue, pool: Pool, tenant: str = "ann") -> bool:
    """Whether the outcome of a job that ends now is kept for webhooks."""
    job = (await queue.submit(pool, spec(tenant))).id
    await finish(queue, pool, [await take_one(queue, pool)])
    _, events = await queue.hooks.events(pool)
    await queue.hooks.ack(pool, events)
    return job in {event.job for event in events}


async def signed_with(webhooks: Webhooks, queue: Queue, endpoint_id: str) -> tuple[str, ...]:
    """The secrets that a delivery to it would be signed with now."""
    outbox = Outbox(queue.store)
    delivery = await webhooks.test("ann", endpoint_id)
    ((id_, token),) = [taken for taken in await outbox.take(10, 60_000) if taken[0] == delivery.id]
    sending = await outbox.begin(id_, token, 60_000)
    assert sending
    return sending.secrets


async def note(client: Any, queue: Queue, endpoint: Endpoint, **fields: str) -> None:
    """Writes what came of deliveries."""
    await client.hset(f"{queue.store.namespace}:{{acct}}:endpoint:{endpoint.id}", mapping=fields)


# --- endpoints --------------------------------------------------------------------------------------------------------


async def test_what_was_said_of_an_endpoint_is_read_again(webhooks: Webhooks, clock: ManualClock) -> None:
    plain, _ = await webhooks.create("ann", URL)
    assert (plain.events, plain.description, plain.headers, plain.enabled) == (("*",), "", {}, True)
    clock.advance(1)
    events, headers = ["job.failed", "batch.*", "job.failed"], {"x-b": "2", "Authorization": "Bearer x"}
    made, _ = await webhooks.create("ann", f"{URL}?a=b c".replace(" ", "%20"), events, "Ann's, too", headers)
    assert (made.events, made.description, made.headers) == (("batch.*", "job.failed"), "Ann's, too", headers)
    assert (made.created_at_ms, made.failing_since_ms, made.last_status) == (clock.now_ms(), None, None)
    assert await webhooks.list("ann") == [plain, made]
    assert await webhooks.get("ann", made.id) == made
    assert await webhooks.list("bob") == []


async def test_secrets_and_headers_are_in_no_list_text_or_log(
    webhooks: Webhooks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made, first = await webhooks.create("ann", URL, headers={"authorization": "Bearer hush"})
    second = await webhooks.rotate("ann", made.id)
    default = await webhooks.secret("ann", "default")
    shown = [made, *await webhooks.list("ann"), await webhooks.get("ann", made.id), await webhooks.test("ann", made.id)]
    for text in (repr(shown), str(shown), caplog.text, repr(webhooks)):
        assert not any(hidden in text for hidden in (first, second, default, "hush"))


@pytest.mark.parametrize(
    ("param", "given"),
    [
        ("url", {"url": "http://169.254.169.254/latest"}), ("url", {"url": "https://ann:x@example.com"}),
        ("url", {"url": "https://example.com:22"}), ("url", {"url": "ftp://example.com"}), ("url", {"url": 7}),
        ("url", {"url": "https://example.com/" + 2048 * "x"}), ("url", {"url": ""}),
        ("events", {"events": []}), ("events", {"events": ["job.done"]}), ("events", {"events": "job.*"}),
        ("events", {"events": ["job.* batch.*"]}), ("description", {"description": "x" * 201}),
        ("description", {"description": "a\nb"}), ("headers", {"headers": {f"x-{n}": "" for n in range(21)}}),
        ("headers", {"headers": {"a b": "c"}}), ("headers", {"headers": {"": "c"}}),
        ("headers", {"headers": {"x": "a\r\nhost: b"}}), ("headers", {"headers": {"x": "é"}}),
        ("headers", {"headers": {"x": " a"}}), ("headers", {"headers": {"x": 1}}), ("headers", {"headers": ["x"]}),
        ("headers", {"headers": {"x": "y" * 4096}}), ("headers", {"headers": {"X-a": "1", "x-A": "2"}}),
        *[("headers", {"headers": {name: "1"}}) for name in (
            "Host", "webhook-id", "Webhook-Signature", "content-length", "Content-Type", "Connection", "te", "expect",
            "transfer-encoding", "upgrade", "proxy-authorization", "User-Agent")],
        ("secret", {"secret": "hush"}), ("secret", {"secret": "whsec_"}), ("secret", {"secret": "whsec_é"}),
        ("secret", {"secret": "whsec_" + base64.b64encode(bytes(23)).decode()}),
        ("secret", {"secret": "whsec_" + base64.b64encode(bytes(65)).decode()}),
        ("secret", {"secret": "whsec_" + base64.b64encode(bytes(32)).decode().rstrip("=")}),
        ("secret", {"secret": "whsec_" + base64.b64encode(bytes(32)).decode() + "\n"}),
        ("tenant", {"tenant": "no name"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("store", ["fakeredis"], indirect=True)
async def test_what_is_wrong_is_named_and_makes_nothing(webhooks: Webhooks, param: str, given: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"tenant": "ann", "url": URL, **given}
    with pytest.raises(InvalidRequest) as refusal:
        await webhooks.create(**asked)
    assert refusal.value.param == param
    assert "hush" not in str(refusal.value)
    assert await webhooks.list("ann") == []


async def test_an_endpoint_of_another_tenant_is_not_there(webhooks: Webhooks) -> None:
    made, secret = await webhooks.create("ann", URL)
    acts: list[Callable[[str, str], Awaitable[object]]] = [
        webhooks.get, webhooks.set, webhooks.enable, webhooks.disable, webhooks.secret, webhooks.rotate, webhooks.test,
        webhooks.delete,
    ]  # fmt: skip
    for act in acts:
        for tenant, id_ in (("bob", made.id), ("ann", GONE), ("ann", ""), ("ann", "x:y{z}\n"), ("ann", made.id + "0")):
            with pytest.raises(NotFound):
                await act(tenant, id_)
    for act in (webhooks.get, webhooks.enable, webhooks.delete):
        with pytest.raises(NotFound):
            await act("ann", "default")
    assert await webhooks.list("ann") == [made]
    assert await webhooks.secret("ann", made.id) == secret


async def test_making_an_endpoint_again_finds_the_first_one(webhooks: Webhooks) -> None:
    given: dict[str, Any] = {"events": ["job.*"], "description": "d", "headers": {"a": "1", "b": "2"}}
    made = await asyncio.gather(*(webhooks.create("ann", URL, **given) for _ in range(10)))
    assert all(one == made[0] for one in made)
    again = given | {"headers": {"b": "2", "a": "1"}, "secret": made[0][1]}
    assert await webhooks.create("ann", URL, **again) == made[0]
    changes: list[dict[str, Any]] = [{"description": ""}, {"headers": {}}, {"secret": new_secret()}]
    for change in changes:
        with pytest.raises(IllegalTransition, match=made[0][0].id):
            await webhooks.create("ann", URL, **(given | change))
    await webhooks.disable("ann", made[0][0].id)
    with pytest.raises(IllegalTransition, match="enable"):
        await webhooks.create("ann", URL, **given)
    assert len(await webhooks.list("ann")) == 1
    await webhooks.create("ann", URL, ["batch.*"])
    await webhooks.create("bob", URL, **given)
    assert len(await webhooks.list("ann")) == 2


async def test_of_many_who_make_the_last_endpoint_one_succeeds(webhooks: Webhooks) -> None:
    for n in range(ENDPOINTS_MOST - 1):
        await webhooks.create("ann", f"{URL}/{n}")
    tries = [webhooks.create("ann", f"{URL}/{n}") for n in range(100, 120)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, tuple) for one in done) == 1
    assert {type(one) for one in done} == {tuple, IllegalTransition}
    first, *rest = await webhooks.list("ann")
    assert len(rest) == ENDPOINTS_MOST - 1
    await webhooks.delete("ann", first.id)
    await webhooks.create("ann", f"{URL}/last")


async def test_a_change_leaves_what_it_does_not_name(webhooks: Webhooks, clock: ManualClock) -> None:
    first, secret = await webhooks.create("ann", URL, ["job.*"], "d", {"a": "1"})
    clock.advance(1)
    changed = await webhooks.set("ann", first.id, events=["batch.*"])
    assert (changed.url, changed.events, changed.description) == (URL, ("batch.*",), "d")
    changed = await webhooks.set("ann", first.id, url=f"{URL}/2", description="", headers={})
    assert (changed.url, changed.events, changed.description, changed.headers) == (f"{URL}/2", ("batch.*",), "", {})
    assert await webhooks.get("ann", first.id) == changed
    assert await webhooks.secret("ann", first.id) == secret
    second, _ = await webhooks.create("ann", URL, ["job.*"])
    with pytest.raises(IllegalTransition, match=first.id):
        await webhooks.set("ann", second.id, url=f"{URL}/2", events=["batch.*"])
    wrong: list[dict[str, Any]] = [
        {"description": "not written", **one}
        for one in ({"url": "http://10.0.0.1"}, {"events": ["x"]}, {"headers": {"host": "x"}})
    ]
    for change in wrong:
        with pytest.raises(InvalidRequest) as refusal:
            await webhooks.set("ann", second.id, **change)
        assert refusal.value.param in change
    assert await webhooks.list("ann") == [changed, second]


async def test_why_one_is_disabled_is_kept_until_it_is_enabled(webhooks: Webhooks, queue: Queue, client: Any) -> None:
    made, _ = await webhooks.create("ann", URL)
    off = await webhooks.disable("ann", made.id)
    assert (off.enabled, off.disabled_reason) == (False, "asked")
    with pytest.raises(IllegalTransition):
        await webhooks.test("ann", made.id)
    assert await webhooks.enable("ann", made.id) == made
    await note(client, queue, made, enabled="0", reason="failing", failing_since="5", last_at="9", last_status="500")
    failing = await webhooks.disable("ann", made.id)
    assert (failing.disabled_reason, failing.failing_since_ms, failing.last_status) == ("failing", 5, 500)
    again = await webhooks.enable("ann", made.id)
    assert (again.disabled_reason, again.failing_since_ms, again.last_attempt_at_ms) == (None, None, 9)
    await note(client, queue, made, failing_since="5")
    assert (await webhooks.set("ann", made.id, description="d", url=URL)).failing_since_ms == 5
    assert (await webhooks.set("ann", made.id, url=f"{URL}/2")).failing_since_ms is None


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_secret_is_made_or_brought(webhooks: Webhooks) -> None:
    made, secret = await webhooks.create("ann", URL)
    assert len(base64.b64decode(check_secret(secret).removeprefix("whsec_"))) == 32
    assert await webhooks.secret("ann", made.id) == secret
    for size in (24, 64):
        own = "whsec_" + base64.b64encode(random.randbytes(size)).decode()
        other, kept = await webhooks.create("ann", f"{URL}/{size}", secret=own)
        assert kept == await webhooks.secret("ann", other.id) == own


async def test_a_rotated_secret_signs_for_the_overlap_and_no_longer(
    webhooks: Webhooks, queue: Queue, clock: ManualClock
) -> None:
    made, first = await webhooks.create("ann", URL)
    second = await webhooks.rotate("ann", made.id)
    assert await webhooks.secret("ann", made.id) == second != first
    clock.advance(1000 * DAY_S - 1)
    assert await signed_with(webhooks, queue, made.id) == (second, first)
    clock.advance(1)
    assert await signed_with(webhooks, queue, made.id) == (second,)


async def test_a_second_rotation_within_the_overlap_drops_the_oldest(webhooks: Webhooks, queue: Queue) -> None:
    made, first = await webhooks.create("ann", URL)
    own = new_secret()
    second = await webhooks.rotate("ann", made.id)
    assert await webhooks.rotate("ann", made.id, 7 * DAY_S, own) == own
    assert await signed_with(webhooks, queue, made.id) == (own, second)
    assert first not in (own, second)
    last = await webhooks.rotate("ann", made.id, overlap_s=0)
    assert await signed_with(webhooks, queue, made.id) == (last,)


async def test_the_same_rotation_again_changes_nothing(webhooks: Webhooks, queue: Queue) -> None:
    made, first = await webhooks.create("ann", URL)
    own = new_secret()
    for _ in range(2):
        await webhooks.rotate("ann", made.id, 60, own)
    assert await signed_with(webhooks, queue, made.id) == (own, first)


async def test_the_tenants_own_secret_is_made_at_first_use(webhooks: Webhooks) -> None:
    made = await asyncio.gather(*(webhooks.secret("ann", "default") for _ in range(10)))
    assert len(set(made)) == 1
    assert await webhooks.secret("bob", "default") != made[0]
    second = await webhooks.rotate("ann", "default")
    assert await webhooks.secret("ann", "default") == second != made[0]
    assert await webhooks.rotate("cho", "default") == await webhooks.secret("cho", "default")


async def test_a_wrong_rotation_is_refused(webhooks: Webhooks) -> None:
    made, secret = await webhooks.create("ann", URL)
    for overlap_s in (-1, 7 * DAY_S + 1, float("nan"), float("inf")):
        with pytest.raises(InvalidRequest, match="overlap_s"):
            await webhooks.rotate("ann", made.id, overlap_s)
    with pytest.raises(InvalidRequest):
        await webhooks.rotate("ann", made.id, secret="whsec_short")
    assert await webhooks.secret("ann", made.id) == secret


# --- what pools know --------------------------------------------------------------------------------------------------


async def test_every_pool_reports_from_the_moment_that_an_endpoint_is_there(
    webhooks: Webhooks, queue: Queue, pool: Pool, target: Pool
) -> None:
    assert not await reported(queue, pool)
    first, _ = await webhooks.create("ann", URL, ["job.failed"])
    second, _ = await webhooks.create("ann", URL)
    for place in (pool, target):
        assert await reported(queue, place)
        assert not await reported(queue, place, "bob")
    await webhooks.delete("ann", first.id)
    assert await reported(queue, pool)
    await webhooks.set("ann", second.id, events=["batch.*", "webhook_endpoint.disabled"])
    assert not await reported(queue, pool)
    await webhooks.set("ann", second.id, events=["batch.*", "job.*"])
    assert await reported(queue, pool)
    await webhooks.disable("ann", second.id)
    assert not await reported(queue, target)
    await webhooks.enable("ann", second.id)
    assert await reported(queue, target)
    await webhooks.delete("ann", second.id)
    assert not await reported(queue, target)


async def test_a_job_that_waited_already_is_reported(webhooks: Webhooks, queue: Queue, pool: Pool) -> None:
    job = (await queue.submit(pool, spec())).id
    lease = await take_one(queue, pool)
    await webhooks.create("ann", URL)
    await finish(queue, pool, [lease])
    assert [event.job for event in (await queue.hooks.events(pool))[1]] == [job]


async def test_a_pool_that_is_away_makes_the_call_fail_and_repeating_it_mends_that(
    webhooks: Webhooks, queue: Queue, pool: Pool, target: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = queue.hooks.set

    async def away(place: Pool, *args: Any) -> None:
        if place.code == pool.code:
            raise StoreUnavailable()
        await reach(place, *args)

    with monkeypatch.context() as broken:
        broken.setattr(queue.hooks, "set", away)
        with pytest.raises(StoreUnavailable):
            await webhooks.create("ann", URL)
        assert await reported(queue, target)
    made, _ = await webhooks.create("ann", URL)
    assert await webhooks.list("ann") == [made]
    assert await reported(queue, pool)
    with monkeypatch.context() as broken:
        broken.setattr(queue.hooks, "set", away)
        await webhooks.disable("ann", made.id)
        with pytest.raises(StoreUnavailable):
            await webhooks.enable("ann", made.id)
        assert (await webhooks.set("ann", made.id, events=["batch.*"])).enabled
        await webhooks.delete("ann", made.id)
        assert not await reported(queue, target)
    assert await reported(queue, pool), "it does no harm"
    await webhooks.copy_hooks(pool, "ann")
    assert not await reported(queue, pool)


async def test_not_even_to_know_the_pools_is_needed_to_delete_one(
    webhooks: Webhooks, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> list[Pool]:
        raise StoreUnavailable()

    made, _ = await webhooks.create("ann", URL)
    monkeypatch.setattr(queue.pools, "all", away)
    with pytest.raises(StoreUnavailable):
        await webhooks.create("ann", f"{URL}/2")
    await webhooks.disable("ann", made.id)
    await webhooks.delete("ann", made.id)
    assert [one.url for one in await webhooks.list("ann")] == [f"{URL}/2"]


async def test_a_new_pool_learns_it_from_whoever_submits(webhooks: Webhooks, queue: Queue, pool: Pool) -> None:
    await webhooks.create("ann", URL)
    late = await queue.pools.open("late", Policy())
    await open_backend(queue, late, "b1", 100)
    assert not await reported(queue, late)
    for tenant in ("ann", "bob"):
        await webhooks.copy_hooks(late, tenant)
    assert await reported(queue, late)
    assert not await reported(queue, late, "bob")


async def test_what_disables_itself_is_reported_no_more(
    webhooks: Webhooks, queue: Queue, pool: Pool, client: Any
) -> None:
    made, _ = await webhooks.create("ann", URL)
    await note(client, queue, made, enabled="0", reason="gone")
    await webhooks.copy_hooks_to_all("ann")
    assert not await reported(queue, pool)
    assert (await webhooks.enable("ann", made.id)).enabled
    assert await reported(queue, pool)


async def test_of_changes_at_once_the_last_one_holds_in_every_pool(
    webhooks: Webhooks, queue: Queue, pool: Pool, target: Pool
) -> None:
    dice = random.Random(7)
    for _ in range(5):
        ids = [(await webhooks.create("ann", f"{URL}/{n}"))[0].id for n in range(3)]
        acts = [webhooks.enable, webhooks.disable, webhooks.delete]
        tries = [dice.choice(acts)("ann", dice.choice(ids)) for _ in range(15)]
        done = await asyncio.gather(*tries, return_exceptions=True)
        assert all(isinstance(one, NotFound) for one in done if isinstance(one, BaseException))
        left = await webhooks.list("ann")
        wanted = any(one.enabled for one in left)
        for place in (pool, target):
            assert not wanted or await reported(queue, place)
            await webhooks.copy_hooks(place, "ann")  # an older copy may have come last where nothing is wanted any more
            assert await reported(queue, place) == wanted
        for one in left:
            await webhooks.delete("ann", one.id)


@pytest.mark.parametrize("store", ["valkey"], indirect=True)
async def test_on_a_full_server_endpoints_can_be_disabled_and_deleted(
    webhooks: Webhooks, queue: Queue, pool: Pool, client: Any
) -> None:
    made, secret = await webhooks.create("ann", URL)
    try:
        await client.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            await webhooks.create("ann", f"{URL}/2")
        assert await webhooks.secret("ann", made.id) == secret
        assert not (await webhooks.disable("ann", made.id)).enabled
        assert await webhooks.list("ann") != []
        await webhooks.delete("ann", made.id)
    finally:
        await client.config_set("maxmemory", 0)
    assert await webhooks.list("ann") == []
