"""The load that is asked for on a command line: a trace, tenants as measured, or drawn; in tiers, of tenants."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from dispatcher.simulator.request import Arrival
from dispatcher.simulator.slo import parse_ms
from dispatcher.simulator.workloads.lengths import KINDS, poisson
from dispatcher.simulator.workloads.load import rate_per_s, scaled, windowed
from dispatcher.simulator.workloads.servegen import Client, generate, read_clients
from dispatcher.simulator.workloads.tenants import Shares, even, heavy, on_off, with_tenants, zipf
from dispatcher.simulator.workloads.tiers import parse_mix, tier_names, with_tiers
from dispatcher.simulator.workloads.trace import read_trace
from fairlane.errors import InvalidRequest, UnknownTier
from fairlane.model import DEFAULT_TIERS, TIER_PATTERN

MOST_REQUESTS: Final = 200_000
MOST_MINUTES: Final = 10_080.0  # a week
LEAST_MINUTES: Final = 0.01
LEAST_SPEED_UP: Final = 0.00001
MOST_RATE: Final = 1e6
MOST_TENANTS: Final = 10_000
MOST_TIERS: Final = 10
DRAWN_MINUTES: Final = 10.0
SERVEGEN_MINUTES: Final = 60.0
SAMPLE: Final = 5000  # requests of a drawn load that are enough to know it by
DEFAULT_TENANTS: Final = "10"
DEFAULT_MIX: Final = "enterprise"
SHORT: Final = 0.95  # a trace of an hour ends with its last arrival, a little before the hour

Bare = Callable[[float], list[Arrival]]  # so many times the load, perhaps without tenants and tiers


@dataclass(frozen=True, slots=True)
class Offer:
    """The options as they were typed; just one of the first three is given. See docs/simulate.md."""

    trace: Path | None = None
    servegen: Path | None = None
    poisson: str | None = None
    kind: str | None = None
    minutes: float | None = None
    from_minute: float = 0.0
    tiers: str | None = None
    mix: str | None = None
    tenants: str | None = None
    on_off: str | None = None
    speed_up: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What is offered: where it comes from, its tiers (the highest first), and its arrivals at so many times it.

    `at(part)` is enough to know it by; `rate_per_s` is that of all of it.
    """

    source: str
    tiers: tuple[str, ...]
    at: Callable[[float], list[Arrival]]
    part: float

    def rate_per_s(self) -> float:
        """Raises InvalidRequest if all requests come at once."""
        try:
            return rate_per_s(self.at(self.part)) / self.part
        except ValueError:
            raise InvalidRequest("All requests of this load come at once: it has no rate.") from None


def load_of(offer: Offer) -> Load:
    """Raises InvalidRequest, UnknownTier: they say which option is wrong, and what to say instead."""
    source, bare, size = _source(offer)
    part = min(1.0, SAMPLE / size)
    sample = _some(bare(part))
    draws_tiers = offer.mix is not None or not sample[0].tier
    tiers = _tiers(offer)
    if not draws_tiers:
        _check_tiers(sample, tiers)
    mix = parse_mix(DEFAULT_MIX if offer.mix is None else offer.mix)
    tenants = DEFAULT_TENANTS if offer.tenants is None and not sample[0].tenant else offer.tenants
    shares = None if tenants is None else _shares(tenants)
    rhythm = _rhythm(offer.on_off)

    def at(factor: float) -> list[Arrival]:
        arrivals = _some(bare(offer.speed_up * factor))
        if shares:
            arrivals = with_tenants(arrivals, shares, offer.seed)
        if draws_tiers:
            arrivals = with_tiers(arrivals, tiers, mix, offer.seed)
        arrivals = on_off(arrivals, *rhythm, offer.seed) if rhythm else arrivals
        _check_length(arrivals[-1].at_ms / 60_000)
        return arrivals

    return Load(source, tiers, at, part / offer.speed_up)


def _some(arrivals: list[Arrival]) -> list[Arrival]:
    if not arrivals:
        raise InvalidRequest("No request comes in that time. Say more --minutes, or make it denser.", param="minutes")
    return arrivals


# --- where it comes from ----------------------------------------------------------------------------------------------


