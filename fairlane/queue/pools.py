"""The registry of pools: a name, the code that tags its keys, and the policy that every dispatcher obeys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Final, cast

from fairlane.errors import InvalidRequest, NotFound
from fairlane.ids import CODE_LENGTH, Ids
from fairlane.model import TIER_PATTERN, Fairness, Policy
from fairlane.queue import keys, replies
from fairlane.queue.store import Store

MOST: Final = 10 * 365 * 86_400_000  # ten years in ms; also more jobs than a Redis holds
_TIER: Final = re.compile(TIER_PATTERN)


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as this process knows it: its name, the prefix of its keys, and its policy when it was opened."""

    name: str
    code: str
    prefix: str
    policy: Policy

    def key(self, name: str, *parts: str) -> str:
        return keys.key(self.prefix, name, *parts)


class Pools:
    """Opens pools, by name or by the code in a job's id, and remembers them."""

    def __init__(self, store: Store, ids: Ids) -> None:
        self._store = store
        self._ids = ids
        self._by_code: dict[str, Pool] = {}

    async def open(self, name: str, policy: Policy) -> Pool:
        """The pool `name`; a new one gets `policy`, one that exists keeps its own. Raises InvalidRequest."""
        _check(policy)
        account = keys.prefix(self._store.namespace, keys.ACCOUNT)
        code = ""
        while not code:
            proposed = self._ids.token(CODE_LENGTH)
            if proposed != keys.ACCOUNT:
                code = replies.text(await self._store.run("register_pool", account, name, proposed))
        prefix = keys.prefix(self._store.namespace, code)
        settings = [part for setting in _settings(policy).items() for part in setting]
        stored = dict(replies.pairs(replies.items(await self._store.run("open_pool", prefix, *settings))))
        return self._remember(Pool(name, code, prefix, _policy(stored)))

    async def by_name(self, name: str) -> Pool:
        """Raises NotFound if no such pool was ever opened."""
        code = await self._store.bounded(self._store.client.hget(keys.pools(self._store.namespace), name))
        if code is None:
            raise NotFound(f"There is no pool {name!r}.")
        return await self.by_code(code.decode())

    async def by_code(self, code: str) -> Pool:
        """Raises NotFound if no pool has this code."""
        if (known := self._by_code.get(code)) is not None:
            return known
        name = await self._store.bounded(self._store.client.hget(keys.codes(self._store.namespace), code))
        if name is None:
            raise NotFound()
        prefix = keys.prefix(self._store.namespace, code)
        stored = await self._store.bounded(self._store.client.hgetall(keys.key(prefix, "pool")))
        if b"tiers" not in stored:
            raise NotFound(f"The pool {name.decode()!r} was registered but not set up. Open it again.")
        return self._remember(Pool(name.decode(), code, prefix, _policy({k.decode(): v for k, v in stored.items()})))

    async def all(self) -> list[Pool]:
        """Every pool, by name."""
        codes = await self._store.bounded(self._store.client.hgetall(keys.pools(self._store.namespace)))
        pools: list[Pool] = []
        for _, code in sorted(codes.items()):
            with suppress(NotFound):  # registered, but not set up yet
                pools.append(await self.by_code(code.decode()))
        return pools

    def _remember(self, pool: Pool) -> Pool:
        self._by_code[pool.code] = pool
        return pool


def _check(policy: Policy) -> None:
    tiers = policy.tiers
    if not 1 <= len(tiers) <= 10 or len(set(tiers)) != len(tiers) or not all(map(_TIER.fullmatch, tiers)):
        raise InvalidRequest(f"There are 1 to 10 tiers, each named once, of the form {TIER_PATTERN}.", param="tiers")
    for field in fields(policy):
        value = getattr(policy, field.name)
        if field.name == "gamma":
            if not 0 <= value <= 1000:
                raise InvalidRequest("gamma is from 0 to 1000 per second.", param="gamma")
        elif isinstance(value, int | float) and not (isinstance(value, int) and 1 <= value <= MOST):
            raise InvalidRequest(f"{field.name} is a whole number from 1 to {MOST}.", param=field.name)


def _settings(policy: Policy) -> dict[str, str]:
    values = asdict(policy) | {"tiers": ",".join(policy.tiers)}
    return {name: str(value) for name, value in values.items()}


def _policy(stored: Mapping[str, bytes]) -> Policy:
    def text(name: str) -> str:
        return stored[name].decode()

    return Policy(
        tiers=tuple(text("tiers").split(",")),
        fairness=cast(Fairness, text("fairness")),
        lease_ms=int(text("lease_ms")),
        stale_ms=int(text("stale_ms")),
        valve_ms=int(text("valve_ms")),
        gamma=float(text("gamma")),
        boost_max_ms=int(text("boost_max_ms")),
        result_ttl_ms=int(text("result_ttl_ms")),
        dead_ttl_ms=int(text("dead_ttl_ms")),
        max_waiting_pool=int(text("max_waiting_pool")),
        max_waiting_tenant=int(text("max_waiting_tenant")),
    )
