"""Requests as they come in, checked by pydantic: types, ranges and names; unknown fields are refused, not ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from fairlane.model import TENANT_PATTERN
from producer.intake import JobRequest

TEN_YEARS_S = 315_360_000
Delay = Annotated[float, Field(ge=0, le=TEN_YEARS_S, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=TEN_YEARS_S, allow_inf_nan=False)]


class WebhookIn(BaseModel):
    """Where the outcome is to be sent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    secret: Annotated[str, Field(max_length=256)] | None = None
    headers: dict[str, str] | None = None


class JobIn(BaseModel):
    """One job: `POST /v1/jobs`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[str, Field(min_length=1, max_length=256)]
    endpoint: Annotated[str, Field(max_length=100)] = "/v1/chat/completions"
    body: dict[str, Any]
    tier: Annotated[str, Field(max_length=32)] | None = None
    tenant: Annotated[str, Field(pattern=f"^{TENANT_PATTERN}$")] | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    delay_s: Delay | None = None
    deadline_s: Positive | None = None
    timeout_s: Positive | None = None
    max_attempts: Annotated[int, Field(ge=1, le=100)] | None = None
    metadata: dict[str, Any] | None = None
    webhook: WebhookIn | None = None

    def request(self, tier: str | None = None) -> JobRequest:
        """`tier`: the one of the header, which goes before the job's own."""
        return JobRequest(
            model=self.model,
            endpoint=self.endpoint,
            body=self.body,
            tier=tier if tier is not None else self.tier,
            idempotency_key=self.idempotency_key,
            delay_s=self.delay_s or 0.0,
            deadline_s=self.deadline_s,
            timeout_s=self.timeout_s,
            max_attempts=self.max_attempts,
            metadata=self.metadata,
            webhook=self.webhook.model_dump(exclude_none=True) if self.webhook else None,
        )
