"""Batches through `fairlane up` as a whole, with its Celery worker; and whoever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.test_up import Up, is_ready, pid_of, running, until

LINES = 60


def start(up: Up, lines: int) -> str:
    """Uploads a file and makes a batch of it; returns its id."""
    body = {"model": "sim", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}
    rows = [{"custom_id": f"c{n}", "method": "POST", "url": "/v1/chat/completions", "body": body} for n in range(lines)]
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    made = up.client.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})
    asked = {"input_file_id": made.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return up.client.post("/v1/batches", json=asked).raise_for_status().json()["id"]


def look(up: Up, batch: str) -> dict[str, Any]:
    try:
        return up.client.get(f"/v1/batches/{batch}").raise_for_status().json()
    except httpx.HTTPError:
        return {"status": "", "request_counts": {"completed": -1}}


def is_done(up: Up, batch: str, lines: int) -> bool:
    return look(up, batch)["request_counts"]["completed"] >= lines


def test_a_batch_survives_a_kill_of_each_process(tmp_path: Path) -> None:
    """Case 1: 64 of 64, whoever is killed. The worker twice: while it reads the file too."""
    with running(tmp_path) as up:
        batch = start(up, LINES)
        os.kill(pid_of(up, "worker"), signal.SIGKILL)
        for part, name in enumerate(("worker", "dispatcher", "valkey-server", "api"), 1):
            until(lambda part=part: is_done(up, batch, 8 * part))
            os.kill(pid_of(up, name), signal.SIGKILL)
        until(lambda: is_ready(up))
        until(lambda: look(up, batch)["status"] == "completed")
        ended = look(up, batch)
        assert ended["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
        output = up.client.get(f"/v1/files/{ended['output_file_id']}/content").text
        ids = [json.loads(line)["custom_id"] for line in output.splitlines()]
        assert sorted(ids) == sorted(f"c{n}" for n in range(LINES))


def test_a_batch_that_is_cancelled_stops_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        batch = start(up, 2000)
        until(lambda: is_done(up, batch, 1))
        up.client.post(f"/v1/batches/{batch}/cancel").raise_for_status()
        began = time.monotonic()
        until(lambda: look(up, batch)["status"] == "cancelled")
        assert time.monotonic() - began < 30
        counts = look(up, batch)["request_counts"]
        assert counts["completed"] + counts["failed"] == counts["total"] == 2000
