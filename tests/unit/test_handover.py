"""The `priority` that an engine gets: at the end of whatever body there is, and what counts as its refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.backends.answer import Answer
from dispatcher.handover import refuses_priority, with_priority

SPACE = st.text(alphabet=" \t\r\n", max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text() | st.just("priority"), VALUES), SPACE, SPACE, st.none() | st.integers(0, 3), st.integers()
)
def test_it_comes_last_and_changes_nothing_else(
    body: dict[str, Any], before: str, after: str, indent: int | None, priority: int
) -> None:
    written = before + json.dumps(body, indent=indent, ensure_ascii=False) + after
    pairs = json.loads(with_priority(written.encode(errors="surrogatepass"), priority), object_pairs_hook=list)
    assert pairs[-1] == ("priority", priority)
    assert len(pairs) == len(body) + 1


@pytest.mark.parametrize(
    "body", [b"{}", b"{ }", b" {\n} \n", b'{"priority":-99}', b'{"a":{}}', b'{"a":"{"}', b'{"a":"}" }']
)
def test_ours_is_the_one_that_is_read(body: bytes) -> None:
    read = json.loads(with_priority(body, 7))
    assert read == {**json.loads(body), "priority": 7}


@pytest.mark.parametrize("body", [b"", b"[1]", b'"{}"', b"null", b"{", b"}", b" "])
def test_what_is_no_object_stays_as_it_is(body: bytes) -> None:
    assert with_priority(body, 7) == body


@pytest.mark.parametrize(
    ("status", "body", "refuses"),
    [
        (400, b'{"error":{"message":"Got priority 5 but Priority scheduling is not enabled."}}', True),
        (422, b'{"detail":[{"type":"extra_forbidden","loc":["body","priority"]}]}', True),
        (400, b'{"error":{"message":"Extra inputs are not permitted","param":"priority","code":400}}', True),
        (400, b"{'type': 'extra_forbidden', 'loc': ('body', 'priority'), 'input': 7}", True),
        (422, b'{"errors":{"priority":["is not known"]}}', True),
        (422, b'{"detail":[{"type":"missing","loc":["body","messages"],"input":{"a":1,"priority":-7}}]}', False),
        (400, b"[{'loc': ('body', 'messages'), 'input': {'model': 'v', 'priority': 7}}]", False),
        (400, b'{"error":{"message":"Field required: {\\"model\\":\\"v\\",\\"priority\\": 7}"}}', False),
        (503, b'{"message":"The request is aborted by a higher priority request."}', False),
        (503, b"The request queue is full.", False),
        (400, b'{"error":{"message":"max_tokens is too large"}}', False),
        (200, b'{"choices":[{"text":"priority"}]}', False),
        (429, b"low priority", False),
        (500, b"priority", False),
    ],
)
def test_only_what_was_not_begun_for_its_priority_is_a_refusal(status: int, body: bytes, refuses: bool) -> None:
    assert refuses_priority(Answer(status, body)) is refuses
