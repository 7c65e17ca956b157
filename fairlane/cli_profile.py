"""`fairlane profile URL`: how fast a backend is, as a file that `simulate` and `plan` read."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlane.terminal import AsJson, refusals, say_json, say_table

if TYPE_CHECKING:
    from dispatcher.simulator.profiling.fit import Fit
    from dispatcher.simulator.profiling.seen import Seen


def profile(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of an OpenAI-compatible server, asked directly.")],
    model: Annotated[str | None, typer.Option(metavar="NAME", help="(Default: the only one that it serves)")] = None,
    concurrency: Annotated[int, typer.Option(min=2, max=1024, help="Requests at once, at the most.")] = 64,
    seconds: Annotated[float, typer.Option(min=2, max=3600, help="The load lasts no longer.")] = 60.0,
    prompt: Annotated[int, typer.Option(min=128, max=100_000, help="Tokens of a prompt, at the most.")] = 1500,
    tokens: Annotated[int, typer.Option(min=12, max=4096, help="Tokens of an answer, at the most.")] = 48,
    key_env: Annotated[str | None, typer.Option(metavar="VAR", help="The variable with the server's key.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the profile there. (Default: stdout)")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how fast a real backend is by a short, bounded load, for `simulate` and `plan`.

    It says before what it will send. Let nobody else use the backend meanwhile. Exits 0 if a profile was fitted.
    """
    from dispatcher.simulator.profile import dump_profile
    from dispatcher.simulator.profiling.course import Plan
    from dispatcher.simulator.profiling.run import profile as measured

    with refusals(as_json):
        check_writable(out)
        plan = Plan(seconds, concurrency, prompt, tokens)
        with _progress(seconds) as tell:
            fitted, seen = asyncio.run(measured(url, plan, model=model, key_env=key_env, tell=tell))
    text = dump_profile(fitted.profile)
    if out:
        out.write_text(text, encoding="utf-8")
    if as_json:
        say_json(_facts(fitted))
        return
    _show(fitted, seen)
    typer.echo(f"\nWritten to {out}." if out else f"\n{text}", nl=bool(out))


def check_writable(out: Path | None) -> None:
    """Before the load is sent, not after. Raises InvalidRequest."""
    from fairlane.errors import InvalidRequest

    if out is None:
        return
    there = out.exists()
    try:
        with out.open("a"):
            pass
        if not there:
            out.unlink()  # if the backend cannot be profiled there is no file, rather than an empty one
    except OSError as error:
        raise InvalidRequest(f"{out} cannot be written: {error.strerror or error}.", param="out") from None


def _show(fitted: Fit, seen: Seen) -> None:
    from dispatcher.simulator.profiling.fit import terms

    say_table(("value", "fitted", "from"), terms(fitted, seen))
    typer.echo()
    rows = [
        (one.what, f"{one.seen_ms:.1f}", f"{one.model_ms:.1f}", f"{one.error:+.1%}", "yes" if one.fitted else "no")
        for one in fitted.checks
    ]
    say_table(("seen", "ms", "model", "error", "fitted"), rows)
    for words in fitted.notes:
        typer.echo(words)
    for words in fitted.warnings:
        typer.secho(f"Warning: {words}", fg="yellow", err=True)


def _facts(fitted: Fit) -> dict[str, object]:
    return {
        "profile": asdict(fitted.profile),
        "checks": [{**asdict(one), "error": one.error} for one in fitted.checks],
        "notes": list(fitted.notes),
        "warnings": list(fitted.warnings),
    }


@contextmanager
def _progress(seconds: float) -> Generator[Callable[[str], None]]:
    """On a terminal a bar of the time that it may take; else a line for each thing that is sent. On stderr."""
    if not sys.stderr.isatty():
        yield lambda words: typer.echo(words, err=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=seconds)
        began = time.monotonic()

        def tell(words: str) -> None:
            if bar.tasks[0].description == "":
                console.print(words, highlight=False)
            bar.update(task, description=words, completed=time.monotonic() - began)

        yield tell
