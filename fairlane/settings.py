"""Settings: environment variables `FAIRLANE_…`, or a TOML file that `FAIRLANE_CONFIG` names; flags override both."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import TomlConfigSettingsSource as TomlSource

from fairlane.errors import InvalidRequest
from fairlane.model import DEFAULT_TIERS, Fairness, Policy
from fairlane.safe_url import Guard

Seconds = Annotated[float, Field(gt=0, le=10 * 365 * 86_400)]
RESERVED_HEADERS = frozenset(  # they have a meaning of their own
    (
        "authorization",
        "host",
        "content-type",
        "content-length",
        "idempotency-key",
        "x-fairlane-tenant",
        "x-fairlane-tier",
    )
)
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Wait = Annotated[float, Field(ge=0, le=10 * 86_400)]
SCHEDULE = (0.0, 5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
_PROXY = r"^http://([^\s/?#@:]*(:[^\s/?#@]*)?@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}/?$"
_LOGIN = re.compile(r"//[^/@\s]*@")  # in a URL: not to be shown


class Settings(BaseSettings):
    """What all processes of one installation agree on. Times in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="FAIRLANE_", extra="ignore", frozen=True)

    redis_url: str | None = None
    auth: Literal["keys", "open"] = "keys"
    trusted_tenant_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] | None = None
    data_dir: Path = Path.home() / ".local" / "share" / "fairlane"
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,32}$")] = "fl"
    tiers: Annotated[tuple[str, ...], NoDecode] = DEFAULT_TIERS
    fairness: Fairness = "requests"
    lease_s: Seconds = 30
    scrape_s: Seconds = 0.2
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    valve_s: Seconds = 60
    result_ttl_s: Seconds = 86_400
    max_queued_tenant: Count = 10_000
    max_queued_pool: Count = 1_000_000
    max_body_bytes: Count = 8 << 20
    metrics_tenants: Annotated[int, Field(ge=0, le=40)] = 20
    drain_s: Seconds = 30
    job_timeout_s: Seconds = 600
    first_byte_timeout_s: Seconds | None = None
    idle_timeout_s: Seconds | None = None
    backend_ca_file: Path | None = None
    backend_cert_file: Path | None = None
    backend_key_file: Path | None = None
    files_url: Annotated[str, Field(min_length=1)] | None = None
    celery_broker_url: Annotated[str, Field(min_length=1)] | None = None
    public_url: Annotated[str, Field(pattern=r"^https?://[^\s?#]*[^\s?#/]$")] | None = None
    webhook_allow: str = ""
    webhook_ports: str = "80,443,8080,8443"
    webhook_proxy: Annotated[str, Field(pattern=_PROXY)] | None = None
    webhook_timeout_s: Annotated[float, Field(gt=0, le=600)] = 15
    webhook_concurrency: Annotated[int, Field(ge=1, le=1000)] = 10
    webhook_schedule: Annotated[tuple[Wait, ...], NoDecode, Field(min_length=1, max_length=100)] = SCHEDULE
    webhook_keep_s: Seconds = 86_400
    webhook_breaker_s: Seconds = 30
    webhook_disable_after_s: Seconds = 5 * 86_400

    @field_validator("trusted_tenant_header")
    @classmethod
    def _is_free(cls, value: str | None) -> str | None:
        if value is not None and (value := value.lower()) in RESERVED_HEADERS:
            raise ValueError("this header has another meaning")
        return value

    @field_validator("webhook_allow")
    @classmethod
    def _allows(cls, value: str) -> str:
        return _guarded(value, lambda: Guard.of(value, ""))

    @field_validator("webhook_ports")
    @classmethod
    def _are_ports(cls, value: str) -> str:
        return _guarded(value, lambda: Guard.of("", value))

    @field_validator("tiers", "webhook_schedule", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = os.environ.get("FAIRLANE_CONFIG")
        files = (TomlSource(settings_cls, Path(path)),) if path else ()
        return (init_settings, env_settings, *files)

    @property
    def files_at(self) -> str:
        """Where files are kept: a folder, or a URL of fsspec."""
        return self.files_url or str(self.data_dir / "files")

    @property
    def broker_url(self) -> str:
        """What Celery's messages go through: unless it is set, another database of our own Redis.

        Raises InvalidRequest if that is no single server: Celery's Redis transport knows no cluster.
        """
        if self.celery_broker_url:
            return self.celery_broker_url
        parts = urlsplit(self.redis_url or "")
        if parts.scheme not in ("redis", "rediss"):
            raise InvalidRequest("Celery needs a broker. Set FAIRLANE_CELERY_BROKER_URL, to a single Redis server.")
        return urlunsplit(parts._replace(path="/2" if parts.path == "/1" else "/1"))

    @property
    def policy(self) -> Policy:
        """The policy that a new pool gets."""
        return Policy(
            tiers=self.tiers,
            fairness=self.fairness,
            lease_ms=_ms(self.lease_s),
            stale_ms=_ms(3 * self.scrape_s),
            valve_ms=_ms(self.valve_s),
            result_ttl_ms=_ms(self.result_ttl_s),
            max_waiting_pool=self.max_queued_pool,
            max_waiting_tenant=self.max_queued_tenant,
        )


def load(**flags: object) -> Settings:
    """The settings, with the flags that are not None over them. Raises InvalidRequest, which names what is wrong."""
    path = os.environ.get("FAIRLANE_CONFIG")
    if path and not Path(path).is_file():
        raise InvalidRequest(f"FAIRLANE_CONFIG names {path}, which is no file.")
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})  # pyright: ignore[reportArgumentType]
    except ValidationError as error:
        raise InvalidRequest("; ".join(_fault(fault) for fault in error.errors())) from error
    except ValueError as error:  # TOML
        raise InvalidRequest(f"{path} is no TOML file: {error}") from error


def _fault(fault: Any) -> str:
    name = "_".join(str(part) for part in fault["loc"]).upper()
    return f"FAIRLANE_{name}: {fault['msg']} (it is {_LOGIN.sub('//…@', repr(fault['input']))})"


def _guarded(value: str, check: Callable[[], object]) -> str:
    try:
        check()
    except InvalidRequest as error:
        raise ValueError(error.message) from error
    return value


def _ms(seconds: float) -> int:
    return max(1, round(1000 * seconds))
