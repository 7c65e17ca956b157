"""Submitting, cancelling and fetching by the command line: what is read, what is refused, and what is said."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlane.answers import line_of, piece_of, text_of
from fairlane.cli import app
from fairlane.errors import InvalidRequest, QueueFull
from fairlane.following import outcome
from fairlane.job import Job
from fairlane.joblines import PART_JOBS, Given, count, jobs, parts
from fairlane.progress import Part
from fairlane.queue.engine import Queue
from tests.servers import ValkeyServer
from tests.unit.commands import REFUSED, USAGE, llama, on, said, told

DEFAULTS: dict[str, object] = {"model": None, "tier": "flex"}
OPENAI = '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"llama","prompt":"x"}}'
JOB = '{"custom_id":"b","model":"llama","body":{"prompt":"y"},"tier":"batch","metadata":{"n":1}}'
BODY = '{"messages":[],"model":"llama"}'


@pytest.fixture(autouse=True)
def served(server: ValkeyServer) -> None:
    """The pool has a backend: only such a pool's model is taken without being named."""

    async def add(queue: Queue) -> None:
        await queue.set_backend(await llama(queue), "b1", "add")

    on(server, add)


def given(**changes: Any) -> Given:
    return Given(DEFAULTS | changes, {"max_tokens": 5}, "k")


def text(*lines: str) -> io.BytesIO:
    return io.BytesIO("\n".join(lines).encode())


def piped(lines: str | bytes, *words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["submit", *words], input=lines)
    assert result.exit_code == exit_code, result.output
    return result.output


