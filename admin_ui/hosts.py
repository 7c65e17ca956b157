"""Refuses requests that name a host or prefix which cannot be one: nothing behind it need read such a name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from werkzeug.wrappers import Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LABEL: Final = "[A-Za-z0-9_-]{1,63}"
_HOST: Final = re.compile(rf"({_LABEL}(\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(:[0-9]{{1,5}})?")
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")  # `//host` would lead elsewhere
_LENGTH_MOST: Final = 255


class PlainHosts:
    """An application behind this check."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        host: str = environ.get("HTTP_HOST", "localhost")
        prefix: str = environ.get("SCRIPT_NAME", "")
        if len(host) > _LENGTH_MOST or _HOST.fullmatch(host) is None:
            return Response("This is no host's name.", 400)(environ, start_response)
        if len(prefix) > _LENGTH_MOST or _PREFIX.fullmatch(prefix) is None:
            return Response("This is no path to be under.", 400)(environ, start_response)
        return self._app(environ, start_response)
