"""`make demo`, a tenth of it; and that its workload has the shape that it claims."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

from demo.workload import ANSWER, GAP_CV, PROMPT, Stream, workload


def test_a_small_demo_prints_its_table_and_ends() -> None:
    command = [sys.executable, "-m", "demo", "--scale", "0.12"]
    repository = Path(__file__).parents[2]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=repository, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert re.search(r"heavy\s+│ default", ran.stdout), ran.stdout
    assert "answers/s" in ran.stdout
    assert re.search(r"^http://127\.0\.0\.1:\d+/login/once\?secret=\S+$", ran.stdout, re.MULTILINE), ran.stdout
    told = re.search(r"Webhooks: (\d+) jobs, (\d+) told and verified\.", ran.stdout)
    assert told, ran.stdout
    assert int(told[1]) == int(told[2]) > 10


def test_the_same_seed_gives_the_same_workload() -> None:
    assert workload() == workload()
    assert workload(seed=1) != workload(seed=2)


def test_lengths_and_gaps_have_the_shape_of_the_trace() -> None:
    arrivals = workload((Stream("ann", "default", per_s=5.0, end_s=4_000.0),))
    for lengths, (mu, sigma, most) in (
        ([one.prompt_tokens for one in arrivals], PROMPT),
        ([one.answer_tokens for one in arrivals], ANSWER),
    ):
        logs = [math.log(length) for length in lengths if length < most]
        assert abs(mean(logs) - mu) < 0.1
        assert abs(pstdev(logs) - sigma) < 0.1
    gaps = [after.at_s - before.at_s for before, after in pairwise(arrivals)]
    assert abs(mean(gaps) - 0.2) < 0.01
    assert abs(pstdev(gaps) / mean(gaps) - GAP_CV) < 0.05
