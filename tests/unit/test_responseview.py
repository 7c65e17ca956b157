"""The events of a response's stream under our id: rewritten where they name it, left alone elsewhere."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from fairlane.head import Head
from fairlane.model import Job
from producer.responseview import Events, response_view, rewritten

HEAD = Head("/v1/responses", "llama", stream=True).encode()
DONE = Job(
    "job_1", "llama", "ann", "default", "succeeded", False, 1, None, None, 1, 1, (), 1, None, HEAD, b"{}", 200, b"",
    None, None,
)  # fmt: skip
ERROR = {"message": "It broke.", "type": "server_error", "param": None, "code": "stream_broken"}


def event(kind: str, number: int, **fields: Any) -> bytes:
    data = {"type": kind, "sequence_number": number, **fields}
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def data_of(sent: bytes) -> Any:
    (line,) = [line for line in sent.split(b"\n") if line.startswith(b"data:")]
    return json.loads(line[5:])


def test_only_events_that_hold_the_response_are_touched() -> None:
    events = Events("job_1", background=False)
    said = event("response.output_text.delta", 4, delta='a "response" of 1.50')
    assert events.rewrite(said) == said
    response = {"id": "resp_own", "temperature": 0.5, "output": [{"id": "msg_1"}]}
    sent = events.rewrite(event("response.completed", 9, response=response))
    assert sent.startswith(b"event: response.completed\ndata: ")
    assert sent.endswith(b"\n\n")
    ours = response | {"id": "resp_job_1"}
    assert data_of(sent) == {"type": "response.completed", "sequence_number": 9, "response": ours}


def test_in_the_background_it_says_so() -> None:
    sent = Events("job_1", background=True).rewrite(event("response.created", 0, response={"background": False}))
    assert data_of(sent)["response"] == {"background": True, "id": "resp_job_1"}


@pytest.mark.parametrize(
    "odd",
    [
        b": a comment\n\n",
        b"data: [DONE]\n\n",
        b'data: {"response": no JSON}\n\n',
        b'data: {"response": 7}\n\n',
        b'data: ["response"]\n\n',
        b'event: "response"\n\n',
    ],
)
def test_what_is_no_such_event_passes(odd: bytes) -> None:
    assert Events("job_1", background=False).rewrite(odd) == odd
    assert Events("job_1", background=False, after=3).rewrite(odd) == odd


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        (b'event: a\rdata: {"response": {}}\r\r', b'event: a\rdata: {"response":{"id":"resp_job_1"}}\r\r'),
        (b'data: {"response":\ndata: {}}\nid: 1\n\n', b'data: {"response":{"id":"resp_job_1"}}\nid: 1\n\n'),
        (b'data:{\r\ndata:"response": {}}\r\n\r\n', b'data: {"response":{"id":"resp_job_1"}}\r\n\r\n'),
        (
            b'data: {"response": {"n": -1e999}}\n\n',
            b'data: {"response":{"n":-1.7976931348623157e+308,"id":"resp_job_1"}}\n\n',
        ),
    ],
    ids=["CR", "two lines of data", "CRLF", "a number that is none"],
)
def test_an_id_is_ours_however_the_event_is_written(said: bytes, sent: bytes) -> None:
    assert Events("job_1", background=False).rewrite(said) == sent


@pytest.mark.parametrize(
    "result",
    [
        b'{"object": "response", "id": "theirs", "output": [1e999, NaN]}',
        b'data: {"response":\rdata: {"output": [1e999, NaN]}}\r\rdata: [DONE]\r\r',
    ],
)
def test_an_answer_with_a_number_that_is_none_is_still_the_answer(result: bytes) -> None:
    job = replace(DONE, result=result)
    for view in (response_view(job), json.loads(rewritten(job))):
        assert view["id"] == "resp_job_1"
        assert view["output"] == [sys.float_info.max, None]


def test_half_a_surrogate_pair_stays_the_escape_that_it_was() -> None:
    sent = Events("job_1", background=False).rewrite(b'data: {"response": {"text": "\\ud83d"}}\n\n')
    assert data_of(sent)["response"]["text"] == "\ud83d"


def test_events_up_to_a_number_are_left_out() -> None:
    events = Events("job_1", background=False, after=1)
    sent = [events.rewrite(event("x", n, response={})) for n in range(4)]
    assert sent[:2] == [b"", b""]
    assert [data_of(one)["sequence_number"] for one in sent[2:]] == [2, 3]


def test_a_failure_is_an_event_with_the_next_number() -> None:
    events = Events("job_1", background=False)
    events.rewrite(event("response.created", 0, response={}))
    events.rewrite(event("response.output_text.delta", 7, delta="x"))
    sent = events.tell({"error": ERROR})
    assert sent.startswith(b"event: error\n")
    flat = {name: ERROR[name] for name in ("message", "param", "code")}
    assert data_of(sent) == {"type": "error", **flat, "sequence_number": 8, "error": ERROR}


def test_a_failure_before_any_event_is_the_first_or_the_one_after_what_was_seen() -> None:
    assert data_of(Events("job_1", background=False).tell({"error": ERROR}))["sequence_number"] == 0
    assert data_of(Events("job_1", background=False, after=4).tell({"error": ERROR}))["sequence_number"] == 5
    events = Events("job_1", background=False)
    events.rewrite(b'data: {"sequence_number": "no number"}\n\n')
    assert data_of(events.tell({"error": ERROR}))["sequence_number"] == 0
