"""Parts of a deployment that stand elsewhere: each is read, if it is given, or named, for Nessie and for Lakekeeper."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import strategies as st

from pdp.errors import PolicyError
from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

PREFIX = "nessie.server.authorization.rules."
READ = "op=='READ_ENTITY_VALUE' && role=='A'"
VIEW = "op=='VIEW_REFERENCE' && role=='V'"
PROPERTIES = f"{PREFIX}view={VIEW}\n"
OF_NESSIE = {"NESSIE_SERVER_AUTHORIZATION_RULES_READ": READ}
OF_LAKEKEEPER = {
    "LAKEKEEPER__TRUSTED_ENGINES__TRINO__TYPE": "trino",
    "LAKEKEEPER__TRUSTED_ENGINES__TRINO__OWNER_PROPERTY": "trino.run-as-owner",
    "LAKEKEEPER__TRUSTED_ENGINES__TRINO__IDENTITIES__OIDC__AUDIENCES": "[trino]",
}
Env = Mapping[str, str]
Form = Callable[[Env], Any]
MISSING: Mapping[str, Any] = {}


def pod(env: Env, container: Any = MISSING, image: str = "", **spec: Any) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    one = {"name": "server", "env": variables, **({"image": image} if image else {}), **container}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": [one], **spec}}},
    }


def mounted(env: Env, source: Any, path: str = "/deployments/config", **mount: Any) -> dict[str, Any]:
    return pod(
        env,
        {"volumeMounts": [{"name": "v", "mountPath": path, **mount}]},
        volumes=[{"name": "v", **source}],
    )


def service(env: Env, *, root: Any = MISSING, **keys: Any) -> dict[str, Any]:
    return {"services": {"server": {"environment": dict(env), **keys}}, **root}


def chart(env: Env, **keys: Any) -> dict[str, Any]:
    return {"extraEnv": [{"name": name, "value": value} for name, value in env.items()], **keys}


def kustomization(env: Env, **keys: Any) -> list[dict[str, Any]]:
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return [{**kind, **keys}, pod(env)]


def argo(env: Env, **helm: Any) -> dict[str, Any]:
    source = {"chart": "nessie-lakekeeper", "helm": {"valuesObject": chart(env), **helm}}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "spec": {"source": source}}


def flux(env: Env, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease"}
    return {**kind, "spec": {"values": chart(env), **spec}}


CONFIG_MAP = {"configMap": {"name": "more"}}
REFERENCE = {"configMapRef": {"name": "more"}}
MOUNT = [{"name": "v", "mountPath": "/etc/x"}]
NAMED: dict[str, tuple[Form, str]] = {
    "volume of a config map": (lambda env: mounted(env, CONFIG_MAP), "`more`"),
    "volume of a config map, other path": (lambda env: mounted(env, CONFIG_MAP, "/etc/x"), "`more`"),
    "volume of a config map without a mount": (lambda env: pod(env, volumes=[{"name": "v", **CONFIG_MAP}]), "`more`"),
    "volume of a secret": (lambda env: mounted(env, {"secret": {"secretName": "more"}}), "`more`"),
    "projected volume": (lambda env: mounted(env, {"projected": {"sources": [CONFIG_MAP]}}), "`more`"),
    "projected volume of a secret": (
        lambda env: mounted(env, {"projected": {"sources": [{"secret": {"name": "more"}}]}}), "`more`",
    ),
    "host path": (lambda env: mounted(env, {"hostPath": {"path": "/etc/nessie"}}), "`v` of `hostPath`"),
    "driver": (lambda env: mounted(env, {"csi": {"driver": "secrets-store.csi.k8s.io"}}), "`v` of `csi`"),
    "share": (lambda env: mounted(env, {"nfs": {"server": "x", "path": "/"}}), "`v` of `nfs`"),
    "claim over the configuration": (
        lambda env: mounted(env, {"persistentVolumeClaim": {"claimName": "x"}}, "/deployments"),
        "`v` of `persistentVolumeClaim`",
    ),
    "folder that an init container fills": (
        lambda env: mounted(env, {"emptyDir": {}}), "`v` of `emptyDir`",
    ),
    "mount without a volume": (
        lambda env: pod(env, {"volumeMounts": [{"name": "v", "mountPath": "/deployments/config"}]}), "`v`",
    ),
    "objects of variables": (lambda env: pod(env, {"envFrom": [REFERENCE]}), "`more`"),
    "objects of variables with a prefix": (
        lambda env: pod(env, {"envFrom": [{**REFERENCE, "prefix": "NESSIE_"}]}), "`more`",
    ),
    "objects of variables, optional": (
        lambda env: pod(env, {"envFrom": [{"secretRef": {"name": "more", "optional": True}}]}), "`more`",
    ),
    "objects of variables without a name": (
        lambda env: pod(env, {"envFrom": [{"configMapRef": {}}]}), "a reference without a name",
    ),
    "agent of a vault": (
        lambda env: {"annotations": {"vault.hashicorp.com/agent-inject-secret-app": "kv/x"}, **pod(env)},
        "`vault.hashicorp.com/agent-inject-secret-app`",
    ),
    "chart, volumes": (
        lambda env: chart(env, extraVolumes=[{"name": "v", **CONFIG_MAP}], extraVolumeMounts=MOUNT), "`more`",
    ),
    "chart, volumes of a part": (
        lambda env: {"catalog": chart(env, extraVolumes=[{"name": "v", **CONFIG_MAP}], extraVolumeMounts=MOUNT)},
        "`more`",
    ),
    "chart, mounts alone": (
        lambda env: chart(env, extraVolumeMounts=[{"name": "v", "mountPath": "/deployments/config/"}]), "`v`",
    ),
    "chart, objects of variables": (lambda env: chart(env, extraEnvFrom=[REFERENCE]), "`more`"),
    "chart, names of objects": (lambda env: chart(env, extraEnvVarsCM="more"), "`more`"),
    "chart, existing secret": (lambda env: chart(env, existingSecret="more"), "`more`"),
    "chart, existing config map": (lambda env: chart(env, existingConfigMap="more"), "`more`"),
    "chart, init containers": (
        lambda env: chart(env, extraInitContainers=[{"name": "x", "command": ["cp", "/a", "/b"]}]),
        "`extraInitContainers`",
    ),
    "compose, include": (lambda env: service(env, root={"include": ["more.yml"]}), "`more.yml`"),
    "compose, include with paths": (
        lambda env: service(env, root={"include": [{"path": ["a.yml", "b.yml"], "env_file": "more.env"}]}),
        "`a.yml` `b.yml` `more.env`",
    ),
    "compose, include of a repository": (
        lambda env: service(env, root={"include": ["https://example.com/x.git"]}), "`https://example.com/x.git`",
    ),
    "compose, extends": (lambda env: service(env, extends={"file": "more.yml", "service": "x"}), "`more.yml`"),
    "compose, env file": (lambda env: service(env, env_file="more.env"), "`more.env`"),
    "compose, env files": (
        lambda env: service(env, env_file=["a.env", {"path": "b.env", "required": False}]), "`a.env` `b.env`",
    ),
    "compose, config in a file": (
        lambda env: service(env, configs=["c"], root={"configs": {"c": {"file": "./more.txt"}}}), "`./more.txt`",
    ),
    "compose, config of the host": (
        lambda env: service(env, configs=["c"], root={"configs": {"c": {"environment": "X"}}}), "`c`",
    ),
    "compose, external config": (
        lambda env: service(env, configs=[{"source": "c"}], root={"configs": {"c": {"external": True}}}), "`c`",
    ),
    "compose, config of another file": (lambda env: service(env, configs=["c"]), "`c`"),
    "compose, secret": (
        lambda env: service(env, secrets=["c"], root={"secrets": {"c": {"file": "more.txt"}}}), "`more.txt`",
    ),
    "compose, bound file": (lambda env: service(env, volumes=["./x.txt:/etc/x.txt:ro"]), "`./x.txt`"),
    "compose, bound folder": (lambda env: service(env, volumes=["/srv/conf:/deployments/config"]), "`/srv/conf`"),
    "compose, bound folder in words": (
        lambda env: service(env, volumes=[{"type": "bind", "source": "conf", "target": "/x"}]), "`conf`",
    ),
    "compose, volume over the configuration": (
        lambda env: service(env, volumes=["c:/deployments/config"], root={"volumes": {"c": None}}), "`c` of `volume`",
    ),
    "compose, volume of a folder": (
        lambda env: service(env, volumes=["c:/x"], root={"volumes": {"c": {"driver_opts": {"device": "/x"}}}}), "`c`",
    ),
    "compose, profiles": (lambda env: service(env, profiles=["full"]), "`server`"),
    "compose, image of a folder": (lambda env: service(env, build="image"), "`image/Dockerfile`"),
    "compose, image in words": (
        lambda env: service(env, build={"context": ".", "dockerfile": "my.Dockerfile"}), "`my.Dockerfile`",
    ),
    "compose, image inside": (
        lambda env: service(env, build={"dockerfile_inline": "FROM x\n"}), "`dockerfile_inline`",
    ),
    "kustomize, resources": (lambda env: kustomization(env, resources=["more.yaml", "../base"]), "`more.yaml` `../base`"),
    "kustomize, components": (lambda env: kustomization(env, components=["../x"]), "`../x`"),
    "kustomize, file of a patch": (lambda env: kustomization(env, patches=[{"path": "p.yaml"}]), "`p.yaml`"),
    "kustomize, older patches": (lambda env: kustomization(env, patchesStrategicMerge=["p.yaml"]), "`p.yaml`"),
    "kustomize, json patches": (lambda env: kustomization(env, patchesJson6902=[{"path": "p.json"}]), "`p.json`"),
    "kustomize, patch inside": (
        lambda env: kustomization(env, patches=[{"patch": "- op: remove\n  path: /spec/containers/0/env/1\n"}]),
        "`a patch`",
    ),
    "kustomize, env file": (
        lambda env: kustomization(env, configMapGenerator=[{"name": "x", "envs": ["more.env"]}]), "`more.env`",
    ),
    "kustomize, older env file": (
        lambda env: kustomization(env, secretGenerator=[{"name": "x", "env": "more.env"}]), "`more.env`",
    ),
    "kustomize, file": (
        lambda env: kustomization(env, secretGenerator=[{"name": "x", "files": ["a.txt=more.txt"]}]), "`more.txt`",
    ),
    "kustomize, charts": (
        lambda env: kustomization(env, helmCharts=[{"name": "x", "valuesFile": "v.yaml",
                                                    "additionalValuesFiles": ["w.yaml"]}]),
        "`v.yaml` `w.yaml`",
    ),
    "argo, files": (lambda env: argo(env, valueFiles=["prod.yaml", "$values/x.yaml"]), "`prod.yaml` `$values/x.yaml`"),
    "argo, text": (lambda env: argo(env, values="extraEnvFrom: []\n"), "`values`"),
    "argo, parameter": (
        lambda env: argo(env, parameters=[{"name": "extraEnvFrom[0].secretRef.name", "value": "x"}]),
        "`extraEnvFrom[0].secretRef.name`",
    ),
    "argo, parameter of a file": (
        lambda env: argo(env, fileParameters=[{"name": "x", "path": "more.txt"}]), "`x`",
    ),
    "argo, folder": (
        lambda env: [{"kind": "Application", "spec": {"source": {"repoURL": "x", "path": "apps/x"}}}, pod(env)],
        "`apps/x`",
    ),
    "flux, objects of values": (lambda env: flux(env, valuesFrom=[{"kind": "ConfigMap", "name": "more"}]), "`more`"),
    "flux, patches": (
        lambda env: flux(env, postRenderers=[{"kustomize": {"patches": [{"patch": "spec: {env: []}"}]}}]), "`a patch`",
    ),
    "flux, substitutes": (
        lambda env: [{"kind": "Kustomization", "spec": {"path": "./x", "sourceRef": {},
                      "postBuild": {"substituteFrom": [{"name": "more"}]}}}, pod(env)],
        "`more` `./x`",
    ),
}  # fmt: skip


def migrated(kind: str, *files: Path) -> Migration:
    if kind == "lakekeeper":
        return migrate_lakekeeper(files)
    plain = [file for file in files if file.suffix != ".env"]
    return migrate_nessie(plain, [file for file in files if file not in plain])


def written(folder: Path, given: Any, ending: str = "\n", name: str = "deploy.yaml") -> Path:
    path = folder / name
    as_json = name.endswith(".json") and not isinstance(given, list)
    documents = given if isinstance(given, list) else [given]
    text = given if isinstance(given, str) else json.dumps(given) if as_json else yaml.safe_dump_all(documents)
    path.write_bytes(text.replace("\n", ending).encode())
    return path


def rules_of(migration: Migration) -> dict[str, str]:
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return rules


def left_of(migration: Migration) -> set[str]:
    return {part.subject for part in migration.left}


@pytest.mark.parametrize("form", NAMED)
@pytest.mark.parametrize("kind", ["nessie", "lakekeeper"])
def test_a_part_that_stands_elsewhere_is_named(tmp_path: Path, form: str, kind: str) -> None:
    make, subjects = NAMED[form]
    given = make(OF_NESSIE if kind == "nessie" else OF_LAKEKEEPER)
    in_json = kind == "lakekeeper" and not isinstance(given, list)
    ending, name = ("\n", "deploy.json") if in_json else ("\r\n", "deploy.yaml")
    migration = migrated(kind, written(tmp_path, given, ending, name))
    expected = {f"`{one.strip('`')}`" if subjects[0] == "`" else one for one in subjects.split("` `")}
    reports = {part.subject for part in migration.left if "another part that is left" not in part.message}
    assert reports == expected, migration.parts
    if kind == "nessie":
        assert rules_of(migration).keys() == {"read", "left-parts"}
        assert (rules_of(migration)["read"] == READ) == (form in OF_FILES), "a part that may replace the rule"
    else:
        assert ("trusted_engines" in migration.files["pdp.yaml"]) == (form in OF_FILES | BELOW), migration.parts


OF_FILES = frozenset(
    """volume of a config map/volume of a config map, other path/volume of a config map without a mount
