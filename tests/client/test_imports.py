"""What is imported when: the package is light, and Redis needs nothing that is not always installed."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from fairlane import AsyncBatchHandle, AsyncClient, AsyncHandle, BatchHandle, Client, Handle
from fairlane.testing import AsyncFakeClient, FakeClient
from producer.client.batches import AsyncBatches
from producer.client.files import AsyncFiles
from producer.client.sync_batches import Batches, Files
from producer.client.sync_webhooks import Webhooks
from producer.client.webhooks import AsyncWebhooks

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {"httpx", "httpcore", "starlette", "fastapi", "uvicorn", "pydantic", "structlog"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def ran(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    return (done.stdout + done.stderr).strip()


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = '{"redis", "httpx", "anyio", "asyncio", "producer"}'
    assert ran(f"import sys, fairlane; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_redis_needs_no_httpx() -> None:
    use = "from fairlane import Client\nClient('redis://127.0.0.1:1', retry_for_s=0).submit(model='m', prompt='x')"
    assert "StoreUnavailable" in ran(WITHOUT + use).splitlines()[-1]


def test_a_fake_needs_no_httpx() -> None:
    use = "from fairlane.testing import FakeClient\nprint(FakeClient().submit(model='m', prompt='x').wait().state)"
    assert ran(WITHOUT + use) == "succeeded"


def test_a_missing_httpx_is_named_with_what_to_do() -> None:
    said = ran(WITHOUT + "from fairlane import Client\nClient('http://127.0.0.1:1')")
    assert "pip install 'fairlane[client]'" in said.splitlines()[-1]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_help_shows_what_submit_takes(kind: type) -> None:
    submit = inspect.signature(kind.submit)  # pyright: ignore[reportAttributeAccessIssue]
    assert list(submit.parameters)[:3] == ["self", "model", "messages"]
    assert "idempotency_key" in (kind.submit.__doc__ or "")  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("face", "behind", "inner"),
    [
        (Client, AsyncClient, {"send", "bulk", "follow", "window"}),
        (Handle, AsyncHandle, {"decided", "saw"}),
        (Batches, AsyncBatches, {"send", "create"}),
        (BatchHandle, AsyncBatchHandle, {"parts"}),
        (Files, AsyncFiles, {"send", "parts"}),
        (Webhooks, AsyncWebhooks, set[str]()),
        (FakeClient, AsyncFakeClient, set[str]()),
    ],
)
def test_the_sync_client_has_all_that_the_async_one_has(face: type, behind: type, inner: set[str]) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    attributes = {"id", "error"}
    assert public(face) - attributes == public(behind) - inner - attributes
