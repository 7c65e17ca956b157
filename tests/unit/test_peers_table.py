"""The table that sets Fairlane beside other queues says what was measured, no more."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.peers.measure import Figures
from benchmarks.peers.table import markdown, standings

OURS = Figures(7000, 6000, 900, 9000, 20_000, 2.0, 4.0, 8.0)
PEER = Figures(3000, 2000, 4000, 3000, None, 3.0, 9.0, 4000.0)
OTHER = Figures(1000, 2500, 1000, 500, 16_000, 2.5, 5.0, 9000.0)


def cells(text: str, name: str) -> list[str]:
    (row,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_row_has_the_medians_and_a_dash_for_what_a_queue_cannot_do() -> None:
    rounds = [{"Fairlane": OURS, "Huey": replace(PEER, drain_bare=n)} for n in (1000, 9000, 3000)]
    assert cells(markdown(rounds), "Huey") == [
        "Huey", "3,000", "2,000", "4,000", "3,000", "–", "3.0", "9.0", "4,000",
    ]  # fmt: skip


def test_the_rows_stand_in_the_order_of_the_rounds() -> None:
    lines = markdown([{"Fairlane": OURS, "Huey": PEER, "RQ": OTHER}]).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| Fairlane", "| Huey", "| RQ"]


def test_fairlane_is_compared_with_the_best_of_each_round_and_the_median_ratio_counts() -> None:
    rounds = [
        {"Fairlane": OURS, "Huey": PEER, "RQ": OTHER},
        {"Fairlane": OURS, "Huey": replace(PEER, drain=12_000), "RQ": OTHER},
        {"Fairlane": OURS, "Huey": PEER, "RQ": OTHER},
    ]
    drain = standings(rounds)[1]
    assert drain.ratios == (2.4, 0.5, 2.4)
    assert drain.best == ("RQ", "Huey", "RQ")
    assert drain.ahead


def test_a_time_is_ahead_when_it_is_shorter() -> None:
    found = {standing.title: standing for standing in standings([{"Fairlane": OURS, "Huey": PEER, "RQ": OTHER}])}
    assert found["result p50 ms"].ratio == 1.25
    slow = {"Fairlane": replace(OURS, latency_p50=5.0), "Huey": PEER, "RQ": OTHER}
    assert not {s.title: s for s in standings([slow])}["result p50 ms"].ahead


def test_a_peer_may_submit_in_whatever_way_is_its_fastest() -> None:
    found = {standing.title: standing for standing in standings([{"Fairlane": OURS, "Huey": PEER}])}
    assert found["submit singly, one caller or 32"].ratio == 9000 / 4000
    assert found["submit in batches"].ratio == 20_000 / 4000


def test_a_queue_that_failed_in_a_round_is_judged_by_the_others() -> None:
    rounds = [{"Fairlane": OURS, "Huey": PEER}, {"Fairlane": OURS}, {"Huey": PEER}]
    assert cells(markdown(rounds), "Huey")[1] == "3,000"
    assert all(len(standing.ratios) == 1 for standing in standings(rounds))
    assert standings([{"Fairlane": OURS}]) == []
