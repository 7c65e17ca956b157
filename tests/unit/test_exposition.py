"""Reading the wanted lines of a Prometheus text page, and only those, whatever the page holds."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.backends.exposition import MAX_BYTES, MAX_LINE, MAX_LINES, MAX_SERIES, Unreadable, read

printable = st.text(st.characters(codec="utf-8", exclude_characters="\n"))


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abcde"), st.text(max_size=20)), st.floats(), st.booleans()),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_every_series_is_read_whatever_its_labels_and_its_value(
    series: list[tuple[dict[str, str], float, bool]], end: str
) -> None:
    lines: list[str] = []
    for labels, value, stamped in series:
        inner = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        line = f"up{{{inner}}} {value!r}{' 1795984600000' if stamped else ''}"
        lines += ["# HELP up is up", line, "up_created 7", "upper 8"]
    found = read((end.join(lines) + end).encode(), ["up"])
    assert found.keys() == {"up"}
    assert [repr(value) for value in found["up"]] == [repr(value) for _, value, _ in series]


labels_of = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["", "x", 'a="x"', "{", "},", '"', "\\", "\n"]))


@given(st.lists(st.tuples(labels_of, st.integers(0, 9)), max_size=20), st.randoms())
def test_a_name_may_say_which_of_its_series_it_means(series: list[tuple[dict[str, str], int]], random: Random) -> None:
    lines: list[str] = []
    for labels, value in series:
        pairs = [f'{key}="{escaped(text)}"' for key, text in labels.items()]
        random.shuffle(pairs)
        lines.append(f"up{{{','.join(pairs)}}} {value}")
    names = ["up", 'up{a="x"}', 'up{a=""}', 'up{f=""}', 'down{a="x"}']
    found = read("\n".join(lines).encode(), names)
    everything = [value for _, value in series]
    assert found.get("up", []) == found.get('up{f=""}', []) == everything
    assert found.get('up{a="x"}', []) == [value for labels, value in series if labels.get("a") == "x"]
    assert found.get('up{a=""}', []) == [value for labels, value in series if not labels.get("a")]
    assert 'down{a="x"}' not in found


@given(st.lists(printable | st.binary().map(repr), max_size=30))
def test_lines_that_are_not_wanted_are_never_looked_at(lines: list[str]) -> None:
    others = [line for line in lines if not line.lstrip(" \t").startswith("up")]
    page = "\n".join([*others, "up 1", 'uptime{broken="', "# up 2", "x up 3"])
    assert read(page.encode(), ["up"]) == {"up": [1.0]}


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_whatever_the_page_holds_it_is_read_or_unreadable(before: bytes, after: bytes) -> None:
    for page in (before, b"up" + after, b'up{a="' + after, before + b"\nup{" + after + b"} 1"):
        try:
            found = read(page, ["up"])
        except Unreadable:
            continue
        assert all(isinstance(value, float) for values in found.values() for value in values)


@pytest.mark.parametrize(
    ("text", "value"),
    [("NaN", math.nan), ("+Inf", math.inf), ("-Inf", -math.inf), ("1e3", 1000.0), ("-1.5E-3", -0.0015), ("7", 7.0)],
)
def test_numbers_are_read_as_the_format_writes_them(text: str, value: float) -> None:
    assert read(f"up {text}".encode(), ["up"])["up"] == pytest.approx([value], nan_ok=True)


@pytest.mark.parametrize(
    "line",
    [
        "up",
        "up ",
        "up{} ",
        'up{a="b} 1',
        "up{a=b 1",
        "up{} {} 1",
        "up 1_000",
        "up 0x10",
        "up one",
        "up 1e",
        "up ٣",
    ],
)
def test_a_wanted_line_that_is_no_sample_is_reported_not_guessed(line: str) -> None:
    with pytest.raises(Unreadable, match="not a sample: up"):
        read(f"up 1\n{line}\n".encode(), ["up"])


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"x" * (MAX_BYTES + 1), id="too large"),
        pytest.param(b"\n" * MAX_BYTES, id="empty lines"),
        pytest.param(b"\r\n" * (MAX_LINES + 1), id="too many lines"),
        pytest.param(b"up 1\n" * (MAX_SERIES + 1), id="too many series"),
        pytest.param(b"up 1 " + b"1" * MAX_LINE, id="too long a line"),
        pytest.param(b"up " + b"9" * (MAX_BYTES - 10), id="digits"),
        *(
            pytest.param(start + (piece * MAX_LINE)[: MAX_LINE - 3], id=f"{start!r} and {piece!r} for ever")
            for start in (b"up ", b"up{")
            for piece in (b" ", b"{", b"{ ", b'{a="\\', b'a="",', b"{}", b'"', b"\t}", b" 1e")
        ),
    ],
)
def test_a_hostile_page_is_refused_soon(page: bytes) -> None:
    with pytest.raises(Unreadable):
        read(page, ["up"])


def test_names_that_are_not_there_are_absent_not_zero() -> None:
    assert read(b"", ["up"]) == {}
    assert read(b"# TYPE up gauge\nup_total 1\n", ["up"]) == {}
