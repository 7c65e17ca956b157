"""1,000 long polls that wait and 200 streams of 10 tokens a second, on one front door: what does a reader notice of it?

    python -m benchmarks.streams [--streams 200] [--waiting 1000] [--seconds 30] [--requests 200]

Front door, dispatcher, simulated backends and Valkey are processes of their own; this one plays the callers. First come
the streams without Fairlane, from the same backend; then through it, while the others wait. At the end, alone, one
request at a time, directly and through in turn: how much longer does the first token take?
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.door import Line, command, free_port, until_listening
from benchmarks.figures import Figure, table
from benchmarks.overhead import percentile, served
from benchmarks.servers import server

PATH: Final = "/v1/chat/completions"
TOKEN_MS: Final = 100
DISPATCHERS: Final = 2  # for 2,000 tokens a second one has too much to do, beside the others on two cores
SPREAD_S: Final = 2.0  # over which the streams begin: as callers do, not all at one moment
RAMP_S: Final = 10.0  # over which those who wait come
GAP_MS: Final = 50.0
RSS_MB: Final = 300.0
FIRST_P50_MS, FIRST_P99_MS = 6.0, 20.0
WARM: Final = 20


@dataclass
class Heard:
    """What the readers met: the times between tokens and until the first one, in ms; and whatever went wrong."""

    gaps: list[float] = field(default_factory=list[float])
    firsts: list[float] = field(default_factory=list[float])
    errors: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Stage:
    """The ports, and the front door's process."""

    slow: int
    quick: int
    door: int
    door_pid: int


@contextmanager
def stage() -> Iterator[Stage]:
    slow, quick, port = free_port(), free_port(), free_port()
    pools = ["--backend", f"slow=http://127.0.0.1:{slow}", "--backend", f"sim=http://127.0.0.1:{quick}"]
    door_options = ["--auth", "open", "--port", str(port), "--log-level", "error"]
    with (
        server("valkey") as store,
        command("sim-backend", "--port", str(slow), "--model", "slow", "--step-ms", str(TOKEN_MS), "--slots", "256"),
        command("sim-backend", "--port", str(quick), "--model", "sim"),
        command("dispatcher", "--redis", store.url, "--processes", str(DISPATCHERS), *pools),
        command("api", *door_options, FAIRLANE_REDIS_URL=store.url) as door,
    ):
        for one in (slow, quick, port):
            until_listening(one)
        asyncio.run(served(store.url))
        yield Stage(slow, quick, port, door.pid)


async def measure(on: Stage, options: argparse.Namespace) -> list[Figure]:
    tokens = options.seconds * 1000 // TOKEN_MS
    directly = await many(on.slow, options.streams, tokens)
    print(f"directly: gap p99 {percentile(directly.gaps, 0.99):.1f} ms, {len(directly.errors)} errors", flush=True)
    polls: list[asyncio.Task[None]] = []
    for _ in range(options.waiting):
        polls.append(asyncio.create_task(wait_long(on.door)))
        await asyncio.sleep(RAMP_S / options.waiting)
    await many(on.door, options.streams, 3 * 1000 // TOKEN_MS)  # the capacity is learned
    through = await many(on.door, options.streams, tokens)
    errors = [*through.errors, *(repr(poll.exception()) for poll in polls if poll.done() and not poll.cancelled())]
    rss_mb = peak_mb(on.door_pid)
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    print(f"through: gap p99 {percentile(through.gaps, 0.99):.1f} ms, errors {errors[:3]}", flush=True)
    more = percentile(through.gaps, 0.99) - percentile(directly.gaps, 0.99)
    return [
        Figure("errors", len(errors), "", target="0", holds=not errors),
        Figure("front door's memory, at most", rss_mb, "MB", target=f"≤ {RSS_MB:.0f}", holds=rss_mb <= RSS_MB),
        Figure("gap between tokens, p99, more", more, "ms", target=f"≤ {GAP_MS:.0f}", holds=more <= GAP_MS, digits=1),
        *await first_tokens(on, options.requests),
    ]


async def first_tokens(on: Stage, requests: int) -> list[Figure]:
    taken: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    for n in range(requests + WARM):
        for port, times in zip((on.quick, on.door), taken, strict=True):
            heard = Heard()
            await stream(port, "sim", 1, heard)
            assert not heard.errors, heard.errors
            if n >= WARM:
                times += heard.firsts
    figures: list[Figure] = []
    for at, most in ((0.5, FIRST_P50_MS), (0.99, FIRST_P99_MS)):
        more = percentile(taken[1], at) - percentile(taken[0], at)
        name = f"first token, p{100 * at:.0f}, more"
        figures.append(Figure(name, more, "ms", target=f"≤ {most:.0f}", holds=more <= most, digits=1))
    return figures


async def many(port: int, streams: int, tokens: int) -> Heard:
    heard = Heard()

    async def one(n: int) -> None:
        await asyncio.sleep(SPREAD_S * n / streams)
        await stream(port, "slow", tokens, heard)

    gc.collect()
    await asyncio.gather(*map(one, range(streams)))
    return heard


async def stream(port: int, model: str, tokens: int, heard: Heard) -> None:
    """Reads one stream to its end."""
    asked = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens, "ignore_eos": True}
    body = json.dumps(asked | {"stream": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.monotonic()
    writer.write(
        f"POST {PATH} HTTP/1.1\r\nhost: door\r\nauthorization: Bearer ann\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    )
    text, last = b"", None
    try:
        while part := await reader.read(65_536):
            text += part
            if b"data: " in part:
                now = time.monotonic()
                (heard.firsts if last is None else heard.gaps).append(1000 * (now - (last or began)))
                last = now
    except OSError as error:
        heard.errors.append(repr(error))
    finally:
        writer.close()
    if b"[DONE]" not in text or b'"error"' in text:
        heard.errors.append(text[-300:].decode(errors="replace"))


async def wait_long(port: int) -> None:
    """Waits for a job that does not come, again and again."""
    line = Line(port)
    job: Any = {"model": "slow", "body": {"messages": []}, "delay_s": 3600}
    try:
        taken = await line.ask("POST", "/v1/jobs", job, "bob")
        assert taken.status == 202, taken
        id_ = taken.body["id"]
        while True:
            answer = await line.ask("GET", f"/v1/jobs/{id_}?wait=60", tenant="bob")
            assert answer.status == 200, answer
    finally:
        line.close()


def peak_mb(pid: int) -> float:
    """The most memory that a process has held (Linux only)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--waiting", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args(arguments)
    with stage() as on:
        figures = asyncio.run(measure(on, options))
    Console().print(table(figures, f"{options.streams} streams and {options.waiting} long polls on one front door"))


if __name__ == "__main__":
    main()
