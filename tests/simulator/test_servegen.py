"""ServeGen's clients: as many requests as they sent, in their bursts, with their lengths."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from dispatcher.simulator.workloads.load import windowed
from dispatcher.simulator.workloads.servegen import generate, read_clients
from fairlane.errors import InvalidRequest

BURSTY = [
    [0, 0.5, 8.0, "Weibull", 0.3, 0.01],
    [600, 0.1, 5.0, "Gamma", 0.02, 90.0],
    [1200, 2.0, 1.0, "Gamma", 1.0, 1.0],
]
SHORT = {"input_tokens": {"mean": 2, "q": [0, 2, 4]}, "output_tokens": {"mean": 8, "q": [8, 8, 8]}}
LONG = {"input_tokens": {"mean": 300, "q": [100, 200, 400]}, "output_tokens": {"mean": 9, "q": [9, 9, 9]}}
SERVEGEN = {
    "quantile_levels_percent": [0, 50, 100],
    "window_s": {"trace": 600},
    "clients": [
        {"id": 0, "arrival_windows": BURSTY, "lengths": {"1200": LONG, "0": SHORT}},
        {"id": 7, "arrival_windows": [[0, 1.0, 1.0, "Gamma", 1.0, 1.0]], "lengths": {}},
    ],
}


def clients_file(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "clients.json"
    path.write_text(json.dumps(content))
    return path


def test_clients_send_as_much_as_they_did_however_bursty(tmp_path: Path) -> None:
    found = generate(read_clients(clients_file(tmp_path, SERVEGEN)), 1, length_s=1800)
    windows = Counter((one.tenant, int(one.at_ms // 600_000)) for one in found)
    assert windows == {("client-0", 0): 300, ("client-0", 1): 60, ("client-0", 2): 1200, ("client-7", 0): 600}
    assert found == generate(read_clients(clients_file(tmp_path, SERVEGEN)), 1, length_s=1800)


def test_clients_lengths_are_within_their_quantiles_and_change_over_time(tmp_path: Path) -> None:
    found = generate(read_clients(clients_file(tmp_path, SERVEGEN)), 1, length_s=1800)
    early, late = ([one for one in found if (one.at_ms >= 1_200_000) is after] for after in (False, True))
    assert {one.answer for one in early} == {8}
    assert {one.answer for one in late} == {9}
    assert {one.prompt for one in early} == {1, 2, 3, 4}
    assert median(one.prompt for one in late) == pytest.approx(200, rel=0.1)
    assert all(100 <= one.prompt <= 400 for one in late)


def test_cuts_of_clients_that_overlap_have_the_same_arrivals(tmp_path: Path) -> None:
    clients = read_clients(clients_file(tmp_path, SERVEGEN))
    whole = windowed(generate(clients, 1, length_s=1800), 700_000, 600_000)
    part = generate(clients, 1, from_s=700, length_s=600)
    assert [one.at_ms for one in part] == pytest.approx([one.at_ms for one in whole])
    assert [one.prompt for one in part] == [one.prompt for one in whole]


def test_a_share_of_the_clients_load_keeps_all_of_them(tmp_path: Path) -> None:
    found = Counter(
        one.tenant for one in generate(read_clients(clients_file(tmp_path, SERVEGEN)), 1, length_s=1800, share=0.1)
    )
    assert found == {"client-0": 156, "client-7": 60}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"clients": [{"id": 1, "arrival_windows": [[0, 1, 1, "Cauchy", 1, 1]], "lengths": {}}]}, "Cauchy"),
        ({"clients": [{"id": 1, "arrival_windows": [[0, -1, 1, "Gamma", 1, 1]], "lengths": {}}]}, "no rate"),
        ({"clients": [{"id": 1, "arrival_windows": [], "lengths": {"0": {}}}]}, "input_tokens"),
        ({"clients": [{"id": 1, "arrival_windows": [], "lengths": {}}]}, "no client with lengths"),
        ({"quantile_levels_percent": [0, 100]}, "3 quantiles for 2 levels"),
        ({"quantile_levels_percent": [5, 50, 100]}, "rise from 0 to 100"),
        ({"window_s": None}, "TypeError"),
        ({"window_s": {"trace": float("nan")}}, "no length"),
        ({"clients": [{"id": "\x1b[31m", "arrival_windows": [], "lengths": {}}]}, "no name of the form"),
        (
            {"clients": [{"id": 1, "arrival_windows": [[float("nan"), 1, 1, "Gamma", 1, 1]], "lengths": {}}]},
            "no beginning",
        ),
        (
            {
                "quantile_levels_percent": [0, 100],
                "clients": [
                    {
                        "id": 1,
                        "arrival_windows": [],
                        "lengths": {"0": {"input_tokens": {"q": [1, 1e300]}, "output_tokens": {"q": [1, 2]}}},
                    }
                ],
            },
            "a quantile is not from 0",
        ),
    ],
)
def test_a_file_that_holds_no_clients_is_told(tmp_path: Path, change: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        read_clients(clients_file(tmp_path, SERVEGEN | change))
