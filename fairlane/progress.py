"""How work goes on, shown while one waits: a picture that changes on a terminal, lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

import typer

from fairlane.terminal import duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REFRESHES: Final = 8  # a second
LINE_S: Final = 5.0
BAR_WIDTH: Final = 24
STYLES: Final = {
    "succeeded": "green",
    "completed": "green",
    "failed": "red",
    "expired": "red",
    "cancelled": "yellow",
    "leased": "cyan",
    "in_progress": "cyan",
}


@dataclass(frozen=True, slots=True)
class Part:
    """How much of a whole is done. `per_s` is its rate now, None if that is not known."""

    done: int
    total: int
    failed: int = 0
    per_s: float | None = None

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done, at this rate."""
        return (self.total - self.done) / self.per_s if self.per_s else None

    def __str__(self) -> str:
        words = [f"{self.done:,} of {self.total:,} done"]
        words += [f"{self.failed:,} failed"] if self.failed else []
        if self.per_s and self.done < self.total:
            words += [f"{self.per_s:.3g}/s", f"about {duration(1000 * (self.left_s or 0))} left"]
        return ", ".join(words)


class Board:
    """A row for each thing that is watched, by its id.

    On a terminal the rows stand and change; elsewhere each change of `state` is a line, and a part that grows is one
    every LINE_S seconds; with `as_json` each change is a JSON object.
    """

    def __init__(self, stream: TextIO, *, as_json: bool = False, quiet: bool = False, transient: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._as_json = as_json
        self._rows: dict[str, tuple[str, str, Part | None]] = {}
        self._told: dict[str, tuple[str, float]] = {}  # its state, and when
        self._live = None if as_json or not stream.isatty() else _live(stream, self._table, transient)
        self._stack = ExitStack()

    @property
    def on_terminal(self) -> bool:
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live:
            self._stack.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, id_: str, state: str, words: str, facts: Mapping[str, Any], part: Part | None = None) -> None:
        """`words` are the whole text of the row, without its id and its part; `facts` is what JSON says."""
        self._rows[id_] = (state, words, part)
        if self._live or self._quiet:
            return
        told, at = self._told.get(id_, ("", 0.0))
        grown = part is not None and time.monotonic() >= at + LINE_S
        if state == told and not grown:
            return
        self._told[id_] = (state, time.monotonic())
        line = f"{id_}  {words}{f'; {part}' if part else ''}"
        typer.echo(json.dumps(facts) if self._as_json else line, file=self._stream)

    def note(self, words: str) -> None:
        """Something beside the rows, such as that the front door is away."""
        if self._live:
            self._live.console.print(words, style="yellow", highlight=False)
        else:
            typer.echo(words, err=True)

    def _table(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for id_, (state, words, part) in self._rows.items():
            cells: list[RenderableType] = [Text(id_, "bold"), Text(words, STYLES.get(state, ""))]
            if part:
                cells.append(ProgressBar(total=max(1, part.total), completed=part.done, width=BAR_WIDTH))
                cells.append(Text(str(part)))
            table.add_row(*cells)
        return table if self._rows else Spinner("dots", "")


class Bar:
    """How much of many jobs is done: a bar on a terminal, else a line every LINE_S seconds; on stderr."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._began = self._told_at = time.monotonic()
        self._total = total
        self._quiet = quiet
        self.done = self.failed = 0
        self._live = _live(sys.stderr, self._picture, True) if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    @property
    def part(self) -> Part:
        per_s = self.done / (time.monotonic() - self._began) if self.done else None
        return Part(self.done, self._total, self.failed, per_s)

    def step(self, *, failed: bool) -> None:
        """One more is done."""
        self.done += 1
        self.failed += failed
        if self._live or self._quiet or time.monotonic() < self._told_at + LINE_S:
            return
        self._told_at = time.monotonic()
        typer.echo(str(self.part), err=True)

    def _picture(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        part = self.part
        table.add_row(ProgressBar(total=max(1, part.total), completed=part.done, width=BAR_WIDTH), Text(str(part)))
        return table


def _live(stream: TextIO, picture: Any, transient: bool) -> Live:
    from rich.console import Console
    from rich.live import Live

    console: Console = Console(file=stream)
    return Live(
        get_renderable=picture,
        console=console,
        refresh_per_second=REFRESHES,
        transient=transient,
        redirect_stdout=sys.stdout.isatty(),  # what is printed meanwhile comes above the picture
        redirect_stderr=False,
    )
