"""Sittings: who is signed in to the admin page. They are kept in Redis, so that a sign-out ends one everywhere.

A sitting is known by a random token, of which only the digest is stored. It ends when it is not used for IDLE_MS, after
MOST_MS in any case, and when its user gets a new password or is disabled.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from fairlane.queue import keys, replies

if TYPE_CHECKING:
    from fairlane.queue.engine import Queue

UserRole = Literal["viewer", "operator", "admin"]
Shown = Literal["password", "once"]
IDLE_MS: Final = 3_600_000
MOST_MS: Final = 12 * 3_600_000


@dataclass(frozen=True, slots=True)
class Sitting:
    """Whose it is, and what they may do now. `tenants` are those that they may see and act on; None: all. `by` is what
    they showed when it began: a password, or a login that can be used once."""

    user: str
    role: UserRole
    tenants: frozenset[str] | None
    by: Shown
    since_ms: int


class Sittings:
    """The sittings on the queue's Redis. Every method may raise what the queue's do."""

    def __init__(self, queue: Queue) -> None:
        self._store = queue.store
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)

    async def find(self, token: str, used_from: str | None) -> Sitting | None:
        """Whose sitting this is, if it lasts; notes, to a minute, from which address it was used. None: it is only
        looked up."""
        reply = await self._store.run("find_sitting", self._prefix, digest_of(token), used_from or "", str(IDLE_MS))
        if reply is None:
            return None
        user, role, tenants, by, since = replies.texts(reply)
        return Sitting(user, cast(UserRole, role), scope_of(tenants), cast(Shown, by), int(since))

    async def end(self, token: str) -> None:
        """Ends a sitting. Repeatable."""
        await self._store.run("end_sitting", self._prefix, digest_of(token))


def new_token() -> str:
    """A secret that nobody can guess."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """What is stored of a secret of 256 random bits, which needs no slow hash."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def scope_of(text: str) -> frozenset[str] | None:
    """The tenants of a user as they are stored; '' is all."""
    return frozenset(cast("list[str]", json.loads(text))) if text else None
