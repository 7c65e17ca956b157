"""Who gets in, as what, and what nobody gets by any way: for every view and every act that there is."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest
from argon2 import PasswordHasher
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from admin_ui import access
from admin_ui.acting import ACTS, Act, Asked, Done, Proposal, act
from admin_ui.app import create_app
from admin_ui.bridge import Bridge, Stores
from fairlane.accounts import Caller, passwords
from fairlane.accounts.throttle import ADDRESS, NAME
from fairlane.accounts.users import ROLES
from fairlane.audit import Entry
from fairlane.files import Files
from fairlane.rebalance import Filter, Plan, Target
from tests.admin.page import Page

GOOD = "a long enough password"
FORMS = "application/x-www-form-urlencoded"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Passwords are hashed as always, with less work."""
    monkeypatch.setattr(passwords, "_hasher", cache(lambda: PasswordHasher(time_cost=1, memory_cost=64)))
    passwords._nobodys.cache_clear()
    yield
    passwords._nobodys.cache_clear()


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Acts that only note whom they were done to: `trial.all`, `trial.ann`, `trial.bob`, for operators."""
    done: list[str] = []
    for whose, tenant in {"all": None, "ann": "ann", "bob": "bob"}.items():

        class Trial(Act):
            """Notes whom it was done to."""

            def __init__(self, whose: str = whose, tenant: str | None = tenant) -> None:
                self._whose, self._tenant = whose, tenant

            async def propose(self, stores: Stores, asked: Asked) -> Proposal:
                return Proposal("Try it", "Try", f"things of {self._whose}", self._tenant, "/users")

            async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
                done.append(self._whose)
                return Done("Tried.")

        act(f"trial.{whose}", role="operator", scoped=True)(Trial)
    yield done
    for whose in ("all", "ann", "bob"):
        del ACTS[f"trial.{whose}"]


def views(page: Page) -> list[Rule]:
    return [rule for rule in page.app.url_map.iter_rules() if rule.endpoint != "static"]


def path_of(rule: Rule) -> str:
    """Some address that the rule stands for."""
    return re.sub(r"<[^>]+>", "x", rule.rule)


def entries(page: Page, **wanted: str) -> tuple[Entry, ...]:
    return page.ask(lambda stores: stores.audit.read(**wanted)).entries  # pyright: ignore[reportArgumentType]


def sign_in(page: Page, name: str, password: str, **more: str) -> TestResponse:
    token = page.token()
    return page.client.post("/login", data={"csrf_token": token, "name": name, "password": password, **more})


def with_password(page: Page, name: str = "vera", password: str = GOOD) -> None:
    page.ask(lambda stores: stores.users.set_password(name, password))


def is_in(page: Page) -> bool:
    answer = page.get("/me")
    assert answer.status_code in {200, 303}
    return answer.status_code == 200


# --- every view -------------------------------------------------------------------------------------------------------


def test_every_view_says_what_it_needs(page: Page) -> None:
    forgotten = [r.rule for r in views(page) if access.right_of(page.app.view_functions[r.endpoint]) is None]
    assert forgotten == []


def test_only_the_way_in_is_open_to_anyone(page: Page) -> None:
    open_ = {r.rule for r in views(page) if access.right_of(page.app.view_functions[r.endpoint]) == "anyone"}
    assert open_ == {"/login", "/login/once", "/logout"}


def test_a_view_that_does_not_say_what_it_needs_is_refused(page: Page) -> None:
    app = create_app(page.bridge)
    app.add_url_rule("/forgotten", "forgotten", lambda: "shown to all")
    answer = Page(app, page.bridge, "root").get("/forgotten")
    assert (answer.status_code, "shown to all" in answer.text) == (500, False)


def test_nobody_sees_a_view_without_a_login(page: Page) -> None:
    nobody = page.as_(None)
    for rule in views(page):
        if access.right_of(page.app.view_functions[rule.endpoint]) == "anyone" or "GET" not in (rule.methods or ()):
            continue
        answer = nobody.get(path_of(rule), headers={"Accept": "text/html"})
        assert (answer.status_code, answer.location.split("?")[0]) == (303, "/login"), rule
        assert nobody.get(path_of(rule), headers={"Accept": "application/json"}).status_code == 401
        part = nobody.get(path_of(rule), headers={"HX-Request": "true", "HX-Current-URL": "http://localhost/jobs"})
        assert (part.status_code, part.headers["HX-Redirect"]) == (401, "/login?next=/jobs")


def test_nothing_is_written_by_a_get(page: Page) -> None:
    writes = [rule.rule for rule in views(page) if {"POST", "PUT", "PATCH", "DELETE"} & (rule.methods or set())]
    assert sorted(writes) == ["/act/<name>", "/login", "/login/once", "/logout", "/me/password"]


def test_every_write_asks_for_a_token_against_forged_requests(page: Page) -> None:
    for rule in views(page):
        for method in {"POST", "PUT", "PATCH", "DELETE"} & (rule.methods or set()):
            for data in ({}, {"csrf_token": "x"}, {"csrf_token": page.as_("olga").token()}):
                answer = page.client.open(path_of(rule), method=method, data=data)
                assert answer.status_code == 400, rule


def test_every_write_but_the_way_in_and_out_asks_for_a_login(page: Page) -> None:
    nobody = page.as_(None)
    for rule in views(page):
        if "POST" in (rule.methods or ()) and not rule.rule.startswith("/log"):
            assert nobody.post(path_of(rule)).status_code == 401, rule


def test_a_view_is_shown_to_its_role_and_those_above(page: Page) -> None:
    for name in ("vera", "olga", "root"):
        answer = page.as_(name).get("/users")
        assert answer.status_code == (200 if name == "root" else 403)


# --- every act --------------------------------------------------------------------------------------------------------


def acts() -> list[str]:
    return sorted(ACTS)


def test_there_are_acts() -> None:
    assert len(acts()) >= 5
    assert all(each.role in ROLES[1:] for each in ACTS.values()), "a viewer changes nothing"


def test_no_act_is_done_without_a_token(page: Page, trial: list[str]) -> None:
    for name in acts():
        for content_type in (FORMS, "text/plain", "application/json"):
            assert page.client.post(f"/act/{name}", data=b"", content_type=content_type).status_code == 400, name
    assert trial == []
    assert entries(page, act="trial.") == ()


def test_no_act_is_done_without_a_login(page: Page, trial: list[str]) -> None:
    nobody = page.as_(None)
    for name in acts():
        assert nobody.get(f"/act/{name}").status_code == 303, name
        assert nobody.post(f"/act/{name}").status_code == 401, name
    assert trial == []


def test_no_act_is_done_in_a_role_below_its_own(page: Page, trial: list[str]) -> None:
    people = {"viewer": page.as_("vera"), "operator": page.as_("olga")}
    for name in acts():
        for role, person in people.items():
            if ROLES.index(role) < ROLES.index(ACTS[name].role):
                assert person.get(f"/act/{name}").status_code == 403, (name, role)
                assert person.post(f"/act/{name}").status_code == 403, (name, role)
    assert trial == []


def test_no_act_of_a_users_is_offered_to_a_role_below_its_own(page: Page) -> None:
    assert "/act/user.disable" in page.get("/users").text
    assert "/act/" not in page.as_("vera").get("/me").text


def test_who_is_there_for_one_tenant_acts_on_that_one_only(page: Page, trial: list[str]) -> None:
    """otto is there for Ann: neither Bob's things nor what concerns all, whatever the act."""
    otto = page.as_("otto")
    assert otto.act("trial.ann").status_code == 303
    for name in ("trial.bob", "trial.all"):
        assert otto.get(f"/act/{name}").status_code == 404
        assert otto.post(f"/act/{name}").status_code == 404
    assert trial == ["ann"]
    assert {entry.tenant for entry in entries(page, act="trial.")} == {"ann"}


