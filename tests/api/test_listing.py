"""`GET /v1/jobs`: a tenant's own jobs, all of them, page by page."""

from __future__ import annotations

import httpx
import pytest

from fairlane.model import JobError, Policy
from fairlane.queue.engine import Queue
from fairlane.queue.pools import Pool
from tests.api.door import JOB, refused, submit
from tests.contract.acts import take

STATES = ("queued", "delayed", "leased", "succeeded", "failed", "cancelled")


@pytest.fixture
async def jobs(http: httpx.AsyncClient, queue: Queue, pool: Pool) -> dict[str, str]:
    """Ann's jobs in every state and several tiers and pools, and as many of Bob's in between: their ids and states."""
    await queue.pools.open("mistral", Policy(tiers=("default", "slow")))
    made: dict[str, list[str]] = {}
    for tenant in ("ann", "bob"):
        http.headers["authorization"] = f"Bearer {tenant}"
        made[tenant] = [(await submit(http))["id"] for _ in range(8)]
        leases = await take(queue, pool, 8)
        for lease in leases[:3]:
            await queue.settle(pool, lease, "succeeded", status=200, result=b'{"secret": 1}')
        await queue.settle(pool, leases[3], "failed", status=400, error=JobError("backend_error", "Bad.", 400))
        for lease in leases[4:6]:
            await queue.retry(pool, lease, JobError("timeout", "Slow."), delay_ms=600_000)
    for tenant in ("bob", "ann"):
        http.headers["authorization"] = f"Bearer {tenant}"
        waiting = [await submit(http, tier=tier) for tier in ("priority", "batch") for _ in range(3)]
        waiting += [await submit(http, model="mistral", tier="slow") for _ in range(2)]
        await http.delete(f"/v1/jobs/{waiting[0]['id']}")
        made[tenant] += [job["id"] for job in waiting]
    states = {id_: (await http.get(f"/v1/jobs/{id_}")).json()["state"] for id_ in made["ann"]}
    assert set(states.values()) == set(STATES)
    return states


async def pages(http: httpx.AsyncClient, **query: str | int) -> list[dict[str, object]]:
    """Everything, page by page."""
    found: list[dict[str, object]] = []
    cursor = None
    for _ in range(100):
        response = await http.get("/v1/jobs", params={**query, **({"cursor": cursor} if cursor else {})})
        assert response.status_code == 200, response.text
        assert len(response.json()["data"]) <= int(str(query.get("limit", 20)))
        found += response.json()["data"]
        cursor = response.json()["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_every_job_of_ones_own_is_shown_once_and_nobody_elses(
    http: httpx.AsyncClient, jobs: dict[str, str], limit: int
) -> None:
    found = await pages(http, limit=limit)
    assert sorted((str(job["id"]), str(job["state"])) for job in found) == sorted(jobs.items())
    assert {job["tenant"] for job in found} == {"ann"}
    assert all(job["result"] is None for job in found)


async def test_one_state_or_tier_is_shown_alone(http: httpx.AsyncClient, jobs: dict[str, str]) -> None:
    for state in STATES:
        found = await pages(http, state=state, limit=2)
        assert {job["id"] for job in found} == {id_ for id_, its in jobs.items() if its == state}
    for tier, n in (("priority", 3), ("batch", 3), ("slow", 2), ("default", 8), ("flex", 0)):
        found = await pages(http, tier=tier)
        assert [job["tier"] for job in found] == [tier] * n
    refused(await http.get("/v1/jobs", params={"tier": "gold"}), 400, "unknown_tier")


async def test_jobs_of_one_line_are_shown_in_the_order_in_which_they_run(http: httpx.AsyncClient) -> None:
    ids = [job["id"] for job in (await http.post("/v1/jobs", json={"jobs": [JOB] * 50})).json()["jobs"]]
    assert [job["id"] for job in await pages(http, state="queued", limit=7)] == ids
