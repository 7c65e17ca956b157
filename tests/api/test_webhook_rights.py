"""With keys: whose webhooks one may steer."""

from __future__ import annotations

import httpx

from fairlane.accounts import Accounts
from tests.api.door import refused
from tests.api.keyed import USER, Rights, accounts, http, rights, settings
from tests.api.webhooks import DELIVERIES, ENDPOINTS, register, send_test

__all__ = ["accounts", "http", "rights", "settings"]  # where pytest looks for them


async def test_without_a_key_there_are_none(http: httpx.AsyncClient) -> None:
    for path in (ENDPOINTS, f"{ENDPOINTS}/default/secret", DELIVERIES):
        refused(await http.get(path), 401, "invalid_key")
    refused(await http.post(ENDPOINTS, content=b"{"), 401, "invalid_key")


async def test_an_operator_acts_for_the_tenant_that_it_names_and_nobody_else_does(
    http: httpx.AsyncClient, rights: Rights
) -> None:
    ann, bob = await rights.make("ann"), await rights.make("bob")
    operator = await rights.make("ops", role="operator")
    http.headers.update(operator | {"x-fairlane-tenant": "ann"})
    made = await register(http)
    assert made["tenant"] == "ann"
    sent = await send_test(http, made["id"])
    secret = {"secret": made.pop("secret")}
    assert (await http.get(f"{DELIVERIES}/{sent['id']}")).status_code == 200
    del http.headers["x-fairlane-tenant"]
    refused(await http.get(f"{ENDPOINTS}/{made['id']}", headers=operator), 404, "not_found")
    assert (await http.get(f"{ENDPOINTS}/{made['id']}", headers=ann)).json() == made
    assert (await http.get(f"{ENDPOINTS}/{made['id']}/secret", headers=ann)).json().items() >= secret.items()
    as_ann = bob | {"x-fairlane-tenant": "ann"}
    for path in (ENDPOINTS, f"{ENDPOINTS}/{made['id']}/secret", DELIVERIES, f"{DELIVERIES}/{sent['id']}"):
        refused(await http.get(path, headers=as_ann), 403, "tenant_forbidden")
    refused(await http.delete(f"{ENDPOINTS}/{made['id']}", headers=as_ann), 403, "tenant_forbidden")


async def test_a_gateways_end_users_have_their_own(http: httpx.AsyncClient, rights: Rights) -> None:
    gateway = await rights.make("chat", role="gateway")
    http.headers.update(gateway)
    http.headers[USER] = "eve"
    assert (await register(http))["tenant"] == "eve"
    http.headers[USER] = "mallory"
    assert (await http.get(ENDPOINTS)).json()["data"] == []


async def test_a_disabled_tenant_or_a_revoked_key_is_refused(
    http: httpx.AsyncClient, rights: Rights, accounts: Accounts
) -> None:
    ann, bob = await rights.make("ann"), await rights.make("bob")
    await accounts.disable("ann")
    await accounts.revoke(rights.secrets["bob"][3:13])
    for who in (ann, bob):
        refused(await http.post(ENDPOINTS, json={"url": "https://example.com/"}, headers=who), 401, "invalid_key")
        refused(await http.get(DELIVERIES, headers=who), 401, "invalid_key")
