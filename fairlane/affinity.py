"""What prompts have in common at their beginning, as hashes: one backend should get those, and has them in its cache.

The blocks grow, so that eight hashes tell a short system prompt apart from a long conversation: a backend's cache of
prefixes holds blocks of some tokens, and what matters is roughly how far two prompts agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, cast

BLOCKS: Final = tuple(256 << n for n in range(8))  # bytes from the prompt's start: 256 to 32 Ki
DIGEST: Final = 8  # bytes: two of a million prefixes are taken for one with a chance of 3·10⁻⁸, and that does no harm
_END: Final = b"\x1e"  # of each part, so that the same letters cut elsewhere are another prompt


def prefixes(endpoint: str, body: Mapping[str, Any]) -> tuple[str, ...]:
    """The hashes (hex) of the prompt's leading BLOCKS, the shortest first; none for a prompt shorter than the first.

    `body` is an OpenAI-shaped request. Its model and tools count, since servers put them before the messages. An
    embedding has no prefix that would be computed once for many.
    """
    if endpoint == "/v1/embeddings":
        return ()
    digest, length, found = blake2b(digest_size=DIGEST), 0, list[str]()
    for part in _parts(body):
        while part and len(found) < len(BLOCKS):
            piece = part[: BLOCKS[len(found)] - length]
            part = part[len(piece) :]
            digest.update(piece)
            length += len(piece)
            if length == BLOCKS[len(found)]:
                found.append(digest.hexdigest())
        if len(found) == len(BLOCKS):
            break
    return tuple(found)


def _parts(body: Mapping[str, Any]) -> Iterator[bytes]:
    """What the server makes its prompt of, in that order."""
    yield _bytes(body.get("model")) + _END
    if tools := body.get("tools"):
        yield _bytes(tools) + _END
    if instructions := body.get("instructions"):
        yield from _message({"role": "system", "content": instructions})
    said: object = body.get("messages", body.get("input"))
    if isinstance(said, list):
        for message in cast("list[object]", said):
            yield from _message(message)
    elif said is not None:
        yield from _message({"role": "user", "content": said})
    else:
        yield _bytes(body.get("prompt"))


def _message(message: object) -> Iterator[bytes]:
    """A message's role, content, and the rest. Texts as a list of parts are the same prompt as one text."""
    if not isinstance(message, dict):
        yield _bytes(message) + _END
        return
    fields = cast("dict[str, object]", message)
    yield _bytes(fields.get("role")) + _END
    content = fields.get("content")
    for part in cast("list[object]", content) if isinstance(content, list) else [content]:
        text = cast("dict[str, object]", part).get("text") if isinstance(part, dict) else part
        yield _bytes(text if isinstance(text, str) else cast(object, part))
    rest = {name: value for name, value in fields.items() if name not in ("role", "content")}
    yield (_bytes(rest) if rest else b"") + _END


def _bytes(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)
    return text.encode(errors="surrogatepass")