def test_who_is_there_for_some_tenants_changes_nothings_place_among_others(page: Page) -> None:
    """Not even of their own tenants': they could take the turns of everybody else."""
    own = {name for name, act in ACTS.items() if act.scoped}
    otto = page.as_("otto")
    assert own == {
        "job.cancel", "job.requeue", "job.reveal", "jobs.requeue_dead", "batch.cancel", "webhook.resend",
        "webhook.reveal", "webhook.recover", "webhook_endpoint.enable", "webhook_endpoint.disable",
        "webhook_endpoint.test",
    }  # fmt: skip
    for name in ACTS.keys() - own:
        assert otto.get(f"/act/{name}").status_code == 403, name
        assert otto.post(f"/act/{name}").status_code == 403, name


def test_no_act_that_there_is_goes_beyond_the_tenants_of_a_viewer(page: Page) -> None:
    """Whatever act, whatever it is asked to be about: for otto, who is there for Ann, nothing changes of Bob's, nor of
    what concerns all. For olga, who is there for all, it does: the parameters are those that the acts look for."""
    about, otto, olga = page.ask(things_of_bob), page.as_("otto"), page.as_("olga")
    operators = [name for name in acts() if ACTS[name].role == "operator"]
    before = page.ask(state)
    token = {"csrf_token": otto.token()}
    for name, params in product(operators, about):
        answer = otto.client.post(f"/act/{name}", data=token | params | VALUES)
        assert 400 <= answer.status_code < 500, (name, params, answer.status_code)
    assert page.ask(state) == before
    token = {"csrf_token": olga.token()}
    done = {
        name
        for name in operators
        if any(_is_done(olga.client.post(f"/act/{name}", data=token | params | VALUES)) for params in about)
    }
    assert len(done) > len(operators) / 2, set(operators) - done


