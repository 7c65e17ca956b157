"""Random parts of ids, and how a job's id leads to its pool."""

from __future__ import annotations

import random
import re
import secrets
from typing import NamedTuple, Protocol

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
CODE_LENGTH = 4
RANDOM_LENGTH = 12  # 60 bits: an id cannot be guessed
_JOB_ID = re.compile(rf"job_([{ALPHABET}]{{{CODE_LENGTH}}})([1-9][0-9]{{0,15}})([{ALPHABET}]{{{RANDOM_LENGTH}}})")


class JobId(NamedTuple):
    """The parts of `job_<code><seq><random>`."""

    code: str
    seq: int
    random: str


def parse_job_id(job_id: str) -> JobId | None:
    """Splits a job's id into the code of the pool it was submitted to, its sequence number and its random part."""
    match = _JOB_ID.fullmatch(job_id)
    return JobId(match[1], int(match[2]), match[3]) if match else None


class Ids(Protocol):
    """Where random parts of ids come from."""

    def token(self, length: int) -> str:
        """`length` random characters of `ALPHABET`."""
        ...


class RandomIds:
    """Unpredictable ids, for production."""

    def token(self, length: int) -> str:
        number = secrets.randbits(5 * length)
        return "".join(ALPHABET[number >> shift & 31] for shift in range(0, 5 * length, 5))


class SeededIds:
    """Repeatable ids, for tests and the simulator."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self, length: int) -> str:
        return "".join(self._random.choices(ALPHABET, k=length))
