"""Rule files as Quarkus reads them: profiles, nested YAML, expressions, and keys that stop the load."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pdp.engines.cel.rules import load_rules
from pdp.errors import PolicyError

PREFIX = "nessie.server.authorization.rules."
VIEW = "op=='VIEW_REFERENCE' && ref=='main'"


def texts(folder: Path, name: str, text: str, *profiles: str) -> dict[str, str]:
    (folder / name).write_text(text)
    return dict(load_rules([folder / name], profiles=profiles or ("prod",)).texts)


def test_a_rule_of_the_profile_is_in_force(tmp_path: Path) -> None:
    text = f"{PREFIX}view=false\n%prod.{PREFIX}view={VIEW}\n%dev.{PREFIX}view=true\n%dev,test.{PREFIX}other=true\n"
    assert texts(tmp_path, "a.properties", text) == {"view": VIEW}
    assert texts(tmp_path, "a.properties", text, "dev") == {"view": "true", "other": "true"}
    assert texts(tmp_path, "a.properties", text, "staging") == {"view": "false"}


def test_rules_of_other_profiles_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.properties"
    path.write_text(f"{PREFIX}a=true\n%dev.{PREFIX}b=true\n%dev.{PREFIX}c=true\n%test.{PREFIX}d=true\n")
    assert [*map(str, load_rules([path]).warnings)] == [
        f"{path}:2:1: not in force under the profile `prod`: 2 of `%dev`, 1 of `%test`"
    ]


def test_yaml_is_nested_as_in_quarkus(tmp_path: Path) -> None:
    text = """
nessie:
  server:
    authorization:
      enabled: true
      type: CEL
      rules:
        plain: op == 'a'
        "dotted.id": |
          op == 'b'
        short: {~: op == 'c'}
        yes: true
        prod: op == 'plain'
  version: {store: {type: JDBC}}
branch: main
"%prod":
  nessie: {server: {authorization: {rules: {prod: "ref == '${branch}'"}}}}
"%dev":
  nessie: {server: {authorization: {rules: {dev: op == 'd'}}}}
