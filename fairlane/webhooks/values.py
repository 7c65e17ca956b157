"""Webhook endpoints as values: events and filters, and what may be said of an endpoint or of a job's own hook."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from fairlane.errors import InvalidRequest
from fairlane.safe_url import Guard

JOB_EVENTS: Final = ("job.succeeded", "job.failed", "job.cancelled", "job.expired")
BATCH_EVENTS: Final = ("batch.completed", "batch.failed", "batch.expired", "batch.cancelled")
TEST: Final = "webhook.test"
DISABLED: Final = "webhook_endpoint.disabled"
EVENTS: Final = (*JOB_EVENTS, *BATCH_EVENTS, TEST, DISABLED)
ALL: Final = ("*",)
FILTERS: Final = (*ALL, "job.*", "batch.*", *EVENTS)  # what an endpoint may ask for, in the order in which it is kept
DEFAULT: Final = "default"  # names the secret that signs for hooks without their own

HEADERS_MOST: Final = 20
HEADERS_BYTES: Final = 4 << 10
URL_MOST: Final = 2048
DESCRIPTION_MOST: Final = 200
SECRET_BYTES: Final = 32
OVERLAP_S: Final = 86_400.0
OVERLAP_MOST_S: Final = 7 * 86_400.0
_SECRET_MARK: Final = "whsec_"  # noqa: S105
_SECRET_BYTES: Final = range(24, 65)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")  # RFC 9110, 5.6.2
_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
# The sender's own, those that steer the connection, and those that an outbound proxy would take for its own.
_OURS: Final = re.compile(
    r"(webhook|content|proxy)-.*|host|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|user-agent"
    r"|accept-encoding",
    re.IGNORECASE,
)

DisabledReason = Literal["asked", "gone", "failing"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a tenant wants events sent. `events` are types, or `job.*`, `batch.*`, `*`. Times in Unix milliseconds.

    `disabled_reason`: it was `asked` for, the receiver said that it is `gone` (410), or it was `failing` for days.
    `failing_since_ms` is when the first attempt failed since the last one that did not. The `last_…` are of its latest
    attempt; `last_status` is None if nothing answered. `shut_until_ms`: nothing goes there before that, since too much
    has failed, or the receiver asked for a pause. Headers may hold credentials; secrets are not here at all.
    """

    id: str
    tenant: str
    url: str
    events: tuple[str, ...]
    description: str
    headers: Mapping[str, str] = field(repr=False)
    enabled: bool
    disabled_reason: DisabledReason | None
    created_at_ms: int
    failing_since_ms: int | None
    last_attempt_at_ms: int | None
    last_status: int | None
    shut_until_ms: int | None

    def wants(self, event: str) -> bool:
        """Whether events of this type are to be sent to it, as long as it is enabled."""
        return wants(self.events, event)


def endpoint(id_: str, kept: Mapping[str, bytes]) -> Endpoint:
    """An endpoint from its hash, which lua/lib/endpoint.lua describes."""

    def whole(name: str) -> int | None:
        return int(kept[name]) if kept.get(name) else None

    enabled = kept["enabled"] == b"1"
    return Endpoint(
        id=id_,
        tenant=kept["tenant"].decode(),
        url=kept["url"].decode(),
        events=tuple(kept["events"].decode().split(" ")),
        description=kept["description"].decode(),
        headers=cast("dict[str, str]", json.loads(kept["headers"])),
        enabled=enabled,
        disabled_reason=None if enabled else cast("DisabledReason", kept["reason"].decode()),
        created_at_ms=int(kept["created"]),
        failing_since_ms=whole("failing_since"),
        last_attempt_at_ms=whole("last_at"),
        last_status=whole("last_status"),
        shut_until_ms=whole("shut_until"),
    )


def wants(events: Collection[str], event: str) -> bool:
    """Whether a filter lets a type pass."""
    return event in events or "*" in events or f"{event.partition('.')[0]}.*" in events


def new_secret() -> str:
    """`whsec_` and base64, as Standard Webhooks has it."""
    return _SECRET_MARK + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


# --- checks: each raises InvalidRequest, and those that change the form of a value return it as it is kept ------------


def check_own(webhook: Mapping[str, object], guard: Guard) -> None:
    """A job's or batch's own hook: `{"url", "secret"?, "headers"?}`. Raises InvalidRequest, which names the part."""
    for name in webhook:
        if name not in ("url", "secret", "headers"):
            raise InvalidRequest(f"A webhook has no {name[:50]!r}. It has url, secret, headers.", param="webhook")
    if "url" not in webhook:
        raise InvalidRequest("A webhook has a url.", param="webhook.url")
    check_url(webhook["url"], guard, "webhook.url")
    if (secret := webhook.get("secret")) is not None:
        check_secret(secret, "webhook.secret")
    if (headers := webhook.get("headers")) is not None:
        packed_headers(headers, "webhook.headers")


def check_url(url: object, guard: Guard, param: str = "url") -> str:
    """One that the guard allows, as it was given."""
    if not isinstance(url, str) or len(url) > URL_MOST:
        raise InvalidRequest(f"A webhook's url is a text of {URL_MOST} characters at the most.", param=param)
    try:
        guard.check(url)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param=param) from error
    return url


def check_secret(secret: object, param: str = "secret") -> str:
    """The message never quotes it."""
    wrong = InvalidRequest(
        f"A secret is {_SECRET_MARK} and base64, with padding, of {_SECRET_BYTES[0]} to {_SECRET_BYTES[-1]} bytes.",
        param=param,
    )
    if not isinstance(secret, str) or not secret.isascii() or not secret.startswith(_SECRET_MARK):
        raise wrong
    text = secret.removeprefix(_SECRET_MARK)
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise wrong from None
    if len(raw) not in _SECRET_BYTES or base64.b64encode(raw).decode() != text:
        raise wrong
    return secret


def check_description(description: object) -> str:
    if not isinstance(description, str) or len(description) > DESCRIPTION_MOST or not description.isprintable():
        raise InvalidRequest(
            f"A description has {DESCRIPTION_MOST} printable characters at the most.", param="description"
        )
    return description


def packed_events(events: Collection[str]) -> str:
    """A filter as it is stored: each once, in the order of FILTERS."""
    if isinstance(events, str) or not events or not all(name in FILTERS for name in events):
        raise InvalidRequest(f"events is a list of one or more of {', '.join(FILTERS)}.", param="events")
    return " ".join(name for name in FILTERS if name in events)


def packed_headers(headers: object, param: str = "headers") -> str:
    """Headers as they are stored: JSON, by name. The messages never quote a value."""
    if not isinstance(headers, Mapping) or len(cast("Mapping[object, object]", headers)) > HEADERS_MOST:
        raise InvalidRequest(f"headers is an object of {HEADERS_MOST} texts at the most.", param=param)
    found: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", headers).items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise InvalidRequest("The name of a header is letters, digits and hyphens.", param=param)
        if _OURS.fullmatch(name):
            raise InvalidRequest(f"The header {name!r} is set by the sender. Leave it out.", param=param)
        if not isinstance(value, str) or (value and not _VALUE.fullmatch(value)):
            raise InvalidRequest(f"The value of the header {name!r} is printable ASCII.", param=param)
        found[name] = value
    if len({name.lower() for name in found}) < len(found):
        raise InvalidRequest("A header is named twice.", param=param)
    if sum(len(name) + len(value) for name, value in found.items()) > HEADERS_BYTES:
        raise InvalidRequest(f"All headers have {HEADERS_BYTES} bytes at the most.", param=param)
    return json.dumps(dict(sorted(found.items())), separators=(",", ":"))
