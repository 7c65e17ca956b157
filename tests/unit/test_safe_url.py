"""No URL, however it is spelled, and no address, however it is hidden, leads a webhook to the inside."""

# ruff: noqa: RUF001
from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlane.errors import InvalidRequest
from fairlane.safe_url import Guard

GUARD = Guard.of("", "80,443,8443")

HOSTILE = {  # the part of the reason that a tenant can act on, and what it is the reason for
    "not of the form": (
        "", "hooks.example", "//hooks.example/x", "http:/hooks.example", "http:hooks.example",
        "javascript:alert(1)", "data:text/plain,x", "mailto:a@hooks.example", "1http://hooks.example",
        "://hooks.example",
        "http://[::1", "http://::1/", "http://hooks.example:80:80/", "http://[8.8.8.8]x:80/", "http://a[b].example/",
    ),
    "its scheme is": (
        "file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL", "ftp://hooks.example/",
        "dict://hooks.example:11211/",
        "ws://hooks.example/", "redis://hooks.example:6379", "http+unix://x/", "httpss://hooks.example/",
    ),
    "names no host": (
        "https://", "https://:443/", "https:///x", "https:///hooks.example@x", "http://?x=hooks.example",
    ),
    "credentials": (
        "https://user:secret@hooks.example/", "https://hooks.example@127.0.0.1/", "https://@hooks.example/",
        "https://hooks.example:443@127.0.0.1/", "https://127.0.0.1:80@hooks.example:80@x/",
    ),
    "fragment": ("https://hooks.example/#x", "https://hooks.example#@127.0.0.1/", "https://hooks.example/#"),
    "does not belong there": (
        " https://hooks.example/", "https://hooks.example/ ", "https://hooks.example/a b",
        "https://hooks.example\\@127.0.0.1/",
        "https:\\\\127.0.0.1/", "https://127.0.0.1\t.hooks.example/", "https://hooks.example/\r\nHost: inside",
        "ht\ntp://x.y/",
        "https://hooks.example\x00.inside/", "https://loc\u00adalhost/", "https://127.0.0.1\u200b/",
        "https://hooks.example/\u202e",
        "https://hooks\u3000.example/", "https://hooks.example/\ud800",
    ),
    "percent-encoded, or has a zone": (
        "https://%31%32%37.0.0.1/", "https://127.0.0.1%2f.hooks.example/", "https://hooks%2eexample/",
        "https://localhost%00.x.y/",
        "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[2606:4700::1%251]/",
    ),
    "odd form of an IPv4 address": (
        "http://2130706433/", "http://0x7f000001/", "http://017700000001/", "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.1/", "http://127.0.1/", "http://127.0.0.01/", "http://127.0.0.1./", "http://0/", "http://0x/",
        "http://1.1.1.256/",
        "http://1.2.3.4.5/", "http://127.0.0.0x1/", "http://0x08.0x08.0x08.0x08/", "http://134744072/",
        "http://hooks.example.1/",
    ),
    "stand for others": (
        "http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "http://ﬁle.example/",
        "http://hoo\u212as.example/", "http://hooks．example/", "http://hooks｡example/", "http://hooks.example：80/",
        "http://ſ.example/",
    ),
    "no proper internationalised name": (
        "http://xn--localhost-.example/", "http://xn--a.example/", "http://xn--.example/", "http://☃.example/",
        "http://♥.example/", "http://127。0。0。1/",
        "http://xn--n3h.example/", "http://\u0301a.example/", "http://xn--bcher-KVB!.example/",
    ),
    "a dot too many": (
        "https://hooks.example./", "https://.hooks.example/", "https://hooks..example/", "http://localhost./",
        "http://./",
    ),
    "letters, digits and hyphens": (
        "http://hooks_1.example/", "http://-hooks.example/", "http://hooks-.example/", "http://a,b.example/",
        "http://a*b.example/",
        "http://$(id).example/", f"http://{'a' * 64}.example/", "http://hooks!.example/", "http://{hooks}.example/",
    ),
    "longer than": (f"https://hooks.example/{'a' * 2048}", f"https://{'a.' * 127}example/"),
    "not ASCII": ("https://hooks.example/é", "https://hooks.example/?q=é"),
    "its port is no number": (
        "http://hooks.example:/", "http://hooks.example:0/", "http://hooks.example:65536/",
        "http://hooks.example:080/",
        "http://hooks.example:+80/", "http://hooks.example:-1/", "http://hooks.example:8O/",
        "http://hooks.example:٨٠/",
        "http://hooks.example:99999999999/",
    ),
    "is not in FAIRLANE_WEBHOOK_PORTS": (
        "http://hooks.example:22/", "http://hooks.example:6379/", "https://8.8.8.8:25/",
        "http://[2606:4700::1111]:11211/",
    ),
    "no IPv6 address": (
        "http://[]/", "http://[127.0.0.1]/", "http://[::1::]/", "http://[v1.x]/", "http://[localhost]/",
        "http://[::12345]/",
    ),
    "an inside network": (
        "http://localhost/", "http://LOCALHOST/", "http://a.localhost/", "http://printer.local/",
        "http://metadata.google.internal/",
        "http://internal/", "http://redis/", "http://kubernetes/", "http://router.home.arpa/", "http://home.arpa/",
        "http://a.b.internal/",
    ),
    "is not outside": (
        "http://127.0.0.1/", "http://127.255.255.254/", "http://0.0.0.0/", "http://10.0.0.1/", "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1/", "http://100.64.0.1/", "http://169.254.169.254/latest/meta-data/",
        "http://168.63.129.16/",
        "http://100.100.100.200/", "http://192.0.0.192/", "http://169.254.170.2/", "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://240.0.0.1/", "http://198.18.0.1/", "http://192.0.2.1/", "http://[::1]/", "http://[::]/",
        "http://[fd00:ec2::254]/",
        "http://[fe80::1]/", "http://[fec0::1]/", "http://[ff02::1]/", "http://[fc00::1]/", "http://[2001:db8::1]/",
        "http://[3fff::1]/",
        "http://[100::1]/", "http://[2001::1]/", "http://[2001:20::1]/", "http://[64:ff9b:1::808:808]/",
        "http://[4000::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
    ),
    " is 1": (
        "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::127.0.0.1]/",
        "http://[::ffff:0:10.0.0.1]/",
        "http://[64:ff9b::169.254.169.254]/", "http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/",
        "http://[2606:4700::5efe:10.0.0.1]/",
    ),
}  # fmt: skip


