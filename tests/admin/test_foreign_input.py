"""What somebody makes up in an address or a form: numbers that are none, places that no list has, ids of others."""

from __future__ import annotations

import re

import pytest

from admin_ui.actions import ACTS
from admin_ui.bridge import Stores
from admin_ui.numerals import decimal, whole
from fairlane.model import Policy
from fairlane.rebalance import Filter, Plan, Target
from fairlane.search import JobFilter, search
from fairlane.webhooks.delivery import NewDelivery
from fairlane.webhooks.outbox import Outbox
from tests.admin.page import Page
from tests.admin.test_batches_page import a_batch

LONG = "9" * 4400  # int() takes 4,300 digits
NUMBERS = (LONG, f"-{LONG}", f"0.{LONG}", "9" * 30, "-1", "1e999", "nan", "inf", "٣", "²", "1_0")
NUMERIC = (
    "/rebalance?after={}",
    "/rebalance/new?pool=llama&older_than_s={0}&most={0}",
    "/jobs?older={}",
    "/jobs?younger={}",
    "/jobs?after={}",
    "/jobs?after={code}.queued:default.{0}.{0}.1",
    "/jobs?batch={batch}&after={code}.batch...{0}",
    "/jobs?batch={batch}&after={code}.dead...{0}",
    "/jobs?batch={batch}&after={code}.batch.-.-.{0}",
    "/jobs?after={code}.queued:default...{0}",
    "/jobs?state=leased&after={code}.leases...{0}",
    "/jobs?state=dead&after={code}.dead...{0}",
    "/jobs?state=delayed&after={code}.due...{0}",
    "/tenants?pool=llama&after=default:{}",
    "/tenants?after={}",
    "/tenants/ann/limits?weight={}",
    "/tenants/ann/limits?max_waiting={}",
    "/tenants/ann/limits?requests_per_minute={}",
    "/settings/llama?change=gates&kv_most={0}&slow_ms={0}",
    "/webhooks?after=whe_{}",
    "/webhooks/deliveries?after={}",
    "/webhooks/deliveries?after={}.msg_1",
    "/batches?after=batch_{}",
    "/audit?before={}",
    "/audit?before={}-{}",
    "/audit.json?before=1-{}",
    "/audit/{}-1",
    "/trend/llama?span={}",
    "/users?after={}",
)
FILLED_IN = ("older_than_s", "most", "slots", "hours", "gamma", "theta", "weight", "max_waiting", "kv_most")
BEYOND = ("18446744073709551616-0", f"{'9' * 30}-1", f"1-{'9' * 30}", "0-0", "1-18446744073709551616")
_NOISE = re.compile(r'content="[^"]*"|value="[^"]*"')


@pytest.mark.parametrize("text", NUMBERS)
def test_what_is_no_number_of_a_bounded_length_is_none(text: str) -> None:
    assert whole(text, 10**15) is None
    assert decimal(text, 1e9) is None


def test_a_number_is_read_up_to_its_most() -> None:
    assert [whole(text, 10) for text in ("0", "7", "10", "11", "")] == [0, 7, 10, None, None]
    assert [decimal(text, 10) for text in ("0", "0.5", "10", "10.1", "")] == [0, 0.5, 10, None, None]


@pytest.mark.parametrize("address", NUMERIC)
def test_no_number_in_an_address_breaks_a_view(page: Page, address: str) -> None:
    batch = a_batch(page).id if "{batch}" in address else ""
    code = page.ask(lambda stores: stores.queue.pools.by_name("llama")).code
    for text in (*NUMBERS, "1", "job_x", "1 job_x"):
        answer = page.get(address.format(text, text, batch=batch, code=code))
        assert answer.status_code < 500, text[:40]


