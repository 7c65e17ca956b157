"""What an observer left in Redis as JSON for whoever comes next: it may be of another version, so nothing is sure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


def fields(packed: str) -> Mapping[str, Any]:
    """The fields of an object; none if it is something else."""
    try:
        left: object = json.loads(packed)
    except ValueError:
        return {}
    return cast("Mapping[str, Any]", left) if isinstance(left, dict) else {}


def remembered(kind: type[T], left: object) -> T:
    """A dataclass from the fields that `asdict` made of one; a new one if they are not those that it has."""
    try:
        return kind(**cast("Mapping[str, Any]", left))
    except TypeError:
        return kind()
