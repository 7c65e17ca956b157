"""Trying again: with full jitter, never sooner than Retry-After says, and never beyond a total time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fairlane.errors import FairlaneError

FIRST_S: Final = 0.1
MOST_S: Final = 5.0
T = TypeVar("T")


def pause_s(tries: int, retry_after: float | None) -> float:
    """Seconds to wait after the `tries`-th failure in a row (from 1): what was asked for, and a random part.

    Full jitter, https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
    """
    return (retry_after or 0.0) + random.uniform(0.0, min(MOST_S, FIRST_S * 2.0 ** min(tries - 1, 16)))


async def patiently(act: Callable[[], Awaitable[T]], for_s: float | None) -> T:
    """The answer of `act`, which must be safe to repeat; after `for_s` seconds (None: never) its last error."""
    ends = None if for_s is None else time.monotonic() + for_s
    tries = 0
    while True:
        try:
            return await act()
        except FairlaneError as error:
            tries += 1
            pause = pause_s(tries, error.retry_after)
            if not error.retryable or (ends is not None and time.monotonic() + pause > ends):
                raise
        await asyncio.sleep(pause)
