"""Signatures of tokens: the check of one token with one public key. Knows no provider's keys."""

from __future__ import annotations

from typing import Any, Final

import jwt

from pdp.config.identity import ProviderSettings
from pdp.errors import Unauthenticated

_REQUIRED: Final = {"require": ["exp", "iss"], "verify_aud": False, "verify_sub": False, "verify_jti": False}
_REFUSALS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not yet valid"),
    (jwt.InvalidIssuedAtError, "the token is not yet valid"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim that it must have"),
    (jwt.InvalidSignatureError, "the token's signature does not verify"),
    (jwt.PyJWTError, "the token cannot be used"),
)
"""Library error -> our message. The messages quote no part of the token."""


def check_signature(text: str, key: Any, algorithm: str, provider: ProviderSettings) -> None:
    """Check signature, issuer and times of a token; raise Unauthenticated."""
    try:
        jwt.decode(
            text,
            key,
            algorithms=[algorithm],
            issuer=provider.issuer,
            leeway=provider.leeway_seconds,
            options=_REQUIRED,  # type: ignore[arg-type]
        )
    except (jwt.PyJWTError, OverflowError, ValueError, TypeError) as error:
        message = next((message for kind, message in _REFUSALS if isinstance(error, kind)), "the token cannot be used")
        raise Unauthenticated(message) from None
