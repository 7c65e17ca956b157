"""`fairlane users`: who may come in to the admin page, from a terminal."""

from __future__ import annotations

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlane.accounts.users import SignIn, User, Users
from fairlane.cli import app
from tests.servers import ValkeyServer
from tests.unit.commands import REFUSED, USAGE, on, said, told

pytestmark = pytest.mark.usefixtures("server")
GOOD = "a long enough password"


def user(server: ValkeyServer, name: str) -> User:
    return on(server, lambda queue: Users(queue).user(name))


def piped(*words: str, text: str) -> str:
    result = CliRunner().invoke(app, words, input=text)
    assert result.exit_code == 0, result.output
    return result.output


def tried(server: ValkeyServer, name: str, password: str) -> bool:
    came: SignIn = on(server, lambda queue: Users(queue).sign_in(name, password, "::1"))
    return came.token is not None


def test_a_user_is_made_listed_changed_and_disabled(server: ValkeyServer) -> None:
    assert "Created the operator olga for the tenant ann." in said(
        "users", "create", "olga", "--role", "operator", "--tenant", "ann"
    )
    assert re.search(r"olga +operator +ann +no +- +active", said("users", "list"))
    assert "olga is an operator for the tenants ann, bob." in said(
        "users", "set", "olga", *("--tenant", "ann", "--tenant", "bob")
    )
    assert "olga is a viewer for all tenants." in said("users", "set", "olga", "--role", "viewer", "--tenant", "all")
    assert "disabled" in said("users", "disable", "olga")
    assert user(server, "olga").disabled
    said("users", "enable", "olga")
    (shown,) = told("users", "list")["users"]
    assert (shown["name"], shown["role"], shown["tenants"], shown["disabled"]) == ("olga", "viewer", None, False)


def test_what_is_not_named_stays(server: ValkeyServer) -> None:
    said("users", "create", "olga", "--role", "operator", "--tenant", "ann")
    said("users", "set", "olga", "--tenant", "bob")
    said("users", "set", "olga", "--role", "viewer")
    assert (user(server, "olga").role, user(server, "olga").tenants) == ("viewer", {"bob"})


def test_a_password_is_read_and_not_shown(server: ValkeyServer) -> None:
    output = piped("users", "create", "olga", "--password", text=f"{GOOD}\n")
    output += piped("users", "password", "olga", text="another of this kind\n")
    assert GOOD not in output
    assert not tried(server, "olga", GOOD)
    assert tried(server, "olga", "another of this kind")


def test_a_login_is_an_address_that_works_once(server: ValkeyServer) -> None:
    said("users", "create", "olga")
    printed = said("users", "login", "olga", "--url", "https://queue.example/fairlane/").strip()
    match = re.fullmatch(r"https://queue\.example/fairlane/login/once\?secret=([\w-]+)", printed)
    assert match
    secret = match[1]
    came: list[Any] = [on(server, lambda queue: Users(queue).enter_once(secret, "::1")) for _ in range(2)]
    assert (came[0][0], came[1]) == ("olga", None)


def test_the_same_commands_stand_under_admin(server: ValkeyServer) -> None:
    said("admin", "users", "create", "olga")
    assert "olga" in said("admin", "users", "list")


def test_what_cannot_be_is_refused_in_words(server: ValkeyServer) -> None:
    assert "viewer, operator, admin" in said("users", "create", "olga", "--role", "boss", exit_code=USAGE)
    assert "no user" in said("users", "disable", "olga", exit_code=REFUSED)
    said("users", "create", "olga")
    assert "already" in said("users", "create", "olga", exit_code=REFUSED)
