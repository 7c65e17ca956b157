"""What can be changed of a pool's policy, and taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Field, Proposal, act
from admin_ui.actions.place import pool_of
from admin_ui.bridge import Stores
from admin_ui.consequences import Change, destroys, sentences
from admin_ui.meaning import given
from admin_ui.numerals import whole
from fairlane.errors import IllegalTransition, InvalidRequest, NotFound
from fairlane.queue import policies
from fairlane.queue.pools import Pool
from fairlane.standing import PolicyChange

VERSIONS_MOST: Final = 10**9
Difference = Mapping[str, tuple[str, str]]  # the text before and after, by the setting's name


class _Change(Act):
    """Changes settings of a pool's policy."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        pool = await pool_of(stores, asked)
        difference = await self.wanted(stores, pool, asked)
        if not difference:
            raise IllegalTransition(f"Nothing of the policy of {pool.name} would change.")
        return await _proposal(stores, pool, difference, self.title(pool, asked))

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        pool = await pool_of(stores, asked)
        difference = await self.wanted(stores, pool, asked)
        changes = await _set(stores, pool, difference, asked, proposal)
        what = ", ".join(f"{name} {after}" for name, after in changes.items())
        return Done(f"The policy of {pool.name} is at version {pool.version + 1}: {what}.")

    async def wanted(self, stores: Stores, pool: Pool, asked: Asked) -> Difference:
        """What is to change. Raises InvalidRequest, which names the setting."""
        raise NotImplementedError

    def title(self, pool: Pool, asked: Asked) -> str:
        """The question."""
        return f"Change the policy of {pool.name}?"


@act("policy.set", role="operator")
class SetPolicy(_Change):
    """Changes the settings that its parameters name, all at once."""

    async def wanted(self, stores: Stores, pool: Pool, asked: Asked) -> Difference:
        named = {name: value for name, value in asked.params.items() if name != "pool"}
        if unknown := named.keys() - set(policies.NAMES):
            raise InvalidRequest(f"A policy has no setting {', '.join(sorted(unknown))}.", param=min(unknown))
        return given(pool.policy, named)


@act("policy.free_gamma", role="operator")
class FreeGamma(_Change):
    """Lets the thermostat set γ."""

    async def wanted(self, stores: Stores, pool: Pool, asked: Asked) -> Difference:
        return given(pool.policy, {"gamma": policies.AUTO})

    def title(self, pool: Pool, asked: Asked) -> str:
        return f"Let the thermostat of {pool.name} set γ?"


@act("policy.pin_gamma", role="operator")
class PinGamma(Act):
    """Sets γ for good, and the thermostat aside."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        pool = await pool_of(stores, asked)
        load = await stores.queue.inspect.load(pool)
        now = gamma_now(load.steer) if pool.policy.gamma is None else pool.policy.gamma
        difference: Difference = {}
        if asked.values:
            try:
                difference = _pinned(pool, asked.values.get("gamma", ""))
            except InvalidRequest:
                difference = {}  # carrying it out says so, at the field
        field = Field(
            "gamma", "γ per second", "number", value="" if now is None else f"{now:.4g}", required=True,
            help="0 to 1000. The smaller, the more a short job gains over a long one; 0 gives no boost.",
        )  # fmt: skip
        before, after = _sides(difference)
        thermostat = "" if now is None or pool.policy.gamma is not None else f" Now it has set {now:.3g}/s."
        return Proposal(
            title=f"Pin γ of {pool.name}?",
            button="Pin γ",
            target=pool.name,
            tenant=None,
            back=url_for("pools.pool", pool=pool.name),
            before=before,
            after=after,
            tells=(
                f"The thermostat no longer steers, until γ is freed.{thermostat}",
                "It holds for jobs that are taken in from then on.",
            ),
            fields=(field,),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        pool = await pool_of(stores, asked)
        difference = _pinned(pool, asked.values.get("gamma", ""))
        if not difference:
            raise IllegalTransition(f"γ is pinned at {asked.values['gamma']}/s already.")
        after = (await _set(stores, pool, difference, asked, proposal))["gamma"]
        return Done(f"γ of {pool.name} is pinned at {after}/s (version {pool.version + 1} of its policy).")


@act("policy.revert", role="operator")
class RevertPolicy(_Change):
    """Sets the whole policy to what it was after an earlier change; version 0: as the pool was opened."""

    async def wanted(self, stores: Stores, pool: Pool, asked: Asked) -> Difference:
        if (version := whole(asked.param("version"), VERSIONS_MOST)) is None:
            raise InvalidRequest("version is a whole number.", param="version")
        history = await stores.queue.inspect.policy_history(pool)
        return given(pool.policy, as_of(policies.texts(pool.policy), pool.version, history, version))

    def title(self, pool: Pool, asked: Asked) -> str:
        version = asked.params["version"]
        then = "it was when it was opened" if version == "0" else f"it was at version {version}"
        return f"Set the policy of {pool.name} to what {then}?"


def as_of(now: Mapping[str, str], current: int, history: Sequence[PolicyChange], version: int) -> dict[str, str]:
    """The settings as they stood at an earlier version; `history` has the latest change first. Raises NotFound."""
    later = [change for change in history if change.version > version]
    if version >= current or len(later) != current - version:
        raise NotFound(f"What the policy was at version {version} is not known any more.")
    texts = dict(now)
    for change in later:
        texts |= {name: before for name, (before, _) in change.changes.items() if name in texts}
    return texts


async def _proposal(stores: Stores, pool: Pool, difference: Difference, title: str) -> Proposal:
    load = await stores.queue.inspect.load(pool)
    before, after = _sides(difference)
    new = policies.changed(pool.policy, {name: text for name, (_, text) in difference.items()})
    change = Change(pool.policy, new, load.tiers, load.backends)
    return Proposal(
        title=title,
        button="Change the policy",
        target=pool.name,
        tenant=None,
        back=url_for("pools.pool", pool=pool.name),
        before=before,
        after=after,
        tells=sentences(change, list(difference)),
        typed=pool.name if destroys(pool.policy, new) else None,
    )


async def _set(
    stores: Stores, pool: Pool, difference: Difference, asked: Asked, proposal: Proposal
) -> Mapping[str, str]:
    """Makes the change, if it still is the one that was proposed; what it sets. Raises IllegalTransition."""
    if _sides(difference) != (proposal.before, proposal.after):
        raise IllegalTransition("Somebody else changed this policy a moment ago. Look at it, and try again.")
    changes = {name: after for name, (_, after) in difference.items()}
    await stores.queue.set_policy(pool, changes, by=asked.viewer.name, version=pool.version)
    return changes


def _sides(difference: Difference) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What is before and after, as a proposal has it."""
    return (
        {name: _spaced(before) for name, (before, _) in difference.items()},
        {name: _spaced(after) for name, (_, after) in difference.items()},
    )


def _spaced(text: str) -> str:
    """A list of names, so that it can be broken between them."""
    return text.replace(",", ", ")


def _pinned(pool: Pool, text: str) -> Difference:
    """Raises InvalidRequest."""
    if text.strip() == policies.AUTO or not text.strip():
        raise InvalidRequest("gamma is a number from 0 to 1000 per second.", param="gamma")
    return given(pool.policy, {"gamma": text})


def gamma_now(steer: str) -> float | None:
    """What the thermostat last set; None if no observer has steered yet."""
    try:
        gamma: object = json.loads(steer).get("gamma")
    except (ValueError, AttributeError):
        return None
    return float(gamma) if isinstance(gamma, int | float) else None
