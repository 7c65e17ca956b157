"""What a request asks of a backend: which endpoints there are, what of a body is for it, and what that will cost.

All ways in share it: the front door, the client that talks straight to Redis, and the lines of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlane import strictjson
from fairlane.affinity import prefixes
from fairlane.errors import InvalidRequest

RESPONSES: Final = "/v1/responses"
EMBEDDINGS: Final = "/v1/embeddings"
ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", EMBEDDINGS, RESPONSES)
OUTPUT_TOKENS: Final = 256  # of an answer whose length the request does not bound
BYTES_PER_TOKEN: Final = 4
TOKEN_MS: Final = 20  # expected, until the pool's own statistics say better
START_MS: Final = 100
MOST_TOKENS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A body as the backend gets it, what it will probably cost, and the hashes of its prompt's beginning."""

    body: bytes
    input_tokens: int
    output_tokens: int
    expected_ms: int
    prefix: tuple[str, ...]


def asked(endpoint: str, body: Mapping[str, Any], *, with_prefix: bool) -> Asked:
    """Packs a body. Raises InvalidRequest if it cannot be written as JSON."""
    packed_body = packed("body", body)
    output = 0 if endpoint == EMBEDDINGS else _output_tokens(endpoint, body)
    return Asked(
        body=packed_body,
        input_tokens=min(MOST_TOKENS, len(packed_body) // BYTES_PER_TOKEN),
        output_tokens=output,
        expected_ms=START_MS + TOKEN_MS * output,
        prefix=prefixes(endpoint, body) if with_prefix else (),
    )


def for_backend(endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A body without what was meant for us. Raises InvalidRequest for what can be had from no backend."""
    kept = dict(body)
    if endpoint == RESPONSES:
        _check_response(kept)
        kept.pop("background", None)  # who waits for it, and how, is between the caller and us
    kept.pop("service_tier", None)
    kept.pop("priority", None)  # of an engine's queue: how urgent a job is there, its tier and its age say
    return kept


def packed(name: str, value: Mapping[str, Any]) -> bytes:
    """The JSON of the parameter `name`. Raises InvalidRequest."""
    try:
        return strictjson.dump(value)
    except ValueError as error:
        raise InvalidRequest(f"{name} cannot be written as JSON: {error}.", param=name) from error


def _check_response(body: Mapping[str, Any]) -> None:
    if not isinstance(body.get("background"), bool | None):
        raise InvalidRequest("background is true or false.", param="background")
    for name in ("previous_response_id", "conversation"):
        if body.get(name) is not None:
            raise InvalidRequest(f"Nothing is stored that {name} could name. Send the whole `input`.", param=name)


def _output_tokens(endpoint: str, body: Mapping[str, Any]) -> int:
    names = ("max_output_tokens",) if endpoint == RESPONSES else ("max_completion_tokens", "max_tokens")
    bound = next((body[name] for name in names if body.get(name) is not None), None)
    tokens = bound if isinstance(bound, int) and not isinstance(bound, bool) and bound > 0 else OUTPUT_TOKENS
    copies = body.get("n")
    times = copies if isinstance(copies, int) and not isinstance(copies, bool) and copies > 0 else 1
    return min(MOST_TOKENS, min(tokens, MOST_TOKENS) * min(times, 1000))
