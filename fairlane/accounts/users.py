"""The users of the admin page: roles, the tenants they may see, passwords, and logins that can be used once."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, cast, get_args

import anyio
from anyio.to_thread import run_sync

from fairlane.accounts import passwords, throttle
from fairlane.accounts.sittings import IDLE_MS, MOST_MS, Sittings, UserRole, digest_of, new_token, scope_of
from fairlane.errors import InvalidRequest, NotFound, RateLimited
from fairlane.queue import keys, replies
from fairlane.queue.checks import check_tenant
from fairlane.queue.engine import Queue
from fairlane.queue.scripts import Reply

__all__ = ["ROLES", "SignIn", "User", "UserRole", "Users"]

ROLES: Final[tuple[UserRole, ...]] = get_args(UserRole)  # each may do what those before it may
TENANTS_MOST: Final = 100
PAGE_MOST: Final = 1000
ONCE_MS: Final = 600_000
_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_AT_ONCE: Final = 2  # passwords that are checked: each takes 64 MiB


@dataclass(frozen=True, slots=True)
class User:
    """A user of the admin page. `tenants` are those that they may see and act on; None: all. `seen_at_ms`, right to a
    minute, and `seen_from` are of the last use of the page."""

    name: str
    role: UserRole
    tenants: frozenset[str] | None
    disabled: bool
    has_password: bool
    created_at_ms: int
    seen_at_ms: int | None
    seen_from: str | None


@dataclass(frozen=True, slots=True)
class SignIn:
    """What came of a try: the token of a new sitting, or none. `known`: there is a user of this name."""

    token: str | None
    known: bool


class Users:
    """The users on the queue's Redis. Every method may raise what the queue's do."""

    def __init__(self, queue: Queue) -> None:
        self._store = queue.store
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)
        self._checking = anyio.CapacityLimiter(_AT_ONCE)
        self.sittings = Sittings(queue)

    async def create(
        self, name: str, role: UserRole, tenants: Collection[str] | None = None, password: str | None = None
    ) -> User:
        """Makes a user; without a password only a one-time login lets them in. `tenants` None: all.

        Raises InvalidRequest, IllegalTransition if there is one of this name already.
        """
        _check_name(name)
        fields = _rights(role, tenants)
        if password is not None:
            fields["password"] = await self._hashed(name, password)
        return await self._change("new", name, fields)

    async def set(self, name: str, role: UserRole, tenants: Collection[str] | None) -> User:
        """Changes what a user may do, from their next request on. Raises InvalidRequest, NotFound."""
        return await self._change("known", name, _rights(role, tenants))

    async def set_password(self, name: str, password: str) -> User:
        """Gives a user another password, and ends all their sittings. Raises InvalidRequest, NotFound."""
        await self.user(name)
        return await self._change("known", name, {"password": await self._hashed(name, password)}, ends=True)

    async def disable(self, name: str) -> User:
        """Lets a user in no more, and ends all their sittings. Raises NotFound."""
        return await self._change("known", name, {"disabled": "1"}, ends=True)

    async def enable(self, name: str) -> User:
        """Undoes `disable`; sittings stay ended. Raises NotFound."""
        return await self._change("known", name, {"disabled": ""})

    async def user(self, name: str) -> User:
        """The user of this name. Raises NotFound."""
        kept = await self._store.bounded(self._store.client.hgetall(keys.account(self._store.namespace, "user", name)))
        if not kept:
            raise NotFound(f"There is no user {name!r}. `fairlane users create NAME` makes one.")
        return _user(name, {field.decode(): value for field, value in kept.items()})

    async def users(self, after: str = "", limit: int = 100) -> tuple[list[User], str | None]:
        """Users by name, and the name after which the next page starts, or None."""
        if not 1 <= limit <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} users.", param="limit")
        rows = replies.items(await self._store.run("list_users", self._prefix, after, str(limit + 1)))
        found = [_shown(row) for row in rows]
        return found[:limit], found[limit - 1].name if len(found) > limit else None

    # --- signing in ---------------------------------------------------------------------------------------------------

    async def sign_in(self, name: str, password: str, address: str) -> SignIn:
        """Begins a sitting, if this is the user's password. It takes as long if there is no such user.

        Raises RateLimited, with the time to wait, after too many tries with this name or from this address.
        """
        stored, known = await self._tried(name, address)
        right = await run_sync(passwords.verify, stored, password, limiter=self._checking)
        token = new_token()
        whom = (name, throttle.digest_of(name), address, throttle.origin_of(address))
        lasts = (digest_of(token), str(IDLE_MS), str(MOST_MS))
        begun = right and await self._store.run("begin_sitting", self._prefix, *whom, stored, *lasts)
        return SignIn(token if begun else None, known)

    async def allow_once(self, name: str, lasts_ms: int = ONCE_MS) -> str:
        """A secret with which a user can sign in once, without a password. Raises NotFound, IllegalTransition."""
        secret = new_token()
        await self._store.run("allow_once", self._prefix, name, digest_of(secret), str(lasts_ms))
        return secret

    async def enter_once(self, secret: str, address: str) -> tuple[str, str] | None:
        """Begins a sitting by such a secret: the user's name and the token; None if it is none (any more)."""
        token = new_token()
        args = (digest_of(secret), address, digest_of(token), str(IDLE_MS), str(MOST_MS))
        # a second run would find the secret used
        reply = await self._store.run("enter_once", self._prefix, *args, repeat=False)
        return None if reply is None else (replies.text(reply), token)

    async def page_secret(self) -> str:
        """What the cookies of the admin page are signed with: one secret for all its processes."""
        return replies.text(await self._store.run("page_secret", self._prefix, new_token()))

    # --- within -------------------------------------------------------------------------------------------------------

    async def _tried(self, name: str, address: str) -> tuple[str, bool]:
        """Counts a try; the hash to compare with ('' if there is none), and whether there is such a user."""
        # a name that nobody can have need not reach Redis as it is
        whom = (name if _NAME.fullmatch(name) else "", throttle.digest_of(name), throttle.origin_of(address))
        args = (*whom, *throttle.arguments())
        wait, *found = replies.items(await self._store.run("try_password", self._prefix, *args))
        if not found:
            wait_s = max(1, -(-replies.number(wait) // 1000))
            raise RateLimited(f"Too many tries. Wait {wait_s} s, then try again.", retry_after=wait_s)
        stored, known = replies.texts(found)
        return stored, known == "1"

    async def _hashed(self, name: str, password: str) -> str:
        passwords.check(name, password)
        return await run_sync(passwords.hashed, password, limiter=self._checking)

    async def _change(self, which: str, name: str, fields: Mapping[str, str], *, ends: bool = False) -> User:
        args = (name, which, "1" if ends else "0", *(part for field in fields.items() for part in field))
        # a second run would find the user that the first one made
        return _shown(await self._store.run("set_user", self._prefix, *args, repeat=which == "known"))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"A user's name has the form {_NAME.pattern}.", param="name")


def _rights(role: UserRole, tenants: Collection[str] | None) -> dict[str, str]:
    """The fields of a user's hash. An admin makes users, and so could see all tenants anyway."""
    if role not in ROLES:
        raise InvalidRequest(f"A user's role is one of {', '.join(ROLES)}.", param="role")
    if tenants is None:
        return {"role": role, "tenants": ""}
    if role == "admin":
        raise InvalidRequest("An admin is there for all tenants. Give a role of less, or no tenants.", param="tenants")
    if not 1 <= len(tenants) <= TENANTS_MOST:
        raise InvalidRequest(f"Tenants are all, or 1 to {TENANTS_MOST} names.", param="tenants")
    for tenant in tenants:
        check_tenant(tenant)
    return {"role": role, "tenants": json.dumps(sorted(set(tenants)))}


def _shown(reply: Reply) -> User:
    name, fields = replies.items(reply)
    return _user(replies.text(name), dict(replies.pairs(replies.items(fields))))


def _user(name: str, kept: Mapping[str, bytes]) -> User:
    return User(
        name,
        cast(UserRole, kept["role"].decode()),
        scope_of(kept.get("tenants", b"").decode()),
        disabled="disabled" in kept,
        has_password="password" in kept,
        created_at_ms=int(kept["created"]),
        seen_at_ms=int(kept["seen"]) if "seen" in kept else None,
        seen_from=kept["seen_from"].decode() if "seen_from" in kept else None,
    )
