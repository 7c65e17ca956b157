"""How views read: through the bridge, and what many viewers look at only once a second for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

from flask import current_app

from admin_ui.bridge import Bridge, Stores

KEPT_S: Final = 1.0
KEPT_MOST: Final = 1000
T = TypeVar("T")


class Readings:
    """The answers of the last second. Whoever asks for one that is on its way waits for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[float, Future[Any]]] = {}

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """The answer to `key`: of the last second, or what `read` returns now. What it raises is raised by all who
        wait for it, and is not kept."""
        with self._lock:
            at, known = self._kept.get(key, (0.0, None))
            mine = known is None or self._clock() - at >= KEPT_S
            if mine:
                known = Future[Any]()
                self._keep(key, known)
        assert known is not None  # noqa: S101  # for the type checker
        if not mine:
            return cast(T, known.result())
        try:
            answer = read()
        except BaseException as error:
            with self._lock:
                self._kept.pop(key, None)
            known.set_exception(error)
            raise
        known.set_result(answer)
        return answer

    def clear(self) -> None:
        """Forgets all: something was changed."""
        with self._lock:
            self._kept = {}

    def _keep(self, key: Hashable, answer: Future[Any]) -> None:
        now = self._clock()
        if len(self._kept) >= KEPT_MOST:
            self._kept = {k: kept for k, kept in self._kept.items() if now - kept[0] < KEPT_S}
        self._kept[key] = (now, answer)


def ask(what: Callable[[Stores], Awaitable[T]]) -> T:
    """What the stores answer now. Raises the errors of what is asked."""
    bridge: Bridge = current_app.extensions["bridge"]
    return bridge.ask(what)


def cached(key: Hashable, what: Callable[[Stores], Awaitable[T]]) -> T:
    """As `ask`, but once a second for all viewers. `key` holds all that the answer depends on, the viewer's tenants
    too where it does."""
    readings: Readings = current_app.extensions["readings"]
    return readings.get(key, lambda: ask(what))
