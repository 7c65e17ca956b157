"""What the commands say when something is not as it should be: what happened, where, and what to do next."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from fairlane.answers import Shown
from fairlane.cli_queue import _number, _why  # pyright: ignore[reportPrivateUsage]
from fairlane.errors import FairlaneError, InvalidKey, JobFailed
from fairlane.following import outcome
from fairlane.job import Job
from fairlane.model import Limits, Policy
from fairlane.process import PortInUse, check_port
from fairlane.queue.engine import Queue
from fairlane.terminal import refusals
from producer.client.records import Batch
from tests.client.test_errors import RAW
from tests.contract.acts import open_backend, submit, take
from tests.servers import ValkeyServer
from tests.unit.commands import REFUSED, USAGE, fairlane, llama, on, said, told

pytestmark = pytest.mark.usefixtures("server")


def plain(words: str) -> str:
    """Without the frame that typer draws round a usage error."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", words).split())


# --- Redis away, no queue, no pool ------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["", "ann:secret@"])
@pytest.mark.parametrize(
    "words", [["pool", "list"], ["tenants", "show", "ann"], ["policy", "show"], ["explain", "job_1"]]
)
def test_a_redis_that_takes_no_connection_is_named_with_the_cause(words: list[str], user: str) -> None:
    told = said(*words, "--redis", f"redis://{user}127.0.0.1:1/0", exit_code=REFUSED)
    assert told == "Redis at 127.0.0.1:1 took no connection: Connection refused.\n"


def test_without_a_queue_the_ways_to_one_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLANE_REDIS_URL")
    assert "start `fairlane up`" in plain(said("pool", "list", exit_code=USAGE))


@pytest.mark.parametrize("words", [["pool", "list"], ["policy", "show"], ["tenants", "show", "ann"]])
def test_a_redis_without_a_pool_is_said_and_as_json_is_empty(server: ValkeyServer, words: list[str]) -> None:
    told_in_words = said(*words, "--namespace", "empty")
    assert f"No pool here (namespace empty; Redis at 127.0.0.1:{server.port})" in told_in_words
    assert told(*words, "--namespace", "empty")["pools"] == []


@pytest.mark.parametrize("words", [["policy", "set", "valve_ms=5"], ["tenants", "set", "ann", "weight=2"]])
def test_nothing_can_be_set_without_a_pool(words: list[str]) -> None:
    assert "No pool here" in said(*words, "--namespace", "empty", exit_code=REFUSED)


@pytest.mark.parametrize("words", [["pool", "pause"], ["pool", "drain"], ["policy", "show", "--pool"]])
def test_a_pool_that_is_not_there_is_refused_with_those_that_are(words: list[str]) -> None:
    assert said(*words, "gone", exit_code=REFUSED) == "There is no pool 'gone'. There are: llama.\n"


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(*words: str, exit_code: int) -> Any:
    return json.loads(fairlane(*words, "--json", exit_code=exit_code).stderr)["error"]


def test_with_json_a_refusal_is_json_too() -> None:
    assert refusal("pool", "pause", "gone", exit_code=REFUSED)["code"] == "not_found"
    assert refusal("explain", "job_gone", exit_code=REFUSED)["code"] == "not_found"
    assert refusal("policy", "set", "valve_ms=x", exit_code=USAGE) == {
        "code": "invalid_request",
        "message": "valve_ms is a whole number, not 'x'.",
        "param": "valve_ms",
    }
    away = ("pool", "list", "--redis", "redis://127.0.0.1:1")
    assert refusal(*away, exit_code=REFUSED)["code"] == "store_unavailable"
    assert refusal("doctor", "--redis", "nonsense", exit_code=USAGE)["code"] == "invalid_request"


@pytest.mark.parametrize(
    "words", [["policy", "set", "gamma=2", "gamma=3"], ["tenants", "set", "ann", "weight=2", "weight=3"]]
)
def test_what_is_said_twice_is_refused(words: list[str]) -> None:
    assert "is there twice" in plain(said(*words, exit_code=USAGE))