VALUES = {"tier": "flex", "to": "flex", "to_tier": "flex", "target": "tier", "act": "tier", "weight": "2"}


def _is_done(answer: TestResponse) -> bool:
    return answer.status_code == 303 or 'class="shown"' in answer.text


def test_who_names_a_tenant_of_theirs_does_nothing_to_anothers_things(page: Page) -> None:
    """Bob's job, said to be Ann's."""
    (everything, *_), otto = page.ask(things_of_bob), page.as_("otto")
    before = page.ask(lambda stores: _bobs(stores, everything))
    token = {"csrf_token": otto.token()}
    for name in acts():
        for more in ({"param.tenant": "ann"}, {"param.tenant": "ann", "tenant": "bob"}):
            otto.client.post(f"/act/{name}", data=token | everything | VALUES | more)
    assert page.ask(lambda stores: _bobs(stores, everything)) == before
    told = entries(page, who="otto")
    assert {entry.tenant for entry in told if not entry.act.startswith("login.")} <= {"ann"}


def test_who_is_there_for_one_tenant_is_shown_nothing_of_another(page: Page) -> None:
    """Every page, asked for Bob's things, by otto, who is there for Ann. For root it is there."""
    (everything, *_), otto = page.ask(things_of_bob), page.as_("otto")
    known = {name.removeprefix("param."): value for name, value in everything.items()}
    named = {"name": "job.cancel", "entry_id": entries(page)[0].id} | known
    named |= {
        "job_id": known["job"],
        "delivery_id": known["delivery"],
        "run_id": known["run"],
        "batch_id": known["batch"],
    }
    told, shown_to_root = list[str](), 0
    for rule in views(page):
        if "GET" not in (rule.methods or ()) or rule.endpoint.startswith("login."):
            continue
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda match: named.get(match[1], "x"), rule.rule)
        whole = page.get(path)
        assert whole.status_code < 500, path
        shown_to_root += bool(re.search(r"\bbob\b", whole.text))
        for query in ("", f"?tenant=bob&pool=llama&id={known['job']}"):
            answer = otto.get(path + query)
            assert answer.status_code < 500, path + query
            # what was asked for is said again
            shown = re.sub(r"tenant=bob|value=\"bob\"", "", answer.text.replace(path, ""))
            told += [f"{path}{query}: {found}" for found in re.findall(r".{30}\bbob\b.{30}", shown)]
    assert told == []
    assert shown_to_root >= 8


async def _bobs(stores: Stores, about: dict[str, str]) -> list[object]:
    """What there is of Bob's."""
    pool = await stores.queue.pools.by_name("llama")
    return [
        [await stores.queue.inspect.line(pool, tier, "bob") for tier in pool.policy.tiers],
        await stores.queue.inspect.tenant(pool, "bob"),
        await stores.accounts.find("bob"),
        await stores.webhooks.list("bob"),
        await stores.deliveries.get("bob", about["param.delivery"]),
        await stores.batches.get("bob", about["param.batch"]),
        (await stores.runs.get(about["param.run"])).state,
    ]


