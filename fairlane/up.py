"""`fairlane up`: everything on this machine in one command, on loopback; all of it ends with it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from dispatcher.processes import POLL_S, Child
from fairlane.accounts.users import Users
from fairlane.errors import IllegalTransition, NotFound, StoreUnavailable
from fairlane.greeting import ADMIN, Running, greeting
from fairlane.logging import configure
from fairlane.options import BackendOption, parse_backend, register_only
from fairlane.process import check_port
from fairlane.queue.embedded import DataDirInUse, EmbeddedServer, write_private
from fairlane.queue.engine import Queue
from fairlane.settings import Settings, load

READY_S: Final = 60.0
BACKEND_S: Final = 10.0  # a real server may load for minutes: it is not waited for; simulated ones are there soon
SIM_MODEL: Final = "sim"
SIM_BACKENDS: Final = 2
LOCAL: Final = "127.0.0.1"
GRACE_S: Final = 5.0  # for what has nothing to drain


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The command line. `backends` are written as options.parse_backend reads them; none: simulated ones."""

    port: int = 8080
    dispatchers: int = 1
    backends: tuple[str, ...] = ()
    log_level: str = "warning"
    auth: str | None = None
    admin_port: int | None = None

    @property
    def page_port(self) -> int:
        """Of the admin page: the one after the front door's, unless another was said."""
        return self.admin_port or self.port + 1


def start(options: UpOptions, *, redis_url: str | None, data_dir: Path | None) -> None:
    """Runs until SIGTERM or SIGINT; at a second one nothing is waited for any more.

    Raises InvalidRequest, DataDirInUse, PortInUse, StoreUnsuitable, StoreUnavailable.
    """
    ending, hurry = threading.Event(), threading.Event()

    def end(signum: int, frame: object) -> None:
        (hurry if ending.is_set() else ending).set()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, end)
    with running(options, redis_url=redis_url, data_dir=data_dir, ending=ending, hurry=hurry) as (found, look):
        if not ending.is_set():
            print(greeting(found), flush=True)  # noqa: T201
        while not ending.wait(POLL_S):
            look()
        words = f"Stopping: what runs may end, up to {found.drain_s:g} s; Ctrl-C again stops at once."
        print(words, flush=True)  # noqa: T201


@contextmanager
def running(
    options: UpOptions,
    *,
    redis_url: str | None = None,
    data_dir: Path | None = None,
    ending: threading.Event | None = None,
    hurry: threading.Event | None = None,
) -> Generator[tuple[Running, Callable[[], None]]]:
    """Everything, while the block runs. Call what comes second now and then: it starts again what has died.

    Once `ending` is set it waits for nothing to begin, once `hurry` is set for nothing to end.
    """
    configure(options.log_level)
    settings = load(redis_url=redis_url, data_dir=data_dir, auth=options.auth)
    backends = [parse_backend(text) for text in options.backends]
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(_only_one(settings.data_dir))
        check_port(LOCAL, options.port)
        check_port(LOCAL, options.page_port, "--admin-port")
        store = None if settings.redis_url else EmbeddedServer(settings.data_dir)
        if store:
            stack.enter_context(store)
        house = _House(settings, options, settings.redis_url or (store.url if store else ""), store, hurry)
        stack.callback(house.end)
        found = house.begin(backends, ending or threading.Event())
        path = settings.data_dir / "up.json"
        stack.callback(path.unlink, missing_ok=True)
        write_private(path, json.dumps({"url": found.url, "admin_url": found.admin_url, "redis_url": found.redis_url}))
        yield found, house.look


