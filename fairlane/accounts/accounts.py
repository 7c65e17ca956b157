"""The account's state: registered tenants, their limits and keys.

Limits hold per pool. The account keeps each tenant's, with a version, and copies them into the pools: at a change into
all that there are, and, by whoever submits, into one that has not got them yet. A copy never overwrites a newer one.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Mapping
from typing import Final, cast

from fairlane.accounts import values
from fairlane.accounts.secret import PREFIX, Claim, claim_of, digest_of, new_secret, prefix_of
from fairlane.accounts.values import Account, Caller, KeyView, Role
from fairlane.errors import InvalidKey, InvalidRequest, NotFound, StoreFull, StoreUnavailable, TenantForbidden
from fairlane.model import Limits
from fairlane.queue import keys, replies
from fairlane.queue.checks import check_tenant
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.scripts import Reply

KEYS_MOST: Final = 1000  # of one tenant
PAGE_MOST: Final = 1000
_REFUSED: Final = {
    "disabled": "The tenant of this key is disabled.",
    "expired": "This key is past its end. Use the one that took its place, or ask for another.",
    "revoked": "This key was revoked. Ask for another.",
}


class Accounts:
    """Tenants and keys on the queue's Redis. Every method may raise what the queue's do."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._store = queue.store
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)

    # --- tenants ------------------------------------------------------------------------------------------------------

    async def create_tenant(self, tenant: str, changes: Mapping[str, object] | None = None) -> Account:
        """Registers a tenant. Raises InvalidRequest, IllegalTransition if it is there already."""
        return (await self._change("new", tenant, values.account_fields(changes or {})))[1]

    async def set_tenant(self, tenant: str, changes: Mapping[str, object]) -> Account:
        """Changes limits (also in each pool), `tiers` and `pools`, by name; each is a value or its text.

        What is not named stays. Raises InvalidRequest, which names the setting, and NotFound.
        """
        return (await self.change_tenant(tenant, changes))[1]

    async def change_tenant(self, tenant: str, changes: Mapping[str, object]) -> tuple[Account, Account]:
        """As `set_tenant`: the tenant as this very change found it, and as it left it."""
        return await self._change("known", tenant, values.account_fields(changes))

    async def disable(self, tenant: str) -> Account:
        """Refuses all of the tenant's keys. Jobs that were taken in go on, batches submit none. Raises NotFound."""
        return (await self._change("known", tenant, {"disabled": "1"}))[1]

    async def enable(self, tenant: str) -> Account:
        """Undoes `disable`. Raises NotFound."""
        return (await self._change("known", tenant, {"disabled": ""}))[1]

    async def tenant(self, tenant: str) -> Account:
        """A registered tenant. Raises NotFound."""
        if (found := await self.find(tenant)) is None:
            raise NotFound(f"There is no tenant {tenant!r}. `fairlane tenants create {tenant}` makes one.")
        return found

    async def find(self, tenant: str) -> Account | None:
        """The tenant, if it is registered."""
        kept = await self._store.bounded(
            self._store.client.hgetall(keys.account(self._store.namespace, "tenant", tenant))
        )
        return values.account(tenant, {name.decode(): value for name, value in kept.items()}) if kept else None

    async def known(self, tenants: Collection[str]) -> dict[str, Account]:
        """Those of up to PAGE_MOST tenants that are registered, by name."""
        if len(tenants) > PAGE_MOST:
            raise InvalidRequest(f"At most {PAGE_MOST} tenants are looked up at once.", param="tenant")
        pipe = self._store.client.pipeline(transaction=False)
        for tenant in tenants:
            pipe.hgetall(keys.account(self._store.namespace, "tenant", tenant))
        found = cast("list[dict[bytes, bytes]]", await self._store.bounded(pipe.execute()) if tenants else [])
        kept = ({name.decode(): value for name, value in fields.items()} for fields in found)
        return {name: values.account(name, one) for name, one in zip(tenants, kept, strict=True) if one}

    async def tenants(self, after: str = "", limit: int = 100) -> tuple[list[Account], str | None]:
        """Registered tenants by name, and the name after which the next page starts, or None."""
        if not 1 <= limit <= PAGE_MOST:
            raise InvalidRequest(f"A page has 1 to {PAGE_MOST} tenants.", param="limit")
        rows = replies.items(await self._store.run("list_tenants", self._prefix, after, str(limit + 1)))
        found = [_account(*replies.items(row)) for row in rows]
        return found[:limit], found[limit - 1].tenant if len(found) > limit else None

    async def copy_limits(self, pool: Pool, tenant: str) -> Limits | None:
        """Sees to it that a pool has the limits of a tenant; returns them, or None if the account has none for it."""
        found = await self.find(tenant)
        if found is None or found.version == 0:
            return None
        await self._queue.set_limits(pool, tenant, found.limits, version=found.version)
        return found.limits

    # --- keys ---------------------------------------------------------------------------------------------------------

    async def create_key(
        self,
        tenant: str,
        *,
        role: Role = "tenant",
        tiers: Collection[str] | None = None,
        pools: Collection[str] | None = None,
        lasts_s: float | None = None,
        label: str = "",
    ) -> tuple[KeyView, str]:
        """A new key and its secret, which nobody can ask for again. `tiers` and `pools` narrow what its tenant may use.

        Raises InvalidRequest, NotFound if the tenant is not registered, IllegalTransition if it has KEYS_MOST keys.
        """
        check_tenant(tenant)
        made = [part for field in values.key_fields(role, tiers, pools, label).items() for part in field]
        lasts = "" if lasts_s is None else str(_ms("lasts_s", lasts_s, least=1))
        return await self._new_key(
            lambda prefix, digest: ("create_key", prefix, digest, tenant, lasts, str(KEYS_MOST), *made)
        )

    async def keys(self, tenant: str) -> list[KeyView]:
        """A tenant's keys, the oldest first; for 30 days also those that can no longer be used."""
        rows = replies.items(await self._store.run("list_keys", self._prefix, tenant, str(KEYS_MOST)))
        return [_key(row) for row in rows]

    async def revoke(self, prefix: str) -> KeyView:
        """Ends a key: within a second no front door takes it. Repeatable. Raises NotFound."""
        return _key(await self._store.run("revoke_key", self._prefix, _known(prefix)))

    async def rotate(self, prefix: str, overlap_s: float = 0.0) -> tuple[KeyView, str]:
        """A key that takes this one's place, and its secret: it may do the same, and lasts as long from now on.

        The old one can be used for `overlap_s` yet. Raises InvalidRequest, NotFound, IllegalTransition if it was
        revoked, is past its end, or was rotated before.
        """
        old, overlap = _known(prefix), str(_ms("overlap_s", overlap_s, least=0))
        return await self._new_key(lambda new, digest: ("rotate_key", old, new, digest, overlap))

    async def authenticate(self, secret: str, end_user: str | None = None) -> Caller:
        """Who sends this secret. A gateway's key may name the `end_user`, who is then the tenant.

        Raises InvalidKey; InvalidRequest for what is no tenant's name; TenantForbidden for an end user with another
        role's key, or with the name of a registered tenant.
        """
        if (claim := claim_of(secret)) is None:
            raise InvalidKey()
        return await self.holder(claim, end_user)

    async def holder(self, claim: Claim, end_user: str | None = None) -> Caller:
        """As `authenticate`, for who keeps no secret."""
        if end_user is not None:
            check_tenant(end_user)
        prefix, digest = claim
        reply = await self._store.run("authenticate", self._prefix, prefix, digest, end_user or "")
        if reply is None:
            raise InvalidKey()
        stored, state, tenant, role, *grants, taken = replies.items(reply)
        if not hmac.compare_digest(replies.text(stored), digest):
            raise InvalidKey()
        if (word := replies.text(state)) in _REFUSED:
            raise InvalidKey(_REFUSED[word])
        tiers, pools, its_tiers, its_pools = (values.unpacked(replies.text(each).encode()) for each in grants)
        allowed = (values.both(tiers, its_tiers), values.both(pools, its_pools))
        caller = Caller(replies.text(tenant), _role(replies.text(role)), *allowed)
        return _for_end_user(caller, end_user, taken=replies.text(taken) == "1")

    # --- within -------------------------------------------------------------------------------------------------------

    async def _change(self, which: str, tenant: str, fields: Mapping[str, str]) -> tuple[Account, Account]:
        check_tenant(tenant)
        limits = any(name in values.LIMITS for name in fields)
        args = (tenant, which, "1" if limits else "0", *(part for field in fields.items() for part in field))
        # a second run would find the tenant that the first one made
        reply = await self._store.run("set_tenant", self._prefix, *args, repeat=which == "known")
        was, changed = (values.account(tenant, dict(replies.pairs(replies.items(one)))) for one in replies.items(reply))
        if limits:
            await self._copy_to_all(changed)
        return was, changed

    async def _copy_to_all(self, changed: Account) -> None:
        """A pool that is away gets its copy when the tenant next submits there."""
        away: StoreUnavailable | StoreFull | None = None
        for pool in await self._queue.pools.all():
            try:
                await self._queue.set_limits(pool, changed.tenant, changed.limits, version=changed.version)
            except (StoreUnavailable, StoreFull) as error:
                away = error
        if away:
            raise away

    async def _new_key(self, script: Callable[[str, str], tuple[str, ...]]) -> tuple[KeyView, str]:
        """Runs a script that takes a new prefix and digest, until the prefix is one that nobody has."""
        while True:
            prefix, secret = new_secret()
            name, *args = script(prefix, digest_of(secret))
            if (reply := await self._store.run(name, self._prefix, *args)) is not None:
                return _key(reply), secret


