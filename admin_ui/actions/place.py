"""Where an act takes place: the pool that its parameter names, and for whom."""

from __future__ import annotations

from admin_ui.access import Viewer
from admin_ui.acting import Asked
from admin_ui.bridge import Stores
from fairlane.errors import NotFound, TenantForbidden
from fairlane.queue.pools import Pool


async def pool_of(stores: Stores, asked: Asked) -> Pool:
    """The pool that the parameter `pool` names, for an act that concerns all of it.

    Raises NotFound, also for who sees only some tenants.
    """
    if not asked.viewer.sees(None):
        raise NotFound()
    return await pool_named(stores, asked.param("pool"))


async def pool_named(stores: Stores, name: str) -> Pool:
    """The pool of this name, with its policy as it stands at this moment. Raises NotFound."""
    known = await stores.queue.pools.by_name(name)
    return await stores.queue.pools.read(known.code)


def need_all_tenants(viewer: Viewer, tenant: str) -> None:
    """For what lies between tenants, of a viewer who may see this one. Raises TenantForbidden."""
    if viewer.tenants is not None and viewer.sees(tenant):
        raise TenantForbidden(
            "What a tenant may do is set for it, not by it: this needs a user who may see all tenants.", param="tenant"
        )
