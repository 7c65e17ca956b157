"""Clients for the tests of programs that use Fairlane: the real ones, over a script instead of a server.

No Redis, no network: every job is answered at once, as the test says.

    client = FakeClient("Hello.", answers=[QueueFull(), {"choices": []}])
    assert greet(client) == "Hello."
    assert client.requests[0].body["messages"] == [...]
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from producer.client.client import AsyncClient
from producer.client.receiving import signature_of
from producer.client.script import Fails, Reply, Script, Scripted, Waits
from producer.client.scripted import ScriptedTransport
from producer.client.session import Session
from producer.client.sync import Client
from producer.intake import JobRequest

__all__ = ["AsyncFakeClient", "Fails", "FakeClient", "Reply", "Scripted", "Waits", "signed_webhook"]

OTHERWISE: Final = "Hello."


class AsyncFakeClient(AsyncClient):
    """An AsyncClient whose jobs, and the lines of whose batches, are answered as a test says.

    `answers` come one after the other, then `otherwise` again and again. An answer is

    - a text, worded as the endpoint would: a chat message, a completion, a vector; as a stream, a chunk for each word
    - a dict: the body itself. A list of dicts: the chunks of a stream
    - `Fails(…)`: the job fails. `Waits()`: it has no outcome until `settle` is called
    - an error of `fairlane.errors`: the request is refused, by raising it
    - a function, which makes one of these of the JobRequest

    What was asked is in `requests`. Refusals that may pass are raised at once, unless `retry_for_s` says otherwise.
    """

    def __init__(
        self,
        otherwise: Scripted = OTHERWISE,
        *,
        answers: Iterable[Scripted] = (),
        tenant: str | None = None,
        retry_for_s: float = 0.0,
    ) -> None:
        self.script = Script(otherwise, answers)
        self._transport = ScriptedTransport(self.script, tenant)
        self._talk(Session(lambda: self._transport, retry_for_s))

    @property
    def requests(self) -> list[JobRequest]:
        """What was submitted, in order: jobs, streams, and the lines of batches. Not what was refused."""
        return self.script.requests

    def settle(self, job_id: str, answer: Reply) -> None:
        """Answers a job that waits."""
        self._transport.settle(job_id, answer)


class FakeClient(Client):
    """A Client over a script, as AsyncFakeClient."""

    def __init__(
        self,
        otherwise: Scripted = OTHERWISE,
        *,
        answers: Iterable[Scripted] = (),
        tenant: str | None = None,
        retry_for_s: float = 0.0,
    ) -> None:
        self._fake = AsyncFakeClient(otherwise, answers=answers, tenant=tenant, retry_for_s=retry_for_s)
        self._face(self._fake)

    @property
    def requests(self) -> list[JobRequest]:
        """What was submitted, in order: jobs, streams, and the lines of batches. Not what was refused."""
        return self._fake.requests

    def settle(self, job_id: str, answer: Reply) -> None:
        """Answers a job that waits."""

        async def act() -> None:
            self._fake.settle(job_id, answer)

        self._portal.call(act)


def signed_webhook(event: Mapping[str, Any], secret: str, *, webhook_id: str = "msg_1") -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a webhook, as Fairlane sends it now: for the tests of a receiver.

    body, headers = signed_webhook({"type": "job.succeeded", "data": {"id": "job_1"}}, SECRET)
    assert app.test_client().post("/hooks", data=body, headers=headers).status_code == 204
    """
    body = json.dumps(event, separators=(",", ":"))
    now = int(time.time())
    return body.encode(), {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(now),
        "webhook-signature": signature_of(secret, webhook_id, now, body),
    }