async def things_of_bob(stores: Stores) -> list[dict[str, str]]:
    """Parameters of acts: all that names something of Bob's at once, then what concerns his pool."""
    pool = await stores.queue.pools.by_name("llama")
    waiting, _ = await stores.queue.inspect.line(pool, "default", "bob")
    endpoint, _ = await stores.webhooks.create("bob", "https://hooks.example/bob")
    delivery = await stores.webhooks.test("bob", endpoint.id)
    run = await stores.runs.create(Plan(Filter("llama", tenant="bob"), Target(tier="flex")), "root")
    files = Files(stores.queue, stores.settings.files_at)
    file = await files.put("bob", "bobs.jsonl", "batch", _pieces(), 1000)
    batch = await stores.batches.create(Caller("bob"), file.id, "/v1/chat/completions")
    everything = {
        "pool": "llama", "tenant": "bob", "tier": "default", "backend": "b1", "job": waiting[0].id,
        "delivery": delivery.id, "endpoint_id": endpoint.id, "run": run.id, "batch": batch.id, "dispatcher": "d1",
        "version": "1",
    }  # fmt: skip
    in_the_pool = {name: value for name, value in everything.items() if name in {"pool", "tier", "backend"}}
    about = [everything, in_the_pool, {"pool": "llama", "valve_ms": "5000"}]
    return [{f"param.{name}": value for name, value in each.items()} for each in about]


async def _pieces() -> AsyncIterator[bytes]:
    yield b'{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "llama"}}\n'


async def state(stores: Stores) -> dict[bytes, bytes]:
    """All that Redis holds, but for what tells who looks."""
    client: Any = stores.queue.store.raw
    names: list[bytes] = await client.keys(f"{stores.queue.store.namespace}:*")
    looking = re.compile(rb":(audit|audit_ends|(sitting|user|once|tries):.*)$")
    return {name: await client.dump(name) for name in names if not looking.search(name)}


def test_an_act_is_told_before_it_is_done_and_with_its_outcome(page: Page, trial: list[str]) -> None:
    page.as_("olga").act("trial.bob")
    (entry,) = entries(page, act="trial.bob")
    assert (entry.who, entry.role, entry.target, entry.tenant) == ("olga", "operator", "things of bob", "bob")
    assert (entry.outcome, entry.words, entry.address) == ("done", "Tried.", "127.0.0.1")
    assert trial == ["bob"]


# --- sittings ---------------------------------------------------------------------------------------------------------


def test_a_password_lets_in_and_leads_to_the_page_that_was_asked_for(page: Page) -> None:
    with_password(page)
    nobody = page.as_(None)
    to = nobody.get("/audit?who=olga", headers={"Accept": "text/html"}).location
    form = nobody.get(to)
    assert 'value="/audit?who=olga"' in form.text
    answer = sign_in(nobody, "vera", GOOD, next="/audit?who=olga")
    assert (answer.status_code, answer.location) == (303, "/audit?who=olga")
    assert is_in(nobody)
    assert entries(page, act="login.password")[0].outcome == "done"


@pytest.mark.parametrize(
    "next_",
    [
        "https://evil.example/", "//evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)",
        "/\t/evil.example", "\t//evil.example", "///evil.example", "http:evil.example", "/\r\nSet-Cookie: a=b",
        "@evil.example", ".evil.example", "/%0d%0aX: y\n", "",
    ],
)  # fmt: skip
def test_a_login_leads_to_no_other_site(page: Page, next_: str) -> None:
    with_password(page)
    answer = sign_in(page.as_(None), "vera", GOOD, next=next_)
    assert (answer.status_code, answer.location) == (303, "/")
    assert "a=b" not in str(answer.headers)


def test_a_wrong_password_and_an_unknown_name_are_told_alike(page: Page) -> None:
    with_password(page)
    nobody = page.as_(None)
    answers = [sign_in(nobody, name, "a wrong password") for name in ("vera", "olga", "nobody")]
    texts = {re.sub(r'value="[^"]*"|vera|olga|nobody', "", answer.text) for answer in answers}
    assert (len(texts), {answer.status_code for answer in answers}) == (1, {403})
    assert [entry.who for entry in entries(page, act="login.password")] == ["olga", "vera"]


