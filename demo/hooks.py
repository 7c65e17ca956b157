"""A small receiver of the demo's own: every job brings a webhook, and each must arrive and be genuine."""

from __future__ import annotations

import threading
from typing import Final, Self

from fairlane.receiver import Received, Receiver
from producer.client.postbox import new_secret

PATIENCE_S: Final = 15.0  # after the last job


class Hooks:
    """What was submitted, and what was told. A context manager: it listens within the block."""

    def __init__(self) -> None:
        secret = new_secret()
        self._receiver = Receiver(secret, self._hear)
        self._news = threading.Condition()
        self._verified: set[str] = set()
        self._refused = 0
        self.submitted: set[str] = set()
        self.webhook = {"url": self._receiver.url, "secret": secret}
        self.allow = f"127.0.0.1:{self._receiver.port}"  # for FAIRLANE_WEBHOOK_ALLOW: loopback is refused else

    @property
    def whole(self) -> bool:
        """Every job's end was told, and nothing came that was not signed."""
        return self._verified == self.submitted and not self._refused

    @property
    def words(self) -> str:
        missing = len(self.submitted - self._verified)
        words = f"{len(self.submitted)} jobs, {len(self._verified)} told and verified"
        words += f", {missing} missing" if missing else ""
        return words + (f", {self._refused} not genuine" if self._refused else "")

    def await_all(self) -> None:
        """Returns when all are told, or when it has waited long enough."""
        with self._news:
            self._news.wait_for(lambda: self._verified >= self.submitted, PATIENCE_S)

    def __enter__(self) -> Self:
        self._receiver.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.__exit__()

    def _hear(self, one: Received) -> None:
        with self._news:
            if one.event is None:
                self._refused += 1
            else:
                self._verified.add(one.event["data"]["id"])
            self._news.notify_all()
