"""Variables of Lakekeeper that are not those of one server, or whose value is not known: none opens anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

ADMINS = "LAKEKEEPER__INSTANCE_ADMINS"
OPEN = "TRINO_ALLOW_UNMANAGED_CATALOGS"
URI = "LAKEKEEPER__OPENID_PROVIDER_URI"
KEYCLOAK = {URI: "https://kc.example/realms/x", "LAKEKEEPER__OPENID_AUDIENCE": "lake"}
IMAGE = "quay.io/lakekeeper/catalog:latest-main"


def migrated(folder: Path, files: Mapping[str, Any]) -> tuple[Migration, dict[str, Any]]:
    for name, given in files.items():
        (folder / name).write_text(given if isinstance(given, str) else yaml.safe_dump(given))
    migration = migrate_lakekeeper([folder / name for name in files])
    return migration, yaml.safe_load(migration.files["pdp.yaml"])


def compose(**services: Mapping[str, Any]) -> dict[str, Any]:
    return {"services": {name: dict(service) for name, service in services.items()}}


def pod(name: str, *containers: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": list(containers)}}


def container(env: Mapping[str, Any], name: str = "lk", image: str = IMAGE, **keys: Any) -> dict[str, Any]:
    values = {one: value if isinstance(value, dict) else {"value": value} for one, value in env.items()}
    return {"name": name, "image": image, "env": [{"name": one, **value} for one, value in values.items()], **keys}


def object_of(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}


def unit(env: Mapping[str, str]) -> str:
    return "[Service]\n" + "".join(f'Environment="{name}={value}"\n' for name, value in env.items())


SECRET = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
BACKEND = {"LAKEKEEPER__AUTHZ_BACKEND": "openfga"}
WIDE = {ADMINS: "[oidc~dev]", OPEN: "true", "TRINO_ADMIN_USERS": "dev"}
SHUT: dict[str, Mapping[str, Any]] = {
    "two services": {"compose.yaml": compose(
        staging={"image": IMAGE, "environment": WIDE}, prod={"image": IMAGE, "environment": BACKEND},
        opa={"image": "openpolicyagent/opa:1.0.0", "environment": {"TRINO_DEV_CATALOG_NAME": "dev2"}})},
    "two files": {"staging.yaml": pod("a", container(WIDE)), "prod.yaml": pod("b", container(
        {**BACKEND, "TRINO_DEV_CATALOG_NAME": "dev2"}))},
    "containers of other programs": {"pod.yaml": pod(
        "a", container(BACKEND), container(WIDE, "ui", "nginx"), container(WIDE, "db", "postgres:16"))},
    "services of other programs": {"compose.yaml": compose(
        lk={"image": IMAGE, "environment": BACKEND}, trino={"image": "trinodb/trino", "environment": WIDE},
        pg={"image": "postgres", "environment": [f"{ADMINS}=[oidc~pg]"]})},
    "container that migrates": {"pod.yaml": pod("a", container(BACKEND), container(WIDE, "m", args=["migrate"]))},
    "labels": {"compose.yaml": compose(
        lk={"image": IMAGE, "environment": BACKEND, "labels": WIDE, "sysctls": [f"{ADMINS}=[oidc~dev]"]})},
    "annotations": {"pod.yaml": {**pod("a", container(BACKEND)), "metadata": {"name": "a", "annotations": WIDE}}},
    "containers of a chart": {"values.yaml": {"extraContainers": [container(WIDE, "x")], "catalog": {"extraEnv": [
        {"name": name, "value": value} for name, value in BACKEND.items()]}}},
    "older names below secrets": {"pod.yaml": pod("a", container(
        {"ICEBERG_REST__INSTANCE_ADMINS": "[oidc~dev]", ADMINS: SECRET, **BACKEND}))},
    "objects below secrets": {"all.yaml": yaml.safe_dump_all([
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": WIDE},
        pod("a", container(dict.fromkeys(WIDE, SECRET) | BACKEND, envFrom=[{"configMapRef": {"name": "c"}}]))])},
    "own objects": {"all.yaml": yaml.safe_dump_all([
        object_of("a", WIDE), object_of("b", {**BACKEND, "TRINO_DEV_CATALOG_NAME": "dev2"}),
        pod("a", container({}, envFrom=[{"configMapRef": {"name": "a"}}])),
        pod("b", container({}, envFrom=[{"configMapRef": {"name": "b"}}]))])},
    "own objects for values": {"all.yaml": yaml.safe_dump_all([
        object_of("a", {ADMINS: "[oidc~dev]"}), pod("a", container({ADMINS: {"valueFrom": {"configMapKeyRef": {
            "name": "a", "key": ADMINS}}}})), pod("b", container(BACKEND))])},
    "objects of another program": {"all.yaml": yaml.safe_dump_all([
        object_of("a", WIDE), pod("a", container(BACKEND), container({name: {"valueFrom": {"configMapKeyRef": {
            "name": "a", "key": name}}} for name in WIDE}, "db", "postgres:16"))])},
    "own files of variables": {
        "compose.yaml": compose(lk={"image": IMAGE, "env_file": "b.env"}, old={"image": "acme/old", "env_file": ["a.env"]},
                                opa={"image": "openpolicyagent/opa"}),
        "a.env": "".join(f"{name}={value}\n" for name, value in WIDE.items()), "b.env": "LAKEKEEPER__AUTHZ_BACKEND=openfga\n"},
    "file of variables of another program": {
        "compose.yaml": compose(lk={"image": IMAGE, "environment": BACKEND}, db={"image": "postgres", "env_file": "a.env"}),
        "a.env": "".join(f"{name}={value}\n" for name, value in WIDE.items())},
    "generated objects": {
        "kustomization.yaml": {"configMapGenerator": [{"name": "a", "envs": ["a.env"]}, {"name": "b", "envs": ["b.env"]}]},
        "pods.yaml": yaml.safe_dump_all([pod(one, container({}, envFrom=[{"configMapRef": {"name": one}}])) for one in "ab"]),
        "a.env": "".join(f"{name}={value}\n" for name, value in WIDE.items()),
        "b.env": "LAKEKEEPER__AUTHZ_BACKEND=openfga\nTRINO_DEV_CATALOG_NAME=dev2\n"},
    "two units": {"a.service": unit(WIDE), "b.service": unit({**BACKEND, "TRINO_DEV_CATALOG_NAME": "dev2"})},
    "section of a unit that nobody reads": {"a.service": unit(BACKEND) + unit(WIDE).replace("[Service]", "[Install]")},
    "service section of a container unit": {"a.container": unit(BACKEND).replace("[Service]", "[Container]") + unit(WIDE)},
    "patch": {"kustomization.yaml": {"patches": [{"patch": "".join(
        f"- op: replace\n  path: /data/{name}\n  value: x\n" for name in WIDE)}]},
        "lk.env": "".join(f"{name}={value}\n" for name, value in {**WIDE, **BACKEND}.items())},
    "script": {"pod.yaml": pod("a", container({**WIDE, **BACKEND}, command=[
        "sh", "-c", f"export {ADMINS}=[] {OPEN}=false TRINO_ADMIN_USERS=a; exec lakekeeper serve"]))},
}  # fmt: skip


@pytest.mark.parametrize("form", SHUT)
def test_a_variable_without_a_certain_value_is_left(tmp_path: Path, form: str) -> None:
    migration, settings = migrated(tmp_path, SHUT[form])
    assert migration.left, migration.parts
    assert "instance_admins" not in settings.get("identity", {})
    trino = settings.get("trino", {})
    assert (trino.get("unmanaged_catalogs", "deny"), trino.get("admin_users", [])) == ("deny", [])


def test_a_file_and_an_object_of_all_servers_count(tmp_path: Path) -> None:
    lines = "".join(f"{name}={value}\n" for name, value in {**WIDE, **BACKEND}.items())
    both = {name: {"image": IMAGE, "env_file": "a.env"} for name in ("one", "two")}
    migration, settings = migrated(tmp_path, {"compose.yaml": compose(**both), "a.env": lines})
    assert (settings["identity"]["instance_admins"], migration.left) == (["user:oidc~dev"], [])
    (tmp_path / "compose.yaml").unlink()
    pods = [pod(name, container({}, envFrom=[{"configMapRef": {"name": "c"}}])) for name in "ab"]
    given = {"pods.yaml": yaml.safe_dump_all([object_of("c", {**WIDE, **BACKEND}), *pods])}
    migration, settings = migrated(tmp_path, given)
    assert (settings["identity"]["instance_admins"], migration.left) == (["user:oidc~dev"], [])


@pytest.mark.parametrize("name", ["lakekeeper", "nessie"])
def test_a_variable_that_all_servers_have_counts(tmp_path: Path, name: str) -> None:
    rule = {"NESSIE_SERVER_AUTHORIZATION_RULES_A": "op=='VIEW_REFERENCE'"}
    env = {**WIDE, **KEYCLOAK, **BACKEND} if name == "lakekeeper" else rule
    keys = {"image": IMAGE, "environment": env}
    given = compose(one=keys, two=keys, old={**keys, "command": ["migrate"]}, trino={**keys, "image": "trinodb/trino"})
    if name == "lakekeeper":
        migration, settings = migrated(tmp_path, {"compose.yaml": given})
        assert settings["identity"]["instance_admins"] == ["user:oidc~dev"]
        assert settings["trino"]["unmanaged_catalogs"] == "allow"
        assert "oidc" in settings["identity"]["providers"]
    else:
        (tmp_path / "compose.yaml").write_text(yaml.safe_dump(given))
        migration = migrate_nessie([tmp_path / "compose.yaml"])
        assert yaml.safe_load(migration.files["rules.yaml"])["rules"] == {"a": "op=='VIEW_REFERENCE'"}
    assert migration.left == []


LINES = "\n".join(f"Environment={name}={value}" for name, value in KEYCLOAK.items())
DOCKERFILE = "FROM quay.io/lakekeeper/catalog:v0.9\n" + "".join(f"ENV {one}={text}\n" for one, text in KEYCLOAK.items())
SCOPES: dict[str, Mapping[str, Any]] = {
    "env of a unit": {"lk.service": f"[Service]\n{LINES}\nExecStart=/usr/bin/env LAKEKEEPER__OPENID_SCOPE=lk lakekeeper serve\n"},
    "shell of a unit": {"lk.service": f"[Service]\n{LINES}\nExecStart=/bin/sh -c 'LAKEKEEPER__OPENID_SCOPE=lk lakekeeper'\n"},
    "entry point": {"Dockerfile": DOCKERFILE + 'ENTRYPOINT ["sh","-c","export LAKEKEEPER__OPENID_SCOPE=lk; exec lakekeeper"]\n'},
    "shell of a Dockerfile": {"Dockerfile": f"{DOCKERFILE}CMD ICEBERG_REST__OPENID_SCOPE=lk lakekeeper serve\n"},
    "compose": {"compose.yaml": compose(lk={"environment": KEYCLOAK, "entrypoint": [
        "sh", "-c", "LAKEKEEPER__OPENID_SCOPE=lk lakekeeper serve"]})},
    "pod": {"pod.yaml": pod("a", container(KEYCLOAK, command=["env", "LAKEKEEPER__OPENID_PROVIDERS__OIDC__SCOPE=lk", "lk"]))},
}  # fmt: skip


@pytest.mark.parametrize("form", SCOPES)
def test_a_scope_in_a_command_leaves_the_provider(tmp_path: Path, form: str) -> None:
    migration, settings = migrated(tmp_path, SCOPES[form])
    assert "providers" not in settings.get("identity", {})
    messages = [part.message for part in migration.left]
    assert any("may set variables when the server starts" in message for message in messages)
    assert any(
        "write `identity.providers.oidc:" in message or "so its value is not known" in message for message in messages
    )


@pytest.mark.parametrize(
    "other",
    [
        "LAKEKEEPER__OPENID_PROVIDERS__OIDC__URI=https://kc.example/realms/other",
        "LAKEKEEPER__OPENID_PROVIDERS__OIDC__AUDIENCE=other",
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_provider_that_two_variables_describe_is_left(tmp_path: Path, other: str, is_first: bool) -> None:
    lines = [f"{name}={value}" for name, value in KEYCLOAK.items()]
    given = "\n".join([other, *lines] if is_first else [*lines, other]) + "\n"
    migration, settings = migrated(tmp_path, {"lk.env": given})
    assert "providers" not in settings.get("identity", {})
    assert {line.partition("=")[0] for line in given.splitlines()} == {part.subject for part in migration.left}


BRIDGE = "openpolicyagent/opa:1.0.0"
RUN = ["run", "--server", "--addr=:8181", "/policies"]
COMMANDS: list[tuple[str, list[str], bool]] = [
    *((IMAGE, [*head, "/home/nonroot/lakekeeper", "serve"], False) for head in (
        ["env", "-i"], ["env", "-"], ["env", "--ignore-environment"], ["/entry.sh"], ["vault-env"], ["su", "x", "-c"])),
    *((IMAGE, ["sh", "-c", script], False) for script in ("cd /x && lakekeeper serve", "env -i lakekeeper serve", "`x` serve")),
    *((BRIDGE, [*head, "opa", *RUN], False) for head in (["env", "-i"], ["env", "-"], ["sudo"])),
    *((BRIDGE, [*RUN, *more], False) for more in (
        ["--bundle", "https://x/b.tar.gz"], ["-b", "https://x/b.tar.gz"], ["--bundle=https://x/b.tar.gz"], ["-c", "/x.yaml"],
        ["--config-file=/x.yaml"], ["--set", "services.a.url=https://x"], ["--set-file=a=b"], ["https://x/b.tar.gz"])),
    (BRIDGE, ["sh", "-c", "opa run --server --bundle https://x/b.tar.gz"], False),
    (IMAGE, ["serve"], True), (IMAGE, ["/home/nonroot/lakekeeper", "serve"], True), (BRIDGE, RUN, True),
    (BRIDGE, ["sh", "-c", "exec opa run --server /policies"], True), (BRIDGE, ["opa", *RUN, "-b", "/policies"], True),
]  # fmt: skip


@pytest.mark.parametrize("form", ["pod", "compose"])
@pytest.mark.parametrize(("image", "words", "is_known"), COMMANDS)
def test_variables_beside_a_command_that_is_not_known_whole_are_left(
    tmp_path: Path, form: str, image: str, words: list[str], is_known: bool
) -> None:
    env = {ADMINS: "[oidc~eve]"} if image == IMAGE else {OPEN: "true", "TRINO_ADMIN_USERS": "eve"}
    files = {
        "pod": {"pod.yaml": pod("a", container(env, image=image, command=words))},
        "compose": {"compose.yaml": compose(a={"image": image, "environment": env, "command": words})},
    }
    migration, settings = migrated(tmp_path, files[form])
    is_open = "eve" in str(settings) or settings.get("trino", {}).get("unmanaged_catalogs") == "allow"
    assert (is_open, bool(migration.left)) == (is_known, not is_known)


@pytest.mark.parametrize(
    "spec", [{"substitute": {"WHO": "eve"}}, {"substituteFrom": [{"kind": "Secret", "name": "x"}]}]
)
def test_a_variable_with_a_name_that_flux_replaces_is_left(tmp_path: Path, spec: dict[str, Any]) -> None:
    variables = {"LAKEKEEPER__INSTANCE_ADMINS": "[oidc~${WHO}]", "LAKEKEEPER__BASE_URI": "http://x"}
    env = [{"name": name, "value": value} for name, value in variables.items()]
    documents = [
        {"kind": "Pod", "spec": {"containers": [{"name": "n", "image": "quay.io/lakekeeper/catalog:1", "env": env}]}},
        {"kind": "Kustomization", "spec": {"postBuild": spec}},
    ]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all(documents))
    migration = migrate_lakekeeper([tmp_path / "a.yaml"])
    assert "LAKEKEEPER__INSTANCE_ADMINS" in {part.subject for part in migration.left}
    assert "WHO" not in "".join(migration.files.values())
