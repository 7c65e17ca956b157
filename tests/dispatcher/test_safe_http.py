"""A webhook reaches the very address that was checked, or nothing at all."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import httpx
import pytest

from dispatcher.webhooks.attempt import words
from dispatcher.webhooks.safe_http import Refused, SafeTransport
from fairlane.safe_url import Guard
from tests.dispatcher.receivers import client_tls, drip, nothing, receiver

METADATA = "169.254.169.254"


class Names:
    """A resolver that gives its answers one after the other, the last for ever, and keeps what it was asked."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


@asynccontextmanager
async def client(
    allow: str = "",
    names: Names | None = None,
    *,
    proxy: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float | None = 5,  # noqa: ASYNC109
    ports: str = "80,443",
) -> AsyncIterator[httpx.AsyncClient]:
    transport = SafeTransport(Guard.of(allow, ports), proxy=proxy, tls=tls, resolve=names)
    async with httpx.AsyncClient(transport=transport, timeout=timeout) as made:
        yield made


def line(head: Sequence[str], name: str) -> str | None:
    return next((text.partition(":")[2].strip() for text in head if text.lower().startswith(f"{name}:")), None)


# --- what is connected to ---------------------------------------------------------------------------------------------


async def test_a_name_that_changes_its_answer_after_the_check_leads_nowhere_else() -> None:
    names = Names(["127.0.0.1"], [METADATA])
    async with receiver() as there, client(f"127.0.0.1:{there.port}", names) as http:
        url = f"http://rebind.example:{there.port}/hook"
        async with http.stream("POST", url, content=b"{}") as answer:
            assert answer.extensions["network_stream"].get_extra_info("server_addr") == ("127.0.0.1", there.port)
        assert (names.asked, there.bodies) == (["rebind.example"], [b"{}"])
        with pytest.raises(Refused, match=METADATA) as refused:
            await http.post(url)
        assert words(refused.value).startswith("refused: rebind.example may not be called")
        assert (len(names.asked), len(there.heads)) == (2, 1)


async def test_each_request_looks_its_name_up_once_and_has_a_connection_of_its_own() -> None:
    names = Names(["127.0.0.1"])
    async with receiver() as there, client(f"127.0.0.1:{there.port}", names) as http:
        for _ in range(3):
            assert (await http.post(f"http://hooks.example:{there.port}/")).text == "ok"
        assert len(names.asked) == 3
        await there.until_open(0)


@pytest.mark.parametrize(
    "inside", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", METADATA, "64:ff9b::7f00:1", "fe80::1%eth0"]
)
async def test_a_name_with_inside_addresses_only_is_refused_and_nothing_is_connected_to(inside: str) -> None:
    async with receiver() as there, client(names=Names([inside, inside]), ports=str(there.port)) as http:
        with pytest.raises(Refused, match=r"hooks\.example may not be called: .*is"):
            await http.post(f"http://hooks.example:{there.port}/")
        assert not there.heads


async def test_of_several_addresses_only_the_allowed_ones_are_connected_to() -> None:
    async with receiver() as there, receiver(host="127.0.0.2", port=there.port) as inside:
        names = Names(["127.0.0.2", METADATA, "127.0.0.1"])
        async with client(f"127.0.0.1:{there.port}", names) as http:
            assert (await http.post(f"http://hooks.example:{there.port}/")).text == "ok"
        assert (len(there.heads), len(inside.heads)) == (1, 0)


async def test_the_next_address_is_tried_if_one_refuses_the_connection() -> None:
    async with receiver() as there, client(f"127.0.0.0/8:{there.port}", Names(["127.0.0.3", "127.0.0.1"])) as http:
        assert (await http.post(f"http://hooks.example:{there.port}/")).text == "ok"


@contextmanager
def deaf(host: str, port: int) -> Iterator[None]:
    """An address that answers no attempt to connect: the queue of its listener is full."""
    with socket.socket() as listener:
        listener.bind((host, port))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex((host, port))
        try:
            yield
        finally:
            for one in waiting:
                one.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2, and Linux's way with a full queue")
async def test_a_dead_address_leaves_the_others_their_share_of_the_time() -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    async with receiver() as there, client(f"127.0.0.0/8:{there.port}", names, timeout=1) as http:
        with deaf("127.0.0.2", there.port):
            assert (await http.post(f"http://hooks.example:{there.port}/")).text == "ok"
            with pytest.raises(httpx.ConnectTimeout):
                await http.post(f"http://127.0.0.2:{there.port}/")


