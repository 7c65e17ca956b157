"""`/v1/models`: what can be asked for, which is every pool."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from fairlane.errors import ModelNotFound, NotFound
from producer.api.documents import RESPONSES
from producer.api.identity import Tenant
from producer.api.state import Shared

router = APIRouter(prefix="/v1/models", tags=["models"], responses=RESPONSES)


@router.get("")
async def index(state: Shared, tenant: Tenant) -> dict[str, Any]:
    """Every model that a pool serves."""
    return {"object": "list", "data": [_view(pool.name) for pool in await state.queue.pools.all()]}


@router.get("/{model:path}")
async def read(state: Shared, tenant: Tenant, model: str) -> dict[str, Any]:
    """One model. Its name may hold slashes."""
    try:
        return _view((await state.queue.pools.by_name(model)).name)
    except NotFound as error:
        raise ModelNotFound(f"No pool serves the model {model!r}.") from error


def _view(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "fairlane"}
