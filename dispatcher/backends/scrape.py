"""A backend's metrics page: where it is, and what it shows of what runs there, what waits, and how fast tokens come."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import httpx

from dispatcher.backends import exposition
from dispatcher.backends.address import base_url, shown
from dispatcher.backends.families import FAMILIES, PATHS, Family, owner
from fairlane.errors import FairlaneError

TIMEOUT_S: Final = 2.0  # a vLLM on a busy CPU was seen to take 1.1 s while 400 requests arrived at once
MOST_REQUESTS: Final = 10_000_000
STARTED: Final = "process_start_time_seconds"
NOT_FOUND: Final = 404
RENEWAL: Final = 0.001  # so little that another observer, who counts anew, does not take it for a restart

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
    `token_sum` (s) and `token_count` are the time spent on output tokens since the server started, and how many they
    were, 0 if absent. `progress` moves while the server works; None if nothing on the page does. `stamp` changes when
    running and waiting are renewed; () if that is at each step. `started_at` is Unix time, 0 if absent. `missing` are
    the names that this family should show and this page does not.
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
    stamp: tuple[float, ...] = ()


class MetricsPage:
    """Where the server at `url`, which may end with / or /v1, shows its metrics. `family` None: found out by the names.

    Of the paths that it may be at one is asked at a time, and the one that it was read at from then on. TensorRT-LLM
    answers /metrics with JSON, and takes what it tells from its own page by that; at rest it answers after 2 s only.
    """

    def __init__(self, url: str, family: str | None = None) -> None:
        known = FAMILIES.get(family) if family else None
        self._base = base_url(url)
        self._family = family
        self._paths = known.paths if known else PATHS
        self._at = 0
        self._found = self._json = False
        self._renewals = Renewals()

    async def scrape(
        self, client: httpx.AsyncClient, *, timeout_s: float = TIMEOUT_S, headers: Mapping[str, str] | None = None
    ) -> Reading:
        """Reads the page. Each request takes at most `timeout_s`; two if the first shows that it is elsewhere.

        Raises ScrapeFailed.
        """
        page = await self._fetch_here(client, timeout_s, headers or {})
        if page[:64].lstrip()[:1] in (b"[", b"{") and len(self._paths) > 1:
            self._turn(json=True)
            page = await _fetch(client, self._url, timeout_s, headers or {})
        reading = read_page(page, self._family)
        self._found = True
        return self._renewals.counted(reading)

    @property
    def _url(self) -> str:
        return self._base + self._paths[self._at]

    async def _fetch_here(self, client: httpx.AsyncClient, timeout_s: float, headers: Mapping[str, str]) -> bytes:
        try:
            return await _fetch(client, self._url, timeout_s, headers)
        except ScrapeFailed as failed:
            if failed.reason == "timeout" and not self._found:
                self._turn()
            if failed.answered != NOT_FOUND or self._at == 0:
                raise
            came_by_json = self._json
            self._turn()
            if came_by_json:
                raise
        return await _fetch(client, self._url, timeout_s, headers)  # it was only slow there

    def _turn(self, *, json: bool = False) -> None:
        """It is not here: the other path is next."""
        self._at = (self._at + 1) % len(self._paths)
        self._found, self._json = False, json


class Renewals:
    """Makes the progress of a server that renews its gauges only now and then move just when it does so.

    Its counters do not tell: they move between two renewals too, or stand still at one. A page of old gauges must count
    as frozen, since on it jobs still wait that were done long ago.
    """

    def __init__(self) -> None:
        self._stamp: tuple[float, ...] = ()
        self._counters = 0.0
        self._count = 0
        self._progress: float | None = None

    def counted(self, reading: Reading) -> Reading:
        """The reading, its progress that of the reading before if the gauges are the same that this one had."""
        counters = reading.progress
        if not reading.stamp or counters is None:
            return reading
        if self._progress is None or counters < self._counters:  # restarted
            self._count, self._progress = 0, counters
        elif reading.stamp != self._stamp:
            self._count += 1
            self._progress = counters + RENEWAL * self._count
        self._stamp, self._counters = reading.stamp, counters
        return replace(reading, progress=self._progress)


async def scrape(
    client: httpx.AsyncClient,
    url: str,
    family: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    headers: Mapping[str, str] | None = None,
) -> Reading:
    """One look at a server of which nothing is remembered. Raises ScrapeFailed."""
    return await MetricsPage(url, family).scrape(client, timeout_s=timeout_s, headers=headers)


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
    if known is None or not known.load:
        of = f"of the family {family}" if family else f"of a known server ({', '.join(FAMILIES)})"
        raise ScrapeFailed("unknown", f"The page shows no metric {of}.")
    return _reading(series, known)


def token_ms(before: Reading | None, now: Reading) -> float | None:
    """The mean time per output token (ms) of the tokens made between two readings.

    None when none were made, or when the counters are not one continuous history (another server, or a restart).
    """
    if before is None or (before.family, before.started_at) != (now.family, now.started_at):
        return None
    seconds, tokens = now.token_sum - before.token_sum, now.token_count - before.token_count
    return _finite(1000 * seconds / tokens) if tokens > 0 and seconds >= 0 else None


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
    token_sum, token_count = _speed(series, family.token_seconds)
    moved = [value for name in family.progress for value in series.get(name, ()) if math.isfinite(value)]
    progress = _finite(sum(moved)) if moved else None
    absent = (
        (family.kv, kv is None),
        (tuple(seconds for seconds, _ in family.token_seconds), token_count is None),
        (family.progress, progress is None),
    )
    return Reading(
        running=_requests(series, family.running),
        waiting=_requests(series, family.waiting),
        kv=kv,
        token_sum=token_sum or 0.0,
        token_count=token_count or 0.0,
        progress=progress,
        started_at=next((value for value in series.get(STARTED, ()) if math.isfinite(value)), 0.0),
        missing=tuple(names[0] for names, lacks in absent if lacks and names and names[0] not in family.retired),
        family=family.name,
        stamp=tuple(value for name in family.stamp for value in series.get(name, ()) if math.isfinite(value)),
    )


def _finite(value: float) -> float | None:
    """None for what came out of huge numbers."""
    return value if math.isfinite(value) else None


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


def _speed(series: Series, pairs: Sequence[tuple[str, str]]) -> tuple[float, float] | tuple[None, None]:
    """Seconds and tokens since the server started, of the first pair that is there."""
    for seconds, tokens in pairs:
        sums, counts = series.get(seconds, ()), series.get(tokens, ())
        seconds_sum, tokens_sum = sum(sums), sum(counts)
        if sums and counts and math.isfinite(seconds_sum) and math.isfinite(tokens_sum):
            return seconds_sum, tokens_sum
    return None, None
