"""`fairlane simulate` and `plan` as they are typed, on a small trace."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from fairlane.cli import app

DONE, USAGE, REFUSED = 0, 2, 3
TIERS = ("priority", "default", "flex", "batch")


def fairlane(*words: str, exit_code: int = DONE) -> Result:
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exit_code == exit_code, result.output
    return result


def told(*words: str) -> Any:
    return json.loads(fairlane(*words, "--json").stdout)


def refused(*words: str, exit_code: int = USAGE) -> str:
    """What the error says."""
    return json.loads(fairlane(*words, "--json", exit_code=exit_code).stderr)["error"]["message"]


def write_trace(path: Path, requests: int = 60, every_s: float = 0.2, *, named: bool = True) -> Path:
    """Two tenants and all tiers by turns, with prompts of 200 to 600 tokens and answers of 10 to 50."""
    lines = ["arrival_s,tenant,tier,input_tokens,output_tokens" if named else "arrival_s,input_tokens,output_tokens"]
    for n in range(requests):
        names = f"{'ann' if n % 3 else 'bob'},{TIERS[n % 4]}," if named else ""
        lines.append(f"{n * every_s:.3f},{names}{200 + 100 * (n % 5)},{10 + 10 * (n % 5)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def like(pattern: str) -> re.Pattern[str]:
    """What a page shows, where `…` stands for anything, also for several lines; blanks are alike."""
    parts = (r"\s+".join(map(re.escape, part.split())) for part in pattern.split("…"))
    return re.compile(r"\s*" + r".*?".join(rf"\s*{part}\s*" for part in parts) + r"\s*", re.DOTALL)
