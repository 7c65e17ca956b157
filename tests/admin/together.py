"""Two operators who confirm at the same moment, and whether the audit then tells what was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest

from admin_ui.acting import Asked, Done, Proposal
from admin_ui.actions import ACTS
from admin_ui.bridge import Stores
from fairlane.audit import Entry
from tests.admin.page import Page

Carrying = Callable[[Stores, Asked, Proposal], Awaitable[Done]]


def together(page: Page, name: str, one: Mapping[str, str], other: Mapping[str, str]) -> list[Entry]:
    """Two do an act, with these parameters: neither is carried out before both are proposed. What the audit has."""
    meeting = asyncio.Barrier(2)

    def met(carry_out: Carrying) -> Carrying:
        async def carry(stores: Stores, asked: Asked, proposal: Proposal) -> Done:
            await meeting.wait()
            return await carry_out(stores, asked, proposal)

        return carry

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr(ACTS[name], "carry_out", met(ACTS[name].carry_out))
        answers = threads.map(lambda whose, params: whose.act(name, **params), (page, page.as_("olga")), (one, other))
        codes = [answer.status_code for answer in answers]
    entries = [entry for entry in page.ask(lambda stores: stores.audit.read()).entries if entry.act == name]
    assert sorted(codes) == sorted(303 if entry.outcome == "done" else 409 for entry in entries)
    return entries


def is_true(entries: Sequence[Entry], start: Mapping[str, object], end: Mapping[str, object]) -> bool:
    """Whether what was done leads, in some order, from `start` to `end`, each from where it says that it began."""
    done = [entry for entry in entries if entry.outcome == "done"]
    return any(_leads(order, start, end) for order in permutations(done))


def _leads(order: Sequence[Entry], start: Mapping[str, object], end: Mapping[str, object]) -> bool:
    now = dict(start)
    for entry in order:
        if entry.before == entry.after or any(now[name] != was for name, was in entry.before.items()):
            return False
        now |= entry.after
    return now == end
