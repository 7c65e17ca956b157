"""Who looks at the page, and what they may do.

Every view carries its right: `@needs("viewer" | "operator" | "admin")`, or `@anyone`. A view without one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, cast
from urllib.parse import urlsplit

from flask import Flask, current_app, g, redirect, request, session, url_for
from flask_wtf import CSRFProtect  # pyright: ignore[reportMissingTypeStubs]
from werkzeug.exceptions import Forbidden, Unauthorized
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.urls import iri_to_uri
from werkzeug.wrappers import Response

from admin_ui.bridge import Stores
from admin_ui.cookies import Cookies
from admin_ui.headers import add_headers
from admin_ui.hosts import PlainHosts
from admin_ui.reading import ask, cached
from fairlane.accounts.sittings import Sitting, digest_of
from fairlane.accounts.throttle import without_port
from fairlane.accounts.users import ROLES, UserRole
from fairlane.errors import StoreUnavailable

View = TypeVar("View", bound=Callable[..., Any])
Right = UserRole | Literal["anyone"]

_READS: Final = frozenset({"GET", "HEAD"})
_REFRESHED: Final = "live"  # the part of a page that is read again and again
_SITTING: Final = "sitting"  # what the cookie holds: the secret name of a sitting
_ELSEWHERE: Final = re.compile(r"^//|[^\x21-\x7e]|\\")  # browsers read a backslash as a slash


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at the page. `tenants` are those that they may see and act on; None: all."""

    name: str
    role: UserRole
    tenants: frozenset[str] | None = None

    def may(self, role: UserRole) -> bool:
        """Whether their role is this one or a higher."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, tenant: str | None) -> bool:
        """Whether this tenant is one of theirs; None: what concerns all."""
        return self.tenants is None or tenant in self.tenants

    @property
    def scope(self) -> tuple[str, ...] | None:
        """`tenants` in order, for the keys of `cached`; None: all."""
        return None if self.tenants is None else tuple(sorted(self.tenants))


def needs(role: UserRole) -> Callable[[View], View]:
    """The right that a view asks for. It stands below the route: `@page.get("/jobs")`, then `@needs("viewer")`."""

    def mark(view: View) -> View:
        return _marked(view, role)

    return mark


def anyone(view: View) -> View:
    """Marks a view that needs no login."""
    return _marked(view, "anyone")


def right_of(view: Callable[..., Any]) -> Right | None:
    """What a view asks for; None: that was forgotten."""
    return cast("Right | None", getattr(view, "right", None))


def current() -> Viewer:
    """Who looks at the page: in views that need a role, and in what those call."""
    return cast(Viewer, g.viewer)


def viewer() -> Viewer | None:
    """Who looks at the page, if anybody is signed in: for what is also shown to nobody."""
    return cast("Viewer | None", g.get("viewer"))


def sitting() -> Sitting:
    """How and when the viewer came in: in views that need a role."""
    return cast(Sitting, g.sitting)


def address() -> str:
    """Where the request comes from."""
    return without_port(request.remote_addr or "-")[:64]


def sign_in(token: str) -> None:
    """Gives the browser a sitting, and a new token against forged requests."""
    session.clear()
    session[_SITTING] = token


def sign_out() -> str | None:
    """Takes the sitting from the browser, and returns it, for its end in Redis."""
    token = cast("str | None", session.get(_SITTING))
    session.clear()
    g.pop("viewer", None)
    return token


def inside(wanted: str | None) -> str:
    """Where to go after a login: an address of this page, whatever was asked for. (Redirects stay on this host.)"""
    start = f"{request.script_root}/"
    return wanted if wanted and wanted.startswith(start) and not _ELSEWHERE.search(wanted) else start


def protect(app: Flask, *, behind_proxy: int = 0, secret_key: str | None = None) -> None:
    """Rights of views, sittings, tokens against forged requests, cookies, and the headers of every answer.

    Of `behind_proxy` proxies what they say of the address, scheme, host and prefix is believed; of others nothing.
    """
    app.wsgi_app = PlainHosts(app.wsgi_app)
    if behind_proxy:
        app.wsgi_app = ProxyFix(app.wsgi_app, *[behind_proxy] * 5)
    app.secret_key = secret_key
    app.session_interface = Cookies()
    app.config["WTF_CSRF_TIME_LIMIT"] = None  # a token lasts as long as the sitting
    app.before_request(_guard)
    CSRFProtect(app)
    app.after_request(add_headers)
    anyone(app.view_functions["static"])


def _guard() -> Response | None:
    """Before every view: whether this viewer may see it."""
    if request.endpoint is None:
        return None  # there is no such address: Flask says so
    right = right_of(current_app.view_functions[request.endpoint])
    if right is None:
        raise RuntimeError(f"The view {request.endpoint} does not say what it needs.")
    if current_app.secret_key is None and request.endpoint != "static":
        raise StoreUnavailable()
    if right == "anyone":
        return None
    found = _sitting()
    if found is None:
        return _to_login()
    g.sitting, g.viewer = found, (who := Viewer(found.user, found.role, found.tenants))
    if not who.may(right):
        raise Forbidden(f"This needs the role {right}; you are a {who.role}.")
    return None


def _sitting() -> Sitting | None:
    """The sitting that the cookie names. For who only looks it is read once a second, for who acts each time.

    A page that refreshes itself does not keep its viewer signed in.
    """
    token = cast("str | None", session.get(_SITTING))
    if token is None:
        return None
    used_from = None if request.headers.get("HX-Target") == _REFRESHED else address()

    async def read(stores: Stores) -> Sitting | None:
        return await stores.users.sittings.find(token, used_from)

    looks = request.method in _READS
    return cached(("sitting", digest_of(token), used_from), read) if looks else ask(read)


def _to_login() -> Response:
    """A page is shown after the login; a part of one makes the page that asked go there; anything else is refused."""
    if request.headers.get("HX-Request"):
        return Response(status=401, headers={"HX-Redirect": url_for("login.form", next=_asked_on())})
    if request.method in _READS and _is_page():
        back = iri_to_uri(request.script_root + request.full_path.removesuffix("?"))
        return redirect(url_for("login.form", next=inside(back)), 303)
    raise Unauthorized("Nobody is signed in. Sign in, and try again.")


def _asked_on() -> str:
    """The page of ours that asked for a part of it."""
    try:
        asked_on = urlsplit(request.headers.get("HX-Current-URL", ""))
    except ValueError:  # no URL
        return inside(None)
    return inside(iri_to_uri(asked_on._replace(scheme="", netloc="", fragment="").geturl()))


def _is_page() -> bool:
    """Whether what comes is to be shown, and not read by a script."""
    accepts = request.accept_mimetypes
    return request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate" and (not accepts or accepts.accept_html)


def _marked(view: View, right: Right) -> View:
    vars(view)["right"] = right
    return view
