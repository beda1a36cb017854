"""Certificates: those of the servers, the trust of clients, and the names in client certificates."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pdp.config.regular_files import read_regular
from pdp.config.server import TlsSettings
from pdp.config.settings import Settings
from pdp.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509


class Certificates(msgspec.Struct, frozen=True):
    """PEM texts of a service, from one moment."""

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


def checked_certificates(settings: Settings) -> Certificates | None:
    """Return usable certificates of `server.tls`, None if not configured; raise ConfigError with the names of files."""
    certificates = read_certificates(settings)
    if certificates:
        make_context(certificates, settings.server.tls)
    return certificates


def make_context(certificates: Certificates, tls: TlsSettings | None = None) -> ssl.SSLContext:
    """Return the TLS context of HTTP; raise ConfigError with the names of the files in `tls`.

    With `client_ca`, the server asks for client certificates. A certificate is optional but must be valid. Sessions are
    then never resumed: new authorities would not verify a resumed session.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    names = tls or TlsSettings()
    try:
        with _file_in_memory(certificates.cert) as cert, _file_in_memory(certificates.key) as key:
            context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise _unusable(error, f"`server.tls.cert`: `{names.cert}` with `server.tls.key`: `{names.key}`") from None
    if certificates.client_ca is not None:
        try:
            with _file_in_memory(certificates.client_ca) as authorities:
                context.load_verify_locations(authorities)
        except (OSError, ValueError) as error:
            raise _unusable(error, f"`server.tls.client_ca`: `{names.client_ca}`") from None
        context.verify_mode = ssl.CERT_OPTIONAL
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


class LiveCertificates:
    """Certificates of the servers, replaced as a whole while connections stay.

    A listener keeps its context for ever. A failed load leaves a context without a usable key, so the context of the
    listener is never loaded again: each handshake is given the newest context.
    """

    def __init__(self, certificates: Certificates) -> None:
        """Take the first certificates; raise ConfigError."""
        self.current = certificates
        self.listening = self._newest = make_context(certificates)
        self.listening.sni_callback = self._choose  # called for every handshake, also without a name

    def use(self, certificates: Certificates, context: ssl.SSLContext) -> None:
        """Begin handshakes with these certificates and their context from now on."""
        self.current, self._newest = certificates, context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        if self._newest is not context:
            connection.context = self._newest


@contextlib.contextmanager
def _file_in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file with some content, which is on no disk. OpenSSL reads keys from files alone."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


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
    return read_names(text)


def _unusable(error: Exception, what: str = "`server.tls`") -> ConfigError:
    cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return ConfigError(f"{what} cannot be used: {cause}")


def _no_password() -> str:
    raise ValueError("the private key is encrypted")


def _read(path: Callable[[str], Path], key: str, file: str) -> bytes:
    try:
        return read_regular(path(file))
    except OSError as error:
        raise ConfigError(f"`server.tls.{key}`: cannot read `{file}`: {error.strerror}") from None


_QUALIFIED: Final = frozenset("=:")
"""Signs of other forms of names. A common name with such a sign could be taken for a name of another form."""


def _unreadable() -> tuple[type[Exception], ...]:
    """Return the errors of a certificate's content. Only the first is a ValueError."""
    from cryptography import x509  # noqa: PLC0415  cryptography takes 9 MB

    return ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension, x509.InvalidVersion


def read_names(text: bytes) -> frozenset[str]:
    """Return the names of a verified certificate, PEM or DER: whole subject, common name, DNS and URI names.

    Return no names for a certificate with a syntax error, or with a kind of name that nobody can read: the names that
    can be read might not be all that the authority meant.
    """
    from cryptography import x509  # noqa: PLC0415  cryptography takes 9 MB, clients rarely have one

    load = x509.load_pem_x509_certificate if text.startswith(b"-----") else x509.load_der_x509_certificate
    try:
        return frozenset(_names_of(load(text)))
    except _unreadable():
        return frozenset()


def read_end(text: bytes) -> float:
    """Return the end of the validity of the first certificate in a PEM text, in seconds since 1970; 0 if unreadable."""
    from cryptography import x509  # noqa: PLC0415  cryptography takes 9 MB, clients rarely have one

    try:
        return x509.load_pem_x509_certificate(text).not_valid_after_utc.timestamp()
    except _unreadable():
        return 0.0


def _names_of(certificate: x509.Certificate) -> Iterator[str]:
    from cryptography import x509  # noqa: PLC0415  as above
    from cryptography.x509.oid import ExtensionOID, NameOID  # noqa: PLC0415  as above

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
