"""Runs ways one after the other, on one private server for those that need it; told how far each has come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from dispatcher.simulator.catalogue import NAMES, WITHOUT_STORE, ways
from dispatcher.simulator.profile import Profile
from dispatcher.simulator.request import Arrival, Request
from dispatcher.simulator.store import private_store
from dispatcher.simulator.ways import Way
from dispatcher.simulator.world import Run, Scheduler, World, run
from fairlane.errors import InvalidRequest
from fairlane.queue.connection import Client

TELL_MS: Final = 1000  # of virtual time
MOST_MS: Final = 4 * 7 * 86_400_000  # four weeks: then a run ends, whoever still waits

# of a run: its virtual time in ms, and how many requests are not answered yet
Tell = Callable[[float, int], None]


def untold(now_ms: float, left: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Stage:
    """Where ways run. `client` is of a server of its own, None if none of them needs one."""

    ways: Mapping[str, Way]
    client: Client | None

    async def run(
        self,
        name: str,
        arrivals: Sequence[Arrival],
        profile: Profile,
        *,
        tiers: Sequence[str],
        backends: int = 1,
        tell: Tell = untold,
    ) -> Run:
        """One way by its name, until every request is answered, or MOST_MS have passed. It can be cancelled."""
        if self.client and name not in WITHOUT_STORE:
            await self.client.flushall()  # pyright: ignore[reportUnknownMemberType]
        way = self.ways[name]
        watched = Watched(way.scheduler(), tell)
        return await run(arrivals, watched, profile, backends=backends, order=way.order, tiers=tiers, until_ms=MOST_MS)


@contextmanager
def opened(names: Iterable[str], seed: int = 0, scrape_ms: int | None = None) -> Generator[Stage]:
    """For these ways (see `check_ways`). Raises StoreUnsuitable without a server program, StoreUnavailable."""
    with ExitStack() as stack:
        if all(name in WITHOUT_STORE for name in names):
            yield Stage(WITHOUT_STORE, None)
            return
        client = stack.enter_context(private_store())
        yield Stage(ways(client, seed, scrape_ms), client)


def check_ways(names: Iterable[str]) -> None:
    """Raises InvalidRequest, which says what ways there are."""
    for name in names:
        if name not in NAMES:
            raise InvalidRequest(f"There is no way {name}. There are: {', '.join(NAMES)}.", param="way")


class Watched:
    """A scheduler that is looked at: what it does is another one's."""

    def __init__(self, scheduler: Scheduler, tell: Tell) -> None:
        self._scheduler = scheduler
        self._tell = tell
        self._due_ms = 0.0

    def begin(self, world: World) -> None:
        self._world = world
        self._scheduler.begin(world)

    def arrive(self, request: Request) -> None:
        self._scheduler.arrive(request)

    def ended(self, request: Request) -> None:
        self._scheduler.ended(request)

    async def act(self) -> None:
        await self._scheduler.act()
        now = self._world.clock.now
        if now >= self._due_ms:
            self._due_ms = now + TELL_MS
            self._tell(now, self._world.left)
