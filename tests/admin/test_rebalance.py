"""Rebalancing on the page: choose, see what it would do, apply, watch, abort, undo, export."""

from __future__ import annotations

import time

import pytest

from admin_ui.bridge import Stores
from admin_ui.rebalancing import holds, wait
from fairlane.rebalance import Filter, Plan, Run, Shift, Target
from fairlane.rebalance.values import Forecast, RunState
from tests.admin.page import Page

SOON_S = 20.0


@pytest.fixture
def steps() -> bool:
    return True


def choose(page: Page, **values: str) -> str:
    """Fills in the form for a new run; returns the run's address."""
    answer = page.post("/act/run.create", {"pool": "llama", "to": "tier", "to_tier": "batch"} | values)
    assert answer.status_code == 303, answer.text
    return answer.headers["Location"]


def run_at(page: Page, address: str, state: RunState) -> Run:
    """The run, as soon as it is in this state."""
    run_id, until = address.rsplit("/", 1)[1], time.monotonic() + SOON_S
    while (run := page.ask(lambda stores: stores.runs.get(run_id))).state != state:
        assert time.monotonic() < until, f"the run is {run.state}"
        time.sleep(0.05)  # the stepper is another thread's
    return run


def tiers(page: Page, tenant: str) -> dict[str, int]:
    """How many of a tenant's jobs wait in each tier of llama."""

    async def read(stores: Stores) -> dict[str, int]:
        pool = await stores.queue.pools.by_name("llama")
        lines = {tier: await stores.queue.inspect.lines(pool, tier) for tier in pool.policy.tiers}
        return {tier: line.jobs for tier, found in lines.items() for line in found if line.tenant == tenant}

    return page.ask(read)


def test_jobs_are_chosen_weighed_moved_and_brought_back(page: Page) -> None:
    olga = page.as_("olga")
    address = choose(olga, tenant="ann", most="10")
    run = run_at(page, address, "ready")
    assert run.chosen == 10
    assert tiers(page, "ann") == {"default": 12}, "nothing was moved yet"
    shown = olga.get(address).text
    for words in ("Up to 10 waiting jobs of ann in llama: to the tier batch", "run.apply", "Wait after", ">batch<"):
        assert words in shown
    assert olga.act("run.apply", run=run.id).status_code == 303
    run_at(page, address, "done")
    assert tiers(page, "ann") == {"default": 2, "batch": 10}
    shown = olga.get(address).text
    assert "10 of 10" in shown
    assert "run.undo" in shown
    assert olga.act("run.undo", run=run.id).status_code == 303
    assert run_at(page, address, "undone").returned == 10
    assert tiers(page, "ann") == {"default": 12}


def test_a_purge_asks_for_the_name_and_has_no_undo(page: Page) -> None:
    address = choose(page, tenant="ann", to="purge")
    run = run_at(page, address, "ready")
    assert page.act("run.apply", run=run.id).status_code == 400
    assert page.act("run.apply", {"typed": "bob"}, run=run.id).status_code == 400
    assert tiers(page, "ann") == {"default": 12}
    assert page.act("run.apply", {"typed": "ann"}, run=run.id).status_code == 303
    run_at(page, address, "done")
    assert tiers(page, "ann") == {}
    assert "run.undo" not in page.get(address).text
    assert page.act("run.undo", run=run.id).status_code == 409


def test_jobs_are_spread_over_pools(page: Page) -> None:
    address = choose(page, tenant="ann", to="pools", **{"to_pool.llama": "1", "to_pool.org/mistral:7b": "1"})
    run = run_at(page, address, "ready")
    assert "spread over llama, org/mistral:7b" in page.get(address).text
    page.act("run.apply", run=run.id)
    assert run_at(page, address, "done").moved == 6
    assert tiers(page, "ann") == {"default": 6}
    assert "6 are spread to where they are" in page.get(address).text.replace("\u202f", "")


def test_an_act_that_comes_too_late_says_so_in_a_dialog_that_can_be_closed(page: Page) -> None:
    run = run_at(page, choose(page), "ready")
    page.act("run.abort", run=run.id)
    answer = page.client.get(f"/act/run.apply?run={run.id}", headers={"HX-Request": "true"})
    assert answer.status_code == 409
    assert "data-close>Close</a>" in answer.text
    assert "data-close" not in page.get(f"/act/run.apply?run={run.id}").text


@pytest.mark.parametrize(("wait_s", "jobs", "words"), [(None, 0, "–"), (None, 3, "held"), (2.0, 3, "2.0 s")])
def test_a_wait_that_nobody_knows_is_that_of_a_line_that_is_held(wait_s: float | None, jobs: int, words: str) -> None:
    assert wait(wait_s, jobs) == words
    shifts = (Shift("llama", "flex", "ann", jobs, jobs, wait_s, wait_s),)
    assert holds(Forecast(shifts)) == (words == "held")