def refusal(url: str, guard: Guard = GUARD) -> str:
    with pytest.raises(InvalidRequest) as refused:
        guard.check(url)
    assert refused.value.param == "url"
    return refused.value.message


@pytest.mark.parametrize(("reason", "url"), [(reason, url) for reason, urls in HOSTILE.items() for url in urls])
def test_a_hostile_url_is_refused_with_the_reason(reason: str, url: str) -> None:
    assert reason in refusal(url)


def test_a_refusal_does_not_show_the_secret_in_a_url() -> None:
    assert "secret" not in refusal("https://user:secret@hooks.example/")


@pytest.mark.parametrize(
    ("url", "host", "port", "text"),
    [
        ("https://hooks.example", "hooks.example", 443, "https://hooks.example/"),
        ("HTTPS://Hooks.Example:443/A?b=%20c", "hooks.example", 443, "https://hooks.example/A?b=%20c"),
        ("http://hooks.example:8443?x", "hooks.example", 8443, "http://hooks.example:8443/?x"),
        ("https://bücher.example/", "xn--bcher-kva.example", 443, "https://xn--bcher-kva.example/"),
        ("https://BÜCHER.example/", "xn--bcher-kva.example", 443, "https://xn--bcher-kva.example/"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "https://xn--bcher-kva.example/"),
        ("https://faß.example/", "xn--fa-hia.example", 443, "https://xn--fa-hia.example/"),
        ("https://r3---sn.example/", "r3---sn.example", 443, "https://r3---sn.example/"),
        ("https://1.example/@a", "1.example", 443, "https://1.example/@a"),
        ("https://8.8.8.8/", "8.8.8.8", 443, "https://8.8.8.8/"),
        ("https://[2606:4700:0:0::1111]:8443/", "2606:4700::1111", 8443, "https://[2606:4700::1111]:8443/"),
        ("https://[64:ff9b::8.8.8.8]/", "64:ff9b::808:808", 443, "https://[64:ff9b::808:808]/"),
    ],
)
def test_a_plain_url_is_taken_to_its_one_form(url: str, host: str, port: int, text: str) -> None:
    found = GUARD.check(url)
    assert (found.host, found.port, found.text) == (host, port, text)


