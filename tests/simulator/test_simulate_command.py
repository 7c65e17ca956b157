"""`fairlane simulate`: the load that was asked for, what comes of it, and how it ends."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.simulator.catalogue import NAMES
from dispatcher.simulator.offer import Offer, load_of
from dispatcher.simulator.workloads.lengths import KINDS
from fairlane.errors import InvalidRequest
from tests.simulator.typed import TIERS, fairlane, refused, told, write_trace

SLOS = "default:ttft_p99=2s,batch:e2e_p99=1ms"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write_trace(tmp_path / "trace.csv"))


# --- what comes out ---------------------------------------------------------------------------------------------------


def test_each_way_is_told_by_tier_by_tenant_and_as_a_whole(trace: str) -> None:
    found = told("simulate", "--trace", trace, "--way", "direct", "--way", "vtc", "--slo", SLOS)
    assert (found["requests"], found["backends"], found["profile"]) == (60, 1, "a100-7b")
    assert [one["way"] for one in found["ways"]] == ["direct", "vtc"]
    assert [(one["way"], one["tier"]) for one in found["tiers"]] == [
        (way, t) for way in ("direct", "vtc") for t in TIERS
    ]
    assert {one["tenant"]: one["requests"] for one in found["tenants"]} == {"ann": 40, "bob": 20}
    assert all(one["done"] == one["requests"] for one in found["tiers"])
    assert all(0 < one["ttft_p50_s"] <= one["ttft_p99_s"] < one["e2e_p99_s"] for one in found["tiers"])
    assert [(one["slo"], one["met"]) for one in found["slos"]][:2] == [
        ("default:ttft_p99", "yes"),
        ("batch:e2e_p99", "no"),
    ]
    goodput = {one["tier"]: one["goodput"] for one in found["tiers"][:4]}
    assert goodput == {"priority": None, "default": 1.0, "flex": None, "batch": 0.0}


def test_the_real_queue_takes_the_same_load_and_says_the_same_twice_to_the_byte(trace: str, tmp_path: Path) -> None:
    once, again = tmp_path / "once", tmp_path / "again"
    for folder in (once, again):
        fairlane("simulate", "--trace", trace, "--way", "ours", "--scrape-ms", "500", "--out", str(folder))
    names = sorted(path.name for path in once.iterdir())
    assert {"simulate.json", "simulate.md", "tenants.csv", "tiers.csv", "ways.csv"} <= set(names)
    for name in names:
        assert (once / name).read_bytes() == (again / name).read_bytes(), name
    (ours,) = json.loads((once / "simulate.json").read_text())["ways"]
    assert ours["done"] == 60
    rows = csv.DictReader((once / "tiers.csv").read_text().splitlines())
    assert [row["tier"] for row in rows] == list(TIERS)


def test_the_tables_show_the_busiest_tenants_and_how_many_more_there_are(trace: str) -> None:
    said = fairlane("simulate", "--trace", trace, "--way", "direct", "--tenants", "7", "--slo", SLOS).stdout
    assert "60 requests in 0.197 minutes, on 1 a100-7b." in said
    assert len(re.findall(r"^direct +tenant-\d", said, re.MULTILINE)) == 5
    assert "and 2 tenants more" in said
    assert re.search(r"^direct +batch:e2e_p99=1ms .* missed$", said, re.MULTILINE)
    assert re.search(r"^way +goodput/s +requests/s +tokens/s +used +gap +Jain", said, re.MULTILINE)


# --- the load ---------------------------------------------------------------------------------------------------------


def test_a_trace_keeps_its_tenants_and_tiers_unless_others_are_asked_for(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "named.csv")
    kept = load_of(Offer(trace=path)).at(1.0)
    assert {(one.tenant, one.tier) for one in kept} == {(who, tier) for who in ("ann", "bob") for tier in TIERS}
    drawn = load_of(Offer(trace=path, mix="uniform", tiers="high,low", tenants="heavy:2")).at(1.0)
    assert {one.tier for one in drawn} == {"high", "low"}
    assert {one.tenant for one in drawn} == {"heavy", "tenant-1", "tenant-2"}
    bare = load_of(Offer(trace=write_trace(tmp_path / "bare.csv", named=False)))
    assert bare.tiers == TIERS
    assert len({one.tenant for one in bare.at(1.0)}) == 10


def test_shares_of_ones_own_say_how_many_tiers_there_are() -> None:
    assert load_of(Offer(poisson="1", mix=".2,.3,.5")).tiers == ("tier-1", "tier-2", "tier-3")
    assert load_of(Offer(poisson="1", mix=".2,.3,.5", tiers="2")).tiers == ("tier-1", "tier-2")


def test_a_window_is_cut_and_its_load_made_denser(trace: str) -> None:
    part = load_of(Offer(trace=Path(trace), minutes=0.05, from_minute=0.1))
    assert len(part.at(1.0)) == 15
    assert part.at(2.0)[-1].at_ms == part.at(1.0)[-1].at_ms / 2


def test_drawn_loads_grow_in_number_and_not_in_density() -> None:
    drawn = load_of(Offer(poisson="5/s", minutes=2, kind="reasoning"))
    assert len(drawn.at(2.0)) == pytest.approx(2 * len(drawn.at(1.0)), rel=0.2)
    assert drawn.at(2.0)[-1].at_ms == pytest.approx(120_000, rel=0.02)


def test_a_part_of_a_load_is_asked_for_by_its_density(trace: str) -> None:
    drawn = load_of(Offer(poisson="100", minutes=10, speed_up=0.01))
    assert len(drawn.at(1.0)) == pytest.approx(600, rel=0.2)
    assert drawn.rate_per_s() == pytest.approx(1.0, rel=0.2)
    steady = load_of(Offer(trace=Path(trace), speed_up=2))
    assert steady.rate_per_s() == pytest.approx(2 * load_of(Offer(trace=Path(trace))).rate_per_s())


def test_on_and_off_keeps_the_requests_and_bunches_them(trace: str) -> None:
    steady = load_of(Offer(trace=Path(trace))).at(1.0)
    bunched = load_of(Offer(trace=Path(trace), on_off="2s,4s")).at(1.0)
    assert len(bunched) == len(steady)
    assert [one.at_ms for one in bunched] != [one.at_ms for one in steady]


def test_rho_is_of_what_the_backends_get_through() -> None:
    words = ("simulate", "--poisson", "1", "--minutes", "1", "--way", "direct", "--profile", "a10-7b", "--rho")
    half, two = (told(*words, "0.5", *more) for more in ((), ("--backends", "2")))
    assert two["requests"] == pytest.approx(2 * half["requests"], rel=0.4)
    over = told(*words, "3")
    assert over["ways"][0]["ttft_p99_s"] > 5 * half["ways"][0]["ttft_p99_s"]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offer", "message"),
    [
        (Offer(), "Which load? Say one of --trace FILE"),
        (Offer(poisson="2", trace=Path("x.csv")), "Which load? Say one of"),
        (Offer(poisson="fast"), "--poisson is requests a second, as 2 or 0.5/s; not 'fast'"),
        (Offer(poisson="2", kind="poems"), f"There are: {', '.join(KINDS)}"),
        (Offer(trace=Path("x.csv"), kind="chat"), "--kind goes with --poisson"),
        (Offer(poisson="2", from_minute=3), "--from goes with a file"),
        (Offer(poisson="0.01", minutes=1), "no request comes within 1 minutes"),
        (Offer(poisson="2", tenants="fat:3"), "--tenants is N (all alike), zipf:N, or heavy:N"),
        (Offer(poisson="2", tenants="0"), "N from 1 to 10,000; not '0'"),
        (Offer(poisson="2", tiers="11"), "--tiers is 1 to 10"),
        (Offer(poisson="2", tiers="a,a"), "different names"),
        (Offer(poisson="2", tiers="Gold"), "different names"),
        (Offer(poisson="2", tiers="²"), "different names"),
        (Offer(poisson="2", mix=".5,.6"), "is no mix: say enterprise, normal, uniform"),
        (Offer(poisson="2", mix=""), "is no mix: say enterprise, normal, uniform"),
        (Offer(poisson="2", mix=",".join(["0.05"] * 20)), "--mix has 20 shares, but there are 10 tiers at the most"),
        (Offer(poisson="2", tenants=""), "N from 1 to 10,000; not ''"),
        (Offer(poisson="1e308"), "not '1e308' (at most 1,000,000)"),
        (Offer(poisson="2", on_off="60"), "--on-off is two times, as 60s,120s"),
        (Offer(trace=Path("gone.csv")), "gone.csv cannot be read"),
    ],
)
def test_a_load_that_makes_no_sense_is_refused_with_what_to_say(offer: Offer, message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        load_of(offer)


def test_a_load_that_grows_too_large_is_refused_with_how_to_shorten_it() -> None:
    load = load_of(Offer(poisson="1000", minutes=60))
    with pytest.raises(InvalidRequest, match=r"3,600,000 .*at most 200,000.* --minutes 3\.2; .* --speed-up 0\.053"):
        load.at(1.0)


def test_what_is_said_to_shorten_a_load_can_be_said(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match=r"at most 200,000\)\. Offer less\.$"):
        load_of(Offer(poisson="1e6", minutes=1e4, speed_up=1000)).at(1.0)
    monkeypatch.setattr("dispatcher.simulator.offer.MOST_REQUESTS", 50)
    with pytest.raises(
        InvalidRequest, match=r"^60 .*\. Shorten the load: --minutes 0\.16\.$"
    ):  # thinner is only longer
        load_of(Offer(trace=Path(trace)))


@pytest.mark.parametrize(
    "offer", [Offer(), Offer(minutes=0.1, on_off="1s,1000h"), Offer(minutes=0.15, speed_up=0.00001)]
)
def test_a_load_of_more_than_a_week_is_refused(trace: str, tmp_path: Path, offer: Offer) -> None:
    path = Path(trace)
    if not offer.minutes:
        path = tmp_path / "ms.csv"
        path.write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n3600000,5,5\n")
    with pytest.raises(InvalidRequest, match=r"too long to simulate .*Is arrival_s in seconds\?"):
        load_of(replace(offer, trace=path)).at(1.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--way", "magic"], f"There is no way magic. There are: {', '.join(NAMES)}"),
        (["--profile", "h100"], "h100 is no profile: neither one of a100-7b"),
        (["--slo", "default=2s"], "'default=2s' is no SLO. Say TIER:METRIC_PNN=TIME"),
        (["--slo", "gold:ttft_p99=2s"], "there is no tier gold"),
        (["--rho", "1", "--speed-up", "2"], "Say --rho or --speed-up, not both"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(words: list[str], message: str) -> None:
    assert message in refused("simulate", "--poisson", "2", *words)


def test_a_trace_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path, trace: str) -> None:
    empty, foreign = tmp_path / "empty.csv", tmp_path / "foreign.csv"
    empty.write_text("arrival_s,input_tokens,output_tokens\n")
    foreign.write_text("arrival_s,tier,input_tokens,output_tokens\n0,gold,5,5\n1,silver,5,5\n")
    assert "has no requests" in refused("simulate", "--trace", str(empty))
    assert "is 0.2 minutes long, too short for" in refused("simulate", "--trace", trace, "--minutes", "5")
    assert "too short for from minute 9 on" in refused("simulate", "--trace", trace, "--from", "9")
    words = refused("simulate", "--trace", str(foreign))
    assert "a tier gold, which is none of priority, default, flex, batch" in words
    assert "(it has: gold, silver)" in words
    assert told("simulate", "--trace", str(foreign), "--tiers", "gold,silver", "--way", "direct")["requests"] == 2


def test_a_file_that_cannot_be_written_is_told(trace: str, tmp_path: Path) -> None:
    (tmp_path / "out" / "tiers.csv").mkdir(parents=True)
    words = ("--trace", trace, "--way", "direct")
    assert "tiers.csv cannot be written to: Is a directory" in refused(
        "simulate", *words, "--out", str(tmp_path / "out")
    )
    words = (*words, "--slo", "default:ttft_p99=2s", "--plot", str(tmp_path))
    assert "is a folder: name a file for --plot" in refused("plan", *words)


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(trace: str) -> None:
    assert "cannot be written to" in refused("simulate", "--trace", trace, "--out", f"{trace}/out")


def test_without_matplotlib_the_tables_are_written_and_the_rest_is_said(
    trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.cli_load.find_spec", lambda name: None)
    done = fairlane("simulate", "--trace", trace, "--way", "direct", "--out", str(tmp_path / "out"))
    assert "pip install 'fairlane[plots]'" in done.stderr
    assert not list((tmp_path / "out").glob("*.svg"))
    assert (tmp_path / "out" / "tiers.csv").exists()


# --- while it runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_terminal_sees_virtual_time_and_whatever_ends_it_leaves_nothing_behind(
    tmp_path: Path, signum: signal.Signals, code: int
) -> None:
    words = ["simulate", "--poisson", "4", "--minutes", "60", "--way", "ours"]
    pid, terminal = pty.fork()
    if not pid:
        os.environ |= {"TMPDIR": str(tmp_path), "COLUMNS": "150", "TERM": "xterm"}
        os.execv(sys.executable, [sys.executable, "-m", "fairlane.cli", *words])
    seen = ""
    while not re.search(r"ours.* of [\d,]+ requests, at 0:00:[0-5][1-9]", seen):
        seen += os.read(terminal, 4096).decode(errors="replace")
    assert list(tmp_path.glob("fairlane-simulate-*"))
    os.kill(pid, signum)
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # Linux's way to say that the other end is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert not list(tmp_path.iterdir())
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path) in _read(path)]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
