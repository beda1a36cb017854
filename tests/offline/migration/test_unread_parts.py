"""Parts of a deployment that may replace settings of the server, or that load none: rules of files beside are `false`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie

NESSIE = "ghcr.io/projectnessie/nessie:0.104.0"
LAKEKEEPER = "quay.io/lakekeeper/catalog:v0.11.0"
OPA = "openpolicyagent/opa:1.0.0"
RULE = "nessie.server.authorization.rules.a="
VARIABLE = "NESSIE_SERVER_AUTHORIZATION_RULES_A"
WIDE = "op=='READ_ENTITY_VALUE'"
NARROW = f"{WIDE} && role=='x'"
CONFIG = "/deployments/config"
COPIED = f"FROM {NESSIE}\nCOPY application.properties {CONFIG}/\n"
BUILD = {"services": {"nessie": {"build": "."}}}
FILE = {"application.properties": f"{RULE}{WIDE}\n"}


def written(folder: Path, files: Mapping[str, Any]) -> list[Path]:
    for name, given in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        dump = yaml.safe_dump_all if isinstance(given, list) else yaml.safe_dump
        (folder / name).write_text(given if isinstance(given, str) else dump(given))
    return [folder / name for name in files if not name.endswith("dockerignore")]


def rules(folder: Path, files: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
    """Return the rules, and whether a part is left."""
    paths = written(folder, files)
    env_files = [path for path in paths if path.name.endswith((".env", ".service", ".json"))]
    migration = migrate_nessie([path for path in paths if path not in env_files], env_files)
    return yaml.safe_load(migration.files["rules.yaml"])["rules"], bool(migration.left)


def compose(*volumes: str, **keys: Any) -> dict[str, Any]:
    return {"services": {"nessie": {"image": NESSIE, "volumes": list(volumes), **keys}}}


MOUNT = f"./application.properties:{CONFIG}/application.properties"
NARROW_FILE = {"application.properties": f"{RULE}{NARROW}\n"}
ENV = {"e.env": f"{VARIABLE}={WIDE}\n"}
NOT_LOADED: Mapping[str, Mapping[str, Any]] = {
    **{f"mounted at {place}": {"compose.yaml": compose(f"./e.env:{place}", MOUNT), **NARROW_FILE, **ENV} for place in (
        "/x/.env", "/.env", "/home/default/.env", "/opt/.env", "/etc/o.env", f"{CONFIG}/.env", "/deployments/x.env")},
    "long form": {"compose.yaml": compose(MOUNT) | {"services": {"nessie": {"image": NESSIE, "volumes": [
        MOUNT, {"type": "bind", "source": "./e.env", "target": "/x/.env"}]}}}, **NARROW_FILE, **ENV},
    "beside docker compose": {"compose.yaml": compose(MOUNT), **NARROW_FILE, ".env": ENV["e.env"]},
    "of an include": {"compose.yaml": {"include": [{"path": "a.yaml", "env_file": "e.env"}]},
                      "a.yaml": compose(environment={VARIABLE: NARROW}), **ENV},
    "copied": {"compose.yaml": BUILD, "Dockerfile": f"{COPIED}COPY e.env /x/.env\n", **NARROW_FILE, **ENV},
    "folder": {"compose.yaml": compose("./d:/x", MOUNT), **NARROW_FILE, "d/.env": ENV["e.env"]},
    "file of a generated object": {"kustomization.yaml": {"configMapGenerator": [{"name": "a", "files": ["e.env"]}]},
                                   "pod.yaml": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
                                       "containers": [{"name": "n", "image": NESSIE, "envFrom": [
                                           {"configMapRef": {"name": "a"}}]}]}}, **NARROW_FILE, **ENV},
}  # fmt: skip


@pytest.mark.parametrize("form", NOT_LOADED)
def test_a_file_of_variables_that_nothing_loads_permits_nothing(tmp_path: Path, form: str) -> None:
    found, is_left = rules(tmp_path, NOT_LOADED[form])
    assert found.get("a", "false") == NARROW or found["a"].startswith("false")
    assert is_left


def test_a_file_of_variables_that_quarkus_reads_counts(tmp_path: Path) -> None:
    files = {"compose.yaml": compose("./e.env:/deployments/.env", MOUNT), **NARROW_FILE, **ENV}
    assert rules(tmp_path, files) == ({"a": WIDE}, False)


@pytest.mark.parametrize("name", [".env", "/opt/nessie/.env"])
def test_a_given_file_of_a_unit_is_not_asked_for(tmp_path: Path, name: str) -> None:
    unit = f"[Service]\nEnvironmentFile={name}\nExecStart=/usr/bin/java -jar /opt/nessie/quarkus-run.jar\n"
    files = {"nessie.service": unit, ".env": f"{VARIABLE}={NARROW}\n", **FILE}
    assert rules(tmp_path, files) == ({"a": NARROW}, False)


STEPS = (
    "RUN cd /deployments && rm -rf config", "RUN cd /deployments; rm -r c*", "RUN rm -rf /deploy*/config",
    'RUN rm -rf "/depl"oyments/config', "ARG D=/deployments\nRUN rm -rf $D/config", "RUN cd ~ && rm -rf ../../deployments",
    "RUN pushd /deployments && sed -i 's/a/b/' config/application.properties", "RUN find / -name 'app*' -delete",
    "RUN sh -c 'cd /deployments/config; sed -i s/x/y/ application.properties'", "RUN /tmp/setup.sh", "RUN python3 -c 'x'",
    "WORKDIR /deployments\nRUN rm config/*", "WORKDIR /deployments/config\nRUN rm -f *", 'RUN ["rm", "-rf", "/"]',
    'WORKDIR /deployments/config\nRUN ["rm", "-rf", "."]', "RUN curl -o /deployments/config/application.yaml https://x.example",
    "WORKDIR /deployments/config\nRUN envsubst < application.properties > a && mv a application.properties",
    "RUN echo x > /deployments/config/application.yaml", "RUN chmod 000 /deployments", "RUN chown 1:1 ../deployments",
    "RUN mkdir -p /opt/x && cp -r /opt/y /deployments", "RUN ln -sf /opt/x /deployments/config", "RUN true || rm -r /x",
    "RUN echo $(rm -r /deployments)", "RUN <<EOF\nrm -rf /deployments/config\nEOF", "RUN rm -rf /usr/../deployments",
    "RUN --mount=type=secret,id=x /setup.sh", "RUN dnf install -y --installroot=/ x", "RUN dnf install -y nessie-config",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_before", [False, True])
def test_a_step_that_may_change_files_makes_their_rules_false(tmp_path: Path, step: str, is_before: bool) -> None:
    copy = COPIED.partition("\n")[2]
    steps = f"{step}\n{copy.replace('application', './application')}" if is_before else f"{copy}{step}\n"
    found, is_left = rules(tmp_path, {"compose.yaml": BUILD, "Dockerfile": f"FROM {NESSIE}\n{steps}", **FILE})
    assert found["a"].startswith("false")
    assert is_left


@pytest.mark.parametrize("step", [
    "RUN echo hi", "RUN microdnf install -y curl && microdnf clean all", "RUN useradd x", "RUN chmod +x /run.sh",
    "RUN apt-get update && apt-get install -y --no-install-recommends curl && rm -rf /var/lib/apt/lists/*",
    "RUN set -eux; mkdir -p /usr/share/x", 'RUN ["chown", "-R", "1:1", "/var/log/x"]', "RUN --network=none true",
])  # fmt: skip
def test_a_step_that_changes_no_settings_is_not_left(tmp_path: Path, step: str) -> None:
    files = {"compose.yaml": BUILD, "Dockerfile": f"{COPIED}{step}\n", **FILE}
    assert rules(tmp_path, files) == ({"a": WIDE}, False)


IGNORING = ("**/*.yaml", "conf/*.yaml", "conf/application.yaml", "*/application.*", "/conf/application.y?ml", "conf",
            "./conf/**", "**/application.yaml\n!conf/application.yaml", "conf/[a-z]*.yaml", "*")  # fmt: skip


@pytest.mark.parametrize("pattern", IGNORING)
@pytest.mark.parametrize("name", [".dockerignore", "Dockerfile.dockerignore"])
@pytest.mark.parametrize("source", ["conf", "conf/", "conf/*", "conf/application.properties conf/application.yaml"])
def test_a_copy_without_ignored_files_permits_nothing(tmp_path: Path, source: str, name: str, pattern: str) -> None:
    held = {"nessie": {"server": {"authorization": {"rules": {"a": WIDE}}}}}
    files = {
        "compose.yaml": BUILD, "Dockerfile": f"FROM {NESSIE}\nCOPY {source} {CONFIG}/\n", name: f"{pattern}\n",
        "conf/application.properties": f"{RULE}{NARROW}\n", "conf/application.yaml": held,
    }  # fmt: skip
    found, is_left = rules(tmp_path, files)
    assert found["a"].startswith("false")
    assert is_left


@pytest.mark.parametrize("pattern", ["", "# conf", ".git", "target/", "**/*.md", "*.yaml", "!conf"])
def test_patterns_of_other_files_leave_nothing_out(tmp_path: Path, pattern: str) -> None:
    files = {"compose.yaml": BUILD, "Dockerfile": f"FROM {NESSIE}\nCOPY conf {CONFIG}/\n", ".dockerignore": f"{pattern}\n",
             "conf/application.properties": f"{RULE}{WIDE}\n"}  # fmt: skip
    assert rules(tmp_path, files) == ({"a": WIDE}, False)


def pod(volumes: Any, mounts: Any, **metadata: Any) -> list[Any]:
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": dict(FILE)}
    spec = {
        "containers": [{"name": "n", "image": NESSIE, "volumeMounts": [
            {"name": "c", "mountPath": f"{CONFIG}/application.properties", "subPath": "application.properties"}, *mounts]}],
        "volumes": [{"name": "c", "configMap": {"name": "a"}}, *volumes],
    }  # fmt: skip
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}, held]


SOURCES: tuple[dict[str, Any], ...] = ({"secret": {"secretName": "z"}}, {"configMap": {"name": "q"}}, {"emptyDir": {}}, {"csi": {"driver": "x"}},
           {"persistentVolumeClaim": {"claimName": "x"}}, {"projected": {"sources": [{"secret": {"name": "z"}}]}})  # fmt: skip


@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize(
    "path",
    [
        f"{CONFIG}/application.yaml",
        f"{CONFIG}/application.yml",
        f"{CONFIG}/application-prod.properties",
        "/deployments/.env",
    ],
)
def test_an_unknown_file_of_a_higher_rank_makes_rules_false(tmp_path: Path, path: str, source: Any) -> None:
    mount = {"name": "d", "mountPath": path, "subPath": "x"}
    found, is_left = rules(tmp_path, {"k.yaml": pod([{"name": "d", **source}], [mount])})
    assert found["a"].startswith("false")
    assert is_left


AGENTS = {
    "vault.security.banzaicloud.io/vault-env-from-path": "secret/data/nessie",
    "vault.security.banzaicloud.io/vault-from-path": "secret/data/nessie",
    "vault.hashicorp.com/agent-inject-secret-application.yaml": "kv/x",
    "instrumentation.opentelemetry.io/inject-java": "true", "secrets.doppler.com/reload": "true",
}  # fmt: skip


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_in_an_annotation_makes_rules_false(tmp_path: Path, name: str) -> None:
    found, is_left = rules(tmp_path, {"k.yaml": pod([], [], annotations={name: AGENTS[name]})})
    assert found["a"].startswith("false")
    assert is_left


@pytest.mark.parametrize("name", ["checksum/config", "prometheus.io/scrape", "sidecar.istio.io/inject", "owner",
                                  "cluster-autoscaler.kubernetes.io/safe-to-evict"])  # fmt: skip
def test_a_known_annotation_is_not_left(tmp_path: Path, name: str) -> None:
    assert rules(tmp_path, {"k.yaml": pod([], [], annotations={name: "true"})}) == ({"a": WIDE}, False)


def task(image: str, env: Mapping[str, str], **keys: Any) -> str:
    variables = [{"name": name, "value": text} for name, text in env.items()]
    return json.dumps(
        {"family": "x", "containerDefinitions": [{"name": "n", "image": image, "environment": variables, **keys}]}
    )


ENTRIES = (["env", "-i", "java", "-jar", "x"], ["sh", "-c", "unset X; java -jar x"], ["/wrap.sh"])


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_an_entry_point_of_a_task_is_a_command(tmp_path: Path, entry: list[str]) -> None:
    found, is_left = rules(tmp_path, {"task.json": task(NESSIE, {VARIABLE: WIDE}, entryPoint=entry)})
    assert found["a"].startswith("false")
    assert is_left
    assert rules(tmp_path, {"task.json": task(NESSIE, {VARIABLE: WIDE}, entryPoint=["java", "-jar", "x"])}) == (
        {"a": WIDE},
        False,
    )


@pytest.mark.parametrize(
    "keys",
    [{"mountPoints": [{"sourceVolume": "v", "containerPath": CONFIG}]}, {"volumesFrom": [{"sourceContainer": "v"}]}],
    ids=str,
)
def test_volumes_over_settings_of_a_task_are_left(tmp_path: Path, keys: Any) -> None:
    assert rules(tmp_path, {"task.json": task(NESSIE, {VARIABLE: WIDE}, **keys)})[1]
    assert not rules(tmp_path, {"task.json": task(NESSIE, {VARIABLE: WIDE}, mountPoints=[{"containerPath": "/data"}])})[
        1
    ]


def test_an_entry_point_of_a_container_unit_is_left(tmp_path: Path) -> None:
    unit = f'[Container]\nImage={NESSIE}\nEnvironment="{VARIABLE}={WIDE}"\nEntrypoint=env -i java\n'
    (tmp_path / "n.container").write_text(unit)
    migration = migrate_nessie([], [tmp_path / "n.container"])
    assert yaml.safe_load(migration.files["rules.yaml"])["rules"]["a"].startswith("false")


def deployment(image: str = NESSIE) -> dict[str, Any]:
    return {
        **pod([], [])[0],
        "spec": {"containers": [{"name": "n", "image": image, "env": [{"name": VARIABLE, "value": WIDE}]}]},
    }


MADE: Mapping[str, Mapping[str, Any]] = {
    "kustomize": {"images": [{"name": "ghcr.io/projectnessie/nessie", "newName": "mycorp/nessie"}]},
    "kustomize of Flux": {"spec": {"images": [{"name": "x", "newName": "mycorp/x"}]}},
    "Argo CD": {"spec": {"source": {"kustomize": {"images": ["ghcr.io/projectnessie/nessie=mycorp/nessie:1"]}}}},
    "parameter": {"spec": {"source": {"helm": {"parameters": [{"name": "image.repository", "value": "mycorp/x"}]}}}},
}  # fmt: skip


@pytest.mark.parametrize("form", MADE)
def test_an_image_of_another_maker_in_place_of_the_own_is_left(tmp_path: Path, form: str) -> None:
    kind = "Application" if form in ("Argo CD", "parameter") else "Kustomization"
    files = {"k.yaml": [{"kind": kind, **MADE[form]}, deployment()]}
    assert rules(tmp_path, files)[1]
    stock = json.loads(json.dumps(files["k.yaml"]).replace("mycorp/nessie", "quay.io/projectnessie/nessie"))
    assert form not in ("kustomize", "Argo CD") or not rules(tmp_path, {"k.yaml": stock})[1]


@pytest.mark.parametrize("patch", ["spec: {source: {helm: {valueFiles: [prod.yaml]}}}", "{{ toYaml .patch }}"])
def test_a_patch_of_a_set_of_applications_makes_rules_false(tmp_path: Path, patch: str) -> None:
    values = {"authorization": {"enabled": True, "rules": {"a": WIDE}}}
    source = {"chart": "nessie", "helm": {"valuesObject": values}}
    found, is_left = rules(tmp_path, {"a.yaml": {
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": {"name": "n"},
        "spec": {"template": {"spec": {"source": source}}, "templatePatch": patch}}})  # fmt: skip
    assert found["a"].startswith("false")
    assert is_left


NAMES = [f"{one}{end}" for one in ("compose", "docker-compose") for end in (".yaml", ".yml")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beside", [name.replace(".y", ".override.y") for name in NAMES])
def test_each_name_of_an_override_is_named(tmp_path: Path, name: str, beside: str) -> None:
    (tmp_path / beside).write_text(yaml.safe_dump({"services": {"nessie": {"environment": {VARIABLE: NARROW}}}}))
    found, is_left = rules(tmp_path, {name: compose(environment={VARIABLE: WIDE})})
    assert found["a"].startswith("false")
    assert is_left


ADMINS = "LAKEKEEPER__INSTANCE_ADMINS"
MALLORY = '["oidc~mallory"]'
SERVICE = {"image": LAKEKEEPER, "command": ["serve"], "environment": {"LAKEKEEPER__AUTHZ_BACKEND": "openfga"}}
OPEN = {"TRINO_ALLOW_UNMANAGED_CATALOGS": "true"}
RUN = ["run", "--server", "/b"]


def of_bridge(**keys: Any) -> dict[str, Any]:
    service = {"image": OPA, "command": RUN, "environment": OPEN, **keys}
    return {"services": {"opa": service}, "volumes": {"b": {}}}


def opa_pod(source: Any, **spec: Any) -> dict[str, Any]:
    container = {"name": "o", "image": OPA, "args": RUN, "env": [{"name": name, "value": text} for name, text in OPEN.items()],
                 "volumeMounts": [{"name": "b", "mountPath": "/b"}]}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "o"},
            "spec": {"containers": [container], "volumes": [{"name": "b", **source}], **spec}}  # fmt: skip


CLOSED: Mapping[str, Mapping[str, Any]] = {
    "env file beside docker compose": {"compose.yaml": {"services": {"l": SERVICE}}, ".env": f"{ADMINS}={MALLORY}\n"},
    "mounted env file": {"compose.yaml": {"services": {"l": {**SERVICE, "volumes": ["./o.env:/etc/o.env"]}}},
                         "o.env": f"{ADMINS}={MALLORY}\n"},
    "entry point": {"task.json": task(LAKEKEEPER, {ADMINS: MALLORY}, entryPoint=["env", "-i", "lakekeeper", "serve"])},
    "agent": {"k.yaml": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "l", "annotations": AGENTS}, "spec": {
        "containers": [{"name": "l", "image": LAKEKEEPER, "env": [{"name": ADMINS, "value": MALLORY}]}]}}},
    "image of another maker": {"c.yaml": of_bridge(image="mycorp/opa:1.0")},
    "volume": {"c.yaml": of_bridge(volumes=["b:/b"])},
    "volume, long": {"c.yaml": of_bridge(volumes=[{"type": "volume", "source": "b", "target": "/b"}])},
    "tmpfs": {"c.yaml": of_bridge(tmpfs="/b")},
    "claim": {"k.yaml": opa_pod({"persistentVolumeClaim": {"claimName": "x"}})},
    "empty folder": {"k.yaml": opa_pod({"emptyDir": {}}, initContainers=[{"name": "g", "image": "alpine/git"}])},
    "step": {"c.yaml": of_bridge(image="", build="."), "Dockerfile": f"FROM {OPA}\nRUN curl -o /b/x.rego https://x.example\n"},
}  # fmt: skip


@pytest.mark.parametrize("form", CLOSED)
def test_what_is_not_known_opens_nothing_of_lakekeeper(tmp_path: Path, form: str) -> None:
    migration = migrate_lakekeeper(written(tmp_path, CLOSED[form]))
    settings = yaml.safe_load(migration.files["pdp.yaml"])
    assert "mallory" not in migration.files["pdp.yaml"]
    assert settings.get("trino", {}).get("unmanaged_catalogs", "deny") == "deny"
    assert migration.left


def test_the_bridge_alone_opens_other_catalogs(tmp_path: Path) -> None:
    migration = migrate_lakekeeper(written(tmp_path, {"c.yaml": of_bridge(volumes=["b:/tmp/x"])}))
    assert yaml.safe_load(migration.files["pdp.yaml"])["trino"]["unmanaged_catalogs"] == "allow"
    assert migration.left == []
