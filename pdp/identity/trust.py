"""Which trusted engines a token's identity is. Pure: what it takes comes from a verified token or a believed caller."""

from __future__ import annotations

from collections.abc import Mapping

from pdp.config import identity as identity_config
from pdp.model.checks import TokenIdentity, TrustedEngine


def trusted_engines_of(
    identity: TokenIdentity, configured: Mapping[str, identity_config.TrustedEngineSettings]
) -> tuple[TrustedEngine, ...]:
    """The engines whose block for the token's own provider names one of its audiences, or its subject."""
    return tuple(
        TrustedEngine(name, engine.type, engine.owner_property, identity.idp, engine.enforces_row_access)
        for name, engine in configured.items()
        if (known := engine.identities.get(identity.idp))
        and (identity.subject in known.subjects or not set(identity.audiences).isdisjoint(known.audiences))
    )