def test_an_unknown_name_costs_as_much_work(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    with_password(page)
    hasher, looked = passwords._hasher(), list[str]()

    class Watched:
        def hash(self, password: bytes) -> str:
            return hasher.hash(password)

        def verify(self, stored: str, password: bytes) -> bool:
            looked.append(stored.split("$")[3])
            return hasher.verify(stored, password)

    monkeypatch.setattr(passwords, "_hasher", lambda: Watched())
    for name in ("vera", "olga", "nobody", "no name at all"):
        sign_in(page.as_(None), name, "a wrong password")
    assert len(looked) == 4
    assert len(set(looked)) == 1, "the same parameters"


def test_too_many_tries_must_wait_even_with_the_right_password(page: Page) -> None:
    with_password(page)
    nobody = page.as_(None)
    for _ in range(NAME.free):
        assert sign_in(nobody, "vera", "a wrong password").status_code == 403
    answer = sign_in(nobody, "vera", GOOD)
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) >= 1
    assert "Too many tries" in answer.text


def test_who_asks_from_another_address_by_a_header_is_not_believed(page: Page) -> None:
    nobody = page.as_(None)
    statuses = [
        page_of(nobody, f"guess{n}", {"X-Forwarded-For": f"192.0.2.{n}", "Forwarded": f"for=192.0.2.{n}"}).status_code
        for n in range(ADDRESS.free + 1)
    ]
    assert statuses[-1] == 429


def page_of(page: Page, name: str, headers: dict[str, str]) -> TestResponse:
    return page.client.post("/login", data={"csrf_token": page.token(), "name": name, "password": "x"}, headers=headers)


def test_a_new_cookie_is_given_at_login_and_taken_at_logout(page: Page) -> None:
    with_password(page)
    person = page.as_(None)
    before = person.token()
    sign_in(person, "vera", GOOD)
    assert person.token() != before
    (stolen,) = person.client._cookies.values()  # type: ignore[attr-defined]  # what somebody else may have a copy of
    assert is_in(person)
    assert person.post("/logout").location == "/login"
    assert not is_in(person)
    thief = page.as_(None)
    thief.client.set_cookie(stolen.key, stolen.value)
    assert not is_in(thief)


def test_what_ends_a_users_sittings_ends_them_in_every_process(page: Page, settings: Any) -> None:
    with Bridge(settings, steps=False) as other:
        there = Page(create_app(other), other, "vera")
        assert is_in(there)
        page.act("user.disable", user="vera")
        assert not is_in(there)


def test_within_a_second_who_only_looks_is_out_and_who_acts_at_once(page: Page) -> None:
    olga = page.as_("olga")
    assert olga.client.get("/me").status_code == 200
    page.ask(lambda stores: stores.users.disable("olga"))
    assert olga.client.post("/act/user.set", data={"csrf_token": olga.token()}).status_code == 401
    deadline = time.monotonic() + 1.5
    while olga.client.get("/me").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_changed_role_holds_from_the_next_act_on(page: Page, trial: list[str]) -> None:
    olga = page.as_("olga")
    page.act("user.set", {"role": "viewer", "tenants": ""}, user="olga")
    assert olga.act("trial.all").status_code == 403
    assert trial == []


def test_a_cookie_that_was_tampered_with_or_signed_by_another_is_nobodys(page: Page) -> None:
    person = page.as_("vera")
    (cookie,) = person.client._cookies.values()  # type: ignore[attr-defined]
    forger = create_app(page.bridge, secret_key="guessed")
    forged = forger.session_interface.get_signing_serializer(forger).dumps({"sitting": "x"})  # type: ignore[attr-defined]
    head, _, tail = cookie.value.rpartition(".")
    for value in (forged, head + "." + tail[::-1], "", "x.y.z", cookie.value + "x"):
        person.client.set_cookie(cookie.key, value)
        assert not is_in(person)


def test_a_refresh_of_a_page_does_not_keep_its_viewer_in(page: Page) -> None:
    vera = page.as_("vera")
    seen: list[str | None] = []
    find = page.ask(lambda stores: _self(stores)).users.sittings
    original = find.find

    async def watched(token: str, used_from: str | None) -> Any:
        seen.append(used_from)
        return await original(token, used_from)

    find.find = watched  # type: ignore[method-assign]
    vera.get("/me")
    vera.get("/me", headers={"HX-Request": "true", "HX-Target": "live"})
    assert seen == ["127.0.0.1", None]


async def _self(stores: Stores) -> Stores:
    return stores


