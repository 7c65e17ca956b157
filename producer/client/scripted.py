"""A transport without a server, for tests: jobs and batches are answered at once, as a script says."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, cast

from fairlane.errors import FairlaneError, IdempotencyMismatch, IllegalTransition, NotFound
from fairlane.job import Job, Json
from producer.client.script import Fails, Reply, Script, Waits
from producer.client.scripted_archive import ScriptedArchive
from producer.client.scripted_postbox import ScriptedPostbox
from producer.client.sse import PULSE, Event, whole_answer
from producer.client.submission import Submission
from producer.client.transport import ANONYMOUS, Page
from producer.client.worded import body_of, chunks_of
from producer.intake import DEFAULT_TIER, JobRequest

PULSE_S: Final = 1.0
OK: Final = 200


@dataclass
class _Kept:
    """A job, and how its streamed answer comes."""

    raw: dict[str, Any]
    asked: Submission
    chunks: Sequence[Mapping[str, Json]] | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedTransport:
    """Implements Transport. Nothing in it waits for anything but a job that waits."""

    most_waits = 1000

    def __init__(self, script: Script, tenant: str | None) -> None:
        self._script = script
        self._tenant = tenant or ANONYMOUS
        self._jobs: dict[str, _Kept] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._numbers = count(1)
        self.archive = ScriptedArchive(script)
        self.postbox = ScriptedPostbox(self._tenant)

    async def submit(self, asked: Submission) -> str:
        tenant, key = asked.tenant or self._tenant, asked.request.idempotency_key or ""
        if (known := self._keys.get((tenant, key))) is not None:
            if self._jobs[known].asked.wire != asked.wire:
                raise IdempotencyMismatch()
            return known
        request = replace(asked.request, body=json.loads(asked.wire)["body"])  # as it was then
        reply = self._script.reply(request)
        job_id = self._keys[tenant, key] = f"job_{next(self._numbers)}"
        self._jobs[job_id] = _Kept(_waiting(job_id, request, tenant), asked)
        self.settle(job_id, reply)
        return job_id

    async def submit_many(self, asked: Sequence[Submission]) -> list[str | FairlaneError]:
        answers: list[str | FairlaneError] = []
        for one in asked:
            try:
                answers.append(await self.submit(one))
            except FairlaneError as error:
                answers.append(error)
        return answers

    def settle(self, job_id: str, reply: Reply) -> None:
        """Gives a job that waits its answer. Raises IllegalTransition if it has one."""
        kept = self._kept(job_id)
        if kept.raw["finished_at"] is not None:
            raise IllegalTransition()
        match reply:
            case Waits():
                return
            case FairlaneError():
                raise reply
            case Fails(code, message, status, body):
                error = {"code": code, "message": message, "status": status}
                result = None if body is None else {"status": status, "body": body}
                self._end(kept, "failed", error=error, result=result)
            case _:
                request = kept.asked.request
                if request.body.get("stream") and not isinstance(reply, Mapping):
                    kept.chunks = chunks_of(request, reply)
                body = body_of(kept.asked.request, reply, kept.chunks)
                usage = cast("dict[str, Json]", body).get("usage") if isinstance(body, dict) else None
                self._end(kept, "succeeded", result={"status": OK, "body": body}, usage=usage)

    async def job(self, job_id: str, wait_s: float = 0.0) -> Job:
        kept = self._kept(job_id)
        if wait_s:
            try:
                async with asyncio.timeout(wait_s):
                    await kept.settled.wait()
            except TimeoutError:
                pass
        return Job.parse(dict(kept.raw))

    async def events(self, job_id: str, after: str | None) -> AsyncGenerator[Event]:
        kept = self._kept(job_id)
        if not kept.asked.request.body.get("stream"):
            raise IllegalTransition("This job does not stream.")
        while not (await self.job(job_id, PULSE_S)).finished:
            yield PULSE
        if kept.raw["state"] != "succeeded":
            return
        if kept.chunks is None:
            for event in whole_answer(json.dumps(kept.raw["result"]["body"]).encode()):
                yield event
            return
        start = int(after.partition("-")[2]) if after else 0
        for n, chunk in enumerate(kept.chunks[start:], start + 1):
            yield Event(json.dumps(chunk), f"1-{n}")

    async def cancel(self, job_id: str) -> Job:
        kept = self._kept(job_id)
        if kept.raw["finished_at"] is None:
            error = {"code": "job_cancelled", "message": "The job was cancelled.", "status": None}
            self._end(kept, "cancelled", error=error)
        return Job.parse(dict(kept.raw))

    async def requeue(self, job_id: str) -> Job:
        raise IllegalTransition()

    async def page(self, state: str | None, tier: str | None, cursor: str | None) -> Page:
        jobs = [Job.parse(kept.raw | {"result": None}) for kept in self._jobs.values()]
        return Page([job for job in jobs if state in (None, job.state) and tier in (None, job.tier)], None)

    async def explain(self, job_id: str) -> Mapping[str, Json]:
        state = self._kept(job_id).raw["state"]
        position = 0 if state == "queued" else None
        return {"state": state, "position": position, "ahead": [], "gate": None, "estimated_start_s": None}

    async def close(self) -> None:
        pass

    def _kept(self, job_id: str) -> _Kept:
        if job_id not in self._jobs:
            raise NotFound()
        return self._jobs[job_id]

    def _end(self, kept: _Kept, state: str, **fields: Json) -> None:
        now = time.time()
        started = None if state == "cancelled" else now
        kept.raw |= {"state": state, "started_at": started, "finished_at": now, **fields}
        kept.settled.set()


def _waiting(job_id: str, request: JobRequest, tenant: str) -> dict[str, Any]:
    empty = (
        "not_before", "deadline_at", "started_at", "finished_at", "result", "error", "usage", "batch_id",
    )  # fmt: skip
    return dict.fromkeys(empty) | {
        "object": "job",
        "id": job_id,
        "pool": request.model,
        "model": request.model,
        "endpoint": request.endpoint,
        "tenant": tenant,
        "tier": request.tier or DEFAULT_TIER,
        "state": "queued",
        "dead": False,
        "created_at": time.time(),
        "attempts": [],
        "max_attempts": request.max_attempts or 3,
        "metadata": dict(request.metadata or {}),
    }
