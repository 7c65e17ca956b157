"""What can be done to dispatchers."""

from __future__ import annotations

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Proposal, act
from admin_ui.bridge import Stores
from fairlane.errors import IllegalTransition
from fairlane.queue.fleet import Dispatcher, Fleet


@act("dispatcher.drain", role="operator")
class DrainDispatcher(Act):
    """Ends one dispatcher in order."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        fleet = Fleet(stores.queue)
        dispatcher = await fleet.get(asked.param("dispatcher"))
        if dispatcher.draining:
            raise IllegalTransition("This dispatcher is draining already.")
        alone = _alone(dispatcher, await fleet.dispatchers())
        tells = [
            "It takes no more jobs. What it runs may end, within its grace time (FAIRLANE_DRAIN_S).",
            "The rest is handed back without using up an attempt. Then it ends.",
            "What supervises it may start another in its place: fairlane up does, and most restart policies do.",
        ]
        if alone:
            tells.append(f"It is the only dispatcher of {', '.join(alone)}: jobs wait there until another one comes.")
        return Proposal(
            title=f"Drain the dispatcher on {dispatcher.host or 'an unknown host'}?",
            button="Drain",
            target=f"dispatcher {dispatcher.name}",
            tenant=None,
            back=url_for("workers.index"),
            before={"state": "working", "jobs": dispatcher.inflight},
            after={"state": "ended", "jobs": 0},
            tells=tuple(tells),
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await Fleet(stores.queue).drain(asked.param("dispatcher"))
        return Done("The dispatcher is told to drain; it hears of it within a second.")


def _alone(dispatcher: Dispatcher, all_of_them: list[Dispatcher]) -> list[str]:
    """The pools that nobody else serves."""
    others = [one for one in all_of_them if one.name != dispatcher.name and not one.draining]
    served = {post.pool for one in others for post in one.posts}
    return [post.pool for post in dispatcher.posts if post.pool not in served]