volume of a secret/projected volume/projected volume of a secret/host path/driver/share/claim over the configuration
folder that an init container fills/mount without a volume/agent of a vault/chart, volumes/chart, volumes of a part
chart, mounts alone/chart, init containers/compose, bound file/compose, bound folder/compose, bound folder in words
compose, volume of a folder/compose, volume over the configuration/compose, config in a file/compose, config of the host
compose, config of another file/compose, external config/compose, secret/compose, profiles""".replace("\n", "/").split(
        "/"
    )
)
"""Forms that bring files alone: variables of the container win over these."""
BELOW = frozenset(form for form in NAMED if form not in OF_FILES and ("objects of" in form or "existing" in form)) - {
    "flux, objects of values"} | {"chart, names of objects", "compose, env file", "compose, env files",
    "compose, image in words", "compose, image of a folder", "kustomize, env file", "kustomize, older env file"}  # fmt: skip
"""Forms that bring variables of a lower rank. Another spelling of a rule of Nessie may be among these."""
HIDING: Mapping[str, Mapping[str, Any]] = {
    "volume": {"extraVolumes": [{"name": "v", "hostPath": {"path": "/x"}}],
               "extraVolumeMounts": [{"name": "v", "mountPath": "/deployments/config"}]},
    "object": {"extraVolumes": [{"name": "v", **CONFIG_MAP}],
               "extraVolumeMounts": [{"name": "v", "mountPath": "/deployments/config"}]},
    "mount alone": {"extraVolumeMounts": [{"name": "v", "mountPath": "/deployments"}]},
}  # fmt: skip


@pytest.mark.parametrize("form", HIDING)
def test_a_volume_over_the_file_of_a_chart_makes_its_rules_false(tmp_path: Path, form: str) -> None:
    values = {"authorization": {"enabled": True, "rules": {"read": READ}}}
    assert rules_of(migrated("nessie", written(tmp_path, values)))["read"] == READ
    migration = migrated("nessie", written(tmp_path, {**values, **HIDING[form]}))
    assert rules_of(migration)["read"] == f"false // {READ}"


SIBLINGS = ("application-prod.properties", "application.yaml", "application-prod.yml", "config/application.properties",
            "config/application-prod.yaml", ".env")  # fmt: skip


@pytest.mark.parametrize("name", SIBLINGS)
def test_a_file_beside_that_quarkus_reads_makes_every_rule_false(tmp_path: Path, name: str) -> None:
    (tmp_path / "application.properties").write_text(PROPERTIES)
    (tmp_path / "a.env").write_text(f"NESSIE_SERVER_AUTHORIZATION_RULES_READ={READ}\n")
    beside = tmp_path / name
    beside.parent.mkdir(exist_ok=True)
    beside.write_text("")
    migration = migrated("nessie", tmp_path / "application.properties", tmp_path / "a.env")
    assert [part.place for part in migration.left] == [str(beside)]
    assert rules_of(migration) == {"view": f"false // {VIEW}", "read": f"false // {READ}"}


@pytest.mark.parametrize("kind", ["nessie", "lakekeeper"])
@pytest.mark.parametrize(
    "make",
    [
        lambda env: mounted(env, {"emptyDir": {}}, "/tmp"),
        lambda env: mounted(env, {"persistentVolumeClaim": {"claimName": "x"}}, "/data"),
        lambda env: [pod(env), mounted({}, CONFIG_MAP, "/etc/x") | {"kind": "X"}][:1],
        lambda env: service(env, volumes=["data:/var/lib/x", "/var/cache"], root={"volumes": {"data": {}}}),
        lambda env: chart(env, extraVolumes=[], extraVolumeMounts=[], extraEnvFrom=[], extraInitContainers=[],
                          existingSecret="", advancedConfig={}),
        lambda env: kustomization(env, namePrefix="a-", patches=[{"patch": "- op: replace\n  path: /spec/replicas\n"}]),
        lambda env: argo(env, parameters=[{"name": "replicaCount", "value": "2"}], valueFiles=[], values=""),
    ],
)  # fmt: skip
def test_what_holds_no_settings_is_not_left(tmp_path: Path, kind: str, make: Form) -> None:
    migration = migrated(kind, written(tmp_path, make(OF_NESSIE if kind == "nessie" else OF_LAKEKEEPER)))
    assert migration.left == []


@pytest.mark.parametrize("kind", ["nessie", "lakekeeper"])
def test_parts_of_other_programs_are_ignored_by_name(tmp_path: Path, kind: str) -> None:
    env = OF_NESSIE if kind == "nessie" else OF_LAKEKEEPER
    other = {"image": "docker.io/library/postgres:16", "env_file": "pg.env", "volumes": ["./init.sql:/init.sql"]}
    given = service(env)
    given["services"]["db"] = other
    migration = migrated(kind, written(tmp_path, given))
    ignored = {part.subject: part.message for part in migration.parts if part.status == "ignored"}
    assert (migration.left, ignored) == (
        [], dict.fromkeys(("`pg.env`", "`./init.sql`"), "belongs to a container of another program"),
    )  # fmt: skip
    other["image"] = "docker.io/us/postgres-with-nessie:16"
    assert left_of(migrated(kind, written(tmp_path, given))) == {"`pg.env`", "`./init.sql`"}


def config_map(data: Mapping[str, str], name: str = "more") -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}


FILE = {"application.properties": PROPERTIES}
READ_THERE: dict[str, tuple[Any, Mapping[str, str]]] = {
    "folder": (mounted(OF_NESSIE, CONFIG_MAP), FILE),
    "folder with a slash": (mounted(OF_NESSIE, CONFIG_MAP, "/deployments/config/"), FILE),
    "file": (mounted(OF_NESSIE, CONFIG_MAP, "/deployments/config/application.properties",
                     subPath="application.properties"), FILE),
    "file of another name": (mounted(OF_NESSIE, CONFIG_MAP, "/deployments/config/application.properties",
                                     subPath="rules.txt"), {"rules.txt": PROPERTIES}),
    "items": (mounted(OF_NESSIE, {"configMap": {"name": "more", "items": [
        {"key": "rules", "path": "application.properties"}]}}), {"rules": PROPERTIES}),
    "items of a projected volume": (mounted(OF_NESSIE, {"projected": {"sources": [{"configMap": {
        "name": "more", "items": [{"key": "rules", "path": "config/application.properties"}]}}]}}, "/deployments"),
        {"rules": PROPERTIES}),
    "folder in a folder": (mounted(OF_NESSIE, {"configMap": {"name": "more", "items": [
        {"key": "rules", "path": "a/application.properties"}]}}, subPath="a"), {"rules": PROPERTIES}),
    "chart": (chart(OF_NESSIE, extraVolumes=[{"name": "v", **CONFIG_MAP}],
                    extraVolumeMounts=[{"name": "v", "mountPath": "/deployments/config"}]), FILE),
    "variables": (pod(OF_NESSIE, {"envFrom": [REFERENCE]}), {f"{PREFIX}view": VIEW}),
    "variables behind a prefix": (pod(OF_NESSIE, {"envFrom": [{**REFERENCE, "prefix": "NESSIE_"}]}),
                                  {"SERVER_AUTHORIZATION_RULES_VIEW": VIEW}),
    "one variable": (pod(OF_NESSIE, {"env": [
        {"name": f"{PREFIX}view", "valueFrom": {"configMapKeyRef": {"name": "more", "key": "k"}}},
        {"name": f"{PREFIX}read", "value": READ}]}), {"k": VIEW}),
}  # fmt: skip


@pytest.mark.parametrize("form", READ_THERE)
@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_mounted_object_is_read_where_nessie_reads_it(tmp_path: Path, form: str, is_one_file: bool) -> None:
    workload, data = READ_THERE[form]
    if is_one_file:
        migration = migrated("nessie", written(tmp_path, [workload, config_map(data)]))
    else:
        migration = migrated("nessie", written(tmp_path, workload), written(tmp_path, config_map(data), name="cm.yaml"))
    assert (rules_of(migration), migration.left) == ({"read": READ, "view": VIEW}, [])


NOT_READ_THERE: dict[str, tuple[Any, Mapping[str, str]]] = {
    "another folder": (mounted(OF_NESSIE, CONFIG_MAP, "/etc/nessie"), FILE),
    "another name": (mounted(OF_NESSIE, CONFIG_MAP), {"rules.properties": PROPERTIES}),
    "a hidden file": (mounted(OF_NESSIE, CONFIG_MAP, subPath="other.txt"), FILE),
    "not among the items": (mounted(OF_NESSIE, {"configMap": {"name": "more", "items": [
        {"key": "other", "path": "application.properties"}]}}), FILE),
    "no mount": (pod(OF_NESSIE, volumes=[{"name": "v", **CONFIG_MAP}]), FILE),
    "no volume": (pod(OF_NESSIE), FILE),
    "variables of nobody": (pod(OF_NESSIE), {f"{PREFIX}view": VIEW}),
    "variables behind a prefix": (pod(OF_NESSIE, {"envFrom": [{**REFERENCE, "prefix": "X_"}]}), {f"{PREFIX}view": VIEW}),
    "a template": (pod(OF_NESSIE, {"envFrom": [REFERENCE]}), {f"{PREFIX}view": "role=='{{ .Values.x }}'"}),
}  # fmt: skip


@pytest.mark.parametrize("form", NOT_READ_THERE)
def test_a_text_that_nessie_does_not_read_permits_nothing(tmp_path: Path, form: str) -> None:
    workload, data = NOT_READ_THERE[form]
    migration = migrated("nessie", written(tmp_path, [workload, config_map(data)]))
    assert migration.left != []
    assert rules_of(migration).keys() == {"read", "left-parts"}


@pytest.mark.parametrize("literal", [VIEW, f'"{VIEW}"', f"'{VIEW}'"])
def test_a_generator_makes_an_object_of_literals(tmp_path: Path, literal: str) -> None:
    generator = {"name": "more", "literals": [f"{PREFIX}view={literal}"]}
    given = kustomization({}, configMapGenerator=[generator])[:1]
    migration = migrated("nessie", written(tmp_path, [*given, pod(OF_NESSIE, {"envFrom": [REFERENCE]})]))
    assert (rules_of(migration), migration.left) == ({"read": READ, "view": VIEW}, [])


def test_configs_of_compose_are_files_where_a_service_has_them(tmp_path: Path) -> None:
    target = "/deployments/config/application.properties"
    root = {"configs": {"c": {"content": PROPERTIES}}}
    given = service(OF_NESSIE, root=root, configs=[{"source": "c", "target": target}])
    migration = migrated("nessie", written(tmp_path, given))
    assert (rules_of(migration), migration.left) == ({"read": READ, "view": VIEW}, [])
    migration = migrated("nessie", written(tmp_path, service(OF_NESSIE, root=root, configs=["c"])))
    assert rules_of(migration).keys() == {"read", "left-parts"}
    assert left_of(migration) == {"`/c`"}


def test_two_objects_of_one_name_are_refused(tmp_path: Path) -> None:
    objects = [config_map({f"{PREFIX}view": VIEW}), config_map({f"{PREFIX}view": "true"})]
    with pytest.raises(PolicyError, match="give one of each name"):
        migrated("nessie", written(tmp_path, [*objects, pod(OF_NESSIE, {"envFrom": [REFERENCE]})]))


def test_anchors_count_where_a_service_uses_them(tmp_path: Path) -> None:
    text = (
        f'x-one: &one {{"{PREFIX}view": "{VIEW}", "{PREFIX}read": "true"}}\n'
        f'x-two: {{"{PREFIX}other": "op==\'READ_ENTRIES\'"}}\n'
        f'services: {{server: {{environment: {{<<: *one, "{PREFIX}read": "{READ}"}}}}}}\n'
    )
    migration = migrated("nessie", written(tmp_path, text))
    assert (rules_of(migration), left_of(migration)) == (
        {"view": VIEW, "read": READ}, {f"`{PREFIX}other`"},
    )  # fmt: skip


def placed(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    metadata = {**manifest.get("metadata", {"name": "n"}), **({"namespace": namespace} if namespace else {})}
    return {**manifest, "metadata": metadata}


IN_NAMESPACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "variables": lambda more: pod({}, {"envFrom": [{"configMapRef": {"name": "more", **more}}]}),
    "variables behind a prefix": lambda more: pod(
        {}, {"envFrom": [{"prefix": "NESSIE_", "configMapRef": {"name": "more", **more}}]}
    ),
    "variable": lambda more: pod({}, {"env": [{"name": "NESSIE_SERVER_AUTHORIZATION_RULES_READ", "valueFrom": {
        "configMapKeyRef": {"name": "more", "key": "NESSIE_SERVER_AUTHORIZATION_RULES_READ", **more}}}]}),
    "volume": lambda more: mounted({}, {"configMap": {"name": "more", **more}}),
    "file": lambda more: mounted({}, {"configMap": {"name": "more", **more}},
                                 "/deployments/config/application.properties", subPath="application.properties"),
    "projected": lambda more: mounted({}, {"projected": {"sources": [{"configMap": {"name": "more", **more}}]}}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["Deployment", "Pod", "StatefulSet", "Rollout"])
@pytest.mark.parametrize("form", IN_NAMESPACES)
def test_an_object_of_another_namespace_does_not_count(tmp_path: Path, form: str, kind: str) -> None:
    name = "SERVER_AUTHORIZATION_RULES_READ" if "prefix" in form else "NESSIE_SERVER_AUTHORIZATION_RULES_READ"
    data = {name: READ} if form.startswith("variable") else {"application.properties": f"{PREFIX}read={READ}\n"}
    for more in ({}, {"optional": True}):
        for own, other, counts in (
            ("a", "b", False),
            ("a", "a", True),
            ("", "", True),
            ("a", "", True),
            ("", "b", True),
        ):
            workload = placed({**IN_NAMESPACES[form](more), "kind": kind}, own)
            documents = [workload, placed(config_map(data), other)]
            for given in (documents, documents[::-1], {"kind": "List", "items": documents}):
                migration = migrated("nessie", written(tmp_path, given))
                rules = rules_of(migration)
                assert (rules.get("read") == READ) is counts, (own, other, rules)
                assert counts or {"`more`", f"variable `{name}`"} & left_of(migration)


def test_each_namespace_has_its_own_object(tmp_path: Path) -> None:
    wide = {"NESSIE_SERVER_AUTHORIZATION_RULES_READ": "true"}
    objects = [placed(config_map(wide), "b"), placed(config_map(OF_NESSIE), "a")]
    form = pod({}, {"envFrom": [REFERENCE]})
    for given in (objects, objects[::-1]):
        migration = migrated("nessie", written(tmp_path, [*given, placed(form, "a")]))
        assert rules_of(migration)["read"] == f"false // {READ}", "a kustomization may move the other one"
        assert left_of(migration) == {"`NESSIE_SERVER_AUTHORIZATION_RULES_READ`"}
        with pytest.raises(PolicyError, match="give one of each name"):
            migrated("nessie", written(tmp_path, [*given, form]))


@pytest.mark.parametrize("kind", ["HelmRelease", "Application"])
def test_a_release_may_go_to_another_namespace(tmp_path: Path, kind: str) -> None:
    release = {"kind": kind, "metadata": {"name": "n", "namespace": "flux-system"},
               "spec": {"values": {"envFrom": [REFERENCE]}}}  # fmt: skip
    migration = migrated("nessie", written(tmp_path, [release, placed(config_map(OF_NESSIE), "a")]))
    assert rules_of(migration) == {"read": READ}


SHAPES: dict[str, Callable[[Env], Any]] = {
    "mapping": dict,
    "list": lambda env: [f"{name}={value}" for name, value in env.items()],
    "below": lambda env: {"environment": {"deep": dict(env)}},
    "named": lambda env: {"env": [{"name": name, "value": value} for name, value in env.items()]},
}
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "service": lambda part: {"services": {"server": {"x-env": part}}},
    "key of a service": lambda part: {"services": {"server": {"deploy": {"x-env": part}}}},
    "build": lambda part: {"services": {"server": {"build": {"context": ".", "x-env": part}}}},
    "volume": lambda part: {"services": {"server": {"volumes": [{"type": "tmpfs", "target": "/x", "x-env": part}]}}},
    "root": lambda part: {"services": {"server": {}}, "x-env": part},
    "network": lambda part: {"services": {"server": {}}, "networks": {"one": {"x-env": part}}},
    "merged": lambda part: {"services": {"server": {"<<": {"x-env": part}}}},
    "another service": lambda part: {"services": {"server": {}, "more": {"x-env": part}}},
}
WIDER = {
    "nessie": ({"NESSIE_SERVER_AUTHORIZATION_RULES_VIEW": "op=='VIEW_REFERENCE'"}, {"QUARKUS_PROFILE": "dev"},
               {"MP_CONFIG_PROFILE": "dev"}, {"JAVA_OPTS_APPEND": "-Dquarkus.profile=dev"}),
    "lakekeeper": ({"LAKEKEEPER__INSTANCE_ADMINS": "[oidc~eve]"},),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", PLACES)
def test_an_extension_of_compose_is_no_part_of_a_service(tmp_path: Path, place: str, shape: str) -> None:
    rules = f"{PROPERTIES}%dev.{PREFIX}view=op=='VIEW_REFERENCE'\n"
    for program, wider in WIDER.items():
        environment = {"NESSIE_X": rules} if program == "nessie" else OF_LAKEKEEPER
        for env in wider:
            manifest = PLACES[place](SHAPES[shape](env))
            manifest["services"]["server"]["environment"] = {} if program == "nessie" else dict(environment)
            text = yaml.safe_dump(manifest, sort_keys=False).replace("'<<'", "<<").replace('"<<"', "<<")
            (tmp_path / "application.properties").write_text(rules)
            (tmp_path / "Dockerfile").write_text("FROM ghcr.io/projectnessie/nessie\n")
            others = [tmp_path / "application.properties"] if program == "nessie" else []
            others += [tmp_path / "Dockerfile"] if place == "build" and program == "nessie" else []
            migration = migrated(program, written(tmp_path, text), *others)
            assert any("`x-` parts" in part.message for part in migration.left), (env, migration.parts)
            if program == "nessie":
                assert rules_of(migration)["view"] == VIEW, env
            else:
                assert "eve" not in migration.files["pdp.yaml"]


@pytest.mark.parametrize("place", ["x-env: &e {}\nservices: {server: {environment: *e}}",
                                   "services: {server: {x-env: &e {}, environment: *e}}",
                                   "services: {server: {x-env: &e {}, environment: {<<: *e}}}",
                                   "x-s: &s {environment: {}}\nservices: {server: *s}",
                                   "x-s: &s {environment: {}}\nservices: {server: {<<: [*s], tty: true}}",
                                   "x-s: &s {x-env: &e {}, environment: *e}\nservices: {server: {<<: *s}}",
                                   "services: {x-server: {environment: {}}}"])  # fmt: skip
def test_an_extension_counts_where_an_anchor_uses_it(tmp_path: Path, place: str) -> None:
    text = place.replace("{}", json.dumps(OF_LAKEKEEPER))
    migration = migrated("lakekeeper", written(tmp_path, text))
    assert "trusted_engines" in migration.files["pdp.yaml"]
    assert not migration.left


def test_a_given_file_stands_for_one_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.env").write_text("A=b\n")
    (tmp_path / "x.env").write_text("B=b\n")
    given = written(tmp_path, service(OF_NESSIE, env_file=["a/x.env"]))
    assert left_of(migrated("nessie", given, tmp_path / "x.env")) == {"`a/x.env`"}
    assert left_of(migrated("nessie", given, tmp_path / "a" / "x.env")) == set()
    far = written(tmp_path, service(OF_NESSIE, env_file=["/b/x.env", "/c/x.env"]))
    assert len(left_of(migrated("nessie", far, tmp_path / "x.env"))) == 1
    assert left_of(migrated("nessie", far, tmp_path / "x.env", tmp_path / "a" / "x.env")) == set()


def test_a_folder_is_given_with_all_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "application.properties").write_text(PROPERTIES)
    given = written(tmp_path, service(OF_NESSIE, volumes=["./conf:/deployments/config"]))
    assert left_of(migrated("nessie", given)) == {"`./conf`"}
    migration = migrated("nessie", given, folder / "application.properties")
    assert (rules_of(migration), migration.left) == ({"view": VIEW, "read": READ}, [])
    (folder / "application-prod.yaml").write_text("")
    assert "`./conf`" in left_of(migrated("nessie", given, folder / "application.properties"))


UNIT = f"""\
[Service]
# the rules
Environment="NESSIE_SERVER_AUTHORIZATION_RULES_READ={READ}" \\
  OTHER=x
