"""Webhooks as their receivers get them: is this from who knows the secret? https://www.standardwebhooks.com"""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from fairlane.errors import InvalidRequest, WebhookInvalid

TOLERANCE_S: Final = 300.0
_TIME: Final = re.compile(r"\d{1,11}", re.ASCII)


def verify_webhook(
    payload: bytes | str,
    headers: Mapping[str, str],
    secret: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE_S,
) -> Mapping[str, Any]:
    """The event `{"type", "timestamp", "data"}` that a webhook tells of, if it is genuine.

    `payload` is the request's body as it came, not parsed and written again. `headers` may have other names too, in any
    case. `secret` is the endpoint's (`whsec_…`); several of them while it is changed: any one will do. `tolerance` is
    how many seconds its time may be off. An event may come more than once, always with the same `webhook-id`.

    Raises WebhookInvalid; InvalidRequest if a secret is none.
    """
    given = {name.lower(): value for name, value in headers.items()}
    try:
        id_, time_, signatures = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as error:
        raise WebhookInvalid(f"The header {error.args[0]!r} is missing.") from error
    text = _text(payload)
    sent_at = _recent(time_, tolerance)
    expected = [signature_of(one, id_, sent_at, text).encode() for one in _secrets(secret)]
    said = [one.encode() for one in signatures.split()]
    if not any(hmac.compare_digest(wanted, one) for wanted in expected for one in said):
        raise WebhookInvalid()
    try:
        event: object = json.loads(text)
    except ValueError as error:
        raise WebhookInvalid(f"It is signed, but no JSON: {error}.") from error
    if not isinstance(event, dict):
        raise WebhookInvalid("It is signed, but no event.")
    return cast("dict[str, Any]", event)


def _secrets(given: object) -> list[str]:
    """What is wrong with them is a fault of this receiver: said as it was, it would look like a forged event."""
    secrets = [given] if isinstance(given, str) else list(cast("Iterable[object]", given or ()))
    if not secrets:
        raise InvalidRequest("Give the endpoint's secret.", param="secret")
    for one in secrets:
        if not isinstance(one, str) or not one.startswith("whsec_"):
            raise InvalidRequest("This is no secret of a webhook: it is `whsec_` and base64.", param="secret")
    return cast("list[str]", secrets)


def _text(payload: bytes | str) -> str:
    try:
        return payload if isinstance(payload, str) else payload.decode()
    except UnicodeDecodeError as error:
        raise WebhookInvalid("The payload is no UTF-8.") from error


def _recent(said: str, tolerance_s: float) -> int:
    """The time that the sender says, in Unix seconds, if it is about now."""
    if not _TIME.fullmatch(said):
        raise WebhookInvalid("Its time is no number of seconds.")
    if abs(time.time() - int(said)) > tolerance_s:
        raise WebhookInvalid(f"Its time is more than {tolerance_s:g} s off: it may have been sent before by another.")
    return int(said)


def signature_of(secret: str, id_: str, sent_at: int, text: str) -> str:
    """`v1,<base64>`, of a time in Unix seconds.

    (Webhook.verify knows 5 minutes only, and stumbles over signatures of another kind.)
    """
    try:
        from standardwebhooks import Webhook
        from standardwebhooks.webhooks import EmptyWebhookSecretError
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "verify_webhook needs standardwebhooks: pip install 'fairlane[client]'.", name="standardwebhooks"
        ) from missing
    try:
        signer = Webhook(secret)
    except (EmptyWebhookSecretError, ValueError, TypeError) as error:
        raise InvalidRequest("This is no secret of a webhook: it is `whsec_` and base64.", param="secret") from error
    return signer.sign(id_, datetime.fromtimestamp(sent_at, UTC), text)
