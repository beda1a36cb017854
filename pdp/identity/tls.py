"""Certificates: those of the servers, the trust of clients, and the names in client certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import msgspec

from pdp.config.settings import Settings
from pdp.errors import ConfigError


class Certificates(msgspec.Struct, frozen=True):
    """PEM texts of a service, read once at start."""

    cert: bytes
    key: bytes
    client_ca: bytes | None


def read_certificates(settings: Settings) -> Certificates | None:
    """Return the certificates of `server.tls`, None if not configured; raise ConfigError if a file cannot be read."""
    tls = settings.server.tls
    if tls.cert is None or tls.key is None:
        return None
    client_ca = _read(settings.path, "client_ca", tls.client_ca) if tls.client_ca else None
    return Certificates(_read(settings.path, "cert", tls.cert), _read(settings.path, "key", tls.key), client_ca)


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of HTTP, None if not configured; raise ConfigError.

    With `client_ca`, the server asks for client certificates. A certificate is optional but must be valid.
    """
    tls = settings.server.tls
    if tls.cert is None or tls.key is None:
        return None
    read_certificates(settings)  # a file that cannot be read is named
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.path(tls.cert), settings.path(tls.key), password=_no_password)
    except (OSError, ValueError) as error:
        raise _unusable(error, f"`server.tls.cert`: `{tls.cert}` with `server.tls.key`: `{tls.key}`") from None
    if tls.client_ca:
        try:
            context.load_verify_locations(settings.path(tls.client_ca))
        except (OSError, ValueError) as error:
            raise _unusable(error, f"`server.tls.client_ca`: `{tls.client_ca}`") from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(settings: Settings) -> ssl.SSLContext:
    """Return the TLS context of a client, with trust in this machine's authorities and the service's certificate."""
    context = ssl.create_default_context()
    if cert := settings.server.tls.cert:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(settings.path(cert))
        except (OSError, ValueError) as error:
            raise _unusable(error) from None
    return context


@lru_cache(maxsize=256)
def names_of_certificate(text: bytes) -> frozenset[str]:
    """Return the names of a verified certificate, PEM or DER; no names for a certificate with a syntax error."""
    from pdp.identity.certificate_names import read_names  # noqa: PLC0415  cryptography takes 9 MB, clients rarely have one

    return read_names(text)


def _unusable(error: Exception, what: str = "`server.tls`") -> ConfigError:
    cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return ConfigError(f"{what} cannot be used: {cause}")


def _no_password() -> str:
    raise ValueError("the private key is encrypted")


def _read(path: Callable[[str], Path], key: str, file: str) -> bytes:
    try:
        return path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"`server.tls.{key}`: cannot read `{file}`: {error.strerror}") from None
