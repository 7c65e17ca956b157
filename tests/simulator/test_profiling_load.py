"""`fairlane profile` against backends that run: a known speed is found, and what goes wrong is said."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import httpx
import pytest

from dispatcher.backends.timing import Speed
from dispatcher.simulator.profile import load_profile
from dispatcher.simulator.profiling.course import Plan
from dispatcher.simulator.profiling.refusing import CannotProfile, check
from dispatcher.simulator.profiling.run import bounded, find
from fairlane.errors import InvalidRequest
from tests.simulated.server import simulated
from tests.unit.commands import REFUSED, USAGE, fairlane

TRUE = Speed(6, 50_000, 1024, 10.0, 1.5, 0.1)


def options(speed: Speed) -> list[str]:
    given = {
        "--slots": speed.slots,
        "--kv-tokens": speed.kv_tokens,
        "--step-tokens": speed.step_tokens,
        "--step-ms": speed.step_ms,
        "--sequence-ms": speed.sequence_ms,
        "--prompt-token-ms": speed.prompt_token_ms,
    }
    return [word for name, value in given.items() for word in (name, str(value))]


def test_a_known_speed_is_found(tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    with simulated(*options(TRUE)) as server:
        told = json.loads(
            fairlane("profile", server.url, "--seconds", "8", "--concurrency", "16", "--out", str(out), "--json").stdout
        )
    profile = load_profile(str(out))
    found = profile.speed
    assert told["profile"]["speed"]["slots"] == found.slots == TRUE.slots
    assert found.kv_tokens == pytest.approx(TRUE.kv_tokens, abs=16)
    assert found.step_ms + found.sequence_ms == pytest.approx(TRUE.step_ms + TRUE.sequence_ms, rel=0.15)
    assert found.step_ms + 6 * found.sequence_ms == pytest.approx(TRUE.step_ms + 6 * TRUE.sequence_ms, rel=0.15)
    assert found.prompt_token_ms == pytest.approx(TRUE.prompt_token_ms, rel=0.15)
    assert found.step_tokens == pytest.approx(TRUE.step_tokens, rel=0.15)
    assert profile.name == "sim"


def test_what_cannot_be_profiled_says_why() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert "Does it run" in fairlane("profile", url, exit_code=REFUSED).output
    with simulated("--step-ms", "900") as server:
        assert "--seconds" in fairlane("profile", server.url, "--seconds", "2", exit_code=REFUSED).output
        assert "but sim" in fairlane("profile", server.url, "--model", "gpt", exit_code=USAGE).output
        no_folder = str(Path(__file__) / "profile.json")
        assert "written" in fairlane("profile", server.url, "--out", no_folder, exit_code=USAGE).output


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, {"error": {"message": "no key"}}, "--key-env"),
        (404, {"detail": "Not Found"}, "is this no OpenAI-compatible server|so this is no"),
        (200, {"models": []}, "no list of models"),
        (200, {"data": [{"id": "a"}, {"id": "b"}]}, "--model NAME"),
    ],
)
async def test_a_server_without_the_one_model_says_what_to_do(status: int, body: object, words: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, json=body))
    async with httpx.AsyncClient(transport=transport) as client:
        with pytest.raises((CannotProfile, InvalidRequest), match=words):
            await find(client, "http://server", {}, None)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (httpx.Response(403, json={"error": {"message": "no"}}), "--key-env"),
        (httpx.Response(404, json={"error": {"message": "no"}}), "--model"),
        (httpx.Response(429, json={"error": {"message": "slow down"}}), "limits it.*slow down"),
        (httpx.Response(400, json={"error": "streams are off"}), "streams are off"),
        (httpx.Response(200, json={"choices": []}), "does not stream"),
    ],
)
async def test_a_refused_stream_says_what_to_do(response: httpx.Response, words: str) -> None:
    with pytest.raises(CannotProfile, match=words):
        await check(response, "http://server", "m")


def test_prompts_are_as_long_as_the_model_takes() -> None:
    assert bounded(Plan(prompt=1500), 1024).prompt < 1024 - Plan().tokens
    assert bounded(Plan(prompt=1500), None).prompt == 1500
    with pytest.raises(InvalidRequest):
        bounded(Plan(tokens=200), 256)
