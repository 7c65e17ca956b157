"""The sync client: the async one for code without an event loop, from threads and after forks too."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from fairlane import Client, JobCancelled, WaitTimeout
from fairlane.errors import InvalidRequest, ModelNotFound, NotSupported
from producer.client.portal import NAME
from tests.client.conftest import Reach

T = TypeVar("T")
SOON_S = 10.0
JOB: dict[str, Any] = {"model": "llama", "prompt": "x"}


async def apart(act: Callable[[], T]) -> T:
    """Runs code without an event loop, while the test's own loop serves it."""
    return await asyncio.to_thread(act)


def made(reach: Reach) -> Client:
    return Client(reach.url, namespace=reach.namespace)


@pytest.mark.usefixtures("worker")
async def test_it_does_what_the_async_client_does(reach: Reach) -> None:
    def use() -> None:
        with made(reach) as client:
            handle = client.submit(model="llama", messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
            assert handle.error is None
            assert "usage" in handle.result(SOON_S)
            assert handle.wait().state == handle.status() == handle.job().state == "succeeded"
            assert client.get(handle.id).result(SOON_S) == handle.result()
            assert client.explain(handle.id)["state"] == "succeeded"
            if reach.via == "http":
                assert [job.id for job in client.jobs()] == [handle.id]
            else:
                with pytest.raises(NotSupported):
                    list(client.jobs())
            with pytest.raises(ModelNotFound):
                client.submit(model="none", prompt="x")
            with pytest.raises(InvalidRequest):
                client.submit(prompt="x")

    await apart(use)


async def test_it_cancels_and_waits_no_longer_than_told(reach: Reach) -> None:
    def use() -> None:
        with made(reach) as client:
            handle = client.submit(**JOB)
            with pytest.raises(WaitTimeout):
                handle.wait(0.1)
            with pytest.raises(WaitTimeout):
                next(client.as_completed([handle], timeout=0.1))
            assert handle.cancel().state == client.cancel(handle.id).state == "cancelled"
            with pytest.raises(JobCancelled):
                handle.result()

    await apart(use)


@pytest.mark.usefixtures("worker")
async def test_as_completed_yields_the_handles_that_it_was_given(reach: Reach) -> None:
    def use() -> None:
        with made(reach) as client:
            handles = client.submit_many([JOB] * 20)
            assert set(client.as_completed(handles, timeout=SOON_S)) == set(handles)
            for handle in client.as_completed(handles):
                assert handle in handles
                break  # and no more

    await apart(use)


@pytest.mark.usefixtures("worker")
async def test_threads_share_a_client(reach: Reach) -> None:
    def use() -> None:
        with made(reach) as client, ThreadPoolExecutor(8) as threads:
            handles = list(threads.map(lambda _: client.submit(**JOB), range(40)))
            assert len({handle.id for handle in handles}) == 40
            assert all("usage" in result for result in threads.map(lambda one: one.result(SOON_S), handles))

    await apart(use)


async def test_close_ends_its_thread_and_every_later_call(reach: Reach) -> None:
    def use() -> None:
        client = made(reach)
        handle = client.submit(**JOB)
        client.close()
        client.close()
        assert not [thread for thread in threading.enumerate() if thread.name == NAME]
        for act in (handle.status, lambda: client.submit(**JOB)):
            with pytest.raises(RuntimeError, match="closed"):
                act()

    await apart(use)


async def test_close_ends_the_calls_of_other_threads(reach: Reach) -> None:
    def use() -> None:
        client = made(reach)
        handle = client.submit(**JOB)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(handle.wait)
            with pytest.raises(TimeoutError):
                waiting.result(0.1)
            client.close()
            with pytest.raises(RuntimeError, match="closed"):
                waiting.result(SOON_S)

    await apart(use)


async def test_a_client_that_nobody_holds_ends(reach: Reach) -> None:
    def use() -> None:
        client = made(reach)
        client.submit(**JOB)
        del client
        gc.collect()
        assert not [thread for thread in threading.enumerate() if thread.name == NAME]

    await apart(use)


PROGRAM = """
import os, sys
from fairlane import Client
client = Client(sys.argv[1], namespace=sys.argv[2])
handle = client.submit(model="llama", prompt="x")
"""
FORKS = """
child = os.fork()
assert handle.status() in ("queued", "cancelled")
other = client.submit(model="llama", prompt="y")
assert other.id != handle.id and handle.cancel().state == "cancelled"
if not child:
    os._exit(0)  # as multiprocessing's children end
assert os.waitpid(child, 0)[1] == 0
"""
LEAVES = """
from fairlane import WaitTimeout
finishing = client.as_completed([handle, handle], timeout=0.1)
try:
    next(finishing)
except WaitTimeout:
    pass
others = client.as_completed(client.submit_many([{"model": "llama", "prompt": "x"}, {"model": "none", "prompt": "x"}]))
assert next(others).error  # and the other one is still waited for
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.parametrize("rest", ["client.close()", "", FORKS, LEAVES], ids=["close", "no close", "fork", "leave"])
async def test_a_program_ends_in_silence(reach: Reach, rest: str) -> None:
    """No warning at its end, with every warning shown; and after a fork both go on."""
    # Python 3.12 warns of any fork while there are threads: that is about the program, and it is what is tested
    options = ["-W", "default", "-W", "ignore:This process:DeprecationWarning"]
    program = PROGRAM + (
        rest.replace('assert handle.status() == "queued"', "handle.status()") if rest is FORKS else rest
    )
    ran = await asyncio.create_subprocess_exec(
        sys.executable, *options, "-c", program, reach.url, reach.namespace,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(SOON_S):
        said, _ = await ran.communicate()
    # that a callback was slow is about this machine, not about the program
    words = [line for line in said.decode().splitlines() if not re.search(r" took [\d.]+ seconds$", line)]
    assert (ran.returncode, words) == (0, [])


async def test_an_interrupted_call_is_given_up(reach: Reach) -> None:
    """Ctrl-C while a result is waited for."""
    program = PROGRAM + "import signal; signal.setitimer(signal.ITIMER_REAL, 0.3)\nhandle.result()"
    program = program.replace(
        "import os, sys", "import os, sys, signal\nsignal.signal(signal.SIGALRM, signal.default_int_handler)"
    )
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "default", "-c", program, reach.url, reach.namespace, stderr=subprocess.PIPE
    )
    async with asyncio.timeout(SOON_S):
        _, said = await ran.communicate()
    assert said.decode().rstrip().splitlines()[-1] == "KeyboardInterrupt"
    assert "Warning" not in said.decode()