async def test_an_address_is_not_looked_up() -> None:
    names = Names(OSError())
    async with receiver() as there, client(f"127.0.0.1:{there.port}", names) as http:
        assert (await http.post(f"http://127.0.0.1:{there.port}/")).text == "ok"
    assert not names.asked


async def test_a_url_that_was_kept_since_before_the_rules_is_checked_again() -> None:
    async with receiver() as there, client(ports=str(there.port)) as http:
        for url in (f"http://127.0.0.1:{there.port}/", f"http://u:p@hooks.example:{there.port}/", "http://localhost/"):
            with pytest.raises(Refused, match="cannot be called"):
                await http.post(url)
        assert not there.heads


async def test_the_system_looks_names_up_if_nobody_else_does() -> None:
    async with receiver() as there, client(f"localhost:{there.port}") as http:
        assert (await http.post(f"http://localhost:{there.port}/")).text == "ok"


async def test_an_unknown_name_is_no_mystery() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    async with client(names=Names(unknown)) as http:
        with pytest.raises(httpx.ConnectError, match="Name or service not known") as failed:
            await http.post("http://hooks.example/")
    assert words(failed.value) == "the host's name was not found: Name or service not known"


@pytest.mark.parametrize("answers", [[], OSError("broken")])
async def test_a_name_without_addresses_fails(answers: Sequence[str] | OSError) -> None:
    async with client(names=Names(answers)) as http:
        with pytest.raises(httpx.ConnectError):
            await http.post("http://hooks.example/")


# --- HTTP and TLS -----------------------------------------------------------------------------------------------------


async def test_host_and_tls_go_by_the_name_not_by_the_address() -> None:
    names = Names(["127.0.0.1"])
    async with receiver(tls=True) as there, client(f"127.0.0.1:{there.port}", names, tls=client_tls()) as http:
        answer = await http.post(f"https://receiver.example:{there.port}/a?b=c", content=b"{}")
        assert answer.text == "ok"
        assert there.names == ["receiver.example"]
        assert there.heads[0][0] == "POST /a?b=c HTTP/1.1"
        assert line(there.heads[0], "host") == f"receiver.example:{there.port}"


async def test_a_certificate_of_another_name_is_not_accepted() -> None:
    names = Names(["127.0.0.1"])
    async with receiver(tls=True) as there, client(f"127.0.0.1:{there.port}", names, tls=client_tls()) as http:
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await http.post(f"https://other.example:{there.port}/")
        with pytest.raises(httpx.ConnectError, match="certificate"):
            await http.post(f"https://other.example:{there.port}/", extensions={"sni_hostname": "receiver.example"})
        assert not there.heads


async def test_a_certificate_of_nobody_known_is_not_accepted() -> None:
    async with receiver(tls=True) as there, client(f"127.0.0.1:{there.port}", Names(["127.0.0.1"])) as http:
        with pytest.raises(httpx.ConnectError) as failed:
            await http.post(f"https://receiver.example:{there.port}/")
        assert words(failed.value).startswith("certificate not accepted")


async def test_a_redirect_to_the_inside_is_not_followed() -> None:
    moved = f"HTTP/1.1 307 Moved\r\nlocation: http://{METADATA}/\r\ncontent-length: 0\r\n\r\n".encode()
    async with receiver(moved) as there, client(f"127.0.0.1:{there.port}") as http:
        assert (await http.post(f"http://127.0.0.1:{there.port}/")).status_code == 307
        with pytest.raises(Refused, match="metadata"):  # also by a client that would follow it
            await http.post(f"http://127.0.0.1:{there.port}/", follow_redirects=True)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"HTTP/1.1 200 OK\r\n" + b"a:\r\n" * 24_000,
        b"HTTP/1.1 103 \r\n\r\n" * 9999,
    ],
    ids=["a long header", "many headers", "early hints without end"],
)
async def test_a_receiver_that_says_too_much_is_cut_off(raw: bytes) -> None:
    """Found by attack: ten of them held up the loop for seconds."""
    async with receiver(raw) as there, client(f"127.0.0.1:{there.port}") as http:
        with pytest.raises(httpx.ReadError, match="more than 32 KB"):
            await http.post(f"http://127.0.0.1:{there.port}/")


async def test_what_is_no_http_fails_as_httpx_would_say_it() -> None:
    async with receiver(b"SSH-2.0-x\r\n\r\n") as there, client(f"127.0.0.1:{there.port}") as http:
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(f"http://127.0.0.1:{there.port}/")


