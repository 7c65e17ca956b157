"""Refuses requests that name a host which cannot be one: nothing behind it need read such a name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from werkzeug.wrappers import Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_LABEL: Final = "[A-Za-z0-9_-]{1,63}"
_HOST: Final = re.compile(rf"({_LABEL}(\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(:[0-9]{{1,5}})?")
_LENGTH_MOST: Final = 255


class PlainHosts:
    """An application behind this check."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        host: str = environ.get("HTTP_HOST", "localhost")
        known = len(host) <= _LENGTH_MOST and _HOST.fullmatch(host) is not None
        answer = self._app if known else Response("This is no host's name.", 400)
        return answer(environ, start_response)
