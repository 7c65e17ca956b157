"""JSON as it may come in: what one reader would take for something else than the next one is refused at the door.

RFC 8259 leaves open what doubled names, half surrogate pairs and numbers beyond a double mean; Python adds NaN.
Whatever passes here can be written again, to a backend or to a caller, and means the same there.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from operator import itemgetter
from typing import Any, Final

MOST_DEPTH: Final = 128
MOST_VALUES: Final = 500_000  # each costs some 0.5 µs and up to 200 bytes, however few it has in the text
_MARKS: Final = (b"{", b"[", b",", b":")  # before each name and value there is one
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
# json.dumps would make an encoder for each call.
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")  # the start of an escaped surrogate


def parse(text: bytes) -> Any:
    """The value of what a caller sent. Raises ValueError, which says what is wrong."""
    if _marks(text) > MOST_VALUES and not _has_few(text):
        raise ValueError(f"it has more than {MOST_VALUES:,} names and values")
    value = _parse(text, object_pairs_hook=_object)
    if _HALF.search(text):
        dump(value)
    return value


def parse_answer(text: bytes) -> Any:
    """The value of what a backend sent; it need only be such that it can be written again. Raises ValueError."""
    return _parse(text)


def _parse(text: bytes, **hooks: Any) -> Any:
    try:
        value: Any = json.loads(text.decode(), parse_constant=_no_number, parse_float=_finite, **hooks)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep") from error
    if text.count(b"{") + text.count(b"[") > MOST_DEPTH and not is_shallow(value):
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
    return value


def dump(value: Any) -> bytes:
    """The text, as short as can be. Raises ValueError for NaN, half a surrogate pair, or what is no JSON at all."""
    try:
        return _ENCODE(value).encode()
    except UnicodeEncodeError as error:
        raise ValueError("a text holds half of a surrogate pair") from error
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def is_shallow(value: Any) -> bool:
    """Whether lists and objects are nested MOST_DEPTH deep at the most: nothing that reads them runs out of stack."""
    level: list[Any] = _children([value])
    for _ in range(MOST_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return True
    return False


def _children(node: dict[str, Any] | list[Any]) -> list[Any]:
    inner = node.values() if isinstance(node, dict) else node
    return [child for child in inner if isinstance(child, dict | list)]


def _marks(text: bytes) -> int:
    return sum(map(text.count, _MARKS))


def _has_few(text: bytes) -> bool:
    """Whether it has MOST_VALUES at the most. What stands in its strings does not count."""
    found = end = 0
    for string in _TEXT.finditer(text):
        found += _marks(text[end : string.start()])
        end = string.end()
        if found > MOST_VALUES:
            return False
    return found + _marks(text[end:]) <= MOST_VALUES


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        doubled = max(Counter(name for name, _ in pairs).items(), key=itemgetter(1))[0]
        raise ValueError(f"the name {doubled!r} is there twice in one object")
    return made


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number in JSON")
