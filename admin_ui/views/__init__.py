"""The pages, one module each with a blueprint `page`."""

from admin_ui.views import (
    acts,
    audit,
    batches,
    fairness,
    jobs,
    login,
    overview,
    pools,
    rebalance,
    tenants,
    users,
    webhooks,
    workers,
)

BLUEPRINTS = tuple(
    module.page
    for module in (
        overview, fairness, jobs, batches, webhooks, workers, rebalance, tenants, pools, audit, users, login, acts,
    )
)  # fmt: skip
