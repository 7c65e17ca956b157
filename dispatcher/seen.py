"""What an observer leaves in Redis as JSON for whoever comes next: that may be of another version, so nothing is sure.

Only what JSON knows is written: a number that is infinite or none is null, and is read as if it were not there.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# json.dumps would make an encoder for each call.
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
T = TypeVar("T", bound="DataclassInstance")


def packed(found: Mapping[str, Any]) -> str:
    """The object as JSON, whatever the numbers that came from a backend's page."""
    try:
        return _ENCODE(found)
    except ValueError:  # a number that is none: seldom, so that the others need not be looked at one by one
        return _ENCODE(_finite(found))


def told(known: DataclassInstance) -> dict[str, Any]:
    """The fields of a dataclass of plain values, as `remembered` takes them. (`asdict` would copy each deeply.)"""
    return {name: getattr(known, name) for name in _names(type(known))}


def fields(left: str) -> Mapping[str, Any]:
    """The fields of an object; none if it is something else."""
    try:
        read: object = json.loads(left, parse_constant=_nothing, parse_float=_finite_float)
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", read) if isinstance(read, dict) else {}


def remembered(kind: type[T], left: object) -> T:
    """A dataclass from the fields that `told` made of one; a new one if they are not those that it has."""
    try:
        found = kind(**cast("Mapping[str, Any]", left))
    except TypeError:
        return kind()
    lacks = any(
        getattr(found, each.name) is None and "None" not in str(each.type) for each in dataclasses.fields(found)
    )
    return kind() if lacks else found


@cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind))


def _nothing(_word: str) -> None:
    """For NaN and Infinity."""


def _finite_float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


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
