"""Server-sent events: a text is cut at the same places however it comes, and nothing of it is lost or changed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import sse

# Everything that matters, and often.
TEXTS = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b":", b"\xff", b"id: 7", b"\n\n"])).map(b"".join)
CUTS = st.lists(st.integers(1, 9), max_size=30)


def parts_of(text: bytes, lengths: list[int]) -> list[bytes]:
    parts: list[bytes] = []
    for length in lengths:
        parts.append(text[:length])
        text = text[length:]
    return [*parts, text]


@given(TEXTS, CUTS)
def test_where_it_is_cut_does_not_depend_on_the_parts_it_comes_in(text: bytes, lengths: list[int]) -> None:
    cutter = sse.Cutter()
    events = [event for part in parts_of(text, lengths) for event in cutter.cut(part)] + cutter.rest()
    assert events == sse.events_of(text)
    assert b"".join(events) == text
    assert all(events)


@given(TEXTS, st.integers(0, 10))
def test_a_text_that_is_cut_between_events_is_cut_as_before(text: bytes, at: int) -> None:
    """So a chunk of some events can be taken apart again."""
    events = sse.events_of(text)
    first, second = events[:at], events[at:]
    assert sse.events_of(b"".join(first)) == first
    assert sse.events_of(b"".join(second)) == second


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_any_of_three_ways(end: bytes) -> None:
    text = b"event: a" + end + b"data: 1" + end + end + b"data: 2" + end + end
    assert sse.events_of(text) == [b"event: a" + end + b"data: 1" + end + end, b"data: 2" + end + end]


def test_an_event_is_there_with_its_blank_line_and_not_before() -> None:
    cutter = sse.Cutter()
    assert cutter.cut(b"data: 1\r\n") == []
    assert cutter.cut(b"\r") == []  # half of a CR LF, perhaps
    assert cutter.cut(b"\n") == [b"data: 1\r\n\r\n"]
    assert cutter.rest() == []


def test_a_large_event_is_not_looked_through_again_with_each_part() -> None:
    cutter = sse.Cutter()
    for _ in range(2000):
        assert cutter.cut(b"x" * 4096) == []
    (event,) = cutter.cut(b"\n\n")
    assert len(event) == 2000 * 4096 + 2


@given(TEXTS, CUTS)
def test_what_waits_for_its_end_is_known(text: bytes, lengths: list[int]) -> None:
    cutter = sse.Cutter()
    for part in parts_of(text, lengths):
        cutter.cut(part)
    assert cutter.pending == sum(map(len, cutter.rest()))


def test_many_small_events_are_cut_in_a_time_that_grows_as_they_do() -> None:
    """Eight megabytes of blank lines took a quarter of a minute."""
    text = b"\n" * (1 << 20)
    began = time.process_time()
    assert sse.count_of(text) == 1 << 19
    assert len(sse.Cutter().cut(text)) == 1 << 19
    assert time.process_time() - began < 1.0


def test_of_a_large_text_one_event_is_cut_at_a_time() -> None:
    began = time.process_time()
    assert next(sse.each_of(b"\n" * (64 << 20))) == b"\n\n"
    assert time.process_time() - began < 0.2


@given(TEXTS, st.sampled_from([b"", b"{}"]))
def test_data_is_replaced_and_nothing_else_changed(text: bytes, data: bytes) -> None:
    for event in sse.events_of(text):
        if sse.data_of(event) is not None:
            changed = sse.with_data(event, data)
            assert sse.data_of(changed) == data
            if len(sse.events_of(event + b"x")) == 2:  # it has its blank line
                assert sse.events_of(changed + b"x") == [changed, b"x"]
            assert sse.with_data(changed, data) == changed


@given(TEXTS)
def test_an_id_is_added_and_nothing_else_changed(text: bytes) -> None:
    for event in sse.events_of(text):
        numbered = sse.with_id(event, "12-345")
        lines = numbered.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        assert [line for line in lines if line.startswith(b"id:")][-1] == b"id: 12-345"
        without = numbered.replace(b"id: 12-345", b"")
        assert without.startswith(event.rstrip(b"\r\n"))
        assert sse.data_of(numbered) == sse.data_of(event)


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: 1\n\n", b"1"),
        (b"data:1\r\ndata: 2\r\n\r\n", b"1\n2"),
        (b": a comment\n\n", None),
        (b"event: x\n\n", None),
        (b"data\n\n", None),
    ],
)
def test_the_data_of_an_event(event: bytes, data: bytes | None) -> None:
    assert sse.data_of(event) == data


@pytest.mark.parametrize("text", [b"data: 1\n\n", b"\n\nevent: a\n", b": hello", b"\xef\xbb\xbfdata: 1\n\n"])
def test_a_stream_is_known_by_its_start(text: bytes) -> None:
    assert sse.is_stream(text)


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"<h1>data:</h1>", b'  {"data": 1}'])
def test_what_is_no_stream_is_not_taken_for_one(text: bytes) -> None:
    assert not sse.is_stream(text)
