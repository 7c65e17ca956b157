"""JSON answers."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Response

from fairlane import strictjson


class Json(Response):
    """A value as JSON. Half a surrogate pair, which a backend's answer may hold, stays the escape that it was."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            return strictjson.dump(content)
        except ValueError:
            return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
