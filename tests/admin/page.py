"""The admin page as a test sees it: signed in as somebody, on data that is always the same."""

from __future__ import annotations

import html
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from admin_ui.bridge import Bridge, Stores
from admin_ui.reading import Readings
from fairlane.accounts.users import UserRole
from fairlane.head import Head
from fairlane.model import BackendSpec, JobSpec, Policy
from fairlane.queue.pools import Pool
from tests.contract.acts import REFUSED, finish, open_backend, submit_all, take

T = TypeVar("T")
USERS: Final[dict[str, tuple[UserRole, frozenset[str] | None]]] = {
    "root": ("admin", None),
    "olga": ("operator", None),
    "vera": ("viewer", None),
    "otto": ("operator", frozenset({"ann"})),  # he may see and act on Ann's things only
}
_TOKEN: Final = re.compile(r'name="csrf_token" value="([^"]+)"')
_HIDDEN: Final = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


class Page:
    """The page with one user signed in. `page.as_("vera")` is the same page for another."""

    def __init__(self, app: Flask, bridge: Bridge, user: str | None) -> None:
        self.app = app
        self.bridge = bridge
        self.client: FlaskClient = app.test_client()
        if user is not None:
            self._sign_in(user)

    def as_(self, user: str | None) -> Page:
        """For another user of USERS, or for nobody."""
        return Page(self.app, self.bridge, user)

    def ask(self, what: Callable[[Stores], Awaitable[T]]) -> T:
        """What the stores answer: `page.ask(lambda stores: stores.queue.pools.by_name("llama"))`."""
        return self.bridge.ask(what)

    def get(self, path: str, **options: Any) -> TestResponse:
        """The answer, with nothing that was kept from the last second."""
        self.forget()
        return self.client.get(path, buffered=True, **options)

    def post(self, path: str, data: dict[str, str] | None = None, **options: Any) -> TestResponse:
        """A POST with a token against forged requests."""
        self.forget()
        return self.client.post(path, data={"csrf_token": self.token()} | (data or {}), **options)

    def act(self, name: str, values: dict[str, str] | None = None, /, **params: object) -> TestResponse:
        """Opens an act's confirmation, fills in `values` (and `typed`), and does it. The answer of the last step."""
        form = self.get(f"/act/{name}", query_string={key: str(value) for key, value in params.items()})
        if form.status_code != 200:
            return form
        hidden = {key: html.unescape(value) for key, value in _HIDDEN.findall(form.text)}
        return self.client.post(f"/act/{name}", data=hidden | (values or {}))

    def token(self) -> str:
        """A token against forged requests, as this client's forms have it."""
        match = _TOKEN.search(self.client.get("/login").text)
        assert match
        return match[1]

    def forget(self) -> None:
        """Drops what is kept for a second."""
        self.app.extensions["readings"] = Readings()

    def _sign_in(self, user: str) -> None:
        secret = self.ask(lambda stores: stores.users.allow_once(user))
        answer = self.client.post("/login/once", data={"csrf_token": self.token(), "secret": secret})
        assert answer.status_code == 303, answer.text


async def fill(stores: Stores) -> None:
    """Two pools, two tenants, users, and jobs in every state."""
    for name, (role, tenants) in USERS.items():
        await stores.users.create(name, role, tenants)
    for tenant in ("ann", "bob"):
        await stores.accounts.create_tenant(tenant)
    queue = stores.queue
    llama = await queue.pools.open("llama", Policy(stale_ms=3_600_000))
    mistral = await queue.pools.open("org/mistral:7b", Policy(stale_ms=3_600_000))
    await open_backend(queue, llama, "b1", 4)
    await queue.set_backend(llama, "b1", "add", spec=BackendSpec("http://b1:8000"))
    await open_backend(queue, mistral, "m1", 1)
    await submit_all(queue, llama, [job("ann", max_attempts=1), job("bob"), job("bob")])
    dead, good, _leased = await take(queue, llama, 3)
    await queue.retry(llama, dead, REFUSED, delay_ms=0)
    await finish(queue, llama, [good])
    await wait(stores, llama)


async def wait(stores: Stores, pool: Pool) -> None:
    """12 jobs of Ann's wait, 2 of Bob's, and one of his is delayed."""
    jobs = [job("ann") for _ in range(12)] + [job("bob", "priority"), job("bob"), job("bob", delay_ms=3_600_000)]
    await submit_all(stores.queue, pool, jobs)


def job(tenant: str, tier: str = "default", **changes: Any) -> JobSpec:
    """A request for a chat completion."""
    head = Head("/v1/chat/completions", "llama", metadata={"for": "a test"}).encode()
    body = b'{"model": "llama", "messages": [{"role": "user", "content": "<b>Hello</b>"}]}'
    return JobSpec(tenant=tenant, tier=tier, head=head, body=body, input_tokens=8, output_tokens=32, **changes)
