"""Jobs on the page: found, looked at, explained, and what can be done to them."""

from __future__ import annotations

import re

import pytest

from admin_ui.actions import jobs as acts
from admin_ui.bridge import Stores
from fairlane.model import Job, JobError, Lease
from fairlane.queue.pools import Pool
from fairlane.search import JobFilter, search
from tests.admin.page import Page, job
from tests.admin.together import is_true, together
from tests.contract.acts import REFUSED, set_gate, submit_all, take


def found(page: Page, state: str, tenant: str | None = None) -> list[Job]:
    wanted = JobFilter(pool="llama", tenant=tenant, state=state)
    return [*page.ask(lambda stores: search(stores.queue, wanted)).jobs]


def one(page: Page, state: str, tenant: str | None = None) -> Job:
    return found(page, state, tenant)[0]


def rows(html: str) -> list[str]:
    """The ids of the jobs in a list."""
    return re.findall(r'<tr id="(job_\w+)">', html)


def state(page: Page, job_id: str) -> str:
    return page.ask(lambda stores: stores.queue.inspect.job(job_id)).state


def test_jobs_are_listed_and_filtered(page: Page) -> None:
    assert len(rows(page.get("/jobs").text)) == 18
    assert len(rows(page.get("/jobs?pool=llama&tenant=ann&state=queued").text)) == 12
    for words, n in {
        "state=dead": 1,
        "state=leased": 1,
        "state=delayed": 1,
        "tier=priority": 1,
        "older=3600": 0,
    }.items():
        assert len(rows(page.get(f"/jobs?{words}").text)) == n, words
    assert "No job is like that" in page.get("/jobs?older=3600").text
    assert rows(page.get("/jobs?pool=org/mistral:7b").text) == []


def test_a_filter_that_makes_no_sense_is_refused_in_words(page: Page) -> None:
    for words in ("state=lost", "older=soon", "older=nan", "younger=-1", "after=nowhere"):
        assert page.get(f"/jobs?{words}").status_code == 400, words
    for words in ("pool=nothing", "batch=batch_nothing"):
        assert page.get(f"/jobs?{words}").status_code == 404, words


def test_pages_lead_on_and_back(page: Page) -> None:
    page.ask(lambda stores: _more(stores, 60))
    first = page.get("/jobs?pool=llama&state=queued").text
    (following,) = re.findall(r'href="([^"]+)" rel="next"', first)
    second = page.get(following.replace("&amp;", "&")).text
    assert len(rows(first)) == 50
    assert len(rows(second)) == 24
    assert not set(rows(first)) & set(rows(second))
    assert "First page" in second


def test_an_id_leads_to_its_job(page: Page) -> None:
    known = one(page, "dead")
    assert page.get(f"/jobs?id={known.id}").headers["Location"].endswith(f"/jobs/{known.id}")
    for unknown in ("job_nothing", known.id[:-1] + "0", "x"):
        assert "no job with this id" in page.get(f"/jobs?id={unknown}").text


def test_a_dead_job_says_why_and_what_happened_to_it(page: Page) -> None:
    dead = one(page, "dead")
    text = page.get(f"/jobs/{dead.id}").text
    for words in ("Why it is dead", "backend_unreachable", "It does not answer.", "Attempt 1 on b1", "Settled: dead"):
        assert words in text
    assert "Hello" not in text, "what was asked is hidden"


def test_a_job_that_waits_says_for_what(page: Page) -> None:
    last = found(page, "queued", "ann")[-1]
    text = page.get(f"/jobs/{last.id}").text
    for words in ("Why it waits", "in the tier priority", "11 jobs of its own tenant", "Gate to default"):
        assert words in text
    page.ask(lambda stores: _pause(stores, "ann"))
    assert "Its tenant is paused here." in page.get(f"/jobs/{last.id}").text


def test_each_state_has_its_page(page: Page) -> None:
    for each in ("queued", "delayed", "leased", "succeeded"):
        answer = page.get(f"/jobs/{one(page, each).id}")
        assert answer.status_code == 200
        assert "Timeline" in answer.text
        assert ("Why it waits" in answer.text) == (each in ("queued", "delayed"))


