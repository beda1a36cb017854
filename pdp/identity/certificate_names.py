"""Names in client certificates. Loaded with the first certificate of a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

_QUALIFIED: Final = frozenset("=:")
"""Signs of other forms of names. A common name with such a sign could be taken for a name of another form."""

_UNREADABLE: Final = (ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension, x509.InvalidVersion)
"""Errors of a certificate's content. Only the first is a ValueError."""


def read_names(text: bytes) -> frozenset[str]:
    """Return the names of a verified certificate, PEM or DER: whole subject, common name, DNS and URI names.

    Return no names for a certificate with a syntax error, or with a kind of name that nobody can read: the names that
    can be read might not be all that the authority meant.
    """
    load = x509.load_pem_x509_certificate if text.startswith(b"-----") else x509.load_der_x509_certificate
    try:
        return frozenset(_names_of(load(text)))
    except _UNREADABLE:
        return frozenset()


def read_end(text: bytes) -> float:
    """Return the end of the validity of the first certificate in a PEM text, in seconds since 1970; 0 if unreadable."""
    try:
        return x509.load_pem_x509_certificate(text).not_valid_after_utc.timestamp()
    except _UNREADABLE:
        return 0.0


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
