"""Profiles one backend: what `fairlane profile URL` does, without a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import httpx

from dispatcher.backends import wire
from dispatcher.backends.address import authorization, base_url, shown
from dispatcher.backends.answer import CallFailed
from dispatcher.simulator.profiling.asking import Asker
from dispatcher.simulator.profiling.course import Course, Plan, Tell
from dispatcher.simulator.profiling.fit import Fit, fit
from dispatcher.simulator.profiling.refusing import SAID_MOST, UNAUTHORIZED, CannotProfile, understood
from dispatcher.simulator.profiling.seen import Seen
from fairlane.errors import InvalidRequest
from fairlane.model import BackendSpec

LIST_S = 10.0
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
        tell(f"{shown(url)}, model {served.model}: {describe(plan)}")
        seen = await Course(Asker(client, url, served.model, headers), headers, plan, tell).run()
    return fit(seen, served.model), seen


async def find(client: httpx.AsyncClient, url: str, headers: Mapping[str, str], model: str | None) -> Served:
    """The model that is meant: the one that is named, or the only one. Raises CannotProfile, InvalidRequest."""
    where = f"{base_url(url)}/v1/models"
    with understood(url):
        try:
            answer = await client.get(where, headers={**headers}, timeout=LIST_S)
        except httpx.ReadTimeout:
            raise CannotProfile(f"{shown(where)} gave no answer in {LIST_S:g} s. Is the server well?") from None
    if answer.status_code in UNAUTHORIZED:
        raise CannotProfile(
            f"{shown(where)} answered {answer.status_code}: name the variable that holds its key by --key-env VAR."
        )
    if not answer.is_success:
        raise CannotProfile(
            f"{shown(where)} answered {answer.status_code}, so this is no OpenAI-compatible server. Is the URL right? "
            f"It said: {answer.text[:SAID_MOST]}"
        )
    cards = _cards(answer)
    names = [str(card.get("id")) for card in cards]
    if model is None and len(names) != 1:
        raise InvalidRequest(f"Which model? It serves {', '.join(names) or 'none'}: say --model NAME.", param="model")
    card = next((card for card in cards if card.get("id") == (model or names[0])), None)
    if card is None:
        raise InvalidRequest(f"It does not serve {model!r}, but {', '.join(names) or 'none'}.", param="model")
    length = card.get("max_model_len")
    return Served(str(card["id"]), length if isinstance(length, int) and length > 0 else None)


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


def _cards(answer: httpx.Response) -> list[dict[str, Any]]:
    try:
        found: Any = answer.json()
    except ValueError:
        found = None
    data: Any = cast("dict[str, Any]", found).get("data") if isinstance(found, dict) else None
    if not isinstance(data, list):
        raise CannotProfile(f"{shown(str(answer.url))} is no list of models, so this is no OpenAI-compatible server.")
    return [cast("dict[str, Any]", one) for one in cast("list[Any]", data) if isinstance(one, dict)]
