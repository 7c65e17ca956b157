"""docker-compose.yml: each service's own command, run for real as a process of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from fairlane.queue.launch import find_binary
from tests.e2e.test_up import free_port

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 40.0


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())


@pytest.fixture
def ports() -> dict[str, str]:
    """Where each address of the file is on this machine."""
    redis, backend, api, admin = (str(free_port()) for _ in range(4))
    return {"redis:6379": redis, "sim-backend:8000": backend, "8000": backend, "8080": api, "8081": admin}


def local(command: list[str], ports: dict[str, str]) -> list[str]:
    """The command with this machine's ports, on loopback."""
    words: list[str] = []
    for given in command:
        word = re.sub(r"\$\{\w+:-(\w*)\}", r"\1", given)  # a variable that is not set
        for address in ("redis:6379", "sim-backend:8000"):
            word = word.replace(address, f"127.0.0.1:{ports[address]}")
        word = {"0.0.0.0": "127.0.0.1", "9100": str(free_port()), **ports}.get(word, word)
        words.append(word)
    return words


@pytest.fixture
def started(compose: dict[str, Any], ports: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    environment = os.environ | {"FAIRLANE_REDIS_URL": f"redis://127.0.0.1:{ports['redis:6379']}/0"}
    with ExitStack() as stack:
        for name, service in compose["services"].items():
            command = local(service["command"], ports)
            if name == "redis":
                program = [find_binary(), *command[1:], "--port", ports["redis:6379"], "--bind", "127.0.0.1"]
            else:
                program = [sys.executable, "-m", "fairlane.cli", *command]
            process = subprocess.Popen(program, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield ports


def test_the_services_work_together(started: dict[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    body = {"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
    with httpx.Client(base_url=f"http://127.0.0.1:{started['8080']}", timeout=PATIENCE_S, trust_env=False) as client:
        while True:
            assert time.monotonic() < deadline
            try:
                answer = client.post("/v1/chat/completions", json=body)
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            if answer.status_code not in (404, 503):  # the dispatcher, which registers the model, is on its way
                break
            time.sleep(0.1)
        assert answer.status_code == 200, answer.text
        assert client.get("/health/ready").status_code == 200
        assert client.get(f"http://127.0.0.1:{started['8081']}/login").status_code == 200


def test_nothing_is_published_beyond_loopback_and_all_is_watched(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert "healthcheck" in service, name
        assert service["image"] == "fairlane:local" or ":" in service["image"], name
    redis = " ".join(compose["services"]["redis"]["command"])
    assert "--appendonly yes" in redis
    assert "--maxmemory-policy noeviction" in redis
    assert sum(name.startswith("dispatcher") for name in compose["services"]) == 2
    workers = [service["command"] for service in compose["services"].values() if service["command"][0] == "worker"]
    assert workers == [["worker", "--only", "batches"], ["worker", "--only", "webhooks"]]


def test_the_image_does_not_run_as_root() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")
    assert all(":" in line.split()[1] for line in lines if line.startswith("FROM "))


@pytest.mark.skipif(
    subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0
    if shutil.which("docker")
    else True,
    reason="this machine's docker client has no compose",
)
def test_docker_compose_reads_the_file() -> None:
    subprocess.run(["docker", "compose", "config", "--quiet"], cwd=REPOSITORY, check=True, capture_output=True)
