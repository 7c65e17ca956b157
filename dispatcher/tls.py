"""How connections to backends are secured."""

from __future__ import annotations

import ssl

from fairlane.errors import InvalidRequest
from fairlane.settings import Settings


def tls_context(settings: Settings) -> ssl.SSLContext:
    """The system's authorities, or those of `backend_ca_file`; with a certificate of our own if one is configured.

    Raises InvalidRequest if a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=settings.backend_ca_file)
        if settings.backend_cert_file:
            context.load_cert_chain(settings.backend_cert_file, settings.backend_key_file)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidRequest(f"FAIRLANE_BACKEND_CA_FILE, _CERT_FILE or _KEY_FILE cannot be used: {error}") from error
    return context
