"""Scopes engine from settings: permission files to policies of a bundle, and policies to the engine."""

from __future__ import annotations

from typing import Final

import msgspec

from pdp.config.policy_files import FileKey, policy_files
from pdp.config.settings import Settings
from pdp.engines.engine import Engine
from pdp.engines.kinds import PolicySources
from pdp.engines.scopes.document import parse_entries, read_entries
from pdp.engines.scopes.engine import ScopesEngine

KEY: Final[FileKey] = "scopes.permissions"


def read_permissions(settings: Settings) -> PolicySources:
    """Return the entries of the configured files; raise ConfigError or PolicyError."""
    files = policy_files(settings, KEY)
    with files.naming_key():
        entries = list(read_entries(files.paths))
    files.require_content({each.file for each in entries})
    return sources_of([each.entry for each in entries], settings)


def sources_of(entries: object, settings: Settings) -> PolicySources:
    """Return entries with the settings that decide beside them, as policies of a bundle."""
    return {
        "permissions": msgspec.to_builtins(entries),
        "strict": settings.policies.scopes.strict,
    }


def build_scopes(settings: Settings, sources: PolicySources) -> Engine:
    """Return the engine of permissions; raise PolicyError."""
    entries = [each.entry for each in parse_entries(sources.get("permissions"))]
    return ScopesEngine(entries, settings.identity.cel_provider, strict=bool(sources.get("strict")))
