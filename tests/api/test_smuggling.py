"""Headers that try to be somebody else, or two at once: a clear refusal, never a fault of ours."""

from __future__ import annotations

import httpx
import pytest

from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.settings import Settings
from producer.api.app import create_app
from tests.api.door import JOB, Served, read_answer, refused, serving
from tests.api.keyed import USER, Rights, accounts, http, rights, settings

__all__ = ["accounts", "http", "rights", "settings"]  # where pytest looks for them

ODD = [
    "bob",
    " bob ",
    "ann, bob",
    "ann bob",
    "ann\tbob",
    "ann;bob",
    "Ann",
    "ann\x0b",
    "ann\x1f",
    "ann\xa0",
    "%61nn",
    "",
]
ODD += ["ånn", "a" * 20_000, "ann\0", "ann\x85", '"ann"', "..", "-"]


async def test_no_spelling_of_another_tenant_or_tier_gets_through(http: httpx.AsyncClient, rights: Rights) -> None:
    ann = await rights.make("ann", tiers=["default"])
    for value in ODD:
        for encoding in ("latin-1", "utf-8", "utf-16-le"):
            raw = value.encode(encoding)
            for name, allowed in ((b"x-fairlane-tenant", (400, 403)), (b"x-fairlane-tier", (400, 403))):
                headers = [(b"authorization", ann["authorization"].encode()), (name, raw)]
                response = await http.post("/v1/jobs", json=JOB, headers=headers)
                fine = encoding != "utf-16-le" and name == b"x-fairlane-tenant" and value.strip(" \t") == "ann"
                assert response.status_code in ((202,) if fine else allowed), (name, raw, response.text)
            odd_user = [(b"authorization", ann["authorization"].encode()), (USER.encode(), raw)]
            assert (await http.post("/v1/jobs", json=JOB, headers=odd_user)).status_code in (400, 403), raw


async def test_no_spelling_of_a_key_is_a_fault_of_ours(http: httpx.AsyncClient, rights: Rights) -> None:
    secret = (await rights.make("ann"))["authorization"]
    for value in [
        *ODD,
        f"{secret}\0",
        f"\0{secret}",
        f"{secret}\xa0",
        secret.replace(" ", "\t"),
        secret.replace("-", "\u2010"),
    ]:
        for encoding in ("latin-1", "utf-8", "utf-16-le"):
            for start in (b"", b"Bearer "):
                raw = start + value.encode(encoding, "replace")
                response = await http.get("/v1/jobs", headers={b"authorization": raw})  # pyright: ignore[reportArgumentType]
                assert response.status_code == 401, raw


@pytest.mark.parametrize("name", ["authorization", "x-fairlane-tenant", "x-fairlane-tier", "idempotency-key", USER])
async def test_a_header_that_decides_who_it_is_comes_once(
    http: httpx.AsyncClient, rights: Rights, queue: Queue, pool: Pool, name: str
) -> None:
    ann, ops = await rights.make("ann"), await rights.make("ops", role="operator")
    values = {"authorization": (ann["authorization"], ops["authorization"]), "x-fairlane-tier": ("flex", "priority")}
    first, second = values.get(name, ("ops", "ann"))
    for one, other in ((first, second), (second, first), (first, first)):
        headers = [] if name == "authorization" else [("authorization", ops["authorization"])]
        response = await http.post("/v1/jobs", json=JOB, headers=[*headers, (name, one), (name.title(), other)])
        assert refused(response, 400, "invalid_request")["param"] == name
    assert (await queue.inspect.load(pool)).tiers[0].waiting == 0


async def test_on_the_wire_too_it_is_a_clear_refusal(settings: Settings, rights: Rights, pool: Pool) -> None:
    ann = (await rights.make("ann"))["authorization"]
    heads = {
        f"authorization: {ann}\r\nauthorization: {ann}": 400,
        f"authorization: {ann}\r\nAuthorization : {ann}": 400,
        f"authorization: {ann}\r\nx-fairlane-tenant: bob": 403,
        f"authorization: {ann}\r\nx-fairlane-tenant: ann\r\nX-Fairlane-Tenant: bob": 400,
        f"authorization: {ann}\r\nx-fairlane-tenant: a\0nn": 400,
        f"authorization: {ann}\r\nx_fairlane_tenant: bob": 200,  # no header of ours, whatever others make of it
        f"authorization:\t{ann} \t": 200,
        f"authorization: Bearer {'x' * 60_000}": 401,
        f"authorization: Bearer {'x' * 300_000}": 431,
        f"authorization: {ann}\r\n x-fairlane-tenant: bob": 400,  # a folded line
    }
    async with serving(create_app(settings), settings.drain_s) as door:
        for head, status in heads.items():
            assert await answered(door, head) == status, head[:200]


async def answered(door: Served, head: str) -> int:
    reader, writer = await door.connect()
    writer.write(f"GET /v1/jobs HTTP/1.1\r\nhost: d\r\n{head}\r\n\r\n".encode())
    try:
        return (await read_answer(reader)).status
    finally:
        writer.close()
