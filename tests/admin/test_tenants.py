"""Tenants on the page: who there is, what each may do and has, and every change of that."""

from __future__ import annotations

from typing import Any

import pytest

from admin_ui.limits import texts
from fairlane.audit import Entry
from fairlane.model import Limits
from fairlane.standing import TenantStanding
from tests.admin.page import Page, job
from tests.admin.together import is_true, together
from tests.contract.acts import submit_all

ORG = "org/mistral:7b"


def standing(page: Page, tenant: str = "ann", pool: str = "llama") -> TenantStanding:
    async def read(stores: Any) -> TenantStanding:
        return await stores.queue.inspect.tenant(await stores.queue.pools.by_name(pool), tenant)

    return page.ask(read)


def last(page: Page) -> Entry:
    return page.ask(lambda stores: stores.audit.read()).entries[0]


def asks(page: Page, act: str, **params: str) -> str:
    answer = page.get(f"/act/{act}", query_string=params)
    assert answer.status_code == 200, answer.text
    return answer.text


def submit(page: Page, *tenants: str, tier: str = "default") -> None:
    async def write(stores: Any) -> None:
        pool = await stores.queue.pools.by_name("llama")
        await submit_all(stores.queue, pool, [job(tenant, tier) for tenant in tenants])

    page.ask(write)


# --- lists ------------------------------------------------------------------------------------------------------------


def test_registered_tenants_come_in_pages_and_are_found_by_the_start_of_their_name(page: Page) -> None:
    async def create(stores: Any) -> None:
        for n in range(60):
            await stores.accounts.create_tenant(f"team-{n:02}")

    page.ask(create)
    first = page.get("/tenants").text
    assert 'id="tenant-ann"' in first
    assert 'id="tenant-team-47"' in first
    assert 'id="tenant-team-48"' not in first
    assert 'id="tenant-team-59"' in page.get("/tenants?after=team-47").text
    found = page.get("/tenants?q=team-5").text
    assert found.count('<tr id="tenant-') == 10
    assert page.get("/tenants?q=team-51").text.count('<tr id="tenant-') == 1
    assert "Open nobody" in page.get("/tenants?q=nobody").text


def test_those_with_work_are_listed_by_tier_who_waits_longest_first_registered_or_not(page: Page) -> None:
    submit(page, "guest")
    text = page.get("/tenants?pool=llama").text
    order = [
        text.index(f'id="waits-{where}"') for where in ("priority-bob", "default-ann", "default-bob", "default-guest")
    ]
    assert order == sorted(order)
    assert text.count("by its work") == 1


def test_the_list_of_those_with_work_goes_on_through_all_tiers(page: Page) -> None:
    submit(page, *(f"u{n:02}" for n in range(45)))
    submit(page, *(f"v{n:02}" for n in range(30)), tier="batch")
    seen: list[str] = []
    address: str | None = "/tenants?pool=llama"
    while address:
        text = page.get(address).text
        seen += [part.partition('"')[0] for part in text.split('<tr id="waits-')[1:]]
        address = following(text)
    assert len(seen) == len(set(seen)) == 3 + 45 + 30


def following(text: str) -> str | None:
    before, found, _ = text.partition('" rel="next"')
    return before.rpartition('href="')[2].replace("&amp;", "&") if found else None


def test_who_sees_only_some_tenants_sees_these(page: Page) -> None:
    otto = page.as_("otto")
    text = otto.get("/tenants").text
    assert 'id="tenant-ann"' in text
    assert "bob" not in text
    assert "bob" not in otto.get("/tenants?pool=llama").text
    assert otto.get("/tenants/bob").status_code == 404
    assert otto.get("/tenants/bob/export.json").status_code == 404
    assert otto.get("/tenants/ann").status_code == 200


# --- one tenant -------------------------------------------------------------------------------------------------------


def test_a_tenant_has_its_limits_its_standing_in_each_pool_and_its_keys_without_secrets(page: Page) -> None:
    async def prepare(stores: Any) -> str:
        await stores.accounts.set_tenant("ann", {"weight": 2, "max_inflight": 0, "tiers": "default"})
        _, secret = await stores.accounts.create_key("ann", label="laptop")
        return secret

    secret = page.ask(prepare)
    text = page.get("/tenants/ann").text
    assert "laptop" in text
    assert secret.split("-")[1] in text
    assert secret.split("-")[2] not in text
    assert "0 in flight, the most it may have" in text
    kept = page.get("/tenants/ann/export.json")
    assert kept.json is not None
    assert secret.split("-")[2] not in kept.text
    assert kept.json["account"]["limits"]["weight"] == 2.0
    assert kept.json["account"]["tiers"] == ["default"]
    assert kept.json["pools"][0]["waiting"] == 12


