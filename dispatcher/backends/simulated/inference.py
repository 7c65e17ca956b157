"""The endpoints that run the model, and the faults that may hit them."""

from __future__ import annotations

import asyncio
import random
import uuid
from functools import partial

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from dispatcher.backends.simulated import answers
from dispatcher.backends.simulated.answers import Shape
from dispatcher.backends.simulated.asks import (
    Chat,
    Completion,
    Embedding,
    Refused,
    Responding,
    StreamOptions,
    check,
    check_length,
    check_served,
    read,
)
from dispatcher.backends.simulated.faults import Fate, Fates, Faults
from dispatcher.backends.simulated.language import DIMENSIONS, Language, packed
from dispatcher.backends.simulated.options import Options
from dispatcher.backends.simulated.responses import ResponseShape
from dispatcher.backends.simulated.running import Request, RunningEngine
from dispatcher.backends.simulated.streaming import Stream

ERROR_KINDS = {429: "RateLimitError", 500: "InternalServerError", 503: "ServiceUnavailableError"}


class Inference:
    """The handlers. `faults` may be replaced at any time; it holds for the requests that come after."""

    def __init__(self, options: Options, engine: RunningEngine) -> None:
        self.faults = options.faults
        self._options = options
        self._engine = engine
        self._language = Language(options.seed)
        self._fates = Fates(random.Random(options.seed))

    async def completions(self, http: HttpRequest) -> Response:
        ask = read(Completion, await http.body(), http.headers.get("content-type", ""))
        return await self._generate(http, ask)

    async def chat_completions(self, http: HttpRequest) -> Response:
        ask = read(Chat, await http.body(), http.headers.get("content-type", ""))
        return await self._generate(http, ask)

    async def responses(self, http: HttpRequest) -> Response:
        ask = read(Responding, await http.body(), http.headers.get("content-type", ""))
        return await self._generate(http, ask)

    async def embeddings(self, http: HttpRequest) -> Response:
        ask = read(Embedding, await http.body(), http.headers.get("content-type", ""))
        check_served(ask, self._options)
        prompts = ask.prompts()
        for _, length in prompts:
            check_length(length, self._options)
        if (faulty := await self._strike(http, self._fates.draw(self.faults, stream=False))) is not None:
            return faulty
        priority = _priority(http, ask.priority)
        requests = [_reading(length, priority) for _, length in prompts]
        if not await self._run(http, requests):
            return Response()
        draws = [self._language.draw(text, None) for text, _ in prompts]
        vectors = [self._language.embed(draw, ask.dimensions or DIMENSIONS) for draw in draws]
        encoded = [packed(vector) if ask.encoding_format == "base64" else vector for vector in vectors]
        model = ask.model or self._options.models[0]
        return JSONResponse(answers.embeddings(_id(http), model, encoded, sum(n for _, n in prompts)))

    async def _generate(self, http: HttpRequest, ask: Completion | Chat | Responding) -> Response:
        text, prompt, most = check(ask, self._options)
        fate = self._fates.draw(self.faults, stream=bool(ask.stream))
        if (faulty := await self._strike(http, fate)) is not None:
            return faulty
        draw = self._language.draw(text, ask.seed)
        request = self._request(ask, draw, prompt, most)
        request.priority = _priority(http, ask.priority)
        model = self._options.models[0]
        if isinstance(ask, Responding):
            shape = ResponseShape(ask, model, prompt, most)
        else:
            shape = Shape("chat" if isinstance(ask, Chat) else "completion", _id(http), model, prompt)
        say = partial(self._language.say, draw)
        if ask.stream:
            stream = Stream(
                engine=self._engine,
                request=request,
                shape=shape,
                say=say,
                options=ask.stream_options or StreamOptions(),
                cut=self.faults.stream_reset_tokens if fate == "stream_reset" else None,
                reset=partial(_reset, http),
            )
            return StreamingResponse(stream.events(), media_type="text/event-stream")
        if not await self._run(http, [request]):
            return Response()
        whole = shape.whole(say(0, request.out), request.out, request.finish or "stop")
        return Response(answers.ENCODER.encode(whole), media_type="application/json")

    def _request(self, ask: Completion | Chat | Responding, draw: int, prompt: int, most: int) -> Request:
        """How long the answer will be and why it will end."""
        meant = most if ask.ignore_eos else max(ask.min_tokens, self._language.length(draw, self._options.mean_answer))
        return Request(
            prompt=prompt,
            answer=min(meant, most),
            ending="length" if ask.ignore_eos or meant > most else "stop",
            max_tokens=most,
            streamed=bool(ask.stream),
        )

    async def _run(self, http: HttpRequest, requests: list[Request]) -> bool:
        """Waits until all are finished. False if the caller went away, or the server stops: then they are aborted."""

        def abort(_: object = None) -> None:
            for request in requests:
                self._engine.abort(request)

        gone = asyncio.ensure_future(http.receive())  # the body was read: only the disconnect can come
        gone.add_done_callback(abort)
        try:
            for request in requests:
                self._engine.add(request)
            for request in requests:
                await request.changed.wait()
        finally:
            gone.cancel()
            abort()
        return all(request.finish != "abort" for request in requests)

    async def _strike(self, http: HttpRequest, fate: Fate) -> Response | None:
        """What a request gets instead of an answer; None if it gets one."""
        if fate == "error":
            return _faulty_answer(self.faults)
        if fate == "reset":
            _reset(http)
        if fate in {"reset", "hang"}:
            await http.receive()  # until the connection is gone
            return Response()
        return None


def _reading(prompt: int, priority: int) -> Request:
    """An embedding's work in the engine: the prompt is read, and the step that reads its end finishes it."""
    return Request(prompt=prompt, answer=1, ending="stop", max_tokens=1, priority=priority, pooling=True)


def _faulty_answer(faults: Faults) -> Response:
    status = faults.error_status
    kind = ERROR_KINDS.get(status, "InternalServerError")
    retry = {} if faults.retry_after_s is None else {"retry-after": str(faults.retry_after_s)}
    refused = Refused("This is a fault on demand.", status=status, kind=kind)
    return JSONResponse(answers.error(refused), status, retry)


def _reset(http: HttpRequest) -> None:
    http.state.reset()


def _id(http: HttpRequest) -> str:
    return http.headers.get("x-request-id") or uuid.uuid4().hex


def _priority(http: HttpRequest, asked: int) -> int:
    """vLLM's header, which goes before the body's field."""
    try:
        return int(http.headers.get("x-vllm-priority", ""))
    except ValueError:
        return asked
