"""What can be done to a batch."""

from __future__ import annotations

from flask import url_for

from admin_ui.acting import Act, Asked, Done, Proposal, act
from admin_ui.bridge import Stores
from admin_ui.hiding import alike
from fairlane.batches.finding import BatchSearch
from fairlane.batches.view import TURNS
from fairlane.errors import IllegalTransition


@act("batch.cancel", role="operator", scoped=True)
class CancelBatch(Act):
    """Ends a batch early."""

    async def propose(self, stores: Stores, asked: Asked) -> Proposal:
        with alike():
            standing = await BatchSearch(stores.queue).get(asked.param("batch"))
        batch = standing.batch
        if asked.viewer.sees(batch.tenant) and "cancelling" not in TURNS.get(batch.status, ()):
            raise IllegalTransition(f"The batch is {batch.status}; it cannot be cancelled any more.")
        left = batch.total - standing.done
        return Proposal(
            title=f"Cancel a batch of {batch.tenant}'s?",
            button="Cancel the batch",
            target=f"batch {batch.id}",
            tenant=batch.tenant,
            back=url_for("batches.show", batch_id=batch.id),
            before={"state": batch.status.replace("_", " ")},
            after={"state": "cancelled"},
            tells=(
                "What was answered by now is kept: the batch's files will have it.",
                f"Up to {left} requests are not run, or stopped where they run. Each gets a line in the error file.",
            ),
            typed=batch.tenant,
        )

    async def carry_out(self, stores: Stores, asked: Asked, proposal: Proposal) -> Done:
        await stores.batches.cancel(proposal.tenant or "", asked.param("batch"))
        return Done("Cancelled. Its files come once nothing of it runs.")
