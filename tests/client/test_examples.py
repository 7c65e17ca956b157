"""The receivers in examples/ believe what Fairlane sent, handle it once, and refuse all else."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from fairlane.testing import signed_webhook
from producer.client.postbox import new_secret

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET, OLD = new_secret(), new_secret()
EVENT = {"type": "job.succeeded", "data": {"id": "job_1"}}


class Receiver(NamedTuple):
    post: Callable[[bytes, dict[str, str]], int]
    handled: list[str]


def flask_post(module: ModuleType) -> Callable[[bytes, dict[str, str]], int]:
    client = module.app.test_client()
    return lambda body, headers: client.post("/hooks/fairlane", data=body, headers=headers).status_code


def fastapi_post(module: ModuleType) -> Callable[[bytes, dict[str, str]], int]:
    from starlette.testclient import TestClient

    client = TestClient(module.app)
    return lambda body, headers: client.post("/hooks/fairlane", content=body, headers=headers).status_code


@pytest.fixture(params=["flask", "fastapi"])
def receiver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """One of the examples, with two secrets, as while one is rotated."""
    monkeypatch.setenv("FAIRLANE_WEBHOOK_SECRET", f"{SECRET} {OLD}")
    name = f"webhook_{request.param}"
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handled: list[str] = []

    def note(kind: str, data: dict[str, Any]) -> None:
        handled.append(f"{kind} {data['id']}")

    async def note_async(kind: str, data: dict[str, Any]) -> None:
        note(kind, data)

    monkeypatch.setattr(module, "handle", note if request.param == "flask" else note_async)
    post = flask_post(module) if request.param == "flask" else fastapi_post(module)
    return Receiver(post, handled)


@pytest.mark.parametrize("secret", [SECRET, OLD], ids=["new", "old"])
def test_what_fairlane_sent_is_handled_once(receiver: Receiver, secret: str) -> None:
    body, headers = signed_webhook(EVENT, secret)
    assert [receiver.post(body, headers) for _ in range(2)] == [204, 204]
    assert receiver.handled == ["job.succeeded job_1"]


def test_what_another_sent_is_refused_and_not_handled(receiver: Receiver) -> None:
    body, headers = signed_webhook(EVENT, new_secret())
    assert receiver.post(body, headers) == 401
    body, headers = signed_webhook(EVENT, SECRET)
    assert receiver.post(body.replace(b"job_1", b"job_2"), headers) == 401
    assert receiver.post(body, {}) == 401
    assert receiver.handled == []
