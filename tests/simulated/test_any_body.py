"""Whatever is sent as a body, the server answers or refuses it, and lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulated.running import SOON_S
from tests.simulated.server import Server

NUMBERS = st.none() | st.booleans() | st.integers() | st.floats()
VALUES = st.recursive(
    NUMBERS | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    *("model", "prompt", "input", "messages", "n", "stop", "seed", "priority", "temperature", "top_p"),
    *("max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stream", "stream_options"),
    *("encoding_format", "dimensions", "instructions", "max_output_tokens", "text", "tools", "tool_choice", "metadata"),
)
GOOD = {"prompt": "x", "input": "x", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}


@pytest.fixture(scope="module")
def calls(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=SOON_S, verify=False) as client:
        client.post("/faults", json={}).raise_for_status()
        yield client


@settings(max_examples=60, deadline=None)
@given(
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/responses"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3),
)
def test_no_field_of_a_body_can_break_the_server(calls: httpx.Client, path: str, fields: dict[str, object]) -> None:
    body = json.dumps({**GOOD, **fields})
    answer = calls.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {200, 400, 404}, answer.text
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["code"] == answer.status_code
        assert error["message"]


def test_a_body_nested_too_deeply_is_refused(calls: httpx.Client) -> None:
    answer = calls.post("/v1/completions", content=b"[" * 100_000, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert calls.get("/health").status_code == 200