EnvironmentFile=-/etc/nessie/more.env
ExecStart=/usr/bin/java "-D{PREFIX}view={VIEW}" -jar nessie.jar
"""


def test_a_unit_of_systemd_is_read(tmp_path: Path) -> None:
    unit = written(tmp_path, UNIT, name="nessie.service")
    migration = migrated("nessie", unit)
    assert all(rule.startswith("false") for rule in rules_of(migration).values())
    assert left_of(migration) == {"`/etc/nessie/more.env`"}
    more = written(tmp_path, "A=b\n", name="more.env")
    migration = migrated("nessie", unit, more)
    assert (rules_of(migration), migration.left) == ({"read": READ, "view": VIEW}, [])
    (tmp_path / "nessie.service.d").mkdir()
    drop_in = written(tmp_path / "nessie.service.d", "[Service]\nPassEnvironment=RULES\n", name="x.conf")
    assert left_of(migrated("nessie", unit, more)) == {"`nessie.service.d/x.conf`"}
    assert left_of(migrated("nessie", unit, more, drop_in)) == {"`RULES`"}


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        (f'Environment="{PREFIX}view={VIEW}"', f"`{PREFIX}view`"),
        (f'Environment="NESSIE_SERVER_AUTHORIZATION_RULES_VIEW={VIEW} %i"', "variable `NESSIE_SERVER_AUTHORIZATION_RULES_VIEW`"),
        ("LoadCredential=rules:/etc/rules", "`rules:/etc/rules`"),
        ("BindPaths=/etc/x:/deployments/config", "`/etc/x:/deployments/config`"),
        ("UnsetEnvironment=A", "`A`"),
    ],
)  # fmt: skip
def test_what_a_unit_does_not_say_is_left(tmp_path: Path, line: str, subject: str) -> None:
    migration = migrated(
        "nessie", written(tmp_path, f"{UNIT}{line}\n".replace("EnvironmentFile", "X"), name="a.service")
    )
    assert left_of(migration) == {subject}
    with pytest.raises(PolicyError, match="takes away"):
        migrated("nessie", written(tmp_path, f"{UNIT}Environment=\n", name="a.service"))


def test_a_dockerfile_sets_the_variables_of_its_last_stage(tmp_path: Path) -> None:
    text = (
        f'FROM ghcr.io/projectnessie/nessie:0.104.0 AS base\nENV NESSIE_SERVER_AUTHORIZATION_RULES_READ="{READ}"\n'
        f'FROM alpine AS tools\nENV NESSIE_SERVER_AUTHORIZATION_RULES_X="{VIEW}"\n'
        "FROM base\nENV A=b \\\n  C=d\nCOPY rules.properties /deployments/config/application.properties\n"
    )
    migration = migrated("nessie", written(tmp_path, text, name="Dockerfile"))
    assert rules_of(migration).keys() == {"read", "left-parts"}
    assert left_of(migration) == {"`NESSIE_SERVER_AUTHORIZATION_RULES_X`", "`rules.properties`"}
    text = f"FROM registry.local/ours\nARG X\nENV NESSIE_SERVER_AUTHORIZATION_RULES_VIEW=role=='$X'\nENV {PREFIX}read {READ}\n"
    migration = migrated("nessie", written(tmp_path, text, name="nessie.Dockerfile"))
    assert rules_of(migration).keys() == {"read", "left-parts"}
    assert left_of(migration) == {"variable `NESSIE_SERVER_AUTHORIZATION_RULES_VIEW`", "`registry.local/ours`"}


@pytest.mark.parametrize("name", ["main.tf", "main.tf.json", "values.yaml.gotmpl", "nessie.nomad"])
@pytest.mark.parametrize("kind", ["nessie", "lakekeeper"])
def test_a_file_of_another_tool_is_left_with_what_looks_like_settings(tmp_path: Path, name: str, kind: str) -> None:
    env = OF_NESSIE if kind == "nessie" else OF_LAKEKEEPER
    text = "resource helm_release x {\n" + "".join(f'  set {{ name = "{one}" }}\n' for one in env) + "}\n"
    files = [written(tmp_path, pod(env)), written(tmp_path, text, name=name)]
    migration = migrated(kind, *files)
    assert f"`{name}`" in left_of(migration)
    assert len([part for part in migration.left if part.place.startswith(str(files[1]))]) == 1 + len(env)


def test_parts_that_are_left_close_what_they_might_open(tmp_path: Path) -> None:
    bridge = {"TRINO_ALLOW_UNMANAGED_CATALOGS": "true", "TRINO_PROD_CATALOG_NAME": "p"}
    provider = {
        "LAKEKEEPER__OPENID_PROVIDER_URI": "https://idp.example.com/realms/x",
        "LAKEKEEPER__OPENID_AUDIENCE": "lakekeeper",
    }

    def settings(given: Any) -> dict[str, Any]:
        migration = migrated("lakekeeper", written(tmp_path, given))
        found: dict[str, Any] = yaml.safe_load(migration.files["pdp.yaml"])
        return found

    whole = settings(pod({**bridge, **provider}))
    assert (whole["trino"]["unmanaged_catalogs"], "providers" in whole["identity"]) == ("allow", True)
    of_volume = settings(mounted({**bridge, **provider}, CONFIG_MAP, "/policies"))
    assert (of_volume["trino"]["unmanaged_catalogs"], "providers" in of_volume["identity"]) == ("deny", True)
    policies = [mounted({**bridge, **provider}, CONFIG_MAP, "/policies"), config_map({"catalogs.rego": "package x"})]
    assert settings(policies)["trino"]["unmanaged_catalogs"] == "deny"
    of_host = service(
        {}, environment=[*(f"{name}={value}" for name, value in provider.items()), "LAKEKEEPER__OPENID_SCOPE"]
    )
    assert "identity" not in settings(of_host)
    of_variables = settings(pod({**bridge, **provider}, {"envFrom": [REFERENCE]}))
    assert of_variables["trino"]["unmanaged_catalogs"] == "deny"
    assert "identity" not in of_variables


def test_a_catalog_that_trino_cannot_have_is_left(tmp_path: Path) -> None:
    given = {"TRINO_ALLOW_UNMANAGED_CATALOGS": "true", "TRINO_PROD_CATALOG_NAME": "Prod"}
    migration = migrated("lakekeeper", written(tmp_path, pod(given)))
    assert "catalog `Prod`" in left_of(migration)
    trino = yaml.safe_load(migration.files["pdp.yaml"])["trino"]
    assert (trino["unmanaged_catalogs"], "Prod" in trino["catalogs"]) == ("deny", False)


def with_name(given: Any, name: str) -> Any:
    return {**given, "metadata": {"name": name}}


OTHER = {"NESSIE_SERVER_AUTHORIZATION_RULES_OTHER": VIEW}


def chart_of(id: str, text: str) -> dict[str, Any]:
    return {"kind": "HelmRelease", "spec": {"values": {"authorization": {"enabled": True, "rules": {id: text}}}}}


@pytest.mark.parametrize(
    "given",
    [
        {"services": {"a": {"environment": OF_NESSIE}, "b": {"environment": OTHER}}},
        [with_name(pod(OF_NESSIE), "a"), with_name(pod(OTHER), "b")],
        [chart_of("read", READ), chart_of("other", VIEW)],
        [chart_of("read", READ), chart_of("read", VIEW)],
        [
            *(mounted({}, {"configMap": {"name": id}}) for id in "ab"),
            *(config_map({"application.properties": f"{PREFIX}{id}={VIEW}\n"}, id) for id in "ab"),
        ],
    ],
)
def test_the_rules_of_two_servers_are_not_joined(tmp_path: Path, given: Any) -> None:
    migration = migrated("nessie", written(tmp_path, given))
    messages = {part.message for part in migration.left}
    assert [message.partition(":")[0] for message in messages] == ["is a rule of one server of several"]
    assert all(text.startswith("false //") for text in rules_of(migration).values())


def test_containers_with_the_same_rules_are_one_server(tmp_path: Path) -> None:
    services = {"a": {"environment": OF_NESSIE}, "b": {"environment": {**OF_NESSIE, "A": "b"}}, "c": {"image": "x"}}
    migration = migrated("nessie", written(tmp_path, {"services": services}))
    assert (rules_of(migration), migration.left) == ({"read": READ}, [])
    patch = with_name(pod({f"{PREFIX}view": VIEW}), "n")
    migration = migrated("nessie", written(tmp_path, [with_name(pod(OF_NESSIE), "n"), patch]))
    assert (rules_of(migration), migration.left) == ({"read": READ, "view": VIEW}, [])


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        (pod(OF_NESSIE, {"command": ["sh", "-c", ". /etc/x.sh && exec java -jar x.jar"]}), "script of a command"),
        (pod(OF_NESSIE, {"command": ["sh", "-c", "export A=$(cat /x); exec java -jar x"]}), "script of a command"),
        (pod(OF_NESSIE, {"args": ["sh", "-c", "cp /x /deployments/config/application.properties"]}),
         "`application.properties`"),
        (pod({**OF_NESSIE, "SMALLRYE_CONFIG_SOURCE_FILE_LOCATIONS": "/x"}),
         "key `SMALLRYE_CONFIG_SOURCE_FILE_LOCATIONS`"),
        (pod({**OF_NESSIE, "QUARKUS_CONFIG_LOCATIONS": "/x"}), "key `QUARKUS_CONFIG_LOCATIONS`"),
        (pod({**OF_NESSIE, "JAVA_TOOL_OPTIONS": "-Dquarkus.config.locations=/x"}), "key `quarkus.config.locations`"),
        ([pod(OF_NESSIE), [{"op": "remove", "path": "/spec/containers/0/env/1"}]], "`a patch`"),
        ([pod(OF_NESSIE), {"kind": "Deployment", "env": [{"name": "X", "$patch": "delete"}]}], "`a patch`"),
    ],
)  # fmt: skip
def test_what_may_bring_or_take_settings_is_left(tmp_path: Path, given: Any, subject: str) -> None:
    migration = migrated("nessie", written(tmp_path, given))
    assert left_of(migration) - {"a command"} == {subject}
    assert rules_of(migration).keys() == {"read", "left-parts"}


@pytest.mark.parametrize("kind", ["nessie", "lakekeeper"])
def test_what_compose_takes_away_is_refused(tmp_path: Path, kind: str) -> None:
    for text in ("environment: !reset {A: b}", "env_file: !override [x.env]"):
        with pytest.raises(PolicyError, match="takes away what other files set"):
            migrated(kind, written(tmp_path, f"services: {{a: {{{text}}}}}\n"))


@pytest.mark.parametrize("kind", ["nessie", "lakekeeper"])
def test_a_file_that_compose_reads_by_itself_is_named(tmp_path: Path, kind: str) -> None:
    given = written(tmp_path, service(OF_NESSIE if kind == "nessie" else OF_LAKEKEEPER), name="compose.yaml")
    assert migrated(kind, given).left == []
    other = written(tmp_path, "services: {}\n", name="compose.override.yml")
    migration = migrated(kind, given)
    assert "`compose.override.yml`" in left_of(migration)
    kept = migration.files["pdp.yaml"] if kind == "lakekeeper" else rules_of(migration)["read"].partition(" //")[0]
    assert "trusted_engines" not in kept if kind == "lakekeeper" else kept == "false"
    assert migrated(kind, given, other).left == []


def test_rules_of_a_chart_in_another_folder_permit_nothing(tmp_path: Path) -> None:
    values = {"authorization": {"enabled": True, "rules": {"view": VIEW}}, "image": {"configDir": "/opt/conf"}}
    migration = migrated("nessie", written(tmp_path, values, name="values.yaml"))
    assert (left_of(migration), rules_of(migration)) == ({"`configDir`"}, {"view": f"false // {VIEW}"})
    values["image"] = {"configDir": "/deployments/config/"}
    assert migrated("nessie", written(tmp_path, values, name="values.yaml")).left == []


WRAPPERS: tuple[Callable[[Any], Any], ...] = (
    lambda given: given,
    lambda given: {"kind": "List", "items": [{"apiVersion": "v2", "kind": "HelmRelease", "spec": {"values": given}}]},
    lambda given: {"kind": "HelmRelease", "spec": {"values": {"catalog": given}}},
    lambda given: {"my-lakekeeper": given, "b": None},
)
OBJECT_PARTS: Mapping[str, Callable[[str], Any]] = {
    "volumes": lambda name: {"volumes": [{"name": name, "configMap": {"name": name}}]},
    "extraVolumes": lambda name: {"extraVolumes": [{"name": name, "projected": {"sources": [
        {"configMap": {"name": name}}, {"serviceAccountToken": {"path": "t"}}]}}]},
    "envFrom": lambda name: {"envFrom": [{"prefix": "A_", "configMapRef": {"name": name}}]},
    "extraEnvFrom": lambda name: {"extraEnvFrom": [{"configMapRef": {"name": name, "optional": True}}]},
    "existingConfigMap": lambda name: {"existingConfigMap": name},
}  # fmt: skip


@hypothesis.given(
    parts=st.dictionaries(st.sampled_from(sorted(OBJECT_PARTS)), st.booleans(), max_size=4),
    wrapper=st.sampled_from(WRAPPERS),
    ending=st.sampled_from(("\n", "\r\n")),
)
def test_an_object_is_named_unless_it_is_given(
    parts: dict[str, bool], wrapper: Callable[[Any], Any], ending: str
) -> None:
    pairs = [pair for part in parts for pair in OBJECT_PARTS[part](part.lower()).items()]
    documents = [
        wrapper({"env": pod(OF_LAKEKEEPER)["spec"]["template"]["spec"]["containers"][0]["env"], **dict(pairs)})
    ]
    documents += [config_map({"some": "text"}, part.lower()) for part, is_given in parts.items() if is_given]
    with TemporaryDirectory() as folder:
        migration = migrated("lakekeeper", written(Path(folder), documents, ending))
    assert left_of(migration) == {f"`{part.lower()}`" for part, is_given in parts.items() if not is_given}