_PIECES = (
    "http://", "https://", "//", "/", "?", "#", "@", ":", "[", "]", "%", "%2e", "\\", ".", "。", "-", "_", "\t", " ",
    "\u200b",
    "hooks", "example", "localhost", "xn--", "xn--bcher-kva", "bücher", "ß", "İ", "K", "１", "0x7f", "127", "0177",
    "1", "80", "443",
    "::1", "::ffff:1.1.1.1", "2606:4700::1111", "8.8.8.8", "א", "α", "١", "a",
)  # fmt: skip


_pieces = st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=9).map("".join)
_hosts = st.lists(st.sampled_from(_PIECES) | st.text(min_size=1, max_size=2), min_size=1, max_size=4).map(".".join)


@given(
    _pieces
    | st.builds(
        "http{}://{}{}/{}".format, st.sampled_from(("", "s")), _hosts, st.sampled_from(("", ":80", ":443")), _pieces
    )
)
@example("https://bücher.example:443/a?b")
def test_every_parser_reads_the_same_host_out_of_what_is_not_refused(url: str) -> None:
    try:
        found = GUARD.check(url)
    except InvalidRequest:
        return
    assert GUARD.check(found.text) == found
    of_httpx, as_given, of_stdlib = httpx.URL(found.text), httpx.URL(url), urlsplit(found.text)
    assert (of_httpx.raw_host.decode(), as_given.raw_host.decode(), of_stdlib.hostname) == (found.host,) * 3
    for port in (of_httpx.port, as_given.port, of_stdlib.port):
        assert (port or {"http": 80, "https": 443}[found.scheme]) == found.port


# --- addresses --------------------------------------------------------------------------------------------------------

INSIDE4 = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32", "168.63.129.16/32", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24",
)  # fmt: skip
INSIDE6 = (
    "::/128", "::1/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32", "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10",
    "fec0::/10", "ff00::/8",
    "200::/7", "4000::/2", "8000::/2", "::1:0:0:0/80",
)  # fmt: skip


def inside(network: IPv4Network | IPv6Network) -> st.SearchStrategy[IPv4Address | IPv6Address]:
    return st.integers(0, network.num_addresses - 1).map(lambda offset: network[offset])


def forms(address: IPv4Address, rest: int) -> list[IPv6Address]:
    """All IPv6 addresses that stand for an IPv4 one; `rest` fills what is free in them."""
    four, half = int(address), rest % (1 << 64)
    return [
        IPv6Address((0xFFFF << 32) | four),
        IPv6Address((0xFFFF << 48) | four),
        IPv6Address(four),
        IPv6Address((0x64FF9B << 96) | four),
        IPv6Address((0x2002 << 112) | (four << 80) | rest % (1 << 80)),
        IPv6Address((0x2606_4700 << 96) | ((half & 0xFFFF_FFFF) << 64) | (0x5EFE << 32) | four),
        IPv6Address((0x2606_4700 << 96) | ((half & 0xFFFF_FFFF) << 64) | (0x0200_5EFE << 32) | four),
    ]


@given(st.sampled_from(INSIDE4).map(ip_network).flatmap(inside), st.integers(0, (1 << 80) - 1))
def test_an_inside_ipv4_address_is_refused_in_every_form(address: IPv4Address, rest: int) -> None:
    for form in (address, *forms(address, rest)):
        assert GUARD.refusal("hooks.example", 443, str(form)), form


@given(st.sampled_from(INSIDE6).map(ip_network).flatmap(inside))
def test_an_inside_ipv6_address_is_refused(address: IPv6Address) -> None:
    assert GUARD.refusal("hooks.example", 443, str(address))
    assert GUARD.refusal("hooks.example", 443, f"{address}%eth0")


@pytest.mark.parametrize("network", INSIDE4 + INSIDE6)
def test_a_refused_network_is_refused_from_its_first_address_to_its_last(network: str) -> None:
    found = ip_network(network)
    assert GUARD.refusal("hooks.example", 443, str(found[0]))
    assert GUARD.refusal("hooks.example", 443, str(found[-1]))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "100.63.255.255", "11.0.0.0", "223.255.255.255"]
)
def test_an_outside_address_is_allowed_in_every_form(address: str) -> None:
    for form in (address, *forms(IPv4Address(address), 1 << 70)):
        assert GUARD.refusal("hooks.example", 443, str(form)) is None, form


