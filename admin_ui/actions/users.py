"""Acts on the users of the page: make one, change what they may do, let them in once, disable and enable."""

from __future__ import annotations

from typing import Final, cast

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Field, Proposal, act
from admin_ui.bridge import Stores
from fairlane.accounts.users import ROLES, User, UserRole
from fairlane.errors import IllegalTransition

ROLE_CHOICES: Final = tuple((role, role) for role in ROLES)
ADDRESS: Final = "This address lets them in once, within ten minutes. It is shown this once; give it to nobody else."
TENANTS_HELP: Final = "Names with commas between them. Empty: all. An admin is there for all."


@act("user.create", role="admin")
class CreateUser(Act):
    """Makes a user, and an address that lets them in once."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        name = asked.values.get("name", "").strip()
        return Proposal(
            title="New user",
            button="Create",
            target=f"user {name}" if name else "a new user",
            tenant=None,
            back=url_for("users.index"),
            after=_wanted(asked) if name else {},
            tells=("You get an address that lets them in once. They choose a password on the page.",),
            fields=(Field("name", "Name", help="Letters, digits and . _ @ -", required=True), *_fields("viewer", "")),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        user = await stores.users.create(asked.values.get("name", "").strip(), *_rights(asked))
        return await _link(stores, user.name, f"Created the {user.role} {user.name}. {ADDRESS}")


@act("user.set", role="admin")
class SetUser(Act):
    """Changes a user's role and tenants."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        user = await _other(stores, asked)
        return Proposal(
            title=f"Change what {user.name} may do",
            button="Change",
            target=f"user {user.name}",
            tenant=None,
            back=url_for("users.index"),
            before=_told(user.role, user.tenants),
            after=_wanted(asked) if asked.values else {},
            tells=("It holds from their next click on.",),
            fields=_fields(user.role, ", ".join(sorted(user.tenants or ()))),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        user = await stores.users.set(asked.param("user"), *_rights(asked))
        return Done(f"{user.name} is a {user.role} now.", after=_told(user.role, user.tenants))


@act("user.login", role="admin")
class LetIn(Act):
    """Makes an address that lets a user in once."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        user = await stores.users.user(asked.param("user"))
        return Proposal(
            title=f"Let {user.name} in without a password",
            button="Make the address",
            target=f"user {user.name}",
            tenant=None,
            back=url_for("users.index"),
            tells=(
                f"Whoever opens it first is signed in as {user.name}. It works once, within ten minutes.",
                "They can choose a new password then, without knowing the old one.",
            ),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        return await _link(stores, asked.param("user"), ADDRESS)


@act("user.disable", role="admin")
class DisableUser(Act):
    """Lets a user in no more."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        user = await _other(stores, asked)
        tells = ("They are signed out everywhere within a second, and cannot come back until they are enabled.",)
        return _switch(user, f"Disable {user.name}", "Disable", tells, disabled=True)

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        user = await stores.users.disable(asked.param("user"))
        return Done(f"{user.name} is disabled.")


@act("user.enable", role="admin")
class EnableUser(Act):
    """Lets a disabled user in again."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        user = await stores.users.user(asked.param("user"))
        tells = ("They can sign in again, with the password that they had.",)
        return _switch(user, f"Enable {user.name}", "Enable", tells, disabled=False)

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        user = await stores.users.enable(asked.param("user"))
        return Done(f"{user.name} is enabled.")


async def _other(stores: Stores, asked: Asked) -> User:
    """Whoever changed themselves could leave nobody who may change them back."""
    user = await stores.users.user(asked.param("user"))
    if user.name == asked.viewer.name:
        raise IllegalTransition("You cannot do this to yourself. Another admin can, or `fairlane users`.")
    return user


async def _link(stores: Stores, name: str, words: str) -> Done:
    secret = await stores.users.allow_once(name)
    return Done(words, shown=url_for("login.once", secret=secret, _external=True))


def _switch(user: User, title: str, button: str, tells: tuple[str, ...], *, disabled: bool) -> Proposal:
    state = {True: "disabled", False: "active"}
    return Proposal(
        title=title,
        button=button,
        target=f"user {user.name}",
        tenant=None,
        back=url_for("users.index"),
        before={"state": state[user.disabled]},
        after={"state": state[disabled]},
        tells=tells,
    )


def _fields(role: str, tenants: str) -> tuple[Field, ...]:
    return (
        Field("role", "Role", "select", role, ROLE_CHOICES),
        Field("tenants", "Tenants", value=tenants, help=TENANTS_HELP),
    )


def _rights(asked: Asked) -> tuple[UserRole, frozenset[str] | None]:
    """The role and the tenants that were filled in; `Users` checks them."""
    names = frozenset(name.strip() for name in asked.values.get("tenants", "").split(",") if name.strip())
    return cast(UserRole, asked.values.get("role", "viewer")), names or None


def _wanted(asked: Asked) -> dict[str, object]:
    return _told(*_rights(asked))


def _told(role: str, tenants: frozenset[str] | None) -> dict[str, object]:
    return {"role": role, "tenants": "all" if tenants is None else ", ".join(sorted(tenants))}
