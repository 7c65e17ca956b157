"""The admin page at 1,000,000 jobs and 10,000 tenants: how long each view takes, and what 20 open pages cost Redis.

    python -m benchmarks.admin

Redis is a Valkey of this machine, the page a process of its own (`fairlane admin`). Each view is asked for ten times,
never within the second for which an answer is shared. Then 20 clients ask, each for one view and its charts, as often
as a page in a browser does; Redis's CPU time is that of its whole process, less what it takes without them. Exits 1 if
a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import httpx
from rich.console import Console

from admin_ui.app import REFRESH_MS
from benchmarks.figures import Figure, table
from benchmarks.servers import Measured, server
from dispatcher.processes import Child
from fairlane.accounts.users import Users
from fairlane.clock import ManualClock
from fairlane.model import BackendCounts, BackendSpec, JobError, JobSpec, Policy, Settlement, TierGate, Usage
from fairlane.queue.connection import connect
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.up import free_port
from tests.browser.seed import FLOOD, LLAMA, MISTRAL, QWEN, TROUBLES
from tests.browser.seed_past import add_past
from tests.browser.views import PLAIN, of_pool, of_tenant

JOBS: Final = 1_000_000
TENANTS: Final = 10_000
SHARES: Final = {LLAMA: 0.8, QWEN: 0.15, MISTRAL: 0.05}
FINISHED: Final = 20_000
ROUNDS: Final = 10
PAGES: Final = 20
WATCH_S: Final = 20.0
CHART_S: Final = 5.0  # charts.js: a chart of the last 15 min asks so often
VIEW_MS: Final = 300.0
REDIS_SHARE: Final = 2.0  # % of one core
PASSWORD: Final = "a password for the benchmark"  # noqa: S105
BODY: Final = b'{"model":"llama","messages":[{"role":"user","content":"Hello"}],"max_tokens":64}'
HEAD: Final = b'{"endpoint":"/v1/chat/completions","model":"llama"}'


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--tenants", type=int, default=TENANTS)
    given = parser.parse_args()
    console = Console(width=120)
    with server("valkey") as store, TemporaryDirectory() as folder:
        began = time.monotonic()
        dead = await load(store.url, given.jobs, given.tenants)
        console.print(f"Loaded {given.jobs:,} jobs of {given.tenants:,} tenants in {time.monotonic() - began:.0f} s.")
        with page(store.url, Path(folder)) as url:
            async with signed_in(url) as client:
                addresses = PLAIN | of_pool() | of_tenant() | {"job": f"/jobs/{dead}"}
                looks = await measure(client, store, addresses)
                figures = [view_figure(name, found) for name, found in looks.items()]
                figures.append(await cost(client, store, list(addresses.values())))
    console.print(table(figures, f"The admin page at {given.jobs:,} jobs and {given.tenants:,} tenants"))
    sys.exit(any(figure.holds is False for figure in figures))


# --- what is in Redis -------------------------------------------------------------------------------------------------


async def load(url: str, jobs: int, tenants: int) -> str:
    """Fills an empty Redis; returns the id of a job that is dead."""
    now_ms = round(time.time() * 1000)
    clock = ManualClock(now_ms - 600_000)
    queue = Queue(connect(url), clock=clock)
    await queue.check()
    dead = ""
    for name, share in SHARES.items():
        pool = await open_pool(queue, name)
        dead = await finish(queue, pool, round(FINISHED * share), tenants) or dead
        await fill(queue, pool, clock, round(jobs * share), tenants)
        await add_past(queue, clock, pool, now_ms, TROUBLES[name])
        clock.advance(now_ms - 600_000 - clock.now_ms())
    clock.advance(600_000)
    await Users(queue).create("ann", "admin", None, PASSWORD)
    await queue.close()
    return dead


async def open_pool(queue: Queue, name: str) -> Pool:
    pool = await queue.pools.open(name, Policy(max_waiting_pool=10**7, max_waiting_tenant=10**6))
    for n in range(4):
        await queue.set_backend(pool, f"gpu-{n}", "add", spec=BackendSpec(f"http://gpu-{n}.internal:8000"))
        gates = {tier: TierGate(10_000, 10_000) for tier in pool.policy.tiers}
        await queue.observe(pool, f"gpu-{n}", gates, counted=BackendCounts(0, 0, 0))
    return pool


async def fill(queue: Queue, pool: Pool, clock: ManualClock, jobs: int, tenants: int) -> None:
    """A fifth of the jobs are one tenant's; the others have a few in every tier."""
    tiers = pool.policy.tiers
    names = [FLOOD if n % 5 == 0 else f"tenant-{n % tenants:05}" for n in range(jobs)]
    specs = [JobSpec(name, tiers[n // tenants % len(tiers)], BODY, HEAD, 120, 64) for n, name in enumerate(names)]
    step = max(1, jobs // 50)
    for start in range(0, jobs, step):
        await submit(queue, pool, specs[start : start + step])
        clock.advance(10_000)


async def finish(queue: Queue, pool: Pool, jobs: int, tenants: int) -> str:
    """Jobs that have ended; every twentieth is dead."""
    specs = [JobSpec(f"tenant-{n % tenants:05}", "default", BODY, HEAD, 120, 64, max_attempts=1) for n in range(jobs)]
    await submit(queue, pool, specs)
    error, dead, call = JobError("backend_error", "The backend answered 500.", 500), "", 0
    while leases := await queue.acquire(pool, "bench", call := call + 1, 100):
        for lease in leases[::20]:
            await queue.retry(pool, lease, error, delay_ms=0)
        good = [
            Settlement(lease, "succeeded", 200, b"{}", usage=Usage(9, 9)) for n, lease in enumerate(leases) if n % 20
        ]
        await queue.settle_many(pool, good)
        dead = leases[0].id
    return dead


async def submit(queue: Queue, pool: Pool, specs: Sequence[JobSpec]) -> None:
    parts = [specs[n : n + 2_000] for n in range(0, len(specs), 2_000)]
    for answers in await asyncio.gather(*(queue.submit_many(pool, part) for part in parts)):
        assert not any(isinstance(answer, Exception) for answer in answers)


# --- the page ---------------------------------------------------------------------------------------------------------


@contextmanager
def page(redis_url: str, folder: Path) -> Iterator[str]:
    """`fairlane admin`, while the block runs; what it says is in the folder."""
    port = free_port()
    command = [sys.executable, "-m", "fairlane.cli", "admin", "--port", str(port), "--parent", str(os.getpid())]
    environment = os.environ | {"FAIRLANE_REDIS_URL": redis_url, "FAIRLANE_DATA_DIR": str(folder)}
    with (folder / "log").open("wb") as log:
        child = Child(command, env=environment, output=log)
        child.look()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            child.terminate()
            child.reap(10)


@asynccontextmanager
async def signed_in(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30, follow_redirects=True) as client:
        form = await until_answered(client)
        (token,) = re.findall(r'name="csrf_token" value="([^"]+)"', form.text)
        answer = await client.post(
            "/login", data={"csrf_token": token, "name": "ann", "password": PASSWORD, "next": ""}
        )
        answer.raise_for_status()
        yield client


async def until_answered(client: httpx.AsyncClient) -> httpx.Response:
    deadline = time.monotonic() + 30
    while True:
        try:
            return (await client.get("/login")).raise_for_status()
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


@dataclass(frozen=True)
class Look:
    """One answer: how long it took, and how long Redis worked for it, in ms."""

    took_ms: float
    redis_ms: float


async def measure(client: httpx.AsyncClient, store: Measured, addresses: Mapping[str, str]) -> dict[str, list[Look]]:
    """For each view what whole pages took; the first round, which loads scripts, is not counted."""
    looks: dict[str, list[Look]] = {name: [] for name in addresses}
    for n in range(ROUNDS + 1):
        began = time.monotonic()
        for name, address in addresses.items():
            asked, worked_us = time.perf_counter(), store.cpu_us()
            answer = await client.get(address)
            look = Look(1000 * (time.perf_counter() - asked), (store.cpu_us() - worked_us) / 1000)
            assert answer.is_success, f"{address}: {answer.status_code}"
            if n:
                looks[name].append(look)
        await asyncio.sleep(max(0.0, 1.2 - (time.monotonic() - began)))
    return looks


def view_figure(name: str, looks: Sequence[Look]) -> Figure:
    slowest, middle = (of(look.took_ms for look in looks) for of in (max, median))
    note = f"median {middle:.0f} ms, of them Redis {median(look.redis_ms for look in looks):.1f} ms"
    target = f"< {VIEW_MS:.0f} ms"
    return Figure(f"{name}, slowest of {len(looks)}", slowest, "ms", None, target, slowest < VIEW_MS, note=note)


# --- open pages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """CPU time of a process, in s, at a moment."""

    at: float
    cpu_s: float

    @classmethod
    def of(cls, pid: int) -> Spent:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return cls(time.monotonic(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    def share_since(self, before: Spent) -> float:
        """In % of one core."""
        return 100 * (self.cpu_s - before.cpu_s) / (self.at - before.at)


async def cost(client: httpx.AsyncClient, store: Measured, addresses: Sequence[str]) -> Figure:
    """What Redis takes while PAGES pages are open."""
    refreshed = [await refreshed_by(client, address) for address in addresses]
    before = Spent.of(store.pid)
    await asyncio.sleep(WATCH_S / 2)
    idle = Spent.of(store.pid).share_since(before)
    ends_at, before = time.monotonic() + WATCH_S, Spent.of(store.pid)
    watched = [(*each, n) for n in range(PAGES) for each in refreshed[n % len(refreshed)]]
    asked = await asyncio.gather(*(watch(client, where, every_s, n / PAGES, ends_at) for where, every_s, n in watched))
    taken = Spent.of(store.pid).share_since(before) - idle
    target, rate = f"< {REDIS_SHARE:.0f} % of a core", f"{sum(asked) / WATCH_S:.0f} requests/s"
    name, besides = f"Redis, {PAGES} open pages", f"{idle:.2f} % without pages"
    return Figure(name, taken, "%", None, target, taken < REDIS_SHARE, 2, rate, besides)


async def refreshed_by(client: httpx.AsyncClient, address: str) -> list[tuple[str, float]]:
    """What an open page asks for, and every how many seconds: itself, if it is live, and its charts' points."""
    page = (await client.get(address)).text
    charts = [unescape(each) for each in dict.fromkeys(re.findall(r'data-trend="([^"]+)"', page))]
    itself = [(address, REFRESH_MS / 1000)] if re.search(r'id="live" hx-get', page) else []
    return itself + [(chart, CHART_S) for chart in charts]


async def watch(client: httpx.AsyncClient, address: str, every_s: float, offset: float, ends_at: float) -> int:
    """Asks again and again as an open page does; returns how often."""
    await asyncio.sleep(offset * every_s)
    asked = 0
    while time.monotonic() < ends_at:
        began = time.monotonic()
        (await client.get(address, headers={"HX-Request": "true"})).raise_for_status()
        asked += 1
        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began)))
    return asked


if __name__ == "__main__":
    asyncio.run(main())
