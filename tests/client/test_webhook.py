"""Webhooks are believed only if they are signed by who knows the secret, and lately."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

import fairlane
from fairlane.errors import InvalidRequest, WebhookInvalid

SECRET = "whsec_" + base64.b64encode(b"a" * 24).decode()
OTHER = "whsec_" + base64.b64encode(b"b" * 24).decode()
EVENT = {"type": "job.succeeded", "timestamp": "2026-11-30T00:00:00Z", "data": {"id": "job_1", "text": "wörld"}}
PAYLOAD = json.dumps(EVENT, ensure_ascii=False).encode()


def signed(secret: str = SECRET, at: float | None = None, payload: bytes = PAYLOAD) -> dict[str, str]:
    sent = datetime.fromtimestamp(int(time.time() if at is None else at), UTC)
    signature = Webhook(secret).sign("msg_1", sent, payload.decode())
    return {
        "Webhook-Id": "msg_1", "Webhook-Timestamp": str(int(sent.timestamp())), "Webhook-Signature": signature,
    }  # fmt: skip


@pytest.mark.parametrize("payload", [PAYLOAD, PAYLOAD.decode()])
def test_what_is_signed_is_read(payload: bytes | str) -> None:
    assert fairlane.verify_webhook(payload, signed(), SECRET) == EVENT


def test_either_secret_will_do_while_it_is_changed() -> None:
    assert fairlane.verify_webhook(PAYLOAD, signed(OTHER), [SECRET, OTHER]) == EVENT
    both = signed()
    both["Webhook-Signature"] = f"{signed(OTHER)['Webhook-Signature']} {both['Webhook-Signature']}"
    assert fairlane.verify_webhook(PAYLOAD, both, SECRET) == EVENT


@pytest.mark.parametrize("beside", ["v1a,AAAA", "v2,AAAA", "v1,!!!", "nonsense", "v1,a,b", "v1,é"])
def test_signatures_of_other_kinds_do_no_harm(beside: str) -> None:
    headers = signed()
    headers["Webhook-Signature"] = f"{beside} {headers['Webhook-Signature']}"
    assert fairlane.verify_webhook(PAYLOAD, headers, SECRET) == EVENT
    headers["Webhook-Signature"] = beside
    with pytest.raises(WebhookInvalid):
        fairlane.verify_webhook(PAYLOAD, headers, SECRET)


@pytest.mark.parametrize(
    ("payload", "changed"),
    [
        (PAYLOAD + b" ", {}),
        (PAYLOAD.replace(b"job_1", b"job_2"), {}),
        (b"\xff", {}),
        (PAYLOAD, {"Webhook-Id": "msg_2"}),
        (PAYLOAD, {"Webhook-Timestamp": str(int(time.time()) + 100)}),
        (PAYLOAD, {"Webhook-Timestamp": "nan"}),
        (PAYLOAD, {"Webhook-Timestamp": "1e9"}),
        (PAYLOAD, {"Webhook-Timestamp": ""}),
        (PAYLOAD, {"Webhook-Signature": ""}),
    ],
)
def test_what_was_changed_is_not_believed(payload: bytes, changed: dict[str, str]) -> None:
    with pytest.raises(WebhookInvalid) as raised:
        fairlane.verify_webhook(payload, signed() | changed, SECRET)
    assert (raised.value.code, raised.value.status) == ("webhook_invalid", 401)


@pytest.mark.parametrize("name", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_header_that_is_missing_is_named(name: str) -> None:
    headers = signed()
    del headers[name]
    with pytest.raises(WebhookInvalid, match=name.lower()):
        fairlane.verify_webhook(PAYLOAD, headers, SECRET)


@pytest.mark.parametrize("off_s", [-400, 400])
def test_what_is_not_of_now_may_be_sent_again_by_another(off_s: float) -> None:
    headers = signed(at=time.time() + off_s)
    with pytest.raises(WebhookInvalid, match="300 s off"):
        fairlane.verify_webhook(PAYLOAD, headers, SECRET)
    assert fairlane.verify_webhook(PAYLOAD, headers, SECRET, tolerance=500) == EVENT


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_a", "whsec_é", [], None, "abc", [SECRET, None]])
def test_what_is_no_secret_is_the_callers_mistake(secret: Any) -> None:
    with pytest.raises(InvalidRequest, match="secret"):
        fairlane.verify_webhook(PAYLOAD, signed(), secret)


@pytest.mark.parametrize("payload", [b"no JSON", b"[]"])
def test_what_is_signed_but_no_event_is_not_believed(payload: bytes) -> None:
    with pytest.raises(WebhookInvalid, match="signed"):
        fairlane.verify_webhook(payload, signed(payload=payload), SECRET)


def test_a_receiver_needs_no_more_than_the_signatures() -> None:
    program = "import sys, fairlane; fairlane.verify_webhook; print({'httpx', 'redis', 'anyio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "set()"
