"""Workloads: lists of arrivals, read from traces or drawn from a seed, and what turns one into another.

Every function gives a new list in the order of the arrivals. The same seed gives the same workload, and each purpose
has dice of its own: another mix of tiers changes neither the arrivals nor the lengths nor the tenants.
An arrival whose tenant or tier is "" has none yet: see `tenants` and `tiers`.
"""