def test_no_number_breaks_an_act(page: Page) -> None:
    about = {"pool": "llama", "tenant": "ann", "tier": "default", "backend": "b1", "user": "vera", "url": "http://b9:1"}
    target = {"to": "tier", "to_tier": "batch"}
    for name in sorted(ACTS):
        for text in (LONG, "9" * 30, "²"):
            params = about | {"version": text, "endpoint_id": text, "delivery": text, "run": text, "batch": text}
            values = target | dict.fromkeys(FILLED_IN, text)
            assert page.get(f"/act/{name}", query_string=params | values).status_code < 500, name
            sent = {f"param.{key}": value for key, value in params.items()} | values
            assert page.post(f"/act/{name}", sent | {"typed": "no"}).status_code < 500, name


@pytest.mark.parametrize("field", ["older_than_s", "most"])
def test_a_run_takes_whole_numbers_only(page: Page, field: str) -> None:
    plan = {"pool": "llama", "to": "tier", "to_tier": "batch"}
    for text in NUMBERS:
        assert page.post("/act/run.create", plan | {field: text}).status_code == 400, text[:40]
    assert page.post("/act/run.create", plan | {field: "1,000"}).status_code == 303


@pytest.mark.parametrize("id_", BEYOND)
def test_a_place_beyond_all_of_the_audit_has_nothing(page: Page, id_: str) -> None:
    assert page.get(f"/audit?before={id_}").status_code == 200
    assert page.get(f"/audit.json?before={id_}").json == {"entries": [], "following": None}
    assert page.get(f"/audit/{id_}").status_code == 404
    assert page.get("/audit/1-18446744073709551615").status_code == 404


def ids_of_bobs(page: Page) -> dict[str, str]:
    """A thing of each kind that is Bob's, by the address that it is looked at or acted on with."""

    async def make(stores: Stores) -> tuple[str, str, str, str]:
        endpoint, _ = await stores.webhooks.create("bob", "https://example.com/hook", ["job.succeeded"])
        new = NewDelivery("msg_b1", "bob", endpoint.id, endpoint.id, None, "job.succeeded", "job_1", b"{}")
        await Outbox(stores.queue.store).add([new])
        run = await stores.runs.create(Plan(Filter("llama", tenant="bob"), Target(tier="batch")), "root")
        found = await search(stores.queue, JobFilter(tenant="bob"))
        return endpoint.id, new.id, run.id, found.jobs[0].id

    endpoint, delivery, run, job = page.ask(make)
    batch = a_batch(page, "bob").id
    acts = ("webhook.recover", "webhook_endpoint.enable", "webhook_endpoint.disable", "webhook_endpoint.test")
    return {
        **{f"/act/{act}?endpoint_id={{}}": endpoint for act in acts},
        **{f"/act/webhook.{act}?delivery={{}}": delivery for act in ("resend", "reveal")},
        "/webhooks/deliveries/{}": delivery,
        "/webhooks/deliveries?to={}": endpoint,
        "/rebalance/{}": run,
        "/rebalance/{}.json": run,
        "/batches/{}": batch,
        "/jobs?batch={}": batch,
        "/act/batch.cancel?batch={}": batch,
        "/jobs/{}": job,
    }


def test_a_foreign_id_is_answered_as_one_that_is_not_there(page: Page) -> None:
    otto = page.as_("otto")
    for address, id_ in ids_of_bobs(page).items():
        other = id_[:-1] + ("2" if id_[-1] != "2" else "3")
        foreign, nobody = otto.get(address.format(id_)), otto.get(address.format(other))
        assert page.get(address.format(id_)).status_code == 200, f"{address}: it is there"
        assert (foreign.status_code, nobody.status_code) == (404, 404), address
        said, said_of_none = foreign.text.replace(id_, "…"), nobody.text.replace(other, "…")
        assert _NOISE.sub("", said) == _NOISE.sub("", said_of_none), address


def test_no_pools_name_hides_a_page_of_another(page: Page) -> None:
    for name in ("x", "x/export.json", "new"):
        page.ask(lambda stores, name=name: stores.queue.pools.open(name, Policy()))
        assert name in page.get(f"/settings/{name}").text
        kept = page.get(f"/settings.json/{name}").json
        assert kept is not None
        assert kept["pool"] == name