# --- one-time logins --------------------------------------------------------------------------------------------------


def test_to_open_a_one_time_address_signs_nobody_in(page: Page) -> None:
    secret = page.ask(lambda stores: stores.users.allow_once("vera"))
    previewer, person = page.as_(None), page.as_(None)
    for _ in range(2):
        assert previewer.get(f"/login/once?secret={secret}").status_code == 200
        assert not is_in(previewer)
    assert person.post("/login/once", {"secret": secret}).status_code == 303
    assert is_in(person)
    again = previewer.post("/login/once", {"secret": secret})
    assert (again.status_code, is_in(previewer)) == (403, False)
    assert secret not in again.text


def test_an_admin_lets_somebody_in_who_then_chooses_a_password(page: Page) -> None:
    answer = page.act("user.create", {"name": "nina", "role": "operator", "tenants": "ann, bob"})
    match = re.search(r"/login/once\?secret=([\w-]+)", answer.text)
    assert match
    assert all(match[1] not in str(entry) for entry in entries(page))
    nina = page.as_(None)
    nina.post("/login/once", {"secret": match[1]})
    assert "ann, bob" in nina.get("/me").text
    assert nina.post("/me/password", {"password": GOOD, "again": GOOD}).status_code == 303
    assert is_in(nina)
    assert sign_in(page.as_(None), "nina", GOOD).status_code == 303


# --- one's own password -----------------------------------------------------------------------------------------------


def test_a_new_password_asks_for_the_old_one_and_ends_the_other_sittings(page: Page) -> None:
    with_password(page)
    here, there = page.as_(None), page.as_(None)
    for person in (here, there):
        sign_in(person, "vera", GOOD)
    new = {"password": "another good one", "again": "another good one"}
    assert here.post("/me/password", {**new, "old": "a wrong password"}).status_code == 400
    assert here.post("/me/password", {**new, "old": GOOD, "again": "x"}).status_code == 400
    assert is_in(there)
    assert here.post("/me/password", {**new, "old": GOOD}).status_code == 303
    assert (is_in(here), is_in(there)) == (True, False)
    told = str(entries(page))
    assert "login.change" in told
    assert all(secret not in told for secret in (GOOD, "another good one"))


# --- the browser ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/login", "/users", "/nowhere", "/static/app.css", "/static/nowhere", "/act/x"])
def test_every_answer_tells_the_browser_to_trust_little(page: Page, path: str) -> None:
    headers = page.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]
    assert "Strict-Transport-Security" not in headers
    if not path.startswith("/static/"):
        assert headers["Cache-Control"] == "no-store"


def test_no_page_has_a_script_or_a_style_within(page: Page) -> None:
    for path in ("/login", "/login/once", "/users", "/me", "/audit", "/act/user.create", "/nowhere"):
        text = page.get(path).text
        assert not re.search(r"<style|<script(?![^>]* src=)|\sstyle=|\son[a-z]+=|javascript:", text), path


def test_the_cookie_is_for_this_page_only(page: Page) -> None:
    cookie = page.as_(None).get("/login").headers["Set-Cookie"]
    assert cookie.startswith("fairlane_80=")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert (
        page.as_(None)
        .get("/login", base_url="http://127.0.0.1:8081")
        .headers["Set-Cookie"]
        .startswith("fairlane_8081=")
    )


def test_behind_a_proxy_what_it_says_is_believed(page: Page) -> None:
    app = create_app(page.bridge, behind_proxy=1)
    client = app.test_client(use_cookies=False)
    headers = {
        "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "queue.example",
        "X-Forwarded-Prefix": "/fairlane",
    }  # fmt: skip
    answer = client.get("/login", headers=headers)
    cookie = answer.headers["Set-Cookie"]
    assert {"Secure", "Path=/fairlane"} <= set(cookie.split("; "))
    assert cookie.startswith("fairlane_443=")
    assert answer.headers["Strict-Transport-Security"].startswith("max-age=")
    assert 'action="/fairlane/login"' in answer.text
    to = client.get("/users", headers={**headers, "Accept": "text/html"}).location
    assert to == "/fairlane/login?next=/fairlane/users"
    headers["Cookie"] = cookie.split(";")[0]
    token = re.search(r'name="csrf_token" value="([^"]+)"', answer.text)
    assert token
    with_password(page)
    data = {"csrf_token": token[1], "name": "vera", "password": GOOD, "next": "/elsewhere"}
    forged = client.post("/login", data=data, headers={**headers, "Referer": "https://evil.example/"})
    assert forged.status_code == 400
    good = client.post("/login", data=data, headers={**headers, "Referer": "https://queue.example/fairlane/login"})
    assert (good.status_code, good.location) == (303, "/fairlane/")
    assert page.ask(lambda stores: stores.users.user("vera")).seen_from == "203.0.113.9"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:99999", "a b", '"><script>', "user@evil", "[::1", "x" * 300, "evil.example/a"],
)
def test_a_hostile_host_header_leads_nowhere(page: Page, host: str) -> None:
    for path in ("/login", "/users"):
        answer = page.as_(None).client.get(path, headers={"Host": host, "Accept": "text/html"})
        assert answer.status_code < 500
        assert host not in answer.text
        assert host not in str(answer.headers)


