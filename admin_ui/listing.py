"""What lists have in common: whose entries they show, how far they are read, and where they go on."""

from __future__ import annotations

from urllib.parse import urlencode

from flask import request

from admin_ui.access import current
from fairlane.errors import NotFound

AFTER = "after"  # the parameter with the cursor of a page


def asked(name: str) -> str | None:
    """A parameter of the address; None if it is not there, or empty."""
    return request.args.get(name, "").strip() or None


def tenants_asked() -> tuple[str, ...] | None:
    """Whose entries to show: the tenant's that is asked for, else those that the viewer may see; None: everybody's.

    Raises NotFound for a tenant that the viewer may not see.
    """
    tenant = asked("tenant")
    if tenant is None:
        return current().scope
    if not current().sees(tenant):
        raise NotFound(f"There is no tenant {tenant[:100]!r}.")
    return (tenant,)


def tenant_choices() -> tuple[str, ...] | None:
    """For a filter: the viewer's tenants; None: any may be typed."""
    return current().scope


def page_after(cursor: str | None) -> str | None:
    """The address of the same list, from behind `cursor` on; without one there is no such page."""
    return None if cursor is None else _here(**{AFTER: cursor})


def first_page() -> str | None:
    """The address of the list's first page, if this is another one."""
    return _here() if asked(AFTER) else None


def _here(**changes: str) -> str:
    kept = {name: value for name, value in request.args.items() if value and name != AFTER}
    query = urlencode(kept | changes)
    return f"{request.script_root}{request.path}{'?' if query else ''}{query}"
