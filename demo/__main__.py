"""Runs the demo. In a terminal everything stays up until Ctrl-C; otherwise it ends when the table is printed."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.hooks import Hooks
from demo.measure import Measured, Send, measure
from demo.workload import SEED, Arrival, workload
from fairlane import AsyncClient
from fairlane.up import UpOptions, free_port, running
from tests.simulated.server import simulated

SLOTS: Final = 16
STEP_MS: Final = 4.0
STAYS: Final = "The same requests go on, so that the admin page has something to show."
console = Console()
Run = Callable[[Send, Sequence[Arrival]], Awaitable[Measured]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="Of the flood; the default takes less than a minute.")
    arrivals = workload(scale=parser.parse_args().scale)
    tenants = Counter(arrival.tenant for arrival in arrivals)
    console.print(
        f"[bold]One tenant sends {tenants['heavy']} requests at once, {len(tenants) - 1} others "
        f"{len(arrivals) - tenants['heavy']} now and then; the same simulated backend ({SLOTS} slots) without and with "
        "Fairlane before it.[/bold]\n"
        f"Arrivals and lengths have the shape of Azure's conversation trace of 2023 (generated, seed {SEED}).\n",
        highlight=False,
    )
    with (
        simulated("--slots", str(SLOTS), "--step-ms", str(STEP_MS)) as backend,
        tempfile.TemporaryDirectory() as folder,
        Hooks() as hooks,
    ):
        before = asyncio.run(_directly(backend.url, arrivals))
        os.environ["FAIRLANE_WEBHOOK_ALLOW"] = hooks.allow  # what `running` starts may send there
        options = UpOptions(free_port(), 1, (f"sim={backend.url}",), "error", admin_port=free_port())
        with running(options, data_dir=Path(folder)) as (found, look):
            console.print(f"Watch it on the admin page, [bold]{found.admin_url}[/bold]. This link signs you in, once:")
            console.print(f"{found.login_url}\n", soft_wrap=True)
            after = asyncio.run(_through(found.url, arrivals, hooks, partial(_watched, "with Fairlane")))
            console.print(_table(before, after))
            hooks.await_all()
            console.print(f"\nWebhooks: {hooks.words}.", highlight=False)
            whole = hooks.whole
            if sys.stdout.isatty():
                console.print(f"\nFairlane serves the model [bold]sim[/bold] at {found.url} until Ctrl-C. {STAYS}")
                _stay(found.url, arrivals, hooks, look)
    if before.failed or after.failed or not whole:
        raise SystemExit(1)


async def _directly(url: str, arrivals: Sequence[Arrival]) -> Measured:
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits, trust_env=False) as client:

        async def send(arrival: Arrival) -> None:
            (await client.post("/v1/chat/completions", json=arrival.body("sim"))).raise_for_status()

        return await _watched("without Fairlane", send, arrivals)


async def _through(url: str, arrivals: Sequence[Arrival], hooks: Hooks, run: Run) -> Measured:
    clients = {tenant: AsyncClient(url, api_key=tenant) for tenant in {arrival.tenant for arrival in arrivals}}

    async def send(arrival: Arrival) -> None:
        client = clients[arrival.tenant]
        handle = await client.submit(body=arrival.body("sim"), model="sim", tier=arrival.tier, webhook=hooks.webhook)
        hooks.submitted.add(handle.id)
        await handle.result()

    try:
        return await run(send, arrivals)
    finally:
        for client in clients.values():
            await client.close()


async def _watched(what: str, send: Send, arrivals: Sequence[Arrival]) -> Measured:
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        heavy, light = (sum((one.tenant == "heavy") == is_heavy for one in arrivals) for is_heavy in (True, False))
        bars = {
            True: progress.add_task(f"{what}: heavy", total=heavy),
            False: progress.add_task(f"{what}: the others", total=light),
        }
        return await measure(send, arrivals, lambda arrival: progress.advance(bars[arrival.tenant == "heavy"]))


def _table(before: Measured, after: Measured) -> Table:
    table = Table(title="\nSeconds to the answer", title_justify="left")
    table.add_column("tenant")
    table.add_column("tier")
    for name in ("requests", "median without", "median with", "slowest without", "slowest with"):
        table.add_column(name, justify="right")
    for key in sorted(before.answers_s, key=lambda key: (key[0] == "heavy", key)):
        values = [f"{one.median_s(key):.2f}" for one in (before, after)]
        values += [f"{one.slowest_s(key):.2f}" for one in (before, after)]
        table.add_row(*key, str(len(before.answers_s[key])), *values)
    table.caption = f"All in all {before.per_s:.1f} answers/s without, {after.per_s:.1f} with Fairlane."
    return table


def _stay(url: str, arrivals: Sequence[Arrival], hooks: Hooks, look: Callable[[], None]) -> None:
    """Sends the same again and again, until Ctrl-C."""

    async def go_on() -> None:
        looking = asyncio.create_task(keep_looking())
        try:
            while True:
                await _through(url, arrivals, hooks, lambda send, all_: measure(send, all_, lambda _: None))
        finally:
            looking.cancel()

    async def keep_looking() -> None:
        while True:
            look()
            await asyncio.sleep(0.1)

    try:
        asyncio.run(go_on())
    except KeyboardInterrupt:
        console.print("Stopping …")


if __name__ == "__main__":
    main()
