"""The served OpenAPI document is true: generated requests, good and bad, get documented answers and never a 5xx.

FAIRLANE_API_EXAMPLES=1000 tries that many for each operation.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from dispatcher.backends.answer import Answer
from fairlane.model import BackendSpec, Policy
from fairlane.queue.engine import Queue
from fairlane.settings import Settings
from producer.api.app import create_app
from tests.api.door import JOB, serving
from tests.contract.acts import set_gate
from tests.dispatcher.scripted import Script, answer, make_worker, working
from tests.servers import ValkeyServer

# The front door draws its jitter in a thread of this process, which hypothesis takes for a strategy of ours.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
URL = "https://hooks.example.com/fairlane"
GOOD = {"model": "llama", "url": URL}  # what no generator guesses
EXAMPLES = int(os.environ.get("FAIRLANE_API_EXAMPLES", "15"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]

TRIES = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def served_url(valkey: ValkeyServer) -> Iterator[str]:
    """A front door and a worker in a thread of their own."""
    ready, ends, found = threading.Event(), asyncio.Event(), list[object]()

    async def serve() -> None:
        namespace = f"openapi{os.getpid()}"
        queue = await Queue.open(valkey.url, namespace=namespace)
        pool = await queue.pools.open("llama", Policy(stale_ms=3_600_000))
        await queue.set_backend(pool, "b1", "add", spec=BackendSpec("http://scripted"))
        await set_gate(queue, pool, "b1", 1000)
        script = Script()
        script.then(answer(Answer(200, b'{"object":"chat.completion"}')))
        kept = f"memory://{namespace}"
        app = create_app(Settings(redis_url=valkey.url, namespace=namespace, auth="open", files_url=kept))
        async with (
            queue.signals() as signals,
            working(make_worker(queue, pool, script), signals),
            serving(app, 1) as served,
        ):
            found.extend([served.url, asyncio.get_running_loop()])
            ready.set()
            await ends.wait()
        await queue.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    url, loop = found
    assert isinstance(url, str)
    assert isinstance(loop, asyncio.AbstractEventLoop)
    yield url
    loop.call_soon_threadsafe(ends.set)
    thread.join(30)


DOCUMENT = create_app(Settings(auth="open")).openapi()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)}


def made(url: str, headers: dict[str, str]) -> dict[str, str]:
    """Ids of things that are there, for the parameters of paths that name them."""
    with httpx.Client(base_url=url, headers=headers, trust_env=False) as http:

        def post(path: str, **body: object) -> str:
            return http.post(path, json=body).json()["id"]

        endpoint = post("/v1/webhook_endpoints", url=URL)
        return {
            "job_id": post("/v1/jobs", **JOB),
            "response_id": post("/v1/responses", model="llama", input="Hello", background=True),
            "endpoint_id": endpoint,
            "delivery_id": post(f"/v1/webhook_endpoints/{endpoint}/test"),
        }


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_documented_and_none_is_a_fault_of_ours(served_url: str, name: str) -> None:
    """Requests as the document asks for them; half of those that name something name one that is there."""
    ours = {"authorization": f"Bearer t{list(OPERATIONS).index(name)}"}
    there = made(served_url, ours)

    @TRIES
    @given(OPERATIONS[name].as_strategy(generation_mode=GenerationMode.POSITIVE), st.booleans())
    def check(case: schemathesis.Case, real: bool) -> None:
        if real:
            case.path_parameters |= {name: there[name] for name in case.path_parameters if name in there}
            if isinstance(case.body, dict):
                case.body |= {name: value for name, value in GOOD.items() if name in case.body}
        headers = ours if real else None
        case.validate_response(case.call(base_url=served_url, timeout=30, headers=headers), checks=CHECKS)

    check()


NEGATIVE = [
    "POST /v1/jobs", "POST /v1/chat/completions", "GET /v1/jobs", "GET /v1/jobs/{job_id}",
    "POST /v1/webhook_endpoints", "GET /v1/webhook_endpoints", "POST /v1/webhook_endpoints/{endpoint_id}/rotate",
    "POST /v1/webhook_endpoints/{endpoint_id}/recover", "GET /v1/webhook_deliveries",
]  # fmt: skip


@pytest.mark.parametrize("name", NEGATIVE)
def test_nor_if_the_request_is_not_as_the_document_asks(served_url: str, name: str) -> None:
    @TRIES
    @given(OPERATIONS[name].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def check(case: schemathesis.Case) -> None:
        case.validate_response(case.call(base_url=served_url, timeout=30), checks=CHECKS)

    check()


def test_the_document_names_every_path_and_no_422(served_url: str) -> None:
    document = httpx.get(f"{served_url}/openapi.json", trust_env=False).json()
    assert document == DOCUMENT
    assert document["paths"].keys() == {
        "/v1/jobs",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/requeue",
        "/v1/jobs/{job_id}/explain",
        "/v1/jobs/{job_id}/stream",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/responses/{response_id}",
        "/v1/responses/{response_id}/cancel",
        "/v1/files",
        "/v1/files/{file_id}",
        "/v1/files/{file_id}/content",
        "/v1/batches",
        "/v1/batches/{batch_id}",
        "/v1/batches/{batch_id}/cancel",
        "/v1/batches/{batch_id}/results",
        "/v1/webhook_endpoints",
        "/v1/webhook_endpoints/{endpoint_id}",
        "/v1/webhook_endpoints/{endpoint_id}/enable",
        "/v1/webhook_endpoints/{endpoint_id}/disable",
        "/v1/webhook_endpoints/{endpoint_id}/secret",
        "/v1/webhook_endpoints/{endpoint_id}/rotate",
        "/v1/webhook_endpoints/{endpoint_id}/test",
        "/v1/webhook_endpoints/{endpoint_id}/recover",
        "/v1/webhook_deliveries",
        "/v1/webhook_deliveries/{delivery_id}",
        "/v1/webhook_deliveries/{delivery_id}/resend",
        "/v1/models",
        "/v1/models/{model}",
        "/health/live",
        "/health/ready",
        "/metrics",
    }
    assert "422" not in str(document)
    assert "ValidationError" not in str(document)
