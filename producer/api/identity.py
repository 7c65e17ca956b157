"""Whose request it is, and how urgent.

With `--auth open` the bearer token is the tenant's name; without one it is `anonymous`.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends, Header

from fairlane.accounts import Caller
from fairlane.errors import InvalidRequest, TenantForbidden
from fairlane.model import TENANT_PATTERN

ANONYMOUS: Final = "anonymous"
_NAME: Final = re.compile(TENANT_PATTERN)


async def caller_of(
    authorization: Annotated[str | None, Header()] = None,
    x_fairlane_tenant: Annotated[str | None, Header()] = None,
) -> Caller:
    """Who asks. Raises InvalidRequest for a token that cannot be a name, TenantForbidden for another's name."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    token = token.strip()
    if authorization and (scheme.lower() != "bearer" or not _NAME.fullmatch(token)):
        raise InvalidRequest(
            f"Without keys, the tenant is what follows `Authorization: Bearer`: {TENANT_PATTERN}.",
            param="authorization",
        )
    tenant = token or ANONYMOUS
    same_tenant(x_fairlane_tenant, tenant)
    return Caller(tenant)


def same_tenant(named: str | None, tenant: str) -> None:
    """Raises TenantForbidden if a request names another tenant than its own."""
    if named is not None and named != tenant:
        raise TenantForbidden(f"You are {tenant!r} and may not act for {named!r}.", param="tenant")


Who = Annotated[Caller, Depends(caller_of)]


async def tenant_of(caller: Who) -> str:
    """For what only reads a tenant's own things."""
    return caller.tenant


Tenant = Annotated[str, Depends(tenant_of)]
TierHeader = Annotated[str | None, Header(alias="x-fairlane-tier")]
KeyHeader = Annotated[str | None, Header(alias="idempotency-key", min_length=1, max_length=512)]
