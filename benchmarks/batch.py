"""A batch of 50,000 lines through `fairlane up` on simulated backends: its pace, and the most memory each process took.

With `--kill` every process is killed once on the way, at last `fairlane up` itself, which is then started anew. All
lines must be accounted for. `--null` measures what the batch itself costs: the backend answers inside the dispatcher.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from redis import Redis
from rich.console import Console

from benchmarks.figures import Figure, table
from fairlane.up import free_port

LINES: Final = 50_000
LOOK_S: Final = 0.2
MOST_S: Final = 1800.0
KILLED: Final = ("worker", "dispatcher", "api", "sim-backend", "valkey-server", "worker", "up")
MODEL: Final = "sim"


class Up:
    """A running `fairlane up`, and what its processes took."""

    def __init__(self, folder: Path, port: int, more: list[str]) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        self.peaks: dict[str, int] = {}
        self.redis_peak = 0
        self._folder = folder
        self._command = [sys.executable, "-m", "fairlane.cli", "up", "--port", str(port), "--data-dir", str(folder)]
        self._command += more
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if "Fairlane is up" not in (said := self._process.stdout.readline()):
            raise RuntimeError(f"fairlane up did not start: {said}")
        self._redis = Redis.from_url(json.loads((self._folder / "up.json").read_text())["redis_url"])

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def kill(self, name: str) -> None:
        if name == "up":
            self._process.kill()
            self._process.wait()
            time.sleep(3)  # its children notice within a second, and hand back what they hold
            self.start()
        else:
            os.kill(next(pid for pid, known in self._family() if known == name), signal.SIGKILL)

    def look(self) -> None:
        """Notes what each process has taken at the most, and Redis."""
        for pid, name in self._family():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), "0")
            self.peaks[name] = max(self.peaks.get(name, 0), int(peak) // 1024)
        try:
            info: Any = self._redis.info("memory")
            self.redis_peak = max(self.redis_peak, info["used_memory_peak"] >> 20)
        except OSError:  # killed
            pass
        except Exception as error:
            if "onnect" not in repr(error) and "Loading" not in repr(error):
                raise

    def _family(self) -> Iterator[tuple[int, str]]:
        listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
        family = {self._process.pid}
        for _ in range(3):
            family |= {int(pid) for pid, parent, _ in rows if int(parent) in family}
        for pid, _, args in rows:
            if int(pid) in family:
                words = args.split()
                yield int(pid), "valkey-server" if "valkey-server" in words[0] else words[3] if words[3:] else words[0]


@contextmanager
def running(more: list[str]) -> Iterator[Up]:
    with tempfile.TemporaryDirectory() as folder:
        up = Up(Path(folder), free_port(), more)
        try:
            yield up
        finally:
            up.stop()


def submit(up: Up, lines: int) -> str:
    """Uploads the file and makes the batch; returns its id."""
    body = {"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": "Tell me about it. " * 20}]}
    with tempfile.TemporaryFile() as file:
        for n in range(lines):
            line = {"custom_id": f"c{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line).encode() + b"\n")
        file.seek(0)
        made = up.client.post("/v1/files", files={"file": ("in.jsonl", file)}, data={"purpose": "batch"})
    wanted = {"input_file_id": made.raise_for_status().json()["id"], "endpoint": "/v1/chat/completions"}
    return up.client.post("/v1/batches", json=wanted | {"completion_window": "24h"}).raise_for_status().json()["id"]


def follow(up: Up, batch: str, lines: int, kill: bool) -> dict[str, Any]:
    """Until the batch has ended; each of KILLED is killed in its turn."""
    kills = list(KILLED) if kill else []
    end, seen, found = time.monotonic() + MOST_S, 0.0, dict[str, Any]()
    while time.monotonic() < end:
        up.look()
        try:
            found = up.client.get(f"/v1/batches/{batch}", timeout=5).raise_for_status().json()
        except httpx.HTTPError:
            time.sleep(LOOK_S)
            continue
        counts = found["request_counts"]
        done = counts["completed"] + counts["failed"]
        if time.monotonic() - seen > 10:
            seen = time.monotonic()
            print(f"  {found['status']} {done:,} of {lines:,}", flush=True)
        if found["status"] in ("completed", "failed", "expired", "cancelled"):
            return found
        if kills and done >= lines * (len(KILLED) - len(kills) + 1) / (len(KILLED) + 2):
            print(f"  kill -9 {kills[0]}", flush=True)
            up.kill(kills.pop(0))
        time.sleep(LOOK_S)
    raise TimeoutError(f"not ended after {MOST_S:g} s: {found}")


def content(up: Up, file: str | None) -> int:
    """How many different custom_ids a file has; each once."""
    if file is None:
        return 0
    ids = [json.loads(line)["custom_id"] for line in up.client.get(f"/v1/files/{file}/content").iter_lines()]
    assert len(set(ids)) == len(ids), "a line is there twice"
    return len(ids)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--lines", type=int, default=LINES)
    asked.add_argument("--kill", action="store_true")
    asked.add_argument("--null", action="store_true")
    options = asked.parse_args()
    with running(["--backend", f"{MODEL}=null://"] if options.null else []) as up:
        batch = submit(up, options.lines)
        began = time.monotonic()
        found = follow(up, batch, options.lines, options.kill)
        took = time.monotonic() - began
        output, error = content(up, found["output_file_id"]), content(up, found["error_file_id"])
        up.look()
    figures = [
        Figure("lines in both files", output + error, "", None, f"{options.lines:,}", output + error == options.lines),
        Figure("lines with an answer", output, ""),
        Figure("time", took, "s", digits=1),
        Figure("pace", options.lines / took, "lines/s"),
        Figure("Redis, peak", up.redis_peak, "MiB", None, "≤ 200", up.redis_peak <= 200),
        *(Figure(f"{name}, peak", mib, "MiB", None, "≤ 300", mib <= 300) for name, mib in sorted(up.peaks.items())),
    ]
    Console().print(table(figures, f"A batch of {options.lines:,} lines{', all killed once' if options.kill else ''}"))
    sys.exit(any(figure.holds is False for figure in figures))


if __name__ == "__main__":
    main()
