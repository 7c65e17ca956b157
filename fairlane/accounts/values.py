"""Tenants and keys as values, what may be said of them, and their fields in Redis."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, cast, get_args

from fairlane.errors import InvalidRequest
from fairlane.model import TIER_PATTERN, Limits
from fairlane.queue.checks import check_limits

Role = Literal["tenant", "operator", "gateway"]
KeyState = Literal["active", "expired", "revoked"]

LIMITS: Final = tuple(each.name for each in fields(Limits))
GRANTS: Final = ("tiers", "pools")
NAMES_MOST: Final = 100
LABEL_MOST: Final = 200
LASTS_MOST_S: Final = 10 * 365 * 86_400.0
_NAMES: Final = {"tiers": re.compile(TIER_PATTERN), "pools": re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is. `tiers` and `pools` are those that the key and its tenant may use; None: all."""

    tenant: str
    role: Role = "tenant"
    tiers: frozenset[str] | None = None
    pools: frozenset[str] | None = None

    def may_use(self, pool: str) -> bool:
        """Whether a pool, which serves the model of its name, is there for this caller."""
        return self.pools is None or pool in self.pools


@dataclass(frozen=True, slots=True)
class Account:
    """A registered tenant. `tiers` and `pools` are those that it may use; None: all. `version` counts how often its
    limits were changed: 0 if they never were."""

    tenant: str
    limits: Limits
    tiers: frozenset[str] | None
    pools: frozenset[str] | None
    disabled: bool
    created_at_ms: int
    version: int


@dataclass(frozen=True, slots=True)
class KeyView:
    """An API key without its secret. `used_at_ms` is right to a minute; `rotated_to` is the prefix of the key that took
    its place."""

    prefix: str
    tenant: str
    role: Role
    tiers: frozenset[str] | None
    pools: frozenset[str] | None
    label: str
    state: KeyState
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None
    used_at_ms: int | None
    rotated_to: str | None


def account(tenant: str, kept: Mapping[str, bytes]) -> Account:
    """A tenant from its hash."""
    limits = {name: float(kept[name]) if name == "weight" else int(kept[name]) for name in LIMITS if name in kept}
    return Account(
        tenant,
        Limits(**limits),  # pyright: ignore[reportArgumentType]
        *(unpacked(kept.get(name, b"")) for name in GRANTS),
        disabled="disabled" in kept,
        created_at_ms=int(kept["created"]),
        version=int(kept["version"]),
    )


def key_view(prefix: str, state: str, kept: Mapping[str, bytes]) -> KeyView:
    """A key as lua/lib/secret.lua shows it."""

    def whole(name: str) -> int | None:
        return int(kept[name]) if name in kept else None

    return KeyView(
        prefix=prefix,
        tenant=kept["tenant"].decode(),
        role=cast(Role, kept["role"].decode()),
        tiers=unpacked(kept.get("tiers", b"")),
        pools=unpacked(kept.get("pools", b"")),
        label=kept.get("label", b"").decode(),
        state=cast(KeyState, state),
        created_at_ms=int(kept["created"]),
        expires_at_ms=whole("expires"),
        revoked_at_ms=whole("revoked"),
        used_at_ms=whole("used"),
        rotated_to=kept["next"].decode() if "next" in kept else None,
    )


def account_fields(changes: Mapping[str, object]) -> dict[str, str]:
    """The fields of a tenant's hash that `changes` sets; '' takes one away.

    A value, or its text: `none` lifts a limit, `all` a grant; names have commas between them. Raises InvalidRequest.
    """
    limits: dict[str, float | None] = {}
    set_to: dict[str, str] = {}
    for name, value in changes.items():
        if name in GRANTS:
            set_to[name] = packed(name, _names(value))
        elif name in LIMITS:
            limits[name] = _number(name, value)
        else:
            known = ", ".join((*LIMITS, *GRANTS))
            raise InvalidRequest(f"A tenant has no setting {name!r}. There are {known}.", param=name)
    check_limits(Limits(**limits))  # pyright: ignore[reportArgumentType]
    return set_to | {name: "" if value is None else repr(value) for name, value in limits.items()}


def key_fields(role: Role, tiers: Collection[str] | None, pools: Collection[str] | None, label: str) -> dict[str, str]:
    """The fields of a new key's hash. Raises InvalidRequest."""
    if role not in get_args(Role):
        raise InvalidRequest(f"A key's role is one of {', '.join(get_args(Role))}.", param="role")
    if len(label) > LABEL_MOST or not label.isprintable():
        raise InvalidRequest(f"A label has {LABEL_MOST} printable characters at the most.", param="label")
    made = {"role": role, "tiers": packed("tiers", tiers), "pools": packed("pools", pools), "label": label}
    return {name: value for name, value in made.items() if value}


def packed(name: str, names: Collection[str] | None) -> str:
    """A grant as it is stored; '' for all. Raises InvalidRequest."""
    if names is None:
        return ""
    if not 1 <= len(names) <= NAMES_MOST or not all(map(_NAMES[name].fullmatch, names)):
        raise InvalidRequest(f"{name} are `all`, or 1 to {NAMES_MOST} names.", param=name)
    return json.dumps(sorted(names))


def unpacked(text: bytes) -> frozenset[str] | None:
    """The inverse of `packed`."""
    return frozenset(cast("list[str]", json.loads(text))) if text else None


def both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """What two grants allow together."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _names(value: object) -> frozenset[str] | None:
    if value is None or value == "all":
        return None
    if isinstance(value, str):
        return frozenset(part.strip() for part in value.split(","))
    return frozenset(cast("Collection[str]", value))


def _number(name: str, value: object) -> float | None:
    if name != "weight" and (value is None or value == "none"):
        return None
    try:
        if isinstance(value, str):
            return float(value) if name == "weight" else int(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) if name == "weight" else value
    except ValueError:
        pass
    wanted = "a number" if name == "weight" else "a whole number, or none"
    raise InvalidRequest(f"{name} is {wanted}; not {value!r}.", param=name)
