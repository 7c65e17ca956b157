"""The backends of one pool as this process calls them, kept in step with what Redis says of the pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from dispatcher.backends.answer import CallFailed
from dispatcher.backends.call import Backend, NullBackend
from dispatcher.backends.families import FAMILIES
from dispatcher.policy import lead
from dispatcher.seen import fields
from fairlane.errors import FairlaneError
from fairlane.model import BackendSpec
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.standing import BackendView, PoolLoad

GONE_MS: Final = 4_000  # longer than it takes another observer to take over
GAMMA_FIRST: Final = 0.2  # per second, until the thermostat has set one
Make = Callable[[BackendSpec], Backend]
log = structlog.get_logger()


def make_backend(spec: BackendSpec, over_http: Make) -> Backend:
    """The backend behind a URL: `null://`, or what `over_http` makes of `http(s)://`."""
    return NullBackend() if spec.url.startswith("null:") else over_http(spec)


def takes_priority(view: BackendView) -> bool:
    """Whether the backend belongs to a family that takes a `priority`, and has not refused it since it started."""
    named = view.spec.family if view.spec else None
    family = FAMILIES.get(named or str(fields(view.seen).get("family")))
    return family is not None and family.priority and not view.no_priority


class Backends:
    """Looks a backend up by name, and opens it on first use; closes those that are gone or have another address.

    `pool` is the pool as it stands now, `lead_ms` the lead of its highest tier in an engine (policy/lead.py).
    """

    def __init__(self, queue: Queue, pool: Pool, over_http: Make) -> None:
        self._queue = queue
        self.pool = pool
        self.lead_ms = _lead_ms(pool, {})
        self._over_http = over_http
        self._prioritizing = frozenset[str]()
        self._open: dict[str, tuple[BackendSpec, Backend]] = {}
        self._reading = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def get(self, name: str) -> Backend:
        """Raises CallFailed if the pool has no such backend (any more), or none with an address."""
        if name not in self._open:
            async with self._reading:
                if name not in self._open:
                    await self._read_again()
        if name not in self._open:
            raise CallFailed("unready", f"The pool has no backend {name!r} with an address.")
        return self._open[name][1]

    def takes_priority(self, name: str) -> bool:
        """Whether the backend did so when the pool was last read."""
        return name in self._prioritizing

    async def priority_refused(self, name: str) -> None:
        """Remembers it, here and for the fleet."""
        self._prioritizing -= {name}
        log.info("priority_refused", pool=self.pool.name, backend=name)
        try:
            await self._queue.set_backend(self.pool, name, "no_priority")
        except FairlaneError as error:
            log.warning("backend_not_marked", pool=self.pool.name, backend=name, error=error.code)

    async def refresh(self) -> list[str]:
        """Reads the pool's backends anew. Returns those that are gone: down for longer than GONE_MS."""
        async with self._reading:
            load = await self._read()
        return [
            view.name
            for view in load.backends
            if view.status == "down" and view.down_at_ms and load.now_ms - view.down_at_ms > GONE_MS
        ]

    async def close(self) -> None:
        """Once the calls that are under way have ended."""
        for name in tuple(self._open):
            self._close(name)
        await asyncio.gather(*self._closing)

    def _close(self, name: str) -> None:
        task = asyncio.create_task(self._open.pop(name)[1].close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _read_again(self) -> None:
        try:
            await self._read()
        except FairlaneError as error:
            raise CallFailed("unready", "The pool's backends cannot be read.") from error

    async def _read(self) -> PoolLoad:
        load = await self._queue.inspect.load(self.pool)
        if load.version != self.pool.version:
            self.pool = await self._queue.pools.read(self.pool.code)
        self.lead_ms = _lead_ms(self.pool, fields(load.steer))
        self._prioritizing = frozenset(view.name for view in load.backends if takes_priority(view))
        specs = {view.name: view.spec for view in load.backends if view.spec}
        for name, (spec, _) in tuple(self._open.items()):
            if specs.get(name) != spec:
                self._close(name)
        for name, spec in specs.items():
            if name not in self._open:
                self._open[name] = (spec, make_backend(spec, self._over_http))
        return load


def _lead_ms(pool: Pool, steer: Mapping[str, object]) -> float:
    """What the steering has come to; until then what γ says."""
    policy = pool.policy
    gamma = _number(steer, "gamma", GAMMA_FIRST) if policy.gamma is None else policy.gamma
    return _number(steer, "lead_ms", lead.wanted_ms(len(policy.tiers), gamma))


def _number(steer: Mapping[str, object], name: str, otherwise: float) -> float:
    found = steer.get(name)
    return float(found) if isinstance(found, int | float) else otherwise
