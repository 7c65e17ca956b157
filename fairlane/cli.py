"""`fairlane …`: the one command. Heavy imports stay inside the commands, so that `fairlane --help` is quick."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairlane.cli_admin import admin
from fairlane.cli_following import tail, watch
from fairlane.cli_jobs import cancel, results
from fairlane.cli_keys import keys
from fairlane.cli_plan import plan
from fairlane.cli_pool import pool
from fairlane.cli_profile import profile
from fairlane.cli_queue import explain, policy
from fairlane.cli_simulate import simulate
from fairlane.cli_submit import submit
from fairlane.cli_tenants import tenants
from fairlane.cli_users import users
from fairlane.cli_webhooks import webhooks
from fairlane.terminal import REFUSED, AsJson, OtherNamespace, RedisUrl, refusals, up_here

if TYPE_CHECKING:
    from fairlane.doctor import Finding

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(policy, name="policy")
app.add_typer(pool, name="pool")
app.add_typer(tenants, name="tenants")
app.add_typer(keys, name="keys")
app.add_typer(users, name="users")
app.add_typer(webhooks, name="webhooks")
app.add_typer(users, name="users")
app.add_typer(admin, name="admin")
for command in (submit, watch, results, cancel, tail, explain, profile, simulate, plan):
    app.command()(command)

Namespace = Annotated[
    str, typer.Option(metavar="NAME", envvar="FAIRLANE_NAMESPACE", help="The first part of every Redis key.")
]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fairlane {version('fairlane')}")
        raise typer.Exit


@app.callback()
def fairlane(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and do nothing.")
    ] = False,
) -> None:
    """A fair, tiered request queue for LLM inference servers."""


@app.command()
def doctor(redis: RedisUrl = None, namespace: Namespace = "fl", as_json: AsJson = False) -> None:
    """Check whether a Redis can hold the queue, what it would lose in a crash, and what to change.

    Exits 0 if it can be used (perhaps with warnings), 3 if not.
    """
    from fairlane.doctor import examine
    from fairlane.errors import InvalidRequest
    from fairlane.settings import load

    with refusals(as_json):
        if redis is None:
            redis = up_here(load().data_dir, "redis_url")
        if redis is None:
            raise InvalidRequest(
                "Which Redis? Use --redis URL, set FAIRLANE_REDIS_URL, or start `fairlane up`, whose is then meant.",
                param="redis",
            )
        findings = asyncio.run(examine(redis, namespace))
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


Backend = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="NAME=URL[,slots=N][,key_env=VAR][,family=F]",
        help="A backend of the pool NAME; several with one NAME form the pool. null:// answers at once.",
    ),
]

LogLevel = Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")]
Auth = Annotated[
    str | None,
    typer.Option(
        metavar="keys|open",
        help="keys: who has one comes in (`fairlane keys create`). open: the bearer token is the tenant.",
    ),
]
Parent = Annotated[int | None, typer.Option(hidden=True)]


@app.command()
def up(
    redis: RedisUrl = None,
    backend: Backend = None,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Of the front door.")] = 8080,
    admin_port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Of the admin page. (Default: --port + 1)")
    ] = None,
    dispatchers: Annotated[int, typer.Option(min=1, max=64, help="Each a process of its own.")] = 1,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="FAIRLANE_DATA_DIR",
            help="Where the queue is kept, and up.json with the addresses. (Default: ~/.local/share/fairlane)",
        ),
    ] = None,
    auth: Auth = None,
    log_level: LogLevel = "warning",
) -> None:
    """Start everything on this machine: queue, dispatchers, front door, admin page; simulated backends by default."""
    from fairlane.up import UpOptions, start

    options = UpOptions(port, dispatchers, tuple(backend or ()), log_level, auth, admin_port)
    with refusals():
        start(options, redis_url=redis, data_dir=data_dir)


@app.command()
def dispatcher(
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    backend: Backend = None,
    pool: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Serve only this pool; repeatable. (Default: all)")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=100_000, help="Jobs at once, in each pool and process.")] = 256,
    processes: Annotated[int, typer.Option(min=1, max=256)] = 1,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Serve /metrics there, on loopback; each process one further.")
    ] = None,
    log_level: LogLevel = "info",
    parent: Parent = None,
) -> None:
    """Take jobs out of the queue and run them, until SIGTERM: then what runs may end, and the rest is handed back."""
    from dispatcher.command import DispatcherOptions, start

    options = DispatcherOptions(
        backends=tuple(backend or ()),
        pools=tuple(pool or ()),
        concurrency=concurrency,
        processes=processes,
        metrics_port=metrics_port,
        log_level=log_level,
        parent=parent,
    )
    with refusals():
        start(options, redis_url=redis, namespace=namespace)


@app.command()
def api(
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8080,
    auth: Auth = None,
    force: Annotated[bool, typer.Option("--force", help="Without keys, listen beyond loopback all the same.")] = False,
    log_level: LogLevel = "info",
    needs_dispatcher: Annotated[bool, typer.Option("--needs-dispatcher", hidden=True)] = False,
    parent: Parent = None,
) -> None:
    """Serve the front door: OpenAI's endpoints, and jobs."""
    from producer.serve import ApiOptions, start

    options = ApiOptions(host, port, log_level, force, needs_dispatcher, parent)
    with refusals():
        start(options, redis_url=redis, namespace=namespace, auth=auth)


@app.command()
def worker(
    redis: RedisUrl = None,
    namespace: OtherNamespace = None,
    only: Annotated[
        Literal["batches", "webhooks"] | None, typer.Option(help="Do one kind of work, and no other. (Default: both)")
    ] = None,
    log_level: LogLevel = "info",
    parent: Parent = None,
) -> None:
    """Work on batches and send webhooks, as a Celery worker; any number of them share the work."""
    from dispatcher.celery_worker import WorkerOptions, start

    with refusals():
        start(WorkerOptions(only, log_level, parent), redis_url=redis, namespace=namespace)


@app.command()
def sim_backend(
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: a free one, which is printed.")] = 8000,
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Repeatable. (Default: sim)")] = None,
    slots: Annotated[int, typer.Option(min=1, max=100_000, help="Requests at once.")] = 8,
    step_ms: Annotated[float, typer.Option(min=0.1, help="The time of one step, which makes a token for each.")] = 8.0,
    kv_tokens: Annotated[int, typer.Option(min=1, help="Tokens that fit into its cache.")] = 1_000_000,
    priority: Annotated[str, typer.Option(metavar="obeyed|ignored|refused")] = "ignored",
    seed: Annotated[int, typer.Option()] = 0,
    faults: Annotated[str, typer.Option(metavar="JSON", help="As in POST /faults.")] = "{}",
    parent: Parent = None,
) -> None:
    """Run a simulated inference server: seen from outside it behaves as vLLM does."""
    from dispatcher.backends.simulated.command import SimOptions, start

    with refusals():
        start(
            SimOptions(host, port, tuple(model or ("sim",)), slots, step_ms, kv_tokens, priority, seed, faults, parent)
        )


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
