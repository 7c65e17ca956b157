"""Tenants and keys: what a key leads to, when it ends, and limits that reach every pool."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import Any

import pytest

from fairlane.accounts import Accounts, Caller
from fairlane.clock import ManualClock
from fairlane.errors import FairlaneError, IllegalTransition, InvalidKey, InvalidRequest, NotFound, TenantForbidden
from fairlane.model import Limits, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool

DAY_S = 86_400
DAY_MS = 1000 * DAY_S


@pytest.fixture
def accounts(queue: Queue) -> Accounts:
    return Accounts(queue)


@pytest.fixture
async def secret(accounts: Accounts) -> str:
    """Of a key of Ann's."""
    await accounts.create_tenant("ann")
    _, made = await accounts.create_key("ann")
    return made


async def everything(client: Any) -> str:
    """All that Redis holds, as one text."""
    texts: list[str] = []
    for name in await client.keys("*"):
        kind = (await client.type(name)).decode()
        read = {"hash": client.hgetall, "zset": lambda key: client.zrange(key, 0, -1), "set": client.smembers}
        texts.append(f"{name} {await read[kind](name) if kind in read else await client.get(name)}")
    return "\n".join(texts)


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_secret_leads_to_its_tenant_and_is_nowhere_stored(accounts: Accounts, client: Any, secret: str) -> None:
    assert re.fullmatch(r"fl-[0-9A-Za-z]{10}-[0-9A-Za-z]{32,}", secret)
    assert await accounts.authenticate(secret) == Caller("ann")
    kept = await everything(client)
    assert secret not in kept
    assert secret.split("-")[2] not in kept
    assert hashlib.sha256(secret.encode()).hexdigest() in kept
    (shown,) = await accounts.keys("ann")
    assert hashlib.sha256(secret.encode()).hexdigest() not in repr(shown)


async def test_what_is_no_secret_of_ours_leads_nowhere(accounts: Accounts, secret: str) -> None:
    prefix = secret[3:13]
    other = await accounts.create_key("ann")
    wrong = ["", "ann", prefix, f"fl-{prefix}", f"fl-{prefix}-", f"{secret}x", secret[:-1], f" {secret}", f"{secret}\n"]
    wrong += [secret.upper(), f"fl-{prefix}-{'0' * 40}", f"fl-{'0' * 10}-{secret[14:]}", "fl-é" + secret[4:], "\0" * 54]
    wrong += [f"fl-{prefix}-{other[1][14:]}", "x" * 100_000]
    for one in wrong:
        with pytest.raises(InvalidKey):
            await accounts.authenticate(one)


async def test_a_key_ends_when_it_was_said_to(accounts: Accounts, secret: str, clock: ManualClock) -> None:
    _, short = await accounts.create_key("ann", lasts_s=60)
    clock.advance(59_999)
    assert (await accounts.authenticate(short)).tenant == "ann"
    clock.advance(1)
    with pytest.raises(InvalidKey, match="past its end"):
        await accounts.authenticate(short)
    states = {key.prefix: key.state for key in await accounts.keys("ann")}
    assert states == {secret[3:13]: "active", short[3:13]: "expired"}
    assert (await accounts.authenticate(secret)).tenant == "ann"


async def test_a_revoked_key_is_refused_and_says_so_only_to_who_holds_it(accounts: Accounts, secret: str) -> None:
    prefix = secret[3:13]
    first = await accounts.revoke(prefix)
    assert first.state == "revoked"
    assert await accounts.revoke(prefix) == first
    with pytest.raises(InvalidKey, match="key was revoked"):
        await accounts.authenticate(secret)
    with pytest.raises(InvalidKey, match="no such key"):
        await accounts.authenticate(f"fl-{prefix}-{'0' * 40}")


