"""What can be done to a pool as a whole, and to a tier of it."""

from __future__ import annotations

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Proposal, act
from admin_ui.actions.place import pool_of
from admin_ui.bridge import Stores
from admin_ui.showing import number
from fairlane.errors import IllegalTransition, NotFound
from fairlane.queue.pools import Pool
from fairlane.standing import Overview, TierView

GOES_ON = "What runs goes on, and jobs are still taken in, up to what may wait."


class _Pause(Act):
    """Starts no more of a pool's or a tier's jobs, or starts them again."""

    pauses: bool
    of_tier = False

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        pool, tier = await pool_of(stores, asked), self._tier(asked)
        view = await stores.queue.inspect.overview(pool)
        concerned = _tiers(pool, view, tier)
        what = f"the tier {tier} of {pool.name}" if tier else pool.name
        was = concerned[0].paused if tier else view.paused
        if was == self.pauses:
            raise IllegalTransition(f"{_upper(what)} is {'paused already' if was else 'not paused'}.")
        return Proposal(
            title=f"{'Pause' if self.pauses else 'Resume'} {what}?",
            button="Pause" if self.pauses else "Resume",
            target=f"{pool.name} / {tier}" if tier else pool.name,
            tenant=None,
            back=url_for("pools.pool", pool=pool.name),
            before={"state": _state(was)},
            after={"state": _state(self.pauses)},
            tells=_pausing(concerned) if self.pauses else _resuming(view, concerned, tier),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        pool, tier = await pool_of(stores, asked), self._tier(asked)
        change = stores.queue.pause if self.pauses else stores.queue.resume
        if not await change(pool, tier=tier):
            raise IllegalTransition("Somebody else has done that a moment ago.")
        return Done(f"{_upper(proposal.target)} {'is paused' if self.pauses else 'runs again'}.")

    def _tier(self, asked: Asked) -> str | None:
        return asked.param("tier") if self.of_tier else None


@act("pool.pause", role="operator")
class PausePool(_Pause):
    """Starts no more of a pool's jobs."""

    pauses = True


@act("pool.resume", role="operator")
class ResumePool(_Pause):
    """Undoes `pool.pause`."""

    pauses = False


@act("tier.pause", role="operator")
class PauseTier(_Pause):
    """Starts no more of the jobs of one tier in one pool."""

    of_tier = True
    pauses = True


@act("tier.resume", role="operator")
class ResumeTier(_Pause):
    """Undoes `tier.pause`."""

    of_tier = True
    pauses = False


@act("pool.remove", role="admin")
class RemovePool(Act):
    """Forgets a pool that nothing needs any more."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        pool = await pool_of(stores, asked)
        view = await stores.queue.inspect.overview(pool)
        if why := _needed(view):
            raise IllegalTransition(f"{pool.name} is still needed: {why}.")
        return Proposal(
            title=f"Remove the pool {pool.name}?",
            button="Remove the pool",
            target=pool.name,
            tenant=None,
            back=url_for("pools.index"),
            before={"pool": "there", "policy": f"version {pool.version}", "dead jobs": view.dead},
            after={"pool": "gone"},
            tells=(
                (
                    "Its settings, their history, its past numbers and limits that hold only there go with it, and all "
                    "that is known of jobs that have ended there: they and their results can no longer be looked at."
                ),
                *([f"{number(view.dead)} dead jobs can no longer be requeued."] if view.dead else []),
                "It is refused while batches or webhooks still have to tell of its jobs.",
            ),
            typed=pool.name,
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.queue.pools.remove(asked.param("pool"))
        return Done(f"The pool {proposal.target} is removed.", to=proposal.back)


def _tiers(pool: Pool, view: Overview, tier: str | None) -> tuple[TierView, ...]:
    """The tier of this name, or all. Raises NotFound."""
    found = tuple(one for one in view.tiers if tier in (None, one.tier))
    if not found:
        raise NotFound(f"{pool.name} has no tier {tier!r}.")
    return found


def _pausing(tiers: tuple[TierView, ...]) -> tuple[str, ...]:
    waiting, running = sum(one.depth for one in tiers), sum(one.inflight for one in tiers)
    most = max(one.tenants for one in tiers)
    whose = f" of {number(most)} {'tenant' if most == 1 else 'tenants'}" if len(tiers) == 1 and most else ""
    return (f"{number(waiting)} queued jobs{whose} wait until it is resumed; {number(running)} run.", GOES_ON)


def _resuming(view: Overview, tiers: tuple[TierView, ...], tier: str | None) -> tuple[str, ...]:
    waiting = sum(one.depth for one in tiers)
    told = [f"{number(waiting)} queued jobs may start again, by turns and as the gates allow. Their ages were kept."]
    if tier and view.paused:
        told.append("Careful: the whole pool is paused, so that nothing of the tier starts until that is resumed too.")
    if not tier and (still := [one.tier for one in tiers if one.paused]):
        told.append(f"Tiers that are paused by themselves stay so: {', '.join(still)}.")
    return tuple(told)


def _needed(view: Overview) -> str:
    """What keeps a pool from being removed, as far as it is seen here; close_pool.lua has the last word."""
    reasons = {
        f"it has the backends {', '.join(one.name for one in view.backends)}": len(view.backends),
        f"{number(sum(one.depth for one in view.tiers))} jobs are queued": sum(one.depth for one in view.tiers),
        f"{number(view.delayed)} are delayed": view.delayed,
        f"{number(view.leased)} run": view.leased,
    }
    return ", ".join(words for words, n in reasons.items() if n)


def _state(paused: bool) -> str:
    return "paused" if paused else "runs"


def _upper(words: str) -> str:
    return words[0].upper() + words[1:] if words.startswith("the ") else words