---
nessie: {server: {authorization: {rules: {second: op == 'e'}}}}
"""
    assert texts(tmp_path, "application.yaml", text) == {
        "plain": "op == 'a'",
        "dotted.id": "op == 'b'\n",
        "short": "op == 'c'",
        "yes": "true",
        "prod": "ref == 'main'",
        "second": "op == 'e'",
    }


@pytest.mark.parametrize("value", ["~", "", "null", '""'])
@pytest.mark.parametrize("profile", ["", '"%prod"'])
def test_a_rule_without_a_text_stops(tmp_path: Path, value: str, profile: str) -> None:
    """Quarkus takes a null for an empty text, which takes away the rule without a profile."""
    nested = "nessie: {server: {authorization: {rules: {x: 'true'}}}}\n"
    empty = f"nessie:\n  server:\n    authorization:\n      rules:\n        {'x' if profile else 'y'}: {value}\n"
    below = empty.replace("\n", "\n  ").rstrip(" ")
    text = f"{nested}{profile}:\n  {below}" if profile else f"{nested}---\n{empty}"
    with pytest.raises(PolicyError, match=rf"rule `{'x' if profile else 'y'}`: empty rule"):
        texts(tmp_path, "application.yaml", text)


def test_expressions_are_expanded(tmp_path: Path) -> None:
    text = f"branch=main\n%dev.branch=dev\n{PREFIX}a=ref=='${{branch}}' && path=='${{p:x}}' && role=='\\\\${{r}}'\n"
    assert texts(tmp_path, "a.properties", text) == {"a": "ref=='main' && path=='x' && role=='${r}'"}
    assert texts(tmp_path, "a.properties", text, "dev") == {"a": "ref=='dev' && path=='x' && role=='${r}'"}


def test_an_error_in_an_expanded_rule_has_its_place(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"a\.properties:2:57: rule `r`"):
        texts(tmp_path, "a.properties", f"branch=main\n{PREFIX}r=ref=='${{branch}}' && nope\n")


def test_a_variable_of_this_process_with_another_value_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"branch=main\n{PREFIX}a=ref=='${{branch}}' && path=='${{p:x}}'\n"
    monkeypatch.setenv("BRANCH", "main")
    assert texts(tmp_path, "a.properties", text) == {"a": "ref=='main' && path=='x'"}
    monkeypatch.setenv("P", "y")
    with pytest.raises(PolicyError, match="value of the environment variable `P` in Quarkus"):
        texts(tmp_path, "a.properties", text)


def test_another_profile_in_the_environment_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{PREFIX}a=true\n%staging.{PREFIX}b=true\n"
    monkeypatch.setenv("QUARKUS_PROFILE", "staging")
    with pytest.raises(PolicyError, match=r"a\.properties:2:1: .* asks for the profile `staging`"):
        texts(tmp_path, "a.properties", text)
    assert texts(tmp_path, "a.properties", text, "staging") == {"a": "true", "b": "true"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.properties", "%{prod,dev}." + PREFIX + "a=true", ":1:1: `%{prod,dev}."),
        ("a.properties", f"\n{PREFIX}a=ref=='${{nope}}'", ":2:43: `${nope}` has no value"),
        ("a.properties", "nessie.server.authorization.enabled=false", "Nessie asks no rule and allows everything"),
        ("a.properties", "%prod.nessie.server.authorization.enabled=false", "allows everything"),
        ("a.properties", "nessie.server.authorization.enabled=perhaps", "neither true nor false"),
        ("a.properties", "nessie.server.authorization.type=OPA", "only the type `CEL`"),
        ("a.properties", "nessie.server.authorization.rule.a=true", "unknown key `nessie.server.authorization.rule.a`"),
        ("a.properties", "nessie.server.authorisation.rules.a=true", "write `nessie.server.authorization.rules.<id>`"),
        ("a.properties", "nessie.authorization.rules.a=true", "looks like one"),
        ("a.properties", "rules.a=true", "looks like one"),
        ("a.properties", "%dev.nesie.server.authorization.rules.a=true", "looks like one"),
        ("a.properties", "NESSIE_SERVER_AUTHORIZATION_RULES_A=true", "looks like one"),
        ("a.properties", "quarkus.profile=staging", "asks for the profile `staging`"),
        ("a.properties", "smallrye.config.locations=more.properties", "names further keys"),
        ("a.properties", "quarkus.config.profile.parent=common", "names further keys"),
        ("a.yaml", '"nessie.server.authorization.rules.a": "true"', ":1:1: "),
        ("a.yaml", "nessie.server.authorization: {rules: {a: true}}", "reads a YAML key with dots as one name"),
        ("a.yaml", '"%prod.nessie.server.authorization.rules.a": "true"', "one name"),
        ("a.yaml", "nessie: {server: {authorization: {rules: {a: [x, y]}}}}", "is a list: a rule is one text"),
        ("a.yaml", "base: &b {a: x}\nnessie: {server: {authorization: {rules: {<<: *b}}}}", "merge key"),
        ("a.yaml", "a: &a {b: *a}", "an alias stands within its own value"),
    ],
)
def test_what_is_not_read_stops(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        texts(tmp_path, name, f"{text}\n")
    assert message in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "quarkus.http.auth.policy.authorization-x=y",
        "quarkus.profile=prod",
        "nessie.server.authorization.enabled=true",
        "nessie.server.authentication.enabled=true",
        "nessie.catalog.warehouses.a.location=s3://b",
    ],
)
def test_other_keys_of_nessie_are_no_rules(tmp_path: Path, text: str) -> None:
    assert texts(tmp_path, "a.properties", f"{text}\n{PREFIX}a=true\n") == {"a": "true"}


IDS = st.text("ab.-_", min_size=1, max_size=3).filter(lambda id: not id.startswith(".") and not id.endswith("."))
VALUES = st.sampled_from(["x", "y: #", "\\\\d", "${k}", "${k:d}", "${none:${k}}", "$$", "\\${k}", "\u00e9 \U0001f600"])


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["", "%prod", "%dev", "%prod,dev"]), IDS), VALUES, min_size=1, max_size=6
    ),
    st.sampled_from(["prod", "dev", "other"]),
)
def test_properties_and_yaml_mean_the_same(rules: dict[tuple[str, str], str], profile: str) -> None:
    """Both forms of the same keys have the same rules under every profile, or stop for the same reason."""
    lines = ["k=value"]
    tree: dict[str, Any] = {"k": "value"}
    for (prefix, id), value in rules.items():
        escaped = "".join(f"\\{sign}" if sign in "\\:#=" else sign for sign in value)
        lines.append(f"{prefix and prefix + '.'}{PREFIX}\"{id}\"=ref=='{escaped}'")
        top = tree.setdefault(prefix, {}) if prefix else tree
        for part in ("nessie", "server", "authorization", "rules"):
            top = top.setdefault(part, {})
        top[id] = f"ref=='{value}'"
    with tempfile.TemporaryDirectory() as folder:
        outcomes = []
        for name, text in (("a.properties", "\n".join(lines)), ("a.yaml", yaml.safe_dump(tree, allow_unicode=True))):
            try:
                outcomes.append(texts(Path(folder), name, text, profile))
            except PolicyError as error:
                outcomes.append({"error": error.message.partition(" stands")[0].partition(" at ")[0]})
        assert outcomes[0] == outcomes[1]
