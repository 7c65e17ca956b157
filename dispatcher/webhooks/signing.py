"""The headers that prove where a delivery comes from, as https://www.standardwebhooks.com wants them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook


def signed(webhook_id: str, payload: bytes, secrets: Sequence[str], at: datetime) -> dict[str, str]:
    """`webhook-id`, `-timestamp` and `-signature`: one signature for each secret that is in force, the newest first.

    `at` is the time of this attempt, and must know its time zone. Raises ValueError if it does not.
    """
    if at.tzinfo is None:
        raise ValueError("a time without a time zone cannot be signed")
    text = payload.decode()
    # standardwebhooks takes any time for one in UTC, whatever zone it names
    at = datetime.fromtimestamp(int(at.timestamp()), tz=UTC)
    signatures = (Webhook(secret).sign(webhook_id, at, text) for secret in secrets)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
