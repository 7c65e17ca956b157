"""What kind of backend is modelled: a name, an engine's speed, and what a request costs on its way. Kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, cast

from dispatcher.backends.timing import Speed
from fairlane.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of backend. `overhead_ms` is what one request takes beside the engine: network, HTTP, tokenizing."""

    name: str
    speed: Speed
    overhead_ms: float = 0.0


# A model of 7 B parameters in 16 bits. The memory left for the cache, at 0.5 MiB a token, is what an A100 of 80 GB and
# an A10 of 24 GB have; 13,616 tokens is what Llumnix (OSDI 2024) reports for the latter. 64 µs per prompt token is
# UniBoost's. A decode step reads the weights once (13.5 GB) and each sequence's cache, at 1.5 and 0.6 TB/s. A step's
# budget is such that even a step full of prompts takes less than the 150 ms at which the gate shuts for slow tokens.
_A100: Final = Speed(256, 100_000, 1024, 10.0, 0.05, 0.064, 0.00035, 16)
_A10: Final = Speed(256, 13_616, 512, 24.0, 0.1, 0.2, 0.0009, 16)
PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("a100-7b", _A100),
        Profile("a10-7b", _A10),
        Profile("tiny", Speed()),
    )
}
DEFAULT: Final = "a100-7b"
MOST_WHOLE: Final = 1_000_000_000
MOST_MS: Final = 1_000_000.0
LEAST_STEP_MS: Final = 0.001  # a step is never free
NAME_MOST: Final = 200


def load_profile(name_or_path: str) -> Profile:
    """One of PROFILES by its name, or from a file that `fairlane profile` wrote. Raises InvalidRequest."""
    if name_or_path in PROFILES:
        return PROFILES[name_or_path]
    try:
        text = Path(name_or_path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(PROFILES)
        raise InvalidRequest(f"{name_or_path} is no profile: neither one of {known}, nor a file ({error}).") from None
    try:
        return _profile(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequest(f"{name_or_path} is no profile: {error}. `fairlane profile URL` writes one.") from None


def dump_profile(profile: Profile) -> str:
    """As JSON, one value a line."""
    return json.dumps(asdict(profile), indent=2) + "\n"


def _profile(found: Any) -> Profile:
    if not isinstance(found, dict):
        raise TypeError("it is no JSON object")
    outer = cast("dict[str, Any]", found)
    inner = outer.get("speed")
    if not isinstance(inner, dict):
        raise TypeError("it has no `speed`")
    speed = cast("dict[str, Any]", inner)
    for field in fields(Speed):
        value = speed.get(field.name, field.default)
        whole = field.type == "int"
        good = (
            isinstance(value, int) and 0 < value <= MOST_WHOLE
            if whole
            else isinstance(value, int | float) and 0 <= value <= MOST_MS
        )
        if isinstance(value, bool) or not good:
            raise ValueError(
                f"speed.{field.name} is {str(value)[:40] if isinstance(value, int | float) else repr(value)[:40]}, "
                f"not {f'a whole number from 1 to {MOST_WHOLE:,}' if whole else f'from 0 to {MOST_MS:,.0f} ms'}"
            )
    unknown = speed.keys() - {field.name for field in fields(Speed)}
    if unknown:
        raise ValueError(f"speed.{min(unknown)} is unknown")
    if speed.get("step_ms", 1) < LEAST_STEP_MS:
        raise ValueError(f"speed.step_ms is {speed['step_ms']}, less than {LEAST_STEP_MS}")
    overhead_ms = outer.get("overhead_ms", 0.0)
    if not isinstance(overhead_ms, int | float) or not 0 <= overhead_ms <= MOST_MS:
        raise ValueError(f"overhead_ms is {repr(overhead_ms)[:40]}, not from 0 to {MOST_MS:,.0f} ms")
    name = outer.get("name")
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= NAME_MOST:
        raise ValueError(f"name is {repr(name)[:40]}, no text of up to {NAME_MOST} characters that can be printed")
    return Profile(name, Speed(**speed), float(overhead_ms))
