"""What the simulated model says: plain words, always the same for the same seed and prompt."""

from __future__ import annotations

import base64
import hashlib
import math
import random
import struct
from collections.abc import Sequence
from typing import Final

CHARACTERS_A_TOKEN: Final = 4
VOCABULARY: Final = (
    "a all always and at before behind between cloud day deep each early every far few first forest from "
    "garden good green half hill home in into known lake last late light line long many meadow morning "
    "mountain near never new night north of old on once open or other over path quiet rain river road sea "
    "short slow small some south spring stone summer that the then this through to tree turn under until "
    "valley warm water west when where wide wind winter with wood year young"
)
TAPE_TOKENS: Final = 4096
DIMENSIONS: Final = 64


def tokens_in(text: str) -> int:
    """How many tokens a text has: one for four characters, and the one that begins every prompt."""
    return 1 + math.ceil(len(text) / CHARACTERS_A_TOKEN)


class Language:
    """One model's words. `draw` gives the number that everything said to a prompt follows from."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        dice = random.Random(seed)
        vocabulary = VOCABULARY.split()
        words = [" " + dice.choice(vocabulary) for _ in range(TAPE_TOKENS)]
        self._tape = words * 2  # twice: a piece that begins near the end goes on at the beginning

    def draw(self, prompt: str, request_seed: int | None) -> int:
        """Below 2⁶⁴, from the model's seed, the prompt and the request's own seed."""
        said = f"{self.seed}/{request_seed}/{prompt}".encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest())

    def length(self, draw: int, mean: float) -> int:
        """Tokens that the model would say if it was not cut off: exponentially distributed."""
        return 1 + int(-mean * math.log((draw + 0.5) / 2**64))

    def say(self, draw: int, start: int, end: int) -> str:
        """The tokens from `start` up to `end` of the answer."""
        said: list[str] = []
        while start < end:
            at = (draw + start) % TAPE_TOKENS
            piece = self._tape[at : at + min(end - start, TAPE_TOKENS)]
            said += piece
            start += len(piece)
        return "".join(said)

    def embed(self, draw: int, dimensions: int) -> Sequence[float]:
        """A vector of length 1."""
        dice = random.Random(draw)
        vector = [dice.gauss(0, 1) for _ in range(dimensions)]
        length = math.sqrt(sum(x * x for x in vector)) or 1.0
        return [x / length for x in vector]


def packed(vector: Sequence[float]) -> str:
    """OpenAI's `encoding_format: base64`: little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
