"""Whose request it is, and how urgent: what the endpoints ask of each request (credentials.py answers)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Request

from fairlane.accounts import Caller
from producer.api.state import State


async def caller_of(
    request: Request,
    authorization: Annotated[str | None, Header()] = None,
    x_fairlane_tenant: Annotated[str | None, Header()] = None,
) -> Caller:
    """Who asks. (The headers are named for the served document; all of them are read, since one may be there twice.)"""
    state: State = request.app.state.fairlane
    return await state.credentials.caller(request.headers)


Who = Annotated[Caller, Depends(caller_of)]


async def tenant_of(caller: Who) -> str:
    """For what only reads a tenant's own things."""
    return caller.tenant


Tenant = Annotated[str, Depends(tenant_of)]
TierHeader = Annotated[str | None, Header(alias="x-fairlane-tier")]
KeyHeader = Annotated[str | None, Header(alias="idempotency-key", min_length=1, max_length=512)]
