"""How often somebody may try a password: a few times freely, then each try makes the next one wait twice as long.

Tries count for the name that was typed, whether there is such a user or not, and for the address they come from. The
wait for a name stays short, since anybody could make its owner wait; who must get in at once uses a one-time login.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import astuple, dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Throttle:
    """Tries that are free, the first wait, the longest, and after how long without a try all are forgotten (ms)."""

    free: int
    first_ms: int
    most_ms: int
    kept_ms: int


NAME: Final = Throttle(free=10, first_ms=1_000, most_ms=60_000, kept_ms=900_000)
ADDRESS: Final = Throttle(free=20, first_ms=2_000, most_ms=900_000, kept_ms=3_600_000)


def arguments() -> tuple[str, ...]:
    """Both, as try_password.lua takes them."""
    return tuple(str(number) for throttle in (NAME, ADDRESS) for number in astuple(throttle))


_WITH_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?")


def without_port(address: str) -> str:
    """An address as it is; of `address:port` and `[address]:port`, as some proxies write it, the address."""
    found = _WITH_PORT.fullmatch(address)
    return (found[1] or found[2]) if found else address


def origin_of(address: str) -> str:
    """For what tries are counted: an address of IPv4, or all of a /64, of which one household or machine has many."""
    try:
        known = ipaddress.ip_address(without_port(address))
    except ValueError:
        return address[:64]
    if known.version == 6 and known.ipv4_mapped:
        return str(known.ipv4_mapped)
    return str(known) if known.version == 4 else str(ipaddress.ip_network((known, 64), strict=False))


def digest_of(name: str) -> str:
    """Under which a name's tries are counted: whatever was typed has one length."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
