"""`fairlane submit`: one request, or many as JSONL; answered here, or fetched later."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, cast

import typer

from fairlane import strictjson
from fairlane.answers import Shown, opened, piece_of
from fairlane.cli_many import Many, submit_batch, submit_jobs
from fairlane.errors import InvalidRequest, NoResult
from fairlane.following import follow
from fairlane.joblines import Given, rewindable
from fairlane.progress import Board
from fairlane.reaching import Reach, only, reaching
from fairlane.terminal import AsJson, Output, settings_of

if TYPE_CHECKING:
    from fairlane.job import Json
    from producer.client.handle import AsyncHandle

STDIN: Final = "-"
JSONL: Final = ".jsonl"
KEY_BYTES: Final = 6


@reaching(first="server")
def submit(
    to: Reach,
    asked: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT|FILE.jsonl|-]",
            help="A prompt; or jobs as JSONL: from a file, or from stdin (-, or nothing).",
            show_default=False,
        ),
    ] = None,
    *,
    body: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE|-", help="One whole request, as the endpoint takes it.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", envvar="FAIRLANE_MODEL", help="(Default: the only one there is)"),
    ] = None,
    tier: Annotated[str | None, typer.Option("--tier", "-t", metavar="NAME", help="How urgent it is.")] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose it is: over --redis, or with an operator's key.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help="Into each body: max_tokens=100 …; repeatable."),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="PATH", help="(Default: follows from the body)")] = None,
    delay: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="Not before so long from now.")] = None,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="If it has not started by then, it expires.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="Of one attempt.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The same command with the same key is the same work, which runs only once."),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Is told how it ended, by a webhook that `fairlane webhooks secret default` verifies."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or print the id.")] = True,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer as it comes.")] = False,
    batch: Annotated[bool, typer.Option("--batch", help="JSONL as a batch: stored whole, done within 24 h.")] = False,
    to_file: Output = None,
    as_json: AsJson = False,
) -> None:
    """Submit a prompt, a whole request, or many jobs as JSONL, and print what is answered.

    Exits 1 if a job did not succeed, 3 if it was refused. Ctrl-C ends the waiting, not the work.
    """
    defaults = {
        "model": model,
        "tier": tier,
        "tenant": tenant,
        "endpoint": endpoint,
        "delay_s": delay or None,
        "deadline_s": deadline,
        "timeout_s": timeout,
        "webhook": None if batch else webhook,
    }
    given = Given(defaults, _values(settings or ()), key or secrets.token_hex(KEY_BYTES))
    one = _one(asked, body)
    _check(one is not None, wait, stream, batch)
    if one is None:
        with _jsonl(asked) as source, rewindable(source) as lines:
            many = Many(lines, given, Shown(to_file, as_json))
            asyncio.run(submit_batch(to, many, wait, webhook) if batch else submit_jobs(to, many, wait))
    else:
        asyncio.run(_submit(to, given, one, wait, stream, Shown(to_file, as_json)))


# --- what was asked ---------------------------------------------------------------------------------------------------


def _one(asked: str | None, body: str | None) -> Json | None:
    """The body of the one request that was asked; None: it is JSONL. Raises InvalidRequest."""
    if body is not None:
        if asked is not None:
            raise InvalidRequest("Say a prompt or a --body, not both.", param="body")
        return _object(_text(body))
    if asked is None or asked == STDIN or asked.endswith(JSONL):
        return None
    return {"messages": [{"role": "user", "content": asked}]}


def _text(body: str) -> bytes:
    """What `--body` names: JSON, `@FILE`, or `-`."""
    if body == STDIN:
        return sys.stdin.buffer.read()
    if not body.startswith("@"):
        return body.encode()
    with opened(body[1:]) as file:
        return file.read()


def _object(text: bytes) -> Json:
    try:
        value = strictjson.parse(text)
    except ValueError as error:
        raise InvalidRequest(f"The body is no JSON: {error}.", param="body") from error
    if not isinstance(value, dict):
        raise InvalidRequest("The body is a JSON object.", param="body")
    return cast("Json", value)


def _jsonl(asked: str | None) -> AbstractContextManager[BinaryIO]:
    if asked is not None and asked != STDIN:
        return opened(asked)
    if asked is None and sys.stdin.isatty():
        raise InvalidRequest(
            'What is to be submitted? Say a prompt (fairlane submit "Hello"), --body JSON, or '
            "FILE.jsonl; or pipe JSONL into it.",
            param="prompt",
        )
    return nullcontext(sys.stdin.buffer)


def _values(words: Sequence[str]) -> Mapping[str, Json]:
    """`NAME=VALUE …`: JSON values, or texts."""
    found: dict[str, Json] = dict(settings_of(words))
    for name, text in found.items():
        with suppress(ValueError):
            found[name] = strictjson.parse(text.encode())
    return found


def _check(one: bool, wait: bool, stream: bool, batch: bool) -> None:
    if batch and one:
        raise InvalidRequest("A batch is made of JSONL.", param="batch")
    if stream and (not one or not wait):
        raise InvalidRequest("--stream is for one request that you wait for.", param="stream")


# --- one request ------------------------------------------------------------------------------------------------------


async def _submit(to: Reach, given: Given, body: Json, wait: bool, stream: bool, shown: Shown) -> None:
    if stream:
        body = {**body, "stream": True}
    item = given.over({"body": body, "idempotency_key": given.key}, 1)
    if "model" not in item:
        item["model"] = only(await to.models())
    async with to.client() as client:
        handle = await cast("Callable[..., Awaitable[AsyncHandle]]", client.submit)(**item)
        if not wait:
            shown.say_id(handle.id, (await handle.job()).raw if shown.as_json else {})
            return
        try:
            if stream:
                await _print_stream(handle, shown)
            with Board(sys.stderr, quiet=not sys.stderr.isatty(), transient=True) as board:
                job = await follow(client, handle, board)
        except (asyncio.CancelledError, BrokenPipeError):  # Ctrl-C, or nobody reads on
            rest = f"\nThe whole answer, when it has ended: {to.again('results', handle.id)}" if stream else ""
            typer.echo(f"{handle.id} goes on. Come back with: {to.again('watch', handle.id)}{rest}", err=True)
            raise
    if stream:
        shown.end(job)
    else:
        shown.answer(job)


async def _print_stream(handle: AsyncHandle, shown: Shown) -> None:
    """Prints the text as it comes; as JSON each chunk."""
    with shown.stream() as out, suppress(NoResult):  # how it ended is said in the end
        try:
            async with handle.stream() as chunks:
                async for chunk in chunks:
                    out.write(json.dumps(chunk) + "\n" if shown.as_json else piece_of(chunk))
                    out.flush()
        finally:  # also after Ctrl-C: what is said next begins a line
            if not shown.as_json:
                typer.echo(file=out)
