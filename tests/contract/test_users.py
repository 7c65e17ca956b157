"""Users of the admin page: who gets in, for how long, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from argon2 import PasswordHasher

from fairlane.accounts import passwords
from fairlane.accounts.sittings import IDLE_MS, MOST_MS
from fairlane.accounts.throttle import ADDRESS, NAME
from fairlane.accounts.users import ONCE_MS, SignIn, Users
from fairlane.clock import ManualClock
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, RateLimited
from fairlane.queue.engine import Queue

GOOD = "a long enough password"
OTHER = "another one of this kind"
HERE = "192.0.2.1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Passwords are hashed as always, with less work."""
    monkeypatch.setattr(passwords, "_hasher", cache(lambda: PasswordHasher(time_cost=1, memory_cost=64)))
    passwords._nobodys.cache_clear()
    yield
    passwords._nobodys.cache_clear()


@pytest.fixture
def users(queue: Queue) -> Users:
    return Users(queue)


@pytest.fixture
async def olga(users: Users) -> str:
    """An operator for Ann's things, with a password."""
    await users.create("olga", "operator", {"ann"}, GOOD)
    return "olga"


async def entered(users: Users, name: str = "olga") -> str:
    """The token of a new sitting."""
    came = await users.enter_once(await users.allow_once(name), HERE)
    assert came
    assert came[0] == name
    return came[1]


async def fails(users: Users, name: str, address: str, times: int) -> None:
    for _ in range(times):
        assert (await users.sign_in(name, "a wrong password", address)).token is None


async def test_who_knows_the_password_gets_in_as_what_they_are(users: Users, olga: str) -> None:
    came = await users.sign_in(olga, GOOD, HERE)
    assert came.token
    sitting = await users.sittings.find(came.token, HERE)
    assert sitting
    assert (sitting.user, sitting.role, sitting.tenants, sitting.by) == (olga, "operator", {"ann"}, "password")
    assert (await users.user(olga)).seen_from == HERE


@pytest.mark.parametrize(("name", "password"), [("olga", OTHER), ("nobody", GOOD), ("", ""), ("o:l\n", "\ud800")])
async def test_nobody_else_does(users: Users, olga: str, name: str, password: str) -> None:
    assert await users.sign_in(name, password, HERE) == SignIn(None, known=name == olga)


async def test_a_user_without_a_password_has_none_that_fits(users: Users) -> None:
    await users.create("otto", "viewer")
    for password in ("", "nobody has this password"):
        assert (await users.sign_in("otto", password, HERE)).token is None


async def test_neither_the_password_nor_a_token_is_kept(users: Users, olga: str, client: Any) -> None:
    came = await users.sign_in(olga, GOOD, HERE)
    once = await users.allow_once(olga)
    texts = [str(await client.hgetall(key)) + str(key) for key in await client.keys("*:user:*")]
    texts += [str(await client.hgetall(key)) + str(key) for key in await client.keys("*sitting*")]
    texts += [str(key) for key in await client.keys("*")]
    assert not any(secret in text for text in texts for secret in (GOOD, came.token or "", once))


async def test_what_a_user_may_do_changes_from_the_next_request_on(users: Users, olga: str) -> None:
    token = await entered(users)
    await users.set(olga, "viewer", None)
    sitting = await users.sittings.find(token, HERE)
    assert sitting
    assert (sitting.role, sitting.tenants, sitting.by) == ("viewer", None, "once")


async def test_a_new_password_ends_all_sittings_and_the_old_password(users: Users, olga: str) -> None:
    tokens = [await entered(users), await entered(users)]
    waiting = await users.allow_once(olga)
    await users.set_password(olga, OTHER)
    assert [await users.sittings.find(token, HERE) for token in tokens] == [None, None]
    assert await users.enter_once(waiting, HERE) is None
    assert (await users.sign_in(olga, GOOD, HERE)).token is None
    assert (await users.sign_in(olga, OTHER, HERE)).token


async def test_who_is_disabled_is_out_at_once_until_enabled(users: Users, olga: str) -> None:
    token, waiting = await entered(users), await users.allow_once(olga)
    assert (await users.disable(olga)).disabled
    assert await users.sittings.find(token, HERE) is None
    assert await users.enter_once(waiting, HERE) is None
    assert (await users.sign_in(olga, GOOD, HERE)).token is None
    with pytest.raises(IllegalTransition):
        await users.allow_once(olga)
    assert not (await users.enable(olga)).disabled
    assert await users.sittings.find(token, HERE) is None
    assert (await users.sign_in(olga, GOOD, HERE)).token


