"""Certificates: those of the servers, the trust of clients, and the names in client certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from pdp.config.settings import Settings
from pdp.errors import ConfigError

_QUALIFIED: Final = frozenset("=:")
"""Signs of other forms of names. A common name with such a sign could be taken for a name of another form."""


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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.path(tls.cert), settings.path(tls.key), password=_no_password)
        if tls.client_ca:
            context.load_verify_locations(settings.path(tls.client_ca))
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ValueError) as error:
        raise _unusable(error) from None
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
    """Return the names of a verified certificate, PEM or DER: whole subject, common name, DNS and URI names.

    Return no names for a certificate with a syntax error.
    """
    load = x509.load_pem_x509_certificate if text.startswith(b"-----") else x509.load_der_x509_certificate
    try:
        return frozenset(_names_of(load(text)))
    except ValueError:
        return frozenset()


def _names_of(certificate: x509.Certificate) -> Iterator[str]:
    yield certificate.subject.rfc4514_string()
    for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME):
        text = str(name.value)
        if _QUALIFIED.isdisjoint(text):
            yield text
    try:
        others = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    except x509.ExtensionNotFound:
        return
    if isinstance(others, x509.SubjectAlternativeName):
        yield from (f"DNS:{name}" for name in others.get_values_for_type(x509.DNSName))
        yield from (f"URI:{name}" for name in others.get_values_for_type(x509.UniformResourceIdentifier))


def _unusable(error: Exception) -> ConfigError:
    cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return ConfigError(f"`server.tls` cannot be used: {cause}")


def _no_password() -> str:
    raise ValueError("the private key is encrypted")


def _read(path: Callable[[str], Path], key: str, file: str) -> bytes:
    try:
        return path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"`server.tls.{key}`: cannot read `{file}`: {error.strerror}") from None
