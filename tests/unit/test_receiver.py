"""The receiver on loopback: what is genuine is heard and thanked for, all else is refused."""

from __future__ import annotations

import socket
from queue import SimpleQueue

import httpx
import pytest

from fairlane.process import PortInUse
from fairlane.receiver import BODY_MOST, Received, Receiver
from fairlane.testing import signed_webhook
from producer.client.postbox import new_secret

EVENT = {"type": "job.succeeded", "data": {"id": "job_1"}}
SECRET = new_secret()


def test_what_is_genuine_is_heard_and_what_is_not_is_refused() -> None:
    heard: SimpleQueue[Received] = SimpleQueue()
    with Receiver(SECRET, heard.put) as receiver, httpx.Client(base_url=receiver.url, trust_env=False) as http:
        body, headers = signed_webhook(EVENT, SECRET)
        assert http.post("/any/path", content=body, headers=headers).status_code == 204
        assert heard.get(timeout=5) == Received("msg_1", EVENT)
        assert http.post("/", content=body + b" ", headers=headers).status_code == 401
        refused = heard.get(timeout=5)
        assert (refused.webhook_id, refused.event) == ("msg_1", None)
        assert refused.error


def test_it_reads_no_more_than_an_event_may_have() -> None:
    heard: SimpleQueue[Received] = SimpleQueue()
    with Receiver(SECRET, heard.put) as receiver, socket.create_connection(("127.0.0.1", receiver.port)) as raw:
        raw.sendall(f"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY_MOST + 1}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413")
    assert heard.empty()


def test_a_port_that_is_in_use_is_named() -> None:
    with Receiver(SECRET, print) as receiver, pytest.raises(PortInUse, match=str(receiver.port)):
        Receiver(SECRET, print, receiver.port)
