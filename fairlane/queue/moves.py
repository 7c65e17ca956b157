"""A move to another pool: depart, arrive, leave a stub. Three steps in two slots; anyone may finish one that broke off.

After `depart` the job is on no line; after `arrive` it is on the target's; the stub then leads there. Each step is
idempotent, so two who finish the same move do no harm.
"""

from __future__ import annotations

from typing import Final

from fairlane.errors import IllegalTransition, NotFound
from fairlane.queue import replies
from fairlane.queue.pools import Pool, Pools
from fairlane.queue.replies import MovedAway
from fairlane.queue.store import Store

TAKE_OVER_MS: Final = 10_000


async def move(store: Store, pools: Pools, source: Pool, job_id: str, target: Pool) -> None:
    """Moves a waiting job. Raises NotFound, UnknownTier, IllegalTransition, MovedAway (it is elsewhere already)."""
    state, went = await store.bounded(store.client.hmget(source.key("job", job_id), ["state", "moved_to"]))
    if state in (b"moving", b"moved"):
        raise MovedAway(state.decode(), (went or b"").decode())
    if source.code == target.code:  # whatever becomes of it meanwhile: leaving for its own pool would delete it
        if state in (b"queued", b"delayed"):
            return
        raise NotFound() if state is None else IllegalTransition(f"The job is {state.decode()}.")
    went, hop = await transfer(store, pools, source, job_id, target)
    await leave(store, source, job_id, hop)
    if went != target.code:
        raise IllegalTransition(f"The job was on its way to the pool {(await pools.by_code(went)).name!r}.")


async def transfer(store: Store, pools: Pools, source: Pool, job_id: str, target: Pool) -> tuple[str, str]:
    """The first two steps: the job stands in the target's line. `leave` must follow, with the hop that is returned.

    Also returns the code of the pool it went to: another one, if it was on its way there. Raises as `move` does.
    """
    tiers = f" {' '.join(target.policy.tiers)} "
    reply = replies.items(await store.run("depart", source.prefix, job_id, target.code, str(TAKE_OVER_MS), tiers))
    return replies.text(reply[0]), await _arrive(store, pools, job_id, reply)


async def leave(store: Store, source: Pool, job_id: str, hop: str) -> None:
    """The last step: the source keeps where the job went."""
    await store.run("leave_stub", source.prefix, job_id, hop, str(source.policy.result_ttl_ms))


async def finish(store: Store, pools: Pools, source: Pool, job_id: str) -> None:
    """Finishes a move that is under way, if it still is."""
    try:
        reply = replies.items(await store.run("depart", source.prefix, job_id, "", str(TAKE_OVER_MS), "", repeat=False))
    except (MovedAway, NotFound, IllegalTransition):
        return  # somebody else finished it
    await leave(store, source, job_id, await _arrive(store, pools, job_id, reply))


async def look_after(store: Store, pools: Pools, source: Pool, job_id: str) -> None:
    """The sweeper's look at a job that moved: finishes a broken move, forgets the stub of a job that is gone."""
    state, went = await store.bounded(store.client.hmget(source.key("job", job_id), ["state", "moved_to"]))
    if state == b"moving":
        await finish(store, pools, source, job_id)
    elif state == b"moved" and went:
        target = await pools.by_code(went.decode())
        exists = await store.bounded(store.client.exists(target.key("job", job_id)))
        again = str(source.policy.result_ttl_ms) if exists else ""
        await store.run("check_move", source.prefix, job_id, again)


async def _arrive(store: Store, pools: Pools, job_id: str, reply: list[replies.Reply]) -> str:
    target = await pools.by_code(replies.text(reply[0]))
    fields = dict(replies.pairs(replies.items(reply[1])))
    parts = [part for field in fields.items() for part in field]
    hop = fields["hop"].decode()
    await store.run("arrive", target.prefix, job_id, hop, *parts)
    return hop
