"""Profiles one backend: what `fairlane profile URL` does, without a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import httpx

from dispatcher.backends import wire
from dispatcher.backends.address import authorization, base_url, shown
from dispatcher.backends.answer import CallFailed
from dispatcher.simulator.profile import NAME_MOST
from dispatcher.simulator.profiling.asking import Asker
from dispatcher.simulator.profiling.course import Course, Plan, Tell
from dispatcher.simulator.profiling.fit import Fit, fit
from dispatcher.simulator.profiling.refusing import (
    UNAUTHORIZED,
    CannotProfile,
    beginning,
    key_of,
    printable,
    understood,
    words_in,
)
from dispatcher.simulator.profiling.seen import Seen
from fairlane import strictjson
from fairlane.errors import InvalidRequest
from fairlane.model import BackendSpec

LIST_S = 10.0
LIST_MOST = 10_000_000  # bytes
MARGIN = 64  # tokens of a model's length that stay free, beside the answer: prompts are made by estimate


@dataclass(frozen=True, slots=True)
class Served:
    """The model that is asked. `length`: tokens of prompt and answer together, None if the server does not say."""

    model: str
    length: int | None


async def profile(
    url: str, plan: Plan, *, model: str | None = None, key_env: str | None = None, tell: Tell
) -> tuple[Fit, Seen]:
    """Loads the backend within the plan's bounds and fits its profile. Raises CannotProfile, InvalidRequest."""
    headers = _headers(url, key_env)
    async with wire.connect(True) as client:
        served = await find(client, url, headers, model)
        plan = bounded(plan, served.length)
        tell(f"{shown(url)}, model {printable(served.model)}: {describe(plan)}")
        seen = await Course(Asker(client, url, served.model, headers), headers, plan, tell).run()
    return fit(seen, printable(served.model)[:NAME_MOST] or "unnamed"), seen


async def find(client: httpx.AsyncClient, url: str, headers: Mapping[str, str], model: str | None) -> Served:
    """The model that is meant: the one that is named, or the only one. Raises CannotProfile, InvalidRequest."""
    where = f"{base_url(url)}/v1/models"
    with understood(url):
        try:
            async with (
                asyncio.timeout(LIST_S),
                client.stream("GET", where, headers={**headers}, timeout=LIST_S) as answer,
            ):
                body = await beginning(answer, LIST_MOST)
        except (httpx.ReadTimeout, TimeoutError):
            raise CannotProfile(f"{shown(where)} gave no answer in {LIST_S:g} s. Is the server well?") from None
    if answer.status_code in UNAUTHORIZED:
        raise CannotProfile(
            f"{shown(where)} answered {answer.status_code}: name the variable that holds its key by --key-env VAR."
        )
    if not answer.is_success:
        raise CannotProfile(
            f"{shown(where)} answered {answer.status_code}, so this is no OpenAI-compatible server. Is the URL right? "
            f"It said: {words_in(body, key_of(headers))}"
        )
    cards = _cards(body, where)
    ids = [card["id"] for card in cards]
    names = printable(", ".join(ids)) or "none"
    if model is None and len(ids) != 1:
        raise InvalidRequest(f"Which model? It serves {names}: say --model NAME.", param="model")
    card = next((card for card in cards if card.get("id") == (model or ids[0])), None)
    if card is None:
        raise InvalidRequest(f"It does not serve {model!r}, but {names}.", param="model")
    length = card.get("max_model_len")
    return Served(card["id"], length if isinstance(length, int) and length > 0 else None)


def bounded(plan: Plan, length: int | None) -> Plan:
    """The plan, its prompts short enough for the model. Raises InvalidRequest."""
    if length is None:
        return plan
    prompt = min(plan.prompt, length - plan.tokens - MARGIN - length // 8)
    if prompt < MARGIN:
        raise InvalidRequest(f"The model takes {length} tokens at the most: say --tokens fewer.", param="tokens")
    return replace(plan, prompt=prompt)


def describe(plan: Plan) -> str:
    """What will be sent, before it is."""
    return (
        f"at most {plan.requests:,} requests in {plan.seconds:g} s, {plan.most} at once, "
        f"prompts of {plan.prompt:,} tokens at the most, answers of {plan.tokens} (one of {2 * plan.tokens} a round)"
    )


def _headers(url: str, key_env: str | None) -> dict[str, str]:
    try:
        return authorization(BackendSpec(url, key_env=key_env))
    except CallFailed as failed:
        raise InvalidRequest(failed.detail, param="key_env") from None


def _cards(body: bytes, where: str) -> list[dict[str, Any]]:
    """Of the models, each with its `id`."""
    try:
        found: Any = strictjson.parse_answer(body)
    except ValueError:
        found = None
    data: Any = cast("dict[str, Any]", found).get("data") if isinstance(found, dict) else None
    if not isinstance(data, list):
        raise CannotProfile(f"{shown(where)} is no list of models, so this is no OpenAI-compatible server.")
    cards = [cast("dict[str, Any]", one) for one in cast("list[Any]", data) if isinstance(one, dict)]
    return [card for card in cards if isinstance(card.get("id"), str)]
