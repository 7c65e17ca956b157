"""/v1/responses: a job that is a response, in the background or not. Nothing is stored beyond the job."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from dispatcher.backends.answer import Answer
from fairlane.accounts import Caller
from fairlane.model import Usage
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.signals import Signals
from producer.api.state import State
from producer.intake import JobRequest
from tests.api.door import BOB, CHAT, Served, refused, request_bytes, submit
from tests.dispatcher.scripted import Script, answer, finished, hang, in_state, make_worker, until, working

PATH = "/v1/responses"
ASKED: dict[str, Any] = {"model": "llama", "input": "Hello", "instructions": "Be brief.", "max_output_tokens": 7}
ANSWERED = {
    "id": "resp_of_the_backend",
    "object": "response",
    "status": "incomplete",
    "background": False,
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hé"}]}],
    "temperature": 0.70,
    "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
}


@pytest.fixture
async def worker(queue: Queue, pool: Pool, signals: Signals, script: Script) -> AsyncIterator[None]:
    """Serves the pool; the backend answers ANSWERED."""
    script.then(answer(Answer(200, json.dumps(ANSWERED).encode())))
    async with working(make_worker(queue, pool, script, drain_s=0.0), signals):
        yield


async def begun(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """A response in the background."""
    response = await http.post(PATH, json=ASKED | {"background": True} | fields)
    assert response.status_code == 200, response.text
    return response.json()


async def ended(http: httpx.AsyncClient, id_: str) -> dict[str, Any]:
    """The response, once it has an outcome."""
    found: dict[str, Any] = {}

    async def has_ended() -> bool:
        found.update((await http.get(f"{PATH}/{id_}")).json())
        return found["status"] not in ("queued", "in_progress")

    await until(has_ended)
    return found


@pytest.mark.usefixtures("worker")
class TestServed:
    async def test_the_backends_answer_comes_back_under_our_id(
        self, http: httpx.AsyncClient, script: Script, queue: Queue
    ) -> None:
        response = await http.post(PATH, json=ASKED | {"service_tier": "flex"})
        job_id = response.headers["x-fairlane-job-id"]
        assert (response.status_code, response.json()) == (200, ANSWERED | {"id": f"resp_{job_id}"})
        assert json.loads(script.bodies[0]) == ASKED
        job = await queue.inspect.job(job_id)
        assert (job.tier, job.usage) == ("flex", Usage(3, 4))

    async def test_it_can_be_retrieved_as_long_as_its_job(self, http: httpx.AsyncClient) -> None:
        created = (await http.post(PATH, json=ASKED)).json()
        assert (await http.get(f"{PATH}/{created['id']}")).json() == created

    async def test_in_the_background_it_is_answered_at_once_and_done_nevertheless(
        self, http: httpx.AsyncClient, script: Script
    ) -> None:
        created = await begun(http, tools=[{"type": "function", "name": "f"}], metadata={"a": "b"})
        assert created["status"] in ("queued", "in_progress", "incomplete")
        assert created["background"] is True
        assert await ended(http, created["id"]) == ANSWERED | {"id": created["id"], "background": True}
        assert "background" not in json.loads(script.bodies[0])

    async def test_a_refusal_of_the_backend_is_unchanged_and_in_the_background_the_reason(
        self, http: httpx.AsyncClient, script: Script
    ) -> None:
        refusal = b'{"error": {"message": "Too long.", "type": "BadRequestError", "param": "input", "code": 400}}'
        script.then(answer(Answer(400, refusal)))
        response = await http.post(PATH, json=ASKED)
        assert (response.status_code, response.content) == (400, refusal)
        failed = await ended(http, (await begun(http))["id"])
        assert (failed["status"], failed["error"]) == ("failed", {"code": "backend_error", "message": "Too long."})

    @pytest.mark.parametrize("body", [b"", b"[]", b"plain", b'{"no": "response"}', b'"\xff"'])
    async def test_an_answer_that_is_no_response_is_unchanged(
        self, http: httpx.AsyncClient, script: Script, body: bytes
    ) -> None:
        script.then(answer(Answer(200, body)))
        response = await http.post(PATH, json=ASKED)
        assert (response.status_code, response.content) == (200, body)
        found = (await http.get(f"{PATH}/resp_{response.headers['x-fairlane-job-id']}")).json()
        assert (found["status"], found["output"]) == ("completed", [])

    async def test_a_caller_who_hangs_up_cancels_it_unless_it_is_in_the_background(
        self, door: Served, queue: Queue, script: Script
    ) -> None:
        script.then(hang, answer(Answer(200, json.dumps(ANSWERED).encode())))
        _, writer = await door.connect()
        writer.write(request_bytes(PATH, json.dumps(ASKED).encode()))
        await script.began.wait()
        writer.close()
        assert (await finished(queue, script.calls[0])).state == "cancelled"
        reader, writer = await door.connect()
        writer.write(request_bytes(PATH, json.dumps(ASKED | {"background": True}).encode()))
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await until(lambda: asyncio.sleep(0, len(script.calls) == 2))
        assert (await finished(queue, script.calls[1])).state == "succeeded"

    async def test_one_that_runs_is_in_progress_and_can_be_cancelled(
        self, http: httpx.AsyncClient, queue: Queue, script: Script
    ) -> None:
        script.then(hang)
        id_ = (await begun(http))["id"]
        await in_state(queue, id_.removeprefix("resp_"), "leased")
        assert (await http.get(f"{PATH}/{id_}")).json()["status"] == "in_progress"
        assert (await http.post(f"{PATH}/{id_}/cancel")).json()["status"] == "cancelled"
        assert (await http.post(f"{PATH}/{id_}/cancel")).json()["status"] == "cancelled"
        await until(lambda: asyncio.sleep(0, script.aborted == [id_.removeprefix("resp_")]))

    async def test_the_cancel_of_a_finished_one_changes_nothing(self, http: httpx.AsyncClient) -> None:
        created = (await http.post(PATH, json=ASKED)).json()
        assert (await http.post(f"{PATH}/{created['id']}/cancel")).json() == created


async def test_one_that_waits_says_what_was_asked_and_where_it_stands(http: httpx.AsyncClient, pool: Pool) -> None:
    asked = ASKED | {"background": True, "tools": [{"type": "function", "name": "f"}], "metadata": {"a": "b"}}
    response = await http.post(PATH, json=asked)
    found = response.json()
    assert found["id"] == "resp_" + response.headers["x-fairlane-job-id"]
    assert response.headers["x-fairlane-queue-position"] == "0"
    same = ("model", "instructions", "max_output_tokens", "background", "tools", "metadata")
    assert {name: found[name] for name in same} == {name: asked[name] for name in same}
    assert (found["object"], found["status"], found["output"], found["usage"]) == ("response", "queued", [], None)
    assert (found["error"], found["service_tier"], found["tool_choice"]) == (None, "default", "auto")
    assert (await http.get(f"{PATH}/{found['id']}")).json() == found


async def test_the_same_key_is_the_same_response(http: httpx.AsyncClient, pool: Pool) -> None:
    asked, key = ASKED | {"background": True}, {"idempotency-key": "k"}
    first, second = [await http.post(PATH, json=asked, headers=key) for _ in range(2)]
    assert first.json() == second.json()
    refused(await http.post(PATH, json=asked | {"seed": 1}, headers=key), 409, "idempotency_mismatch")
    # whoever waits for it and whoever does not ask for two things
    refused(await http.post(PATH, json=ASKED, headers=key), 409, "idempotency_mismatch")


async def test_anothers_response_and_what_is_none_are_not_found(http: httpx.AsyncClient, pool: Pool) -> None:
    own = (await begun(http))["id"]
    chat = (await submit(http, body=CHAT))["id"]
    for id_, headers in [(own, BOB), (f"resp_{chat}", {}), (chat, {}), (own.removeprefix("resp_"), {}), ("resp_", {})]:
        refused(await http.get(f"{PATH}/{id_}", headers=headers), 404, "not_found")
        refused(await http.post(f"{PATH}/{id_}/cancel", headers=headers), 404, "not_found")
    assert (await http.get(f"{PATH}/{own}")).json()["status"] == "queued"


@pytest.mark.parametrize(
    ("field", "value"),
    [("previous_response_id", "resp_1"), ("conversation", {"id": "conv_1"}), ("background", "yes"), ("background", 1)],
)
async def test_what_would_need_a_store_is_refused_however_it_comes(
    http: httpx.AsyncClient, queue: Queue, pool: Pool, field: str, value: object
) -> None:
    body = ASKED | {field: value}
    assert refused(await http.post(PATH, json=body), 400, "invalid_request")["param"] == field
    job = {"model": "llama", "endpoint": PATH, "body": body}
    assert refused(await http.post("/v1/jobs", json=job), 400, "invalid_request")["param"] == field
    assert (await queue.inspect.overview(pool)).leased == 0
    assert (await http.get("/v1/jobs")).json()["data"] == []


async def test_what_it_may_cost_is_estimated_from_its_own_field(state: State) -> None:
    async def output_tokens(endpoint: str, **limits: int | None) -> int:
        asked = JobRequest("llama", endpoint, ASKED | limits)
        return (await state.intake.job(asked, Caller("ann")))[1].output_tokens

    assert await output_tokens(PATH, max_tokens=9) == 7
    assert await output_tokens(PATH, max_output_tokens=None) == 256
    assert await output_tokens("/v1/chat/completions", max_completion_tokens=None, max_tokens=9) == 9


@pytest.mark.parametrize("path", [PATH, "/v1/chat/completions"])
async def test_a_position_that_is_none_is_refused_and_nothing_is_left_behind(
    http: httpx.AsyncClient, pool: Pool, path: str
) -> None:
    headers = {"idempotency-key": "k", "last-event-id": "nowhere"}
    refused(await http.post(path, json=CHAT | ASKED | {"stream": True}, headers=headers), 400, "invalid_request")
    assert (await http.get("/v1/jobs")).json()["data"] == []
