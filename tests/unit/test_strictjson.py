"""What a text of JSON costs is bounded by how many values it has, not only by its length; what strings hold is free."""

from __future__ import annotations

import json
import time

import pytest

from fairlane import strictjson
from fairlane.strictjson import MOST_VALUES


def listed(value: bytes, times: int) -> bytes:
    return b"[" + b",".join([value] * times) + b"]"


@pytest.mark.parametrize("value", [b"{}", b"[]", b"1", b'""', b'{"a":1}', rb'"\""'])
def test_more_values_than_can_be_read_quickly_are_refused_before_they_are_read(value: bytes) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="more than 500,000 names and values"):
        strictjson.parse(listed(value, 2_000_000))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text", ["1,2;" * MOST_VALUES, '[{"a":1},' * 100_000, "\\" * 300_000 + ',"' * MOST_VALUES, "é,{[:" * 200_000]
)
def test_what_stands_in_a_string_is_no_value(text: str) -> None:
    assert strictjson.parse(json.dumps({"prompt": text, "seed": 1}).encode()) == {"prompt": text, "seed": 1}


def test_an_open_string_is_looked_through_once() -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="Unterminated"):
        strictjson.parse(b'"' + b'\\",' * 1_000_000)
    assert time.process_time() - began < 2


def test_a_doubled_name_among_very_many_is_found_at_once() -> None:
    names = b",".join(b'"%d":1' % n for n in range(200_000))
    began = time.process_time()
    with pytest.raises(ValueError, match="the name '7' is there twice"):
        strictjson.parse(b"{" + names + b',"7":1}')
    assert time.process_time() - began < 2
