"""Written settings that have no effect as the rest is configured. The start and `pdp config check` tell of each.

Knows keys and their values, and nothing of what they configure. A key without a rule here always has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from pdp.config.identity import IdentitySettings
from pdp.config.origins import Key, key_text
from pdp.config.section import is_loopback
from pdp.config.settings import Settings

Rule = Callable[[Settings, Key], str]
"""Function of the settings and a written key: the reason why the key has no effect; empty if it has one."""
QUICK_ENGINES: Final = frozenset({"cel", "grants", "allow_all"})
"""Engines of this package that answer faster than Redis."""


def idle_settings(settings: Settings) -> Iterator[tuple[Key, str]]:
    """Yield each written key without an effect, and a message that names the key and the reason."""
    for key in _written((), settings.model_dump(exclude_unset=True)):
        rule = next((rule for pattern, rule in RULES.items() if _matches(pattern, key)), None)
        if rule and (reason := rule(settings, key)):
            yield key, f"`{key_text(key)}` has no effect: {reason}"


def _written(key: Key, value: Any) -> Iterator[Key]:
    """Yield the keys that hold no section."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _written((*key, name), below)
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        for place, below in enumerate(value):
            yield from _written((*key, place), below)
    elif value is not None:
        yield key


def _matches(pattern: str, key: Key) -> bool:
    """Tell whether a key is the one of a pattern, or below it. `*` stands for a name of a map or a place of a list."""
    parts = pattern.split(".")
    return len(parts) <= len(key) and all(
        part in {"*", str(name)} for part, name in zip(parts, key[: len(parts)], strict=True)
    )


def _engines(settings: Settings) -> set[str]:
    return {engine for authority in settings.authorities.values() for engine in authority.engines}


def _slow_engines(settings: Settings) -> set[str]:
    """Return the engines whose verdicts may take longer than a look-up."""
    scopes = settings.policies.scopes
    quick = QUICK_ENGINES if scopes.read_resolver or scopes.write_resolver else QUICK_ENGINES | {"scopes"}
    return _engines(settings) - quick


def _without_redis(settings: Settings, key: Key) -> str:
    cache = settings.cache
    if cache.redis is None:
        return "`cache.redis` is not set"
    if cache.redis_for == "none":
        return "" if key[-1] == "redis_for" else "`cache.redis_for` is `none`, so Redis is never asked"
    if cache.redis_for == "auto" and not _slow_engines(settings):
        engines = ", ".join(sorted(_engines(settings)))
        return (
            f"`cache.redis_for: auto` keeps no verdicts of {engines}, which answer faster than Redis: "
            "write `all` to share theirs, too"
        )
    return ""


def _redis_password(settings: Settings, key: Key) -> str:
    if reason := _without_redis(settings, key):
        return reason
    return "`cache.redis` has a password" if urlsplit(settings.cache.redis or "").password else ""


def _redis_ca(settings: Settings, key: Key) -> str:
    if reason := _without_redis(settings, key):
        return reason
    return "" if (settings.cache.redis or "").startswith("rediss") else "`cache.redis` is an address without TLS"


def _local_cache(settings: Settings, key: Key) -> str:
    shared = settings.cache.redis is not None and settings.cache.redis_for == "all"
    if shared or _slow_engines(settings):
        return ""
    return f"no verdict of {', '.join(sorted(_engines(settings)))} is kept, because each answers faster than the cache"


def _needs_engine(*names: str) -> Rule:
    def rule(settings: Settings, key: Key) -> str:
        if _engines(settings) & {*names}:
            return ""
        return f"no authority has the engine {' or '.join(f'`{name}`' for name in names)}"

    return rule


def _needs_rules(settings: Settings, key: Key) -> str:
    return "" if settings.policies.forbid else _needs_engine("cel")(settings, key)


def _needs_principals(settings: Settings, key: Key) -> str:
    stated = settings.identity.callers[str(key[2])].may_assert
    return "" if "principals" in stated else "the caller may not assert `principals`, so it names nobody"


def _rules(settings: Settings, key: Key) -> str:
    """Return no reason for an empty list: it says that there are no rules."""
    return _needs_engine("cel")(settings, key) if settings.policies.rules else ""


def _engine_options(settings: Settings, key: Key) -> str:
    return _needs_engine(str(key[2]))(settings, key)


def _resolver_time(settings: Settings, key: Key) -> str:
    scopes = settings.policies.scopes
    if reason := _needs_engine("scopes")(settings, key):
        return reason
    return "" if scopes.read_resolver or scopes.write_resolver else "no resolver is set"


def _combination(settings: Settings, key: Key) -> str:
    count = len(settings.authorities[str(key[1])].engines)
    return "the authority has one engine, so there is nothing to combine" if count == 1 else ""


def _needs_database(settings: Settings, key: Key) -> str:
    return "`store.url` is a world file, which is read once" if settings.store.world_file() else ""


def _needs_audit(settings: Settings, key: Key) -> str:
    return "" if settings.audit.sinks else "`audit.sinks` is empty, so no record is written"


def _needs_audit_files(settings: Settings, key: Key) -> str:
    if reason := _needs_audit(settings, key):
        return reason
    return "" if settings.audit.folder else "no entry of `audit.sinks` is a `file`"


def _needs_socket(settings: Settings, key: Key) -> str:
    return "" if settings.server.unix else "`server.unix` is not set"


