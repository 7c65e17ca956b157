"""What we send is accepted by those who check it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from openai import InvalidWebhookSignatureError, OpenAI
from standardwebhooks import Webhook, WebhookVerificationError

from dispatcher.webhooks.signing import signed
from fairlane import WebhookInvalid, verify_webhook

OLD, NEW, FOREIGN = (f"whsec_{base64.b64encode(bytes([n]) * 32).decode()}" for n in (1, 2, 3))
PAYLOAD = json.dumps(
    {
        "id": "evt_1",
        "object": "event",
        "created_at": 1,
        "type": "batch.completed",
        "data": {"id": "batch_ü"},
    },
    ensure_ascii=False,
).encode()


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_both_secrets_of_a_rotation_are_good(secret: str) -> None:
    headers = signed("msg_1", PAYLOAD, (NEW, OLD), now())
    assert Webhook(secret).verify(PAYLOAD, headers)["id"] == "evt_1"
    assert OpenAI(api_key="x").webhooks.unwrap(PAYLOAD, headers, secret=secret).type == "batch.completed"
    verify_webhook(PAYLOAD, headers, secret)


def test_no_other_secret_is_good() -> None:
    headers = signed("msg_1", PAYLOAD, (NEW, OLD), now())
    with pytest.raises(WebhookVerificationError):
        Webhook(FOREIGN).verify(PAYLOAD, headers)
    with pytest.raises(InvalidWebhookSignatureError):
        OpenAI(api_key="x").webhooks.unwrap(PAYLOAD, headers, secret=FOREIGN)
    with pytest.raises(WebhookInvalid):
        verify_webhook(PAYLOAD, headers, FOREIGN)


def test_a_changed_body_id_or_time_is_noticed() -> None:
    headers = signed("msg_1", PAYLOAD, (NEW,), now())
    later = str(int(headers["webhook-timestamp"]) + 1)
    for changed in ({"webhook-id": "msg_2"}, {"webhook-timestamp": later}):
        with pytest.raises(WebhookVerificationError):
            Webhook(NEW).verify(PAYLOAD, headers | changed)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(PAYLOAD + b" ", headers)


def test_the_time_zone_of_the_sender_does_not_matter() -> None:
    at = now()
    elsewhere = at.astimezone(timezone(timedelta(hours=9)))
    assert signed("msg_1", PAYLOAD, (NEW,), at) == signed("msg_1", PAYLOAD, (NEW,), elsewhere)
    with pytest.raises(ValueError, match="time zone"):
        signed("msg_1", PAYLOAD, (NEW,), at.replace(tzinfo=None))
