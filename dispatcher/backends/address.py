"""A backend's address and key: how they are used, and how they are shown without their secrets."""

from __future__ import annotations

import os
from urllib.parse import urlsplit, urlunsplit

from dispatcher.backends.answer import CallFailed
from fairlane.model import BackendSpec


def base_url(url: str) -> str:
    """Where a backend's paths start: its URL without a `/v1` at the end, which endpoints bring with them."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def shown(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def authorization(spec: BackendSpec) -> dict[str, str]:
    """The header with the backend's key, from the environment; empty if it needs none.

    Raises CallFailed, which names the variable but not what it holds.
    """
    if spec.key_env is None:
        return {}
    key = os.environ.get(spec.key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise CallFailed(
            "unready",
            "The backend cannot be called from here.",
            f"The variable {spec.key_env}, for the backend's key, is {'not a key' if key else 'not set'}.",
        )
    return {"authorization": f"Bearer {key}"}
