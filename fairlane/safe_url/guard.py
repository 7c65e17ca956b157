"""The guard: what is refused, but for what the allow-list names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final, Self

from fairlane.errors import InvalidRequest
from fairlane.safe_url.addresses import Address, Network, ends, kind
from fairlane.safe_url.spelling import SafeUrl, host_name, port_number, read, refused

INSIDE: Final = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "home.arpa",
)  # RFC 6761, 6762, 8375, and ICANN's for private use
_ENTRY: Final = re.compile(r"\[(?P<six>[^\[\]]+)\](?::(?P<port>[^:]*))?|(?P<bare>[^\[\]]+)")
_NETWORK: Final = re.compile(r"[0-9.]+(?:/[0-9]*)?|[^.]*:.*|.*/.*")  # no name is of this form


@dataclass(frozen=True, slots=True)
class Guard:
    """`hosts` may have any address, `networks` any name: each at its port, or at all of `ports` if it has none.

    A host is a name, or `*.suffix` for all names below one. Neither part makes an oddly spelled URL a plain one.
    """

    hosts: tuple[tuple[str, int | None], ...]
    networks: tuple[tuple[Network, int | None], ...]
    ports: frozenset[int]

    @classmethod
    def of(cls, allow: str, ports: str) -> Self:
        """From FAIRLANE_WEBHOOK_ALLOW and FAIRLANE_WEBHOOK_PORTS. Raises InvalidRequest, which names the bad entry."""
        hosts: list[tuple[str, int | None]] = []
        networks: list[tuple[Network, int | None]] = []
        for entry in _parts(allow):
            what, port = _entry(entry)
            if isinstance(what, str):
                hosts.append((what, port))
            else:
                networks.append((what, port))
        return cls(tuple(hosts), tuple(networks), _ports(ports))

    def check(self, url: str, *, unseen: bool = False) -> SafeUrl:
        """What is to be asked of a URL before its name is looked up. Raises InvalidRequest (param `url`).

        Nobody will ask about the addresses of an `unseen` name, so that it gets no port which only `networks` have.
        """
        found = read(url)
        if found.address is not None:
            reason = self.refusal(found.host, found.port, found.host)
        else:
            reason = self._name_refusal(found.host, found.port, unseen)
        if reason:
            raise refused(reason)
        return found

    def refusal(self, host: str, port: int, address: str) -> str | None:
        """Why `host`, as SafeUrl has it, must not be called at this address of it; None if it may be."""
        if self._knows(host, port):
            return None
        place, _, zone = address.partition("%")
        return self._address_refusal(ip_address(place), bool(zone), port)

    def _address_refusal(self, address: Address, zoned: bool, port: int) -> str | None:
        if self._covers(address, port):
            return None
        for end in ends(address):
            if self._covers(end, port):
                continue
            if what := kind(end):
                place = "not outside" if end == address else str(end)
                has = any(end in network for network, _ in self.networks)
                lacks = f"has it without the port {port}" if has else "does not have it"
                return f"{address} is {place} ({what}), and FAIRLANE_WEBHOOK_ALLOW {lacks}"
            if port not in self.ports:
                return _no_port(port)
        return f"{address} is not outside (it has a zone)" if zoned else None

    def _name_refusal(self, host: str, port: int, unseen: bool) -> str | None:
        if self._knows(host, port):
            return None
        if port not in self.ports and (unseen or all(port != own for _, own in self.networks)):
            return _no_port(port)
        if "." not in host or any(host.endswith(f".{suffix}") for suffix in INSIDE) or host in INSIDE:
            return "its host is a name of an inside network, and FAIRLANE_WEBHOOK_ALLOW does not have it"
        return None

    def _knows(self, host: str, port: int) -> bool:
        return any(
            self._at(port, own) and (host.endswith(name[1:]) if name.startswith("*") else host == name)
            for name, own in self.hosts
        )

    def _covers(self, address: Address, port: int) -> bool:
        return any(self._at(port, own) and address in network for network, own in self.networks)

    def _at(self, port: int, own: int | None) -> bool:
        return port in self.ports if own is None else port == own


def _no_port(port: int) -> str:
    return f"its port {port} is not in FAIRLANE_WEBHOOK_PORTS, nor with this host in FAIRLANE_WEBHOOK_ALLOW"


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _ports(text: str) -> frozenset[int]:
    try:
        return frozenset(port_number(part) for part in _parts(text))
    except InvalidRequest:
        raise InvalidRequest(f"{text!r} is no list of ports, as 80,443 is.") from None


def _entry(entry: str) -> tuple[str | Network, int | None]:
    """`10.0.0.0/8`, `10.1.2.3:9000`, `fd00::/8`, `[fd00::1]:9000`, `host`, `host:9000`, `*.suffix`."""
    try:
        what, port = _split(entry)
        if _NETWORK.fullmatch(what):
            return ip_network(what), port
        star, name = ("*.", what[2:]) if what.startswith("*.") else ("", what)
        return star + host_name(name), port
    except (InvalidRequest, ValueError) as error:
        why = "" if isinstance(error, InvalidRequest) else f" ({error})"
        raise InvalidRequest(
            f"{entry!r} is no network, address, host or *.suffix, with or without :port{why}."
        ) from None


def _split(entry: str) -> tuple[str, int | None]:
    found = _ENTRY.fullmatch(entry)
    if not found:
        raise ValueError("its brackets are odd")
    if found["six"]:
        return found["six"], None if found["port"] is None else port_number(found["port"])
    bare = found["bare"]
    if bare.count(":") != 1:
        return bare, None
    what, _, port = bare.partition(":")
    return what, port_number(port)