def test_the_error_of_a_backend_is_shown_cut_and_escaped(page: Page) -> None:
    page.ask(lambda stores: _fail(stores, b"<script>" + b"x" * 5000))
    text = page.get(f"/jobs/{one(page, 'failed').id}").text
    assert "&lt;script&gt;xxx" in text
    assert text.count("x" * 2040) == 1
    assert "x" * 2049 not in text


def test_requests_and_results_are_shown_only_to_who_asks_and_the_audit_says_who(page: Page) -> None:
    done = one(page, "succeeded")
    assert "Hello" not in page.get(f"/act/job.reveal?job={done.id}").text, "asking is not yet showing"
    olga = page.as_("olga")
    shown = olga.act("job.reveal", job=done.id)
    assert "&lt;b&gt;Hello&lt;/b&gt;" in shown.text
    assert shown.headers["Cache-Control"] == "no-store"
    entry = page.get("/audit?act=job.reveal").text
    assert "olga" in entry
    assert done.id in entry
    assert "Hello" not in entry, "the audit does not keep what was shown"


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b'{"a": "\\ud800"}', b"[" * 100_000, b'"' + b"\xc3\xa4" * 200_000 + b'"']
)
def test_whatever_a_job_holds_can_be_shown(page: Page, body: bytes) -> None:
    page.ask(lambda stores: _fail(stores, body))
    job_id = one(page, "failed").id
    assert page.get(f"/jobs/{job_id}").status_code == 200
    assert page.act("job.reveal", job=job_id).status_code == 200


def test_what_is_shown_is_cut(page: Page) -> None:
    page.ask(lambda stores: _fail(stores, b"y" * 100_000))
    text = page.act("job.reveal", job=one(page, "failed").id).text
    assert text.count("y") < acts.SHOWN_MOST + 1000
    assert "the rest is not shown" in text


def test_a_job_is_cancelled(page: Page) -> None:
    waiting, leased = one(page, "queued"), one(page, "leased")
    for each in (waiting, leased):
        assert page.act("job.cancel", job=each.id).status_code == 303
        assert state(page, each.id) == "cancelled"
        assert page.act("job.cancel", job=each.id).status_code == 409


@pytest.mark.parametrize("was", ["queued", "delayed", "leased"])
def test_of_two_who_cancel_a_job_at_once_one_has_done_it(page: Page, was: str) -> None:
    params = {"job": one(page, was).id}
    entries = together(page, "job.cancel", params, params)
    assert {entry.outcome for entry in entries} == {"done", "illegal_transition"}
    assert is_true(entries, {"state": was}, {"state": "cancelled"})


def test_a_dead_job_is_requeued(page: Page) -> None:
    dead = one(page, "dead")
    assert page.act("job.requeue", job=dead.id).status_code == 303
    assert state(page, dead.id) == "queued"
    assert page.act("job.requeue", job=dead.id).status_code == 409


def test_a_job_moves_to_another_tier_and_pool(page: Page) -> None:
    moved = one(page, "queued", "ann")
    assert page.act("job.move", {"to": "tier batch"}, job=moved.id).status_code == 303
    assert page.act("job.move", {"to": "pool org/mistral:7b"}, job=moved.id).status_code == 303
    now = page.ask(lambda stores: stores.queue.inspect.job(moved.id))
    assert (now.pool, now.tier, now.created_at_ms) == ("org/mistral:7b", "batch", moved.created_at_ms)
    assert "org/mistral:7b" in page.get(f"/jobs/{moved.id}").text
    assert page.act("job.move", {"to": "pool nowhere"}, job=moved.id).status_code == 400
    assert page.act("job.move", {"to": "tier batch"}, job=one(page, "dead").id).status_code == 409


