"""The one cookie: a signed one that holds the secret name of a sitting and the token against forged requests."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Flask, request
from flask.sessions import SecureCookieSession, SecureCookieSessionInterface
from flask.wrappers import Request

from admin_ui.reading import ask
from fairlane.errors import FairlaneError


class Cookies(SecureCookieSessionInterface):
    """Signs with a secret that all admin processes of one queue share, and reads it when it is first needed.

    Cookies do not tell ports apart, so that the name does: two pages on one host do not sign each other's viewers out.
    """

    def open_session(self, app: Flask, request: Request) -> SecureCookieSession | None:
        """Without the secret there is no session, and access.py refuses all views."""
        if app.secret_key is None:
            try:
                app.secret_key = ask(lambda stores: stores.users.page_secret())
            except FairlaneError:
                return None
        return super().open_session(app, request)

    def get_cookie_name(self, app: Flask) -> str:
        address = urlsplit(f"//{request.host}")
        try:
            port = address.port
        except ValueError:
            port = None
        return f"fairlane_{port or (443 if request.is_secure else 80)}"

    def get_cookie_path(self, app: Flask) -> str:
        return request.script_root or "/"

    def get_cookie_secure(self, app: Flask) -> bool:
        return request.is_secure

    def get_cookie_httponly(self, app: Flask) -> bool:
        return True

    def get_cookie_samesite(self, app: Flask) -> str:
        return "Lax"
