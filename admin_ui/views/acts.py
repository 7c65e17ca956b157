"""The one address of all acts: GET asks whether to do it, POST does it. See admin_ui/acting.py."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from flask import Blueprint, abort, current_app, flash, make_response, redirect, render_template, request
from werkzeug.wrappers import Response

from admin_ui.access import address, current, needs
from admin_ui.acting import Act, Asked, Done, OutcomeUnknown, Proposal, may
from admin_ui.actions import ACTS
from admin_ui.reading import ask
from fairlane.audit import UNKNOWN
from fairlane.errors import FairlaneError, InvalidRequest, NotFound

page = Blueprint("acts", __name__)
_OURS = frozenset({"csrf_token", "typed"})  # fields that are no act's


@page.get("/act/<name>")
@needs("viewer")
def confirm(name: str) -> Response:
    """What the act would do, and a button that does it."""
    act = _allowed(name)
    asked = Asked(request.args.to_dict(), {}, current())
    return _form(act, asked, _propose(act, asked))


@page.post("/act/<name>")
@needs("viewer")
def carry_out(name: str) -> Response:
    """Does it, and goes back to where it was asked for."""
    act = _allowed(name)
    given = {key: value for key, value in request.form.items() if key not in _OURS}
    params = {key.removeprefix("param."): value for key, value in given.items() if key.startswith("param.")}
    values = {key: value for key, value in given.items() if not key.startswith("param.")}
    asked = Asked(params, values, current())
    proposal = _propose(act, asked)
    try:
        done = _do(act, asked, proposal)
    except FairlaneError as error:
        if error.status >= 500:
            raise
        return _form(act, asked, proposal, error)
    if done.shown is not None:
        return make_response(render_template("shown.html", done=done, proposal=proposal))
    current_app.extensions["readings"].clear()  # whoever did it sees it at once
    flash(done.words)
    return _go(done.to or proposal.back)


def _allowed(name: str) -> Act:
    act = ACTS.get(name)
    if act is None:
        abort(404)
    if not may(current(), act):
        abort(403)
    return act


def _propose(act: Act, asked: Asked) -> Proposal:
    """Raises NotFound for what is another tenant's, as for what is not there."""
    proposal = ask(lambda stores: act.propose(stores, asked))
    if not asked.viewer.sees(proposal.tenant):
        raise NotFound()
    return proposal


def _do(act: Act, asked: Asked, proposal: Proposal) -> Done:
    """The audit has it first: an act that cannot be told of is not done."""
    if proposal.typed is not None and request.form.get("typed", "").strip() != proposal.typed:
        raise InvalidRequest(f"Type {proposal.typed} to confirm this.", param="typed")
    viewer, params = asked.viewer, {**asked.params, **_told(asked.values)}
    entry = ask(
        lambda stores: stores.audit.begin(
            who=viewer.name,
            role=viewer.role,
            address=address(),
            act=act.name,
            target=proposal.target,
            tenant=proposal.tenant,
            params=params,
            before=proposal.before,
            after=proposal.after,
        )
    )
    try:
        done = ask(lambda stores: act.carry_out(stores, asked, proposal))
    except FairlaneError as error:
        if error.status >= 500:
            raise _unsure(entry) from error
        code, words = error.code, error.public
        ask(lambda stores: stores.audit.end(entry, outcome=code, words=words))
        raise
    ask(lambda stores: stores.audit.end(entry, outcome="done", words=done.words, before=done.before, after=done.after))
    return done


def _unsure(entry: str) -> OutcomeUnknown:
    """A reply that is lost says nothing of what was done; an act of many steps may have done some."""
    unsure = OutcomeUnknown(retry_after=2)
    with suppress(FairlaneError):  # then the entry says that nobody knows, too: it has no outcome
        ask(lambda stores: stores.audit.end(entry, outcome=UNKNOWN, words=unsure.public))
    return unsure


def _told(values: Mapping[str, str]) -> Mapping[str, str]:
    """What was filled in, as the audit may keep it."""
    return {name: "…" if "password" in name or "secret" in name else value for name, value in values.items()}


def _form(act: Act, asked: Asked, proposal: Proposal, error: FairlaneError | None = None) -> Response:
    page_of = render_template("act.html", act=act, asked=asked, proposal=proposal, error=error)
    return make_response(page_of, error.status if error else 200)


def _go(to: str) -> Response:
    if request.headers.get("HX-Request"):
        return Response(status=204, headers={"HX-Redirect": to})
    return redirect(to, 303)
