"""The commands for work, as they are typed, against one `fairlane up`."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from fairlane.model import Policy
from fairlane.options import backend_of, register
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.e2e.test_up import PATIENCE_S, REPOSITORY, Up, pid_of, running

PAGE = (REPOSITORY / "docs" / "cli.md").read_text()
EXAMPLES = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
SLOW = ("--set", "max_tokens=5000", "--set", "ignore_eos=true")  # 8 ms each
HELD = "held"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Everything, with the models `sim` (simulated), `null` and `held` (which answer at once, `held` if it may)."""
    with running(tmp_path_factory.mktemp("up")) as started:
        on(started, lambda queue: register(queue, [backend_of(name, "null://") for name in ("null", HELD)], Policy()))
        yield started


@pytest.fixture
def let_go(up: Up) -> Iterator[Callable[[], None]]:
    """The jobs of the model `held` wait until this is called."""

    def resume() -> None:
        on(up, lambda queue: act(queue, queue.resume))

    async def act(queue: Queue, change: Callable[[Pool], Awaitable[bool]]) -> None:
        await change(await queue.pools.by_name(HELD))

    on(up, lambda queue: act(queue, queue.pause))
    yield resume
    resume()


def on(up: Up, act: Callable[[Queue], Awaitable[None]]) -> None:
    """Does something with the queue itself."""

    async def whole() -> None:
        queue = await Queue.open(json.loads((up.data_dir / "up.json").read_text())["redis_url"])
        try:
            await act(queue)
        finally:
            await queue.close()

    asyncio.run(whole())


def submitted(up: Up, key: str | None = None) -> str:
    """The id of a job for `held`."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    asked = {"model": HELD, "body": {"messages": []}}
    return up.client.post("/v1/jobs", json=asked, headers=headers).json()["id"]


def environment(up: Up) -> Mapping[str, str]:
    bin_ = str(Path(sys.executable).parent)
    without = {"FAIRLANE_REDIS_URL", "FAIRLANE_SERVER", "FAIRLANE_API_KEY", "FAIRLANE_CONFIG"}
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return kept | {
        "FAIRLANE_DATA_DIR": str(up.data_dir),
        "FAIRLANE_MODEL": "sim",
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "COLUMNS": "120",
    }


def words_of(*words: str) -> list[str]:
    return [sys.executable, "-m", "fairlane.cli", *words]


def start(up: Up, *words: str, **options: Any) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    whole: dict[str, Any] = pipes | {"text": True, "cwd": REPOSITORY, "env": environment(up)} | options
    return subprocess.Popen(words_of(*words), **whole)


def run(up: Up, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    whole: dict[str, Any] = {"input": given, "capture_output": True, "text": True, "timeout": PATIENCE_S}
    return subprocess.run(words_of(*words), cwd=REPOSITORY, env=environment(up), check=False, **whole)


def job_line(n: int, model: str = "null", prompt: str = "x") -> str:
    return json.dumps({"custom_id": str(n), "model": model, "body": {"prompt": prompt}}) + "\n"


def heard(stream: IO[str] | None, what: str) -> str:
    """The first line that holds `what`."""
    assert stream
    for line in stream:
        if what in line:
            return line
    raise AssertionError(f"it never said {what!r}")


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it said on both streams after Ctrl-C."""
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    return said


# --- docs/cli.md ------------------------------------------------------------------------------------------------------


def test_every_example_prints_what_stands_under_it(up: Up, tmp_path: Path) -> None:
    assert len(EXAMPLES) == PAGE.count("```sh")
    script = "\n".join(f"{{ {typed.strip()}\n}} > out{n} 2>&1" for n, (typed, _) in enumerate(EXAMPLES))
    whole: dict[str, Any] = {"cwd": tmp_path, "env": environment(up), "timeout": 1.5 * PATIENCE_S}
    subprocess.run(["bash", "-c", script], check=False, **whole)
    for n, (typed, shown) in enumerate(EXAMPLES):
        printed = (tmp_path / f"out{n}").read_text()
        pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
        assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"{typed}\nprinted {printed}"


# --- Ctrl-C, head -----------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_the_job_running_and_says_how_to_come_back(up: Up) -> None:
    with start(up, "submit", "Hi", "--stream", *SLOW) as process:
        assert process.stdout
        assert process.stdout.read(1)  # the text comes while it runs
        _, told = interrupted(process)
    found = re.search(r"(job_\w+) goes on. Come back with: fairlane watch \1\n", told)
    assert found, told
    with start(up, "watch", found[1]) as process:
        assert "runs on" in heard(process.stdout, found[1])
        assert f"Come back with: fairlane watch {found[1]}" in interrupted(process)[1]
    assert up.client.delete(f"/v1/jobs/{found[1]}").json()["state"] == "cancelled"  # it went on until now