@pytest.mark.parametrize(
    "options",
    [
        ["--server", "http://127.0.0.1:1", "--redis", "redis://127.0.0.1:1"],
        ["--server", "http://127.0.0.1:1", "--namespace", "x"],
        ["--api-key", "x"],
    ],
)
def test_options_of_explain_that_exclude_each_other_are_refused(options: list[str]) -> None:
    assert "--server" in plain(said("explain", "job_1", *options, exit_code=USAGE))


def test_a_redis_that_is_set_for_all_does_not_forbid_to_ask_a_server() -> None:
    said("explain", "job_1", "--server", "http://127.0.0.1:1", exit_code=REFUSED)


def test_only_limits_that_can_be_none_are_offered_it() -> None:
    assert "weight is a number; not 'none'" in plain(said("tenants", "set", "ann", "weight=none", exit_code=USAGE))
    assert "whole number, or none" in plain(said("tenants", "set", "ann", "max_inflight=x", exit_code=USAGE))


@pytest.mark.parametrize(
    "wrong", ["http://a,slots=zero", "gpu1:8000", "http://a,slots=1,slots=2", "http://a,colour=red"]
)
def test_a_refused_backend_is_quoted_as_it_was_typed(wrong: str) -> None:
    words = plain(said("pool", "add", "llama", wrong, exit_code=USAGE))
    assert wrong in words
    assert "--backend" not in words


