"""Old and new versions of Fairlane never work on the same data unknowingly."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from types import ModuleType
from typing import TypeVar

import pytest

from fairlane.errors import SchemaMismatch
from fairlane.queue import keys
from fairlane.queue.connection import Client, connect
from fairlane.queue.schema import CURRENT, Schema, ensure_schema, stored_schema
from tests.servers import Cluster, ValkeyServer

T = TypeVar("T")


@pytest.fixture(scope="module", params=[ValkeyServer, Cluster])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with request.param() as server:
        yield server.url


def run(url: str, act: Callable[[Client], Awaitable[T]]) -> T:
    async def main() -> T:
        client = connect(url)
        try:
            await client.delete(keys.schema("fl"))
            return await act(client)
        finally:
            await client.aclose()

    return asyncio.run(main())


def test_an_empty_store_gets_the_current_schema(url: str) -> None:
    async def act(client: Client) -> list[Schema | None]:
        before = await stored_schema(client, "fl")
        await ensure_schema(client, "fl")
        await ensure_schema(client, "fl")
        return [before, await stored_schema(client, "fl")]

    assert run(url, act) == [None, CURRENT]


@pytest.mark.parametrize(
    "fields", [{"schema": 2, "scripts": 1}, {"schema": 1, "scripts": 2}, {"schema": 0, "scripts": 0}]
)
def test_an_unknown_schema_is_refused_and_left_alone(url: str, fields: dict[str, int]) -> None:
    async def act(client: Client) -> Schema | None:
        for name, version in fields.items():
            await client.hset(keys.schema("fl"), name, str(version))
        with pytest.raises(SchemaMismatch, match=rf"{Schema(**fields)}.*{CURRENT}"):
            await ensure_schema(client, "fl")
        return await stored_schema(client, "fl")

    assert run(url, act) == Schema(**fields)


def test_of_versions_that_start_at_once_one_wins_whole(url: str) -> None:
    async def act(client: Client) -> tuple[Schema | None, list[BaseException | None]]:
        starts = (version(n).ensure_schema(client, "fl") for n in range(1, 21))
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        return await stored_schema(client, "fl"), outcomes

    stored, outcomes = run(url, act)
    assert stored is not None
    assert stored.schema == stored.scripts
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, SchemaMismatch) for outcome in outcomes) == 19


def version(number: int) -> ModuleType:
    """The module as another version of Fairlane has it."""
    spec = importlib.util.find_spec("fairlane.queue.schema")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["CURRENT"] = module.Schema(number, number)
    return module
