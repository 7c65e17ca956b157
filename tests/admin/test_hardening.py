"""What hostile clients, strange proxies and a Redis that is away do to the page: nothing worse than a refusal."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from admin_ui import bridge as bridging
from admin_ui.access import address
from admin_ui.acting import ACTS, Act, Asked, Done, Proposal, act
from admin_ui.app import BODY_MOST, create_app
from admin_ui.bridge import WAITING_MOST, Stores
from admin_ui.serve import AdminOptions, listening
from fairlane.accounts.throttle import origin_of, without_port
from fairlane.audit import state_of
from fairlane.errors import StoreFull, StoreUnavailable
from tests.admin.page import Page

# --- more than a form of ours sends -----------------------------------------------------------------------------------


@pytest.fixture
def served(page: Page) -> Iterator[int]:
    """The page behind its real server; its port."""
    server = listening(page.app, AdminOptions(port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.effective_port
    server.trigger.pull_trigger(server.close)
    thread.join(5)


HEADS = {
    "said": f"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: {900 << 20}\r\n\r\n",
    "in chunks": "POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("how", HEADS)
def test_a_body_beyond_the_bound_is_refused_before_it_has_come(served: int, how: str) -> None:
    """Its first bytes are answered by 413; it would lie on the disk else, whoever sent it."""
    chunk = b"a" * 65_536
    framed = chunk if how == "said" else b"10000\r\n" + chunk + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", served), timeout=10) as sender:
        sender.sendall(HEADS[how].encode())
        sender.settimeout(0.01)
        answer = b""
        while not answer and sent < 8 * BODY_MOST:
            try:
                sent += sender.send(framed)
                answer = sender.recv(100)
            except TimeoutError:
                continue
            except (ConnectionResetError, BrokenPipeError):
                break
    assert sent < 4 * BODY_MOST
    assert not answer or b" 413 " in answer


# --- proxies and headers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["//evil.example", "https://evil.example", "/x//y", "/x\\y", "/a b"])
def test_a_prefix_that_leads_elsewhere_is_refused(page: Page, prefix: str) -> None:
    client = create_app(page.bridge, behind_proxy=1).test_client()
    answer = client.get("/", headers={"X-Forwarded-Prefix": prefix, "Accept": "text/html"})
    assert answer.status_code == 400
    assert "Location" not in answer.headers


@pytest.mark.parametrize("asked_on", ["http://[", "http://[x]/", "\\\\", "//", "javascript:alert(1)"])
def test_a_part_that_is_asked_for_on_no_page_leads_to_the_login(page: Page, asked_on: str) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": asked_on}
    answer = page.app.test_client().get("/jobs", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["HX-Redirect"].startswith("/login")
    assert "evil" not in answer.headers["HX-Redirect"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("203.0.113.9:51234", "203.0.113.9"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::7"),
        ("203.0.113.9", "203.0.113.9"),
        ("unknown", "unknown"),
    ],
)
def test_an_address_counts_without_the_port_that_a_proxy_writes_behind_it(page: Page, written: str, meant: str) -> None:
    assert without_port(written) == meant
    assert origin_of(written) == origin_of(meant)
    with page.app.test_request_context(environ_base={"REMOTE_ADDR": written}):
        assert address() == meant


# --- Redis does not answer --------------------------------------------------------------------------------------------


@pytest.fixture(params=[StoreUnavailable, StoreFull])
def lost(request: pytest.FixtureRequest) -> Iterator[None]:
    """An act whose reply is lost half-way."""

    class Lost(Act):
        async def propose(self, stores: Stores, asked: Asked) -> Proposal:
            return Proposal("Do it?", "Do it", "everything", None, "/")

        async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
            raise request.param()

    act("trial.lost", role="operator")(Lost)
    yield
    del ACTS["trial.lost"]


@pytest.mark.usefixtures("lost")
def test_an_act_whose_reply_is_lost_may_have_been_done_and_the_audit_says_so(page: Page) -> None:
    answer = page.act("trial.lost")
    assert answer.status_code == 503
    assert "may have been done, in whole or in part" in answer.text
    assert "data-retry" not in answer.text, "a reload would do it again"
    (entry,) = page.ask(lambda stores: stores.audit.read(act="trial.lost")).entries
    assert state_of(entry) == "unknown"
    assert "Look before" in entry.words
    assert "unknown" in page.get("/audit").text


def test_a_redis_that_hangs_holds_only_some_of_the_page_s_threads(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridging, "ROOM_S", 0.05)
    inside, go_on = threading.Semaphore(0), threading.Event()

    async def hang(stores: Stores) -> None:
        inside.release()
        await bridging.asyncio.to_thread(go_on.wait)

    threads = [threading.Thread(target=page.bridge.ask, args=(hang,)) for _ in range(WAITING_MOST)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert inside.acquire(timeout=10)
    with pytest.raises(StoreUnavailable):
        page.bridge.ask(hang)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert page.ask(lambda stores: stores.users.user("olga")).name == "olga", "afterwards there is room again"


def test_backends_addresses_are_for_who_sees_all(page: Page) -> None:
    assert "http://b1:8000" in page.get("/pools/llama").text
    assert "http://b1:8000" not in page.as_("otto").get("/pools/llama").text
