"""Plots of results as SVG: lines with error bars, grouped bars, cumulative distributions.

Needs matplotlib (the extra `plots`), which is imported when the first one is drawn. The same data give the same file,
to the byte, with one version of matplotlib. The background is white on any page, texts stay texts, and series differ by
marker and dash as well as by colour.
"""

# matplotlib types only a part of what it takes:
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dispatcher.simulator.confidence import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Number = float | Estimate

# Okabe and Ito's colours, which most colour-blind people can tell apart
_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8a6d00")
_MARKERS: Final = "osD^vPX*"
_DASHES: Final = ("-", "--", "-.", ":")
_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "fairlane",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, and its points from left to right. A point that is not finite leaves a gap."""

    name: str
    points: Sequence[tuple[float, Number]]


def lines(path: Path, title: str, x_label: str, y_label: str, series: Sequence[Series], *, log_y: bool = False) -> None:
    """Values over a number, with their 95 % confidence intervals where they are Estimates."""
    with _axes(path, title, x_label, y_label, log_y) as axes:
        for n, one in enumerate(series):
            values = [_finite(y) for _, y in one.points]
            axes.errorbar(
                [x for x, _ in one.points],
                [value.mean for value in values],
                yerr=[value.half for value in values],
                label=one.name,
                color=_COLORS[n % len(_COLORS)],
                marker=_MARKERS[n % len(_MARKERS)],
                linestyle=_DASHES[n // len(_COLORS) % len(_DASHES)],
                capsize=3,
            )
        if all(float(x).is_integer() for one in series for x, _ in one.points):
            _whole(axes.xaxis)


def bars(
    path: Path,
    title: str,
    y_label: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[Number]],
    *,
    log_y: bool = False,
) -> None:
    """For each of the names a group of bars, one of each series. A value that is not finite has no bar."""
    width = 0.8 / max(len(series), 1)
    with _axes(path, title, "", y_label, log_y) as axes:
        for n, (name, numbers) in enumerate(series.items()):
            values = [_finite(number) for number in numbers]
            axes.bar(
                [place + (n - (len(series) - 1) / 2) * width for place in range(len(names))],
                [value.mean for value in values],
                width,
                yerr=[value.half for value in values],
                label=name,
                color=_COLORS[n % len(_COLORS)],
                capsize=3,
            )
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)


def cdf(path: Path, title: str, x_label: str, series: Mapping[str, Sequence[float]], *, log_x: bool = False) -> None:
    """The share of the values that are at most x. What never came (infinite) keeps a curve below 1."""
    with _axes(path, title, x_label, "share", False) as axes:
        for n, (name, values) in enumerate(series.items()):
            ranked = sorted(value for value in values if math.isfinite(value))
            axes.step(
                ranked,
                [(place + 1) / len(values) for place in range(len(ranked))],
                where="post",
                label=name,
                color=_COLORS[n % len(_COLORS)],
                linestyle=_DASHES[n % len(_DASHES)],
            )
        axes.set_ylim(0, 1.02)
        if log_x:
            axes.set_xscale("log")
            _plain(axes.xaxis)


@contextmanager
def _axes(path: Path, title: str, x_label: str, y_label: str, log_y: bool) -> Generator[Axes]:
    """What is drawn on them is written to the path. Without pyplot: nothing is shown, no state is left."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Plots need matplotlib: pip install 'fairlane[plots]'.", name=error.name) from None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.add_subplot()
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        if log_y:
            axes.set_yscale("log")
            _plain(axes.yaxis)
        yield axes
        figure.legend(loc="outside right upper")
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _plain(axis: Axis) -> None:
    """Numbers on a logarithmic axis without powers: 0.1, 1, 10; with some in between where it is short."""
    from matplotlib.ticker import LogFormatter, StrMethodFormatter

    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))


def _whole(axis: Axis) -> None:
    """No ticks in between: nothing is at 1.5 backends."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _finite(number: Number) -> Estimate:
    """With nan, which is not drawn, for what is infinite or not there."""
    value = number if isinstance(number, Estimate) else Estimate(number, math.nan)
    return value if math.isfinite(value.mean) else Estimate(math.nan, math.nan)
