"""The server as a process: it stops when it is told to, whatever hangs in it, and starts again on its port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.simulated.running import SOON_S, completion
from tests.simulated.server import simulated

REPOSITORY = Path(__file__).parents[2]
HANG = '{"hang_share": 1}'


def test_sigterm_stops_it_cleanly_with_requests_in_flight() -> None:
    command = [sys.executable, "-m", "dispatcher.backends.simulated", "--faults", HANG]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as caller:
            body = json.dumps(completion()).encode()
            head = (
                "POST /v1/completions HTTP/1.1",
                "host: x",
                "content-type: application/json",
                f"content-length: {len(body)}",
            )
            caller.sendall("\r\n".join([*head, "", ""]).encode() + body)
            assert (
                httpx.get(f"http://127.0.0.1:{port}/health", verify=False).status_code == 200
            )  # by now it has read the request
            process.send_signal(signal.SIGTERM)
            assert process.wait(SOON_S) == 0


def test_it_can_be_killed_and_started_again_on_its_port() -> None:
    with simulated() as first:
        os.kill(first.pid, signal.SIGKILL)
    with simulated("--port", str(first.port)) as second:
        assert second.url == first.url
        assert httpx.get(f"{second.url}/health", verify=False).status_code == 200


def test_a_taken_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        backend = simulated("--port", str(taken.getsockname()[1]))
        with pytest.raises(OSError, match="did not start"):
            backend.__enter__()
