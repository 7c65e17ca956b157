"""The experiments behind docs/experiments/: `python -m benchmarks.experiments --help`, `make experiments`.

An experiment is a grid of cells (cell.py), each run with every seed (measuring.py, in worker processes). Its rows are
committed as CSV (results.py); its page is a template whose tables, plots and numbers come from that file (pages.py).
"""
