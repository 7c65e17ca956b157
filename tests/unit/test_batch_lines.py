"""A batch's file: how it is cut into lines, and what is said of each line that is not good."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.batches.lines import MOST_LINES, Checker, Line, cut
from fairlane.batches.view import BatchFault

CHAT = "/v1/chat/completions"
MOST = 10_000


def request(custom_id: object = "a", **changes: Any) -> dict[str, Any]:
    body = {"model": "llama", "messages": [{"role": "user", "content": "Hello"}]}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body} | changes


def with_body(**changes: Any) -> dict[str, Any]:
    return request(body=request()["body"] | changes)


def text(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def cut_all(pieces: Sequence[bytes], most: int = MOST, **place: int) -> list[Line]:
    async def source() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def collect() -> list[Line]:
        return [line async for line in cut(source(), most, **place)]

    return asyncio.run(collect())


def faults(*lines: object, endpoint: str = CHAT) -> list[BatchFault]:
    checker = Checker(endpoint, MOST)
    found = (checker.fault(line) for line in cut_all([b"\n".join(map(text, lines))], MOST + 1000))
    return [fault for fault in found if fault]


BAD: list[tuple[object, str, str | None]] = [
    (b"no JSON", "invalid_json_line", None),
    (b'{"custom_id": "a"', "invalid_json_line", None),
    (b'{"custom_id": "\xff"}', "invalid_json_line", None),
    (b'\xef\xbb\xbf{"custom_id": "a"}', "invalid_json_line", None),  # a BOM that is not the file's first bytes
    (b'{"custom_id": "\\ud800"}', "invalid_json_line", None),
    (b'{"custom_id": "a", "custom_id": "b"}', "invalid_json_line", None),
    (b'{"n": NaN}', "invalid_json_line", None),
    (b'{"n": 1e999}', "invalid_json_line", None),
    (b'{"n": ' + b"9" * 5000 + b"}", "invalid_json_line", None),
    (b"[" * 200 + b"]" * 200, "invalid_json_line", None),
    ([], "invalid_json_line", None),
    ("text", "invalid_json_line", None),
    (None, "invalid_json_line", None),
    (17, "invalid_json_line", None),
    ({}, "invalid_custom_id", "custom_id"),
    (request(custom_id=None), "invalid_custom_id", "custom_id"),
    (request(custom_id=7), "invalid_custom_id", "custom_id"),
    (request(custom_id=""), "invalid_custom_id", "custom_id"),
    (request(custom_id="x" * 513), "invalid_custom_id", "custom_id"),
    (request(method="GET"), "invalid_method", "method"),
    (request(method=None), "invalid_method", "method"),
    (request(url="/v1/embeddings"), "invalid_url", "url"),
    (request(url=["/v1/chat/completions"]), "invalid_url", "url"),
    (request(url=CHAT + "/"), "invalid_url", "url"),
    (request(body=None), "invalid_body", "body"),
    (request(body="{}"), "invalid_body", "body"),
    (request(body=[]), "invalid_body", "body"),
    (request(body={}), "missing_model", "body.model"),
    (with_body(model=None), "missing_model", "body.model"),
    (with_body(model=""), "missing_model", "body.model"),
    (with_body(model={"name": "llama"}), "missing_model", "body.model"),
    (with_body(stream=True), "stream_not_allowed", "body.stream"),
    (with_body(stream="yes"), "stream_not_allowed", "body.stream"),
    (with_body(prompt="x" * MOST), "request_too_large", "body"),
    (with_body(prompt="x" * 5 * MOST), "request_too_large", "body"),
    (with_body(numbers=[1e15] * 1000), "request_too_large", "body"),  # longer as it is written than as it was read
]


@pytest.mark.parametrize(("bad", "code", "param"), BAD)
def test_a_bad_line_is_named_with_what_is_wrong(bad: object, code: str, param: str | None) -> None:
    (fault,) = faults(request("before"), bad, request("behind"))
    assert (fault.code, fault.line, fault.param) == (code, 2, param)
    assert len(fault.message) > 10


@pytest.mark.parametrize(
    "good",
    [
        request(unknown=1),
        with_body(stream=False),
        with_body(stream=None, service_tier="auto", priority=3, seed=2**80, temperature=1e300),
        b"  " + text(request()) + b" \t\r",
        request("x" * 512),
        request("ü\x00\U0001f600"),
    ],
)
def test_a_good_line_is_taken(good: object) -> None:
    assert faults(good) == []


def test_responses_that_would_need_a_memory_are_refused() -> None:
    line = request(url="/v1/responses", body={"model": "llama", "input": "x", "previous_response_id": "resp_1"})
    (fault,) = faults(line, endpoint="/v1/responses")
    assert fault.param == "body.previous_response_id"


def test_a_doubled_custom_id_is_refused_with_both_lines() -> None:
    """Case 12: elsewhere it hung the batch."""
    found = faults(request("a"), request("b"), request("a"), request("a"))
    assert [(fault.code, fault.line) for fault in found] == [("duplicate_custom_id", 3), ("duplicate_custom_id", 4)]
    assert "line 1" in found[0].message


def test_a_second_model_is_refused() -> None:
    found = faults(request("a"), with_body(model="mistral") | {"custom_id": "b"}, request("c"))
    assert [(fault.code, fault.line) for fault in found] == [("mismatched_model", 2)]


def test_one_line_too_many_is_refused() -> None:
    checker = Checker(CHAT, MOST)
    assert checker.fault(Line(1, MOST_LINES, text(request("a")), 0)) is None
    fault = checker.fault(Line(2, MOST_LINES + 1, text(request("b")), 0))
    assert fault is not None
    assert fault.code == "too_many_requests"


def test_every_bad_line_is_reported() -> None:
    found = faults(*(bad for bad, _, _ in BAD))
    assert [fault.line for fault in found] == list(range(1, len(BAD) + 1))


def test_blank_lines_count_as_lines_but_not_as_requests() -> None:
    lines = cut_all([b"\xef\xbb\xbfone\r\n\n  \t\r\ntwo\n\n"])
    assert [(line.number, line.ordinal, line.text) for line in lines] == [(1, 1, b"one"), (4, 2, b"two")]


def test_a_line_without_end_is_not_held() -> None:
    lines = cut_all([b"a\n", *[b"x" * 1000] * 100, b"x\nb"], most=500)
    assert [(line.ordinal, line.text) for line in lines] == [(1, b"a"), (2, None), (3, b"b")]
    assert lines[1].end == 2 + 100_002


LINES = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=12)


@given(LINES, st.binary(max_size=3), st.lists(st.integers(0, 150), max_size=6), st.integers(1, 12))
def test_where_the_pieces_end_does_not_matter(lines: list[bytes], rest: bytes, cuts: list[int], most: int) -> None:
    whole = b"".join(line + b"\n" for line in lines) + rest.replace(b"\n", b"")
    at = sorted({0, len(whole), *(place for place in cuts if place < len(whole))})
    pieces = [whole[start:end] for start, end in pairwise(at)]
    assert cut_all(pieces, most) == cut_all([whole], most)


@given(LINES, st.integers(0, 12))
def test_reading_goes_on_behind_any_line(lines: list[bytes], n: int) -> None:
    whole = b"\n".join(lines)
    known = cut_all([whole])
    if n < len(known):
        place = known[n]
        again = cut_all([whole[place.end :]], ordinal=place.ordinal, offset=place.end)
        assert [(line.ordinal, line.text, line.end) for line in again] == [
            (line.ordinal, line.text, line.end) for line in known[n + 1 :]
        ]
