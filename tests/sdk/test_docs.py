"""The example of docs/http.md for OpenAI's client runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sdk.stage import Stage

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


def test_every_example_in_python_runs(played: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        exec(example.replace("http://127.0.0.1:8080/v1", played.url), {})
        assert len(capsys.readouterr().out) > 20