@pytest.mark.parametrize("bounds", [{}, {"DEAD_MOST": 10, "DEAD_STEP": 5}])
def test_all_dead_jobs_are_requeued_in_bounded_steps(
    page: Page, bounds: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in bounds.items():
        monkeypatch.setattr(acts, name, most)
    page.ask(lambda stores: _die(stores, {"cho": 15, "dee": 9}))
    page.act("jobs.requeue_dead", pool="llama", tenant="cho")
    assert len(found(page, "dead", "cho")) == (5 if bounds else 0)
    assert len(found(page, "dead", "dee")) == 9
    for _ in range(4):
        page.act("jobs.requeue_dead", pool="llama")
    assert found(page, "dead") == []
    assert len(found(page, "queued", "dee")) == 9
    assert page.act("jobs.requeue_dead", pool="llama").status_code == 409


def test_a_viewer_is_offered_nothing_and_can_do_nothing(page: Page) -> None:
    dead, vera = one(page, "dead"), page.as_("vera")
    for path in (f"/jobs/{dead.id}", "/jobs", "/jobs?pool=llama&state=dead", "/queues"):
        text = vera.get(path).text
        assert "/act/" not in text
        assert "Rebalance these" not in text
    for name in ("job.requeue", "job.cancel", "job.move", "job.reveal"):
        assert vera.act(name, job=dead.id).status_code == 403
        assert vera.post(f"/act/{name}", {"param.job": dead.id}).status_code == 403
    assert vera.act("jobs.requeue_dead", pool="llama").status_code == 403
    assert state(page, dead.id) == "failed"


def test_who_may_see_some_tenants_finds_no_others(page: Page) -> None:
    """Neither in lists nor by an id."""
    otto, hers, his = page.as_("otto"), one(page, "queued", "ann"), one(page, "delayed", "bob")
    assert otto.get(f"/jobs/{hers.id}").status_code == 200
    assert his.id not in otto.get("/jobs").text
    for path in (f"/jobs/{his.id}", "/jobs?tenant=bob"):
        assert otto.get(path).status_code == 404
    assert "no job with this id" in otto.get(f"/jobs?id={his.id}").text
    assert "bob" not in otto.get("/queues").text
    for name in ("job.cancel", "job.requeue", "job.reveal"):
        assert otto.act(name, job=his.id).status_code == 404
        assert otto.post(f"/act/{name}", {"param.job": his.id}).status_code == 404
    for id_ in (hers.id, his.id):  # its place among others' is not theirs to change
        assert otto.act("job.move", job=id_).status_code == 403
    for params in ({"pool": "llama"}, {"pool": "llama", "tenant": "bob"}):
        assert otto.act("jobs.requeue_dead", **params).status_code == 404
    assert otto.act("jobs.requeue_dead", pool="llama", tenant="ann").status_code == 303


def test_the_lines_of_a_pool_are_shown_by_tier(page: Page) -> None:
    text = page.get("/queues").text
    assert re.findall(r'<tr id="line-([\w-]+)">', text) == ["priority-bob", "default-ann", "default-bob"]
    assert "12 jobs wait" not in text
    assert "13 jobs wait" in text
    page.ask(lambda stores: _pause(stores, "ann"))
    one_tier = page.get("/queues?pool=llama&tier=default").text
    assert "tenant paused" in one_tier
    assert "priority-bob" not in one_tier
    assert page.get("/queues?pool=nothing").status_code == 404
    assert page.get("/queues?tier=nothing").status_code == 404


async def _more(stores: Stores, n: int) -> None:
    """So many more wait."""
    await submit_all(stores.queue, await stores.queue.pools.by_name("llama"), [job("cho")] * n)


async def _pause(stores: Stores, tenant: str) -> None:
    await stores.queue.pause(await stores.queue.pools.by_name("llama"), tenant=tenant)


async def _take(stores: Stores, tenants: dict[str, int]) -> tuple[Pool, list[Lease]]:
    """New jobs of these tenants, one attempt each, as they run."""
    pool = await stores.queue.pools.by_name("llama")
    await set_gate(stores.queue, pool, "b1", 1000)
    jobs = [job(tenant, "priority", max_attempts=1) for tenant, n in tenants.items() for _ in range(n)]
    ids = await submit_all(stores.queue, pool, jobs)
    leases = await take(stores.queue, pool, len(ids) + 1)
    for lease in leases:
        if lease.id not in ids:
            await stores.queue.release(pool, lease)
    return pool, [lease for lease in leases if lease.id in ids]


async def _die(stores: Stores, tenants: dict[str, int]) -> None:
    """So many jobs of these tenants are dead."""
    pool, leases = await _take(stores, tenants)
    for lease in leases:
        await stores.queue.retry(pool, lease, REFUSED, delay_ms=0)
    assert len(leases) == sum(tenants.values())


async def _fail(stores: Stores, said: bytes) -> None:
    """A backend refuses a job of Cho's."""
    pool, (lease,) = await _take(stores, {"cho": 1})
    await stores.queue.settle(pool, lease, "failed", status=400, result=said, error=JobError("bad", "No.", 400))
