"""Passwords of the admin page's users: argon2id, and the same time for a user that there is not."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Final

from fairlane.errors import InvalidRequest

if TYPE_CHECKING:
    from argon2 import PasswordHasher

LENGTH_LEAST: Final = 10
LENGTH_MOST: Final = 1024


def check(name: str, password: str) -> None:
    """Raises InvalidRequest for a password that is too easy to guess."""
    if not LENGTH_LEAST <= len(password) <= LENGTH_MOST:
        raise InvalidRequest(f"A password has {LENGTH_LEAST} to {LENGTH_MOST} characters.", param="password")
    if name.lower() in password.lower() and len(password) < 2 * len(name):
        raise InvalidRequest("A password is more than the name.", param="password")
    if len(set(password)) < LENGTH_LEAST // 2:
        raise InvalidRequest("A password has more than a few different characters.", param="password")


def hashed(password: str) -> str:
    """What is stored of a password. Takes some 50 ms of a core, and 64 MiB."""
    return _hasher().hash(_spelled(password))


def verify(stored: str, password: str) -> bool:
    """Whether this is the password; for no stored one, after the same time: no."""
    from argon2.exceptions import VerificationError

    nobodys = _nobodys()  # made at the first try, whoever's that is
    try:
        return _hasher().verify(stored or nobodys, _spelled(password[:LENGTH_MOST])) and stored != ""
    except VerificationError:
        return False


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Passwords need argon2-cffi: pip install 'fairlane[admin]'.", name=error.name
        ) from error
    return PasswordHasher()


@cache
def _nobodys() -> str:
    return hashed("nobody has this password")


def _spelled(password: str) -> bytes:
    """However a keyboard composes its characters. What is not UTF-8 is kept apart, not refused."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
