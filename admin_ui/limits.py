"""What a tenant's limits mean, and what follows from a change of them, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from admin_ui.showing import number
from fairlane.accounts.values import GRANTS, LIMITS, Account, account_fields
from fairlane.errors import InvalidRequest
from fairlane.model import Limits
from fairlane.standing import TenantStanding

BURST_S: Final = 5  # so many seconds' worth of a rate may start at once


@dataclass(frozen=True, slots=True)
class Limit:
    """One setting of a tenant: its label, what it does, what it may be."""

    name: str
    label: str
    what: str
    allowed: str


SETTINGS: Final = (
    Limit("weight", "Weight", "Turns in proportion to it: weight 2 gets two for each of weight 1.", "0.01 to 1000"),
    Limit("max_inflight", "Most in flight", "Jobs that run at once; more wait, nothing is refused.", "none, or from 0"),
    Limit(
        "requests_per_minute",
        "Requests per minute",
        "The rate at which its jobs start; five seconds’ worth may go at once. More wait, nothing is refused.",
        "none, or from 1",
    ),
    Limit(
        "tokens_per_minute",
        "Tokens per minute",
        "The same, counted in input and output tokens.",
        "none, or from 1",
    ),
    Limit(
        "max_waiting",
        "Most waiting",
        "Jobs that wait, queued or delayed; one more is refused with 429. none: as many as the pool’s policy allows.",
        "none, or from 0",
    ),
)
GRANTED: Final = (
    Limit("tiers", "Tiers", "Those that its keys may use.", "all, or names with commas between them"),
    Limit("pools", "Pools", "Those that its keys may use.", "all, or names with commas between them"),
)


def texts(limits: Limits) -> dict[str, str]:
    """The limits as they are typed."""
    values = asdict(limits)
    return {name: _text(values[name]) for name in LIMITS}


def in_pools(found: Sequence[Limits]) -> dict[str, str]:
    """The limits of one tenant in several pools, as text; where pools differ, each value once: `none / 8`."""
    each = [texts(one) for one in found]
    return {name: " / ".join(dict.fromkeys(one[name] for one in each)) for name in LIMITS}


def account_texts(account: Account) -> dict[str, str]:
    """All that can be set of a registered tenant, as it is typed."""
    grants = {name: getattr(account, name) for name in GRANTS}
    return texts(account.limits) | {n: "all" if g is None else ",".join(sorted(g)) for n, g in grants.items()}


def changed(now: Mapping[str, str], words: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Of what was filled in, the text before and after of what is another one.

    Raises InvalidRequest, which names the setting.
    """
    given = {name: words[name].strip() or _EMPTY.get(name, "none") for name in now if name in words}
    given = {name: text for name, text in given.items() if text != now[name]}
    account_fields(given)
    then = {name: _canonical(name, text) for name, text in given.items()}
    return {name: (now[name], text) for name, text in then.items() if text != now[name]}


def applied(limits: Limits, texts_: Mapping[str, str]) -> Limits:
    """The limits with others over them, each as its text. Raises InvalidRequest."""
    values: dict[str, float | None] = {}
    for name, text in texts_.items():
        if name not in LIMITS:
            raise InvalidRequest(f"A tenant has no limit {name!r} in a pool.", param=name)
        values[name] = float(text) if name == "weight" else None if text == "none" else int(text)
    return replace(limits, **values)  # pyright: ignore[reportArgumentType]


def sentences(tenant: str, after: Mapping[str, str], places: Mapping[str, TenantStanding]) -> tuple[str, ...]:
    """What follows from these settings being others, with what the tenant has in each pool that is concerned."""
    return tuple(words for name, text in after.items() for words in _told(tenant, name, text, places))


def where(account: Account | None, only: str | None) -> str:
    """Where what is set holds: in all pools, or in `only` this one."""
    if only and account:
        return f"It holds in {only}, until the limits of the tenant are next changed for all pools."
    if only:
        return f"It holds in {only} only."
    return "It holds in every pool, also in those that are opened later." if account else _IN_OPEN


