"""Another user's flood on a real vLLM, directly and through Fairlane: `python -m benchmarks.vllm --help`.

Without a URL it starts the vLLM in FAIRLANE_VLLM_DIR (a venv, and a tiny model in `tiny-llama`), niced, so that on a
small machine the processes in front of it get the CPU in time, as they would beside a GPU; where there is none, it says
so and ends. Paired rounds in one run: only their ratios count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks import flood
from benchmarks.flood import Result, Shape
from benchmarks.through import fairlane
from fairlane.options import parse_backend
from fairlane.queue.supervise import Supervised
from fairlane.up import UpOptions, free_port, running

START_S: Final = 180.0
FULL_BATCH_S: Final = 0.24  # what a request took in a full batch on the machine where the figures were set
ANSWER_S, FIRST_TOKEN_S = 0.5, 0.2  # wanted, in the median


async def measure(url: str, shape: Shape, rounds: int, dispatchers: int) -> list[tuple[Result, Result]]:
    """Pairs of (directly, through the queue)."""
    async with fairlane([parse_backend(f"{shape.model}={url}")], dispatchers) as ours:
        return await _pairs(url, shape, rounds, ours.send)


async def measure_over_http(url: str, door: str, shape: Shape, rounds: int) -> list[tuple[Result, Result]]:
    """Pairs of (directly, through the front door), HTTP all the way."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=door, timeout=flood.TIMEOUT_S, limits=limits, trust_env=False) as client:

        async def send(tenant: str, body: flood.Body) -> object:
            return await flood.post(client, body, {"authorization": f"Bearer {tenant}"})

        return await _pairs(url, shape, rounds, send)


async def _pairs(url: str, shape: Shape, rounds: int, through: flood.Send) -> list[tuple[Result, Result]]:
    pairs: list[tuple[Result, Result]] = []
    for n in range(rounds):
        async with flood.direct(url) as send:
            directly = await flood.run(send, shape, url)
        print(f"round {n + 1} directly:          {directly}", flush=True)
        ours = await flood.run(through, shape, url)
        print(f"round {n + 1} through Fairlane:  {ours}", flush=True)
        pairs.append((directly, ours))
    return pairs


def verdict(pairs: list[tuple[Result, Result]], slots: int, wanted_s: float = 0.5) -> bool:
    """Prints each figure beside what is wanted; whether all hold.

    What a request takes in a full batch says how fast the machine is: what is wanted was set where that was 0.24 s.
    """
    light = median(ours.light_median_s for _, ours in pairs)
    directly = median(direct.light_median_s for direct, _ in pairs)
    ratio = median(ours.per_s / direct.per_s for direct, ours in pairs)
    few = median(ours.few_waiting or 0.0 for _, ours in pairs)
    held = [light <= wanted_s, ratio >= 0.95, few >= 0.95, not any(ours.failed for _, ours in pairs)]
    print(f"light median: {light:.3f} s (wanted ≤ {wanted_s} s; directly {directly:.3f} s)")
    batch = median(slots / direct.per_s for direct, _ in pairs)
    then = f"{wanted_s} s = {wanted_s / FULL_BATCH_S:.1f} ×"
    print(f"  = {light / batch:.2f} × what a request takes in a full batch here, {batch:.2f} s (wanted: {then})")
    print(f"throughput: {ratio:.3f} of direct (wanted ≥ 0.95)")
    print(f"waiting ≤ {flood.FEW_WAITING} in {few:.1%} of the polls after the first second (wanted ≥ 95 %)")
    print(f"failed: {sum(ours.failed for _, ours in pairs)} (wanted 0)")
    return all(held)


def folder() -> Path:
    """Where a vLLM is, if one is installed."""
    return Path(os.environ.get("FAIRLANE_VLLM_DIR") or Path.home() / ".cache" / "fairlane-vllm")


def installed() -> bool:
    """If not, it says so."""
    found = (folder() / "venv/bin/vllm").exists()
    if not found:
        print(f"Skipped: there is no vLLM in {folder()}. Name a running one by its URL, or another folder.")
    return found


@contextmanager
def vllm(slots: int, core: int | None = None) -> Generator[str]:
    """A vLLM of its own on a free port, ready when entered; on one core only, if that is given."""
    port = free_port()
    pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
    command = [
        *pinned, "nice", "-n", "10", str(folder() / "venv/bin/vllm"), "serve", str(folder() / "tiny-llama"),
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048",
        "--max-num-seqs", str(slots), "--scheduling-policy", "priority", "--enforce-eager",
    ]  # fmt: skip
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_TARGET_DEVICE": "cpu",
    }
    if core is not None:
        environment["VLLM_CPU_OMP_THREADS_BIND"] = str(core)
    settings = [f"{name}={value}" for name, value in environment.items()]
    with tempfile.TemporaryFile() as log:
        # It must not outlive a benchmark that is killed.
        process = Supervised(["env", *settings, *command], cwd=Path.cwd(), log=log)
        try:
            deadline = time.monotonic() + START_S
            while not _answers(port):
                if not process.alive or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"vLLM does not start: {log.read()[-2000:].decode(errors='replace')}")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stop()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dispatchers", type=int, default=1)
    parser.add_argument("--up", action="store_true", help="Through `fairlane up`, HTTP all the way.")
    parser.add_argument("--stream", action="store_true", help="Streamed answers: the time to the first token counts.")
    given = parser.parse_args()
    if given.stream and not given.up:
        parser.error("--stream is measured with --up")
    if not given.url and not installed():
        return
    shape = Shape(given.model, given.jobs, given.tokens, given.stream)
    with nullcontext(given.url) if given.url else vllm(given.slots) as url:
        if given.up:
            options = UpOptions(
                free_port(), given.dispatchers, (f"{shape.model}={url}",), "error", admin_port=free_port()
            )
            with tempfile.TemporaryDirectory() as data, running(options, data_dir=Path(data)) as (found, _):
                pairs = asyncio.run(measure_over_http(url, found.url, shape, given.rounds))
        else:
            pairs = asyncio.run(measure(url, shape, given.rounds, given.dispatchers))
    wanted_s = FIRST_TOKEN_S if given.stream else ANSWER_S
    raise SystemExit(0 if verdict(pairs, given.slots, wanted_s) else 1)


if __name__ == "__main__":
    main()
