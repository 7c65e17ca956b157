"""For all tests: logs as the processes write them. (structlog's own default renders a traceback for half a second.)"""

from __future__ import annotations

from fairlane.logging import configure

configure("debug", as_json=True)
