"""`fairlane plan`: the fewest backends that do, what others would come to, and when there is no answer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.simulator.alone import alone_ms
from dispatcher.simulator.fair.direct import Direct
from dispatcher.simulator.planning import smallest
from dispatcher.simulator.profile import PROFILES
from dispatcher.simulator.request import Arrival
from dispatcher.simulator.world import run
from tests.simulator.typed import REFUSED, fairlane, refused, told, write_trace

SLO = "default:ttft_p99=300ms"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """240 requests in 12 s: a few a10-7b are needed."""
    return str(write_trace(tmp_path_factory.mktemp("load") / "trace.csv", 240, 0.05))


@pytest.fixture(scope="module")
def words(trace: str) -> tuple[str, ...]:
    return ("plan", "--trace", trace, "--backend-profile", "a10-7b", "--way", "direct", "--slo", SLO)


# --- the search -------------------------------------------------------------------------------------------------------


@given(needed=st.integers(1, 200), guess=st.integers(1, 100), most=st.integers(1, 100))
async def test_the_search_finds_the_smallest_that_is_enough_and_tries_few(needed: int, guess: int, most: int) -> None:
    tried: list[int] = []

    async def enough(n: int) -> bool:
        tried.append(n)
        return n >= needed

    found = await smallest(enough, min(guess, most), most)
    assert found == (needed if needed <= most else None)
    assert all(1 <= n <= most for n in tried)
    assert len(set(tried)) == len(tried) <= 2 * math.log2(most + 1) + 2


@given(prompt=st.integers(1, 20_000), answer=st.integers(1, 300), name=st.sampled_from(["a100-7b", "a10-7b", "tiny"]))
async def test_alone_is_what_an_empty_backend_takes(prompt: int, answer: int, name: str) -> None:
    done = await run([Arrival(0.0, "a", "default", prompt, answer)], Direct(), PROFILES[name])
    (request,) = done.requests
    assert alone_ms(PROFILES[name], prompt, answer) == pytest.approx((request.first_ms, request.done_ms))


# --- the answer -------------------------------------------------------------------------------------------------------


def test_the_answer_meets_the_slo_and_one_fewer_does_not(words: tuple[str, ...]) -> None:
    found = told(*words)
    answer = found["backends"]
    assert answer > 1
    met = {(one["growth"], one["backends"]): one["met"] for one in found["slos"]}
    assert met[1.0, answer] == "yes"
    assert met[1.0, answer - 1] == "no"
    assert (1.0, answer + 1) in met
    assert set(found["tried"]) == {backends for growth, backends in met if growth == 1}
    needs = {one["growth"]: one["backends"] for one in found["needs"]}
    assert list(needs) == [1.0, 1.25, 1.5, 2.0]
    assert needs[1.0] == answer
    for growth, needed in needs.items():
        assert met[growth, needed] == "yes"
        assert needed == 1 or met.get((growth, needed - 1), "no") == "no"
    shown = {(one["growth"], one["backends"]) for one in found["tiers"]}
    assert {(1.0, answer - 1), (1.0, answer), (1.0, answer + 1), (2.0, answer), (2.0, needs[2.0])} <= shown


def test_the_first_sentence_answers_and_the_plot_and_the_files_are_written(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    out, plot = tmp_path / "out", tmp_path / "new" / "plan.svg"
    said = fairlane(*words, "--out", str(out), "--plot", str(plot)).stdout
    answer = json.loads((out / "plan.json").read_text())["backends"]
    first, second, third, *_ = said.splitlines()
    assert first.startswith(f"{answer} backends (a10-7b) meet every SLO: default:ttft_p99 is ")
    assert second.startswith("One fewer does not: default:ttft_p99 is ")
    assert third.startswith("One more makes it default:ttft_p99 is ")
    assert "With 25% more load " in said
    assert "Tried at this load: " in said
    assert {path.name for path in out.iterdir()} == {"plan.json", "plan.md", "plan.svg", *(
        f"{name}.csv" for name in ("needs", "slos", "tiers")
    )}  # fmt: skip
    assert SLO in plot.read_text()


def test_ours_is_planned_with_by_default(tmp_path: Path) -> None:
    trace = str(write_trace(tmp_path / "short.csv", 12))
    found = told("plan", "--trace", trace, "--slo", "default:ttft_p99=5s", "--scrape-ms", "500")
    assert (found["way"], found["backends"]) == ("ours", 1)


def test_a_percentile_of_few_requests_is_warned_of(words: tuple[str, ...], trace: str) -> None:
    done = fairlane(*words, "--slo", "default:e2e_p99=1m,default:e2e_p95=1m")
    assert done.stderr == (
        "Warning: only 60 requests in default: its p99 is the slowest of them. A longer load says more.\n"
    )


# --- no answer --------------------------------------------------------------------------------------------------------


def test_what_takes_longer_by_itself_is_said_before_anything_is_simulated(trace: str) -> None:
    said = refused("plan", "--trace", trace, "--slo", "batch:e2e_p99=100ms", exit_code=REFUSED)
    assert said.startswith("No number of backends meets batch:e2e_p99=100ms: an answer of 50 tokens takes ")
    assert "by itself on a100-7b" in said
    said = refused("plan", "--trace", trace, "--slo", "batch:ttft_p99=1ms", exit_code=REFUSED)
    assert "a prompt of 600 tokens takes " in said


def test_too_few_that_may_be_tried_are_said_with_what_they_come_to(words: tuple[str, ...]) -> None:
    said = refused(*words, "--most", "1", exit_code=REFUSED)
    assert said.startswith("1 backend does not meet default:ttft_p99=300ms (it is ")
    assert "Tried: 1. Allow more backends by --most" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--slo", "gold:ttft_p99=2s"], "there is no tier gold"),
        (["--slo", "default:ttft=2s"], "Say TIER:METRIC_PNN=TIME"),
        (["--slo", ""], "Which SLO?"),
        (["--minutes", "60"], "is 0.2 minutes long, too short for"),
        (["--backend-profile", "gone.json"], "gone.json is no profile"),
        (["--way", "magic"], "There is no way magic"),
        (["--tiers", "gold,priority,default,flex,batch", "--slo", "gold:ttft_p99=2s"], "No request of this load is in"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_say(words: tuple[str, ...], more: list[str], message: str) -> None:
    assert message in refused(*words, *more)


def test_too_large_a_load_is_refused_with_how_to_shorten_it() -> None:
    said = refused("plan", "--poisson", "1000", "--minutes", "60", "--slo", SLO)
    assert said == (
        "3,600,000 requests are too many to simulate (at most 200,000). "
        "Shorten the load: --minutes 3.2; or make it less dense: --speed-up 0.053."
    )


def test_one_request_has_no_rate_to_plan_for(tmp_path: Path) -> None:
    trace = str(write_trace(tmp_path / "one.csv", 1))
    assert "come at once" in refused("plan", "--trace", trace, "--slo", "priority:ttft_p99=2s", "--way", "direct")
