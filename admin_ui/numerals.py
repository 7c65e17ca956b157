"""Numbers as addresses and forms have them: ASCII digits only, and never more of them than int() takes."""

from __future__ import annotations

import re
from typing import Final

_DECIMAL: Final = re.compile(r"[0-9]{1,16}(\.[0-9]{1,16})?")


def whole(text: str, most: int) -> int | None:
    """The whole number from 0 to `most` that the text is; None for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        return None
    number = int(text)
    return number if number <= most else None


def decimal(text: str, most: float) -> float | None:
    """The number from 0 to `most` that the text is, with or without decimals; None for any other text."""
    if not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    return number if number <= most else None
