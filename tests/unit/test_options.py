"""`--backend NAME=URL[,slots=N][,key_env=VAR][,family=F]`."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidRequest
from fairlane.model import FAMILY_NAMES, BackendSpec
from fairlane.options import BackendOption, parse_backend


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sim=null://", BackendOption("sim", "null", BackendSpec("null://"))),
        ("a/b:c=http://gpu1:8000/v1", BackendOption("a/b:c", "gpu1:8000", BackendSpec("http://gpu1:8000/v1"))),
        (
            "llama=https://user:secret@host/x,slots=8,key_env=KEY,family=vllm",
            BackendOption("llama", "host/x", BackendSpec("https://user:secret@host/x", "vllm", "KEY", 8)),
        ),
        ("m=http://[::1]:80", BackendOption("m", "::1:80", BackendSpec("http://[::1]:80"))),
    ],
)
def test_a_backend_is_read(text: str, expected: BackendOption) -> None:
    assert parse_backend(text) == expected


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_family_is_named(family: str) -> None:
    assert parse_backend(f"m=http://a,family={family}").spec.family == family


@pytest.mark.parametrize("family", ["vlm", "VLLM", "", "vllm "])
def test_an_unknown_family_is_refused_and_the_known_ones_are_named(family: str) -> None:
    with pytest.raises(InvalidRequest, match="family is one of vllm, sglang, tgi"):
        parse_backend(f"m=http://a,family={family}")


@pytest.mark.parametrize("text", ["", "x", "=http://a", "m=gpu1:8000", "m=http://a,slots=x", "m=http://a,colour=red"])
def test_what_is_none_is_refused_with_a_word(text: str) -> None:
    with pytest.raises(InvalidRequest, match="backend"):
        parse_backend(text)
