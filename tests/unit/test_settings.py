"""Settings come from flags, then the environment, then a file; what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.errors import InvalidRequest
from fairlane.settings import Settings, load


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"FAIRLANE_{name.upper()}", raising=False)
    monkeypatch.delenv("FAIRLANE_CONFIG", raising=False)


def test_flags_go_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fairlane.toml"
    file.write_text('namespace = "file"\nlease_s = 1\nscrape_s = 1.5\ntiers = ["a", "b"]\n')
    monkeypatch.setenv("FAIRLANE_CONFIG", str(file))
    monkeypatch.setenv("FAIRLANE_LEASE_S", "2")
    monkeypatch.setenv("FAIRLANE_NAMESPACE", "env")
    found = load(namespace="flag", redis_url=None)
    assert (found.namespace, found.lease_s, found.scrape_s, found.tiers) == ("flag", 2, 1.5, ("a", "b"))


def test_a_new_pool_gets_its_policy_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TIERS": "gold, silver", "LEASE_S": "5", "SCRAPE_S": "0.1", "VALVE_S": "7"}.items():
        monkeypatch.setenv(f"FAIRLANE_{name}", value)
    policy = load().policy
    assert (policy.tiers, policy.lease_ms, policy.stale_ms, policy.valve_ms) == (("gold", "silver"), 5000, 300, 7000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_S", "-1"), ("LEASE_S", "nan"), ("MAX_ATTEMPTS", "0"), ("FAIRNESS", "none"), ("NAMESPACE", "a b"),
        ("PUBLIC_URL", "queue.example"), ("WEBHOOK_ALLOW", "10.0.0.1/8"), ("WEBHOOK_PORTS", "80,x"),
        ("WEBHOOK_PROXY", "socks5://proxy:1080"), ("WEBHOOK_SCHEDULE", "0,-1"), ("WEBHOOK_SCHEDULE", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"FAIRLANE_{name}", value)
    with pytest.raises(InvalidRequest, match=f"FAIRLANE_{name}"):
        load()


def test_the_schedule_of_webhooks_is_a_list_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLANE_WEBHOOK_SCHEDULE", "0, 0.5,60")
    assert load().webhook_schedule == (0, 0.5, 60)


def test_a_password_in_a_url_that_is_wrong_is_not_shown() -> None:
    with pytest.raises(InvalidRequest) as refused:
        load(webhook_proxy="https://user:pass@proxy:1")
    assert "pass@" not in refused.value.message


@pytest.mark.parametrize(
    ("redis_url", "broker_url"),
    [
        ("redis://:a%2Fb@host:1/0", "redis://:a%2Fb@host:1/1"),
        ("rediss://host", "rediss://host/1"),
        ("redis://host/1", "redis://host/2"),
    ],
)
def test_celery_gets_another_database_of_the_same_server(redis_url: str, broker_url: str) -> None:
    assert load(redis_url=redis_url).broker_url == broker_url


@pytest.mark.parametrize("redis_url", [None, "redis+cluster://host:1", "redis+sentinel://host:1/main/0", "unix:///x"])
def test_celery_needs_a_broker_of_its_own_without_a_single_server(
    redis_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match="FAIRLANE_CELERY_BROKER_URL"):
        assert load(redis_url=redis_url).broker_url
    monkeypatch.setenv("FAIRLANE_CELERY_BROKER_URL", "redis://broker/3")
    assert load(redis_url=redis_url).broker_url == "redis://broker/3"


@pytest.mark.parametrize("text", [None, "x = = 1"])
def test_a_file_that_cannot_be_read_is_said(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fairlane.toml"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("FAIRLANE_CONFIG", str(file))
    with pytest.raises(InvalidRequest, match=r"fairlane\.toml"):
        load()


def test_the_header_of_gateways_is_one_that_means_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLANE_TRUSTED_TENANT_HEADER", "X-OpenWebUI-User-Email")
    assert load().trusted_tenant_header == "x-openwebui-user-email"
    for wrong in ("Authorization", "a b", "a:", "", "x" * 65, "x_y", "Idempotency-Key", "X-Fairlane-Tenant"):
        monkeypatch.setenv("FAIRLANE_TRUSTED_TENANT_HEADER", wrong)
        with pytest.raises(InvalidRequest, match="FAIRLANE_TRUSTED_TENANT_HEADER"):
            load()


def test_without_a_word_the_front_door_wants_keys() -> None:
    assert load().auth == "keys"
