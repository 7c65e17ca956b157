"""A process that receives webhooks on many ports, for benchmarks.webhooks and the chaos tests.

It reads one JSON line, `[{"port", "secret", "behaviour"}, …]`, from stdin, says `ready`, and for each further line
answers with all that it has received so far: `[[port, object id, delay in s, accepted, verified], …]`.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

SLOW_S: Final = 1.4
Behaviour = Literal["well", "slow", "flaky"]


@dataclass(frozen=True)
class Ear:
    """One endpoint: it answers at once, after SLOW_S, or half the time with 500."""

    port: int
    secret: str
    behaviour: Behaviour = "well"


@dataclass(frozen=True)
class Receipt:
    """`delay_s`: since the job's outcome, or the event. `accepted`: answered 200."""

    port: int
    object_id: str
    delay_s: float
    accepted: bool
    verified: bool


class Receiver:
    """The process, seen from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def received(self) -> list[Receipt]:
        """So far."""
        return [Receipt(*row) for row in json.loads(self._ask("\n"))]

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._process.stdout.readline()


@contextmanager
def receiving(ears: Sequence[Ear]) -> Iterator[Receiver]:
    command = [sys.executable, "-m", "benchmarks.receiver"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            receiver = Receiver(process)
            if receiver._ask(json.dumps([asdict(ear) for ear in ears]) + "\n") != "ready\n":
                raise RuntimeError("the receiver did not start")
            yield receiver
        finally:
            process.kill()


async def serve(ears: Sequence[Ear]) -> None:
    """Until stdin ends."""
    from aiohttp import web
    from standardwebhooks import Webhook, WebhookVerificationError

    receipts: list[tuple[Any, ...]] = []
    known = {ear.port: (ear, Webhook(ear.secret)) for ear in ears}

    async def take(request: web.Request) -> web.Response:
        now, raw = time.time(), await request.read()
        ear, checks = known[request.transport.get_extra_info("sockname")[1]]  # pyright: ignore[reportOptionalMemberAccess]
        try:
            checks.verify(raw, dict(request.headers), json_parse=False)
            verified = True
        except WebhookVerificationError:
            verified = False
        event = json.loads(raw)
        accepted = ear.behaviour != "flaky" or random.random() < 0.5
        since = event["data"].get("finished_at") or event["created_at"]
        receipts.append((ear.port, event["data"]["id"], now - since, accepted, verified))
        if ear.behaviour == "slow":
            await asyncio.sleep(SLOW_S)
        return web.Response(status=200 if accepted else 500, text="taken" if accepted else "not now")

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for ear in ears:
        await web.TCPSite(runner, "127.0.0.1", ear.port).start()
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(receipts), flush=True)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve([Ear(**row) for row in json.loads(sys.stdin.readline())]))
