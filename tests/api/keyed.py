"""A front door that wants keys, and tenants that have some; for tests that import its fixtures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from fairlane.accounts import Accounts
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from tests.servers import ValkeyServer

USER = "x-end-user"


@pytest.fixture
def settings(valkey: ValkeyServer, namespace: str) -> Settings:
    return Settings(redis_url=valkey.url, namespace=namespace, auth="keys", trusted_tenant_header="X-End-User")


@pytest.fixture
def accounts(queue: Queue) -> Accounts:
    return Accounts(queue)


@dataclass
class Rights:
    """Secrets by name."""

    accounts: Accounts
    secrets: dict[str, str] = field(default_factory=dict)

    async def make(self, tenant: str, name: str = "", **key: Any) -> dict[str, str]:
        """A key of a tenant, as the header that it is sent in."""
        if await self.accounts.find(tenant) is None:
            await self.accounts.create_tenant(tenant)
        _, self.secrets[name or tenant] = await self.accounts.create_key(tenant, **key)
        return self.header(name or tenant)

    def header(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secrets[name]}"}


@pytest.fixture
def rights(accounts: Accounts) -> Rights:
    return Rights(accounts)


@pytest.fixture
async def http(http: httpx.AsyncClient) -> httpx.AsyncClient:
    """Nobody's."""
    http.headers.pop("authorization")
    return http
