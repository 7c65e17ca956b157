"""What one look at a backend's metrics says, and that nothing absent or broken is ever taken for an empty backend."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest

from dispatcher.backends.scrape import Reading, ScrapeFailed, read_page, scrape, token_ms

PAGES = Path(__file__).parents[1] / "data/pages"
PAGE = (PAGES / "vllm-0.32.txt").read_bytes()
SHOWN = Reading(
    running=8,
    waiting=12,
    kv=0.125,
    token_sum=1.88,
    token_count=235.0,
    progress=335.0,
    started_at=1795984595.64,
    missing=(),
    family="vllm",
)


def without(*names: str) -> bytes:
    starts = tuple(name.encode() for name in names)
    return b"".join(line for line in PAGE.splitlines(keepends=True) if not line.startswith(starts))


def answering(handler: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(handler))


async def fails(handler: Callable[[httpx.Request], httpx.Response], timeout_s: float = 2.0) -> ScrapeFailed:
    async with answering(handler) as client:
        with pytest.raises(ScrapeFailed) as raised:
            await scrape(client, "http://backend", timeout_s=timeout_s)
    return raised.value


@pytest.mark.parametrize("path", sorted(PAGES.glob("vllm-*.txt")), ids=lambda path: path.stem)
@pytest.mark.parametrize("family", [None, "vllm"])
def test_every_generation_of_names_and_every_way_to_write_them_reads_the_same(path: Path, family: str | None) -> None:
    assert read_page(path.read_bytes(), family) == SHOWN


@pytest.mark.parametrize("url", ["http://backend", "http://backend/", "http://backend/v1", "http://backend/v1/"])
async def test_the_page_is_found_from_the_address_of_the_api(url: str) -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, content=PAGE)

    async with answering(handler) as client:
        assert await scrape(client, url) == SHOWN
        assert (await scrape(client, "http://backend/vllm-a/v1")) == SHOWN
    assert asked == ["http://backend/metrics", "http://backend/vllm-a/metrics"]


@pytest.mark.parametrize("family", [None, "vllm"])
@pytest.mark.parametrize("name", ["vllm:num_requests_running", "vllm:num_requests_waiting"])
def test_absent_requests_make_the_page_useless_and_are_named(name: str, family: str | None) -> None:
    with pytest.raises(ScrapeFailed, match=name) as raised:
        read_page(without(f"{name}{{"), family)
    assert raised.value.reason == "missing"
    assert raised.value.missing == (name,)


@pytest.mark.parametrize(
    ("absent", "named", "reading"),
    [
        (("vllm:kv_cache",), "vllm:kv_cache_usage_perc", replace(SHOWN, kv=None)),
        (
            ("vllm:inter_token", "vllm:request_time"),
            "vllm:inter_token_latency_seconds",
            replace(SHOWN, token_sum=0.0, token_count=0.0),
        ),
        (
            ("vllm:generation", "vllm:prompt", "vllm:request_success"),
            "vllm:generation_tokens_total",
            replace(SHOWN, progress=None),
        ),
    ],
)
def test_other_absent_names_are_reported_and_the_rest_is_read(
    absent: tuple[str, ...], named: str, reading: Reading
) -> None:
    assert read_page(without(*absent)) == replace(reading, missing=(named,))


def test_a_page_without_a_start_time_is_as_good() -> None:
    assert read_page(without("process_")) == replace(SHOWN, started_at=0.0)


def test_the_time_per_token_falls_back_to_the_means_of_finished_requests() -> None:
    assert read_page(without("vllm:inter_token")) == replace(SHOWN, token_sum=0.04, token_count=5.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1.0", "1e300"])
@pytest.mark.parametrize("name", ["running", "waiting"])
def test_requests_that_are_no_number_of_requests_make_the_page_useless(name: str, value: str) -> None:
    line = f'vllm:num_requests_{name}{{engine="1",model_name="tiny"}} {value}\n'
    with pytest.raises(ScrapeFailed, match=f"vllm:num_requests_{name}") as raised:
        read_page(PAGE + line.encode())
    assert raised.value.reason == "unreadable"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-0.5", "37.5"])
def test_a_share_of_the_cache_that_is_none_is_reported_not_used(value: str) -> None:
    found = read_page(PAGE + f'vllm:kv_cache_usage_perc{{engine="1",model_name="tiny"}} {value}\n'.encode())
    assert found == replace(SHOWN, kv=None, missing=("vllm:kv_cache_usage_perc",))


def test_an_unknown_page_and_an_unknown_family_are_told_apart() -> None:
    with pytest.raises(ScrapeFailed, match="no metric of a known server") as raised:
        read_page(b"<html>welcome</html>")
    assert raised.value.reason == "unknown"
    with pytest.raises(ScrapeFailed, match="no server family 'vlm'"):
        read_page(PAGE, "vlm")


@pytest.mark.parametrize("status", [204, 302, 401, 404, 500, 503])
async def test_an_answer_that_is_not_200_is_a_failure(status: int) -> None:
    error = await fails(lambda _: httpx.Response(status, content=PAGE, headers={"location": "http://other/metrics"}))
    assert error.reason == "status"
    assert str(status) in error.message


async def test_a_refused_connection_and_a_broken_answer_are_failures() -> None:
    for problem, reason in (
        (httpx.ConnectError("refused"), "unreachable"),
        (httpx.ReadError(""), "unreadable"),
        (httpx.RemoteProtocolError("no answer"), "unreadable"),
    ):

        def handler(_: httpx.Request, problem: Exception = problem) -> httpx.Response:
            raise problem

        assert (await fails(handler)).reason == reason


@pytest.mark.parametrize("url", ["http://backend:port", "backend:8100", "", "ftp://backend", "http://"])
async def test_an_address_that_is_none_is_a_failure(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(ScrapeFailed) as raised:
            await scrape(client, url)
    assert raised.value.reason == "unreachable"


class Endless(httpx.AsyncByteStream):
    """A body that goes on for ever, one chunk at a time, each a little later."""

    def __init__(self, chunk: bytes, every_s: float = 0.0) -> None:
        self.chunk, self.every_s = chunk, every_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield self.chunk
            await anyio.sleep(self.every_s)


async def test_an_endless_page_is_cut_off() -> None:
    assert (await fails(lambda _: httpx.Response(200, stream=Endless(b"x" * 65536)), 60)).reason == "too_large"


async def test_a_page_that_drips_is_given_up() -> None:
    assert (await fails(lambda _: httpx.Response(200, stream=Endless(b"x", 0.01)), 0.1)).reason == "timeout"


async def test_a_compressed_page_is_not_unpacked() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(200, content=gzip.compress(PAGE), headers={"content-encoding": "gzip"})

    assert (await fails(handler)).reason == "unreadable"


async def test_a_page_with_a_broken_line_is_unreadable() -> None:
    error = await fails(lambda _: httpx.Response(200, content=PAGE + b'vllm:num_requests_running{engine="1'))
    assert error.reason == "unreadable"


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (SHOWN, replace(SHOWN, token_sum=2.88, token_count=285.0), 20.0),
        (None, SHOWN, None),
        (SHOWN, SHOWN, None),  # idle
        (SHOWN, replace(SHOWN, token_sum=0.1, token_count=10.0), None),  # restarted
        (SHOWN, replace(SHOWN, token_sum=0.1, token_count=300.0), None),
        (SHOWN, replace(SHOWN, token_sum=9.0, token_count=300.0, started_at=1.0), None),
        (SHOWN, replace(SHOWN, token_sum=9.0, token_count=300.0, family="other"), None),
        (SHOWN, replace(SHOWN, token_sum=0.0, token_count=0.0), None),  # absent from now on
    ],
)
def test_time_per_token_is_that_of_the_tokens_between_two_readings(
    before: Reading | None, now: Reading, expected: float | None
) -> None:
    assert token_ms(before, now) == (expected if expected is None else pytest.approx(expected))
