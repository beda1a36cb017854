"""Each written setting has an effect, or a message at the start: a test goes through all keys of the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from support.generators.setting_keys import NAME, setting_keys
from support.service.commands import run_pdp
from support.service.serving import serve_process

from pdp.config.idle_settings import RULES, idle_settings
from pdp.config.load import make_settings

CEDAR: Final = {"authorities": {"default": {"engines": ["cedar"]}}}
NO_AUDIT: Final[dict[str, Any]] = {"sinks": []}
FILE: Final = {"url": "file:world.json"}
PROVIDER = {"issuer": "i", "jwks": "http://127.0.0.1:1/keys"}
SOURCE: Final = {"http": "http://127.0.0.1:1/b", "unsigned": True}
REDIS: Final = {"redis": "redis://127.0.0.1", "redis_for": "all"}
STDOUT: Final = {"sinks": [{"stdout": True}]}
IDLE: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "audit.compress": ({"audit": {**NO_AUDIT, "compress": "gzip"}}, {"audit": {**STDOUT, "compress": "gzip"}}),
    "audit.durability": ({"audit": {**NO_AUDIT, "durability": "none"}},),
    "audit.hmac_key": ({"audit": {**STDOUT, "hmac_key": "k" * 40}},),
    "audit.hmac_key_file": ({"audit": {**STDOUT, "hmac_key_file": "key"}},),
    "audit.mask": ({"audit": {**NO_AUDIT, "mask": ["pin"]}},),
    "audit.max_waiting_bytes": ({"audit": {**NO_AUDIT, "max_waiting_bytes": 1 << 21}},),
    "audit.on_full": ({"audit": {**NO_AUDIT, "on_full": "drop"}},),
    "audit.sample_allows": ({"audit": {**NO_AUDIT, "sample_allows": {"x": {"rate": 0.5, "actions": ["read_data"]}}}},),
    "audit.segment_mib": ({"audit": {**STDOUT, "segment_mib": 3}},),
    "audit.segment_seconds": ({"audit": {**STDOUT, "segment_seconds": 3}},),
    "audit.sinks.*.http.ca": ({"audit": {"sinks": [{"http": {"url": "http://127.0.0.1:1", "spool": "s", "ca": "c"}}]}},),
    "audit.sinks.*.otlp.ca": (
        {"audit": {"sinks": [{"otlp": {"endpoint": "http://127.0.0.1:1", "spool": "s", "ca": "c"}}]}},
    ),
    "audit.sinks.*.http.insecure": (
        {"audit": {"sinks": [{"http": {"url": "https://a.example", "spool": "s", "insecure": True}}]}},
        {"audit": {"sinks": [{"http": {"url": "http://127.0.0.1:1", "spool": "s", "insecure": True}}]}},
    ),
    "audit.sinks.*.otlp.insecure": (
        {"audit": {"sinks": [{"otlp": {"endpoint": "https://a.example", "spool": "s", "insecure": True}}]}},
    ),
    "authorities.*.combine": ({"authorities": {"default": {"engines": ["grants"], "combine": "all"}}},),
    "cache.local_entries": ({"cache": {"local_entries": 5}},),
    "cache.mac_key": ({"cache": {"mac_key": "k" * 40}},),
    "cache.password": ({"cache": {"password": "p"}}, {"cache": {**REDIS, "redis": "redis://:q@127.0.0.1", "password": "p"}}),
    "cache.redis": (
        {"cache": {"redis": "redis://127.0.0.1"}}, {"cache": {"redis": "redis://127.0.0.1", "redis_for": "auto"}},
        {"cache": {"redis": "redis://127.0.0.1", "redis_for": "none"}, **CEDAR},
    ),
    "cache.redis_for": ({"cache": {"redis_for": "all"}},),
    "cache.timeout_ms": ({"cache": {"timeout_ms": 7}}, {"cache": {"timeout_ms": 7}, **CEDAR}),
    "cache.tls_ca": ({"cache": {"tls_ca": "ca"}}, {"cache": {**REDIS, "tls_ca": "ca"}}),
    "cache.ttl_seconds": ({"cache": {"ttl_seconds": 7}}, {"cache": {"ttl_seconds": 7, "redis": "redis://127.0.0.1"}}),
    "identity.callers.*.empty": ({"identity": {"callers": {"a": {"loopback": True, "empty": ["groups"]}}}},),
    "identity.cel_roles": ({"identity": {"cel_roles": "all"}, **CEDAR},),
    "policies.cedar": ({"policies": {"cedar": {"policies": ["a.cedar"]}}},),
    "identity.providers.*.ca_file": ({"identity": {"providers": {"oidc": {**PROVIDER, "ca_file": "c"}}}},),
    "identity.providers.*.jwks_hosts": ({"identity": {"providers": {"oidc": {**PROVIDER, "jwks_hosts": ["h"]}}}},),
    "identity.providers.*.jwks_token_file": (
        {"identity": {"providers": {"oidc": {"issuer": "i", "jwks": "keys.json", "jwks_token_file": "t"}}}},
    ),
    "outgoing.no_proxy": ({"outgoing": {"no_proxy": ["h"]}},),
    "policies.cel_extensions": ({"policies": {"cel_extensions": []}, **CEDAR},),
    "policies.engines.*": ({"policies": {"engines": {"mine": {"timeout_seconds": 1}}}},),
    "policies.folder": ({"policies": {"folder": "f", "source": SOURCE}},),
    "policies.profiles": ({"policies": {"profiles": ["prod"]}, **CEDAR},),
    "policies.rules": ({"policies": {"rules": ["r.yaml"]}, **CEDAR},),
    "policies.scopes.resolver_seconds": (
        {"policies": {"scopes": {"resolver_seconds": 2}}, "authorities": {"default": {"engines": ["scopes"]}}},
    ),
    "policies.scopes": ({"policies": {"scopes": {"strict": True}}},),
    "policies.source.ca": ({"policies": {"source": {**SOURCE, "ca": "ca"}}},),
    "policies.source.redirect_hosts": ({"policies": {"source": {"git": "g", "redirect_hosts": ["h"]}}},),
    "server.unix_access": ({"server": {"unix_access": "group"}},),
    "store.max_staleness_seconds": ({"store": {**FILE, "max_staleness_seconds": 5}},),
    "store.seed": ({"store": {**FILE, "seed": "s"}},),
    "store.wait_seconds": ({"store": {**FILE, "wait_seconds": 5}},),
    "warehouses.*.catalog.ca_file": ({"warehouses": {"lake": {"catalog": {"uri": "http://127.0.0.1:1", "ca_file": "c"}}}},),
}  # fmt: skip
"""Key with a rule -> configurations in which it has no effect."""
WORKING: Final[tuple[dict[str, Any], ...]] = (
    {"cache": {"local_entries": 5, "ttl_seconds": 7}, **CEDAR},
    {"cache": {**REDIS, "password": "p", "mac_key": "k" * 40, "timeout_ms": 7, "ttl_seconds": 7, "local_entries": 0}},
    {"cache": {"redis": "rediss://127.0.0.1", "tls_ca": "ca"}, **CEDAR},
    {"cache": {"redis": "redis://127.0.0.1"}, "authorities": {"default": {"engines": ["mine"]}}},
    {"audit": {"compress": "gzip", "durability": "none", "segment_mib": 3, "on_full": "drop", "mask": ["pin"]}},
    {"authorities": {"default": {"engines": ["cel", "grants"], "combine": "all"}}},
    {"policies": {"rules": ["r.yaml"], "profiles": ["prod"], "forbid": ["f.yaml"], "folder": "f"}},
    {"policies": {"profiles": ["prod"], "forbid": ["f.yaml"]}, **CEDAR},
    {"policies": {"cedar": {"policies": ["a.cedar"]}}, **CEDAR},
    {"policies": {"engines": {"mine": {"timeout_seconds": 1}}}, "authorities": {"default": {"engines": ["mine"]}}},
    {"policies": {"rules": []}, **CEDAR},
    {"server": {"unix": "s", "unix_access": "group"}},
    {"outgoing": {"proxy": "http://p:1", "no_proxy": ["h"], "ca_file": "c"}},
    {"identity": {"providers": {"oidc": {**PROVIDER, "jwks": "https://idp/keys", "ca_file": "c"}}}},
    {"store": {"seed": "s", "wait_seconds": 5, "max_staleness_seconds": 5}},
)
"""Configurations whose keys all have an effect."""


def star(key: str) -> tuple[str, ...]:
    return tuple("*" if part in (NAME, "0") else part for part in key.split("."))


def test_every_rule_is_of_a_key() -> None:
    """tests/config/test_setting_effects.py shows the effect of each key without a rule."""
    keys = {key.text() for key in setting_keys()}
    leaves = {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)}
    rules = [star(pattern) for pattern in RULES]
    assert all(any(star(key)[: len(rule)] == rule for key in leaves) for rule in rules), "a rule for no key"


def test_every_rule_has_a_configuration() -> None:
    assert IDLE.keys() == RULES.keys()


@pytest.mark.parametrize("pattern", IDLE)
def test_a_setting_without_effect_is_named_with_the_reason(tmp_path: Path, pattern: str) -> None:
    for config in IDLE[pattern]:
        found = {".".join(map(str, key)): message for key, message in idle_settings(make_settings(config, tmp_path))}
        parts = pattern.split(".")
        named = [
            key for key in found if all(part in ("*", name) for part, name in zip(parts, key.split("."), strict=False))
        ]
        assert named, (config, found)
        assert all(found[key].startswith(f"`{key}` has no effect: ") for key in named)


@pytest.mark.parametrize("config", WORKING)
def test_a_setting_with_an_effect_has_no_message(tmp_path: Path, config: dict[str, Any]) -> None:
    assert [*idle_settings(make_settings(config, tmp_path))] == []


@pytest.mark.process
def test_the_check_says_each_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pdp.yaml").write_text("policies: {rules: []}\ncache:\n  redis: redis://127.0.0.1:1\n")
    done = run_pdp("config", "check", cwd=tmp_path)
    (line,) = [line for line in done.stdout.splitlines() if "cache.redis" in line]
    assert line.startswith("pdp.yaml:3:")
    assert "warning: `cache.redis` has no effect: `cache.redis_for: auto` keeps no verdicts of cel, grants" in line


@pytest.mark.process
@pytest.mark.waits
@pytest.mark.parametrize("workers", [1, 2])
def test_the_start_says_each_once(tmp_path: Path, workers: int) -> None:
    (tmp_path / "pdp.yaml").write_text("policies: {rules: []}\ncache:\n  redis: redis://127.0.0.1:1\n")
    with serve_process(tmp_path, "-c", "pdp.yaml", "--workers", str(workers)) as process:
        (line,) = [line for line in process.stderr().splitlines() if "setting without effect" in line]
        assert json.loads(line)["key"] == "cache.redis"