class _House:
    """The processes, in the order in which they start."""

    def __init__(
        self,
        settings: Settings,
        options: UpOptions,
        redis_url: str,
        store: EmbeddedServer | None,
        hurry: threading.Event | None = None,
    ) -> None:
        self._settings = settings
        self._options = options
        # It is reached from this machine only: unless something says otherwise, no key is needed.
        self._auth = settings.auth if "auth" in settings.model_fields_set else "open"
        self._redis_url = redis_url
        self._store = store
        self._hurry = hurry or threading.Event()
        self._sims: list[Child] = []
        self._dispatchers: list[Child] = []
        self._api: list[Child] = []
        self._workers: list[Child] = []
        self._admin: list[Child] = []

    def begin(self, backends: Sequence[BackendOption], ending: threading.Event) -> Running:
        """Returns when a job could run, or waits only for backends. Raises StoreUnavailable if that takes too long."""
        if not backends:
            backends = [self._simulate() for _ in range(SIM_BACKENDS)]
        asyncio.run(self._register(backends))
        level = ("--log-level", self._options.log_level)
        self._dispatchers = [self._child("dispatcher", *level) for _ in range(self._options.dispatchers)]
        self._workers = [self._child("worker", "--only", work, *level) for work in ("batches", "webhooks")]
        port = str(self._options.port)
        self._api = [self._child("api", "--auth", self._auth, "--port", port, "--needs-dispatcher", *level)]
        self._admin = [self._child("admin", "--port", str(self._options.page_port), *level)]
        url, admin_url = f"http://{LOCAL}:{port}", f"http://{LOCAL}:{self._options.page_port}"
        self._until_ready(url, ending)
        self._until_shown(admin_url, ending)
        models = tuple(sorted({backend.pool for backend in backends}))
        login_url = asyncio.run(self._login_at(admin_url))
        settings = self._settings
        elsewhere = settings.data_dir != Settings.model_fields["data_dir"].default
        data_dir = settings.data_dir.absolute() if elsewhere else None
        return Running(url, self._redis_url, models, admin_url, login_url, self._auth, settings.drain_s, data_dir)

    def look(self) -> None:
        if self._store and not self._store.alive:
            self._store.start()  # on its old port, with all its data
        for child in (*self._sims, *self._dispatchers, *self._workers, *self._api, *self._admin):
            child.look()

    def end(self) -> None:
        """Takes nothing in any more, lets what runs end, then stops what it ran on."""
        for children, grace_s in (
            ((*self._admin, *self._api), self._settings.drain_s + GRACE_S),
            (self._workers, self._settings.webhook_timeout_s + GRACE_S),
            (self._dispatchers, self._settings.drain_s + GRACE_S),
            (self._sims, GRACE_S),
        ):
            for child in children:
                child.terminate()
            self._wait_for(children, grace_s)

    def _wait_for(self, children: Sequence[Child], grace_s: float) -> None:
        """Until they have ended; in a hurry they are told again, and hand back what they do."""
        end, told = time.monotonic() + grace_s, False
        while any(child.alive for child in children) and time.monotonic() < end:
            time.sleep(POLL_S / 2)
            if self._hurry.is_set() and not told:
                end, told = min(end, time.monotonic() + GRACE_S), True
                for child in children:
                    child.terminate()
        for child in children:
            child.reap(0)

    def _child(self, *command: str) -> Child:
        """One of our own commands. The Redis URL, which may hold a password, goes by the environment."""
        environment: Mapping[str, str] = os.environ | {
            "FAIRLANE_REDIS_URL": self._redis_url,
            "FAIRLANE_NAMESPACE": self._settings.namespace,
            "FAIRLANE_DATA_DIR": str(self._settings.data_dir.absolute()),
        }
        whole = [sys.executable, "-m", "fairlane.cli", *command, "--parent", str(os.getpid())]
        child = Child(whole, env=environment)
        child.look()
        return child

    def _simulate(self) -> BackendOption:
        port = free_port()
        self._sims.append(self._child("sim-backend", "--port", str(port), "--model", SIM_MODEL))
        return parse_backend(f"{SIM_MODEL}=http://{LOCAL}:{port}")

    async def _register(self, backends: Sequence[BackendOption]) -> None:
        queue = await Queue.open(self._redis_url, namespace=self._settings.namespace)
        try:
            await register_only(queue, backends, self._settings.policy)
            if self._store and all(backend.pool != SIM_MODEL for backend in backends):
                await _forget_simulated(queue)
        finally:
            await queue.close()

    async def _login_at(self, admin_url: str) -> str | None:
        queue = await Queue.open(self._redis_url, namespace=self._settings.namespace)
        try:
            users = Users(queue)
            with suppress(IllegalTransition):  # it is there already
                await users.create(ADMIN, "admin")
            return f"{admin_url}/login/once?secret={await users.allow_once(ADMIN)}"
        except IllegalTransition:
            return None
        finally:
            await queue.close()

    def _until_shown(self, admin_url: str, ending: threading.Event) -> None:
        """Returns when the admin page answers. Raises StoreUnavailable if that takes too long."""
        deadline = time.monotonic() + READY_S
        with httpx.Client(trust_env=False) as client:
            while time.monotonic() < deadline and not ending.is_set():
                self.look()
                with suppress(httpx.HTTPError):
                    if client.get(f"{admin_url}/login", timeout=5).is_success:
                        return
                time.sleep(POLL_S / 2)
        if not ending.is_set():
            raise StoreUnavailable(f"The admin page does not answer after {READY_S:g} s.")

    def _until_ready(self, url: str, ending: threading.Event) -> None:
        began = time.monotonic()
        reasons: list[str] = ["the front door does not answer"]
        with httpx.Client(trust_env=False) as client:
            while time.monotonic() < began + READY_S and not ending.is_set():
                if (
                    time.monotonic() > began + BACKEND_S
                    and not self._sims
                    and all(reason.startswith("no_scrape") for reason in reasons)
                ):
                    told = "; ".join(reason.partition(": ")[2] for reason in reasons)
                    print(f"Still waiting: {told}. Jobs wait until it answers.", flush=True)  # noqa: T201
                    return
                self.look()
                try:
                    answer = client.get(f"{url}/health/ready", timeout=5)
                    if answer.is_success:
                        return
                    reasons = answer.json().get("reasons", reasons)
                except httpx.HTTPError:
                    pass
                time.sleep(POLL_S / 2)
        if not ending.is_set():
            raise StoreUnavailable(f"Not ready after {READY_S:g} s: {'; '.join(reasons)}.")


async def _forget_simulated(queue: Queue) -> None:
    """Those that an earlier run has simulated are gone, and so is their pool, unless something waits in it."""
    with suppress(NotFound, IllegalTransition):
        pool = await queue.pools.by_name(SIM_MODEL)
        for view in (await queue.inspect.load(pool)).backends:
            parts = urlsplit(view.spec.url if view.spec else "")
            if parts.hostname == LOCAL and not _is_listened_on(parts.port or 80):
                await queue.set_backend(pool, view.name, "remove")
        await queue.pools.remove(SIM_MODEL)


def _is_listened_on(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOCAL, port)) == 0


@contextmanager
def _only_one(data_dir: Path) -> Generator[None]:
    """Raises DataDirInUse if another `fairlane up` has this folder."""
    with (data_dir / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise DataDirInUse(data_dir, int(lock.read() or 0)) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        return probe.getsockname()[1]
