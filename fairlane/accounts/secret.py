"""API keys as their holders see them: `fl-<prefix>-<secret part>`. Only a digest of one is ever stored.

The digest is a plain SHA-256: a secret of 238 random bits needs no slow hash, and each request is checked with it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from typing import Final, NamedTuple

ALPHABET: Final = string.digits + string.ascii_letters
PREFIX_LENGTH: Final = 10
SECRET_LENGTH: Final = 40
PREFIX: Final = re.compile(rf"[0-9A-Za-z]{{{PREFIX_LENGTH}}}")
_SECRET: Final = re.compile(rf"fl-({PREFIX.pattern})-[0-9A-Za-z]{{32,64}}")


class Claim(NamedTuple):
    """What is looked up of a secret that somebody sends, and may be kept."""

    prefix: str
    digest: str


def new_secret() -> tuple[str, str]:
    """A new prefix, and the whole secret that starts with it."""
    prefix = _random(PREFIX_LENGTH)
    return prefix, f"fl-{prefix}-{_random(SECRET_LENGTH)}"


def prefix_of(secret: str) -> str | None:
    """The prefix of a secret; None for what cannot be one."""
    match = _SECRET.fullmatch(secret)
    return match[1] if match else None


def claim_of(secret: str) -> Claim | None:
    """What to look up; None for what cannot be a secret."""
    prefix = prefix_of(secret)
    return None if prefix is None else Claim(prefix, digest_of(secret))


def digest_of(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))
