"""A request's body: bounded while it comes in, so that nothing too large reaches Redis, and read strictly."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fastapi import Request
from starlette.requests import ClientDisconnect

from fairlane import strictjson
from fairlane.errors import InvalidRequest, PayloadTooLarge

MANY: Final = 8  # a list of jobs may be that many times as large as one job
LARGE: Final = 256 << 10  # bytes of JSON that take milliseconds to read: others have their turn meanwhile
SILENT_S: Final = 30.0  # how long a body may pause
DISCARD_S: Final = 2.0  # so long we listen to what we do not take: who is cut off while sending reads no answer

_reading: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="json")  # one large body at a time


async def read_json(request: Request, most: int) -> Any:
    """The JSON value of a body of up to `most` bytes. Raises InvalidRequest, PayloadTooLarge."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # strict, so that no page of another site can send one: a browser asks us first before it sends this type
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise InvalidRequest("Send JSON, with the header `Content-Type: application/json`.", param="content-type")
    text = await _whole(request, most)
    try:
        if len(text) < LARGE:
            return strictjson.parse(text)
        return await asyncio.get_running_loop().run_in_executor(_reading, strictjson.parse, text)
    except ValueError as error:
        raise InvalidRequest(f"The body is no JSON that we can take: {error}.") from error


async def _whole(request: Request, most: int) -> bytes:
    parts: list[bytes] = []
    length = declared_length(request)
    if length <= most:
        length = 0
        while (part := await body_part(request)) is not None and length <= most:
            parts.append(part)
            length += len(part)
    if length > most:
        await discard(request, MANY * most)
        raise PayloadTooLarge(f"A request to {request.url.path} has {most} bytes at the most. Send less.")
    return b"".join(parts)


def declared_length(request: Request) -> int:
    """How many bytes the body has, as its sender says; 0 if that is not said."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdecimal() and len(declared) < 20 else 0


async def body_part(request: Request) -> bytes | None:
    """The next part of the body; None at its end. Raises InvalidRequest if nothing comes."""
    if getattr(request.state, "body_ended", False):
        return None
    try:
        async with asyncio.timeout(SILENT_S):
            message = await request.receive()
    except TimeoutError as error:
        raise InvalidRequest(f"Nothing more of the body came for {SILENT_S:g} s.") from error
    if message["type"] == "http.disconnect":
        raise InvalidRequest("The caller hung up.") from ClientDisconnect()
    request.state.body_ended = not message.get("more_body", False)
    return message.get("body", b"")


async def discard(request: Request, most: int) -> None:
    """Reads on for a moment, keeping nothing; not if the caller waits for our leave to send."""
    if request.headers.get("expect"):
        return
    try:
        async with asyncio.timeout(DISCARD_S):
            while most > 0 and (part := await body_part(request)) is not None:
                most -= len(part)
    except (TimeoutError, InvalidRequest):
        pass
