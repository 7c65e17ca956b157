"""Logs: one event a line on stderr, with its fields; JSON unless a terminal reads it."""

from __future__ import annotations

import logging
import sys
from typing import TextIO, cast

import structlog


class _Stderr:
    """stderr as it is at the moment: it may be another one later, and loggers are kept."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str = "info", *, as_json: bool | None = None) -> None:
    """Sets up structlog for this process. `as_json` None: JSON if stderr is no terminal."""
    number = logging.getLevelNamesMapping()[level.upper()]
    plain = sys.stderr.isatty() if as_json is None else not as_json
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if plain else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
