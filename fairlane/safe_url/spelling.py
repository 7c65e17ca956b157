"""How a URL must be spelled, so that nobody can read another host or port out of it than we do.

Parsers differ (RFC 3986, WHATWG, libc's `inet_aton`), and forged URLs live on the difference. So nothing is mended
here: what is not plain in all of them is refused, with the reason.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

import idna

from fairlane.errors import InvalidRequest
from fairlane.safe_url.addresses import Address

MOST: Final = 2048  # characters of a URL
MOST_HOST: Final = 253
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SHAPE: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<target>[^#]*)(?P<fragment>#.*)?"
)
_AUTHORITY: Final = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<name>[^\[\]:]*))(?P<port>:[^:]*)?")
_MUST_BE_ESCAPED: Final = re.compile(r'["<>^`{|}]')  # RFC 3986; a client would do it, and send another URL
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")  # what ends so is an IPv4 address to WHATWG and to inet_aton


@dataclass(frozen=True, slots=True)
class SafeUrl:
    """A URL in its one plain form. `host` is a name in ASCII, lower case, or an IP address without brackets."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def address(self) -> Address | None:
        """The host, if it is an IP address."""
        if ":" in self.host:
            return IPv6Address(self.host)
        return IPv4Address(self.host) if _is_numeric(self.host) else None

    @property
    def origin(self) -> str:
        """`scheme://host`, with the port if it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != DEFAULT_PORTS[self.scheme] else "")

    @property
    def text(self) -> str:
        return self.origin + self.target


def refused(reason: str) -> InvalidRequest:
    """What is raised for a URL. It never quotes the URL, in which there may be a secret."""
    return InvalidRequest(f"This URL cannot be called: {reason}.", param="url")


def read(url: str) -> SafeUrl:
    """Raises InvalidRequest, which says what is odd. Whether the host may be called is another question."""
    _check_characters(url)
    found = _SHAPE.fullmatch(url)
    if not found:
        raise refused("it is not of the form https://host/path")
    scheme, authority, target = found["scheme"].lower(), found["authority"], found["target"]
    if scheme not in DEFAULT_PORTS:
        raise refused(f"its scheme is {scheme[:20]}, not http or https")
    if "@" in authority:
        raise refused("it has credentials. Put them into a header")
    if found["fragment"] is not None:
        raise refused("it has a fragment (#…), which no server would see")
    if not target.isascii():
        raise refused("characters after its host are not ASCII. Percent-encode them")
    if odd := _MUST_BE_ESCAPED.search(target):
        raise refused(f"it has a {odd[0]} after its host. Percent-encode it")
    host, port = _host_and_port(authority)
    return SafeUrl(scheme, host, port or DEFAULT_PORTS[scheme], target if target.startswith("/") else f"/{target}")


def _check_characters(url: str) -> None:
    if len(url) > MOST:
        raise refused(f"it is longer than {MOST} characters")
    for char in url:
        if char == "\\" or unicodedata.category(char)[0] in "CZ":
            raise refused(f"it has a character that does not belong there (U+{ord(char):04X})")


def _host_and_port(authority: str) -> tuple[str, int | None]:
    found = _AUTHORITY.fullmatch(authority)
    if "%" in authority:
        raise refused("its host is percent-encoded, or has a zone")
    if not found:
        raise refused("what follows // is not of the form host:port")
    port = port_number(found["port"][1:]) if found["port"] is not None else None
    return _ipv6(found["six"]) if found["six"] is not None else host_name(found["name"]), port


def port_number(text: str) -> int:
    """Raises InvalidRequest."""
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise refused("its port is no number from 1 to 65535")
    return int(text)


def _ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        raise refused("what stands in brackets is no IPv6 address") from None


def host_name(text: str) -> str:
    """A name in ASCII and lower case, or an IPv4 address. Raises InvalidRequest."""
    if not text:
        raise refused("it names no host")
    if unicodedata.normalize("NFKC", text) != text:
        raise refused("its host has characters that stand for others")
    lower = text.lower()
    if _is_numeric(lower):
        return _ipv4(lower)
    name = ".".join(_label(label) for label in lower.split("."))
    if len(name) > MOST_HOST:
        raise refused(f"its host is longer than {MOST_HOST} characters")
    return name


def _is_numeric(host: str) -> bool:
    return bool(_NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]))


def _ipv4(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        raise refused("its host is an odd form of an IPv4 address. Write it as 192.0.2.1 is written") from None


def _label(label: str) -> str:
    """In ASCII. A name in another script goes by IDNA 2008, strictly: nothing is mapped."""
    if not label:
        raise refused("its host has a dot too many")
    try:
        if not label.isascii():
            label = idna.encode(label, strict=True, std3_rules=True).decode()
        elif label.startswith("xn--") and idna.encode(idna.decode(label, strict=True), strict=True).decode() != label:
            raise refused("its host is no proper internationalised name")
    except UnicodeError:  # IDNAError is one
        raise refused("its host is no proper internationalised name") from None
    if not _LABEL.fullmatch(label):
        raise refused("its host has other characters than letters, digits and hyphens, or too many")
    return label