def test_a_run_is_discarded(page: Page) -> None:
    address = choose(page)
    run = run_at(page, address, "ready")
    page.act("run.abort", run=run.id)
    assert run_at(page, address, "aborted").moved == 0
    assert page.act("run.apply", run=run.id).status_code == 409


def test_the_form_is_filled_in_by_other_pages(page: Page) -> None:
    shown = page.get("/rebalance/new?pool=org/mistral:7b&tenant=ann&tier=flex&older_than_s=60").text
    for words in ("<option selected>org/mistral:7b", 'value="ann"', "<option selected>flex", 'value="60"'):
        assert words in shown


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"most": "many"}, "This is a whole number."),
        ({"tier": "batch"}, "in the tier"),
        ({"to": "pools"}, "at least one pool"),
        ({"to": ""}, "Choose what becomes"),
        ({"to_tier": "gold"}, "tier"),
        ({"tenant": "no tenant's name"}, "tenant"),
    ],
)
def test_a_wrong_form_says_what_is_wrong_and_keeps_the_rest(page: Page, wrong: dict[str, str], words: str) -> None:
    form = {"pool": "llama", "older_than_s": "7", "to": "tier", "to_tier": "batch"} | wrong
    answer = page.post("/act/run.create", form)
    assert 400 <= answer.status_code < 500
    assert words in answer.text
    assert 'value="7"' in answer.text


def test_all_runs_are_listed_and_exported(page: Page) -> None:
    addresses = [choose(page, tenant=tenant) for tenant in ("ann", "bob")]
    for address in addresses:
        run_at(page, address, "ready")
    shown = page.get("/rebalance").text
    assert all(address in shown for address in addresses)
    exported = page.get(f"{addresses[0]}.json")
    assert exported.json
    assert exported.json["plan"]["filter"]["tenant"] == "ann"
    assert exported.json["forecast"]["shifts"]
    assert "attachment" in exported.headers["Content-Disposition"]
    assert page.get("/rebalance/run_nothing").status_code == 404


def test_every_act_is_in_the_audit(page: Page) -> None:
    address = choose(page, tenant="ann")
    run = run_at(page, address, "ready")
    page.act("run.apply", run=run.id)
    run_at(page, address, "done")
    page.act("run.undo", run=run.id)
    entries = page.ask(lambda stores: stores.audit.read(limit=3)).entries
    assert [(entry.act, dict(entry.after)) for entry in entries] == [
        ("run.undo", {"state": "undoing"}),
        ("run.apply", {"state": "applying"}),
        ("run.create", {"become": "to the tier batch", "run": run.id, "jobs": "all waiting jobs of ann in llama"}),
    ]
    shown = page.get("/audit").text if "audit" in page.app.blueprints else "run.create run.apply run.undo"
    assert all(act in shown for act in ("run.create", "run.apply", "run.undo"))


def test_a_viewer_sees_runs_and_changes_none(page: Page) -> None:
    address = choose(page, tenant="ann")
    run = run_at(page, address, "ready")
    vera = page.as_("vera")
    shown = vera.get(address).text
    assert run.id in shown
    assert "/act/run." not in shown
    assert vera.get("/rebalance/new").status_code == 403
    assert vera.act("run.apply", run=run.id).status_code == 403
    for act in ("run.create", "run.apply", "run.abort", "run.undo"):
        assert vera.post(f"/act/{act}", {"pool": "llama", "param.run": run.id}).status_code == 403
    assert run_at(page, address, "ready")


def test_who_sees_only_ann_sees_runs_of_ann_only_and_makes_none(page: Page) -> None:
    """To move work is to change its place among that of others."""
    otto = page.as_("otto")
    plan = Plan(Filter("llama"), Target(tier="batch"))
    of_all = page.ask(lambda stores: stores.runs.create(plan, "root"))
    of_ann = choose(page, tenant="ann")
    run = run_at(page, of_ann, "ready")
    assert otto.get("/rebalance/new").status_code == 403
    for act in ("run.create", "run.apply", "run.abort", "run.undo"):
        form = {"pool": "llama", "to": "tier", "to_tier": "batch", "tenant": "ann", "param.run": run.id}
        assert otto.post(f"/act/{act}", form).status_code == 403
    assert otto.get(f"/rebalance/{of_all.id}").status_code == 404
    assert otto.get(f"/rebalance/{of_all.id}.json").status_code == 404
    listed = otto.get("/rebalance").text
    assert of_all.id not in listed
    assert run.id in listed
    assert "/rebalance/new" not in listed
    shown = otto.get(of_ann).text
    assert "/act/run." not in shown
    assert "bob" not in shown
    assert "bob" not in otto.get(f"{of_ann}.json").text
    assert run_at(page, of_ann, "ready")
