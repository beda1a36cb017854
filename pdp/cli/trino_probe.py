"""Probe of a service's Trino endpoint over HTTP, with the certificates of the settings."""

from __future__ import annotations

import http.client
from typing import Final
from urllib.parse import urlsplit

import msgspec

from pdp.config.settings import Settings
from pdp.identity.tls import client_context

_TIMEOUT_SECONDS: Final = 3.0


class _Error(msgspec.Struct):
    code: str
    message: str


class _ProbeErrorResponse(msgspec.Struct):
    error: _Error


def probe(settings: Settings, url: str) -> str:
    """Return why no service answers Trino at the URL of an endpoint; empty if a service does.

    The probe sends an empty request. The service authenticates the sender before refusing the request, so the refusal
    shows the sender's access. The service decides and records nothing.
    """
    try:
        status, body = _post(settings, url)
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or type(error).__name__
        return f"no answer from {url}: {cause}"
    try:
        refusal = msgspec.json.decode(body, type=_ProbeErrorResponse).error
    except msgspec.DecodeError:
        return f"{url} is not this service: status {status}"
    if (status, refusal.code) == (400, "invalid_argument"):
        return ""
    if status == 401 and settings.server.tls.client_ca:
        return ""  # the service asks for a client certificate: Trino has one, this command has none
    return f"{url} refuses: {refusal.message}"


def _post(settings: Settings, url: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = client_context(settings)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=_TIMEOUT_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("POST", parts.path, b"{}", {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read(65_536)
    finally:
        connection.close()
