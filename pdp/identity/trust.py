"""Trusted engines of a token. The token is verified, or asserted by a caller that may assert callers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pdp.config import identity as identity_config
from pdp.model.question import TokenIdentity, TrustedEngine


def trusted_engines_of(
    identity: TokenIdentity, configured: Mapping[str, identity_config.TrustedEngineSettings]
) -> tuple[TrustedEngine, ...]:
    """Return the engines with the token's subject or an audience of the token in their settings for the provider."""
    return tuple(
        TrustedEngine(
            name,
            engine.type,
            engine.owner_property,
            identity.idp,
            engine.enforces_row_access,
            engine.delegated_storage == "as_owner",
        )
        for name, engine in configured.items()
        if (known := engine.identities.get(identity.idp))
        and (identity.subject in known.subjects or not set(identity.audiences).isdisjoint(known.audiences))
    )
