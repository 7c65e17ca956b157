"""What `fairlane up` says when everything runs: where it is, and what to try."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ADMIN: Final = "up"  # the user whom the printed link lets in


@dataclass(frozen=True, slots=True)
class Running:
    """Where it can be reached. `login_url` signs in whoever opens it first, once and soon, as the admin `up`; None if
    that user has been disabled. `data_dir` is where the commands look for it, None for where they look anyway."""

    url: str
    redis_url: str
    models: tuple[str, ...]
    admin_url: str
    login_url: str | None
    auth: str = "open"
    drain_s: float = 30.0
    data_dir: Path | None = None

    @property
    def command(self) -> str:
        """`fairlane`, as it finds this one from another terminal."""
        return f"FAIRLANE_DATA_DIR={shlex.quote(str(self.data_dir))} fairlane" if self.data_dir else "fairlane"


def greeting(found: Running) -> str:
    """The words."""
    who = (
        f"Whoever calls needs a key: `{found.command} tenants create ann`, then `{found.command} keys create ann`"
        if found.auth == "keys"
        else "Without keys (--auth open), the bearer token is the tenant's name"
    )
    token = "$FAIRLANE_API_KEY" if found.auth == "keys" else "ann"
    model = found.models[0]
    models = f"model{'s' if len(found.models) > 1 else ''} {', '.join(found.models)}"
    return f"""Fairlane is up at {found.url} for the {models}.
{who}. Try:

  curl {found.url}/v1/chat/completions -H "Authorization: Bearer {token}" -H 'Content-Type: application/json' \\
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'

The admin page is at {found.admin_url}. {_way_in(found)}

Ctrl-C stops everything."""


def _way_in(found: Running) -> str:
    if found.login_url is None:
        return f"Its user {ADMIN} is disabled; sign in as another."
    words = f"This link signs you in, once, within 10 minutes (`{found.command} users login {ADMIN}` makes another):"
    return f"{words}\n\n  {found.login_url}"
