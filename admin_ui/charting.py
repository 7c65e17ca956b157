"""A pool's history as the series that charts draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from fairlane.trend import STEPS, Point, Span, TierPoint, percentile, together

Series: TypeAlias = "list[float | None]"
GAP_STEPS: Final = 2.5  # a round may come a moment late; where more is missing the line breaks


def charted(points: Sequence[Point], tiers: Sequence[str], span: Span, now_ms: int) -> Mapping[str, object]:
    """JSON for static/charts.js: times in s; per series one number for each, null where nothing is known."""
    rows = _with_breaks(points, 1000 * STEPS[span].s)
    totals = [None if row is None else together(row.tiers.values()) for row in rows]
    both = list(zip(rows, totals, strict=True))
    series: dict[str, Series] = {
        name: [None if row is None or total is None else _short(read(row, total)) for row, total in both]
        for name, read in _POOL.items()
    }
    for tier in tiers:
        of = [None if row is None else row.tiers.get(tier, _NOTHING) for row in rows]
        for name, value in _TIER.items():
            series[f"{name}:{tier}"] = [None if one is None else value(one) for one in of]
    step_s = STEPS[span].s
    at = [_at(row, rows[n - 1] if n else None, step_s) for n, row in enumerate(rows)]
    length_s = step_s * STEPS[span].kept
    return {
        "from": now_ms / 1000 - length_s,
        "to": now_ms / 1000,
        "step": step_s,
        "tiers": list(tiers),
        "at": at,
        "series": series,
    }


def _with_breaks(points: Sequence[Point], step_ms: int) -> list[Point | None]:
    """With a None wherever more than a point is missing."""
    rows: list[Point | None] = []
    before: Point | None = None
    for point in points:
        if before and point.at_ms - before.at_ms > GAP_STEPS * step_ms:
            rows.append(None)
        rows.append(point)
        before = point
    return rows


def _at(row: Point | None, before: Point | None, step_s: int) -> float:
    """A break comes right after the last point before it."""
    if row is None:
        return (before.at_ms / 1000 if before else 0.0) + step_s
    return row.at_ms / 1000


def _wait_s(total: TierPoint, share: float) -> float | None:
    wait_ms = percentile(total.waits, share)
    return None if wait_ms is None else wait_ms / 1000


def _short(x: float | None) -> float | None:
    return None if x is None else float(f"{x:.4g}")


_NOTHING: Final = TierPoint()
_POOL: Final[Mapping[str, Callable[[Point, TierPoint], float | None]]] = {
    "came": lambda point, total: point.per_s(total.came),
    "ended": lambda point, total: point.per_s(total.ended),
    "tokens": lambda point, total: point.per_s(total.tokens),
    "p50": lambda _, total: _wait_s(total, 0.5),
    "p95": lambda _, total: _wait_s(total, 0.95),
    "p99": lambda _, total: _wait_s(total, 0.99),
    "slots": lambda point, _: point.slots,
    "busy": lambda point, _: point.busy,
    "gamma": lambda point, _: point.gamma,
    "replicas": lambda point, _: point.replicas,
}
_TIER: Final[Mapping[str, Callable[[TierPoint], float | None]]] = {
    "depth": lambda tier: tier.depth,
    "oldest": lambda tier: tier.oldest_ms / 1000,
    "inflight": lambda tier: tier.inflight,
}
