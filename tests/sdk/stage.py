"""Fairlane on sockets, in a thread of its own: front doors, a dispatcher, and a backend that records."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dispatcher.service import Dispatcher
from fairlane.accounts import Accounts
from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.supervise import Supervised
from fairlane.settings import Settings
from producer.api.app import create_app
from tests.api.door import serving as serving_door
from tests.client.doors import serving

T = TypeVar("T")
READY_S = 30.0
REAL = "FAIRLANE_SDK_BACKEND"  # the URL of a real server that serves a model as `sim`, instead of the simulated one
BODY_MOST = 1_000_000
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "recorded",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}


@dataclass(frozen=True)
class Said:
    """An answer of the recording backend."""

    status: int = 200
    body: Any = field(default_factory=lambda: CHAT)
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    after_s: float = 0.0


class Recorder:
    """A backend that keeps what it is asked, as bytes, and gives `answers` in turn, then a chat completion."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.answers: list[Said] = []
        self.aborted = threading.Event()
        self.app = Starlette(routes=[Route("/v1/{path:path}", self._answer, methods=["POST"])])

    def then(self, *answers: Said) -> None:
        """Forgets what was before."""
        self.asked.clear()
        self.aborted.clear()
        self.answers[:] = answers

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.asked]

    async def _answer(self, request: Request) -> Response:
        self.asked.append((request.url.path, await request.body()))
        said = self.answers.pop(0) if self.answers else Said()
        gone = asyncio.ensure_future(request.receive())
        done, _ = await asyncio.wait([gone], timeout=said.after_s)
        if done:
            self.aborted.set()
        gone.cancel()
        content = said.body if isinstance(said.body, bytes | str) else json.dumps(said.body)
        return Response(content, said.status, dict(said.headers))


@dataclass(frozen=True)
class Seen:
    """One request to the front door: when it came (monotonic seconds), and what it was answered."""

    at_s: float
    path: str
    status: int
    retry_after: str | None


class Watched:
    """Notes each request to an application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.seen: list[Seen] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = time.monotonic()

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
                self.seen.append(Seen(began_s, scope["path"], message["status"], headers.get("retry-after")))
            await send(message)

        await self.app(scope, receive, noting if scope["type"] == "http" else send)


@dataclass
class Stage:
    """At `url` the key is the tenant's name; the door at `keys_url` wants keys; that at `closing_url` will end."""

    loop: asyncio.AbstractEventLoop
    queue: Queue
    recorder: Recorder
    door: Watched
    url: str
    keys_url: str
    closing_url: str
    pools: dict[str, Pool]

    def run(self, act: Awaitable[T]) -> T:
        """Runs something of the queue's in the servers' own loop."""

        async def whole() -> T:
            return await act

        return asyncio.run_coroutine_threadsafe(whole(), self.loop).result(READY_S)

    def key(self, tenant: str, **more: Any) -> str:
        """A new key's secret."""

        async def made() -> str:
            accounts = Accounts(self.queue)
            if await accounts.find(tenant) is None:
                await accounts.create_tenant(tenant)
            return (await accounts.create_key(tenant, **more))[1]

        return self.run(made())


@contextmanager
def stage(redis_url: str, sim_url: str, folder: Path) -> Iterator[Stage]:
    """Serves while the block runs."""
    ready: list[Stage] = []
    failed: list[BaseException] = []
    up, ends = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            ready.append(await _raise(stack, redis_url, sim_url, folder))
            up.set()
            await ends.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            failed.append(error)
        finally:
            up.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert up.wait(READY_S)
        if failed:
            raise failed[0]
        yield ready[0]
    finally:
        if ready:
            ready[0].loop.call_soon_threadsafe(ends.set)
        thread.join(READY_S)
    if failed:
        raise failed[0]


def common_settings(redis_url: str, folder: Path) -> dict[str, Any]:
    """What all processes have in common."""
    return {
        "redis_url": redis_url,
        "namespace": f"sdk{os.getpid()}",
        "data_dir": folder,
        "max_attempts": 1,
        "max_body_bytes": BODY_MOST,
    }


@contextmanager
def batch_worker(redis_url: str, folder: Path) -> Iterator[None]:
    """The Celery worker, in a process of its own."""
    settings = [f"FAIRLANE_{name.upper()}={value}" for name, value in common_settings(redis_url, folder).items()]
    command = ["/usr/bin/env", *settings, sys.executable, "-m", "fairlane.cli", "worker"]
    with (folder / "worker.log").open("wb") as log:
        process = Supervised(command, cwd=Path(__file__).parents[2], log=log)
        try:
            yield
        finally:
            process.stop()


async def _raise(stack: AsyncExitStack, redis_url: str, sim_url: str, folder: Path) -> Stage:
    common = common_settings(redis_url, folder)
    settings = Settings(auth="open", **common)
    queue = await Queue.open(redis_url, namespace=settings.namespace, max_body_bytes=BODY_MOST)
    stack.push_async_callback(queue.close)
    recorder = Recorder()
    recorder_url = await stack.enter_async_context(serving(recorder.app))
    pools = {
        "sim": await _pool(queue, "sim", Policy(), sim_url),
        "recorded": await _pool(queue, "recorded", Policy(), recorder_url),
        "org/no-backend": await _pool(queue, "org/no-backend", Policy(max_waiting_tenant=1)),
    }
    door, closing = Watched(create_app(settings)), create_app(settings)
    keys = create_app(Settings(auth="keys", **common))
    dispatcher = Dispatcher(queue, settings)
    working = asyncio.create_task(dispatcher.run())
    stack.push_async_callback(_drained, dispatcher, working)
    served = [await stack.enter_async_context(serving_door(app, 1)) for app in (door, keys, closing)]  # pyright: ignore[reportArgumentType]
    closing.state.fairlane.closing.set()
    url, keys_url, closing_url = [f"{one.url}/v1" for one in served]
    return Stage(asyncio.get_running_loop(), queue, recorder, door, url, keys_url, closing_url, pools)


async def _pool(queue: Queue, model: str, policy: Policy, url: str | None = None) -> Pool:
    pool = await queue.pools.open(model, policy)
    if url is not None:
        await queue.set_backend(pool, "b1", "add", spec=BackendSpec(url))
    return pool


async def _drained(dispatcher: Dispatcher, working: asyncio.Task[None]) -> None:
    dispatcher.drain(hurry=True)
    await asyncio.wait_for(working, READY_S)
