"""A tenant's webhook endpoints and signing secrets.

Whether a tenant wants the outcomes of jobs holds per pool, since the script that ends a job must know it. The account
keeps it, with a version, and it is copied into the pools: at a change into all that there are, and, by whoever
submits, into one that has not got it yet. A copy never overwrites a newer one. The account always knows first: what a
pool then reports finds its endpoint, and what it reports in vain does no harm.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from fairlane.errors import IllegalTransition, InvalidRequest, NotFound, StoreFull, StoreUnavailable
from fairlane.ids import ALPHABET, RANDOM_LENGTH, Ids, RandomIds
from fairlane.queue import keys, replies
from fairlane.queue.checks import check_tenant
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from fairlane.queue.scripts import Reply
from fairlane.safe_url import Guard
from fairlane.webhooks import payload, values
from fairlane.webhooks.deliveries import Deliveries
from fairlane.webhooks.delivery import Delivery, NewDelivery
from fairlane.webhooks.outbox import Outbox
from fairlane.webhooks.values import Endpoint

ENDPOINTS_MOST: Final = 50  # of one tenant
_ID: Final = re.compile(rf"whe_[0-9]{{1,16}}[{ALPHABET}]{{{RANDOM_LENGTH}}}")


class Webhooks:
    """Endpoints on the queue's Redis. Every method may raise what the queue's do; an id of another tenant's endpoint is
    NotFound."""

    def __init__(self, queue: Queue, guard: Guard, *, ids: Ids | None = None) -> None:
        self._queue = queue
        self._store = queue.store
        self._guard = guard
        self._ids = ids or RandomIds()
        self._prefix = keys.prefix(queue.store.namespace, keys.ACCOUNT)

    async def create(
        self,
        tenant: str,
        url: str,
        events: Collection[str] = values.ALL,
        description: str = "",
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
    ) -> tuple[Endpoint, str]:
        """A new endpoint and its secret. Once this returns, every job that ends has its event, in whatever pool.

        Safe to repeat, after StoreUnavailable say: one that is equal in all is there once only, and is returned again.
        Raises InvalidRequest; IllegalTransition if there is one with this url and filter that differs otherwise, or is
        disabled, or if there are ENDPOINTS_MOST.
        """
        check_tenant(tenant)
        args = (
            tenant, self._ids.token(RANDOM_LENGTH), str(ENDPOINTS_MOST),
            "" if secret is None else values.check_secret(secret), values.new_secret(),
            values.check_url(url, self._guard), values.packed_events(events), values.check_description(description),
            values.packed_headers(headers or {}),
        )  # fmt: skip
        kept, *changed = replies.items(await self._store.run("create_endpoint", self._prefix, *args))
        return await self._changed(tenant, changed), replies.text(kept)

    async def list(self, tenant: str) -> list[Endpoint]:
        """All of a tenant's, the oldest first."""
        check_tenant(tenant)
        rows = replies.items(await self._store.run("list_endpoints", self._prefix, tenant))
        return [_endpoint(row) for row in rows]

    async def get(self, tenant: str, endpoint_id: str) -> Endpoint:
        """One of a tenant's."""
        found = await self._store.run("get_endpoint", self._prefix, tenant, _known(endpoint_id))
        if found is None:
            raise NotFound(f"There is no webhook endpoint {endpoint_id!r}.")
        return _endpoint(found)

    async def set(
        self,
        tenant: str,
        endpoint_id: str,
        *,
        url: str | None = None,
        events: Collection[str] | None = None,
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Endpoint:
        """Changes what is named; None stays as it is. What waits to be sent goes to the new url.

        Raises InvalidRequest; IllegalTransition if another one has this url and filter.
        """
        fields: dict[str, str] = {}
        if url is not None:
            fields["url"] = values.check_url(url, self._guard)
        if events is not None:
            fields["events"] = values.packed_events(events)
        if description is not None:
            fields["description"] = values.check_description(description)
        if headers is not None:
            fields["headers"] = values.packed_headers(headers)
        return await self._set(tenant, endpoint_id, fields)

    async def enable(self, tenant: str, endpoint_id: str) -> Endpoint:
        """Undoes `disable`, whoever did it: as `create`, and what failed before is forgotten. Repeatable."""
        return await self._set(tenant, endpoint_id, {"enabled": "1"})

    async def disable(self, tenant: str, endpoint_id: str) -> Endpoint:
        """Sends nothing to it any more; what waits to be sent fails. Repeatable: the first reason stays."""
        return await self._set(tenant, endpoint_id, {"enabled": "0"})

    async def delete(self, tenant: str, endpoint_id: str) -> None:
        """Forgets it and its secrets; what waits to be sent to it fails."""
        # a second run would not find what the first one has deleted
        args = (tenant, _known(endpoint_id))
        hooks = _hooks(replies.items(await self._store.run("delete_endpoint", self._prefix, *args, repeat=False)))
        await self._copy_if_possible(tenant, *hooks)

    async def secret(self, tenant: str, endpoint_id: str) -> str:
        """What its deliveries are signed with; of `default`, those of hooks that bring no secret: made at first use."""
        check_tenant(tenant)
        args = (tenant, _known(endpoint_id, default=True), values.new_secret())
        return replies.text(await self._store.run("signing_secret", self._prefix, *args))

    async def rotate(
        self, tenant: str, endpoint_id: str, overlap_s: float = values.OVERLAP_S, secret: str | None = None
    ) -> str:
        """Another secret, which is returned, also for `default`. For `overlap_s` yet, deliveries are signed with the
        old one too; one that was older than that no more. Raises InvalidRequest.
        """
        check_tenant(tenant)
        if not 0 <= overlap_s <= values.OVERLAP_MOST_S:  # also refuses NaN
            raise InvalidRequest("overlap_s is a number of seconds, of seven days at the most.", param="overlap_s")
        new = values.new_secret() if secret is None else values.check_secret(secret)
        args = (tenant, _known(endpoint_id, default=True), new, str(round(1000 * overlap_s)))
        await self._store.run("rotate_signing", self._prefix, *args)
        return new

    async def test(self, tenant: str, endpoint_id: str) -> Delivery:
        """Sends a `webhook.test` there, whatever its filter; each call another one. Raises IllegalTransition if it is
        disabled."""
        endpoint = await self.get(tenant, endpoint_id)
        if not endpoint.enabled:
            raise IllegalTransition("The endpoint is disabled. Enable it, and test it then.")
        occasion = self._ids.token(RANDOM_LENGTH)
        id_ = payload.delivery_id(endpoint.id, occasion, values.TEST, endpoint.id)
        body = payload.test_event(endpoint, occasion, round(1000 * time.time()))
        await Outbox(self._store).add(
            [NewDelivery(id_, tenant, endpoint.id, endpoint.id, None, values.TEST, endpoint.id, body)]
        )
        return await Deliveries(self._queue).get(tenant, id_)

    # --- what pools know ----------------------------------------------------------------------------------------------

    async def copy_hooks(self, pool: Pool, tenant: str) -> None:
        """Sees to it that a pool knows whether a tenant wants the outcomes of jobs."""
        wanted, version = await self._read_hooks(tenant)
        if version:
            await self._queue.hooks.set(pool, tenant, wanted, version)

    async def copy_hooks_to_all(self, tenant: str) -> None:
        """As `copy_hooks`, after an endpoint was disabled by what came of its deliveries."""
        await self._copy_if_possible(tenant, *await self._read_hooks(tenant))

    # --- within -------------------------------------------------------------------------------------------------------

    async def _read_hooks(self, tenant: str) -> tuple[bool, int]:
        return _hooks(replies.items(await self._store.run("tenant_hooks", self._prefix, tenant)))

    async def _set(self, tenant: str, endpoint_id: str, fields: Mapping[str, str]) -> Endpoint:
        args = (tenant, _known(endpoint_id), *(part for field in fields.items() for part in field))
        return await self._changed(tenant, replies.items(await self._store.run("set_endpoint", self._prefix, *args)))

    async def _changed(self, tenant: str, reply: list[Reply]) -> Endpoint:
        shown, *rest = reply
        endpoint, (wanted, version) = _endpoint(shown), _hooks(rest)
        copy = self._copy_to_all if endpoint.enabled and wanted else self._copy_if_possible
        await copy(tenant, wanted, version)
        return endpoint

    async def _copy_to_all(self, tenant: str, wanted: bool, version: int) -> None:
        """Raises StoreUnavailable or StoreFull if a pool is away: it gets its copy when the tenant next submits there,
        and may lack events until then."""
        away: StoreUnavailable | StoreFull | None = None
        for pool in await self._queue.pools.all() if version else ():
            try:
                await self._queue.hooks.set(pool, tenant, wanted, version)
            except (StoreUnavailable, StoreFull) as error:
                away = error
        if away:
            raise away

    async def _copy_if_possible(self, tenant: str, wanted: bool, version: int) -> None:
        """For a change after which less is wanted: a pool that is away goes on reporting in vain, which is no harm."""
        with suppress(StoreUnavailable, StoreFull):
            await self._copy_to_all(tenant, wanted, version)


def _hooks(reply: Sequence[Reply]) -> tuple[bool, int]:
    """Whether outcomes of jobs are wanted, and how often that changed."""
    wanted, version = reply
    return replies.text(wanted) == "1", replies.number(version)


def _endpoint(row: Reply) -> Endpoint:
    id_, fields = replies.items(row)
    return values.endpoint(replies.text(id_), dict(replies.pairs(replies.items(fields))))


def _known(endpoint_id: str, *, default: bool = False) -> str:
    """An id that there may be."""
    if not _ID.fullmatch(endpoint_id) and not (default and endpoint_id == values.DEFAULT):
        raise NotFound(f"There is no webhook endpoint {endpoint_id[:100]!r}.")
    return endpoint_id