def _account(name: Reply, fields: Reply) -> Account:
    return values.account(replies.text(name), dict(replies.pairs(replies.items(fields))))


def _key(reply: Reply) -> KeyView:
    prefix, state, fields = replies.items(reply)
    return values.key_view(replies.text(prefix), replies.text(state), dict(replies.pairs(replies.items(fields))))


def _role(word: str) -> Role:
    return "operator" if word == "operator" else "gateway" if word == "gateway" else "tenant"


def _for_end_user(caller: Caller, end_user: str | None, *, taken: bool) -> Caller:
    if end_user is None or end_user == caller.tenant:
        return caller
    if caller.role != "gateway":
        raise TenantForbidden("Only a gateway's key may name an end user.", param="tenant")
    if taken:
        raise TenantForbidden(
            f"{end_user!r} is a tenant of its own, and none of the gateway's end users.", param="tenant"
        )
    return Caller(end_user, caller.role, caller.tiers, caller.pools)


def _known(prefix: str) -> str:
    """A prefix as it was typed, or that of a whole secret that was pasted, which is never shown again."""
    found = prefix_of(prefix) or prefix.removeprefix("fl-")
    if PREFIX.fullmatch(found) is None:
        raise InvalidRequest("A key is named by its prefix: the ten characters after `fl-`.", param="prefix")
    return found


def _ms(name: str, seconds: float, *, least: int) -> int:
    if not least / 1000 <= seconds <= values.LASTS_MOST_S:  # also refuses NaN
        raise InvalidRequest(f"{name} is a number of seconds, of ten years at the most.", param=name)
    return round(1000 * seconds)
