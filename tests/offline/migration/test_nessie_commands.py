"""Commands that start Nessie: one that is not known whole may set or replace every rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration


def migrated(folder: Path, text: object, name: str) -> Migration:
    (folder / name).write_text(text if isinstance(text, str) else yaml.safe_dump(text, sort_keys=False))
    return migrate_nessie([], [folder / name])


def rules_of(migration: Migration) -> dict[str, str]:
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return rules


def pod(container: object) -> dict[str, object]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}}


def compose(service: object) -> dict[str, object]:
    return {"services": {"nessie": service}}


IMAGE = "ghcr.io/projectnessie/nessie:0.99"
WIDE = "op in ['VIEW_REFERENCE','READ_ENTITY_VALUE']"
ENV = [{"name": "NESSIE_SERVER_AUTHORIZATION_RULES_A", "value": WIDE}]
START = ["java", "-jar", "q.jar"]
TWO_WORDS = ["--add-opens", "--add-exports", "--add-reads", "--enable-native-access", "--limit-modules", "--new-option"]
BRINGS = ["@/etc/jvm.args", "-javaagent:/x.jar", "-XX:Flags=/x"]
CHANGED = [
    *([*head, *START] for head in (
        ["env", "-i"], ["env", "-"], ["env", "--ignore-environment"], ["env", "-u", "A"], ["env", "A=b"],
        ["/usr/bin/env", "-i"], ["vault-env"], ["dotenv", "-f", "/e"], ["su", "-", "nessie", "-c"], ["sudo", "-u", "x"],
        ["chroot", "/x"], ["tini", "--", "env", "-i"], ["/entry.sh"], ["sh", "/entry.sh"], ["sh", "-lc"], ["sh", "-c", "java"][:1],
    )),
    *(["sh", "-c", script] for script in (
        "java `cat /o` -jar q.jar", "java $(cat /o) -jar q.jar", "cd /work && java -jar q.jar", "cd /work\njava -jar q.jar",
        "sed -i s/a/b/ config/application.properties; exec java -jar q.jar", "cp /x config/application.properties && java -jar q.jar",
        "echo x > config/application.properties; java -jar q.jar", "A=b java -jar q.jar", "su - nessie -c 'java -jar q.jar'",
        "sudo -u nessie java -jar q.jar", "env -i java -jar q.jar", "echo a\nenv -i java -jar q.jar", "cat /x | java -jar q.jar",
        "(cd /x; java -jar q.jar)", "while :; do java -jar q.jar; done", "# a\ncd /x\njava -jar q.jar", "exec env - java -jar q.jar",
        "set -a; java -jar q.jar", "set -- x; java -jar q.jar", "echo 'a; java",
    )),
    *(["java", option, "x.y/z=ALL-UNNAMED", brought, "-jar", "q.jar"] for option in TWO_WORDS for brought in BRINGS),
    *(["java", option, "x.y/z=ALL-UNNAMED", "-cp", "x", "Main"] for option in TWO_WORDS),
    ["java", "-m", "x/y"], ["java", "Main.java"],
]  # fmt: skip
WHOLE = [
    START, ["/opt/java/bin/java", *START[1:]], ["-Dx=y"], ["tini", "--", *START], ["java", "--add-opens", "a/b=c", *START[1:]],
    ["sh", "-c", "exec java -jar q.jar"], ["sh", "-ec", "set -eu; echo 'a b'; sleep 3 && exec java -Dx='a;b' -jar q.jar"],
    ["/opt/jboss/container/java/run/run-java.sh"],
]  # fmt: skip


def by_command(form: str, words: list[str]) -> tuple[str, object]:
    """Return a name and a text of a file that starts Nessie by a command."""
    if form == "pod":
        return "deploy.yaml", pod({"name": "n", "image": IMAGE, "command": words, "env": ENV})
    if form == "compose":
        doubled = [word.replace("$", "$$") for word in words]
        return "compose.yaml", compose({"image": IMAGE, "entrypoint": doubled, "environment": {ENV[0]["name"]: WIDE}})
    return "Dockerfile", f'FROM {IMAGE}\nENV {ENV[0]["name"]}="{WIDE}"\nCMD {json.dumps(words)}\n'


@pytest.mark.parametrize("form", ["pod", "compose", "Dockerfile"])
@pytest.mark.parametrize("words", CHANGED, ids=" ".join)
def test_a_command_that_is_not_known_whole_permits_nothing(tmp_path: Path, form: str, words: list[str]) -> None:
    name, text = by_command(form, words)
    migration = migrated(tmp_path, text, name)
    assert WIDE not in rules_of(migration).values()
    assert migration.left


@pytest.mark.parametrize("form", ["pod", "compose", "Dockerfile"])
@pytest.mark.parametrize("words", WHOLE, ids=" ".join)
def test_a_command_that_is_known_whole_changes_nothing(tmp_path: Path, form: str, words: list[str]) -> None:
    name, text = by_command(form, words)
    migration = migrated(tmp_path, text, name)
    assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])


def test_the_command_of_another_program_closes_nothing(tmp_path: Path) -> None:
    services = {
        "nessie": {"image": IMAGE, "environment": {ENV[0]["name"]: WIDE}},
        "x": {"image": "a/b", "command": "env -i x"},
    }
    migration = migrated(tmp_path, {"services": services}, "compose.yaml")
    assert rules_of(migration) == {"a": WIDE}


FILES = {
    "list": "COMPOSE_FILE=compose.yaml:prod.yaml", "of windows": "COMPOSE_FILE=compose.yaml;prod.yaml",
    "quoted": "export COMPOSE_FILE='compose.yaml:prod.yaml' # x", "as a mapping": 'COMPOSE_FILE: "compose.yaml:prod.yaml"',
    "own sign": "COMPOSE_PATH_SEPARATOR=,\nA=b\nCOMPOSE_FILE=compose.yaml,prod.yaml", "behind others": "A=b\r\nCOMPOSE_FILE=prod.yaml",
    "variable": "COMPOSE_FILE=${FILES}", "page": "COMPOSE_FILE=https://h/x.git", "page beside": "COMPOSE_FILE=compose.yaml:oci://h/x",
}  # fmt: skip
"""Files of variables with another manifest beside the given one."""


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("is_given", [True, False])
def test_manifests_that_variables_name_are_left_and_close_every_rule(tmp_path: Path, form: str, is_given: bool) -> None:
    manifest, env, prod = (tmp_path / name for name in ("compose.yaml", ".env", "prod.yaml"))
    service = {"image": IMAGE, "environment": {ENV[0]["name"]: WIDE}}
    manifest.write_text(yaml.safe_dump(compose(service)))
    prod.write_text(yaml.safe_dump(compose({"environment": {ENV[0]["name"]: "false"}})))
    env.write_text(f"{FILES[form]}\n", newline="")
    if is_given and form == "as a mapping":
        return  # refused: no program but docker compose reads such a line
    env_files = [env] if is_given else []
    migration = migrate_nessie([manifest], env_files)
    assert WIDE not in rules_of(migration).values()
    assert [part.place.rpartition("/")[2].partition(":")[0] for part in migration.left] == [".env"]
    both = migrate_nessie([manifest, prod], env_files)
    assert WIDE not in rules_of(both).values()
    env.write_text("COMPOSE_FILE=compose.yaml\nCOMPOSE_FILE_X=prod.yaml\n# COMPOSE_FILE=prod.yaml\n")
    assert (rules_of(one := migrate_nessie([manifest], env_files)), one.left) == ({"a": WIDE}, [])


def test_a_manifest_that_variables_name_may_be_given(tmp_path: Path) -> None:
    service = {"image": IMAGE, "environment": {ENV[0]["name"]: WIDE}}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(compose(service)))
    (tmp_path / "prod.yaml").write_text(
        yaml.safe_dump(compose({"image": IMAGE, "environment": service["environment"]}))
    )
    (tmp_path / ".env").write_text("COMPOSE_FILE=compose.yaml:prod.yaml\n")
    migration = migrate_nessie([tmp_path / "compose.yaml", tmp_path / "prod.yaml"])
    assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])


FILLED = f"{WIDE} && role!='${{ROLE}}'"
RULE = "nessie.server.authorization.rules.a"
WITH_ROLE = [{"name": ENV[0]["name"], "value": FILLED}, {"name": "ROLE", "value": "bob"}]
FILLERS: dict[str, Any] = {
    "flux": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
             "spec": {"postBuild": {"substitute": {"ROLE": "eve"}}}},
    "flux, from objects": {"kind": "Kustomization", "spec": {"postBuild": {"substituteFrom": [
        {"kind": "ConfigMap", "name": "x"}]}}},
    "flux in a list": {"kind": "List", "items": [{"kind": "Kustomization", "spec": {"postBuild": {"substitute": {"A": ""}}}}]},
    "openshift": {"kind": "Template", "objects": [], "parameters": [{"name": "ROLE", "value": "eve"}]},
}  # fmt: skip
FILLED_PLACES: dict[str, Any] = {
    "variable": pod({"name": "n", "image": IMAGE, "env": WITH_ROLE}),
    "object": [
        pod({"name": "n", "image": IMAGE, "env": WITH_ROLE[1:], "volumeMounts": [
            {"name": "v", "mountPath": "/deployments/config"}]}),
        {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"application.properties": f"{RULE}={FILLED}\nROLE=bob\n"}},
    ],
    "chart": {"kind": "HelmRelease", "spec": {"values": {
        "extraEnv": WITH_ROLE[1:], "authorization": {"enabled": True, "rules": {"a": FILLED}}}}},
}  # fmt: skip
FILLED_PLACES["object"][0]["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "c"}}]


@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("place", FILLED_PLACES)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_rule_with_a_name_that_another_program_replaces_is_false(
    tmp_path: Path, filler: str, place: str, is_first: bool
) -> None:
    given = FILLED_PLACES[place]
    documents = given if isinstance(given, list) else [given]
    plain = tmp_path / "deploy.yaml"
    plain.write_text(yaml.safe_dump_all(documents))
    assert "bob" in rules_of(migrate_nessie([plain]))["a"]
    ordered = [FILLERS[filler], *documents] if is_first else [*documents, FILLERS[filler]]
    migration = migrated(tmp_path, yaml.safe_dump_all(ordered), "all.yaml")
    assert all("bob" not in text or text.startswith("false") for text in rules_of(migration).values())
    assert migration.left
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(FILLERS[filler]))
    apart = migrate_nessie([tmp_path / "other.yaml", plain])
    assert rules_of(apart) == rules_of(migration)