@pytest.mark.parametrize("address", ["2606:4700::1111", "2a00:1450:4001::5efe", "2400::", "2001:200::1", "2003::1"])
def test_an_outside_ipv6_address_is_allowed_unless_it_has_a_zone(address: str) -> None:
    assert GUARD.refusal("hooks.example", 443, address) is None
    assert GUARD.refusal("hooks.example", 443, f"{address}%1")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("169.254.169.254", "a cloud's metadata service"),
        ("fd00:ec2::254", "a cloud's metadata service"),
        ("127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "10.0.0.1 (private)"),
        ("64:ff9b::a9fe:a9fe", "169.254.169.254 (a cloud's metadata service)"),
        ("2001:0:1::1", "Teredo"),
    ],
)
def test_the_refusal_of_an_address_says_what_it_is(address: str, reason: str) -> None:
    assert reason in (GUARD.refusal("hooks.example", 443, address) or "")


# --- the allow-list ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("10.0.0.0/8", "http://10.1.2.3/"),
        ("10.0.0.0/8", "http://[::ffff:10.1.2.3]/"),
        ("10.1.2.3:9000", "http://10.1.2.3:9000/"),
        ("fd00::/8", "http://[fd00::1]/"),
        ("[fd00::1]:9000", "http://[fd00::1]:9000/"),
        ("[fd00::/8]:9000", "http://[fd00::1]:9000/"),
        ("x.example, receiver:9000", "http://receiver:9000/"),
        ("Receiver", "http://receiver/"),
        ("localhost:9000", "http://localhost:9000/"),
        ("*.svc.internal", "http://a.b.svc.internal/"),
        ("*.svc.internal:9000", "http://a.svc.internal:9000/"),
        ("bücher.local", "http://xn--bcher-kva.local/"),
        ("10.0.0.0/8:9000", "http://hooks.example:9000/"),  # its address decides
    ],
)
def test_what_the_allow_list_names_may_be_called(allow: str, url: str) -> None:
    Guard.of(allow, "80").check(url)
    assert refusal(url, Guard.of("", "80")), "else this proves nothing"


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("10.0.0.0/8", "http://11.0.0.1:9000/"),
        ("10.0.0.0/8", "http://10.0.0.1:9000/"),
        ("10.0.0.0/8:9000", "http://10.0.0.1/"),
        ("10.0.0.0/8:9000", "http://8.8.8.8:9000/"),
        ("10.0.0.0/8", "http://localhost/"),
        ("127.0.0.1", "http://[::1]/"),
        ("receiver:9000", "http://receiver/"),
        ("receiver:9000", "http://other:9000/"),
        ("*.svc.internal", "http://svc.internal/"),
        ("*.svc.internal", "http://evilsvc.internal/"),
        ("svc.internal", "http://a.svc.internal/"),
        ("10.0.0.0/8, receiver", "http://012.0.0.1/"),
        ("receiver", "http://user@receiver/"),
    ],
)
def test_what_the_allow_list_does_not_name_is_still_refused(allow: str, url: str) -> None:
    assert refusal(url, Guard.of(allow, "80"))


def test_an_allowed_host_may_have_any_address_and_an_allowed_address_any_host() -> None:
    guard = Guard.of("receiver.internal, 10.0.0.0/8:9000", "80")
    assert guard.refusal("receiver.internal", 80, "169.254.169.254") is None
    assert guard.refusal("hooks.example", 9000, "10.0.0.1") is None
    assert guard.refusal("hooks.example", 9000, "64:ff9b::10.0.0.1") is None


def test_a_port_that_only_an_inside_network_has_is_no_port_of_the_outside() -> None:
    guard = Guard.of("10.0.0.0/8:9000", "80")
    guard.check("http://hooks.example:9000/")
    assert "port 9000" in (guard.refusal("hooks.example", 9000, "8.8.8.8") or "")
    with pytest.raises(InvalidRequest, match="port 9000"):
        guard.check("http://hooks.example:9000/", unseen=True)


@pytest.mark.parametrize(
    "entry",
    [
        "10.0.0.1/8", "10.0.0.0/33", "1.2.3", "127.1", "*", "*.", "a.*.b", "a_b", "http://x", "x:0", "x:y",
        "x:65536", "fd00::/8/9", "[::1", "::1]", "x/8", "host.",
    ],
)  # fmt: skip
def test_a_bad_entry_is_named(entry: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Guard.of(f"10.0.0.0/8, {entry}", "80")
    assert repr(entry) in refused.value.message


@pytest.mark.parametrize("ports", ["x", "0", "80;443", "65536", "80-90"])
def test_bad_ports_are_named(ports: str) -> None:
    with pytest.raises(InvalidRequest, match=ports):
        Guard.of("", ports)
