"""What an observer leaves in Redis as JSON for whoever comes next: that may be of another version, so nothing is sure.

Only what JSON knows is written: a number that is infinite or none is null, and is read as if it were not there.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def packed(found: Mapping[str, Any]) -> str:
    """The object as JSON, whatever the numbers that came from a backend's page."""
    return json.dumps(_finite(found), separators=(",", ":"), allow_nan=False)


def fields(left: str) -> Mapping[str, Any]:
    """The fields of an object; none if it is something else."""
    try:
        read: object = json.loads(left)
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", _finite(read)) if isinstance(read, dict) else {}


def remembered(kind: type[T], left: object) -> T:
    """A dataclass from the fields that `asdict` made of one; a new one if they are not those that it has."""
    try:
        found = kind(**cast("Mapping[str, Any]", left))
    except TypeError:
        return kind()
    lacks = any(
        getattr(found, each.name) is None and "None" not in str(each.type) for each in dataclasses.fields(found)
    )
    return kind() if lacks else found


def _finite(value: Any) -> Any:
    """With null for each number that JSON does not know."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _finite(each) for name, each in cast("Mapping[str, Any]", value).items()}
        case list() | tuple():
            return [_finite(each) for each in cast("list[Any]", value)]
        case _:
            return value
