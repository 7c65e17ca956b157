"""Who may come in to the page."""

from __future__ import annotations

from typing import Final

from flask import Blueprint, render_template, request

from admin_ui.access import current, needs
from admin_ui.reading import cached

page = Blueprint("users", __name__)
PAGE: Final = 100


@page.get("/users")
@needs("admin")
def index() -> str:
    """All users by name."""
    after = request.args.get("after", "")
    users, following = cached(("users", after), lambda stores: stores.users.users(after, PAGE))
    return render_template("users.html", users=users, after=after, following=following, me=current().name)