async def test_a_refused_connection_is_a_connect_error() -> None:
    async with receiver() as there:
        port = there.port
    async with client(f"127.0.0.1:{port}") as http:
        with pytest.raises(httpx.ConnectError) as failed:
            await http.post(f"http://127.0.0.1:{port}/")
    assert not isinstance(failed.value, Refused)


# --- proxies ----------------------------------------------------------------------------------------------------------


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with receiver() as there, client(f"127.0.0.1:{there.port}") as http:
        assert (await http.post(f"http://127.0.0.1:{there.port}/")).text == "ok"


async def test_with_a_proxy_everything_goes_there_and_names_are_looked_up_there() -> None:
    names = Names(OSError())
    async with receiver() as proxy, client(names=names, proxy=f"http://user:p%40ss@127.0.0.1:{proxy.port}") as http:
        assert (await http.post("http://hooks.example/a?b")).text == "ok"
        assert proxy.heads[0][0] == "POST http://hooks.example/a?b HTTP/1.1"
        assert line(proxy.heads[0], "host") == "hooks.example"
        login = base64.b64encode(b"user:p@ss").decode()
        assert line(proxy.heads[0], "proxy-authorization") == f"Basic {login}"
    assert not names.asked


async def test_https_goes_through_a_proxy_as_a_tunnel() -> None:
    refuses = b"HTTP/1.1 403 Not for you\r\ncontent-length: 0\r\n\r\n"
    async with receiver(refuses) as proxy, client(proxy=f"http://127.0.0.1:{proxy.port}") as http:
        with pytest.raises(httpx.ProxyError, match="403"):
            await http.post("https://hooks.example/")
        assert proxy.heads[0][0] == "CONNECT hooks.example:443 HTTP/1.1"


@pytest.mark.parametrize(
    "url", [f"http://{METADATA}/", "http://10.0.0.1/", "http://localhost/", "http://hooks.example:9000/", "http://[2606:4700::1]/"]
)  # fmt: skip
async def test_a_proxy_is_not_even_asked_for_what_is_plainly_inside(url: str) -> None:
    async with receiver() as proxy, client("10.1.0.0/16:9000", proxy=f"http://127.0.0.1:{proxy.port}") as http:
        with pytest.raises(Refused):
            await http.post(url)
        assert not proxy.heads


# --- time -------------------------------------------------------------------------------------------------------------


async def test_a_slow_drip_ends_when_the_caller_says_so_and_its_connection_with_it() -> None:
    async with receiver(drip) as there, client(f"127.0.0.1:{there.port}", timeout=None) as http:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await http.post(f"http://127.0.0.1:{there.port}/")
        await there.until_open(0)


async def test_an_answer_of_which_only_the_beginning_is_read_ends_with_its_connection() -> None:
    async with receiver(drip) as there, client(f"127.0.0.1:{there.port}", timeout=None) as http:
        async with http.stream("POST", f"http://127.0.0.1:{there.port}/") as answer:
            async for _ in answer.aiter_raw():
                break
        await there.until_open(0)


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with receiver(nothing) as there, client(f"127.0.0.1:{there.port}", timeout=None) as http:
        request = asyncio.create_task(http.post(f"http://127.0.0.1:{there.port}/"))
        await there.until_open(1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await there.until_open(0)


async def test_a_request_that_is_cancelled_during_tls_closes_its_connection() -> None:
    # a receiver without TLS waits for the end of a head, and so never answers the handshake
    async with receiver() as there, client(f"127.0.0.1:{there.port}", timeout=None) as http:
        request = asyncio.create_task(http.post(f"https://127.0.0.1:{there.port}/"))
        await there.until_open(1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await there.until_open(0)


async def test_a_look_up_that_hangs_ends_with_the_time_to_connect() -> None:
    async def hangs(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    transport = SafeTransport(Guard.of("", "80"), resolve=hangs)
    async with httpx.AsyncClient(transport=transport, timeout=0.1) as http:
        with pytest.raises(httpx.ConnectTimeout):
            await http.post("http://hooks.example/")


async def test_a_silent_receiver_is_a_read_timeout() -> None:
    async with receiver(nothing) as there, client(f"127.0.0.1:{there.port}", timeout=0.1) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.post(f"http://127.0.0.1:{there.port}/")
        await there.until_open(0)
