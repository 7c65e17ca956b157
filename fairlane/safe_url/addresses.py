"""Which addresses are no outside ones, and which addresses hide in others.

The table holds all of IANA's registries of special-purpose IPv4 and IPv6 addresses, as of October 2025: also the few
that are globally reachable, where no receiver of webhooks can be. It is kept here because `ipaddress.is_global` differs
between the patch levels of Python, and knows nothing of embedded addresses. Multicast, the old site-local addresses
and the clouds' own addresses are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def _table(*rows: tuple[str, str]) -> Sequence[tuple[Network, str]]:
    return tuple((ip_network(block), kind) for block, kind in rows)


# The first that fits gives the reason, so the narrow ones come first.
SPECIAL: Final = _table(
    ("169.254.169.254/32", "a cloud's metadata service"),
    ("169.254.170.2/32", "a cloud's metadata service"),  # Amazon ECS
    ("100.100.100.200/32", "a cloud's metadata service"),  # Alibaba
    ("168.63.129.16/32", "a cloud's metadata service"),  # Azure: an address of the public range, inside only
    ("192.0.0.192/32", "a cloud's metadata service"),  # Oracle
    ("0.0.0.0/32", "unspecified"),
    ("0.0.0.0/8", "of this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared (carrier-grade NAT)"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.31.196.0/24", "a sink for DNS (AS112)"),
    ("192.52.193.0/24", "reserved for protocols"),  # AMT
    ("192.88.99.0/24", "a relay of 6to4"),
    ("192.168.0.0/16", "private"),
    ("192.175.48.0/24", "a sink for DNS (AS112)"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
    ("fd00:ec2::254/128", "a cloud's metadata service"),  # Amazon
    ("fd20:ce::254/128", "a cloud's metadata service"),  # Google
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    # each site chooses where in these the IPv4 address stands, so that nobody else can tell which one it is (RFC 8215)
    ("64:ff9b:1::/48", "of a site's own NAT64"),
    ("100::/64", "for discarding"),
    ("100:0:0:1::/64", "a dummy"),
    ("2001::/32", "of Teredo"),
    ("2001:2::/48", "for benchmarks"),
    ("2001:10::/28", "no address of a host (ORCHID)"),
    ("2001:20::/28", "no address of a host (ORCHID)"),
    ("2001::/23", "reserved for protocols"),
    ("2001:db8::/32", "for documentation"),
    ("2620:4f:8000::/48", "a sink for DNS (AS112)"),
    ("3fff::/20", "for documentation"),
    ("5f00::/16", "for segment routing"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # all that IANA gives out of IPv6 (RFC 4291); the rest is reserved
NO_IPV4: Final = IPv6Network("::/127")  # :: and ::1 look like embedded addresses and are none

# These stand for the IPv4 address in their last 32 bits, and are nothing by themselves.
TRANSLATED: Final = (
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped (RFC 4291)
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated (RFC 2765)
    IPv6Network("::/96"),  # IPv4-compatible (RFC 4291, deprecated)
    IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
)
SIX_TO_FOUR: Final = IPv6Network("2002::/16")  # the IPv4 address of the router follows (RFC 3056)
ISATAP: Final = 0x5EFE  # the upper half of an interface's id, but for its bit `u` (RFC 5214)
ISATAP_U: Final = 1 << 25


def kind(address: Address) -> str | None:
    """What is special about an address, by itself; None for one of the public Internet.

    >>> kind(IPv4Address("10.1.2.3"))
    'private'
    """
    for network, what in SPECIAL:
        if address in network:
            return what
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return "reserved"
    return None


def ends(address: Address) -> Iterator[Address]:
    """Where a packet to `address` may end: there, or at the IPv4 addresses that are embedded in it."""
    if isinstance(address, IPv4Address) or address in NO_IPV4:
        yield address
        return
    bits = int(address)
    if any(address in network for network in TRANSLATED):
        yield _ipv4(bits)
        return
    yield address
    if address in SIX_TO_FOUR:
        yield _ipv4(bits >> 80)
    if (bits >> 32) & 0xFFFF_FFFF & ~ISATAP_U == ISATAP:
        yield _ipv4(bits)


def _ipv4(bits: int) -> IPv4Address:
    return IPv4Address(bits & 0xFFFF_FFFF)
