"""Files of policies: a pattern without a file, or a file without a policy, opens nothing and stops the start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.service.serving import settings_of

from pdp.app.assembly import build_bundle, read_rules
from pdp.app.service import Service
from pdp.config.load import load_settings
from pdp.decision.active_policies import ActivePolicies
from pdp.engines.cel.rules import RuleSet
from pdp.errors import ConfigError, PdpError

RULES = {
    "rules": "nessie.server.authorization.rules.a=true",
    "forbid": "nessie.server.authorization.rules.f=true",
    "row_access": "policies: [{id: p, table: lake.s.t, grantees: [allUsers], filter: x = 1}]",
}
EMPTY = {"rules": "# nothing", "forbid": "# nothing", "row_access": "views: {}"}
FILES = {"rules": "a.properties", "forbid": "f.properties", "row_access": "r.yaml"}
KEYS = list(RULES)
NO_RULE_SETS = RuleSet((), {}, ()), RuleSet((), {}, ())


def bundle_of(folder: Path, key: str, entry: Any) -> ActivePolicies:
    policies: dict[str, Any] = {"rules": []} | {key: [entry]}
    settings = settings_of({"policies": policies}, folder)
    return build_bundle(settings, *read_rules(settings))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("allowed", [False, True])
def test_a_pattern_that_matches_no_file(tmp_path: Path, key: str, allowed: bool) -> None:
    for pattern in ("none/*.yaml", "none.yaml"):
        entry = {"path": pattern, "allow_empty": allowed}
        if allowed:
            bundle_of(tmp_path, key, entry)
            continue
        for form in (entry, pattern, {"path": pattern}):
            with pytest.raises(PdpError) as raised:
                bundle_of(tmp_path, key, form)
            assert f"`policies.{key}`" in str(raised.value)
            assert pattern in str(raised.value)


@pytest.mark.parametrize("key", KEYS)
def test_an_entry_of_an_unknown_key_names_the_known_ones(tmp_path: Path, key: str) -> None:
    with pytest.raises(PdpError, match="`allow_empty`, `path`"):
        bundle_of(tmp_path, key, {"files": "x.yaml"})


@pytest.mark.parametrize("key", KEYS)
def test_a_file_that_holds_no_policy(tmp_path: Path, key: str) -> None:
    file = tmp_path / FILES[key]
    for text in (EMPTY[key], ""):
        file.write_text(text)
        with pytest.raises(ConfigError, match=rf"`policies\.{key}`: `{file}` holds no "):
            bundle_of(tmp_path, key, file.name)
        bundle_of(tmp_path, key, {"path": file.name, "allow_empty": True})
    file.write_text(RULES[key])
    bundle_of(tmp_path, key, file.name)
    (tmp_path / f"x{file.suffix}").write_text(EMPTY[key])
    with pytest.raises(ConfigError, match=r"/x\..* holds no "):
        bundle_of(tmp_path, key, f"*{file.suffix}")


def test_permission_files_are_read_where_an_authority_names_scopes(tmp_path: Path) -> None:
    policies: dict[str, Any] = {"rules": [], "scopes": {"permissions": ["none/*"]}}
    unused = build_bundle(settings_of({"policies": policies}, tmp_path), *NO_RULE_SETS)
    assert any("`policies.scopes.permissions` decides nothing" in warning for warning in unused.warnings)
    config: dict[str, Any] = {"policies": policies, "authorities": {"default": {"engines": ["scopes"]}}}
    for text, message in (
        (None, "matches no file"),
        ("[]", "holds no entry"),
        ("{name: svc}", r"p\.yaml:1:1: expected `array`"),
        ("[{name: svc, permissions: {Querry: []}}]", r"p\.yaml:1:27: .*unknown field `Querry`"),
        ("[{name: svc, permissions: {Query: [{catalog: hive, schema: 1}]}}]", r"p\.yaml:1:60: expected `str`"),
        ("[{name: svc\n", r"p\.yaml:2:1: does not parse"),
    ):
        if text is not None:
            (tmp_path / "p.yaml").write_text(text)
            policies["scopes"] = {"permissions": ["p.yaml"]}
        with pytest.raises(PdpError, match=message) as raised:
            build_bundle(settings_of(config, tmp_path), *NO_RULE_SETS)
        assert "`policies.scopes.permissions`" in str(raised.value)


@pytest.mark.parametrize("key", KEYS)
def test_the_service_does_not_start(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"`policies\.{key}`: `none/\*` matches no file"):
        Service(settings_of({"policies": {"rules": []} | {key: ["none/*"]}}, tmp_path))


def test_the_error_names_the_place_of_the_pattern(tmp_path: Path) -> None:
    (tmp_path / "f.properties").write_text(RULES["forbid"])
    (tmp_path / "pdp.yaml").write_text("policies:\n  rules: []\n  forbid:\n    - f.properties\n    - none/*.yaml\n")
    place = re.escape(f"({tmp_path}/pdp.yaml:5:7)")
    with pytest.raises(ConfigError, match=rf"^`policies\.forbid`: .*{place}$"):
        read_rules(load_settings(tmp_path / "pdp.yaml", (), {}))
    with pytest.raises(ConfigError, match=r"^`policies\.forbid`: .* \(PDP__POLICIES__FORBID\)$"):
        read_rules(load_settings(tmp_path / "pdp.yaml", (), {"PDP__POLICIES__FORBID": "[none/*]"}))
    with pytest.raises(ConfigError, match=r"^`policies\.forbid`: .* \(--set policies\.forbid\)$"):
        read_rules(load_settings(tmp_path / "pdp.yaml", ("policies.forbid=[none/*]",), {}))


def test_the_default_rules_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "pdp.yaml").write_text("{}")
    settings = load_settings(tmp_path / "pdp.yaml", (), {})
    rules = read_rules(settings)
    assert any("no rules are loaded" in warning for warning in build_bundle(settings, *rules).warnings)


@pytest.mark.parametrize("entry", [5, None, {}, {"path": ""}, "", {"path": "x", "allow_emty": True}, ["x"]])
def test_an_entry_that_is_none(tmp_path: Path, entry: Any) -> None:
    with pytest.raises(ConfigError, match=r"`policies\.forbid\.0"):
        settings_of({"policies": {"forbid": [entry]}}, tmp_path)
