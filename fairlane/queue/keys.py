"""The only place that spells a Redis key, for Python and, through `in_lua`, for the scripts as well.

Every key of a pool starts with one prefix, `fl:{<code>}:`, whose hash tag puts them all into one slot. The account's
keys start with `fl:{acct}:`. A script gets the prefix as KEYS[1] and builds its keys from it.
"""

from __future__ import annotations

import re
from typing import Final

ACCOUNT: Final = "acct"

# name -> the parts that follow the prefix; a part in <> is an argument. docs/keys.md says what each holds.
POOL_KEYS: Final[dict[str, str]] = {
    "pool": "pool",
    "tenant": "tenant:<tenant>",
    "backend": "backend:<name>",
    "job": "job:<id>",
    "line": "line:<tier>:<tenant>",
    "rejoin": "rejoin:<tier>:<tenant>",
    "ring": "ring:<tier>",
    "shelf": "shelf:<tier>",
    "left": "left:<tier>",
    "oldest": "oldest:<tier>",
    "held": "held",
    "leases": "leases",
    "due": "due",
    "deadlines": "deadlines",
    "moves": "moves",
    "call": "call:<dispatcher>",
    "beats": "beats",
    "dispatchers": "dispatchers",
    "drains": "drains",
    "elected": "elected:<role>",
    "class": "class:<tenant>",
    "prefixes": "prefixes:<age>",
    "idem": "idem:<tenant>:<digest>",
    "events": "events",
    "batching": "batching",
    "chunks": "chunks:<id>",  # also a channel: what was just appended
    "done": "done",
    "dead": "dead",
    "history": "history",
    "trend": "trend:<step>",
    "served": "served",
    "run": "run:<id>",
    "run_jobs": "run_jobs:<id>",
    "run_lines": "run_lines:<id>",
    "runs": "runs",
    "runs_open": "runs_open",
    "nothing": "nothing",  # never exists, see lua/lib/drain.lua
    "settled": "settled:<id>",  # channel: this job has an outcome, or has moved
    "wake": "wake",  # channel: there may be work that a waiting dispatcher can take
    "control": "control",  # channel: a running job was cancelled, or something about the backends or the policy changed
}
ACCOUNT_KEYS: Final[dict[str, str]] = {
    "schema": "schema",
    "pools": "pools",
    "codes": "codes",
    "tenant": "tenant:<tenant>",  # as in a pool, and in another slot
    "tenants": "tenants",
    "idem": "idem:<tenant>:<digest>",  # as in a pool
    "key": "key:<prefix>",
    "keys": "keys:<tenant>",
    "file": "file:<id>",
    "files": "files:<tenant>",
    "file_ends": "file_ends",
    "uploads": "uploads",
    "discarded": "discarded",
    "batch": "batch:<id>",
    "batches": "batches:<tenant>",
    "all_batches": "all_batches",
    "batch_done": "batch_done:<id>",
    "batch_open": "batch_open:<id>",
    "batch_parts": "batch_parts:<id>",
    "batch_turns": "batch_turns:<tenant>",
    "batches_handed": "batches_handed:<tenant>",
    "batches_due": "batches_due",
    "endpoint": "endpoint:<id>",
    "endpoints": "endpoints:<tenant>",
    "all_endpoints": "all_endpoints",
    "hooks": "hooks:<tenant>",
    "signing": "signing:<tenant>",
    "delivery": "delivery:<id>",
    "deliveries": "deliveries:<tenant>",
    "all_deliveries": "all_deliveries",
    "all_failed": "all_failed",
    "deliveries_of": "deliveries_of:<lane>",
    "delivery_ends": "delivery_ends",
    "lane": "lane:<lane>",
    "lane_due": "lane_due:<lane>",
    "lane_taken": "lane_taken:<lane>",
    "lanes_due": "lanes_due",
    "batch_events": "batch_events",
    "hook_counts": "hook_counts",
    "pools_due": "pools_due",
    "failed_of": "failed_of:<lane>",
    "tenant_out": "tenant_out:<tenant>",
    "lanes_parked": "lanes_parked:<tenant>",
    "parked": "parked",
    "user": "user:<name>",
    "users": "users",
    "sitting": "sitting:<digest>",
    "once": "once:<digest>",
    "tries": "tries:<whom>",
    "page": "page",
    "audit": "audit",
    "audit_ends": "audit_ends",
}


def prefix(namespace: str, code: str) -> str:
    """What every key of a pool starts with; `code` may be `ACCOUNT`."""
    return f"{namespace}:{{{code}}}:"


def key(pool_prefix: str, name: str, *parts: str) -> str:
    """The key `name` under a pool's prefix; `parts` fill the template's arguments in order."""
    return pool_prefix + _filled(POOL_KEYS[name], parts)


def account(namespace: str, name: str, *parts: str) -> str:
    """The account's key `name`, as `key` makes a pool's."""
    return prefix(namespace, ACCOUNT) + _filled(ACCOUNT_KEYS[name], parts)


def _filled(template: str, parts: tuple[str, ...]) -> str:
    for part in parts:
        template = template.replace(template[template.index("<") : template.index(">") + 1], part, 1)
    return template


def schema(namespace: str) -> str:
    """The hash with the versions of the data's schema and of the scripts."""
    return prefix(namespace, ACCOUNT) + ACCOUNT_KEYS["schema"]


def pools(namespace: str) -> str:
    """The hash pool name -> code."""
    return prefix(namespace, ACCOUNT) + ACCOUNT_KEYS["pools"]


def codes(namespace: str) -> str:
    """The hash code -> pool name."""
    return prefix(namespace, ACCOUNT) + ACCOUNT_KEYS["codes"]


def in_lua(source: str) -> str:
    """`source` with each `<name>_key`, or `<name>_key(a, b)`, replaced by the expression that builds that key.

    Written out where they are used, the keys cost a script no function or variable for those it does not need.
    """
    for name, template in (POOL_KEYS | ACCOUNT_KEYS).items():
        fixed = "KEYS[1] .. '" + template.split("<", 1)[0] + "'"

        def build(match: re.Match[str], fixed: str = fixed) -> str:
            arguments = match[1].split(", ") if match[1] else []
            return "(" + (f"{fixed} .. " + " .. ':' .. ".join(arguments) if arguments else fixed) + ")"

        source = re.sub(rf"\b{name}_key\b(?:\(([^()]*)\))?", build, source)
    return source
