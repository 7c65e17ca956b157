"""`fairlane …`: the one command. Heavy imports stay inside the commands, so that `fairlane --help` is quick."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fairlane.doctor import Finding

REFUSED = 3  # exit codes: 0 done, 1 a job did not succeed, 2 usage, 3 refused or unreachable, 130 Ctrl-C

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="FAIRLANE_REDIS_URL",
        help="redis://, rediss://, unix://, redis+cluster://host:port or redis+sentinel://host:port,…/service/db",
    ),
]
Namespace = Annotated[
    str, typer.Option(metavar="NAME", envvar="FAIRLANE_NAMESPACE", help="The first part of every Redis key.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def fairlane() -> None:
    """A fair, tiered request queue for LLM inference servers."""


@app.command()
def doctor(redis: RedisUrl = None, namespace: Namespace = "fl", as_json: AsJson = False) -> None:
    """Check whether a Redis can hold the queue, what it would lose in a crash, and what to change.

    Exits 0 if it can be used (perhaps with warnings), 3 if not.
    """
    if redis is None:
        raise typer.BadParameter(
            "Which Redis? Use --redis URL, or set FAIRLANE_REDIS_URL. (Without either, `fairlane up` starts its own, "
            "which needs no check-up.)"
        )
    from fairlane.doctor import examine
    from fairlane.errors import InvalidRequest

    try:
        findings = asyncio.run(examine(redis, namespace))
    except InvalidRequest as error:
        raise typer.BadParameter(str(error), param_hint="--redis") from error
    healthy = all(finding.level != "fail" for finding in findings)
    if as_json:
        typer.echo(json.dumps({"ok": healthy, "findings": [asdict(finding) for finding in findings]}))
    else:
        _show(findings)
    if not healthy:
        raise typer.Exit(REFUSED)


def _show(findings: list[Finding]) -> None:
    if not sys.stdout.isatty():
        for finding in findings:
            typer.echo(f"{finding.level:<4}  {finding.name:<11}  {finding.what} {finding.advice}".rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table("", "check", "found", "advice", box=None)
    for finding in findings:
        table.add_row(
            Text(finding.level, styles[finding.level]), finding.name, Text(finding.what), Text(finding.advice)
        )
    Console().print(table)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
