"""Scopes engine from settings: permission files to policies of a bundle, and policies to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from pdp.config.policy_files import FileKey, policy_files
from pdp.config.references import name_check
from pdp.config.settings import Settings
from pdp.engines.custom import find_entry, load_entry, loaded_package, missing_entry, require_recorded
from pdp.engines.engine import Engine
from pdp.engines.engine_types import PolicySources
from pdp.engines.guarded import AwaitedEngine
from pdp.engines.scopes.engine import ScopesEngine, load_entries
from pdp.engines.scopes.permissions import READ, Scope, parse_entries
from pdp.engines.scopes.resolvers import RESOLVERS, Resolver, ResolvingScopes
from pdp.errors import ConfigError
from pdp.model.redaction import Redactor

KEY: Final[FileKey] = "scopes.permissions"


def read_permissions(settings: Settings) -> PolicySources:
    """Return the entries of the configured files; raise ConfigError or PolicyError."""
    files = policy_files(settings, KEY)
    with files.naming_key():
        entries = load_entries(files.paths, name_check(settings))
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
    found = _resolvers(names)
    code = _digest_of(found)
    require_recorded("policies.scopes", sources.get("resolverDigest"), code)
    digest = sha256(f"{engine.digest} {code}".encode()).hexdigest()
    resolvers = {scope: (each.name, each.function) for scope, each in found.items()}
    seconds = settings.policies.scopes.resolver_seconds
    return AwaitedEngine(
        engine.name, ResolvingScopes(engine, resolvers, Redactor(settings.audit.mask)), digest, seconds
    )


def describe_scopes(sources: PolicySources, engine: Engine) -> PolicySources:
    """Return the policies with the digest of the resolvers, if there are resolvers."""
    names = sources.get("resolvers")
    return {**sources, "resolverDigest": _digest_of(_resolvers(names))} if names else sources


class _InstalledResolver(NamedTuple):
    name: str
    package: str
    function: Resolver


def _resolvers(names: Mapping[Scope, str]) -> dict[Scope, _InstalledResolver]:
    return {scope: _InstalledResolver(name, *_resolver(scope, name)) for scope, name in names.items()}


def _digest_of(resolvers: Mapping[Scope, _InstalledResolver]) -> str:
    """Return the digest of the packages of resolvers. A resolver with policies of its own has a `digest`, too."""
    known = [(scope, each.name, each.package, _own_digest(each)) for scope, each in sorted(resolvers.items())]
    return sha256(msgspec.json.encode(known)).hexdigest()


def _own_digest(resolver: _InstalledResolver) -> str:
    own = getattr(resolver.function, "digest", "")
    if type(own) is not str:
        raise ConfigError(f"`policies.scopes`: resolver `{resolver.name}`: `digest` is a text")
    return own


def _resolver(scope: Scope, name: str) -> tuple[str, Resolver]:
    """Return the package and the function of a resolver; raise ConfigError."""
    key = f"policies.scopes.{'read' if scope == READ else 'write'}_resolver"
    entry = find_entry(RESOLVERS, name, key)
    if entry is None:
        raise ConfigError(f"`{key}`: {missing_entry(RESOLVERS, name)}")
    resolver: Resolver = load_entry(entry, key)
    if not callable(resolver):
        raise ConfigError(f"`{key}`: `{entry.value}` is no function")
    return loaded_package(entry), resolver
