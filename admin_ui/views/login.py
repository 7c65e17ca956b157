"""Signing in, with a password or by an address that does it once; what viewers see of themselves; and signing out."""

from __future__ import annotations

from flask import Blueprint, flash, make_response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from admin_ui import access
from admin_ui.access import anyone, current, needs
from admin_ui.bridge import Stores
from admin_ui.reading import ask
from fairlane.errors import FairlaneError, InvalidRequest, RateLimited

page = Blueprint("login", __name__)
WRONG = "This name and this password do not belong together."
USED = "This address was used already, or it is older than ten minutes. Ask for another."
TYPED_MOST = 256  # characters of a name that are looked at


@page.get("/login")
@anyone
def form() -> Response:
    """Asks for a name and a password."""
    return _form("", None, 200)


@page.post("/login")
@anyone
def enter() -> Response:
    """Signs in, and goes to the page that was asked for. The audit tells of tries with the name of a user."""
    name, password = request.form.get("name", "").strip()[:TYPED_MOST], request.form.get("password", "")
    where = access.address()
    try:
        came = ask(lambda stores: stores.users.sign_in(name, password, where))
    except RateLimited as error:
        answer = _form(name, error.public, error.status)
        answer.headers["Retry-After"] = str(round(error.retry_after or 1))
        return answer
    if came.known:
        _note(name, "login.password", "done" if came.token else "wrong_password")
    if came.token is None:
        return _form(name, WRONG, 403)
    access.sign_in(came.token)
    return redirect(access.inside(request.form.get("next")), 303)


@page.get("/login/once")
@anyone
def once() -> str:
    """A button: whatever looks at addresses that it finds in messages signs nobody in."""
    return render_template("once.html", secret=request.args.get("secret", ""), fault=None)


@page.post("/login/once")
@anyone
def enter_once() -> Response:
    """Signs in by a secret that can be used once."""
    secret, where = request.form.get("secret", ""), access.address()
    came = ask(lambda stores: stores.users.enter_once(secret, where))
    if came is None:
        return make_response(render_template("once.html", secret="", fault=USED), 403)
    name, token = came
    access.sign_in(token)
    _note(name, "login.once", "done")
    return redirect(access.inside(None), 303)


@page.post("/logout")
@anyone
def logout() -> Response:
    """Ends the sitting, for all who have its cookie."""
    if (token := access.sign_out()) is not None:
        ask(lambda stores: stores.users.sittings.end(token))
    return redirect(url_for("login.form"), 303)


@page.get("/me")
@needs("viewer")
def me() -> Response:
    """Who is signed in, what they may do, and a form for another password."""
    return _me(None)


@page.post("/me/password")
@needs("viewer")
def password() -> Response:
    """Changes the viewer's own password, and ends their sittings everywhere else.

    The old one is asked for, unless they came in by a one-time login: then they may not know it.
    """
    try:
        token = ask(_change)
    except FairlaneError as error:
        if error.status >= 500:
            raise
        return _me(error)
    access.sign_in(token)
    flash("Your password is changed. Wherever else you were signed in, you are not any more.")
    return redirect(url_for("login.me"), 303)


def _form(name: str, fault: str | None, status: int) -> Response:
    asked = request.values.get("next", "")
    return make_response(render_template("login.html", name=name, next=asked, fault=fault), status)


def _note(name: str, act: str, outcome: str) -> None:
    where = access.address()

    async def write(stores: Stores) -> None:
        user = await stores.users.user(name)
        entry = await stores.audit.begin(who=name, role=user.role, address=where, act=act, target=name)
        await stores.audit.end(entry, outcome=outcome)

    ask(write)


def _me(error: FairlaneError | None) -> Response:
    found = ask(lambda stores: stores.users.user(current().name))
    shown = render_template("me.html", user=found, sitting=access.sitting(), error=error)
    return make_response(shown, error.status if error else 200)


async def _change(stores: Stores) -> str:
    """Returns the token of the new sitting."""
    viewer, form, where = current(), request.form, access.address()
    if form.get("again") != (chosen := form.get("password", "")):
        raise InvalidRequest("These two are not the same.", param="again")
    if access.sitting().by == "password":
        came = await stores.users.sign_in(viewer.name, form.get("old", ""), where)
        if came.token is None:
            raise InvalidRequest("This is not your password.", param="old")
        await stores.users.sittings.end(came.token)
    entry = await stores.audit.begin(
        who=viewer.name, role=viewer.role, address=where, act="login.change", target=viewer.name
    )
    try:
        await stores.users.set_password(viewer.name, chosen)
    except FairlaneError as error:
        await stores.audit.end(entry, outcome=error.code, words=error.public)
        raise
    await stores.audit.end(entry, outcome="done")
    token = (await stores.users.sign_in(viewer.name, chosen, where)).token
    if token is None:
        raise InvalidRequest("Your password was changed twice at once. Sign in with the last one.")
    return token
