"""Which schema the data in Redis has, and whether this version of Fairlane knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairlane.errors import SchemaMismatch
from fairlane.queue import keys
from fairlane.queue.connection import Client


@dataclass(frozen=True)
class Schema:
    """The version of the data's layout, and of the scripts that change it."""

    schema: int
    scripts: int

    def __str__(self) -> str:
        return f"schema {self.schema}, scripts {self.scripts}"


CURRENT: Final = Schema(schema=1, scripts=1)


async def stored_schema(client: Client, namespace: str) -> Schema | None:
    """What the data was written with; None if there is no data. A missing version counts as 0."""
    return _parse(await client.hgetall(keys.schema(namespace)))


async def ensure_schema(client: Client, namespace: str) -> None:
    """Marks an empty Redis with the current schema. Raises `SchemaMismatch` if it holds data of any other."""
    stored = await stored_schema(client, namespace)
    if stored is None:
        await mark(client, namespace)
        stored = await stored_schema(client, namespace)
    if stored != CURRENT:
        raise SchemaMismatch(mismatch(stored))


async def mark(client: Client, namespace: str) -> None:
    """Writes the current schema where none is marked.

    A full Redis takes no write, and whoever starts then is to help drain it: so it is done only if it must be, or to
    see whether Redis takes writes.
    """
    key = keys.schema(namespace)
    # One transaction: two versions that start at once must not each write one of the two fields. It does not read,
    # since redis-py 8.1 fails on HGETALL in a Cluster's transaction; the fields never change, so reading later is safe.
    async with client.pipeline(transaction=True) as transaction:
        transaction.hsetnx(key, "schema", str(CURRENT.schema))
        transaction.hsetnx(key, "scripts", str(CURRENT.scripts))
        await transaction.execute()


def mismatch(stored: Schema | None) -> str:
    """What to tell someone whose data is of another schema than ours."""
    return (
        f"This Redis holds data of {stored}; this version of Fairlane knows {CURRENT}. "
        "Use the version that wrote it, or another namespace."
    )


def _parse(fields: dict[bytes | str, bytes | str]) -> Schema | None:
    versions = {_text(name): int(value) for name, value in fields.items()}
    return Schema(versions.get("schema", 0), versions.get("scripts", 0)) if versions else None


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()
