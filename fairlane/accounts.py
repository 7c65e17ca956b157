"""Tenants and keys: who may come in, as whom, and what each may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["tenant", "operator", "gateway"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is. `tiers` and `pools` are those that the key and its tenant may use; None: all."""

    tenant: str
    role: Role = "tenant"
    tiers: frozenset[str] | None = None
    pools: frozenset[str] | None = None
