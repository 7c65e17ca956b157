"""The registry of pools: a name, the code that tags its keys, and the policy that every dispatcher obeys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fairlane.errors import NotFound
from fairlane.ids import CODE_LENGTH, Ids
from fairlane.model import Policy
from fairlane.queue import keys, policies, replies
from fairlane.queue.store import Store

CURRENT_S: Final = 1.0  # a policy that was read longer ago is read again


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as this process knows it: its name, the prefix of its keys, and its policy when that was read.

    `version` counts the policy's changes. `Pools.current` gives the pool as it stands now.
    """

    name: str
    code: str
    prefix: str
    policy: Policy
    version: int = 0

    def key(self, name: str, *parts: str) -> str:
        return keys.key(self.prefix, name, *parts)


class Pools:
    """Opens pools, by name or by the code in a job's id, and remembers them, each for CURRENT_S."""

    def __init__(self, store: Store, ids: Ids) -> None:
        self._store = store
        self._ids = ids
        self._by_code: dict[str, Pool] = {}
        self._read_at: dict[str, float] = {}  # by code, in loop time

    async def open(self, name: str, policy: Policy) -> Pool:
        """The pool `name`; a new one gets `policy`, one that exists keeps its own. Raises InvalidRequest."""
        policies.check(policy)
        account = keys.prefix(self._store.namespace, keys.ACCOUNT)
        code = ""
        while not code:
            proposed = self._ids.token(CODE_LENGTH)
            if proposed != keys.ACCOUNT:
                code = replies.text(await self._store.run("register_pool", account, name, proposed))
        prefix = keys.prefix(self._store.namespace, code)
        settings = [part for setting in policies.texts(policy).items() for part in setting]
        stored = dict(replies.pairs(replies.items(await self._store.run("open_pool", prefix, *settings))))
        return self._remember(name, code, stored)

    async def by_name(self, name: str) -> Pool:
        """The pool as `current` has it. Raises NotFound if no such pool was ever opened."""
        code = await self._store.bounded(self._store.client.hget(keys.pools(self._store.namespace), name))
        if code is None:
            raise NotFound(f"There is no pool {name!r}.")
        return await self.by_code(code.decode())

    async def by_code(self, code: str) -> Pool:
        """The pool as `current` has it. Raises NotFound if no pool has this code."""
        if (known := self._by_code.get(code)) is None:
            return await self.read(code)
        now = asyncio.get_running_loop().time()
        if now - self._read_at[code] < CURRENT_S:
            return known
        self._read_at[code] = now  # others go on with what is known meanwhile
        return await self.read(code)

    async def current(self, pool: Pool) -> Pool:
        """The pool with its policy as it stands now, or stood CURRENT_S ago. Raises StoreUnavailable."""
        return await self.by_code(pool.code)

    async def read(self, code: str) -> Pool:
        """The pool with its policy as it stands at this moment. Raises NotFound."""
        name = await self._name(code)
        stored = await self._store.bounded(
            self._store.client.hgetall(keys.key(keys.prefix(self._store.namespace, code), "pool"))
        )
        if b"tiers" not in stored:
            raise NotFound(f"The pool {name!r} was registered but not set up. Open it again.")
        return self._remember(name, code, {k.decode(): v for k, v in stored.items()})

    async def all(self) -> list[Pool]:
        """Every pool as `current` has it, by name."""
        codes = await self._store.bounded(self._store.client.hgetall(keys.pools(self._store.namespace)))
        pools: list[Pool] = []
        for _, code in sorted(codes.items()):
            with suppress(NotFound):  # registered, but not set up yet
                pools.append(await self.by_code(code.decode()))
        return pools

    async def _name(self, code: str) -> str:
        if (known := self._by_code.get(code)) is not None:
            return known.name
        name = await self._store.bounded(self._store.client.hget(keys.codes(self._store.namespace), code))
        if name is None:
            raise NotFound()
        return name.decode()

    def _remember(self, name: str, code: str, stored: Mapping[str, bytes]) -> Pool:
        """Keeps what was read from the pool's hash."""
        version = int(stored.get("version", b"0"))
        prefix = keys.prefix(self._store.namespace, code)
        pool = self._by_code[code] = Pool(name, code, prefix, policies.policy_of(stored), version)
        self._read_at[code] = asyncio.get_running_loop().time()
        return pool
