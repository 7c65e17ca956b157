"""The audit: nothing is lost of what was done, whoever is named in it, however it ended."""

from __future__ import annotations

import pytest

from fairlane.audit import Audit, Entry, Page, state_of
from fairlane.clock import ManualClock
from fairlane.errors import InvalidRequest
from fairlane.queue.engine import Queue


@pytest.fixture
def audit(queue: Queue) -> Audit:
    return Audit(queue)


async def write(
    audit: Audit, act: str = "tenant.pause", *, who: str = "olga", target: str = "Ann in llama", tenant: str = ""
) -> str:
    return await audit.begin(who=who, role="operator", address="192.0.2.1", act=act, target=target, tenant=tenant)


async def only(audit: Audit) -> Entry:
    (entry,) = (await audit.read()).entries
    return entry


async def test_an_entry_tells_who_did_what_when_and_from_where(audit: Audit, clock: ManualClock) -> None:
    id_ = await audit.begin(
        who="olga",
        role="operator",
        address="192.0.2.1",
        act="tenant.pause",
        target="Ann in llama",
        tenant="ann",
        params={"pool": "llama"},
        before={"paused": False},
        after={"paused": True},
    )
    await audit.end(id_, outcome="done", words="Paused.")
    assert await only(audit) == Entry(
        id_, clock.now_ms(), "olga", "operator", "192.0.2.1", "tenant.pause", "Ann in llama", "ann",
        {"pool": "llama"}, {"paused": False}, {"paused": True}, "done", "Paused.",
    )  # fmt: skip


async def test_what_did_not_come_to_an_end_is_there_too(audit: Audit) -> None:
    await write(audit)
    entry = await only(audit)
    assert (entry.outcome, state_of(entry)) == (None, "begun")


async def test_an_outcome_is_written_once_and_may_correct_what_was_foreseen(audit: Audit) -> None:
    id_ = await audit.begin(
        who="o", role="admin", address="::1", act="run.apply", target="r", before={"n": 1}, after={"n": 2}
    )
    await audit.end(id_, outcome="done", after={"n": 3})
    await audit.end(id_, outcome="not_found", after={"n": 4})
    entry = await only(audit)
    assert (entry.outcome, entry.before, entry.after) == ("done", {"n": 1}, {"n": 3})


async def test_an_outcome_without_an_entry_is_dropped(audit: Audit, queue: Queue) -> None:
    await audit.end("1-1", outcome="done")
    assert (await audit.read()).entries == ()


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a\x00b\r\nc", "\u202egnp", "ünïcode", "{{7*7}}", "'\"`"]
)
async def test_whatever_a_name_is_made_of_it_is_told_as_it_is(audit: Audit, name: str) -> None:
    id_ = await audit.begin(
        who=name, role="viewer", address=name, act="a.b", target=name, tenant=name, params={name: name}
    )
    await audit.end(id_, outcome="done", words=name)
    entry = await only(audit)
    assert (entry.who, entry.target, entry.tenant, entry.words) == (name, name, name, name)
    assert entry.params == {name: name}
    assert (await audit.read(tenant=name)).entries == (entry,)


async def test_what_is_too_long_or_no_text_is_cut_not_refused(audit: Audit) -> None:
    id_ = await audit.begin(
        who="o", role="r", address="a", act="x.y", target="t\ud800" * 10_000, params={"p": "x" * 100_000}
    )
    await audit.end(id_, outcome="done", words="w" * 100_000)
    entry = await only(audit)
    assert len(entry.target) <= 512
    assert len(entry.words) <= 512
    assert len(str(entry.params)) <= 4096


async def test_the_newest_come_first_and_pages_follow_one_another(audit: Audit) -> None:
    ids = [await write(audit) for _ in range(5)]
    first = await audit.read(limit=2)
    second = await audit.read(first.following or "", limit=2)
    third = await audit.read(second.following or "", limit=2)
    assert [entry.id for page in (first, second, third) for entry in page.entries] == ids[::-1]
    assert third.following is None


async def test_no_page_follows_when_the_last_one_is_full(audit: Audit) -> None:
    for _ in range(4):
        await write(audit)
    first = await audit.read(limit=2)
    second = await audit.read(first.following or "", limit=2)
    assert (len(second.entries), second.following) == (2, None)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"who": "olga"}, 2),
        ({"who": "olga", "act": "tier.pause"}, 1),
        ({"act": "tenant.pause"}, 2),
        ({"act": "tenant."}, 2),
        ({"act": "tenant"}, 0),
        ({"act": "t"}, 0),
        ({"tenant": "ann"}, 1),
        ({"target": "x"}, 1),
    ],
)
async def test_a_filter_finds_what_has_all_that_it_names(audit: Audit, filters: dict[str, str], found: int) -> None:
    await write(audit, tenant="ann")
    await write(audit, "tier.pause")
    await write(audit, who="otto", target="x")
    assert len((await audit.read(**filters)).entries) == found  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("scope", "found"), [(None, 3), ({"ann"}, 1), ({"ann", "bob"}, 2), ({"cho"}, 0), ([], 0)])
async def test_who_is_there_for_some_tenants_sees_what_concerns_those(
    audit: Audit, scope: set[str] | None, found: int
) -> None:
    await write(audit, tenant="ann")
    await write(audit, tenant="bob")
    await write(audit)
    assert len((await audit.read(scope=scope)).entries) == found


async def test_a_read_looks_at_a_bounded_number_and_says_where_to_go_on(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.audit.LOOKED_MOST", 3)
    await write(audit, tenant="ann")
    for _ in range(4):
        await write(audit)
    page = await audit.read(tenant="ann")
    assert (page.entries, page.looked) == ((), 3)
    page = await audit.read(page.following or "", tenant="ann")
    assert (len(page.entries), page.looked, page.following) == (1, 2, None)


async def test_the_oldest_go_with_their_outcomes(audit: Audit, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.audit.KEPT", 3)
    ids = [await write(audit) for _ in range(3)]
    for id_ in ids:
        await audit.end(id_, outcome="done")
    ids += [await write(audit), await write(audit)]
    assert [entry.id for entry in (await audit.read()).entries] == ids[:1:-1]
    assert await audit.entry(ids[0]) is None


async def test_one_entry_is_found_by_its_id(audit: Audit) -> None:
    ids = [await write(audit) for _ in range(3)]
    entry = await audit.entry(ids[1])
    assert entry
    assert entry.id == ids[1]
    assert await audit.entry("1-1") is None


@pytest.mark.parametrize("cursor", ["x", "1", "1-", "-1", "1-1-1", "+", "1-x", "9" * 50 + "-1"])
async def test_a_cursor_that_is_none_is_refused(audit: Audit, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        await audit.read(cursor)


@pytest.mark.parametrize("id_", ["0-0", f"{2**64}-0", f"0-{2**64}", f"{'9' * 30}-{'9' * 30}"])
async def test_before_a_place_that_cannot_be_there_is_nothing(audit: Audit, id_: str) -> None:
    await write(audit)
    assert await audit.read(id_) == Page((), None, 0)
    assert await audit.entry(id_) is None


@pytest.mark.parametrize("n", [0, 2**64 - 1])
async def test_the_first_and_the_last_place_of_a_moment_may_be_asked_for(audit: Audit, n: int) -> None:
    kept = await write(audit)
    assert await audit.entry(f"{2**64 - 1}-{n}") is None
    assert [entry.id for entry in (await audit.read(f"{2**64 - 1}-{n}")).entries] == [kept]
