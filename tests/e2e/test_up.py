"""`fairlane up`: everything in one command, ready in seconds; it ends in order, and nothing survives it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60.0
CHAT = {"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}


class Up:
    """A running `fairlane up`."""

    def __init__(self, process: subprocess.Popen[str], port: int, data_dir: Path) -> None:
        self.process = process
        self.data_dir = data_dir
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False)

    @property
    def told(self) -> dict[str, str]:
        """What up.json says."""
        return json.loads((self.data_dir / "up.json").read_text())

    def chat(self, **changes: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json=CHAT | changes)

    def family(self) -> list[int]:
        """The process and all that it has started, and they."""
        found, new = [self.process.pid], [self.process.pid]
        while new:
            listed = subprocess.run(
                ["pgrep", "-P", ",".join(map(str, new))], capture_output=True, text=True, check=False
            )
            new = [int(pid) for pid in listed.stdout.split()]
            found += new
        return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command(port: int, data_dir: Path, *more: str) -> list[str]:
    ports = ["--port", str(port), "--admin-port", str(free_port())]
    return [sys.executable, "-m", "fairlane.cli", "up", *ports, "--data-dir", str(data_dir), *more]


@contextmanager
def running(data_dir: Path, *more: str, first: str = "Fairlane is up", drain_s: int = 5) -> Iterator[Up]:
    """`first`: what its first line says."""
    port = free_port()
    environment = os.environ | {"FAIRLANE_DRAIN_S": str(drain_s), "FAIRLANE_LEASE_S": "2", "PYTHONUNBUFFERED": "1"}
    environment.pop("FAIRLANE_REDIS_URL", None)
    with (data_dir / "stderr").open("w") as log:
        process = subprocess.Popen(
            command(port, data_dir, *more),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=REPOSITORY,
            env=environment,
        )
    up = Up(process, port, data_dir)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert first in said, said
        yield up
    finally:
        up.client.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.communicate()


def refusal(port: int, data_dir: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """What a `fairlane up` says that ends at once."""
    options: dict[str, Any] = {"capture_output": True, "text": True, "cwd": REPOSITORY, "timeout": PATIENCE_S}
    return subprocess.run(command(port, data_dir, *more), check=False, **options)


def until(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_with_keys_only_who_has_one_comes_in(tmp_path: Path) -> None:
    with running(tmp_path, "--auth", "keys") as up:
        assert up.chat().status_code == 401
        redis = up.told["redis_url"]
        fairlane = [sys.executable, "-m", "fairlane.cli"]
        run = partial(subprocess.check_output, text=True, env=os.environ | {"FAIRLANE_REDIS_URL": redis})
        run([*fairlane, "tenants", "create", "ann"])
        up.client.headers["authorization"] = f"Bearer {run([*fairlane, 'keys', 'create', 'ann']).strip()}"
        assert up.chat().status_code == 200


def test_the_admin_page_answers_and_the_printed_link_signs_in_once(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        assert up.process.stdout is not None
        page = up.told["admin_url"]
        link = next(line.strip() for line in up.process.stdout if f"{page}/login/" in line)
        with httpx.Client(trust_env=False, follow_redirects=True) as client:
            assert "Sign out" not in client.get(page).text
            assert "Sign out" in press(client, link).text
            assert client.get(f"{page}/audit").status_code == 200
        with httpx.Client(trust_env=False, follow_redirects=True) as client:
            assert press(client, link).status_code == 403


def press(client: httpx.Client, link: str) -> httpx.Response:
    """Opens a page and sends its form."""
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', client.get(link).text))
    return client.post(link, data=fields)


def test_it_serves_and_ends_in_order(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        answer = up.chat()
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 5
        told = up.told
        assert told["url"] == str(up.client.base_url).rstrip("/")
        assert told["redis_url"].startswith("redis://:")
        assert (tmp_path / "up.json").stat().st_mode & 0o777 == 0o600
        family = up.family()
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(PATIENCE_S) == 0
    assert not any(map(lives, family))
    assert "Traceback" not in (tmp_path / "stderr").read_text()
    assert not (tmp_path / "up.json").exists()


def test_a_second_ctrl_c_waits_for_nothing(tmp_path: Path) -> None:
    with running(tmp_path, drain_s=50) as up:
        long = {"body": CHAT | {"ignore_eos": True, "max_tokens": 100_000}, "model": "sim"}
        at = f"/v1/jobs/{up.client.post('/v1/jobs', json=long).json()['id']}"
        until(lambda: up.client.get(at).json()["state"] == "leased")
        family = up.family()
        up.process.send_signal(signal.SIGINT)
        assert up.process.stdout
        said = next(line for line in up.process.stdout if line.startswith("Stopping"))
        assert said == "Stopping: what runs may end, up to 50 s; Ctrl-C again stops at once.\n"
        began = time.monotonic()
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < 25
        assert up.process.stdout.read() == ""
    assert not any(map(lives, family))


def test_what_an_earlier_run_simulated_is_forgotten_when_there_is_a_real_backend(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        assert up.chat().status_code == 200
    with running(tmp_path, "--backend", "llama=null://") as up:
        assert [model["id"] for model in up.client.get("/v1/models").json()["data"]] == ["llama"]
        assert "sim" not in up.client.get("/metrics").text
        assert up.chat(model="llama").status_code == 200


def test_the_example_in_the_readme_works(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    assert len(example.splitlines()) <= 12
    with running(tmp_path) as up:
        program = example.replace("http://127.0.0.1:8080", str(up.client.base_url).rstrip("/"))
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert re.fullmatch(r"job_\w+ .*\w+.*\n", ran.stdout), ran.stderr


def test_a_second_one_on_the_same_folder_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        second = subprocess.run(
            command(free_port(), tmp_path),
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            timeout=PATIENCE_S,
            check=False,
        )
        assert second.returncode == 3
        assert str(up.process.pid) in second.stderr
        assert up.chat().status_code == 200


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = refusal(port, tmp_path)
    assert refused.returncode == 3
    assert str(port) in refused.stderr


def test_nothing_survives_a_killed_parent(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        family = up.family()
        assert len(family) >= 5
        up.process.kill()
        up.process.wait()
        until(lambda: not any(map(lives, family)))


def test_what_dies_is_started_again_and_no_acknowledged_job_is_lost(tmp_path: Path) -> None:
    """kill -9 of the front door, a dispatcher and the embedded server under load."""
    with running(tmp_path) as up:
        ids: list[str] = []
        for name in ("dispatcher", "api", "valkey-server"):
            body = {"jobs": [{"model": "sim", "body": {k: v for k, v in CHAT.items() if k != "model"}}] * 20}
            made = up.client.post("/v1/jobs", json=body).json()["jobs"]
            ids += [job["id"] for job in made]
            os.kill(pid_of(up, name), signal.SIGKILL)
            until(lambda: is_ready(up))
        for id_ in ids:
            until(lambda id_=id_: job_state(up, id_) in ("succeeded", "failed"))
            job = up.client.get(f"/v1/jobs/{id_}").json()
            assert job["state"] == "succeeded", job


def pid_of(up: Up, name: str) -> int:
    """A process by its command; one that ends meanwhile is none."""
    for pid in up.family():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except FileNotFoundError:
            continue
        if name in words or name in words[0]:  # the server shows its address in its own name
            return pid
    raise AssertionError(f"no {name} runs")


def is_live(up: Up) -> bool:
    return up.client.get("/health/live").status_code == 200


def is_ready(up: Up) -> bool:
    try:
        return up.client.get("/health/ready").status_code == 200
    except httpx.HTTPError:
        return False


def job_state(up: Up, job_id: str) -> str:
    try:
        return up.client.get(f"/v1/jobs/{job_id}", params={"wait": 5}).json().get("state", "")
    except httpx.HTTPError:
        return ""


def test_it_can_be_stopped_while_it_waits_for_a_backend(tmp_path: Path) -> None:
    """Found by a newcomer: the likeliest mistake is a backend that is not there (yet)."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "cwd": REPOSITORY, "env": environment}
    missing = ("--backend", f"llama=http://127.0.0.1:{free_port()}")
    with subprocess.Popen(command(free_port(), tmp_path, *missing), **options) as process:
        until((tmp_path / "valkey" / "access.json").exists)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert time.monotonic() - began < 20


def test_a_backend_that_is_not_there_yet_is_not_waited_for(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, "--backend", f"sim=http://127.0.0.1:{port}", first="Still waiting") as up:
        assert is_live(up)
        sim = [sys.executable, "-m", "fairlane.cli", "sim-backend", "--port", str(port)]
        with subprocess.Popen(sim, cwd=REPOSITORY) as server:
            try:
                until(lambda: is_ready(up))
                assert up.chat().status_code == 200
            finally:
                server.kill()


@pytest.mark.parametrize("wrong", [("--backend", "x"), ("--backend", "m=ftp://x"), ("--backend", "m=http://x,slots=0")])
def test_a_backend_that_cannot_be_is_a_usage_error(tmp_path: Path, wrong: tuple[str, str]) -> None:
    refused = subprocess.run(
        command(free_port(), tmp_path, *wrong),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=PATIENCE_S,
        check=False,
    )
    assert refused.returncode == 2, refused.stderr
