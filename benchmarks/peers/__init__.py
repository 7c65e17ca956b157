"""Fairlane beside other queues on Redis, all in one run on one server: `python -m benchmarks.peers --help`.

Each queue is one module `with_…`, which says how its workers are started and how a program calls it (peer.py).
measure.py takes the figures of one queue, table.py makes the table of all rounds. The packages are those of the
dependency group `peers`; `make bench-peers` installs them into an environment of their own.
"""
