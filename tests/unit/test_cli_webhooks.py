"""`fairlane webhooks`: endpoints and deliveries, from a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlane.head import Head
from fairlane.queue.engine import Queue
from fairlane.webhooks.delivery import Outcome, Try
from fairlane.webhooks.outbox import Outbox
from tests.servers import ValkeyServer
from tests.unit.commands import DONE, REFUSED, USAGE, fairlane, on, said, told

pytestmark = pytest.mark.usefixtures("server")
URL = "https://hooks.example.com/fairlane"
ANN = ("--tenant", "ann")
UNSUCCESSFUL = 1


def webhooks(*words: str, exit_code: int = DONE) -> str:
    return said("webhooks", *words, *ANN, exit_code=exit_code)


def added(*more: str) -> str:
    """The id of a new endpoint."""
    return fairlane("webhooks", "add", URL, *more, *ANN).stdout.strip()


def attempted(server: ValkeyServer, outcome: Outcome) -> None:
    """The one delivery that is due is tried, and so it came out."""

    async def act(queue: Queue) -> None:
        outbox = Outbox(queue.store)
        ((delivery_id, token),) = await outbox.take(10, 5_000)
        await outbox.begin(delivery_id, token, 5_000)
        await outbox.settle(delivery_id, token, outcome)

    on(server, act)


def failed(excerpt: str = "Oh no.") -> Outcome:
    return Outcome(Try(round(1000 * time.time()), 7, 500, "it answered 500", excerpt), "failed", reason="exhausted")


# --- endpoints --------------------------------------------------------------------------------------------------------


def test_an_endpoint_is_added_listed_shown_and_removed() -> None:
    made = fairlane(
        "webhooks", "add", URL, "--event", "job.*", "--event", "batch.failed", "--description", "mine",
        "--header", "x-key=sesame", *ANN,
    )  # fmt: skip
    id_ = made.stdout.strip()
    assert re.fullmatch(r"whe_\w+", id_)
    secret = webhooks("secret", id_).strip()
    assert secret in made.stderr
    assert re.search(rf"^{id_} +{URL} +job\.\*,batch\.failed +enabled +- +mine$", webhooks("list"), re.MULTILINE)
    shown = webhooks("show", id_)
    assert re.search(r"^headers +x-key$", shown, re.MULTILINE)
    assert "sesame" not in shown
    assert webhooks("remove", id_) == f"{id_} is removed.\n"
    assert id_ not in webhooks("list")
    webhooks("show", id_, exit_code=REFUSED)


def test_it_is_disabled_and_enabled() -> None:
    id_ = added()
    webhooks("disable", id_)
    assert "disabled (asked)" in webhooks("list")
    assert "Enable it" in webhooks("test", id_, exit_code=REFUSED)
    webhooks("enable", id_)
    assert "disabled" not in webhooks("show", id_)


def test_a_new_secret_is_alone_on_stdout_and_it_is_said_how_long_the_old_one_signs() -> None:
    id_ = added()
    for which in (id_, "default"):
        old = webhooks("secret", which).strip()
        rotated = fairlane("webhooks", "rotate", which, "--overlap", "2h", *ANN)
        assert rotated.stdout.strip() == webhooks("secret", which).strip() != old
        assert "The old one signs until" in rotated.stderr
        assert "(2 h)" in rotated.stderr


def test_each_tenant_sees_its_own() -> None:
    id_ = added()
    assert id_ not in said("webhooks", "list", "--tenant", "bob")
    said("webhooks", "secret", id_, "--tenant", "bob", exit_code=REFUSED)


def test_what_is_wrong_is_said() -> None:
    assert "10.0.0.1" in webhooks("add", "http://10.0.0.1/", exit_code=USAGE)
    webhooks("add", URL, "--event", "job.done", exit_code=USAGE)
    webhooks("add", URL, "--header", "novalue", exit_code=USAGE)
    webhooks("add", URL, "--secret", "sesame", exit_code=USAGE)
    webhooks("rotate", added(), "--overlap", "long", exit_code=USAGE)
    webhooks("recover", added(), "--since", "yesterday", exit_code=USAGE)
    assert "already" in webhooks("add", URL, "--description", "another", exit_code=REFUSED)


# --- deliveries -------------------------------------------------------------------------------------------------------


def test_a_delivery_shows_each_attempt_and_is_sent_again(server: ValkeyServer) -> None:
    id_ = added()
    sent = webhooks("test", id_, "--no-wait").split()[0]
    attempted(server, failed("Oh\x1b[31m no. " + "x" * 500))
    listed = webhooks("deliveries", "--endpoint", id_, "--state", "failed")
    assert re.search(rf"^{sent} .* webhook\.test +failed \(exhausted\) +it answered 500$", listed, re.M)
    shown = webhooks("delivery", sent)
    assert "failed (exhausted) after 1 attempt; the last one: it answered 500 in 7 ms" in shown
    assert "\x1b" not in shown
    assert "xxx…" in shown
    assert f'"id": "{id_}"' in webhooks("delivery", sent, "--payload")
    assert webhooks("resend", sent) == f"{sent} is sent again.\n"
    assert sent in webhooks("deliveries", "--state", "pending")
    assert "no webhook delivery" in webhooks("resend", sent, "msg_none", exit_code=REFUSED)


def test_what_failed_since_then_is_sent_again(server: ValkeyServer) -> None:
    id_ = added()
    webhooks("test", id_, "--no-wait")
    attempted(server, failed())
    assert "0 deliveries are sent again" in webhooks("recover", id_, "--since", "2999-01-01")
    assert "1 delivery is sent again" in webhooks("recover", id_, "--since", "2h")


def test_as_json_it_is_what_the_front_door_says(server: ValkeyServer) -> None:
    made = told("webhooks", "add", URL, *ANN)
    assert made["secret"] == told("webhooks", "secret", made["id"], *ANN)["secret"]
    (listed,) = told("webhooks", "list", *ANN)["endpoints"]
    assert listed == {name: value for name, value in made.items() if name != "secret"}
    sent = told("webhooks", "test", made["id"], "--no-wait", *ANN)
    attempted(server, failed())
    (seen,) = told("webhooks", "deliveries", *ANN)["deliveries"]
    assert (seen["id"], seen["state"]) == (sent["id"], "failed")
    assert told("webhooks", "delivery", sent["id"], *ANN)["payload"]["type"] == "webhook.test"
    assert told("webhooks", "recover", made["id"], "--since", "1h", *ANN) == {"recovered": 1}
    assert told("webhooks", "remove", made["id"], *ANN) == {"id": made["id"], "deleted": True}


# --- jobs that bring one ----------------------------------------------------------------------------------------------


def hook_of(server: ValkeyServer, job_id: str) -> Mapping[str, object] | None:
    async def read(queue: Queue) -> Mapping[str, object] | None:
        return Head.decode((await queue.inspect.outcome(job_id)).head).webhook

    return on(server, read)


def test_a_job_is_submitted_with_its_webhook(server: ValkeyServer, tmp_path: Path) -> None:
    one = said("submit", "Hello", "-m", "llama", "--no-wait", "--webhook", URL).strip()
    assert hook_of(server, one) == {"url": URL}
    lines = tmp_path / "jobs.jsonl"
    lines.write_text(f'{{"prompt": "x"}}\n{{"body": {{"prompt": "x"}}, "webhook": {{"url": "{URL}/own"}}}}\n')
    first, second = said("submit", str(lines), "-m", "llama", "--no-wait", "--webhook", URL).split()
    assert hook_of(server, first) == {"url": URL}
    assert hook_of(server, second) == {"url": f"{URL}/own"}


def test_a_webhook_into_a_private_network_is_refused_with_its_job() -> None:
    assert "10.0.0.1" in said(
        "submit", "Hello", "-m", "llama", "--no-wait", "--webhook", "http://10.0.0.1/", exit_code=USAGE
    )