def test_a_tenant_that_is_not_registered_has_a_page_that_says_so(page: Page) -> None:
    submit(page, "guest")
    text = page.get("/tenants/guest").text
    assert "Not registered" in text
    assert "tenant.register" in text
    assert page.get("/tenants/no%20name").status_code == 404


# --- pause ------------------------------------------------------------------------------------------------------------


def test_a_tenant_is_paused_in_one_pool_or_in_all(page: Page) -> None:
    olga = page.as_("olga")
    assert "12 of its jobs wait until it is resumed" in asks(olga, "tenant.pause", pool="llama", tenant="ann")
    olga.act("tenant.pause", pool="llama", tenant="ann")
    assert standing(page).paused
    assert not standing(page, pool=ORG).paused
    assert (last(page).tenant, last(page).before, last(page).after) == ("ann", {"llama": "runs"}, {"llama": "paused"})
    assert olga.act("tenant.pause", pool="llama", tenant="ann").status_code == 409
    olga.act("tenant.pause", tenant="ann")
    assert last(page).before == {ORG: "runs"}
    assert standing(page, pool=ORG).paused
    assert "is-paused" in page.get("/tenants/ann").text
    olga.act("tenant.resume", tenant="ann")
    assert not standing(page).paused
    assert not standing(page, pool=ORG).paused


@pytest.mark.parametrize("other", [{}, {"pool": "llama"}])
@pytest.mark.parametrize("act", ["tenant.pause", "tenant.resume"])
def test_of_two_who_pause_or_resume_a_tenant_at_once_each_is_told_what_he_did(
    page: Page, act: str, other: dict[str, str]
) -> None:
    start, end = (dict.fromkeys(("llama", str(ORG)), word) for word in ("runs", "paused"))
    if act == "tenant.resume":
        page.act("tenant.pause", tenant="ann")
        start, end = end, start
    entries = together(page, act, {"tenant": "ann"}, {"tenant": "ann"} | other)
    assert is_true(entries, start, end)


def test_who_sees_only_some_tenants_neither_pauses_nor_resumes_them(page: Page) -> None:
    """A tenant that floods is paused by who looks after all; whoever acts for it could resume it."""
    page.act("tenant.pause", pool="llama", tenant="ann")
    otto = page.as_("otto")
    for tenant in "ann", "bob":
        assert otto.act("tenant.resume", pool="llama", tenant=tenant).status_code == 403
        assert otto.act("tenant.pause", pool="llama", tenant=tenant).status_code == 403
    assert standing(page).paused
    assert not standing(page, "bob").paused


# --- limits -----------------------------------------------------------------------------------------------------------


def test_limits_of_a_registered_tenant_hold_in_every_pool(page: Page) -> None:
    filled_in = {"weight": "2", "max_inflight": "8", "requests_per_minute": "600", "max_waiting": "", "tiers": "all"}
    answer = page.get("/tenants/ann/limits", query_string=filled_in)
    assert answer.status_code == 303
    text = page.get(answer.location).text
    assert "2 turns for each turn of a tenant of weight 1" in text
    assert "max_waiting" not in text
    page.as_("olga").act("tenant.limits", tenant="ann", weight="2", max_inflight="8", requests_per_minute="600")
    for pool in ("llama", ORG):
        assert standing(page, pool=pool).limits == Limits(2.0, 8, 600)
    assert last(page).before == {"weight": "1", "max_inflight": "none", "requests_per_minute": "none"}
    assert last(page).after == {"weight": "2", "max_inflight": "8", "requests_per_minute": "600"}


def test_limits_in_one_pool_hold_there_alone(page: Page) -> None:
    assert "until the limits of the tenant are next changed" in asks(
        page, "tenant.limits", tenant="ann", pool="llama", max_inflight="1"
    )
    page.act("tenant.limits", tenant="ann", pool="llama", max_inflight="1")
    assert standing(page).limits == Limits(max_inflight=1)
    assert standing(page, pool=ORG).limits == Limits()
    assert "limits of its own" in page.get("/tenants/ann").text


def test_limits_of_a_tenant_that_is_not_registered_hold_in_the_pools_that_there_are(page: Page) -> None:
    submit(page, "guest")
    assert "not in one that is opened later" in asks(page, "tenant.limits", tenant="guest", weight="3")
    page.act("tenant.limits", tenant="guest", pool="llama", max_waiting="5")
    page.act("tenant.limits", tenant="guest", weight="3")
    assert standing(page, "guest").limits == Limits(3.0, max_waiting=5)
    assert standing(page, "guest", ORG).limits == Limits(3.0)
    assert last(page).before == {"weight": "1"}
    form = page.get("/tenants/guest/limits").text
    assert 'value="5 / none"' in form
    assert page.get("/tenants/guest/limits", query_string={"max_waiting": "5 / none"}).status_code == 200


