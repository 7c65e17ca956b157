"""The registry of pools: a name, the code that tags its keys, and the policy that every dispatcher obeys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fairlane.errors import InvalidRequest, NotFound
from fairlane.ids import CODE_LENGTH, Ids
from fairlane.model import Policy
from fairlane.queue import keys, policies, replies
from fairlane.queue.store import Store

NAME_MOST: Final = 256  # characters
PART: Final = 500  # keys in one go
FADE_MS: Final = 60_000  # so long who does not know that a pool was removed can write to it
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
        check_name(name)
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
        return await self.by_code(await self._code(name))

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
        if not stored.get(b"tiers"):
            self._by_code.pop(code, None)
            gone = "is being removed" if b"tiers" in stored else "was registered but not set up. Open it again"
            raise NotFound(f"The pool {name!r} {gone}.")
        return self._remember(name, code, {k.decode(): v for k, v in stored.items()})

    async def all(self) -> list[Pool]:
        """Every pool as `current` has it, by name."""
        codes = await self._store.bounded(self._store.client.hgetall(keys.pools(self._store.namespace)))
        pools: list[Pool] = []
        for _, code in sorted(codes.items()):
            with suppress(NotFound):  # registered, but not set up yet
                pools.append(await self.by_code(code.decode()))
        return pools

    async def served(self) -> list[str]:
        """The names of the pools that have a backend, at this moment."""
        return [pool.name for pool in await self.all() if await self._has_backend(pool)]

    async def remove(self, name: str) -> None:
        """Forgets a pool that nothing needs any more, with what it knew of jobs that have ended.

        First it takes nothing in any more, in the end its name is free; what fails between is done by the next try.
        Raises NotFound, IllegalTransition.
        """
        code = await self._code(name)
        prefix = keys.prefix(self._store.namespace, code)
        await self._store.run("close_pool", prefix)
        self._by_code.pop(code, None)
        await self._fade(prefix)
        await self._store.run("unregister_pool", keys.prefix(self._store.namespace, keys.ACCOUNT), name, code)

    async def _fade(self, prefix: str) -> None:
        walk = self._store.client.scan_iter(match=f"{prefix}*", count=PART)
        part: list[bytes] = []
        while (key := await self._store.bounded(anext(walk, None))) is not None:
            part.append(key)
            if len(part) == PART:
                await self._store.run("fade_keys", prefix, str(FADE_MS), *part)
                part = []
        await self._store.run("fade_keys", prefix, str(FADE_MS), *part)

    async def _has_backend(self, pool: Pool) -> bool:
        return bool(await self._store.bounded(self._store.client.hget(pool.key("pool"), "backends")))

    async def _code(self, name: str) -> str:
        code = await self._store.bounded(self._store.client.hget(keys.pools(self._store.namespace), name))
        if code is None:
            raise NotFound(f"There is no pool {name!r}.")
        return code.decode()

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


def check_name(name: str) -> None:
    """Raises InvalidRequest for a pool's name that cannot be shown, or be part of an address."""
    if not (name and len(name) <= NAME_MOST and name.isprintable()):
        raise InvalidRequest(f"A pool's name has 1 to {NAME_MOST} characters, all visible or spaces.", param="pool")
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise InvalidRequest("The parts of a pool's name between slashes are not empty, nor `.` or `..`.", param="pool")
