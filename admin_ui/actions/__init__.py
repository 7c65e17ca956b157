"""All acts: importing this package registers them."""

from admin_ui.acting import ACTS
from admin_ui.actions import backends, batches, jobs, policy, pools, rebalance, tenants, users, webhooks, workers

__all__ = [
    "ACTS",
    "backends",
    "batches",
    "jobs",
    "policy",
    "pools",
    "rebalance",
    "tenants",
    "users",
    "webhooks",
    "workers",
]
