"""What one look at a backend's metrics says, and that nothing absent or broken is ever taken for an empty backend."""

from __future__ import annotations

import gzip
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.backends.scrape import MetricsPage, Reading, Renewals, ScrapeFailed, read_page, scrape, token_ms

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
            "vllm:inter_token_latency_seconds_sum",
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


TRTLLM = (PAGES / "trtllm-1.txt").read_bytes()
JSON = b'[{"gpuMemUsage": 1, "numActiveRequests": 8, "numQueuedRequests": 12}]'
ITS_PAGE = "/prometheus/metrics"


class Server:
    """Answers each path with a status and a body, and remembers what was asked. None: too late."""

    def __init__(self, **answers: tuple[int, bytes] | None) -> None:
        self.answers = {f"/{path.replace('_', '/')}": answer for path, answer in answers.items()}
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        answer = self.answers.get(request.url.path, (404, b""))
        if answer is None:
            raise httpx.ReadTimeout("")
        return httpx.Response(answer[0], content=answer[1])

    async def looked_at(self, page: MetricsPage) -> Reading | str:
        """What a scrape finds, or why it fails; `asked` is what it took."""
        self.asked.clear()
        async with answering(self) as client:
            try:
                return await page.scrape(client)
            except ScrapeFailed as failed:
                return failed.reason


async def test_after_json_the_other_path_is_tried_and_remembered() -> None:
    server, page = Server(metrics=(200, JSON), prometheus_metrics=(200, TRTLLM)), MetricsPage("http://backend/v1")
    assert await server.looked_at(page) == read_page(TRTLLM, "trtllm")
    assert server.asked == ["/metrics", ITS_PAGE]
    for _ in range(3):
        assert isinstance(await server.looked_at(page), Reading)
        assert server.asked == [ITS_PAGE], "who asks for the JSON takes it from the server's own page"


async def test_a_family_that_is_named_is_asked_for_its_own_page_only() -> None:
    server, page = (
        Server(metrics=(200, JSON), prometheus_metrics=(200, TRTLLM)),
        MetricsPage("http://backend", "trtllm"),
    )
    assert isinstance(await server.looked_at(page), Reading)
    assert server.asked == [ITS_PAGE]


async def test_a_server_at_rest_that_gives_its_json_too_late_is_found_at_the_next_scrape() -> None:
    server, page = Server(metrics=None, prometheus_metrics=(200, TRTLLM)), MetricsPage("http://backend")
    assert await server.looked_at(page) == "timeout"
    assert isinstance(await server.looked_at(page), Reading)
    assert server.asked == [ITS_PAGE]


async def test_a_server_that_was_only_slow_is_read_where_it_always_was() -> None:
    server, page = Server(metrics=None), MetricsPage("http://backend")
    assert await server.looked_at(page) == "timeout"
    assert await server.looked_at(page) == "timeout", "not taken for one without metrics"
    server.answers["/metrics"] = (200, PAGE)
    assert await server.looked_at(page) == SHOWN
    server.answers["/metrics"] = None
    assert await server.looked_at(page) == "timeout"
    server.answers["/metrics"] = (200, PAGE)
    assert await server.looked_at(page) == SHOWN
    assert server.asked == ["/metrics"]


async def test_json_and_no_page_is_not_fetched_twice_at_each_scrape() -> None:
    server, page = Server(metrics=(200, JSON)), MetricsPage("http://backend")
    counts: list[int] = []
    for _ in range(6):
        assert await server.looked_at(page) == "status"
        counts.append(len(server.asked))
    assert counts == [2, 1] * 3


async def test_another_server_at_the_same_address_is_found() -> None:
    server, page = Server(metrics=(200, JSON), prometheus_metrics=(200, TRTLLM)), MetricsPage("http://backend")
    assert isinstance(await server.looked_at(page), Reading)
    server.answers["/metrics"] = (200, PAGE)
    del server.answers[ITS_PAGE]
    assert await server.looked_at(page) == "status"
    assert await server.looked_at(page) == SHOWN


async def test_a_server_without_metrics_is_only_asked_whether_it_answers() -> None:
    server, page = (
        Server(v1_models=(200, b'{"data": []}'), metrics=(200, PAGE)),
        MetricsPage("http://backend/v1", "openai"),
    )
    assert await server.looked_at(page) == "unknown"
    assert server.asked == ["/v1/models"]


async def test_a_server_that_shows_its_metrics_only_when_told_to_is_one_without() -> None:
    server, page = Server(metrics=(501, b'{"error": {"code": 501}}')), MetricsPage("http://llama", "llamacpp")
    assert await server.looked_at(page) == "status"


def test_progress_stands_still_until_the_gauges_are_renewed() -> None:
    first = replace(SHOWN, family="sglang", started_at=0.0, progress=100.0, stamp=(7.0, 80.5))
    renewals = Renewals()
    assert renewals.counted(first) == first
    assert renewals.counted(replace(first, progress=140.0)).progress == 100.0, "tokens came, but the gauges are old"
    renewed = renewals.counted(replace(first, progress=140.0, stamp=(9.0, 80.5))).progress
    assert renewed is not None
    assert renewed > 140.0
    again = renewals.counted(replace(first, progress=140.0, stamp=(9.0, 81.5))).progress
    assert again is not None
    assert again > renewed, "no request has ended, but the gauges are new"
    assert renewals.counted(replace(first, progress=3.0, stamp=(9.0, 81.5))).progress == 3.0, "restarted"


@given(st.lists(st.tuples(st.floats(0, 1e9), st.sampled_from([(), (1.0,), (2.0,)])), max_size=20))
def test_progress_falls_only_where_the_counters_fell(pages: list[tuple[float, tuple[float, ...]]]) -> None:
    renewals, before = Renewals(), None
    for counters, stamp in sorted(pages):
        now = renewals.counted(replace(SHOWN, progress=counters, stamp=stamp or (3.0,))).progress
        assert now is not None
        assert before is None or now >= before
        before = now


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


HUGE = ("1e308", "-1e308", "1e-308", "nan", "inf", "-inf", "1e999", "0", "17")


@given(st.lists(st.sampled_from(HUGE), min_size=8, max_size=8), st.lists(st.sampled_from(HUGE), min_size=8, max_size=8))
def test_no_number_that_is_read_is_infinite_or_none_whatever_the_page_shows(first: list[str], then: list[str]) -> None:
    """Two engines, each of whose counters may be so large that their sum is too large."""
    names = ("generation_tokens_total", "inter_token_latency_seconds_sum", "inter_token_latency_seconds_count")

    def page(values: list[str]) -> Reading:
        lines = ["vllm:num_requests_running 1", "vllm:num_requests_waiting 0", f"vllm:kv_cache_usage_perc {values[6]}"]
        lines += [f'vllm:{name}{{engine="{i % 2}"}} {values[i]}' for i, name in enumerate((*names, *names))]
        lines.append(f"process_start_time_seconds {values[7]}")
        return read_page("\n".join(lines).encode() + b"\n")

    before, now = page(first), replace(page(then), started_at=page(first).started_at)
    numbers = [now.kv, now.token_sum, now.token_count, now.progress, before.started_at, token_ms(before, now)]
    assert all(math.isfinite(number) for number in numbers if number is not None)
