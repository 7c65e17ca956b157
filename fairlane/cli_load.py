"""What `simulate` and `plan` share: the options that say what load there is, and how far a run has come."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from dispatcher.simulator.measures import Group, Times
    from dispatcher.simulator.stage import Tell

Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CSV: arrival_s, input_tokens, output_tokens, and tenant and tier if wanted."),
]
Servegen = Annotated[Path | None, typer.Option(metavar="FILE", help="Tenants as ServeGen's JSON describes them.")]
Poisson = Annotated[str | None, typer.Option(metavar="RATE/s", help="Drawn: so many requests a second on average.")]
Kind = Annotated[
    str | None, typer.Option(metavar="chat|code|reasoning|mixed", help="Lengths, with --poisson. (Default: chat)")
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01, max=10_080, help="So much of it. (Default: a whole trace; 60 of --servegen, 10 of --poisson)"
    ),
]
From = Annotated[float, typer.Option("--from", min=0, metavar="MINUTE", help="Where in the file to begin.")]
Tiers = Annotated[
    str | None, typer.Option(metavar="K|NAMES", help="How many, or their names, the highest first. (Default: our four)")
]
Mix = Annotated[
    str | None,
    typer.Option(
        metavar="enterprise|normal|uniform|SHARES",
        help="Draws the tiers. (Default: the trace's own, else enterprise)",
    ),
]
Tenants = Annotated[
    str | None,
    typer.Option(metavar="N|zipf:N|heavy:N", help="Draws the tenants. (Default: the load's own, else 10)"),
]
OnOff = Annotated[
    str | None, typer.Option(metavar="ON,OFF", help="Each tenant is busy and silent by turns, as 60s,120s.")
]
SpeedUp = Annotated[
    float, typer.Option(min=0.00001, max=1000, metavar="F", help="Make it so many times as dense.", show_default=False)
]
_PROFILES: Final = "What the backends are: a100-7b, a10-7b, tiny, or a file of `fairlane profile`."
LINE_S: Final = 10.0  # between two lines, where there is no terminal
ProfileName = Annotated[str, typer.Option(metavar="NAME|FILE", help=_PROFILES)]
BackendProfile = Annotated[str, typer.Option("--backend-profile", "--profile", metavar="NAME|FILE", help=_PROFILES)]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result, to the byte.")]
ScrapeMs = Annotated[
    int | None, typer.Option(min=10, max=60_000, help="How often our ways read a backend's metrics. (Default: 200)")
]
OutDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write tables (CSV, JSON, Markdown) and plots (SVG) there.")
]


@contextmanager
def ended_in_order() -> Generator[None]:
    """SIGTERM, or a terminal that goes away, ends a run as Ctrl-C does: nothing of its private server is left."""

    def end(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = {signum: signal.signal(signum, end) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def quiet() -> None:
    """What the queue would log of its backends is part of the simulation, and nobody's news."""
    import structlog

    from fairlane.logging import configure

    if not structlog.is_configured():
        configure("critical")


@contextmanager
def progress() -> Generator[Callable[[str, int], Tell]]:
    """How far the run that is under way has come, on stderr: its name, its requests, its virtual time.

    On a terminal a bar; else a line every LINE_S, so that a log shows that it goes on.
    """
    if not sys.stderr.isatty():
        yield _lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} requests, at {task.fields[at]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1, at="0:00:00")

        def begin(name: str, requests: int) -> Tell:
            bar.reset(task, total=requests, description=name, at="0:00:00")
            return lambda now_ms, left: bar.update(task, completed=requests - left, at=_clock(now_ms))

        yield begin


def _lines(name: str, requests: int) -> Tell:
    due_s = time.monotonic() + LINE_S

    def tell(now_ms: float, left: int) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + LINE_S
            typer.echo(f"{name}: {requests - left:,} of {requests:,} requests, at {_clock(now_ms)}", err=True)

    return tell


def _clock(ms: float) -> str:
    """Virtual time: hours, minutes, seconds."""
    minutes, seconds = divmod(int(ms / 1000), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def folder(out: Path | None) -> Path | None:
    """Made before the work begins, not after. Raises InvalidRequest if it cannot be."""
    from fairlane.errors import InvalidRequest

    if out is None:
        return None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"{out} cannot be written to: {error.strerror or error}.", param="out") from None
    return out


@contextmanager
def writing() -> Generator[None]:
    """Files, after the work. Raises InvalidRequest for one that cannot be written, as on a full disk."""
    from fairlane.errors import InvalidRequest

    try:
        yield
    except OSError as error:
        where = error.filename or "A file"
        raise InvalidRequest(f"{where} cannot be written to: {error.strerror or error}.", param="out") from None


def can_plot() -> bool:
    """Whether matplotlib is there. If not, it is said what to install."""
    if find_spec("matplotlib"):
        return True
    typer.echo("No plots were drawn: they need matplotlib, pip install 'fairlane[plots]'.", err=True)
    return False


def times_of(group: Group) -> Sequence[str]:
    """A row's cells: how many, and both times as `p50 / p95 / p99`."""
    return str(group.n), _three(group.ttft), _three(group.e2e)


def _three(times: Times) -> str:
    from dispatcher.simulator.slo import shown

    return " / ".join(map(shown, (times.p50, times.p95, times.p99)))
