"""Over HTTP: the front door's `/v1/jobs`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

from fairlane.errors import ConnectionFailed, FairlaneError, InvalidRequest, Refused, class_of
from fairlane.job import Job, Json
from producer.client.connections import CONNECT_S, Connections, httpx
from producer.client.submission import Submission
from producer.client.transport import Page

ANSWER_S: Final = 30.0  # for an answer that need not wait
GRACE_S: Final = 10.0  # for one that waits, after its time
WAITS_MOST: Final = 500  # at once: a process often may have 1,024 files open
CROWDED_S: Final = 10.0  # of each wait, when others queue behind it
CUT_OFF: Final = 500  # without an `error`: the process ended while it was at it
PAGE_JOBS: Final = 100
SAID_MOST: Final = 200  # characters of an answer that is not ours


class HttpTransport:
    """`url` may end in `/v1`, as OpenAI's does."""

    most_waits = 64

    def __init__(self, url: str, api_key: str | None, tenant: str | None) -> None:
        self._tenant = tenant
        self._url = url.rstrip("/").removesuffix("/v1")
        self._waits = asyncio.Semaphore(WAITS_MOST)
        headers = {"content-type": "application/json"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key}"
        try:
            if not urlsplit(url).hostname:
                raise ValueError("it names no host")
            self._connections = Connections(self._url, headers)
        except (httpx.InvalidURL, ValueError) as error:  # a ValueError: an API key that is not ASCII, too
            raise InvalidRequest(f"This is no URL, or no API key: {error}.", param="url") from error

    async def submit(self, asked: Submission) -> str:
        return cast(str, (await self._call("POST", "/v1/jobs", self._wire(asked)))["id"])

    async def submit_many(self, asked: Sequence[Submission]) -> list[str | FairlaneError]:
        body = b'{"jobs":[' + b",".join(map(self._wire, asked)) + b"]}"
        answers = (await self._call("POST", "/v1/jobs", body))["jobs"]
        if len(answers) != len(asked):
            raise _foreign(f"{len(answers)} answers to {len(asked)} jobs", 502)
        return [one["id"] if "id" in one else _refusal_of_one(one) for one in answers]

    async def job(self, job_id: str, wait_s: float = 0.0) -> Job:
        if not wait_s:
            return _job(await self._call("GET", _path(job_id)))
        async with self._waits:
            wait_s = min(wait_s, CROWDED_S) if self._waits.locked() else wait_s
            return _job(await self._call("GET", f"{_path(job_id)}?wait={wait_s:.3f}", answer_s=wait_s + GRACE_S))

    async def cancel(self, job_id: str) -> Job:
        return _job(await self._call("DELETE", _path(job_id)))

    async def requeue(self, job_id: str) -> Job:
        return _job(await self._call("POST", f"{_path(job_id)}/requeue"))

    async def page(self, state: str | None, tier: str | None, cursor: str | None) -> Page:
        asked = {"state": state, "tier": tier, "cursor": cursor, "limit": str(PAGE_JOBS)}
        query = httpx.QueryParams({name: value for name, value in asked.items() if value is not None})
        page = await self._call("GET", f"/v1/jobs?{query}")
        return Page([_job(one) for one in page["data"]], page["next_cursor"])

    async def explain(self, job_id: str) -> Mapping[str, Json]:
        return await self._call("GET", f"{_path(job_id)}/explain")

    async def close(self) -> None:
        await self._connections.close()

    def _wire(self, asked: Submission) -> bytes:
        if asked.tenant is not None or self._tenant is None:
            return asked.wire
        return asked.wire[:-1] + b',"tenant":' + json.dumps(self._tenant).encode() + b"}"

    async def _call(
        self, method: str, path: str, content: bytes | None = None, answer_s: float = ANSWER_S
    ) -> dict[str, Any]:
        timeout = httpx.Timeout(answer_s, connect=CONNECT_S, pool=None)
        try:
            with self._connections.one() as http:
                answer = await http.request(method, path, content=content, timeout=timeout)
        except httpx.RequestError as error:
            what = str(error) or type(error).__name__
            raise ConnectionFailed(f"The front door at {self._url} cannot be reached: {what}.") from error
        try:
            said: object = answer.json()
        except ValueError:
            said = None
        if answer.is_success and isinstance(said, dict):
            return cast("dict[str, Any]", said)
        if not isinstance(said, dict) or "error" not in said:
            raise _foreign(answer.text, answer.status_code, _retry_after(answer))
        raise _refusal(cast("dict[str, Any]", said), answer.status_code, _retry_after(answer))


def _path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _job(raw: dict[str, Any]) -> Job:
    try:
        return Job.parse(raw)
    except ValueError as error:
        raise _foreign(str(raw), 502) from error


def _refusal(said: Mapping[str, Any], status: int, retry_after: float | None = None) -> FairlaneError:
    """The error that `{"error": {"message", "code", "param", "retry_after"?}}` stands for."""
    error = cast("dict[str, Any]", said["error"] if isinstance(said["error"], dict) else {"message": said["error"]})
    code, message = str(error.get("code")), str(error.get("message"))
    after = error.get("retry_after", retry_after)
    known = class_of(code)
    if known.code != code:
        return Refused(message, code=code, status=status, param=error.get("param"), retry_after=after)
    return known(message, param=error.get("param"), retry_after=after)


def _refusal_of_one(said: Mapping[str, Any]) -> FairlaneError:
    """One job's refusal within a list: there is no status, but what may be tried again says when."""
    return _refusal(said, 429 if "retry_after" in said["error"] else 400)


def _foreign(text: str, status: int, retry_after: float | None = None) -> FairlaneError:
    """Whoever answered is no front door: a proxy in between, or a wrong URL."""
    said = " ".join(text.split())[:SAID_MOST]
    message = f"What answered (HTTP {status}) does not speak as a front door does. Is the URL right? It said: {said}"
    if status == CUT_OFF:
        return ConnectionFailed(message)
    return Refused(message, code="unexpected_answer", status=status, retry_after=retry_after)


def _retry_after(answer: httpx.Response) -> float | None:
    try:
        return max(0.0, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):  # a date: then as if there were none
        return None