def test_a_port_in_use_is_said_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"Port {port} is in use"):
            check_port("127.0.0.1", port)
        for words in (["api", "--auth", "open", "--port"], ["sim-backend", "--port"], ["dispatcher", "--metrics-port"]):
            assert f"Port {port} is in use" in said(*words, str(port), exit_code=REFUSED)
    with pytest.raises(FairlaneError, match="cannot be listened on"):
        check_port("192.0.2.1", 0)


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_drain_says_that_it_waits_and_ctrl_c_says_how_to_undo_it(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> None:
        pool = await llama(queue)
        await open_backend(queue, pool, "b1", 1000)
        await submit(queue, pool)
        await take(queue, pool)

    on(server, work)
    words = [sys.executable, "-m", "fairlane.cli", "pool", "drain", "llama", "b1", "--redis", server.url]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr
        assert waiting.stderr.readline() == "Waiting for 1 job (Ctrl-C stops waiting, not the drain) …\n"
        waiting.send_signal(signal.SIGINT)
        assert waiting.stderr.read() == "Still draining; `fairlane pool undrain llama b1` undoes it.\n"
    assert waiting.returncode == 130
    assert "pool undrain llama b1" in said("pool", "drain", "llama", "b1", "--wait", "0", exit_code=REFUSED)


# --- words ------------------------------------------------------------------------------------------------------------


def test_gates_that_say_the_same_to_all_tiers_say_it_once(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> None:
        await open_backend(queue, await llama(queue), "b1", 1)
        await queue.set_backend(await llama(queue), "b1", "drain")

    on(server, work)
    assert said("pool", "list").splitlines()[-1].split() == ["llama", "b1", "draining", "0", "0", "draining"]


def test_a_held_tenant_is_held_by_a_limit_or_paused(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> None:
        pool = await queue.pools.open("llama", Policy())
        await open_backend(queue, pool, "b1", 1000)
        await queue.set_limits(pool, "ann", Limits(max_inflight=1))
        for tenant in ("ann", "bob"):
            await submit(queue, pool, tenant, n=3)
        await queue.pause(pool, tenant="bob")
        await take(queue, pool, 5)

    on(server, work)
    listed, shown = said("tenants", "list"), said("tenants", "show", "ann")
    assert "held by max_inflight" in listed
    assert "paused" in listed
    assert "held by max_inflight" in shown


def test_the_numbers_of_a_gate_are_to_be_read() -> None:
    assert _number("token_ms", 8.806825122135503) == "token_ms 8.81"
    assert _number("theta", [4, 2, 1]) == "theta 4,2,1"
    assert _number("down_at", time.time() - 60) == "down 60 s ago"
    assert [_number(name, value) for name, value in (("slow", False), ("missing", []), ("kv", None))] == ["", "", ""]
    assert (_number("slow", True), _number("live", 0), _number("kv", 0.0)) == ("slow", "live 0", "kv 0")


def test_one_is_not_many() -> None:
    ahead = [{"what": "own_line", "jobs": 1}, {"what": "tenants", "tenants": 1}, {"what": "no_backend"}]
    why = {"state": "queued", "position": 1, "estimated_start_s": 60.0, "ahead": ahead, "gate": None}
    words = "\n".join(_why("job_1", why))
    assert "about 1 job starts before it, it starts in about 60 s" in words
    assert "1 job of its own tenant is before it" in words
    assert "1 tenant has its turn" in words
    assert "`fairlane pool add`" in words


def test_who_does_not_answer_is_named_with_since_when(server: ValkeyServer) -> None:
    async def work(queue: Queue) -> str:
        pool = await llama(queue)
        await open_backend(queue, pool, "b1", 1)
        await queue.set_backend(pool, "b1", "down")
        (job,) = await submit(queue, pool)
        return job

    words = said("explain", on(server, work))
    assert re.search(r"is queued; it is next\n", words)
    assert re.search(r"no backend answers \(b1: down since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)", words)
    assert "it starts in" not in words


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"fairlane \d+\.\d+\.\d+\n", said("--version"))


def test_a_batch_is_not_explained_but_the_way_to_it_is() -> None:
    words = plain(said("explain", "batch_1", exit_code=USAGE))
    assert "batch_1 is a batch" in words
    assert "fairlane watch batch_1" in words


def test_a_missing_key_is_asked_for_by_what_a_terminal_has(capsys: pytest.CaptureFixture[str]) -> None:
    for message in (None, "A key is needed. Send `Authorization: Bearer <key>`.", "This key was revoked."):
        with pytest.raises(typer.Exit), refusals():
            raise InvalidKey(message) if message else InvalidKey()
        words = capsys.readouterr().err
        assert words.endswith(" Say --api-key KEY, or set FAIRLANE_API_KEY.\n")
        assert "Bearer" not in words


def test_doctor_examines_the_one_that_runs_here(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FAIRLANE_REDIS_URL")
    assert "start `fairlane up`" in plain(said("doctor", exit_code=USAGE))
    (tmp_path / "up.json").write_text(json.dumps({"url": None, "redis_url": server.url}))
    assert told("doctor")["findings"]


def test_a_failure_is_told_in_the_same_words_by_the_command_line_and_by_the_client() -> None:
    error = {"code": "backend_error", "message": "The backend refused it.", "status": 400}
    result = {"status": 400, "body": {"error": {"message": "max_tokens is too large"}}}
    job = Job.parse(RAW | {"state": "failed", "error": error, "result": result})
    assert outcome(job).startswith(f"failed: {JobFailed(job).message}")
    assert "max_tokens is too large" in outcome(job)


def test_what_became_of_a_batch_is_told_beside_the_file_that_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = {"id": "batch_1", "status": "completed", "endpoint": "/v1/completions", "input_file_id": "file-1"}
    ended = Batch.parse(raw | {"completion_window": "24h", "created_at": 100, "completed_at": 104})

    class Two:
        async def results(self) -> AsyncIterator[Any]:
            for n in range(2):
                yield SimpleNamespace(ok=True, raw={"n": n})

    path = tmp_path / "out"
    asyncio.run(Shown(path, False).batch(cast(Any, Two()), ended))
    assert len(path.read_text().splitlines()) == 2
    assert capsys.readouterr().err == f"batch_1 completed: 2 of 2 lines succeeded, in 4 s; written to {path}\n"
