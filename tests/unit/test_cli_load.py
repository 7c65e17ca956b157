"""How far a run has come, where there is no terminal."""

from __future__ import annotations

import pytest

from fairlane import cli_load


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = 0.0
    monkeypatch.setattr(cli_load.time, "monotonic", lambda: now_s)
    with cli_load.progress() as begin:
        tell = begin("ours", 20_000)
        for now_s, left in ((1.0, 19_000), (9.9, 12_000), (10.0, 11_000), (19.9, 8_000), (30.0, 500)):
            tell(now_s * 100_000, left)
    assert capsys.readouterr().err.splitlines() == [
        "ours: 9,000 of 20,000 requests, at 0:16:40",
        "ours: 19,500 of 20,000 requests, at 0:50:00",
    ]