def test_after_ctrl_c_the_same_command_with_the_key_goes_on(up: Up, tmp_path: Path, let_go: Callable[[], None]) -> None:
    lines = tmp_path / "night.jsonl"
    lines.write_text("".join(job_line(n) for n in range(200)) + job_line(200, model=HELD))
    with start(up, "submit", str(lines)) as process:
        assert process.stdout
        before = [json.loads(process.stdout.readline()) for _ in range(200)]
        _, told = interrupted(process)
    found = re.search(r"201 jobs go on\..* --key (\w+), goes on from here", told)
    assert found, told
    let_go()
    again = run(up, "submit", str(lines), "--key", found[1])
    assert again.returncode == 0, again.stderr  # which says how far it is, if it takes a while
    outcomes = {one["custom_id"]: one["id"] for one in map(json.loads, again.stdout.splitlines())}
    assert outcomes.keys() == {str(n) for n in range(201)}
    assert {one["custom_id"]: one["id"] for one in before}.items() <= outcomes.items()


def test_who_reads_no_further_is_not_told_of_a_fault(up: Up) -> None:
    script = f"{' '.join(words_of('submit', '--no-wait'))} | head -1; echo ${{PIPESTATUS[0]}}"
    given = "".join(job_line(n) for n in range(2000))
    whole: dict[str, Any] = {"input": given, "capture_output": True, "text": True, "env": environment(up)}
    ran = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, check=False, timeout=PATIENCE_S, **whole)
    assert re.fullmatch(r"job_\w+\n141\n", ran.stdout), ran
    assert re.fullmatch(r".* go on; .* were not submitted yet\. .* --key \w+, goes on from here\.\n", ran.stderr)


# --- much -------------------------------------------------------------------------------------------------------------


def test_thousands_of_long_lines_go_through_a_pipe(up: Up, tmp_path: Path) -> None:
    """50 MB."""
    with start(up, "submit", "--no-wait", "-o", str(tmp_path / "ids"), stdin=subprocess.PIPE) as process:
        assert process.stdin
        for n in range(2500):
            process.stdin.write(job_line(n, prompt="x" * 20_000))
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    assert len((tmp_path / "ids").read_text().split()) == 2500


# --- terminals --------------------------------------------------------------------------------------------------------


def on_terminal(up: Up, *words: str, look: Callable[[bytes], None] | None = None) -> tuple[int, str]:
    """The exit code, and all that appeared. `look` is called once, with the first of it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, words_of(*words), {**environment(up), "TERM": "xterm"})
    seen = b""
    try:
        while piece := os.read(terminal, 65_536):
            seen += piece
            if look and b"job_" in seen:
                look(seen)
                look = None
    except OSError:  # it has ended
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()


def test_on_a_terminal_nobody_waits_for_input_that_will_not_come(up: Up) -> None:
    code, seen = on_terminal(up, "submit")
    assert code == 2
    assert "What is to be submitted?" in seen


def test_on_a_terminal_one_sees_how_it_goes_on(up: Up, let_go: Callable[[], None]) -> None:
    id_ = submitted(up)

    def look(seen: bytes) -> None:
        if b"queued" in seen:
            let_go()

    code, seen = on_terminal(up, "watch", id_, look=look)
    assert code == 0
    assert re.search(r"queued.*\x1b\[2K.*succeeded in", seen, re.DOTALL)  # in the same row


# --- away, tail -------------------------------------------------------------------------------------------------------


def test_a_watch_outlives_the_front_door(up: Up, let_go: Callable[[], None]) -> None:
    id_ = submitted(up)
    with start(up, "watch", id_) as process:
        heard(process.stdout, "queued")
        os.kill(pid_of(up, "api"), signal.SIGKILL)
        assert "Trying again; the work goes on." in heard(process.stderr, "cannot be reached")
        let_go()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "succeeded in" in out


def test_tail_shows_what_ends_and_to_those_without_redis_their_own(up: Up, let_go: Callable[[], None]) -> None:
    url = str(up.client.base_url)
    with start(up, "tail") as all_, start(up, "tail", "--server", url, "--api-key", "ann", "--json") as own:
        id_ = submitted(up, "ann")
        states = [json.loads(heard(own.stdout, id_))["state"]]
        let_go()
        states += [json.loads(heard(own.stdout, id_))["state"]]
        line = heard(all_.stdout, id_)
        interrupted(all_)
        interrupted(own)
    assert states == ["queued", "succeeded"]
    assert re.match(r"\d\d:\d\d:\d\d  succeeded  \S+  held default ann  waited .*, ran ", line)


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_submitted_waited_for_and_fetched(up: Up) -> None:
    given = "".join(job_line(n) for n in range(50))
    done = run(up, "submit", "--batch", given=given)
    assert done.returncode == 0, done
    assert [one["custom_id"] for one in map(json.loads, done.stdout.splitlines())] == [str(n) for n in range(50)]
    assert re.search(r"batch_\w+  completed; 50 of 50 done", done.stderr)
