"""What one observer leaves for the next is JSON that anything can read, and whatever stands there can be read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from dispatcher.policy.capacity import Capacity
from dispatcher.policy.ejection import Health
from dispatcher.seen import fields, packed, remembered


def test_a_number_that_json_does_not_know_is_null() -> None:
    written = packed({"a": math.inf, "b": [1, -math.inf], "c": {"d": math.nan, "e": (2.5,)}, "f": None, "g": True})
    assert "Infinity" not in written
    assert "NaN" not in written
    assert json.loads(written) == {"a": None, "b": [1, None], "c": {"d": None, "e": [2.5]}, "f": None, "g": True}


def test_what_an_older_version_wrote_of_such_numbers_reads_as_absent() -> None:
    assert fields('{"token_ms":Infinity,"kv":1e999,"rooms":[NaN,1.0]}') == {
        "token_ms": None, "kv": None, "rooms": [None, 1.0]
    }  # fmt: skip


@pytest.mark.parametrize("left", ["", "[]", "1", "{", "null", "[" * 100_000])
def test_what_is_no_object_has_no_fields(left: str) -> None:
    assert fields(left) == {}


def test_what_was_learned_comes_back_as_it_was() -> None:
    for known in (Capacity(k=7, progress=None), Capacity(started_at=1.5), Health(errors=3, excused=2, pardons=1)):
        assert remembered(type(known), json.loads(packed(asdict(known)))) == known


@pytest.mark.parametrize("left", [None, [], "x", {"new": 1}, {"started_at": None}, {"k": None}])
def test_what_was_not_learned_is_learned_anew(left: object) -> None:
    assert remembered(Capacity, left) == Capacity()