def _source(offer: Offer) -> tuple[str, Bare, float]:
    """Its name, its arrivals, and about how many of them it takes to make a sample: all of a trace, whatever it has."""
    given = [one for one in (offer.trace, offer.servegen, offer.poisson) if one is not None]
    if len(given) != 1:
        raise InvalidRequest("Which load? Say one of --trace FILE, --servegen FILE or --poisson RATE.", param="trace")
    if offer.kind is not None and offer.poisson is None:
        raise InvalidRequest("--kind goes with --poisson; a file has lengths of its own.", param="kind")
    if offer.trace is not None:
        return str(offer.trace), _traced(offer, offer.trace), SAMPLE
    if offer.servegen is not None:
        return str(offer.servegen), *_of_clients(offer, offer.servegen)
    kind = offer.kind or "chat"
    return f"poisson {_rate_per_s(offer.poisson or ''):g}/s of {kind}", *_drawn(offer, kind)


def _traced(offer: Offer, path: Path) -> Bare:
    """Denser is shorter: the same requests in less time."""
    arrivals = read_trace(path)
    from_ms = 60_000 * offer.from_minute
    ends_ms = arrivals[-1].at_ms
    length_ms = math.inf if offer.minutes is None else 60_000 * offer.minutes
    if from_ms > ends_ms or (length_ms < math.inf and ends_ms < SHORT * (from_ms + length_ms)):
        wanted = f"from minute {offer.from_minute:g} on" + (f" {offer.minutes:g} minutes" if offer.minutes else "")
        raise InvalidRequest(
            f"{path} is {ends_ms / 60_000:.1f} minutes long, too short for {wanted}. Say less by --minutes or --from.",
            param="minutes",
        )
    chosen = windowed(arrivals, from_ms, length_ms)
    if not chosen:
        raise InvalidRequest(f"{path} has no requests in that window. Say another by --minutes or --from.")
    _check_size(1.0, len(chosen), (chosen[-1].at_ms - chosen[0].at_ms) / 60_000, thinner=False)
    return partial(scaled, chosen)


def _of_clients(offer: Offer, path: Path) -> tuple[Bare, float]:
    """Denser is more requests in the same time."""
    clients = read_clients(path)
    from_s, length_s = 60 * offer.from_minute, 60 * (offer.minutes or SERVEGEN_MINUTES)
    expected = _expected(clients, from_s, length_s)

    def draw(share: float) -> list[Arrival]:
        _check_size(share, expected, length_s / 60)
        return generate(clients, offer.seed, from_s=from_s, length_s=length_s, share=share)

    if expected < 1:
        ends_s = max((window.start_s + window.length_s for one in clients for window in one.windows), default=0.0)
        raise InvalidRequest(
            f"{path} has no requests from minute {offer.from_minute:g} on for {length_s / 60:g} minutes; "
            f"it ends after {ends_s / 60:.0f} minutes.",
            param="from",
        )
    return draw, expected


def _expected(clients: Sequence[Client], from_s: float, length_s: float) -> float:
    return sum(
        window.rate_per_s
        * max(0.0, min(window.start_s + window.length_s, from_s + length_s) - max(window.start_s, from_s))
        for one in clients
        for window in one.windows
    )


def _drawn(offer: Offer, kind: str) -> tuple[Bare, float]:
    if kind not in KINDS:
        raise InvalidRequest(f"{kind} is no kind of load. There are: {', '.join(KINDS)}.", param="kind")
    if offer.from_minute:
        raise InvalidRequest("--from goes with a file; what is drawn begins at 0.", param="from")
    rate, minutes = _rate_per_s(offer.poisson or ""), offer.minutes or DRAWN_MINUTES

    def draw(factor: float) -> list[Arrival]:
        _check_size(factor, rate * minutes * 60, minutes)
        return poisson(factor * rate, 60 * minutes, KINDS[kind], offer.seed)

    if rate * minutes * 60 < 1:
        raise InvalidRequest(f"At {rate:g}/s no request comes within {minutes:g} minutes. Say more --minutes.")
    return draw, rate * minutes * 60


def _rate_per_s(text: str) -> float:
    try:
        rate = float(text.removesuffix("/s"))
    except ValueError:
        rate = math.nan
    if not 0 < rate <= MOST_RATE:
        raise InvalidRequest(
            f"--poisson is requests a second, as 2 or 0.5/s; not {text!r} (at most {MOST_RATE:,.0f}).", param="poisson"
        )
    return rate