def test_limits_that_hold_up_what_there_is_say_so(page: Page) -> None:
    assert "12 wait now: they stay" in asks(page, "tenant.limits", tenant="ann", max_waiting="10")
    assert "every job of it is refused" in asks(page, "tenant.limits", tenant="ann", max_waiting="0")
    assert "nothing of it starts any more" in asks(page, "tenant.limits", tenant="ann", max_inflight="0")
    assert "there is no tier gold yet" in asks(page, "tenant.limits", tenant="ann", tiers="default,gold")


def test_a_limit_that_makes_no_sense_is_said_at_its_field(page: Page) -> None:
    for name, value in ("weight", "0"), ("weight", "nan"), ("max_inflight", "-1"), ("requests_per_minute", "many"):
        answer = page.get("/tenants/ann/limits", query_string={name: value})
        assert answer.status_code == 400
        assert f'name="{name}" value="{value}"' in answer.text
        assert 'aria-invalid="true"' in answer.text
        assert page.act("tenant.limits", tenant="ann", **{name: value}).status_code == 400


def test_nobody_sets_the_limits_of_the_tenants_that_he_acts_for(page: Page) -> None:
    """What a tenant may do lies between tenants: else whoever acts for one could take the turns of all others."""
    otto = page.as_("otto")
    assert otto.act("tenant.limits", tenant="ann", weight="1000").status_code == 403
    assert otto.act("tenant.limits", tenant="bob", weight="0.01").status_code == 403
    assert otto.get("/tenants/ann/limits").status_code == 404
    assert standing(page).limits == standing(page, "bob").limits == Limits()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"weight": "2"}, {"max_waiting": "50", "max_inflight": "3"}),
        ({"weight": "2"}, {"weight": "3"}),
        ({"weight": "2", "max_waiting": "50"}, {"max_inflight": "3", "weight": "3"}),
        ({"weight": "2"}, {"weight": "2"}),
    ],
)
@pytest.mark.parametrize("where", [{"tenant": "ann"}, {"tenant": "ann", "pool": ORG}, {"tenant": "guest", "pool": ORG}])
def test_two_who_set_limits_at_once_lose_nothing_and_the_audit_says_what_each_found(
    page: Page, where: dict[str, str], one: dict[str, str], other: dict[str, str]
) -> None:
    start = texts(standing(page, where["tenant"], ORG).limits)
    entries = together(page, "tenant.limits", where | one, where | other)
    end = texts(standing(page, where["tenant"], ORG).limits)
    assert [entry.outcome for entry in entries].count("done") == (1 if one == other else 2)
    assert all(end[name] in (one.get(name), other.get(name)) for name in one | other)
    assert is_true(entries, start, end)


def test_two_who_set_limits_in_all_pools_at_once_lose_nothing(page: Page) -> None:
    together(page, "tenant.limits", {"tenant": "guest", "weight": "2"}, {"tenant": "guest", "max_waiting": "50"})
    for pool in ("llama", ORG):
        assert standing(page, "guest", pool).limits == Limits(2.0, max_waiting=50)


# --- access -----------------------------------------------------------------------------------------------------------


def test_a_tenant_is_disabled_and_enabled_by_admins(page: Page) -> None:
    assert page.as_("olga").act("tenant.disable", tenant="ann").status_code == 403
    assert "no front door takes its 0 active keys" in asks(page, "tenant.disable", tenant="ann")
    page.act("tenant.disable", tenant="ann")
    assert page.ask(lambda stores: stores.accounts.tenant("ann")).disabled
    assert (last(page).before, last(page).after) == ({"state": "enabled"}, {"state": "disabled"})
    assert "front doors refuse all of its keys" in page.get("/tenants/ann").text
    assert page.act("tenant.disable", tenant="ann").status_code == 409
    page.act("tenant.enable", tenant="ann")
    assert not page.ask(lambda stores: stores.accounts.tenant("ann")).disabled
    assert page.act("tenant.disable", tenant="guest").status_code == 404


def test_a_tenant_is_registered_and_keeps_what_was_set_for_it(page: Page) -> None:
    page.act("tenant.limits", tenant="guest", pool="llama", max_waiting="5")
    page.act("tenant.register", tenant="guest")
    assert page.ask(lambda stores: stores.accounts.find("guest")) is not None
    assert standing(page, "guest").limits == Limits(max_waiting=5)
    assert page.act("tenant.register", tenant="guest").status_code == 409
    assert page.act("tenant.register", tenant="no name").status_code == 400