async def test_a_password_that_was_changed_while_it_was_checked_lets_nobody_in(
    users: Users, olga: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, verify = asyncio.get_running_loop(), passwords.verify

    def slowly(stored: str, password: str) -> bool:
        asyncio.run_coroutine_threadsafe(users.disable(olga), loop).result(5)
        return verify(stored, password)

    monkeypatch.setattr(passwords, "verify", slowly)
    assert (await users.sign_in(olga, GOOD, HERE)).token is None


async def test_a_sitting_ends_unused(users: Users, olga: str, clock: ManualClock) -> None:
    token = await entered(users)
    for _ in range(3):
        clock.advance(IDLE_MS - 1)
        assert await users.sittings.find(token, HERE)
    clock.advance(IDLE_MS)
    assert await users.sittings.find(token, HERE) is None


async def test_being_looked_up_is_no_use(users: Users, olga: str, clock: ManualClock) -> None:
    token = await entered(users)
    clock.advance(IDLE_MS // 2)
    assert await users.sittings.find(token, None)
    clock.advance(IDLE_MS // 2)
    assert await users.sittings.find(token, None) is None


async def test_a_sitting_ends_in_any_case(users: Users, olga: str, clock: ManualClock) -> None:
    token = await entered(users)
    for _ in range(MOST_MS // (IDLE_MS // 2) - 1):
        clock.advance(IDLE_MS // 2)
        assert await users.sittings.find(token, HERE)
    clock.advance(IDLE_MS // 2)
    assert await users.sittings.find(token, HERE) is None


async def test_a_signed_out_sitting_is_gone(users: Users, olga: str) -> None:
    token, other = await entered(users), await entered(users)
    await users.sittings.end(token)
    await users.sittings.end(token)
    assert await users.sittings.find(token, HERE) is None
    assert await users.sittings.find(other, HERE)


async def test_a_one_time_login_is_good_for_one(users: Users, olga: str) -> None:
    secret = await users.allow_once(olga)
    came = await asyncio.gather(*(users.enter_once(secret, HERE) for _ in range(10)))
    assert sum(one is not None for one in came) == 1


async def test_a_one_time_login_ends(users: Users, olga: str, clock: ManualClock) -> None:
    secret = await users.allow_once(olga)
    clock.advance(ONCE_MS)
    assert await users.enter_once(secret, HERE) is None


@pytest.mark.parametrize("name", ["olga", "nobody"])
async def test_wrong_passwords_for_a_name_make_it_wait_whether_it_is_there_or_not(
    users: Users, olga: str, clock: ManualClock, name: str
) -> None:
    for n in range(NAME.free):
        await fails(users, name, f"192.0.2.{n}", 1)
    waits: list[float] = []
    for n in range(8):
        with pytest.raises(RateLimited) as refused:
            await users.sign_in(name, GOOD, f"198.51.100.{n}")
        waits.append(refused.value.retry_after or 0)
        clock.advance(round(1000 * waits[-1]))
        await fails(users, name, f"198.51.100.{n}", 1)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_wrong_passwords_from_an_address_make_it_wait_for_all_names(users: Users, olga: str) -> None:
    for n in range(ADDRESS.free):
        await fails(users, f"guess{n}", HERE, 1)
    with pytest.raises(RateLimited):
        await users.sign_in(olga, GOOD, HERE)
    assert (await users.sign_in(olga, GOOD, "192.0.2.2")).token


async def test_who_has_many_addresses_of_ipv6_has_no_more_tries(users: Users, olga: str) -> None:
    for n in range(ADDRESS.free):
        await fails(users, f"guess{n}", f"2001:db8::{n:x}", 1)
    with pytest.raises(RateLimited):
        await users.sign_in(olga, GOOD, "2001:db8::ffff:1")
    assert (await users.sign_in(olga, GOOD, "2001:db8:0:1::1")).token


@pytest.mark.parametrize("address", ["", "-", "no address", "x" * 1000, "::ffff:192.0.2.1", "fe80::1%eth0"])
async def test_any_address_will_do(users: Users, olga: str, address: str) -> None:
    await fails(users, olga, address, 1)
    assert (await users.sign_in(olga, GOOD, address)).token


async def test_tries_at_once_do_not_slip_through(users: Users, olga: str) -> None:
    tries = (users.sign_in(olga, "a wrong password", f"192.0.2.{n}") for n in range(30))
    came = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, SignIn) for one in came) == NAME.free


async def test_who_gets_in_starts_anew(users: Users, olga: str) -> None:
    for _ in range(2):
        await fails(users, olga, HERE, NAME.free - 1)
        assert (await users.sign_in(olga, GOOD, HERE)).token


async def test_an_own_account_does_not_pay_for_guesses_at_others(users: Users, olga: str) -> None:
    """Somebody with a password of their own guesses at others' between two good tries."""
    refused = False
    for n in range(ADDRESS.free + 1):
        try:
            await fails(users, f"guess{n}", HERE, 1)
            await users.sign_in(olga, GOOD, HERE)
        except RateLimited:
            refused = True
    assert refused


@pytest.mark.parametrize("password", ["", "short", "x" * 1025, "aaaaaaaaaaaaaaa", "olga-olga"])
async def test_a_password_that_is_easily_guessed_is_refused(users: Users, password: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await users.create("olga", "viewer", password=password)
    assert refused.value.param == "password"
    with pytest.raises(NotFound):
        await users.user("olga")


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 65, "a/b", "a\n", "<b>"])
async def test_a_name_is_plain(users: Users, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await users.create(name, "viewer")


async def test_an_admin_is_there_for_all_tenants(users: Users, olga: str) -> None:
    with pytest.raises(InvalidRequest):
        await users.set(olga, "admin", {"ann"})


@pytest.mark.parametrize("tenants", [[], ["a b"], [f"t{n}" for n in range(101)]])
async def test_tenants_of_a_user_are_names(users: Users, olga: str, tenants: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        await users.set(olga, "viewer", tenants)


async def test_a_user_is_made_once_and_changed_only_if_there(users: Users, olga: str) -> None:
    with pytest.raises(IllegalTransition):
        await users.create(olga, "admin")
    assert (await users.user(olga)).role == "operator"
    for change in (users.disable("nobody"), users.set("nobody", "viewer", None), users.set_password("nobody", GOOD)):
        with pytest.raises(NotFound):
            await change


async def test_users_are_listed_by_name(users: Users) -> None:
    for name in ("c", "a", "b"):
        await users.create(name, "viewer")
    first, following = await users.users(limit=2)
    assert [user.name for user in first] == ["a", "b"]
    rest, end = await users.users(following or "", limit=2)
    assert ([user.name for user in rest], end) == (["c"], None)


async def test_all_processes_sign_with_one_secret(users: Users, queue: Queue) -> None:
    assert len({await users.page_secret(), await Users(queue).page_secret()}) == 1
