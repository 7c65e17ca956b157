"""What a tenant's rates still allow, as headers with OpenAI's names; only for a tenant that has such limits."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from fairlane.errors import StoreUnavailable
from fairlane.queue.pools import Pool
from fairlane.standing import Allowance
from producer.api.state import State

MINUTE_US: Final = 60_000_000


async def rate_headers(state: State, pool: Pool, tenant: str) -> dict[str, str]:
    """For an answer to a submit. Costs nothing for a tenant without limits of its own in the account."""
    limits = None
    with suppress(StoreUnavailable):  # the job was taken in, whatever else can be said
        limits = await state.intake.limiting.ensure(pool, tenant)
    if limits is None or (limits.requests_per_minute is None and limits.tokens_per_minute is None):
        return {}
    return await read_rates(state, pool, tenant)


async def read_rates(state: State, pool: Pool, tenant: str) -> dict[str, str]:
    """As they stand in the pool. Without Redis there are none: what is to be said can be said without them."""
    with suppress(StoreUnavailable):
        return headers_of(await state.queue.inspect.allowance(pool, tenant))
    return {}


def headers_of(allowance: Allowance) -> dict[str, str]:
    """What is left of a minute's worth, and the time until all is there again. Jobs that wait are spent already."""
    headers: dict[str, str] = {}
    if (requests := allowance.limits.requests_per_minute) is not None:
        ahead_us = allowance.requests_us + allowance.waiting * MINUTE_US // requests
        headers |= _headers("requests", requests, ahead_us)
    if (tokens := allowance.limits.tokens_per_minute) is not None:
        headers |= _headers("tokens", tokens, allowance.tokens_us)
    return headers


def _headers(kind: str, limit: int, ahead_us: int) -> dict[str, str]:
    left = max(0, MINUTE_US - ahead_us) * limit // MINUTE_US
    return {
        f"x-ratelimit-limit-{kind}": str(limit),
        f"x-ratelimit-remaining-{kind}": str(left),
        f"x-ratelimit-reset-{kind}": f"{ahead_us / 1_000_000:.3f}s",
    }
