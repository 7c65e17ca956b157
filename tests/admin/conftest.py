"""The admin page on a real Valkey, within the test's process.

    def test_a_tenant_is_paused(page: Page) -> None:
        page.act("tenant.pause", pool="llama", tenant="ann")      # opens the confirmation, and confirms
        assert "paused" in page.get("/tenants/ann").text          # answers are werkzeug's: .status_code .text .json
        pool = page.ask(lambda stores: stores.queue.pools.by_name("llama"))
        assert page.as_("vera").act("tenant.pause", pool="llama", tenant="ann").status_code == 403

`page` is signed in as `root`, an admin; `page.as_` as one of the others of tests/admin/page.py USERS (olga: operator,
vera: viewer, otto: operator for Ann only), or as nobody. Each test has data of its own, made by `fill` there: the pools
`llama` (backend b1) and `org/mistral:7b` (backend m1), the tenants `ann` and `bob`, and in llama a dead job of Ann's,
a finished and a leased one, 12 waiting ones of Ann's, two of Bob's, and a delayed one. Rebalancing runs are carried out
only in modules that have `@pytest.fixture def steps() -> bool: return True`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from flask import Flask

from admin_ui.app import create_app
from admin_ui.bridge import Bridge
from admin_ui.reading import Readings
from fairlane.settings import Settings
from tests.admin.page import Page, fill
from tests.servers import ValkeyServer

_numbers = count()


@pytest.fixture(scope="session")
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def steps() -> bool:
    """Whether rebalancing runs are carried out."""
    return False


@pytest.fixture
def settings(valkey: ValkeyServer, tmp_path: Path) -> Settings:
    namespace = f"p{os.getpid()}x{next(_numbers)}"
    return Settings(redis_url=valkey.url, namespace=namespace, data_dir=tmp_path)


@pytest.fixture
def bridge(settings: Settings, steps: bool) -> Iterator[Bridge]:
    """The stores, filled."""
    with Bridge(settings, steps=steps) as made:
        made.ask(fill)
        yield made


@pytest.fixture(scope="session")
def app(valkey: ValkeyServer) -> Flask:
    """One for all tests, since it keeps its templates: each puts its own stores behind it. Do not change it."""
    return create_app(Bridge(Settings(redis_url=valkey.url), steps=False))


@pytest.fixture
def page(app: Flask, bridge: Bridge) -> Page:
    """The page, with an admin signed in."""
    app.extensions.update(bridge=bridge, readings=Readings())
    app.secret_key = None  # it is read from Redis
    return Page(app, bridge, "root")
