"""`fairlane tenants` and `fairlane keys`: tenants with keys and limits, from a terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fairlane.accounts import Accounts, Caller
from fairlane.model import Limits, Policy
from fairlane.queue.engine import Queue
from tests.servers import ValkeyServer
from tests.unit.commands import REFUSED, USAGE, fairlane, llama, on, said, told

SECRET = re.compile(r"fl-([0-9A-Za-z]{10})-[0-9A-Za-z]{32,}")
pytestmark = pytest.mark.usefixtures("server")


def caller(server: ValkeyServer, secret: str) -> Caller:
    return on(server, lambda queue: Accounts(queue).authenticate(secret))


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_secret_is_alone_on_stdout_and_is_never_shown_again(server: ValkeyServer) -> None:
    said("tenants", "create", "ann")
    made = fairlane(
        "keys", "create", "ann", "--tier", "flex", "--pool", "llama", "--expires", "30d", "--label", "laptop"
    )
    secret = made.stdout.strip()
    match = SECRET.fullmatch(secret)
    assert match
    assert "Shown this once" in made.stderr
    assert caller(server, secret) == Caller("ann", "tenant", frozenset({"flex"}), frozenset({"llama"}))
    listed = said("keys", "list")
    assert match[1] in listed
    assert secret not in listed
    assert re.search(r"ann +tenant +flex +llama +laptop +\d+ m?s ago +active, ends in 30 days", listed)
    (key,) = told("keys", "list", "ann")["keys"]
    assert (key["prefix"], key["role"], key["tiers"], key["state"]) == (match[1], "tenant", ["flex"], "active")
    assert secret not in str(key)


def test_a_key_is_rotated_and_revoked_by_its_prefix(server: ValkeyServer) -> None:
    said("tenants", "create", "chat")
    first = told("keys", "create", "chat", "--role", "gateway")
    second = told("keys", "rotate", first["key"]["prefix"], "--overlap", "1h")
    assert second["key"]["role"] == "gateway"
    assert caller(server, first["secret"]) == caller(server, second["secret"])
    assert "rotated, ends in 60 min" in said("keys", "list", "chat")
    assert second["key"]["prefix"] in said("keys", "rotate", first["key"]["prefix"], exit_code=REFUSED)
    assert "of chat is revoked" in said("keys", "revoke", second["key"]["prefix"])
    assert [key["state"] for key in told("keys", "list", "chat")["keys"] if not key["rotated_to"]] == ["revoked"]


def test_a_key_that_was_pasted_whole_is_named_by_its_prefix_and_not_shown(server: ValkeyServer) -> None:
    said("tenants", "create", "ann")
    first = said("keys", "create", "ann").split()[0]
    rotated = said("keys", "rotate", first, "--overlap", "2d")
    assert re.search(r"The old one works until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(2 days\)\.", rotated)
    assert first not in rotated
    second = rotated.split()[0]
    third = said("keys", "rotate", second)
    assert "The old one works no more." in third
    revoked = said("keys", "revoke", third.split()[0])
    assert "is revoked" in revoked
    assert third.split()[0] not in revoked


def test_of_tiers_and_pools_that_are_not_there_one_is_warned() -> None:
    assert said("tenants", "create", "ann").startswith("Created tenant ann.")
    made = fairlane("keys", "create", "ann", "--tier", "gold", "--tier", "flex", "--pool", "none")
    assert SECRET.fullmatch(made.stdout.strip())
    assert "there is no pool none yet (there are: llama)" in made.stderr
    assert "no pool has a tier gold yet (there are: priority, default, flex, batch)" in made.stderr
    assert "Warning" not in fairlane("keys", "create", "ann", "--tier", "flex", "--pool", "llama").stderr
    assert "no tier gold" not in said("tenants", "set", "ann", "tiers=default")
    assert "a tier gold" in said("tenants", "set", "ann", "tiers=gold")


def test_a_tenant_that_is_not_registered_is_told_so() -> None:
    assert "zed is not registered; `fairlane tenants create zed`" in said("tenants", "show", "zed")
    said("tenants", "create", "ann")
    assert "not registered" not in said("tenants", "show", "ann")


def test_what_is_wrong_is_said(server: ValkeyServer) -> None:
    assert "fairlane tenants create bob" in said("keys", "create", "bob", exit_code=REFUSED)
    assert "fairlane tenants create bob" in said("keys", "list", "bob", exit_code=REFUSED)
    assert "no key '0123456789'" in said("keys", "revoke", "0123456789", exit_code=REFUSED)
    said("tenants", "create", "ann")
    secret = said("keys", "create", "ann").split()[0]
    for words in (["keys", "revoke", f"{secret}-"], ["keys", "rotate", f"x{secret}"]):
        refusal = said(*words, exit_code=USAGE)
        assert secret not in refusal
        assert "prefix" in refusal
    for words in (["--role", "root"], ["--expires", "soon"], ["--tier", "No"], ["--expires", "0d"]):
        said("keys", "create", "ann", *words, exit_code=USAGE)
    assert "already" in said("tenants", "create", "ann", exit_code=REFUSED)
    assert told("keys", "list")["keys"][0]["tenant"] == "ann"


# --- tenants ----------------------------------------------------------------------------------------------------------


def limits_of(queue: Queue) -> Any:
    async def read() -> Limits:
        return await queue.inspect.limits(await llama(queue), "ann")

    return read()


def test_a_registered_tenant_has_its_limits_in_every_pool_also_a_later_one(server: ValkeyServer) -> None:
    said("tenants", "create", "ann", "weight=2", "max_inflight=5", "tiers=default,flex")
    assert on(server, limits_of) == Limits(2, 5)
    said("tenants", "set", "ann", "max_inflight=none", "max_waiting=7", "pools=llama")
    assert on(server, limits_of) == Limits(2, None, None, None, 7)
    account = told("tenants", "show", "ann")["account"]
    assert (account["limits"]["max_waiting"], account["tiers"], account["pools"]) == (7, ["default", "flex"], ["llama"])
    said("tenants", "set", "ann", "max_waiting=1", "--pool", "llama")
    assert on(server, limits_of) == Limits(2, None, None, None, 1)
    assert told("tenants", "show", "ann")["account"] == account
    said("tenants", "set", "ann", "weight=3", "tiers=all")
    assert on(server, limits_of) == Limits(3, None, None, None, 7)
    on(server, lambda queue: queue.pools.open("late", Policy()))
    shown = said("tenants", "show", "ann").splitlines()
    assert re.search(r"^ann +3.0 +- +- +- +7 +all +llama +active$", shown[1])
    assert shown[3].split() == ["late", "llama"]


def test_tenants_are_listed_before_those_who_wait(server: ValkeyServer) -> None:
    for name in ("bob", "ann", "carl"):
        said("tenants", "create", name)
    assert "disabled" in said("tenants", "disable", "bob")
    listed = said("tenants", "list").splitlines()
    assert [line.split()[0] for line in listed[1:4]] == ["ann", "bob", "carl"]
    assert listed[2].endswith("disabled")
    assert listed[5].split()[0] == "pool"
    page = told("tenants", "list", "--limit", "2")
    assert ([one["tenant"] for one in page["accounts"]], page["next"]) == (["ann", "bob"], "bob")
    assert "More: --after bob" in said("tenants", "list", "--limit", "2")
    assert [one["tenant"] for one in told("tenants", "list", "--after", "bob")["accounts"]] == ["carl"]
    said("tenants", "enable", "bob")
    assert not told("tenants", "show", "bob")["account"]["disabled"]
    said("tenants", "disable", "nobody", exit_code=REFUSED)


@pytest.mark.parametrize("wrong", ["speed=1", "weight=none", "max_inflight=x", "tiers=", "weight"])
def test_a_wrong_setting_is_named_and_registers_nobody(wrong: str) -> None:
    assert wrong.split("=")[0] in said("tenants", "create", "ann", wrong, exit_code=USAGE)
    assert told("tenants", "list")["accounts"] == []


def test_a_tenant_can_be_registered_before_there_is_a_pool() -> None:
    words = ("--namespace", "empty")
    said("tenants", "create", "ann", "weight=2", *words)
    said("tenants", "set", "ann", "weight=3", *words)
    assert re.search(r"^ann +3.0", said("tenants", "show", "ann", *words).splitlines()[1])
