"""A job's head."""

from __future__ import annotations

import json

import pytest

from fairlane.head import Head


def test_it_comes_back_as_it_was() -> None:
    head = Head("/v1/completions", "llama", 2.5, {"a": [1]}, {"url": "https://x"})
    assert Head.decode(head.encode()) == head
    assert json.loads(Head("/v1/completions", "llama").encode()) == {"endpoint": "/v1/completions", "model": "llama"}


@pytest.mark.parametrize(
    "packed",
    [b"", b"[]", b"{}", b'{"endpoint": 1}', b"[" * 100_000]
    + [b'{"endpoint": "/v1/x", "timeout_s": %b}' % t for t in (b"0", b"-1", b'"1"', b"{}", b"NaN", b"9" * 400)],
)  # fmt: skip
def test_what_is_no_head_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Head.decode(packed)
