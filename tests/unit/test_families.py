"""The one table of what servers call their metrics, and the page of each kind and version of them."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.backends.families import FAMILIES
from dispatcher.backends.scrape import Reading, ScrapeFailed, read_page
from fairlane.model import FAMILY_NAMES

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path.read_bytes() for path in sorted((ROOT / "tests/data/pages").glob("*.txt"))}
SHOWN = Reading(
    running=8,
    waiting=12,
    kv=0.125,
    token_sum=1.88,
    token_count=235.0,
    progress=335.0,
    started_at=0.0,
    missing=(),
    family="",
)
DIFFERENT: dict[str, dict[str, object]] = {
    "llamacpp-2024": {"progress": 325.0},
    "llamacpp-now": {"progress": 385.0, "kv": None},
    "sglang-0.4": {"progress": 331.88, "stamp": (1024.0, 86.5)},
    "sglang-0.5": {"progress": 511.88},
    "sglang-router": {"progress": 331.88},
    "tgi-3": {"progress": 516.0, "kv": None},
    "tgi-means": {"progress": 5.0, "kv": None, "token_sum": 0.04, "token_count": 5.0},
    "triton-2025": {"token_sum": 0.0, "token_count": 0.0},
    "trtllm-1": {"progress": 385.0, "token_sum": 0.04, "token_count": 5.0, "stamp": (0.008,)},
}


def expected(page: str) -> Reading:
    family = page.split("-")[0]
    started_at = 1795984595.64 if family == "vllm" else 0.0
    return replace(SHOWN, family=family, started_at=started_at, **DIFFERENT.get(page, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("named", [False, True])
def test_a_page_of_each_family_and_version_is_read_named_or_not(page: str, named: bool) -> None:
    assert read_page(PAGES[page], page.split("-")[0] if named else None) == expected(page)


@pytest.mark.parametrize("page", PAGES)
def test_neither_the_order_of_lines_nor_comments_nor_line_ends_matter(page: str) -> None:
    lines = [line for line in PAGES[page].decode().splitlines() if not line.startswith("#")]
    random.Random(page).shuffle(lines)
    found = read_page("\r\n".join(lines).encode())
    assert replace(found, stamp=(), token_sum=0, progress=0) == replace(
        expected(page), stamp=(), token_sum=0, progress=0
    )
    assert (found.token_sum, found.progress) == pytest.approx((expected(page).token_sum, expected(page).progress))


@pytest.mark.parametrize("page", PAGES)
def test_a_family_is_not_read_by_anothers_names(page: str) -> None:
    for other in FAMILIES.keys() - {page.split("-")[0]}:
        with pytest.raises(ScrapeFailed) as raised:
            read_page(PAGES[page], other)
        assert raised.value.reason in ("missing", "unknown")


def twice(page: bytes) -> bytes:
    """The page with a second engine: each series once more, told apart by a label."""
    series = re.compile(r"^(?P<name>[a-z][\w:]*)(?:\{(?P<labels>.*)\})?(?P<rest> .*)$", re.MULTILINE)
    text = "".join(line for line in page.decode().splitlines(keepends=True) if not line.startswith(("#", "process")))
    one = series.sub(r'\g<name>{of="a",\g<labels>}\g<rest>', text)
    return (one + one.replace('of="a"', 'of="b"')).encode()


@pytest.mark.parametrize("page", [page for page in PAGES if page != "vllm-unusual"])
def test_several_engines_on_a_page_add_up_and_the_fullest_cache_counts(page: str) -> None:
    found, one = read_page(twice(PAGES[page])), expected(page)
    assert (found.running, found.waiting, found.kv) == (16, 24, one.kv)
    assert (found.token_sum, found.token_count) == pytest.approx((2 * one.token_sum, 2 * one.token_count))
    assert found.progress == pytest.approx(2 * (one.progress or 0))


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"process_start_time_seconds 1\n",
        b"# TYPE vllm:num_requests_waiting gauge\n",
        b"vllm:num_requests_waiting_by_reason 1\n",
        b"vllm:cache_config_info 1\n",
        b"tgi_request_failure 1\n",
        b'nv_trt_llm_request_metrics{request_type="context"} 1\n',
        b"<html>vllm:num_requests_running 1</html>",
        b'[{"numActiveRequests": 8}]',
    ],
)
def test_a_page_of_nobody_is_not_taken_for_somebodys(page: bytes) -> None:
    with pytest.raises(ScrapeFailed) as raised:
        read_page(page)
    assert raised.value.reason == "unknown"


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        (b"vllm:kv_cache_usage_perc 0.5\n", ("vllm:num_requests_running", "vllm:num_requests_waiting")),
        (b"tgi_request_success 5\n", ("tgi_batch_current_size", "tgi_queue_size")),
        (b"trtllm_prompt_tokens_total 5\n", ("trtllm_num_requests_running", "trtllm_num_requests_waiting")),
        (b"ray_vllm_num_requests_running 1\n", ("ray_vllm_num_requests_waiting",)),
        (b'sglang_num_queue_reqs{priority="3"} 9\n', None),
        (
            b'nv_trt_llm_request_metrics{request_type="active"} 3\n',  # before 2025
            ('nv_trt_llm_request_metrics{request_type="waiting"}',),
        ),
    ],
)
def test_what_a_known_family_does_not_show_is_named_and_not_zero(page: bytes, missing: tuple[str, ...] | None) -> None:
    with pytest.raises(ScrapeFailed) as raised:
        read_page(page)
    assert (raised.value.reason, raised.value.missing) == (("missing", missing) if missing else ("unknown", ()))


@pytest.mark.parametrize("page", [page for page in PAGES if expected(page).kv is not None])
def test_a_percentage_is_not_taken_for_a_share(page: str) -> None:
    one, family = expected(page), FAMILIES[page.split("-")[0]]
    name = next(name for name in family.kv if name.partition("{")[0].encode() in PAGES[page])
    lacks = tuple(name for name in family.kv[:1] if name not in family.retired)
    assert read_page(PAGES[page] + f"{name} 12.5\n".encode()) == replace(one, kv=None, missing=lacks)


def test_a_server_without_metrics_is_one_by_name() -> None:
    with pytest.raises(ScrapeFailed, match="family openai") as raised:
        read_page(PAGES["vllm-0.32"], "openai")
    assert raised.value.reason == "unknown"


def test_the_names_that_a_backend_may_have_are_those_of_the_table() -> None:
    assert tuple(FAMILIES) == FAMILY_NAMES


def test_no_name_means_two_things() -> None:
    wanted = [name for family in FAMILIES.values() for name in family.wanted]
    assert len(set(wanted)) == len(wanted), "a page could not be told by them"
    for family in FAMILIES.values():
        assert not set(family.load) & {*family.kv, *family.progress, *family.stamp}


def test_every_name_is_documented() -> None:
    text = (ROOT / "docs/families.md").read_text()
    for family in FAMILIES.values():
        assert f"`{family.name}`" in text
        for name in family.wanted:
            plain = name.replace("ray_vllm:", "vllm:").replace("ray_vllm_", "vllm:").replace("sglang_", "sglang:")
            plain = plain.replace('{priority=""}', "").removesuffix("_sum").removesuffix("_count")
            assert plain.replace("_sum{", "{").replace("_count{", "{") in text, f"docs/families.md lacks {name}"