def _check_size(factor: float, requests: float, minutes: float, *, thinner: bool = True) -> None:
    """`factor` times so many requests, which come in so many minutes, are to be simulated. Raises InvalidRequest.

    `thinner`: a smaller factor makes them fewer; those of a trace only come in more time.
    """
    if factor * requests <= MOST_REQUESTS:
        return
    share = 0.95 * MOST_REQUESTS / (factor * requests)  # so that it fits also when it is rounded
    grown = "" if factor == 1 else f" ({factor:.3g} times the load)"
    fits = share * minutes >= LEAST_MINUTES
    advice = [f"Shorten the load: --minutes {_short(share * minutes)}"] if fits else []
    if thinner and share >= LEAST_SPEED_UP:
        advice.append(f"{'or make' if advice else 'Make'} it less dense: --speed-up {_short(share)}")
    raise InvalidRequest(
        f"{factor * requests:,.0f} requests{grown} are too many to simulate (at most {MOST_REQUESTS:,}). "
        f"{'; '.join(advice) or 'Offer less'}.",
        param="minutes",
    )


def _check_length(minutes: float) -> None:
    """A simulation looks at its backends by the clock, also while nobody comes. Raises InvalidRequest."""
    if minutes > MOST_MINUTES:
        raise InvalidRequest(
            f"This load lasts {minutes:,.0f} minutes, too long to simulate (at most {MOST_MINUTES:,.0f}, a week). "
            "Is arrival_s in seconds? Else shorten the load by --minutes, or make it denser."
        )


def _short(number: float) -> str:
    """Two digits, without a power of ten where it can be."""
    return f"{float(f'{number:.2g}'):g}"


# --- whose they are, and how urgent -----------------------------------------------------------------------------------


def _tiers(offer: Offer) -> tuple[str, ...]:
    text = offer.tiers
    if text is None:  # shares of one's own say how many tiers there are
        shares = len(DEFAULT_TIERS) if offer.mix is None else len(parse_mix(offer.mix))
        if shares > MOST_TIERS:
            raise InvalidRequest(
                f"--mix has {shares} shares, but there are {MOST_TIERS} tiers at the most.", param="mix"
            )
        return tier_names(shares)
    if text.isascii() and text.isdecimal():
        if not 1 <= int(text) <= MOST_TIERS:
            raise InvalidRequest(f"--tiers is 1 to {MOST_TIERS}, or names; not {text}.", param="tiers")
        return tier_names(int(text))
    names = tuple(name.strip() for name in text.split(","))
    good = all(re.fullmatch(TIER_PATTERN, name) for name in names)
    if len(names) > MOST_TIERS or len(set(names)) < len(names) or not good:
        raise InvalidRequest(
            f"--tiers is a number, or up to {MOST_TIERS} different names, the highest first, "
            f"of the form {TIER_PATTERN}; not {text!r}.",
            param="tiers",
        )
    return names


def _check_tiers(arrivals: Sequence[Arrival], tiers: Sequence[str]) -> None:
    for one in arrivals:
        if one.tier not in tiers:
            found = list(dict.fromkeys(one.tier for one in arrivals))
            there = ", ".join([*found[:MOST_TIERS], *(["…"] if len(found) > MOST_TIERS else [])])
            raise UnknownTier(
                f"The trace has a tier {one.tier}, which is none of {', '.join(tiers)}. Say --tiers with its tiers, "
                f"the highest first (it has: {there}), or --mix to draw others.",
                param="tiers",
            )


def _shares(text: str) -> Shares:
    what, colon, number = text.rpartition(":")
    kinds = {"": even, "zipf": zipf, "heavy": heavy}
    if what not in kinds or bool(what) != bool(colon) or not number.isdecimal() or not 1 <= int(number) <= MOST_TENANTS:
        raise InvalidRequest(
            f"--tenants is N (all alike), zipf:N, or heavy:N (one with 10 times as much as each of N others), "
            f"N from 1 to {MOST_TENANTS:,}; not {text!r}.",
            param="tenants",
        )
    return kinds[what](int(number))


def _rhythm(text: str | None) -> tuple[float, float] | None:
    """Seconds on and off."""
    if text is None:
        return None
    on, _, off = text.partition(",")
    try:
        return parse_ms(on) / 1000, parse_ms(off) / 1000
    except ValueError:
        raise InvalidRequest(f"--on-off is two times, as 60s,120s; not {text!r}.", param="on-off") from None
