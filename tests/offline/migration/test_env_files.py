"""Env files: quotes, comments, `export` and dollars, by the rules of each program that reads such a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.engines.cel.nessie_keys import OWN_NAME
from pdp.errors import InvalidArgument, PolicyError
from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.manifests import read_deployment
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.nessie_server import IMAGE
from pdp.offline.migration.report import Migration

NAME = "LAKEKEEPER__TRUSTED_ENGINES__TRINO__OWNER_PROPERTY"
REST = (
    "LAKEKEEPER__TRUSTED_ENGINES__TRINO__TYPE=trino\n"
    "LAKEKEEPER__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__AUDIENCES=[trino]\n"
)
READERS: dict[str, tuple[str, str]] = {
    "compose": ("deploy.yaml", "services: {a: {env_file: x.env}}\n"),
    "raw": ("deploy.yaml", "services: {a: {env_file: [{path: ./x.env, format: raw}]}}\n"),
    "kustomize": ("kustomization.yaml", "configMapGenerator: [{name: a, envs: [x.env]}]\n"),
    "systemd": ("a.service", "[Service]\nEnvironmentFile=-/etc/conf/x.env\n"),
    "nobody": ("deploy.yaml", "services: {a: {image: x}}\n"),
}


def migrated(folder: Path, line: str, reader: str, ending: str = "\n") -> Migration:
    (folder / "x.env").write_bytes((REST + line + "\n").replace("\n", ending).encode())
    name, text = READERS[reader]
    (folder / name).write_text(text)
    return migrate_lakekeeper([folder / "x.env", folder / name])


def owner_property(migration: Migration) -> str | None:
    """Return the value; None if the report leaves the variable."""
    settings: dict[str, Any] = yaml.safe_load(migration.files["pdp.yaml"])
    if "trusted_engines" not in settings:
        assert NAME in {part.subject for part in migration.left}
        return None
    assert migration.left == []
    found: str = settings["trusted_engines"]["trino"]["owner_property"]
    return found


@pytest.mark.parametrize(
    ("value", "literal", "compose", "systemd"),
    [
        ("a.b", "a.b", "a.b", "a.b"),
        ("a.b # c", "a.b # c", "a.b", "a.b # c"),
        ("a.b#c", "a.b#c", "a.b#c", "a.b#c"),
        ('"a.b"', '"a.b"', "a.b", "a.b"),
        ("'a.b'", "'a.b'", "a.b", "a.b"),
        ('"a.b" # c', '"a.b" # c', "a.b", "a.b# c"),
        ("'a.b' # c", "'a.b' # c", "a.b", "a.b# c"),
        ('"a # b"', '"a # b"', "a # b", "a # b"),
        ('"a\\"b"', '"a\\"b"', 'a"b', 'a"b'),
        ('"a\\tb"', '"a\\tb"', "a\tb", "a\\tb"),
        ('"a\\.b"', '"a\\.b"', "a\\.b", "a\\.b"),
        ('"a\\$b"', '"a\\$b"', "a$b", "a$b"),
        ('"a\\\\b"', '"a\\\\b"', "a\\b", "a\\b"),
        ("a\t# c", "a\t# c", "a\t# c", "a\t# c"),
        ("# c", "# c", "# c", "# c"),
        ("'a\\'b'", "'a\\'b'", "a'b", "a\\b'"),
        ("'a\\tb'", "'a\\tb'", "a\\tb", "a\\tb"),
        ("a\\b", "a\\b", "a\\b", "ab"),
        ("a'b", "a'b", "a'b", "a'b"),
        ("$A", "$A", None, "$A"),
        ('"${A}"', '"${A}"', None, "${A}"),
        ("'$A'", "'$A'", "$A", "$A"),
        ("a$$b", "a$$b", "a$b", "a$$b"),
        ("a$", "a$", None, "a$"),
        ('"a" "b"', '"a" "b"', None, "ab"),
        ('"a"b', '"a"b', None, "ab"),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_each_reader_has_its_rules(
    tmp_path: Path, value: str, literal: str, compose: str | None, systemd: str, ending: str
) -> None:
    wanted = {"compose": compose, "systemd": systemd}
    found = {
        reader: owner_property(migrated(tmp_path, f"{NAME}={value}", reader, ending))
        for reader in READERS if reader != "nobody"
    }  # fmt: skip
    assert found == {reader: wanted.get(reader, literal) for reader in found}


def test_a_tab_at_the_end_is_an_error_for_readers_that_keep_it(tmp_path: Path) -> None:
    for reader in READERS.keys() - {"nobody"}:
        if reader in ("compose", "systemd"):
            assert owner_property(migrated(tmp_path, f"{NAME}=a.b\t", reader, "\n")) == "a.b"
        else:
            with pytest.raises(InvalidArgument, match="no blanks around it"):
                migrated(tmp_path, f"{NAME}=a.b\t", reader, "\n")


@pytest.mark.parametrize(
    ("line", "value", "has_note"),
    [
        (f"{NAME}=a.b", "a.b", False),
        (f"{NAME}=a.b # c", "a.b", True),
        (f'{NAME}="a.b" # c', "a.b", True),
        (f"export {NAME}='a.b'  # c", "a.b", False),
        (f"{NAME}='a.b'", "a.b", True),
        (f"{NAME}=$A", None, False),
        (f"{NAME}=a$$b", "a$b", True),
        (f'{NAME}="a"b', '"a"b', True),
        (f'{NAME}="a" == "b"', '"a" == "b"', True),
    ],
)
def test_a_file_of_nobody_is_read_as_by_compose_with_a_note(
    tmp_path: Path, line: str, value: str | None, has_note: bool
) -> None:
    migration = migrated(tmp_path, line, "nobody")
    assert owner_property(migration) == value
    notes = [part.message for part in migration.parts if part.subject == "`x.env`"]
    assert [("lines 3" in note, "docker run" in note) for note in notes] == [(True, True)] * (has_note or value is None)


@pytest.mark.parametrize("reader", ["raw", "kustomize", "systemd"])
def test_export_is_of_shells_and_compose(tmp_path: Path, reader: str) -> None:
    assert owner_property(migrated(tmp_path, f"export {NAME}=a", reader)) is None
    assert owner_property(migrated(tmp_path, f"export {NAME}=a", "compose")) == "a"


def test_a_value_in_quotes_may_have_several_lines(tmp_path: Path) -> None:
    assert owner_property(migrated(tmp_path, f'{NAME}="a\nb"', "compose")) == "a\nb"
    assert owner_property(migrated(tmp_path, f'{NAME}="a\nb"', "systemd")) == "a\nb"
    assert owner_property(migrated(tmp_path, f"{NAME}=a\\\nb", "systemd")) == "ab"
    for reader in ("raw", "nobody"):
        with pytest.raises(PolicyError, match="not `NAME=value`"):
            migrated(tmp_path, f'{NAME}="a\nb"', reader)
    with pytest.raises(PolicyError, match="without an end"):
        migrated(tmp_path, f'{NAME}="a', "compose")


def test_comments_of_systemd(tmp_path: Path) -> None:
    assert owner_property(migrated(tmp_path, f"; comment\n# comment\n{NAME}=a", "systemd")) == "a"
    with pytest.raises(PolicyError, match="not `NAME=value`"):
        migrated(tmp_path, f"; comment\n{NAME}=a", "compose")


def test_two_readers_with_other_rules_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text(f"{REST}{NAME}=a\n")
    for name, text in (READERS["compose"], READERS["systemd"]):
        (tmp_path / name).write_text(text.replace("env_file: x.env", "env_file: /etc/conf/x.env"))
    with pytest.raises(PolicyError, match="compose and systemd read this file"):
        migrate_lakekeeper([tmp_path / name for name in ("x.env", "deploy.yaml", "a.service")])


@pytest.mark.parametrize("reader", ["raw", "compose"])
def test_a_variable_of_the_host_is_left(tmp_path: Path, reader: str) -> None:
    assert owner_property(migrated(tmp_path, NAME, reader)) is None


SPELLINGS = ("on", "On", "yes", "NO", "y", "True", "FALSE", "010", "0x1F", "0o17", "0b1", "1_000", "+5", "1e3", "1.0", ".5",
             "2020-01-01", "1:30")  # fmt: skip
CERTAIN = ("true", "false", "5", "-5", "0", "1.5", "'on'", '"010"', "'True'", "plain", "a=b", "v1.0", "1.2.3")


def in_compose(value: str) -> str:
    return f"services: {{nessie: {{environment: {{NESSIE_SERVER_AUTHORIZATION_RULES_A: {value}}}}}}}"


def in_pod(value: str) -> str:
    return f"spec: {{containers: [{{env: [{{name: NESSIE_SERVER_AUTHORIZATION_RULES_A, value: {value}}}]}}]}}"


@pytest.mark.parametrize("form", [in_compose, in_pod])
@pytest.mark.parametrize("value", [*SPELLINGS, *CERTAIN])
def test_a_value_that_programs_print_otherwise_is_not_known(
    tmp_path: Path, form: Callable[[str], str], value: str
) -> None:
    (tmp_path / "k.yaml").write_text(form(value))
    content = read_deployment([tmp_path / "k.yaml"], OWN_NAME, IMAGE)[0]
    known = [entry.text for entry in content.variables]
    assert known == ([] if value in SPELLINGS else [value.strip("'\"")])
    assert len(content.elsewhere) == (value in SPELLINGS)


DUPLICATES = (
    "services: {a: {environment: {A_B: x, A_B: y}}}",
    "services: {a: {image: x}}\nservices: {b: {image: x}}",
    "a: &a {A_B: x}\nb: &b {A_B: y}\nservices: {a: {environment: {<<: *a, <<: *b}}}",
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: n}\ndata: {A_B: x, 'A_B': y}",
    "authorization: {rules: {a: x}, enabled: true, rules: {b: y}}",
    "x: [{y: {1: a, '1': b}}]",
)


@pytest.mark.parametrize("text", DUPLICATES)
@pytest.mark.parametrize("kind", ["nessie", "lakekeeper"])
def test_a_key_twice_in_a_manifest_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "k.yaml").write_text(f"{text}\n")
    with pytest.raises(PolicyError, match="stands twice in a mapping"):
        migrate_nessie([], [tmp_path / "k.yaml"]) if kind == "nessie" else migrate_lakekeeper([tmp_path / "k.yaml"])


STARTED = {
    "JAVA_CLASSPATH": "/x", "JAVA_MAIN_CLASS": "x.Main", "JAVA_APP_JAR": "/x.jar", "JAVA_APP_DIR": "/x", "JAVA_LIB_DIR": "/x",
}  # fmt: skip


@pytest.mark.parametrize("name", STARTED)
@pytest.mark.parametrize("has_value", [True, False])
def test_a_variable_with_another_program_of_java_makes_every_rule_false(
    tmp_path: Path, name: str, has_value: bool
) -> None:
    rule = {"name": "NESSIE_SERVER_AUTHORIZATION_RULES_A", "value": "role=='a'"}
    more = {"name": name, "value": STARTED[name]} if has_value else {
        "name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}  # fmt: skip
    (tmp_path / "k.yaml").write_text(yaml.safe_dump({"spec": {"containers": [{"env": [rule, more]}]}}))
    migration = migrate_nessie([], [tmp_path / "k.yaml"])
    assert f"variable `{name}`" in {part.subject for part in migration.left}
    assert yaml.safe_load(migration.files["rules.yaml"])["rules"]["a"] == "false // role=='a'"


def test_the_program_of_the_image_is_no_other_one(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text(
        "NESSIE_SERVER_AUTHORIZATION_RULES_A=role=='a'\nJAVA_APP_JAR=/deployments/quarkus-run.jar\nJAVA_MAIN_CLASS=\n"
    )
    assert migrate_nessie([], [tmp_path / "a.env"]).left == []
