"""What can be done to a tenant: what it may do in one pool or in all, and whether its keys are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from flask import url_for

from admin_ui import limits
from admin_ui.acting import Act, Asked, Done, Proposal, act
from admin_ui.actions.place import need_all_tenants, pool_named
from admin_ui.bridge import Stores
from admin_ui.showing import number
from fairlane.accounts.values import Account
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound
from fairlane.model import Limits
from fairlane.queue.checks import check_tenant
from fairlane.queue.pools import Pool
from fairlane.standing import TenantStanding

TRIES: Final = 10  # changes by others between our reading and writing
TOO_LATE: Final = "Somebody else has done that a moment ago."


class _Pause(Act):
    """Starts no more of a tenant's jobs in one pool, or in all; or starts them again."""

    pauses: bool

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        tenant = _tenant(asked)
        found = {name: one for name, one in (await _found(stores, asked)).items() if one.paused != self.pauses}
        if not found:
            raise IllegalTransition(f"{tenant} is {'paused already' if self.pauses else 'not paused'} there.")
        verb, where = "Pause" if self.pauses else "Resume", limits.place_names(list(found))
        return Proposal(
            title=f"{verb} {tenant} in {where}?",
            button=verb,
            target=f"{tenant} in {where}",
            tenant=tenant,
            back=url_for("tenants.tenant", tenant=tenant),
            before=dict.fromkeys(found, "runs" if self.pauses else "paused"),
            after=dict.fromkeys(found, "paused" if self.pauses else "runs"),
            tells=self.told(found),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        tenant = _tenant(asked)
        change = stores.queue.pause if self.pauses else stores.queue.resume
        changed = [n for n in proposal.before if await change(await pool_named(stores, n), tenant=tenant)]
        if not changed:
            raise IllegalTransition(TOO_LATE)
        return Done(
            f"{tenant} {'was paused' if self.pauses else 'was resumed'} in {limits.place_names(changed)}.",
            before={name: proposal.before[name] for name in changed},
            after={name: proposal.after[name] for name in changed},
        )

    def told(self, found: Mapping[str, TenantStanding]) -> tuple[str, ...]:
        """What follows."""
        raise NotImplementedError


@act("tenant.pause", role="operator")
class PauseTenant(_Pause):
    """Starts no more of a tenant's jobs."""

    pauses = True

    def told(self, found: Mapping[str, TenantStanding]) -> tuple[str, ...]:
        waiting, running = _sums(found)
        return (
            (
                f"{number(waiting)} of its jobs wait until it is resumed; {number(running)} run and go on. Others take "
                "its turns."
            ),
            "Its jobs are still taken in, until its line is full.",
        )


@act("tenant.resume", role="operator")
class ResumeTenant(_Pause):
    """Undoes `tenant.pause`."""

    pauses = False

    def told(self, found: Mapping[str, TenantStanding]) -> tuple[str, ...]:
        waiting, _ = _sums(found)
        return (f"{number(waiting)} of its jobs may start again, by turns. Turns that it missed are not made up for.",)


@act("tenant.limits", role="operator")
class SetLimits(Act):
    """Sets limits that its parameters name: of a tenant in all pools, or in the one that `pool` names."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        tenant = _tenant(asked)
        need_all_tenants(asked.viewer, tenant)
        account, found = await stores.accounts.find(tenant), await _found(stores, asked)
        difference = await _wanted(stores, asked, account, found)
        if not difference:
            raise IllegalTransition(f"Nothing of what {tenant} may do would change.")
        after = {name: text for name, (_, text) in difference.items()}
        pools = await stores.queue.pools.all()
        tiers = {tier for pool in pools for tier in pool.policy.tiers}
        only = asked.params.get("pool")
        return Proposal(
            title=f"Change what {tenant} may do{f' in {only}' if only else ''}?",
            button="Change the limits",
            target=f"{tenant} in {only}" if only else tenant,
            tenant=tenant,
            back=url_for("tenants.tenant", tenant=tenant),
            before={name: text for name, (text, _) in difference.items()},
            after=after,
            tells=(
                *limits.sentences(tenant, after, found),
                *limits.unknown(after, tiers, [pool.name for pool in pools]),
                limits.where(account, only),
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        tenant, only = _tenant(asked), asked.params.get("pool")
        after = {name: str(text) for name, text in proposal.after.items()}
        if not only and await stores.accounts.find(tenant):
            found, _ = await stores.accounts.change_tenant(tenant, after)
            was = limits.account_texts(found)
        else:
            pools = await _pools(stores, asked)
            was = limits.in_pools([await _change(stores, pool, tenant, after) for pool in pools])
        changed = {name: text for name, text in after.items() if text != was[name]}
        if not changed:
            raise IllegalTransition(TOO_LATE)
        what = ", ".join(f"{name} {text}" for name, text in changed.items())
        before = {name: was[name] for name in changed}
        return Done(f"{tenant} was given {what}{f' in {only}' if only else ''}.", before=before, after=changed)


class _Access(Act):
    """Changes whether a tenant's keys are taken."""

    enables: bool

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        tenant = _tenant(asked)
        need_all_tenants(asked.viewer, tenant)
        account = await stores.accounts.tenant(tenant)
        if account.disabled != self.enables:
            raise IllegalTransition(f"{tenant} is {'enabled' if self.enables else 'disabled'} already.")
        active = sum(key.state == "active" for key in await stores.accounts.keys(tenant))
        verb = "Enable" if self.enables else "Disable"
        return Proposal(
            title=f"{verb} the tenant {tenant}?",
            button=verb,
            target=tenant,
            tenant=tenant,
            back=url_for("tenants.tenant", tenant=tenant),
            before={"state": _word(not self.enables)},
            after={"state": _word(self.enables)},
            tells=self.told(active),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        tenant = _tenant(asked)
        await (stores.accounts.enable if self.enables else stores.accounts.disable)(tenant)
        return Done(f"The tenant {tenant} was {_word(self.enables)}.")

    def told(self, active: int) -> tuple[str, ...]:
        """What follows, with how many of its keys are active."""
        raise NotImplementedError


@act("tenant.disable", role="admin")
class DisableTenant(_Access):
    """Refuses all of a tenant's keys."""

    enables = False

    def told(self, active: int) -> tuple[str, ...]:
        return (
            f"Within a second no front door takes its {number(active)} active {'key' if active == 1 else 'keys'}: 401.",
            (
                "Jobs that were taken in go on: pause the tenant to stop them. Its batches submit nothing until it is "
                "enabled, and expire at the end of their 24 hours."
            ),
        )


@act("tenant.enable", role="admin")
class EnableTenant(_Access):
    """Undoes `tenant.disable`."""

    enables = True

    def told(self, active: int) -> tuple[str, ...]:
        keys = "key is" if active == 1 else "keys are"
        return (f"Its {number(active)} active {keys} taken again, within a second, and its batches go on.",)


@act("tenant.register", role="admin")
class RegisterTenant(Act):
    """Registers a tenant, so that it can have keys, and limits in every pool."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        tenant = _tenant(asked)
        need_all_tenants(asked.viewer, tenant)
        if await stores.accounts.find(tenant):
            raise IllegalTransition(f"{tenant} is registered already.")
        return Proposal(
            title=f"Register {tenant}?",
            button="Register",
            target=tenant,
            tenant=tenant,
            back=url_for("tenants.tenant", tenant=tenant),
            before={"registered": "no"},
            after={"registered": "yes"},
            tells=(
                (
                    "It can have keys, and limits that hold in every pool, also in those that are opened later. What "
                    "was set for it in single pools stays until limits are next set for all."
                ),
                "A gateway’s key can no longer act for an end user of this name.",
                "Careful: a tenant that is registered stays so; it can only be disabled.",
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.accounts.create_tenant(_tenant(asked))
        return Done(f"{proposal.target} was registered. A key is made by: fairlane keys create {proposal.target}")


# --- within -----------------------------------------------------------------------------------------------------------


def _tenant(asked: Asked) -> str:
    """Raises InvalidRequest; NotFound for one that is not this viewer's, whatever there is of it."""
    tenant = asked.param("tenant")
    check_tenant(tenant)
    if not asked.viewer.sees(tenant):
        raise NotFound()
    return tenant


async def _pools(stores: Stores, asked: Asked) -> Sequence[Pool]:
    """The pool that `pool` names, or all. Raises NotFound."""
    if name := asked.params.get("pool"):
        return [await pool_named(stores, name)]
    if not (pools := await stores.queue.pools.all()):
        raise NotFound("There is no pool yet.")
    return pools


async def _found(stores: Stores, asked: Asked) -> dict[str, TenantStanding]:
    """What the tenant has in each pool that is concerned. Raises NotFound."""
    pools, tenant = await _pools(stores, asked), _tenant(asked)
    found = await asyncio.gather(*(stores.queue.inspect.tenant(pool, tenant) for pool in pools))
    return {pool.name: one for pool, one in zip(pools, found, strict=True)}


async def _wanted(
    stores: Stores, asked: Asked, account: Account | None, found: Mapping[str, TenantStanding]
) -> dict[str, tuple[str, str]]:
    """What is to change, as text before and after. Raises InvalidRequest, which names the setting."""
    named = {name: value for name, value in asked.params.items() if name not in ("tenant", "pool")}
    if account and not asked.params.get("pool"):
        now = limits.account_texts(account)
    else:
        now = limits.in_pools([one.limits for one in found.values()])
    if unknown := named.keys() - now.keys():
        words = "for a tenant that is not registered, or in one pool" if unknown & {"tiers", "pools"} else "of a tenant"
        raise InvalidRequest(f"{', '.join(sorted(unknown))} cannot be set {words}.", param=min(unknown))
    return limits.changed(now, named)


async def _change(stores: Stores, pool: Pool, tenant: str, after: Mapping[str, str]) -> Limits:
    """Sets these limits, and leaves the others, whoever changes those meanwhile. What they were until then."""
    for _ in range(TRIES):
        known = await stores.queue.inspect.limits(pool, tenant)
        with suppress(IllegalTransition):
            await stores.queue.set_limits(pool, tenant, limits.applied(known, after), expected=known)
            return known
    raise IllegalTransition("Others change these limits at the same time. Look at them, and try again.")


def _sums(found: Mapping[str, TenantStanding]) -> tuple[int, int]:
    return sum(one.waiting for one in found.values()), sum(one.inflight for one in found.values())


def _word(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"
