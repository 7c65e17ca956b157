"""A profile comes back from its file as it was, and what is wrong with a file is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dispatcher.backends.timing import Speed
from dispatcher.simulator.profile import PROFILES, Profile, dump_profile, load_profile
from fairlane.errors import InvalidRequest


@pytest.mark.parametrize("profile", [*PROFILES.values(), Profile("own", Speed(slots=3, kv_token_ms=0.25), 1.5)])
def test_it_comes_back_as_it_was(tmp_path: Path, profile: Profile) -> None:
    path = tmp_path / "profile.json"
    path.write_text(dump_profile(profile))
    assert load_profile(str(path)) == profile


def test_those_that_are_built_in_have_names() -> None:
    assert all(load_profile(name).name == name for name in PROFILES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"speed": {"slots": 0}}, "slots is 0"),
        ({"speed": {"slots": 2.5}}, "slots is 2.5"),
        ({"speed": {"slots": True}}, "slots is True"),
        ({"speed": {"step_ms": -1}}, "step_ms is -1"),
        ({"speed": {"step_ms": 0}}, "step_ms is 0"),
        ({"speed": {"kv_tokens": "many"}}, "kv_tokens is 'many'"),
        ({"speed": {"sped": 1}}, "speed.sped is unknown"),
        ({"speed": {"step_ms": float("inf")}}, "step_ms is inf"),
        ({"speed": {"sequence_ms": float("nan")}}, "sequence_ms is nan"),
        ({"speed": 3}, "no `speed`"),
        ({"overhead_ms": -1}, "overhead_ms is -1"),
        ({"overhead_ms": "1"}, "overhead_ms is '1'"),
        ({"speed": {"slots": 10**30}}, "slots is 1000"),
        ({"speed": {"step_ms": 10**400}}, "step_ms is 1000"),
        ({"speed": {"step_ms": 1e-300}}, "step_ms is 1e-300, less than"),
        ({"speed": {"sequence_ms": 1e300}}, "sequence_ms is 1e.300"),
        ({"name": "\x1b[31m"}, "name is .*that can be printed"),
        ({"name": None}, "name is None"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(json.loads(dump_profile(PROFILES["tiny"])) | change))
    with pytest.raises(InvalidRequest, match=said):
        load_profile(str(path))


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", "[" * 100_000])
def test_what_is_no_profile_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(InvalidRequest, match="is no profile"):
        load_profile(str(path))


def test_an_unknown_name_is_said_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="a100-7b"):
        load_profile("h900")
