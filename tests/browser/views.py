"""Every page there is: what axe looks at, what the screenshots show, and what the benchmark measures."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from tests.browser.seed import FLOOD, LLAMA, MISTRAL, QWEN, Seeded

PLAIN: Final = {  # name → address, for those that need nothing to be there
    "overview": "/",
    "fairness": "/fairness",
    "queues": "/queues",
    "jobs": "/jobs",
    "batches": "/batches",
    "webhooks": "/webhooks",
    "deliveries": "/webhooks/deliveries",
    "workers": "/workers",
    "rebalance": "/rebalance",
    "rebalance-new": "/rebalance/new",
    "tenants": "/tenants",
    "settings": "/settings",
    "audit": "/audit",
    "users": "/users",
}


def of_pool(pool: str = LLAMA) -> dict[str, str]:
    """Pages about one pool."""
    return {"pool": f"/pools/{quote(pool)}", "pool-settings": f"/settings/{quote(pool)}"}


def of_tenant(tenant: str = FLOOD) -> dict[str, str]:
    """Pages about one tenant."""
    return {"tenant": f"/tenants/{tenant}", "jobs-of-tenant": f"/jobs?tenant={tenant}&state=queued"}


def views(seeded: Seeded) -> dict[str, str]:
    """All that is there with the seed's data."""
    return PLAIN | of_pool() | of_tenant() | {
        "pool-down": f"/pools/{quote(MISTRAL)}",
        "pool-slash": f"/pools/{quote(QWEN)}",
        "job-dead": f"/jobs/{seeded.dead}",
        "job-succeeded": f"/jobs/{seeded.succeeded}",
        "batch": f"/batches/{seeded.batch}",
        "delivery": f"/webhooks/deliveries/{seeded.failed_delivery}",
        "nothing": "/jobs/job_nothing",
    }  # fmt: skip
