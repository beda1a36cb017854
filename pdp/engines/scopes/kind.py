"""Scopes engine from settings: permission files to policies of a bundle, and policies to the engine."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from pdp.config.policy_files import FileKey, policy_files
from pdp.config.settings import Settings
from pdp.engines.custom.installed import find_entry, load_entry
from pdp.engines.engine import Engine
from pdp.engines.guarded import AwaitedEngine
from pdp.engines.kinds import PolicySources
from pdp.engines.scopes.document import parse_entries, read_entries
from pdp.engines.scopes.engine import ScopesEngine
from pdp.engines.scopes.questions import READ
from pdp.engines.scopes.resolvers import RESOLVERS, Resolver, ResolvingScopes
from pdp.errors import ConfigError

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
    rules = settings.policies.scopes
    found = {"permissions": msgspec.to_builtins(entries), "strict": rules.strict}
    resolvers = {"readPermission": rules.read_resolver, "writePermission": rules.write_resolver}
    named = {scope: name for scope, name in resolvers.items() if name}
    return {**found, "resolvers": named} if named else found


def build_scopes(settings: Settings, sources: PolicySources) -> Engine:
    """Return the engine of permissions; raise PolicyError."""
    entries = [each.entry for each in parse_entries(sources.get("permissions"))]
    engine = ScopesEngine(entries, settings.identity.cel_provider, strict=bool(sources.get("strict")))
    names = sources.get("resolvers")
    if not names:
        return engine
    resolvers = {scope: (name, _resolver(scope, name)) for scope, name in names.items()}
    digest = sha256(msgspec.json.encode((engine.digest, names), order="sorted")).hexdigest()
    seconds = settings.policies.scopes.resolver_seconds
    return AwaitedEngine(engine.name, ResolvingScopes(engine, resolvers), digest, seconds)


def _resolver(scope: str, name: str) -> Resolver:
    key = f"policies.scopes.{'read' if scope == READ else 'write'}_resolver"
    entry = find_entry(RESOLVERS, name, key)
    if entry is None:
        raise ConfigError(f"`{key}`: no installed package has the entry point `{name}` in `{RESOLVERS}`")
    resolver: Resolver = load_entry(entry, key)
    if not callable(resolver):
        raise ConfigError(f"`{key}`: `{entry.value}` is no function")
    return resolver
