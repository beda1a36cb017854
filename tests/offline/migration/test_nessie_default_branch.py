"""The default branch of Nessie: a request without a ref is decided there, so an uncertain name is not written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.offline.migration.nessie import migrate_nessie

IMAGE = "ghcr.io/projectnessie/nessie:0.104.0"
KEY = "nessie.server.default-branch"
NAME = "NESSIE_SERVER_DEFAULT_BRANCH"
RULE = "NESSIE_SERVER_AUTHORIZATION_RULES_A"
MAIN = "nessie.server.authorization.rules.a=op=='READ_ENTITY_VALUE' && ref=='main'\n"


def branch_of(folder: Path, files: Mapping[str, Any], *profiles: str) -> tuple[str | None, bool]:
    """Return the default branch, and whether a part is left."""
    for name, given in files.items():
        (folder / name).write_text(given if isinstance(given, str) else yaml.safe_dump(given))
    env_files = [folder / name for name in files if name.endswith((".env", ".service"))]
    migration = migrate_nessie(
        [path for name in files if (path := folder / name) not in env_files], env_files, profiles
    )
    return yaml.safe_load(migration.files["pdp.yaml"])["warehouses"]["nessie"].get("default_ref"), bool(migration.left)


def compose(environment: Any, **keys: Any) -> dict[str, Any]:
    return {"services": {"n": {"image": IMAGE, "environment": {RULE: "ref=='main'", **environment}, **keys}}}


def pod(*env: Any) -> dict[str, Any]:
    container = {"name": "n", "image": IMAGE, "env": [{"name": RULE, "value": "ref=='main'"}, *env]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {"containers": [container]}}


KNOWN: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "none": ({"application.properties": MAIN}, "main"),
    "plain": ({"application.properties": f"{MAIN}{KEY}=prod\n"}, "prod"),
    "last of a file": ({"application.properties": f"{MAIN}{KEY}=a\n{KEY}=prod\n"}, "prod"),
    "profile": ({"application.properties": f"{MAIN}{KEY}=main\n%prod.{KEY}=prod\n"}, "prod"),
    "profile in YAML": ({"application.properties": MAIN,
                         "application.yaml": {"%prod": {"nessie": {"server": {"default-branch": "prod"}}}}}, "prod"),
    "another profile": ({"application.properties": f"{MAIN}%dev.{KEY}=prod\n"}, "main"),
    "higher rank": ({"application.properties": f"{MAIN}{KEY}=main\n",
                     "application.yaml": {"nessie": {"server": {"default-branch": "prod"}}}}, "prod"),
    "lower rank last": ({"application.yaml": {"nessie": {"server": {"default-branch": "prod"}}},
                         "application.properties": f"{MAIN}{KEY}=main\n"}, "prod"),
    "variable": ({"application.properties": f"{MAIN}{KEY}=main\n", "e.env": f"{NAME}=prod\n"}, "prod"),
    "variable alone": ({"compose.yaml": compose({NAME: "prod"})}, "prod"),
    "option": ({"compose.yaml": compose({"JAVA_OPTS_APPEND": f"-D{KEY}=prod"})}, "prod"),
    "command": ({"compose.yaml": compose({}, command=["java", f"-D{KEY}=prod", "-jar", "x"])}, "prod"),
    "of another program": ({"compose.yaml": {"services": {**compose({})["services"], "db": {
        "image": "postgres", "environment": {NAME: "prod"}}}}}, "main"),
    "chart": ({"values.yaml": {"authorization": {"enabled": True, "rules": {"a": "ref=='main'"}},
                               "advancedConfig": {KEY: "prod"}}}, "prod"),
}  # fmt: skip


@pytest.mark.parametrize("form", KNOWN)
def test_a_known_default_branch_is_that_of_the_server(tmp_path: Path, form: str) -> None:
    files, branch = KNOWN[form]
    assert branch_of(tmp_path, files)[0] == branch


def test_the_given_profile_chooses_the_default_branch(tmp_path: Path) -> None:
    files = {"application.properties": f"{MAIN}{KEY}=main\n%dev.{KEY}=prod\n"}
    assert branch_of(tmp_path, files, "dev") == ("prod", False)


UNKNOWN: Mapping[str, Mapping[str, Any]] = {
    "expression": {"application.properties": f"{MAIN}{KEY}=${{other}}\nother=prod\n"},
    "expression with a default": {"application.properties": f"{MAIN}{KEY}=${{B:prod}}\n"},
    "variable of docker compose": {"compose.yaml": compose({NAME: "${BR}"})},
    "variable of the host": {"compose.yaml": compose({NAME: None})},
    "variable of a profile": {"application.properties": MAIN, "e.env": f"_PROD_{NAME}=prod\n"},
    "secret": {"k.yaml": pod({"name": NAME, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}})},
    "variable of Kubernetes": {"k.yaml": pod({"name": "X", "value": "prod"}, {"name": NAME, "value": "$(X)"})},
    "argument of an image": {"compose.yaml": {"services": {"n": {"build": "."}}}, "application.properties": MAIN,
                             "Dockerfile": f"FROM {IMAGE}\nARG B\nENV {NAME}=$B\nCOPY application.properties /deployments/config/\n"},
    "two servers": {"compose.yaml": {"services": {
        one: {"image": IMAGE, "environment": {RULE: "ref=='main'", NAME: one}} for one in ("main", "prod")}}},
    "one of two servers": {"compose.yaml": {"services": {
        "a": {"image": IMAGE, "environment": {RULE: "ref=='main'"}},
        "b": {"image": IMAGE, "environment": {RULE: "ref=='main'", NAME: "prod"}}}}},
    "two files of one rank": {"application.properties": f"{MAIN}config_ordinal=255\n{KEY}=main\n",
                              "application.yaml": {"nessie": {"server": {"default-branch": "prod"}}}},
    "command that may set it": {"compose.yaml": compose({}, command=["/wrap.sh"])},
}  # fmt: skip


@pytest.mark.parametrize("form", UNKNOWN)
def test_an_uncertain_default_branch_is_left(tmp_path: Path, form: str) -> None:
    assert branch_of(tmp_path, UNKNOWN[form]) == (None, True)
