"""The web application: vLLM's paths, and /faults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dispatcher.backends.simulated import answers
from dispatcher.backends.simulated.asks import Refused
from dispatcher.backends.simulated.faults import FAULTS, Faults
from dispatcher.backends.simulated.inference import Inference
from dispatcher.backends.simulated.metrics import CONTENT_TYPE, Metrics
from dispatcher.backends.simulated.options import VLLM_VERSION, Options
from dispatcher.backends.simulated.running import RunningEngine

FAULTS_PATH = "/faults"


class Backend:
    """One server's state and the handlers beside inference."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.metrics = Metrics(options)
        self.engine = RunningEngine(options.speed, self.metrics, by_priority=options.priority == "obeyed")
        self.inference = Inference(options, self.engine)
        self._created = int(time.time())
        self._frozen_page: bytes | None = None
        self._ready_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.use(options.faults)

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncGenerator[None]:
        """The engine runs while the application does."""
        self._task = asyncio.create_task(self.engine.run())
        try:
            yield
        finally:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def ready(self) -> bool:
        return time.monotonic() >= self._ready_s

    def use(self, faults: Faults) -> None:
        """From now on these faults, and no others."""
        self.inference.faults = faults
        self._ready_s = time.monotonic() + faults.start_s
        if faults.metrics != "frozen":
            self._frozen_page = None
        elif self._frozen_page is None:
            self._frozen_page = self.metrics.page()

    async def health(self, _: Request) -> Response:
        """503 if the engine is dead, as vLLM says it."""
        return Response(status_code=200 if self._task and not self._task.done() else 503)

    async def version(self, _: Request) -> Response:
        return JSONResponse({"version": VLLM_VERSION})

    async def models(self, _: Request) -> Response:
        return JSONResponse(answers.models(self.options, self._created))

    async def page(self, _: Request) -> Response:
        if self.inference.faults.metrics == "off":
            raise HTTPException(404)
        return Response(self._frozen_page or self.metrics.page(), media_type=CONTENT_TYPE)

    async def faults(self, http: Request) -> Response:
        """GET shows the faults; POST replaces them: what the body does not name is off."""
        if http.method == "POST":
            try:
                self.use(FAULTS.validate_json(await http.body()))
            except ValidationError as error:
                found = ["".join(map(str, item["loc"])) + f": {item['msg']}" for item in error.errors()]
                raise Refused("; ".join(found), kind="Bad Request") from None
        return JSONResponse(FAULTS.dump_python(self.inference.faults))


class SlowStart:
    """Answers 503 on every path but /faults until the backend is ready."""

    def __init__(self, app: ASGIApp, backend: Backend) -> None:
        self._app, self._backend = app, backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        waits = scope["type"] == "http" and scope["path"] != FAULTS_PATH and not self._backend.ready
        await (Response(status_code=503) if waits else self._app)(scope, receive, send)


def create_app(options: Options) -> Starlette:
    """The application. It runs under any ASGI server; connection resets need the one of `serve`."""
    backend = Backend(options)
    inference = backend.inference
    return Starlette(
        routes=[
            Route("/v1/completions", inference.completions, methods=["POST"]),
            Route("/v1/chat/completions", inference.chat_completions, methods=["POST"]),
            Route("/v1/responses", inference.responses, methods=["POST"]),
            Route("/v1/embeddings", inference.embeddings, methods=["POST"]),
            Route("/v1/models", backend.models),
            Route("/metrics", backend.page),
            Route("/health", backend.health),
            Route("/ping", backend.health, methods=["GET", "POST"]),
            Route("/version", backend.version),
            Route(FAULTS_PATH, backend.faults, methods=["GET", "POST"]),
        ],
        middleware=[Middleware(SlowStart, backend=backend)],
        exception_handlers={Refused: _refused, HTTPException: _http_error, ClientDisconnect: _gone},
        lifespan=backend.running,
    )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)  # noqa: S101 - it is registered for nothing else
    return JSONResponse(answers.error(error), error.status)


async def _gone(_: Request, error: Exception) -> Response:
    """Whoever asked hung up before all was said; nobody hears this."""
    return Response(status_code=499)


async def _http_error(_: Request, error: Exception) -> Response:
    """No such path, or not by this method."""
    assert isinstance(error, HTTPException)  # noqa: S101
    phrase = HTTPStatus(error.status_code).phrase
    refused = Refused(error.detail, status=error.status_code, kind=phrase)
    return JSONResponse(answers.error(refused), error.status_code)
