"""With keys: who may come in, as whom, with which tiers and pools; and headers that try to be somebody else."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from fairlane.accounts import Accounts, Claim
from fairlane.errors import StoreUnavailable
from fairlane.model import Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.settings import Settings
from producer.api.app import create_app
from tests.api.door import CHAT, JOB, refused, submit
from tests.api.keyed import USER, Rights, accounts, http, rights, settings

__all__ = ["accounts", "http", "rights", "settings"]  # where pytest looks for them
REVOKED_S = 1.0
NOBODY = f"fl-0123456789-{'0' * 40}"  # a key that nobody has


@pytest.fixture
async def doors(settings: Settings, pool: Pool) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients of two front doors, each with a connection to Redis of its own."""
    async with AsyncExitStack() as stack:
        clients: list[httpx.AsyncClient] = []
        for _ in range(2):
            app = create_app(settings)
            await stack.enter_async_context(app.router.lifespan_context(app))
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            clients.append(await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://d")))
        yield clients


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_without_a_key_nobody_comes_in(http: httpx.AsyncClient, rights: Rights) -> None:
    ann = (await rights.make("ann"))["authorization"]
    wrong = ["", "Bearer", "Bearer ", "Bearer ann", f"Basic {ann[7:]}", ann[7:], f"{ann}x", f"{ann}, {ann}", f"{ann} x"]
    for path in ("/v1/models", "/v1/models/llama", "/v1/jobs", "/v1/jobs/job_x"):
        assert refused(await http.get(path), 401, "invalid_key")["type"] == "authentication_error"
        for value in wrong:
            response = await http.get(path, headers={"authorization": value})
            refused(response, 401, "invalid_key")
            assert response.headers["www-authenticate"] == "Bearer"
    for path in ("/v1/jobs", "/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        refused(await http.post(path, json=CHAT), 401, "invalid_key")
    assert (await http.get("/health/live")).status_code == 200


async def test_a_key_is_its_tenant(http: httpx.AsyncClient, rights: Rights) -> None:
    http.headers.update(await rights.make("ann"))
    assert (await submit(http))["tenant"] == "ann"
    for value in (f"bearer {rights.secrets['ann']}", f"BEARER  {rights.secrets['ann']}"):
        assert (await http.get("/v1/jobs", headers={"authorization": value})).status_code == 200


@pytest.mark.parametrize("how", ["revoke", "disable"])
async def test_within_a_second_no_front_door_takes_a_revoked_key(
    doors: list[httpx.AsyncClient], rights: Rights, accounts: Accounts, how: str
) -> None:
    ann = await rights.make("ann")
    for door in doors:
        assert (await door.get("/v1/models", headers=ann)).status_code == 200
    began = time.monotonic()
    await (accounts.revoke(rights.secrets["ann"][3:13]) if how == "revoke" else accounts.disable("ann"))
    for door in doors:
        while (await door.get("/v1/models", headers=ann)).status_code == 200:
            assert time.monotonic() - began < REVOKED_S
            await asyncio.sleep(0.02)
        refused(await door.get("/v1/models", headers=ann), 401, "invalid_key")


async def test_a_key_that_was_just_made_or_rotated_works_at_once(
    doors: list[httpx.AsyncClient], rights: Rights, accounts: Accounts
) -> None:
    old = await rights.make("ann")
    _, secret = await accounts.rotate(rights.secrets["ann"][3:13], overlap_s=60)
    for door in doors:
        for header in (old, {"authorization": f"Bearer {secret}"}):
            assert (await door.get("/v1/models", headers=header)).status_code == 200


async def test_requests_with_one_key_share_one_look_at_it(
    http: httpx.AsyncClient, rights: Rights, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.headers.update(await rights.make("ann"))
    looks: list[str] = []
    look = state.accounts.holder

    async def counted(claim: Claim, user: str | None) -> object:
        looks.append(claim.prefix)
        return await look(claim, user)

    monkeypatch.setattr(state.accounts, "holder", counted)
    answers = await asyncio.gather(*(http.get("/v1/models") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(looks) == 1
    for _ in range(20):
        refused(await http.get("/v1/models", headers={"authorization": f"Bearer {NOBODY}"}), 401, "invalid_key")
    assert len(looks) == 2


async def test_nothing_is_kept_of_what_cannot_be_a_key_or_a_user(http: httpx.AsyncClient, rights: Rights) -> None:
    ann = await rights.make("chat", role="gateway")
    await http.get("/v1/models", headers=ann)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(40):
        long = f"{n}".rjust(60_000, "k")
        refused(await http.get("/v1/models", headers={"authorization": f"Bearer {long}"}), 401, "invalid_key")
        refused(await http.get("/v1/models", headers=ann | {USER: long}), 400, "invalid_request")
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1_000_000


async def test_while_redis_is_away_nobody_is_called_a_stranger(
    http: httpx.AsyncClient, rights: Rights, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.headers.update(await rights.make("ann"))

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(state.queue.store, "run", away)
        refused(await http.get("/v1/models"), 503, "store_unavailable")
        refused(await http.post("/v1/jobs", json=JOB), 503, "store_unavailable")
    assert (await http.get("/v1/models")).status_code == 200


# --- what a key may do ------------------------------------------------------------------------------------------------


async def test_a_tier_that_is_not_for_a_key_is_forbidden_and_those_that_are_are_named(
    http: httpx.AsyncClient, rights: Rights
) -> None:
    http.headers.update(await rights.make("ann", tiers=["flex", "batch"]))
    assert (await submit(http, tier="flex"))["tier"] == "flex"
    for response in (
        await http.post("/v1/jobs", json=JOB | {"tier": "priority"}),
        await http.post("/v1/jobs", json=JOB, headers={"x-fairlane-tier": "priority"}),
        await http.post("/v1/chat/completions", json=CHAT | {"service_tier": "priority"}),
        await http.post("/v1/chat/completions", json=CHAT),  # the default
    ):
        error = refused(response, 403, "tier_forbidden")
        assert (error["type"], error["param"]) == ("permission_error", "tier")
        assert "flex, batch" in error["message"]
    refused(await http.post("/v1/jobs", json=JOB | {"tier": "gold"}), 400, "unknown_tier")


async def test_a_pool_that_is_not_for_a_key_is_not_there(http: httpx.AsyncClient, rights: Rights, queue: Queue) -> None:
    for name in ("mistral", "secret/model"):
        await queue.set_backend(await queue.pools.open(name, Policy()), "b1", "add")
    http.headers.update(await rights.make("ann", pools=["llama", "mistral"]))
    assert [model["id"] for model in (await http.get("/v1/models")).json()["data"]] == ["llama", "mistral"]
    assert (await http.get("/v1/models/llama")).json()["id"] == "llama"
    for name in ("secret/model", "no/model"):
        refused(await http.get(f"/v1/models/{name}"), 404, "model_not_found")
        messages = {
            refused(await http.post(path, json=body | {"model": name}), 404, "model_not_found")["message"]
            for path, body in (("/v1/chat/completions", CHAT), ("/v1/jobs", JOB))
        }
        (message,) = messages
        assert message.endswith(": llama, mistral.")
    (answer,) = (await http.post("/v1/jobs", json={"jobs": [JOB | {"model": "secret/model"}]})).json()["jobs"]
    assert answer["error"]["code"] == "model_not_found"


async def test_anothers_job_is_not_there_whatever_is_done_to_it(http: httpx.AsyncClient, rights: Rights) -> None:
    ann, bob = await rights.make("ann"), await rights.make("bob")
    at = f"/v1/jobs/{(await http.post('/v1/jobs', json=JOB, headers=ann)).json()['id']}"
    never = refused(await http.get("/v1/jobs/job_nothing", headers=bob), 404, "not_found")
    for method, path in (("GET", at), ("DELETE", at), ("POST", f"{at}/requeue"), ("GET", f"{at}/explain")):
        assert refused(await http.request(method, path, headers=bob), 404, "not_found") == never
    assert (await http.get("/v1/jobs", headers=bob)).json()["data"] == []
    assert (await http.get(at, headers=ann)).status_code == 200


# --- for others -------------------------------------------------------------------------------------------------------


async def test_an_operator_acts_for_whom_it_names(http: httpx.AsyncClient, rights: Rights) -> None:
    ops = await rights.make("ops", role="operator")
    ann = await rights.make("ann")
    for_ann = ops | {"x-fairlane-tenant": "ann"}
    first = await http.post("/v1/jobs", json=JOB, headers=for_ann)
    second = await http.post("/v1/jobs", json=JOB | {"tenant": "ann"}, headers=ops)
    many = await http.post("/v1/jobs", json={"jobs": [JOB | {"tenant": "ann"}, JOB | {"tenant": "zoe"}]}, headers=ops)
    assert first.json()["tenant"] == second.json()["tenant"] == "ann"
    assert [job["tenant"] for job in many.json()["jobs"]] == ["ann", "zoe"]
    for headers in (ann, for_ann):
        assert len((await http.get("/v1/jobs", headers=headers)).json()["data"]) == 3
    assert (await http.get("/v1/jobs", headers=ops)).json()["data"] == []
    refused(await http.get("/v1/jobs", headers=ops | {"x-fairlane-tenant": "a b"}), 400, "invalid_request")


async def test_each_person_behind_a_gateway_is_a_tenant(
    http: httpx.AsyncClient, rights: Rights, accounts: Accounts
) -> None:
    chat = await rights.make("chat", role="gateway")
    await accounts.create_tenant("ann")
    for user, tenant in (("zoe", "zoe"), ("max@example.org", "max@example.org"), ("chat", "chat"), (None, "chat")):
        headers = chat | ({USER: user} if user else {})
        job = (await http.post("/v1/jobs", json=JOB, headers=headers)).json()
        assert job["tenant"] == tenant
        assert (await http.get(f"/v1/jobs/{job['id']}", headers=headers)).status_code == 200
        refused(await http.get(f"/v1/jobs/{job['id']}", headers=chat | {USER: "else"}), 404, "not_found")
    refused(await http.post("/v1/jobs", json=JOB, headers=chat | {USER: "ann"}), 403, "tenant_forbidden")
    for name in ("", "a b", "a/b", "x" * 129, "zoë"):
        response = await http.get("/v1/jobs", headers={**chat, USER: name.encode()})  # pyright: ignore[reportArgumentType]
        refused(response, 400, "invalid_request")
    refused(await http.get("/v1/jobs", headers=chat | {"x-fairlane-tenant": "zoe"}), 403, "tenant_forbidden")


async def test_nobody_else_names_an_end_user(http: httpx.AsyncClient, rights: Rights) -> None:
    for role in ("tenant", "operator"):
        key = await rights.make("ann", role, role=role)
        refused(await http.get("/v1/jobs", headers=key | {USER: "zoe"}), 403, "tenant_forbidden")
