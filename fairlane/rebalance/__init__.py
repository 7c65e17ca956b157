"""Rebalancing: a choice of waiting jobs is frozen, weighed, and moved step by step; it can be stopped and undone.

`Runs` makes runs and says what becomes of them, `Stepper` carries them out. docs/rebalance.md has the states and every
point at which a process may die.
"""

from fairlane.rebalance.runs import Runs
from fairlane.rebalance.stepper import Stepper
from fairlane.rebalance.values import Filter, Plan, Run, Shift, Target

__all__ = ["Filter", "Plan", "Run", "Runs", "Shift", "Stepper", "Target"]
