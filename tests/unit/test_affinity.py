"""The hashes of a prompt's beginning: equal as far as two prompts are, and never further."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlane.affinity import BLOCKS, prefixes
from fairlane.queue.checks import MOST_HASHES

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def chat(*contents: Any, model: str = "llama", **more: Any) -> tuple[str, ...]:
    roles = ("system", "user", "assistant")
    messages = [{"role": roles[min(i, 2)], "content": content} for i, content in enumerate(contents)]
    return prefixes(CHAT, {"model": model, "messages": messages, **more})


def common(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    assert all(x != y for x, y in zip(a, b, strict=False)) or a[0] == b[0]
    return sum(x == y for x, y in zip(a, b, strict=False))


def test_prompts_share_hashes_as_far_as_they_agree() -> None:
    system = "You are a helpful assistant. " * 100  # 2,900 bytes
    ann, bob = chat(system, "ann's question " * 100), chat(system, "bob's question " * 100)
    assert len(ann) == len(bob) == 5  # 4,096 bytes of about 4,400
    assert common(ann, bob) == 4  # 2,048
    assert common(ann, chat("No. " + system, "ann's question " * 100)) == 0


def test_a_conversation_that_goes_on_keeps_the_hashes_that_it_had() -> None:
    one = chat("s" * 300, "u" * 300)
    assert chat("s" * 300, "u" * 300, "a" * 3000)[: len(one)] == one
    assert len(one) == 2


def test_the_model_and_the_tools_come_first() -> None:
    plain = chat("x" * 300)
    assert common(plain, chat("x" * 300, model="mistral")) == 0
    assert common(plain, chat("x" * 300, tools=[{"type": "function", "function": {"name": "f"}}])) == 0


def test_a_prompt_shorter_than_a_block_has_none_and_no_prompt_has_more_than_may_be() -> None:
    assert chat("short") == ()
    assert prefixes(TEXT, {"model": "llama", "prompt": "x" * 249}) == ()
    assert len(prefixes(TEXT, {"model": "llama", "prompt": "x" * 250})) == 1  # with the model and its end: 256
    long = chat("x" * 1_000_000)
    assert len(long) == len(set(long)) == len(BLOCKS) == MOST_HASHES
    assert all(len(found) == 16 for found in long)


def test_an_embedding_has_none() -> None:
    assert prefixes("/v1/embeddings", {"model": "llama", "input": "x" * 1000}) == ()


def test_a_response_has_those_of_its_input_and_instructions() -> None:
    def response(given: Any, instructions: str = "s" * 300) -> tuple[str, ...]:
        return prefixes("/v1/responses", {"model": "llama", "instructions": instructions, "input": given})

    text = "u" * 1000
    assert response(text) == response([{"role": "user", "content": text}]) == chat("s" * 300, text)
    assert common(response(text), response("v" * 1000)) == 1
    assert common(response(text), response(text, instructions="t" * 300)) == 0


def test_a_text_is_the_same_prompt_as_one_part_with_it() -> None:
    text = "ünïcode 🙂 " * 100
    assert (
        chat(text) == chat([{"type": "text", "text": text}]) == chat([{"type": "text", "text": text[:50]}, text[50:]])
    )
    assert len(chat(text)) == 3


def test_pictures_count() -> None:
    def asking(url: str) -> tuple[str, ...]:
        picture = {"type": "image_url", "image_url": {"url": url}}
        return chat([{"type": "text", "text": "What is it?"}, picture, {"type": "text", "text": "x" * 300}])

    assert common(asking("data:a"), asking("data:b")) == 0
    assert asking("data:a") == asking("data:a")


def test_the_same_letters_in_other_messages_are_another_prompt() -> None:
    assert common(chat("ab", "c" * 300), chat("a", "b" + "c" * 300)) == 0


def test_token_ids_are_a_prompt_too() -> None:
    one = prefixes(TEXT, {"model": "llama", "prompt": list(range(1000))})
    other = prefixes(TEXT, {"model": "llama", "prompt": [*range(999), 0]})
    assert common(one, other) == len(one) - 0 == 4


@given(JSON, JSON)
def test_no_body_breaks_it(prompt: Any, messages: Any) -> None:
    for body in ({"messages": messages}, {"prompt": prompt}, {"messages": [messages], "tools": prompt}):
        found = prefixes(CHAT, body)
        assert found == prefixes(CHAT, json.loads(json.dumps(body)))
        assert len(found) <= MOST_HASHES


@given(st.text(min_size=100, max_size=3000), st.text(max_size=3000), st.text(max_size=3000))
def test_what_follows_a_block_never_changes_it(start: str, one: str, other: str) -> None:
    size = len((start).encode())
    sure = sum(block <= size for block in BLOCKS)
    found = [prefixes(TEXT, {"model": "", "prompt": start + end}) for end in (one, other)]
    assert found[0][:sure] == found[1][:sure]
    if start + one == start + other:
        assert found[0] == found[1]