def plain(words: str) -> str:
    """Without the frame that typer draws round a usage error."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", words).split())


def waiting(server: ValkeyServer, tier: str = "default") -> list[Any]:
    async def read(queue: Queue) -> list[Any]:
        pool = await llama(queue)
        found, _ = await queue.inspect.line(pool, tier, "anonymous")
        return [await queue.inspect.job(job.id) for job in found]

    return on(server, read)


# --- lines ------------------------------------------------------------------------------------------------------------


def test_a_line_is_a_job_or_a_request_of_openais_batches_or_a_body() -> None:
    openai, job, body = jobs(text(OPENAI, JOB, BODY), given())
    assert [line.custom_id for line in (openai, job, body)] == ["a", "b", "line-3"]
    assert openai.item == {
        "model": "llama",
        "endpoint": "/v1/completions",
        "body": {"model": "llama", "prompt": "x", "max_tokens": 5},
        "tier": "flex",
        "idempotency_key": "k:1",
        "metadata": {"custom_id": "a"},
    }
    assert (job.item["tier"], job.item["metadata"]) == ("batch", {"n": 1, "custom_id": "b"})
    assert body.item["body"] == {"messages": [], "model": "llama", "max_tokens": 5}


def test_a_line_that_names_no_model_is_for_that_of_the_command() -> None:
    (line,) = jobs(text('{"prompt":"x"}'), given(model="llama"))
    assert line.item["model"] == "llama"
    assert count(text('{"prompt":"x"}'), given()).unnamed
    assert not count(text(BODY), given()).unnamed


def test_blank_lines_count_and_windows_files_are_read() -> None:
    found = list(jobs(io.BytesIO(b"\xef\xbb\xbf" + BODY.encode() + b"\r\n\r\n" + BODY.encode() + b"\r\n"), given()))
    assert [line.number for line in found] == [1, 3]
    assert [line.item["idempotency_key"] for line in found] == ["k:1", "k:3"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("Hello", "this is no JSON"),
        ("[1]", "a job is a JSON object"),
        ('{"body":5}', "body is a JSON object"),
        ('{"body":{"prompt":"x"},"teir":"flex"}', "there is no teir in a job"),
        ('{"method":"GET","url":"/v1/completions","body":{"prompt":"x"}}', "method is POST"),
        ('{"method":"POST","url":"/v1/nothing","body":{"prompt":"x"}}', "endpoint"),
        ('{"custom_id":5,"prompt":"x"}', "custom_id is a text"),
        ('{"prompt":"x","prompt":"y"}', "twice"),
        ('{"prompt":NaN}', "NaN"),
        ('{"temperature":1}', "messages, prompt, input"),
        ('{"body":{"prompt":"x"},"tier":5}', "tier is a text"),
        ('{"prompt":"x","custom_id":"line-1"}', "that of line 1"),
    ],
)
def test_what_is_no_job_is_named_by_its_line(line: str, fault: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"line 3: .*{fault}"):
        count(text(BODY, "", line), given())


def test_bytes_that_are_no_text_are_named_by_their_line() -> None:
    with pytest.raises(InvalidRequest, match=r"line 2: .*UTF-8"):
        count(io.BytesIO(BODY.encode() + b'\n{"prompt":"\xff"}\n'), given())


def test_of_many_faults_the_first_are_told_and_the_rest_are_counted() -> None:
    with pytest.raises(InvalidRequest) as refused:
        count(text(BODY, *["x"] * 25), given())
    assert len(str(refused.value).splitlines()) == 12
    assert str(refused.value).endswith("… and 15 more")


def test_an_endless_line_is_refused_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.joblines.LINE_MOST", 100)
    with pytest.raises(InvalidRequest, match="line 1: it is longer"):
        count(io.BytesIO(b'{"prompt":"' + b"x" * 1000), given())


def test_parts_are_bounded_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [len(part) for part in parts(text(*[BODY] * (PART_JOBS + 1)), given())] == [PART_JOBS, 1]
    monkeypatch.setattr("fairlane.joblines.PART_BYTES", 3 * len(BODY))
    assert [len(part) for part in parts(text(*[BODY] * 5), given())] == [2, 2, 1]


# --- submit -----------------------------------------------------------------------------------------------------------


def test_a_prompt_becomes_a_chat_of_the_only_model(server: ValkeyServer) -> None:
    id_ = said("submit", "Hello", "--no-wait", "--set", "max_tokens=5", "--set", "stop=END").strip()
    (job,) = waiting(server)
    assert job.id == id_
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "stop": "END"}
    assert json.loads(job.body).items() >= chat.items()


def test_options_say_how_urgent_it_is_and_when(server: ValkeyServer) -> None:
    words = ("submit", "Hi", "--no-wait", "--tier", "flex", "--tenant", "ann", "--delay", "60", "--deadline", "90")
    job = told(*words)
    assert (job["tier"], job["tenant"], job["state"]) == ("flex", "ann", "delayed")
    assert job["deadline_at"] - job["not_before"] == pytest.approx(30, abs=0.01)


def test_the_same_key_is_the_same_job(server: ValkeyServer) -> None:
    ids = {said("submit", "Hi", "--no-wait", "--key", "night-7") for _ in range(2)}
    assert len(ids) == 1
    assert said("submit", "Hi", "--no-wait") not in ids
    assert "idempotency" in said("submit", "Ho", "--no-wait", "--key", "night-7", exit_code=REFUSED)


@pytest.mark.parametrize("way", ["argument", "file", "stdin"])
def test_a_whole_request_is_taken_as_it_is(server: ValkeyServer, tmp_path: Path, way: str) -> None:
    body = '{"model": "llama", "prompt": "x", "n": 2}'
    (tmp_path / "body.json").write_text(body)
    said_as = {"argument": body, "file": f"@{tmp_path}/body.json", "stdin": "-"}[way]
    piped(body, "--body", said_as, "--no-wait")
    (job,) = waiting(server)
    assert json.loads(job.body).items() >= {"prompt": "x", "n": 2}.items()


@pytest.mark.parametrize("way", ["file", "-", "pipe"])
def test_lines_become_jobs_in_their_order(server: ValkeyServer, tmp_path: Path, way: str) -> None:
    lines = "\n".join(json.dumps({"prompt": str(n)}) for n in range(1200))
    (tmp_path / "night.jsonl").write_text(lines)
    words = {"file": [str(tmp_path / "night.jsonl")], "-": ["-"], "pipe": []}[way]
    ids = piped("" if way == "file" else lines, *words, "--no-wait").split()
    assert len(set(ids)) == 1200
    assert [job.id for job in waiting(server)] == ids[:100]


def test_the_same_lines_with_the_same_key_are_the_same_jobs(server: ValkeyServer) -> None:
    first = piped(f"{OPENAI}\n", "--no-wait", "--key", "k").split()
    both = piped(f"{OPENAI}\n{JOB}\n", "--no-wait", "--key", "k").split()
    assert both[:1] == first
    assert len(set(both)) == 2


def test_as_json_each_id_stands_with_its_custom_id(server: ValkeyServer) -> None:
    told_of = [json.loads(line) for line in piped(f"{OPENAI}\n{JOB}", "--no-wait", "--json").splitlines()]
    assert [one["custom_id"] for one in told_of] == ["a", "b"]
    assert all(one["id"].startswith("job_") for one in told_of)


def test_nothing_is_submitted_if_a_line_is_wrong(server: ValkeyServer) -> None:
    words = plain(piped(f"{BODY}\nHello\n", "--no-wait", exit_code=USAGE))
    assert "Nothing was submitted: line 2: this is no JSON" in words
    assert waiting(server) == []


def test_a_line_that_is_refused_does_not_stop_the_others(server: ValkeyServer) -> None:
    lines = f'{{"model":"gone","prompt":"x"}}\n{BODY}\n'
    output = piped(lines, "--no-wait", exit_code=1)
    assert "line 1: No pool serves the model 'gone'" in output
    assert len(waiting(server)) == 1
    assert "1 job was refused." in piped(lines.splitlines()[0], "--no-wait", exit_code=REFUSED)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "the input is empty"),
        (["gone.jsonl"], "gone.jsonl cannot be read: No such file"),
        (["--body", "@gone.json"], "gone.json cannot be read"),
        (["--body", "{"], "The body is no JSON"),
        (["--body", "[]"], "The body is a JSON object"),
        (["Hi", "--body", "{}"], "not both"),
        (["Hi", "--batch"], "A batch is made of JSONL"),
        (["--stream"], "--stream is for one request"),
        (["Hi", "--stream", "--no-wait"], "--stream is for one request"),
        (["Hi", "--set", "x"], "say NAME=VALUE"),
        (["Hi", "--tier", "gold", "--no-wait"], "gold"),
        (["Hi", "--api-key", "x"], "--api-key is for --server"),
        (["Hi", "--server", "http://127.0.0.1:1", "--redis", "redis://127.0.0.1:1"], "does not go with --server"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(words: list[str], fault: str) -> None:
    assert fault in plain(piped("", *words, exit_code=USAGE))


def test_of_several_models_one_must_be_named(server: ValkeyServer) -> None:
    async def another(queue: Queue) -> None:
        mistral = await queue.pools.open("mistral", (await llama(queue)).policy)
        await queue.set_backend(mistral, "b1", "add")

    on(server, another)
    assert "There are: llama, mistral." in plain(said("submit", "Hi", exit_code=USAGE))
    assert "There are: llama, mistral." in plain(piped('{"prompt":"x"}', exit_code=USAGE))


@pytest.mark.usefixtures("server")
def test_what_cannot_be_in_one_batch_is_named_by_its_line() -> None:
    for line, fault in (
        (JOB, "line 2: metadata, tier cannot be said of a batch"),
        (OPENAI.replace('"a"', '"b"'), "line 2: a batch has one endpoint and one model"),
        (BODY.replace("llama", "mistral"), "line 2: a batch has one endpoint and one model"),
    ):
        assert fault in plain(piped(f"{BODY}\n{line}\n", "--batch", exit_code=USAGE))
    assert "tier cannot be said" in plain(piped(BODY, "--batch", "--tier", "flex", exit_code=USAGE))


def test_a_batch_needs_a_front_door(server: ValkeyServer) -> None:
    assert "front door" in piped(BODY, "--batch", exit_code=REFUSED)


# --- results, cancel, watch -------------------------------------------------------------------------------------------


def test_what_has_not_ended_has_no_results_and_it_is_said_how_to_wait(server: ValkeyServer) -> None:
    id_ = said("submit", "Hi", "--no-wait").strip()
    assert f"`fairlane watch {id_} --redis {server.url}` waits" in said(
        "results", id_, "--redis", server.url, exit_code=REFUSED
    )


def test_each_is_cancelled_on_its_own(server: ValkeyServer) -> None:
    ids = [said("submit", "Hi", "--no-wait").strip() for _ in range(2)]
    output = said("cancel", ids[0], "job_gone", ids[1], exit_code=REFUSED)
    assert [line.split() for line in output.splitlines() if line.endswith("cancelled")] == [
        [id_, "cancelled"] for id_ in ids
    ]
    assert "job_gone: There is nothing with this id" in output
    assert told("cancel", ids[0])["state"] == "cancelled"  # again: it stays as it is


def test_ids_are_read_from_stdin_and_there_must_be_one(server: ValkeyServer) -> None:
    id_ = said("submit", "Hi", "--no-wait")
    assert "cancelled" in CliRunner().invoke(app, ["cancel", "-"], input=id_).output
    assert CliRunner().invoke(app, ["cancel", "-"], input="").exit_code == USAGE


def test_watching_ends_with_how_it_went(server: ValkeyServer) -> None:
    id_ = said("submit", "Hi", "--no-wait").strip()
    said("cancel", id_)
    assert said("watch", id_, exit_code=1) == f"{id_}  cancelled\n"
    assert json.loads(said("watch", id_, "--json", exit_code=1))["state"] == "cancelled"
    assert "job_gone: There is nothing" in said("watch", "job_gone", id_, exit_code=REFUSED)
    assert f"{id_}  cancelled" in said("watch", *[f"job_{n}" for n in range(30)], id_, exit_code=REFUSED)


# --- which queue ------------------------------------------------------------------------------------------------------


def test_a_front_door_that_is_away_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "night.jsonl").write_text(BODY)
    commands = "submit Hi", f"submit {tmp_path}/night.jsonl", "watch a", "results a", "cancel a", "tail", "explain a"
    for words in (
        [*command.split()] for command in (*commands, "watch " + " ".join(map(str, range(30))), "cancel a b")
    ):
        told_it = said(*words, "--server", "http://127.0.0.1:1", exit_code=REFUSED)
        assert "The front door at http://127.0.0.1:1 cannot be reached" in told_it, words


def test_the_fairlane_up_that_runs_here_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FAIRLANE_REDIS_URL", raising=False)
    monkeypatch.setenv("FAIRLANE_DATA_DIR", str(tmp_path))
    assert "start `fairlane up`" in plain(said("submit", "Hi", exit_code=USAGE))
    up = {"url": "http://127.0.0.1:1", "redis_url": "redis://127.0.0.1:2"}
    (tmp_path / "up.json").write_text(json.dumps(up))
    for words in (["submit", "Hi"], ["watch", "a"], ["results", "a"], ["cancel", "a"]):
        assert "http://127.0.0.1:1 cannot" in said(*words, exit_code=REFUSED)
    for words in (["tail"], ["explain", "a"], ["pool", "list"]):
        assert "Redis at 127.0.0.1:2 took no connection" in said(*words, exit_code=REFUSED)
    monkeypatch.setenv("FAIRLANE_REDIS_URL", "redis://127.0.0.1:3")
    assert "Redis at 127.0.0.1:3" in said("submit", "Hi", exit_code=REFUSED)
    monkeypatch.setenv("FAIRLANE_SERVER", "http://127.0.0.1:4")
    assert "http://127.0.0.1:4 cannot" in said("submit", "Hi", exit_code=REFUSED)
    assert "Redis at 127.0.0.1:5" in said("submit", "Hi", "--redis", "redis://127.0.0.1:5", exit_code=REFUSED)


# --- words ------------------------------------------------------------------------------------------------------------


def job(**changes: Any) -> Job:
    return Job.parse(
        {
            "id": "job_1", "pool": "llama", "model": "llama", "endpoint": "/v1/completions", "tenant": "ann",
            "tier": "default", "state": "succeeded", "dead": False, "created_at": 100.0, "not_before": None,
            "deadline_at": None, "started_at": 100.5, "finished_at": 102.5, "attempts": [], "max_attempts": 3,
            "result": None, "error": None, "usage": None, "metadata": {}, "batch_id": None,
        }
        | changes
    )  # fmt: skip


def test_how_a_job_ended_is_told_in_words() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert outcome(job(usage=usage)) == "succeeded in 2.5 s (waited 500 ms), 1 + 2 tokens"
    assert outcome(job(state="cancelled")) == "cancelled"
    error = {"code": "timeout", "message": "Too long.", "status": None}
    assert outcome(job(state="failed", error=error)) == "failed: timeout: Too long."


def test_an_answer_that_is_just_text_is_printed_as_text() -> None:
    assert text_of({"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}) == "Hi"
    assert text_of({"choices": [{"text": "Hi"}]}) == "Hi"
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    assert text_of({"object": "response", "output": [message]}) == "Hi"
    calls = {"choices": [{"message": {"content": "", "tool_calls": [{"id": "1"}]}}]}
    for body in (calls, {"data": [{"embedding": [1]}]}, {"choices": [{"text": "a"}, {"text": "b"}]}):
        assert json.loads(text_of(body)) == body


def test_a_chunk_adds_its_text() -> None:
    chunks = [{"choices": [{"delta": {"role": "assistant"}}]}, {"choices": [{"delta": {"content": "a"}}]},
              {"choices": [{"text": "b"}]}, {"choices": [], "usage": {}},
              {"type": "response.output_text.delta", "delta": "c"}]  # fmt: skip
    assert "".join(map(piece_of, chunks)) == "abc"


def test_each_outcome_has_the_form_of_openais_output() -> None:
    done = line_of("a", job(result={"status": 200, "body": {"x": 1}}))
    assert done == {"id": "job_1", "custom_id": "a", "error": None,
                    "response": {"status_code": 200, "request_id": "job_1", "body": {"x": 1}}}  # fmt: skip
    assert line_of("a", QueueFull("Full."))["error"] == {"code": "queue_full", "message": "Full."}
    for state in ("cancelled", "expired"):
        ended = line_of("a", job(state=state))
        assert ended["response"] is None
        assert ended["error"]["code"] == state


def test_how_much_is_done_is_told_with_its_rate_and_the_time_left() -> None:
    assert str(Part(5, 20, 1, 2.5)) == "5 of 20 done, 1 failed, 2.5/s, about 6 s left"
    assert str(Part(20, 20, 0, 2.5)) == "20 of 20 done"
    assert str(Part(0, 1200)) == "0 of 1,200 done"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    environment = os.environ | {
        "_FAIRLANE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "fairlane sub",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "fairlane sub",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    program = "import sys; sys.argv = ['fairlane']; from fairlane.cli import app; app(prog_name='fairlane')"
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert "submit" in ran.stdout, ran.stderr