def _sink_tls(settings: Settings, key: Key) -> str:
    sink = settings.audit.sinks[int(key[2])]
    address = sink.http.url if sink.http else sink.otlp.endpoint if sink.otlp else ""
    return "" if address.startswith("https:") else "the receiver is an address without TLS"


def _sink_insecure(settings: Settings, key: Key) -> str:
    sink = settings.audit.sinks[int(key[2])]
    url = urlsplit(sink.http.url if sink.http else sink.otlp.endpoint if sink.otlp else "")
    safe = url.scheme == "https" or is_loopback(url.hostname or "")
    return "the receiver is on this machine, or has TLS" if safe else ""


def _source_tls(settings: Settings, key: Key) -> str:
    source = settings.policies.source
    return "" if source is None or source.place.startswith("https:") else "the source is an address without TLS"


def _source_of_git(settings: Settings, key: Key) -> str:
    source = settings.policies.source
    return "a source of `git` is on this machine" if source and source.kind == "git" else ""


def _catalog_tls(settings: Settings, key: Key) -> str:
    catalog = settings.warehouses[str(key[1])].catalog
    return "" if catalog is None or catalog.uri.startswith("https:") else "the catalog is an address without TLS"


def _provider_tls(settings: Settings, key: Key) -> str:
    provider = settings.identity.providers[str(key[2])]
    places = [each.jwks or each.issuer for each in provider.each_issuer]
    return "" if any(place.startswith("https:") for place in places) else "its keys come by no https"


def _discovery(settings: Settings, key: Key) -> str:
    given = all(each.jwks for each in settings.identity.providers[str(key[2])].each_issuer)
    return "`jwks` is set, so no document of the issuer is read" if given else ""


def _key_server(settings: Settings, key: Key) -> str:
    given = all(each.is_file for each in settings.identity.providers[str(key[2])].each_issuer)
    return "its keys are in a file" if given else ""


def _outgoing_proxy(settings: Settings, key: Key) -> str:
    return "" if settings.outgoing.proxy else "`outgoing.proxy` is not set: beside `HTTPS_PROXY` counts `NO_PROXY`"


def _policy_folder(settings: Settings, key: Key) -> str:
    return "the files come from `policies.source`" if settings.policies.source else ""


RULES: Final[Mapping[str, Rule]] = {
    "audit.compress": _needs_audit_files,
    "audit.durability": _needs_audit,
    "audit.hmac_key": _needs_audit_files,
    "audit.hmac_key_file": _needs_audit_files,
    "audit.mask": _needs_audit,
    "audit.max_waiting_bytes": _needs_audit,
    "audit.on_full": _needs_audit,
    "audit.sample_allows": _needs_audit,
    "audit.segment_mib": _needs_audit_files,
    "audit.segment_seconds": _needs_audit_files,
    "audit.sinks.*.http.ca": _sink_tls,
    "audit.sinks.*.http.insecure": _sink_insecure,
    "audit.sinks.*.otlp.ca": _sink_tls,
    "audit.sinks.*.otlp.insecure": _sink_insecure,
    "authorities.*.combine": _combination,
    "cache.local_entries": _local_cache,
    "cache.mac_key": _without_redis,
    "cache.password": _redis_password,
    "cache.redis": _without_redis,
    "cache.redis_for": _without_redis,
    "cache.timeout_ms": _without_redis,
    "cache.tls_ca": _redis_ca,
    "cache.ttl_seconds": _local_cache,
    "identity.callers.*.empty": _needs_principals,
    "identity.cel_roles": _needs_rules,
    "identity.providers.*.ca_file": _provider_tls,
    "identity.providers.*.jwks_hosts": _discovery,
    "identity.providers.*.jwks_token_file": _key_server,
    "outgoing.no_proxy": _outgoing_proxy,
    "policies.cedar": _needs_engine("cedar"),
    "policies.cel_extensions": _needs_rules,
    "policies.engines.*": _engine_options,
    "policies.folder": _policy_folder,
    "policies.profiles": _needs_rules,
    "policies.rules": _rules,
    "policies.scopes.resolver_seconds": _resolver_time,
    "policies.scopes": _needs_engine("scopes"),
    "policies.source.ca": _source_tls,
    "policies.source.redirect_hosts": _source_of_git,
    "server.unix_access": _needs_socket,
    "store.max_staleness_seconds": _needs_database,
    "store.seed": _needs_database,
    "store.wait_seconds": _needs_database,
    "warehouses.*.catalog.ca_file": _catalog_tls,
}
"""Key, or section of keys -> the rule that tells whether a written key has no effect. The first that fits counts."""


def unstated_notices(identity: IdentitySettings, read: Collection[str], mapped: Collection[str]) -> Iterator[str]:
    """Yield a notice for each caller that names principals without evidence that policies read.

    `read` is the evidence of forbids of CEL, `mapped` that of policies which see roles by a `role_map` alone.
    """
    has_maps = any(provider.role_map for provider in identity.providers.values())
    asked = {name.partition(".")[0] for name in (*read, *(each for each in mapped if has_maps or each != "roles"))}
    for name, caller in identity.callers.items():
        lacking = sorted(asked - {*caller.may_assert, *caller.empty}) if "principals" in caller.may_assert else []
        if lacking:
            kinds = ", ".join(lacking)
            yield (
                f"caller `{name}` may not assert {kinds}, which policies read: unknown for its principals, so forbids "
                f"on them deny, and masks and restrictive policies hide; add them to `identity.callers.{name}."
                f"may_assert`, or write `identity.callers.{name}.empty: [{kinds}]` if its principals have none"
            )
