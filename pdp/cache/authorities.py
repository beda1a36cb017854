"""Certificates of the authorities that sign for Redis."""

from __future__ import annotations

import ssl

from pdp.config.settings import Settings


def read_authorities(settings: Settings) -> str | None:
    """Return the path of `cache.tls_ca`, None if not configured; raise ConfigError for a file that cannot be used."""
    name = settings.cache.tls_ca
    if name is None:
        return None
    path = settings.path(name)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise settings.error(("cache", "tls_ca"), f"`{name}` cannot be used: {cause}") from None
    return str(path)
