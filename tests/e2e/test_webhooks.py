"""Webhooks from end to end: `fairlane up` sends them, `fairlane webhooks listen` receives and verifies them."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

import pytest

from tests.e2e.test_cli import heard, interrupted, run, start
from tests.e2e.test_up import PATIENCE_S, Up, free_port, running

BRIEF = ("--set", "max_tokens=2")


@pytest.fixture(scope="module")
def port() -> int:
    """Where Fairlane may send to."""
    return free_port()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Up]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLANE_WEBHOOK_ALLOW", f"127.0.0.1:{port}")
        with running(tmp_path_factory.mktemp("up")) as started:
            yield started


def endpoints(up: Up) -> list[str]:
    return [one["id"] for one in json.loads(run(up, "webhooks", "list", "--json").stdout)["endpoints"]]


def test_an_event_is_heard_while_one_listens_and_the_endpoint_ends_with_it(up: Up, port: int) -> None:
    with start(up, "webhooks", "listen", "--port", str(port)) as listening:
        (id_,) = re.findall(r"whe_\w+", heard(listening.stderr, "Listening"))
        job_id = run(up, "submit", "Hello", *BRIEF, "--no-wait").stdout.strip()
        line = heard(listening.stdout, job_id)
        assert re.fullmatch(rf"\d\d:\d\d:\d\d  job\.succeeded    {job_id}  msg_\w+\n", line)
        assert endpoints(up) == [id_]
        tested = run(up, "webhooks", "test", id_)
        assert "delivered after 1 attempt; the last one: 204" in tested.stdout
        assert "webhook.test" in heard(listening.stdout, id_)
        interrupted(listening)
    assert endpoints(up) == []


def test_as_json_it_is_the_event_and_sigterm_ends_it_too(up: Up, port: int) -> None:
    with start(up, "webhooks", "listen", "--port", str(port), "--json", "--event", "job.*") as listening:
        heard(listening.stderr, "Listening")
        job_id = run(up, "submit", "Hello", *BRIEF, "--no-wait").stdout.strip()
        event = json.loads(heard(listening.stdout, job_id))
        assert (event["type"], event["data"]["state"]) == ("job.succeeded", "succeeded")
        listening.send_signal(signal.SIGTERM)
        assert listening.wait(PATIENCE_S) == 130
    assert endpoints(up) == []


def test_without_leave_to_send_here_it_says_what_to_set(up: Up) -> None:
    other = free_port()
    refused = run(up, "webhooks", "listen", "--port", str(other))
    assert refused.returncode == 3
    assert f"FAIRLANE_WEBHOOK_ALLOW=127.0.0.1:{other}" in refused.stderr
    assert f"--port {other}" in refused.stderr


def test_a_job_tells_its_own_webhook_signed_with_the_default_secret(up: Up, port: int) -> None:
    secret = run(up, "webhooks", "secret").stdout.strip()
    with start(up, "webhooks", "listen", "--port", str(port), "--secret", secret) as listening:
        heard(listening.stderr, "Listening")
        run(up, "submit", "Hello", *BRIEF, "--webhook", f"http://127.0.0.1:{port}/own")
        assert re.search(r"job\.succeeded    job_\w+  msg_", heard(listening.stdout, "job.succeeded"))
        assert endpoints(up) == []
        interrupted(listening)


def test_an_endpoint_that_answers_nothing_fails_its_test(up: Up, port: int) -> None:
    id_ = run(up, "webhooks", "add", f"http://127.0.0.1:{port}/", "--event", "webhook.test").stdout.strip()
    tested = run(up, "webhooks", "test", id_)
    assert tested.returncode == 1
    assert "pending after 1 attempt" in tested.stdout
    assert "the next attempt is in" in tested.stdout
    assert run(up, "webhooks", "remove", id_).returncode == 0
