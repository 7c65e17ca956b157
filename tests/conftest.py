"""For all tests: logs as the processes write them, and who runs which test when."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

from fairlane.logging import configure

configure("debug", as_json=True)  # structlog's own default renders a traceback for half a second

HERE: Final = Path(__file__).parent
# Each part's tests share processes that take seconds to start: one worker runs them all, and starts those once.
TOGETHER: Final = ("browser/", "e2e/test_cli.py", "e2e/test_webhooks.py", "sdk/")
# They take longest and begin first, or a worker is left with one when the others are done.
LONG: Final = ("browser/", "e2e/", "sdk/", "chaos/", "properties/")


class Together(LoadScopeScheduling):
    """Marks for this, `xdist_group`, do nothing: pytest-xdist 3.8 renames tests, which pytest 9.2 no longer heeds."""

    def _split_scope(self, nodeid: str) -> str:
        return next((part for part in TOGETHER if nodeid.startswith(f"tests/{part}")), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.relative_to(HERE).as_posix().startswith(LONG))


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
