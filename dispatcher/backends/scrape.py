"""One look at a backend's metrics page: what runs there, what waits, and how fast tokens come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import httpx

from dispatcher.backends import exposition
from dispatcher.backends.address import base_url, shown
from dispatcher.backends.families import FAMILIES, Family, owner
from fairlane.errors import FairlaneError

TIMEOUT_S: Final = 2.0  # a vLLM on a busy CPU was seen to take 1.1 s while 400 requests arrived at once
MOST_REQUESTS: Final = 10_000_000
STARTED: Final = "process_start_time_seconds"

Reason = Literal["unreachable", "timeout", "status", "too_large", "unreadable", "unknown", "missing"]
Series = Mapping[str, Sequence[float]]


class ScrapeFailed(FairlaneError):
    """The backend's metrics could not be read. Look at its /metrics page.

    `reason` says in one word why; `missing` names what the page should have shown; `answered` is the status, if it was
    not 200.
    """

    code, status, retryable = "scrape_failed", 502, True

    def __init__(
        self, reason: Reason, message: str, missing: tuple[str, ...] = (), answered: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.missing = missing
        self.answered = answered


@dataclass(frozen=True, slots=True)
class Reading:
    """What one page showed. Requests, tokens and seconds are summed over the engines on it.

    `kv` is the share of the KV cache in use, 0 to 1, of the engine that is fullest; None if the page does not say.
    `token_sum` (s) and `token_count` are the histogram of the time per output token since the server started, 0 if
    absent. `progress` moves while the server works; None if
    nothing on the page does. `started_at` is Unix time, 0 if absent. `missing` are the names
    that this family should show and this page does not.
    """

    running: int
    waiting: int
    kv: float | None
    token_sum: float
    token_count: float
    progress: float | None
    started_at: float
    missing: tuple[str, ...]
    family: str


async def scrape(
    client: httpx.AsyncClient,
    url: str,
    family: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    headers: Mapping[str, str] | None = None,
) -> Reading:
    """Reads GET /metrics of the server at `url`, which may end with / or /v1. `family` None: found out by the names.

    The whole of it takes at most `timeout_s`. Raises ScrapeFailed.
    """
    page = await _fetch(client, f"{base_url(url)}/metrics", timeout_s, headers or {})
    return read_page(page, family)


def read_page(page: bytes, family: str | None = None) -> Reading:
    """What a page shows. Raises ScrapeFailed if it lacks the running or the waiting requests: absent is not 0."""
    if family is not None and family not in FAMILIES:
        raise ScrapeFailed("unknown", f"There is no server family {family!r}; known are {', '.join(FAMILIES)}.")
    candidates = FAMILIES.values() if family is None else (FAMILIES[family],)
    try:
        series = exposition.read(page, [STARTED, *(name for each in candidates for name in each.wanted)])
    except exposition.Unreadable as error:
        raise ScrapeFailed("unreadable", f"The metrics page cannot be read: {error}.") from error
    known = owner(series) if family is None else FAMILIES[family]
    if known is None:
        raise ScrapeFailed("unknown", f"The page shows no metric of a known server ({', '.join(FAMILIES)}).")
    return _reading(series, known)


def token_ms(before: Reading | None, now: Reading) -> float | None:
    """The mean time per output token (ms) of the tokens made between two readings.

    None when none were made, or when the counters are not one continuous history (another server, or a restart).
    """
    if before is None or (before.family, before.started_at) != (now.family, now.started_at):
        return None
    seconds, tokens = now.token_sum - before.token_sum, now.token_count - before.token_count
    return 1000 * seconds / tokens if tokens > 0 and seconds >= 0 else None


async def _fetch(client: httpx.AsyncClient, url: str, timeout_s: float, more: Mapping[str, str]) -> bytes:
    """The page's bytes. Compressed ones are not asked for and not taken: a small body could hide a huge page."""
    headers = {"accept": "text/plain", "accept-encoding": "identity", **more}
    where = shown(url)
    try:
        async with (
            asyncio.timeout(timeout_s),
            client.stream("GET", url, headers=headers, timeout=timeout_s, follow_redirects=False) as answer,
        ):
            if answer.status_code != 200:
                raise ScrapeFailed("status", f"{where} answered {answer.status_code}.", answered=answer.status_code)
            if answer.headers.get("content-encoding", "identity") != "identity":
                raise ScrapeFailed("unreadable", f"{where} is compressed, which was not asked for.")
            return await _body(answer)
    except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise ScrapeFailed("unreachable", f"{where}: {str(error) or type(error).__name__}.") from error
    except (TimeoutError, httpx.TimeoutException) as error:
        raise ScrapeFailed("timeout", f"{where} took more than {timeout_s:g} s.") from error
    except httpx.HTTPError as error:
        raise ScrapeFailed("unreadable", f"{where}: {str(error) or type(error).__name__}.") from error


async def _body(answer: httpx.Response) -> bytes:
    page = bytearray()
    async for chunk in answer.aiter_bytes():
        page += chunk
        if len(page) > exposition.MAX_BYTES:
            raise ScrapeFailed("too_large", f"The page has more than {exposition.MAX_BYTES} bytes.")
    return bytes(page)


def _reading(series: Series, family: Family) -> Reading:
    missing = tuple(names[0] for names in (family.running, family.waiting) if _first(series, names) is None)
    if missing:
        raise ScrapeFailed("missing", f"The page does not show {' and '.join(missing)}.", missing)
    kv = _share(series, family.kv)
    token_sum, token_count = _histogram(series, family.token_seconds)
    progress = [value for name in family.progress for value in series.get(name, ()) if math.isfinite(value)]
    absent = (
        (family.kv, kv is None),
        (family.token_seconds, token_count is None),
        (family.progress, not progress),
    )
    return Reading(
        running=_requests(series, family.running),
        waiting=_requests(series, family.waiting),
        kv=kv,
        token_sum=token_sum or 0.0,
        token_count=token_count or 0.0,
        progress=sum(progress) if progress else None,
        started_at=next((value for value in series.get(STARTED, ()) if math.isfinite(value)), 0.0),
        missing=tuple(names[0] for names, lacks in absent if names and lacks),
        family=family.name,
    )


def _first(series: Series, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in series), None)


def _requests(series: Series, names: Sequence[str]) -> int:
    """The sum over the engines. One that is not a count makes the page useless, as if it were absent."""
    values = next(series[name] for name in names if name in series)
    if not all(0 <= value <= MOST_REQUESTS for value in values):  # also false for NaN
        raise ScrapeFailed("unreadable", f"{_first(series, names)} is no number of requests: {values}.")
    return round(sum(values))


def _share(series: Series, names: Sequence[str]) -> float | None:
    """The highest of the engines; None if absent or if one of them is not a share."""
    name = _first(series, names)
    values = series[name] if name else ()
    return max(values) if values and all(0 <= value <= 1 for value in values) else None


def _histogram(series: Series, names: Sequence[str]) -> tuple[float, float] | tuple[None, None]:
    for name in names:
        sums, counts = series.get(f"{name}_sum", ()), series.get(f"{name}_count", ())
        if sums and counts and all(math.isfinite(value) for value in (*sums, *counts)):
            return sum(sums), sum(counts)
    return None, None
