"""`/v1/models`: what can be asked for, which is every pool that has a backend and that the caller may use."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from fairlane.errors import ModelNotFound
from producer.api.documents import RESPONSES
from producer.api.identity import Who
from producer.api.state import Shared

router = APIRouter(prefix="/v1/models", tags=["models"], responses=RESPONSES)


@router.get("")
async def index(state: Shared, caller: Who) -> dict[str, Any]:
    """Every model that a pool serves, of those that the caller may use."""
    names = await state.queue.pools.served()
    return {"object": "list", "data": [_view(name) for name in names if caller.may_use(name)]}


@router.get("/{model:path}")
async def read(state: Shared, caller: Who, model: str) -> dict[str, Any]:
    """One model. Its name may hold slashes."""
    if not caller.may_use(model) or model not in await state.queue.pools.served():
        raise ModelNotFound(f"No pool serves the model {model!r}.", param="model")
    return _view(model)


def _view(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "fairlane"}
