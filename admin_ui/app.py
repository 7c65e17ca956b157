"""The Flask application: what all pages share. Each page is a module of views/, each change one of actions/."""

from __future__ import annotations

from typing import Final

from flask import Flask, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from admin_ui import access, showing
from admin_ui.acting import OutcomeUnknown
from admin_ui.bridge import Bridge
from admin_ui.reading import Readings
from admin_ui.views import BLUEPRINTS
from fairlane.errors import FairlaneError, StoreUnavailable

REFRESH_MS: Final = 2000
BODY_MOST: Final = 1 << 20
# Navigation: endpoint, label, the key that leads there (after g).
PLACES: Final = (
    ("overview.index", "Overview", "o"),
    ("fairness.index", "Fairness", "f"),
    ("jobs.queues", "Queues", "q"),
    ("jobs.index", "Jobs", "j"),
    ("batches.index", "Batches", "b"),
    ("webhooks.index", "Webhooks", "h"),
    ("workers.index", "Workers", "w"),
    ("rebalance.index", "Rebalance", "r"),
    ("tenants.index", "Tenants", "t"),
    ("pools.index", "Settings", "s"),
    ("audit.index", "Audit", "a"),
    ("users.index", "Users", "u"),
)
ADMINS_ONLY: Final = frozenset({"users.index"})


def create_app(bridge: Bridge, *, behind_proxy: int = 0, secret_key: str | None = None) -> Flask:
    """The page on an open bridge. `behind_proxy`: how many proxies before it set X-Forwarded-*; those are believed.
    `secret_key` signs cookies; None: the installation's own, from Redis."""
    app = Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = BODY_MOST
    app.extensions["bridge"] = bridge
    app.extensions["readings"] = Readings()
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    access.protect(app, behind_proxy=behind_proxy, secret_key=secret_key)
    showing.register(app)
    for page in BLUEPRINTS:
        app.register_blueprint(page)
    app.register_error_handler(FairlaneError, _refused)
    app.register_error_handler(HTTPException, _http_error)
    app.context_processor(_shared)
    return app


def _shared() -> dict[str, object]:
    """What every template may use. `layout` is the frame: none where htmx asks for a part of a page."""
    part = request.headers.get("HX-Request") == "true"
    viewer = access.viewer()
    return {
        "layout": "part.html" if part else "page.html",
        "viewer": viewer,
        "places": [place for place in PLACES if _leads(place[0], admin=viewer is not None and viewer.may("admin"))],
        "refresh_ms": REFRESH_MS,
    }


def _leads(endpoint: str, *, admin: bool) -> bool:
    return admin or endpoint not in ADMINS_ONLY


def _refused(error: FairlaneError) -> tuple[str, int, dict[str, str]]:
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, round(error.retry_after)))}
    away = isinstance(error, StoreUnavailable | OutcomeUnknown)
    return render_template("error.html", code=error.code, words=error.public, away=away), error.status, headers


def _http_error(error: HTTPException) -> Response | tuple[str, int]:
    if error.code is None or error.code < 400:
        return error.get_response()
    words = _WORDS.get(error.code, error.description or "")
    return render_template("error.html", code=error.name, words=words, away=False), error.code


_WORDS: Final = {
    403: "Your role does not allow this. Ask an admin of this installation.",
    404: "There is nothing at this address, or it is past its retention.",
    405: "This address does not take such a request.",
    413: "That is more than a form of this page sends.",
}
