"""Who a request's headers say it is from.

With keys the bearer token is one, and it says whose it is. Without (`--auth open`) the token is the tenant's name;
without one it is `anonymous`. A header that decides about that is there once or not at all: of two, something before us
may have judged by the one and we by the other.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Protocol

from starlette.datastructures import Headers

from fairlane.accounts import Accounts, Caller, Claim, claim_of
from fairlane.errors import FairlaneError, InvalidKey, InvalidRequest, TenantForbidden
from fairlane.model import TENANT_PATTERN
from fairlane.queue.checks import check_tenant
from fairlane.settings import Settings
from producer.fresh import Fresh

ANONYMOUS: Final = "anonymous"
TENANT_HEADER: Final = "x-fairlane-tenant"
KEPT_S: Final = 0.8  # a key that was revoked is refused within a second
KEPT_MOST: Final = 10_000
SHOWN_MOST: Final = 128  # characters of a wrong name that the refusal repeats
_ONCE: Final = ("authorization", TENANT_HEADER, "x-fairlane-tier", "idempotency-key")
_BEARER: Final = re.compile(r"bearer +([\x21-\x7e]+)", re.IGNORECASE)
_NAME: Final = re.compile(TENANT_PATTERN)


class Credentials(Protocol):
    """How callers are told apart."""

    async def caller(self, headers: Headers) -> Caller:
        """Who asks. Raises InvalidRequest, InvalidKey, TenantForbidden, StoreUnavailable."""
        ...


def credentials(settings: Settings, accounts: Accounts) -> Credentials:
    """Those that the settings ask for."""
    return Keys(accounts, settings.trusted_tenant_header) if settings.auth == "keys" else Names()


class Names:
    """The token is the tenant's name."""

    async def caller(self, headers: Headers) -> Caller:
        given = once(headers)
        token = ANONYMOUS
        if authorization := given["authorization"]:
            match = _BEARER.fullmatch(authorization)
            if match is None or not _NAME.fullmatch(match[1]):
                raise InvalidRequest(
                    f"Without keys, the tenant is what follows `Authorization: Bearer`: {TENANT_PATTERN}.",
                    param="authorization",
                )
            token = match[1]
        return acting_for(Caller(token), given[TENANT_HEADER])


class Keys:
    """The token is a key. What it leads to is remembered for KEPT_S, also that it leads nowhere; never the key itself,
    and nothing of what cannot be one, which anybody could send in any number and length."""

    def __init__(self, accounts: Accounts, user_header: str | None) -> None:
        self._accounts = accounts
        self._user_header = user_header
        self._known = Fresh(self._look_up, KEPT_S, KEPT_MOST)

    async def caller(self, headers: Headers) -> Caller:
        header = self._user_header
        given = once(headers, *((header,) if header else ()))
        match = _BEARER.fullmatch(given["authorization"] or "")
        if match is None:
            raise InvalidKey("A key is needed. Send `Authorization: Bearer <key>`.")
        if (claim := claim_of(match[1])) is None:
            raise InvalidKey()
        user = given[header] if header else None
        if user is not None:
            check_tenant(user)
        found = await self._known.get((claim, user))
        if isinstance(found, FairlaneError):
            raise type(found)(found.message, param=found.param)
        return acting_for(found, given[TENANT_HEADER])

    async def _look_up(self, asked: tuple[Claim, str | None]) -> Caller | FairlaneError:
        try:
            return await self._accounts.holder(*asked)
        except (InvalidKey, InvalidRequest, TenantForbidden) as refusal:
            return refusal


def acting_for(caller: Caller, named: str | None) -> Caller:
    """The caller, for the tenant that the request names. Raises TenantForbidden, InvalidRequest."""
    if named is None or named == caller.tenant:
        return caller
    if caller.role != "operator":
        shown = named[:SHOWN_MOST]
        raise TenantForbidden(f"You are {caller.tenant!r} and may not act for {shown!r}.", param="tenant")
    if not _NAME.fullmatch(named):
        raise InvalidRequest(f"A tenant's name has the form {TENANT_PATTERN}.", param="tenant")
    return replace(caller, tenant=named)


def once(headers: Headers, *more: str) -> dict[str, str | None]:
    """The headers that decide who it is and how urgent. Raises InvalidRequest for one that is there twice."""
    found: dict[str, str | None] = {}
    for name in (*_ONCE, *more):
        values = headers.getlist(name)
        if len(values) > 1:
            raise InvalidRequest(f"The header {name} is there {len(values)} times. Send it once.", param=name)
        found[name] = values[0].strip(" \t") if values else None
    return found