def unknown(after: Mapping[str, str], tiers: Collection[str], pools: Collection[str]) -> tuple[str, ...]:
    """Warns of tiers and pools that may be used but are not there: they may be meant for later, or mistyped."""
    known = {"tiers": tiers, "pools": pools}
    return tuple(
        f"Careful: there is no {what.removesuffix('s')} {' or '.join(sorted(gone))} yet."
        for what, there in known.items()
        if after.get(what, "all") != "all" and (gone := set(after[what].split(",")) - set(there))
    )


# --- within -----------------------------------------------------------------------------------------------------------

_IN_OPEN: Final = (
    "It is not registered: what is set holds in the pools that there are now, not in one that is opened later."
)
_EMPTY: Final = {"weight": "1", "tiers": "all", "pools": "all"}


def _told(tenant: str, name: str, text: str, places: Mapping[str, TenantStanding]) -> Iterator[str]:
    match name:
        case "weight":
            yield f"In each tier {tenant} gets {float(text):g} turns for each turn of a tenant of weight 1."
        case "max_inflight":
            yield from _inflight(text, places)
        case "requests_per_minute" | "tokens_per_minute":
            yield _rate(name.partition("_")[0], text)
        case "max_waiting":
            yield from _waiting(text, places)
        case _:
            words = "all" if text == "all" else text.replace(",", ", ")
            yield f"Its keys may use these {name}: {words}. What was taken in goes on."


def _inflight(text: str, places: Mapping[str, TenantStanding]) -> Iterator[str]:
    if text == "none":
        yield "Any number of its jobs may run at once, as far as turns and gates allow."
        return
    most = int(text)
    if most == 0:
        yield "Careful: nothing of it starts any more."
    else:
        yield f"At most {number(most)} of its jobs run at once in a pool."
    for pool, standing in places.items():
        if standing.inflight > most:
            yield f"In {pool} {number(standing.inflight)} run now: they go on, and none starts until fewer run."


def _rate(what: str, text: str) -> str:
    if text == "none":
        return f"Its jobs start at any rate of {what}."
    burst = max(1, int(text) * BURST_S // 60)
    return f"In a pool its jobs start at {number(int(text))} {what} a minute, of which about {number(burst)} at once."


def _waiting(text: str, places: Mapping[str, TenantStanding]) -> Iterator[str]:
    if text == "none":
        yield "As many of its jobs may wait as each pool’s policy allows."
        return
    most = int(text)
    if most == 0:
        yield "Careful: every job of it is refused with 429 queue_full."
    else:
        yield f"When {number(most)} of its jobs wait in a pool, one more is refused with 429 queue_full."
    for pool, standing in places.items():
        if most and standing.waiting >= most:
            yield f"In {pool} {number(standing.waiting)} wait now: they stay; new ones are refused until fewer do."


def _canonical(name: str, text: str) -> str:
    """The text as `texts` has it."""
    if text in ("none", "all"):
        return text
    if name in GRANTS:
        return ",".join(sorted({part.strip() for part in text.split(",")}))
    return _text(float(text) if name == "weight" else int(text))


def _text(value: float | None) -> str:
    return "none" if value is None else str(value).removesuffix(".0")


def held_words(held_by: str | None, limits: Limits) -> str:
    """What holds a tenant, for people."""
    match held_by:
        case "paused":
            return "paused"
        case "inflight":
            return f"{limits.max_inflight} in flight, the most it may have"
        case "requests":
            return f"its rate of {limits.requests_per_minute} requests a minute"
        case "tokens":
            return f"its rate of {limits.tokens_per_minute} tokens a minute"
        case _:
            return ""


def place_names(names: Sequence[str]) -> str:
    """`llama`, `llama and mistral`, or how many there are."""
    if len(names) > 3:
        return f"{len(names)} pools"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
