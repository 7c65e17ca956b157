"""How the commands meet the terminal: the options they share, which queue is meant, exit codes, tables."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

if TYPE_CHECKING:
    from fairlane.queue.engine import Queue
    from fairlane.queue.pools import Pool

UNSUCCESSFUL: Final = 1
REFUSED: Final = 3  # exit codes: 0 done, 1 a job did not succeed, 2 usage, 3 refused or unreachable, 130 Ctrl-C
USAGE: Final = 2
INTERRUPTED: Final = 130
CUT_OFF: Final = 141  # whoever read our output is gone, as after SIGPIPE
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
T = TypeVar("T")

RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="FAIRLANE_REDIS_URL",
        help="redis://, rediss://, unix://, redis+cluster://host:port or redis+sentinel://host:port,…/service/db",
    ),
]
OtherNamespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="The first part of every Redis key. (Default: fl)")
]
PoolNames = Annotated[list[str] | None, typer.Option("--pool", metavar="NAME", help="Repeatable. (Default: all)")]
Ids = Annotated[
    list[str], typer.Argument(metavar="ID…", help="Of jobs or batches; - reads them from stdin, one a line.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the answers there. (Default: stdout)")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def refusals(as_json: bool = False) -> Generator[None]:
    """Turns errors into words, or into JSON, and exit codes."""
    from fairlane.errors import FairlaneError, InvalidKey, InvalidRequest

    try:
        yield
    except FairlaneError as error:
        usage = isinstance(error, InvalidRequest)
        words = _with_key(error.message) if error.code == InvalidKey.code else error.message
        if as_json:
            told = {"code": error.code, "message": words, "param": error.param}
            typer.echo(json.dumps({"error": told}), err=True)
        elif usage:
            raise typer.BadParameter(words) from error
        else:
            typer.echo(words, err=True)
        raise typer.Exit(USAGE if usage else REFUSED) from error
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush must not fail
        raise typer.Exit(CUT_OFF) from None


def _with_key(words: str) -> str:
    """What a front door says of a key, for who has no headers to send."""
    return f"{words.partition(' Send `Authorization')[0]} Say --api-key KEY, or set FAIRLANE_API_KEY."


def asked(redis: str | None, namespace: str | None, act: Callable[[Queue], Awaitable[T]], as_json: bool) -> T:
    """What `act` makes of the queue that is meant (see `address`)."""

    async def run() -> T:
        from fairlane.queue.engine import Queue

        url, name = address(redis, namespace)
        queue = await Queue.open(url, namespace=name)
        try:
            return await act(queue)
        finally:
            await queue.close()

    with refusals(as_json):
        return asyncio.run(run())


def address(redis: str | None, namespace: str | None) -> tuple[str, str]:
    """The Redis and the namespace that are meant: those named, or set, or of the `fairlane up` that runs here.

    Raises InvalidRequest.
    """
    from fairlane.errors import InvalidRequest
    from fairlane.settings import load

    settings = load(redis_url=redis, namespace=namespace)
    url = settings.redis_url or up_here(settings.data_dir, "redis_url")
    if url is None:
        raise InvalidRequest(
            "Which queue? Use --redis URL, set FAIRLANE_REDIS_URL, or start `fairlane up`. "
            f"(None runs in {settings.data_dir}.)"
        )
    return url, settings.namespace


def up_here(data_dir: Path, what: Literal["url", "redis_url", "admin_url"]) -> str | None:
    """An address of the `fairlane up` that runs here, if one does."""
    try:
        return json.loads((data_dir / "up.json").read_text())[what]
    except FileNotFoundError:
        return None


async def pools_named(queue: Queue, names: Sequence[str] | None) -> list[Pool]:
    """The pools of these names, or all. Raises NotFound."""
    if not names:
        return await queue.pools.all()
    return [await pool_named(queue, name) for name in names]


async def pool_named(queue: Queue, name: str) -> Pool:
    """The pool of this name. Raises NotFound, which says what pools there are."""
    from fairlane.errors import NotFound

    try:
        return await queue.pools.by_name(name)
    except NotFound as error:
        known = ", ".join(one.name for one in await queue.pools.all())
        raise NotFound(f"{error} {f'There are: {known}.' if known else 'There is none yet.'}") from error


async def say_unknown(queue: Queue, tiers: Iterable[str] | None, pools: Iterable[str] | None) -> None:
    """Warns of tiers and pools that may be used but are not there: they may be meant for later, or mistyped."""
    known = await queue.pools.all()
    if gone := set(pools or ()) - {one.name for one in known}:
        there = ", ".join(one.name for one in known) or "none"
        typer.echo(f"Warning: there is no pool {' or '.join(sorted(gone))} yet (there are: {there}).", err=True)
    there = dict.fromkeys(tier for one in known for tier in one.policy.tiers)
    if known and (gone := set(tiers or ()) - there.keys()):
        words = f"no pool has a tier {' or '.join(sorted(gone))} yet (there are: {', '.join(there)})"
        typer.echo(f"Warning: {words}.", err=True)


def ids_of(words: Sequence[str]) -> list[str]:
    """The ids that were typed, each once; those of stdin for `-`. Raises InvalidRequest if there is none."""
    from fairlane.errors import InvalidRequest

    typed = (one for word in words for one in (sys.stdin.read().split() if word == "-" else [word]))
    if not (found := list(dict.fromkeys(typed))):
        raise InvalidRequest("Which jobs? There is no id in the input.")
    return found


def no_pool(redis: str | None, namespace: str | None) -> str:
    """What is said of a queue without any."""
    from fairlane.queue.connection import connect, place

    url, name = address(redis, namespace)
    return f"No pool here (namespace {name}; {place(connect(url))}). `fairlane pool add` makes one."


def say(words: str, as_json: bool, **facts: object) -> None:
    """What was done: as a sentence, or as JSON."""
    typer.echo(json.dumps(facts) if as_json else words)


def say_json(value: Any) -> None:
    typer.echo(json.dumps(value))


def say_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table: with rich on a terminal, else words with blanks between them. None is shown as '-'."""
    texts = [["-" if value is None else str(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        lines = [list(columns), *texts]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for n, column in enumerate(columns):
        table.add_column(column, no_wrap=n == 0)  # what other commands are told comes first, and is copied whole
    for row in texts:
        table.add_row(*map(Text, row))
    Console().print(table)


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE …` as they were typed. Raises InvalidRequest."""
    from fairlane.errors import InvalidRequest

    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{word!r}: say NAME=VALUE.")
        if name in found:
            raise InvalidRequest(f"{name} is there twice: {found[name]!r} and {value!r}. Say one.", param=name)
        found[name] = value
    return found


def seconds_of(text: str) -> float:
    """`90s`, `15m`, `12h`, `30d`. Raises InvalidRequest."""
    from fairlane.errors import InvalidRequest

    match = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if match is None:
        raise InvalidRequest(f"A time is a whole number and s, m, h or d: 12h, 30d. Not {text!r}.")
    return int(match[1]) * _UNITS[match[2]]


def moment_of(text: str) -> float:
    """Unix seconds: `2h` is so long ago, `2026-11-30 12:00` is this machine's time. Raises InvalidRequest."""
    from fairlane.errors import InvalidRequest

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return time.time() - seconds_of(text)
    except InvalidRequest:
        raise InvalidRequest(f"A moment is 90s, 15m, 12h or 30d ago, or 2026-11-30T12:00. Not {text!r}.") from None


def date_of(at: float | None) -> str | None:
    """Unix seconds as this machine's time, to read."""
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def duration(ms: float) -> str:
    """A time to read: `250 ms`, `4.2 s`, `60 s`, `3 min`, `2 h`, `30 days`."""
    for unit, name in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * unit:
            return f"{ms / unit:.0f} {name}"
    return f"{ms / 1000:.1f}".removesuffix(".0") + " s" if ms >= 1000 else f"{max(0, ms):.0f} ms"


def names_of(grant: frozenset[str] | None) -> str:
    """The tiers or pools that may be used; None is all."""
    return "all" if grant is None else ",".join(sorted(grant))


def counted(number: int, one: str, more: str | None = None) -> str:
    """`1 job`, `2 jobs`; or with both forms `1 job waits`, `2 jobs wait`."""
    return f"{number} {one if number == 1 else more or one + 's'}"
