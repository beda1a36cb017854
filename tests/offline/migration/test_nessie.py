"""Migration of Nessie's authorization."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.paths import RECORDED

from pdp.engines.cel.rules import load_rules
from pdp.errors import InvalidArgument, PolicyError
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

PREFIX = "nessie.server.authorization.rules."
MANUAL = RECORDED / "nessie" / "manual-as-printed.properties"


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def rules_of(migration: Migration) -> dict[str, str]:
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return rules


def test_files_and_variables_are_joined_by_rank(tmp_path: Path) -> None:
    main = file(tmp_path, "application.properties", "".join(f"{PREFIX}{id}='main'=='main'\n" for id in "abcde"))
    of_profile = file(tmp_path, "application-prod.properties", f"{PREFIX}b='profile'==''\n")
    other = file(tmp_path, "application-dev.properties", f"{PREFIX}a='dev'==''\n")
    nested = "nessie: {server: {authorization: {rules: {c: \"'yaml'==''\"}}}}\n"
    yaml_file = file(tmp_path, "application.yaml", nested)
    folder = file(tmp_path, "config/application.properties", f"{PREFIX}d='config'==''\n")
    variables = file(tmp_path, "nessie.env", f"NESSIE_SERVER_AUTHORIZATION_RULES_E='env'==''\nPATH=/bin\n")  # noqa: F541
    migration = migrate_nessie([main, of_profile, other, yaml_file, folder], [variables])
    assert rules_of(migration) == {
        "a": "'main'=='main'",
        "b": "'profile'==''",
        "c": "'yaml'==''",
        "d": "'config'==''",
        "e": "'env'==''",
    }
    assert [part.subject for part in migration.parts if part.status == "ignored"] == ["the file"]
    assert migration.left == []


def test_files_that_quarkus_reads_as_well_are_named(tmp_path: Path) -> None:
    main = file(tmp_path, "application.properties", f"{PREFIX}a=true\n")
    file(tmp_path, "application-prod.yaml", "x: y\n")
    file(tmp_path, "application-dev.yaml", "x: y\n")
    (left,) = migrate_nessie([main]).left
    assert (Path(left.place).name, left.message) == (
        "application-prod.yaml",
        "is read by Quarkus as well, and was not given: give it, too",
    )


def test_a_manifest_supplies_variables_and_the_profile(tmp_path: Path) -> None:
    manifest = file(
        tmp_path,
        "nessie.yaml",
        """
kind: Deployment
spec:
  containers:
    - name: nessie
      env:
        - {name: QUARKUS_PROFILE, value: staging}
        - {name: NESSIE_SERVER_AUTHORIZATION_RULES_ALLOW_X, value: "ref=='x'"}
        - {name: _STAGING_NESSIE_SERVER_AUTHORIZATION_RULES_STAGE, value: "ref=='s'"}
        - {name: _PROD_NESSIE_SERVER_AUTHORIZATION_RULES_PROD, value: "ref=='p'"}
        - name: NESSIE_SERVER_AUTHORIZATION_RULES_SECRET
          valueFrom: {secretKeyRef: {name: a, key: b}}
""",
    )
    main = file(tmp_path, "application.properties", f"{PREFIX}allow-x=ref=='file'\n%staging.{PREFIX}t=ref=='t'\n")
    migration = migrate_nessie([main], [manifest])
    closed = rules_of(migration).pop("left-parts")
    assert closed.startswith("false // VIEW_REFERENCE: ")  # the secret may mention it
    assert rules_of(migration) == {"allow-x": "ref=='x'", "t": "ref=='t'", "stage": "ref=='s'", "left-parts": closed}
    (left,) = migration.left
    assert left.subject == "variable `NESSIE_SERVER_AUTHORIZATION_RULES_SECRET`"
    assert ("variable `_PROD_NESSIE_SERVER_AUTHORIZATION_RULES_PROD`", "ignored") in [
        (part.subject, part.status) for part in migration.parts
    ]


def test_the_manual_as_printed() -> None:
    migration = migrate_nessie([MANUAL])
    left = {part.subject: part.message for part in migration.left}
    assert left == {
        f"rule `{id}`": f"syntax error: unexpected `{role}`; write `op in ['READ_ENTITY_VALUE', 'UPDATE_ENTITY', "
        f"'DELETE_ENTITY'] && path=='{path}' && role=='{role}'`"
        for id, path, role in [
            ("bob", "BobsBar", "Bob"),
            ("carol", "CarolsSecret", "Alice"),
            ("dave", "DavesHiddenX", "Dave"),
        ]
    }
    assert migration.counts() == {"done": 7, "note": 4, "left": 3, "ignored": 0}


def test_a_broken_rule_on_viewing_does_not_open_every_branch(tmp_path: Path) -> None:
    main = file(tmp_path, "a.properties", f"{PREFIX}view=op=='VIEW_REFERENCE' && role=='\n{PREFIX}b=op=='X'\n")
    migration = migrate_nessie([main])
    assert rules_of(migration)["view"] == "false // does not compile: op=='VIEW_REFERENCE' && role=='"
    written = file(tmp_path, "rules.yaml", migration.files["rules.yaml"])
    assert any("VIEW_REFERENCE" in text for text in load_rules([written]).texts.values())


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nessie.server.authorization.enabled=false", "allows everything"),
        ("quarkus.profile=dev", "give `--profile`"),
        ("smallrye.config.locations=more.properties", "give these files"),
    ],
)
def test_switches_are_left(tmp_path: Path, key: str, message: str) -> None:
    (left,) = migrate_nessie([file(tmp_path, "a.properties", f"{PREFIX}a=true\n{key}\n")]).left
    assert message in left.message
    assert left.place.endswith("a.properties:2:1")


def test_a_duplicate_is_left(tmp_path: Path) -> None:
    migration = migrate_nessie([file(tmp_path, "a.properties", f"{PREFIX}a=true\n{PREFIX}a=role=='x'\n")])
    (left,) = migration.left
    assert ("stands at" in left.message, left.place.endswith("a.properties:1:37")) == (True, True)
    assert rules_of(migration)["a"] == "role=='x'"  # the last counts in Nessie


@pytest.mark.parametrize(
    ("text", "error"), [("quarkus.http.port=1\n", InvalidArgument), ("rules.a=true\n", PolicyError)]
)
def test_files_without_rules_are_refused(tmp_path: Path, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        migrate_nessie([file(tmp_path, "a.properties", text)])