# --- names of all kinds, and Redis away -------------------------------------------------------------------------------


def test_markup_in_names_is_text_in_the_audit(page: Page) -> None:
    evil = "<img src=x onerror=alert(1)>\"'\x00\u202e{{7*191}}"

    async def write(stores: Stores) -> str:
        facts: dict[str, object] = {evil: evil}
        entry = await stores.audit.begin(
            who=evil, role=evil, address=evil, act=evil, target=evil, tenant=evil, params=facts, after=facts
        )
        await stores.audit.end(entry, outcome=evil, words=evil)
        return entry

    entry = page.ask(write)
    for path in ("/audit", f"/audit/{entry}", f"/audit?who={evil}", f"/audit?target={evil}"):
        text = page.get(path).text
        assert "&lt;img" in text
        assert "<img" not in text
        assert "1337" not in text.replace(entry, "")
    exported = page.get("/audit.json").json
    assert exported
    assert exported["entries"][0]["target"] == evil


def test_who_is_there_for_one_tenant_reads_of_that_one_only(page: Page, trial: list[str]) -> None:
    for name in ("trial.ann", "trial.bob", "trial.all"):
        page.act(name)
    otto = page.as_("otto")
    for text in (otto.get("/audit").text, otto.get("/audit.json").text):
        assert "things of ann" in text
        assert "things of bob" not in text
        assert "things of all" not in text
    hidden = entries(page, act="trial.bob")[0].id
    assert otto.get(f"/audit/{hidden}").status_code == 404
    assert otto.get("/audit?tenant=bob").text.count("things of") == 0


def test_the_audit_is_filtered_paged_and_exported(page: Page, trial: list[str]) -> None:
    for _ in range(60):
        page.ask(lambda stores: stores.audit.begin(who="olga", role="operator", address="::1", act="a.b", target="t"))
    page.act("trial.bob")
    assert page.get("/audit?tenant=bob").text.count('id="entry-') == 1
    first = page.get("/audit?who=olga").text
    assert first.count('id="entry-') == 50
    following = re.search(r'href="([^"]+)" rel="next"', first)
    assert following
    assert page.get(following[1].replace("&amp;", "&")).text.count('id="entry-') == 10
    exported = page.get("/audit.json?act=a.").json
    assert exported
    assert (len(exported["entries"]), exported["following"]) == (60, None)


@pytest.mark.parametrize(
    "path", ["/audit?before=x", "/audit/x", "/audit/1-1", "/users?after=%00", "/audit.json?before=1"]
)
def test_a_place_that_is_none_is_refused_in_words(page: Page, path: str) -> None:
    assert page.get(path).status_code in {200, 400, 404}


def test_an_admin_cannot_lock_themselves_out(page: Page) -> None:
    for name in ("user.disable", "user.set"):
        assert page.act(name, {"role": "viewer"}, user="root").status_code == 409


def test_while_redis_is_away_nobody_gets_in_and_all_are_told(page: Page, settings: Any, valkey: Any) -> None:
    with Bridge(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}), steps=False) as away:
        client = create_app(away).test_client()
        for answer in (client.get("/"), client.get("/login"), client.post("/login"), client.post("/act/user.create")):
            assert answer.status_code == 503
            assert "Redis is away" in answer.text
            assert "127.0.0.1:1" not in answer.text
        assert client.get("/static/app.css", buffered=True).status_code == 200
