"""The shortest first, by work: the engine's time that a request takes, in ms of an A100 that serves a 7 B model.

A prompt token takes 64 µs (UniBoost's figure). A token of an answer takes a share of a decode step: .6 ms is a step of
10 ms + 80 sequences of .05 ms and 1,200 cached tokens of .35 µs each, shared by 80 (the profile `a100-7b`, busy).
The formula weighs prompts against answers; what all times have in common makes no difference to an order.
"""

from __future__ import annotations

from typing import Final

from dispatcher.backends.sequences import Order, Sequence

PROMPT_TOKEN_MS: Final = 0.064
ANSWER_TOKEN_MS: Final = 0.6


def prompt_ms(sequence: Sequence) -> float:
    """The work of its prompt, as far as that is not cached."""
    return PROMPT_TOKEN_MS * (sequence.prompt - sequence.cached)


def whole_ms(sequence: Sequence) -> float:
    """The work of the whole request. Only somebody who knows the length of its answer can tell."""
    return prompt_ms(sequence) + ANSWER_TOKEN_MS * sequence.answer


def remaining_ms(sequence: Sequence) -> float:
    """The work that is left, what must be read again among it."""
    unread = sequence.to_read - max(sequence.read, sequence.cached)
    return PROMPT_TOKEN_MS * unread + ANSWER_TOKEN_MS * (sequence.answer - sequence.made)


class ShortestFirst(Order):
    """SJF with perfect lengths. Whoever runs stays, unless the cache is full: then the largest goes."""

    def key(self, sequence: Sequence) -> float:
        return whole_ms(sequence)


class ShortestRemaining(Order):
    """SRPT with perfect lengths: one with less work left takes the place of one with more, at any step.

    Between two arrivals nobody's turn can come: whoever runs has less and less left, and needs more and more room.
    """

    takes_place = True

    def key(self, sequence: Sequence) -> float:
        return remaining_ms(sequence)


class ByPrompt(Order):
    """The shortest prompt first: what can be known without a prediction. Whoever runs stays, as with SJF."""

    def key(self, sequence: Sequence) -> float:
        return prompt_ms(sequence)
