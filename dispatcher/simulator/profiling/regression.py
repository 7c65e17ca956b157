"""Robust least squares for a handful of unknowns that cannot be negative: small enough to need no library."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

ROUNDS: Final = 30
DEPENDENT: Final = 1e-9  # what is left of a column, squared, when it tells nothing that those before it don't
HUBER: Final = 1.345  # standard deviations up to which a residual counts in full
SIGMA_OF_MAD: Final = 1.4826
LEAST_SPREAD: Final = 1e-9


def fit(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """The coefficients, none negative, with which each row's sum comes closest to its value (> 0).

    Relative errors count, so that 5 ms are met as well as 500, and what lies far off counts less (Huber's weights,
    reweighted until they settle). A column that the rows cannot tell from those before it gets 0. O(rows · columns²).
    """
    relative = [[cell / value for cell in row] for row, value in zip(rows, values, strict=True)]
    weights = [1.0] * len(relative)
    found = [0.0] * (len(rows[0]) if rows else 0)
    for _ in range(ROUNDS):
        before, found = found, _not_negative(relative, weights)
        residuals = [abs(1.0 - _sum(row, found)) for row in relative]
        spread = max(SIGMA_OF_MAD * median(residuals), LEAST_SPREAD) if residuals else LEAST_SPREAD
        weights = [min(1.0, HUBER * spread / residual) if residual else 1.0 for residual in residuals]
        if found == before:
            break
    return found


def _not_negative(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Leaves out the column with the most negative coefficient until none is."""
    columns = list(range(len(rows[0]))) if rows else []
    found = [0.0] * len(columns)
    while columns:
        solved = _least_squares([[row[column] for column in columns] for row in rows], weights)
        worst = min(range(len(columns)), key=lambda n: solved[n] * _size(rows, columns[n]))
        if solved[worst] >= 0:
            for column, value in zip(columns, solved, strict=True):
                found[column] = value
            break
        del columns[worst]
    return found


def _least_squares(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Solves the normal equations for values of 1, by Gauss' elimination."""
    width = len(rows[0])
    sizes = [_size(rows, column) or 1.0 for column in range(width)]
    scaled = [[cell / size for cell, size in zip(row, sizes, strict=True)] for row in rows]
    matrix = [
        [sum(w * row[i] * row[j] for w, row in zip(weights, scaled, strict=True)) for j in range(width)]
        + [sum(w * row[i] for w, row in zip(weights, scaled, strict=True))]
        for i in range(width)
    ]
    usable = [False] * width
    for pivot in range(width):
        if matrix[pivot][pivot] <= DEPENDENT * max(1.0, sum(weights)):
            continue
        usable[pivot] = True
        for other in range(width):
            if other != pivot:
                share = matrix[other][pivot] / matrix[pivot][pivot]
                matrix[other] = [a - share * b for a, b in zip(matrix[other], matrix[pivot], strict=True)]
    return [matrix[n][width] / matrix[n][n] / sizes[n] if usable[n] else 0.0 for n in range(width)]


def _size(rows: Sequence[Sequence[float]], column: int) -> float:
    return max((abs(row[column]) for row in rows), default=0.0)


def _sum(row: Sequence[float], coefficients: Sequence[float]) -> float:
    return sum(cell * coefficient for cell, coefficient in zip(row, coefficients, strict=True))
