"""Robust regression for a handful of unknowns that cannot be negative: small enough to need no library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

ROUNDS: Final = 60  # of reweighted least squares, which come close to the least absolute errors
DEPENDENT: Final = 1e-9  # what is left of a column, squared, when it tells nothing that those before it don't
EXACT: Final = 1e-6  # error below which a row weighs no more
LEAST: Final = 0.05  # of a value: what the fit says counts as so much at least


def fit(rows: Sequence[Sequence[float]], values: Sequence[float], known: Sequence[float] | None = None) -> list[float]:
    """The coefficients, none negative, with which what is `known` of each value (> 0), and its row's sum, come closest.

    The sum of the absolute errors is least, each as a share of what the fit says: so 5 ms are met as well as 500, and
    what lies far off counts no more than what lies off at all. (As shares of what was seen, too low a fit would be
    cheap.) A column that the rows cannot tell from those before it gets 0. O(rows · columns²).
    """
    base = known or [0.0] * len(values)
    rest = [(*row, value - offset) for row, value, offset in zip(rows, values, base, strict=True)]
    weights = [1 / value**2 for value in values]
    found = [0.0] * (len(rows[0]) if rows else 0)
    for _ in range(ROUNDS):
        found = _not_negative(rest, weights)
        sums = [_sum(row, found) + offset for row, offset in zip(rows, base, strict=True)]
        said = [max(one, LEAST * value) for one, value in zip(sums, values, strict=True)]
        weights = [1 / max(abs(value / one - 1), EXACT) / one**2 for value, one in zip(values, said, strict=True)]
    return found


def _not_negative(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Leaves out the column with the most negative coefficient until none is."""
    columns = list(range(len(rows[0]) - 1)) if rows else []
    found = [0.0] * len(columns)
    while columns:
        solved = _least_squares([[row[column] for column in (*columns, -1)] for row in rows], weights)
        worst = min(range(len(columns)), key=lambda n: solved[n] * _size(rows, columns[n]))
        if solved[worst] >= 0:
            for column, value in zip(columns, solved, strict=True):
                found[column] = value
            break
        del columns[worst]
    return found


def _least_squares(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Solves the normal equations by Gauss' elimination; the last column holds the values."""
    width = len(rows[0]) - 1
    sizes = [_size(rows, column) or 1.0 for column in range(width)]
    scaled = [[cell / size for cell, size in zip(row, (*sizes, 1.0), strict=True)] for row in rows]
    matrix = [
        [sum(w * row[i] * row[j] for w, row in zip(weights, scaled, strict=True)) for j in range(width + 1)]
        for i in range(width)
    ]
    usable = [False] * width
    for pivot in range(width):
        if matrix[pivot][pivot] <= DEPENDENT * sum(weights):
            continue
        usable[pivot] = True
        for other in range(width):
            if other != pivot:
                share = matrix[other][pivot] / matrix[pivot][pivot]
                matrix[other] = [a - share * b for a, b in zip(matrix[other], matrix[pivot], strict=True)]
    return [matrix[n][-1] / matrix[n][n] / sizes[n] if usable[n] else 0.0 for n in range(width)]


def _size(rows: Sequence[Sequence[float]], column: int) -> float:
    return max((abs(row[column]) for row in rows), default=0.0)


def _sum(row: Sequence[float], coefficients: Sequence[float]) -> float:
    return sum(cell * coefficient for cell, coefficient in zip(row, coefficients, strict=False))