async def test_a_rotated_key_lasts_for_the_overlap_and_the_new_one_may_do_the_same(
    accounts: Accounts, clock: ManualClock
) -> None:
    await accounts.create_tenant("chat")
    old, first = await accounts.create_key(
        "chat", role="gateway", tiers=["flex"], pools=["llama"], lasts_s=DAY_S, label="the chat's"
    )
    clock.advance(DAY_MS // 2)
    new, second = await accounts.rotate(old.prefix, overlap_s=60)
    assert (new.tenant, new.role, new.tiers, new.pools, new.label) == (
        old.tenant, old.role, old.tiers, old.pools, old.label,
    )  # fmt: skip
    assert new.expires_at_ms == new.created_at_ms + DAY_MS
    assert await accounts.authenticate(first) == await accounts.authenticate(second)
    with pytest.raises(IllegalTransition, match=new.prefix):
        await accounts.rotate(old.prefix)
    clock.advance(60_000)
    with pytest.raises(InvalidKey):
        await accounts.authenticate(first)
    assert (await accounts.authenticate(second)).role == "gateway"
    listed = {key.prefix: key.rotated_to for key in await accounts.keys("chat")}
    assert listed == {old.prefix: new.prefix, new.prefix: None}


async def test_an_overlap_never_makes_a_key_last_longer(accounts: Accounts, clock: ManualClock) -> None:
    await accounts.create_tenant("ann")
    old, first = await accounts.create_key("ann", lasts_s=60)
    await accounts.rotate(old.prefix, overlap_s=DAY_S)
    clock.advance(60_000)
    with pytest.raises(InvalidKey):
        await accounts.authenticate(first)


async def test_a_key_that_has_ended_cannot_be_rotated(accounts: Accounts, secret: str, clock: ManualClock) -> None:
    key, _ = await accounts.create_key("ann", lasts_s=1)
    await accounts.revoke(secret[3:13])
    clock.advance(1000)
    for prefix in (secret[3:13], key.prefix):
        with pytest.raises(IllegalTransition):
            await accounts.rotate(prefix)
    for act in (accounts.rotate, accounts.revoke):
        with pytest.raises(NotFound):
            await act("0123456789")
        with pytest.raises(InvalidRequest):
            await act(f"x{secret}")


async def test_its_last_use_is_noted_once_a_minute(accounts: Accounts, secret: str, clock: ManualClock) -> None:
    async def used() -> int | None:
        return (await accounts.keys("ann"))[0].used_at_ms

    assert await used() is None
    with pytest.raises(InvalidKey):
        await accounts.authenticate(secret[:14] + "0" * 40)
    assert await used() is None
    await accounts.authenticate(secret)
    first = await used()
    clock.advance(59_999)
    await accounts.authenticate(secret)
    assert await used() == first
    clock.advance(1)
    await accounts.authenticate(secret)
    assert await used() == (first or 0) + 60_000


async def test_a_key_may_what_both_it_and_its_tenant_may(accounts: Accounts) -> None:
    await accounts.create_tenant("ann", {"tiers": "default,batch", "pools": ["llama", "a/b, c"]})
    _, narrow = await accounts.create_key("ann", tiers=["batch", "priority"])
    _, wide = await accounts.create_key("ann")
    caller = await accounts.authenticate(narrow)
    assert (caller.tiers, caller.pools) == ({"batch"}, {"llama", "a/b, c"})
    assert (await accounts.authenticate(wide)).tiers == {"default", "batch"}
    await accounts.set_tenant("ann", {"tiers": "all", "pools": None})
    assert await accounts.authenticate(wide) == Caller("ann")


async def test_a_disabled_tenant_is_refused_with_every_key(accounts: Accounts, secret: str) -> None:
    await accounts.disable("ann")
    with pytest.raises(InvalidKey, match="disabled"):
        await accounts.authenticate(secret)
    await accounts.enable("ann")
    assert await accounts.authenticate(secret) == Caller("ann")


async def test_only_a_gateway_names_end_users_and_none_that_is_a_tenant(accounts: Accounts, secret: str) -> None:
    await accounts.create_tenant("chat", {"tiers": "default"})
    _, gateway = await accounts.create_key("chat", role="gateway")
    _, operator = await accounts.create_key("chat", role="operator")
    assert await accounts.authenticate(gateway) == Caller("chat", "gateway", frozenset({"default"}))
    assert await accounts.authenticate(gateway, "zoe") == Caller("zoe", "gateway", frozenset({"default"}))
    assert (await accounts.authenticate(gateway, "chat")).tenant == "chat"
    for token, user in ((gateway, "ann"), (secret, "zoe"), (operator, "zoe")):
        with pytest.raises(TenantForbidden):
            await accounts.authenticate(token, user)
    for name in ("", "zoe\n", "z" * 129, "zoé", "a b"):
        with pytest.raises(InvalidRequest):
            await accounts.authenticate(gateway, name)


async def test_what_is_wrong_with_a_new_key_is_named(accounts: Accounts, secret: str) -> None:
    wrong: list[dict[str, Any]] = [
        {"role": "root"}, {"tiers": []}, {"tiers": ["No tier"]}, {"pools": [""]}, {"label": "x" * 201},
        {"label": "a\nb"}, {"lasts_s": 0}, {"lasts_s": float("nan")}, {"lasts_s": 1e12},
    ]  # fmt: skip
    for changes in wrong:
        with pytest.raises(InvalidRequest) as refusal:
            await accounts.create_key("ann", **changes)
        assert refusal.value.param in changes
    with pytest.raises(NotFound, match="fairlane tenants create bob"):
        await accounts.create_key("bob")
    assert len(await accounts.keys("ann")) == 1


# --- tenants ----------------------------------------------------------------------------------------------------------


async def test_of_many_who_create_one_tenant_one_succeeds(accounts: Accounts) -> None:
    tries = [accounts.create_tenant("ann", {"weight": n}) for n in range(1, 21)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    refused = [one for one in done if isinstance(one, FairlaneError)]
    assert len(refused) == 19
    assert {type(one) for one in refused} == {IllegalTransition}
    (made,) = (one for one in done if not isinstance(one, BaseException))
    assert await accounts.tenant("ann") == made


async def test_changes_of_different_settings_at_once_are_all_kept(accounts: Accounts) -> None:
    await accounts.create_tenant("ann")
    changes = [
        {"weight": "2"},
        {"max_inflight": 3},
        {"max_waiting": "9"},
        {"tiers": "flex"},
        {"requests_per_minute": 60},
    ]
    await asyncio.gather(*(accounts.set_tenant("ann", one) for one in changes))
    found = await accounts.tenant("ann")
    assert (found.limits, found.tiers, found.version) == (Limits(2, 3, 60, None, 9), {"flex"}, 4)
    await accounts.set_tenant("ann", {"max_inflight": "none"})
    assert (await accounts.tenant("ann")).limits == Limits(2, None, 60, None, 9)


@pytest.mark.parametrize(
    "wrong",
    [{"speed": 1}, {"weight": "none"}, {"weight": 0}, {"weight": "nan"}, {"max_inflight": "x"}, {"max_waiting": True},
     {"tokens_per_minute": 0}, {"requests_per_minute": 1.5}, {"tiers": ""}, {"tiers": "a,,b"}, {"pools": "\n"}],
)  # fmt: skip
async def test_a_setting_that_is_wrong_is_named_and_changes_nothing(accounts: Accounts, wrong: dict[str, Any]) -> None:
    before = await accounts.create_tenant("ann", {"weight": 2})
    with pytest.raises(InvalidRequest) as refusal:
        await accounts.set_tenant("ann", {"max_inflight": 1} | wrong)
    assert refusal.value.param in wrong
    assert await accounts.tenant("ann") == before


async def test_tenants_come_in_pages_by_name(accounts: Accounts) -> None:
    names = ["Zoe", "ann", "ann.b", "bob", "x@y"]
    for name in reversed(names):
        await accounts.create_tenant(name)
    found, after = list[str](), ""
    while True:
        page, following = await accounts.tenants(after, 2)
        found += [one.tenant for one in page]
        if following is None:
            break
        after = following
    assert found == names
    with pytest.raises(NotFound):
        await accounts.tenant("carl")
    with pytest.raises(NotFound):
        await accounts.set_tenant("carl", {"weight": 1})
    with pytest.raises(InvalidRequest):
        await accounts.create_tenant("no name")


async def test_many_tenants_are_looked_up_at_once(accounts: Accounts) -> None:
    made = [await accounts.create_tenant(name, {"weight": n + 1}) for n, name in enumerate(("ann", "bob"))]
    assert await accounts.known(["bob", "carl", "ann"]) == {"ann": made[0], "bob": made[1]}
    assert await accounts.known([]) == {}
    with pytest.raises(InvalidRequest):
        await accounts.known([f"t{n}" for n in range(1001)])


# --- limits in pools --------------------------------------------------------------------------------------------------


async def test_a_change_reaches_every_pool(accounts: Accounts, queue: Queue, pool: Pool, target: Pool) -> None:
    await accounts.create_tenant("ann", {"max_inflight": 3})
    assert [await queue.inspect.limits(one, "ann") for one in (pool, target)] == [Limits(max_inflight=3)] * 2
    await accounts.set_tenant("ann", {"weight": 2})
    assert [await queue.inspect.limits(one, "ann") for one in (pool, target)] == [Limits(2, 3)] * 2
    await accounts.set_tenant("ann", {"weight": 1, "max_inflight": None})
    assert [await queue.inspect.limits(one, "ann") for one in (pool, target)] == [Limits()] * 2


async def test_a_new_pool_gets_them_when_it_is_asked_for(accounts: Accounts, queue: Queue) -> None:
    await accounts.create_tenant("ann", {"max_waiting": 1})
    await accounts.create_tenant("bob")
    late = await queue.pools.open("late", Policy())
    assert await queue.inspect.limits(late, "ann") == Limits()
    assert await accounts.copy_limits(late, "ann") == Limits(max_waiting=1)
    assert await queue.inspect.limits(late, "ann") == Limits(max_waiting=1)
    assert await accounts.copy_limits(late, "bob") is None
    assert await accounts.copy_limits(late, "nobody") is None


async def test_an_older_copy_never_overwrites_a_newer_one(queue: Queue, pool: Pool) -> None:
    versions = [3, 1, 5, 4, 2]
    await asyncio.gather(*(queue.set_limits(pool, "ann", Limits(max_inflight=n), version=n) for n in versions))
    assert await queue.inspect.limits(pool, "ann") == Limits(max_inflight=5)
    await queue.set_limits(pool, "ann", Limits(max_inflight=9), version=5)
    assert await queue.inspect.limits(pool, "ann") == Limits(max_inflight=5)


async def test_what_was_set_for_one_pool_holds_until_the_next_change_for_all(
    accounts: Accounts, queue: Queue, pool: Pool
) -> None:
    await accounts.create_tenant("ann", {"max_inflight": 3})
    await queue.set_limits(pool, "ann", Limits(max_inflight=8))
    await accounts.copy_limits(pool, "ann")
    assert await queue.inspect.limits(pool, "ann") == Limits(max_inflight=8)
    await accounts.set_tenant("ann", {"max_inflight": 4})
    assert await queue.inspect.limits(pool, "ann") == Limits(max_inflight=4)
