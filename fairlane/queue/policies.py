"""A pool's policy as text in its hash, what makes one valid, and how a change leads to the next."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from typing import Final, cast

from fairlane.errors import InvalidRequest
from fairlane.model import TIER_PATTERN, Policy

MOST: Final = 10 * 365 * 86_400_000  # ten years in ms; also more jobs than a Redis holds
AUTO: Final = "auto"
DEFAULTS: Final = Policy()
NAMES: Final = tuple(field.name for field in fields(Policy))

_TIER: Final = re.compile(TIER_PATTERN)
_BY: Final = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,128}")
_CHOICES: Final = {"fairness": ("requests", "tokens"), "affinity": ("none", "prefix")}
_RANGES: Final = {"reserve": (0.0, 0.9), "decay": (0.0, 100.0), "kv_most": (0.01, 1.0), "slow_ms": (0.1, 600_000.0)}
# Less would destroy work: run again before it can be renewed, gone before it can be read, held by the dead for ever.
_WHOLE: Final = {"lease_ms": (250, 3_600_000), "result_ttl_ms": (1_000, MOST), "dead_ttl_ms": (1_000, MOST)}
_GAMMA_MOST: Final = 1000.0  # per second
_THETA_MOST: Final = 1000


def texts(policy: Policy) -> dict[str, str]:
    """The policy as it stands in the pool's hash."""
    return {name: _text(value) for name, value in asdict(policy).items()}


def policy_of(stored: Mapping[str, bytes]) -> Policy:
    """The inverse of `texts`. What an older version did not store has its default."""
    return Policy(**{name: _value(name, stored[name].decode()) for name in NAMES if name in stored})  # pyright: ignore[reportArgumentType]


def changed(policy: Policy, changes: Mapping[str, object]) -> Policy:
    """The policy with the changes, each a value or its text, valid as a whole. Raises InvalidRequest."""
    for name in changes:
        if not isinstance(name, str) or name not in NAMES:  # pyright: ignore[reportUnnecessaryIsInstance]
            near = get_close_matches(str(name), NAMES, 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(NAMES)}."
            raise InvalidRequest(f"A policy has no setting {name!r}. {hint}", param=name)
    new = replace(policy, **{name: _given(name, value) for name, value in changes.items()})  # pyright: ignore[reportArgumentType]
    check(new)
    return new


def difference(old: Policy, new: Policy) -> dict[str, tuple[str, str]]:
    """The text before and after of each setting that is another one."""
    names = (name for name in NAMES if getattr(old, name) != getattr(new, name))
    return {name: (_text(getattr(old, name)), _text(getattr(new, name))) for name in names}


def check(policy: Policy) -> None:
    """Raises InvalidRequest, which names the setting, for a policy that makes no sense as a whole."""
    _need("tiers", _are_tiers(policy.tiers), f"1 to 10 names of the form {TIER_PATTERN}, each once")
    for name, choices in _CHOICES.items():
        _need(name, getattr(policy, name) in choices, " or ".join(choices))
    for name, (least, most) in _RANGES.items():
        value = getattr(policy, name)
        _need(name, _is_number(value) and least <= value <= most, f"a number from {least:g} to {most:g}")
    for name in NAMES:
        if type(getattr(DEFAULTS, name)) is int:
            value, (least, most) = getattr(policy, name), _WHOLE.get(name, (1, MOST))
            _need(name, _is_whole(value) and least <= value <= most, f"a whole number from {least} to {most}")
    _check_gamma(policy)
    wanted = f"1 to 10 whole numbers from 0 to {_THETA_MOST}, none larger than the one before it"
    _need("theta", _are_theta(policy.theta), wanted)
    _check_room(policy)


def check_by(by: str) -> None:
    """Who changes a policy."""
    if not _BY.fullmatch(by):
        raise InvalidRequest("by is who changes it: 1 to 128 visible characters.", param="by")


def _check_gamma(policy: Policy) -> None:
    gamma = policy.gamma
    if gamma is None:
        least = math.ceil(4000 / _GAMMA_MOST)  # the thermostat sets it to 4 / boost_max_ms at the least
        _need("boost_max_ms", policy.boost_max_ms >= least, f"at least {least} while gamma is {AUTO}")
    else:
        so = _is_number(gamma) and 0 <= gamma <= _GAMMA_MOST
        _need("gamma", so, f"{AUTO}, or from 0 to {_GAMMA_MOST:g} per second")


def _check_room(policy: Policy) -> None:
    """The lowest tier keeps some room while all others are active."""
    above = len(policy.tiers) - 1
    kept = sum(policy.reserve * math.exp(-policy.decay / above * q) for q in range(above))
    if kept >= 1:
        raise InvalidRequest(
            f"A reserve of {policy.reserve:g} and a decay of {policy.decay:g} leave the lowest of {above + 1} tiers "
            "no room. Make the reserve smaller, or the decay larger.",
            param="reserve",
        )


def _need(name: str, so: bool, what: str) -> None:
    if not so:
        raise InvalidRequest(f"{name} is {what}.", param=name)


def _are_tiers(value: object) -> bool:
    if not isinstance(value, tuple) or not 1 <= len(cast("tuple[object, ...]", value)) <= 10:
        return False
    names = cast("tuple[object, ...]", value)
    return all(isinstance(name, str) and _TIER.fullmatch(name) for name in names) and len(set(names)) == len(names)


def _are_theta(value: object) -> bool:
    if not isinstance(value, tuple) or not 1 <= len(cast("tuple[object, ...]", value)) <= 10:
        return False
    numbers = cast("tuple[int, ...]", value)
    return all(_is_whole(n) and 0 <= n <= _THETA_MOST for n in numbers) and sorted(numbers, reverse=True) == [*numbers]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object) -> str:
    if value is None:
        return AUTO
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType]


def _value(name: str, text: str) -> object:
    """A setting from its text. Raises InvalidRequest."""
    read, what = _READERS[name]
    try:
        return read(text.strip())
    except ValueError as error:
        raise InvalidRequest(f"{name} is {what}, not {text!r}.", param=name) from error


def _given(name: str, value: object) -> object:
    """A setting from its text, or as JSON or Python has it."""
    if isinstance(value, str):
        return _value(name, value)
    if isinstance(value, list):
        return tuple(cast("list[object]", value))
    if type(getattr(DEFAULTS, name)) is float and _is_whole(value):
        try:
            return float(cast(int, value))
        except OverflowError as error:
            raise InvalidRequest(f"{name} is too large.", param=name) from error
    return value


def _reader(name: str) -> tuple[Callable[[str], object], str]:
    match name, getattr(DEFAULTS, name):
        case "gamma", _:
            return lambda text: None if text == AUTO else float(text), f"{AUTO} or a number"
        case "tiers", _:
            return lambda text: tuple(part.strip() for part in text.split(",")), "names with commas between them"
        case "theta", _:
            return lambda text: tuple(int(part) for part in text.split(",")), "whole numbers with commas between them"
        case _, int():
            return int, "a whole number"
        case _, float():
            return float, "a number"
        case _:
            return str, "a word"


_READERS: Final = {name: _reader(name) for name in NAMES}
