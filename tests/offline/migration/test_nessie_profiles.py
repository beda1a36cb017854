"""Migration of Nessie's rules where the profile, or another choice between texts of a rule, is not certain."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import SHUT, Migration

PREFIX = "nessie.server.authorization.rules."
NARROW = "op=='VIEW_REFERENCE' && role=='x'"
WIDE = "op=='VIEW_REFERENCE'"
APP = f"nessie.server.authorization.enabled=true\n{PREFIX}a={NARROW}\n%dev.{PREFIX}a={WIDE}\n"
IMAGE = "ghcr.io/projectnessie/nessie"
OPTION = "-Dquarkus.profile=dev"
MOUNT = ["./application.properties:/deployments/config/application.properties"]


def migrated(folder: Path, profiles: tuple[str, ...] = (), **files: object) -> Migration:
    """Return the migration of files; `_` in a name stands for a dot, and `__` for a minus."""
    paths = []
    for name, content in files.items():
        path = folder / name.replace("__", "-").replace("_", ".")
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        paths.append(path)
    return migrate_nessie([path for path in paths if path.suffix != ".env"],
                          [path for path in paths if path.suffix == ".env"], profiles)  # fmt: skip


def rules_of(migration: Migration) -> dict[str, str]:
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return rules


def left_of(migration: Migration) -> str:
    return " ".join(f"{part.subject} {part.message}" for part in migration.left)


def pod(**container: object) -> dict[str, object]:
    containers = [{"name": "nessie", "image": IMAGE, **container}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {"containers": containers}}


def compose(**service: object) -> dict[str, object]:
    return {"services": {"nessie": {"image": IMAGE, "volumes": MOUNT, **service}}}


APPENDED = {"JAVA_OPTS": "-Xmx1g", "JAVA_OPTS_APPEND": OPTION}
OUT_OF_REACH: dict[str, dict[str, object]] = {
    "arguments of a pod": {"deploy_yaml": pod(args=[OPTION])},
    "arguments of a service": {"compose_yaml": compose(command=[OPTION])},
    "arguments in a text": {"compose_yaml": compose(command=f"{OPTION} -x")},
    "behind the jar": {"compose_yaml": compose(command=["java", "-jar", "x.jar", OPTION])},
    "behind the jar, pod": {"deploy_yaml": pod(command=["java"], args=["-jar", "x.jar", OPTION])},
    "behind the class": {"deploy_yaml": pod(command=["java", "-cp", "x", "org.example.Main", OPTION])},
    "behind the jar, shell": {"deploy_yaml": pod(command=["sh", "-c", f"exec java -jar x.jar {OPTION}"])},
    "behind the jar, unit": {"n_service": f"[Service]\nExecStart=/usr/bin/java -jar /opt/n.jar {OPTION}\n"},
    "behind the jar, image": {
        "Dockerfile": f"FROM {IMAGE}\nCOPY application.properties /deployments/config/application.properties\n"
                      f'CMD ["java", "-jar", "x.jar", "{OPTION}"]\n'
    },
    "entry point without java": {"Dockerfile": f'FROM {IMAGE}\nENTRYPOINT ["/run.sh", "{OPTION}"]\n'},
    "two programs": {"deploy_yaml": pod(command=["sh", "-c", f"java {OPTION} -jar check.jar; java -jar x.jar"])},
    "beside other options": {"compose_yaml": compose(environment=APPENDED)},
    "beside other options, pod": {
        "deploy_yaml": pod(env=[{"name": name, "value": text} for name, text in APPENDED.items()])
    },
    "beside options in another file": {
        "compose_yaml": compose(environment={"JAVA_OPTS_APPEND": OPTION}, env_file="a.env"), "a_env": "JAVA_OPTS=-X\n"
    },
    "beside options in a secret": {
        "deploy_yaml": pod(env=[
            {"name": "JAVA_OPTS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "JAVA_OPTS_APPEND", "value": OPTION},
        ])
    },
    "arguments in a variable": {"a_env": f"JAVA_ARGS={OPTION}\n"},
    "cut off by a blank": {"a_env": f"JAVA_OPTS={OPTION} ,x\n"},
    "variable of a shell": {"deploy_yaml": pod(command=["sh", "-c", "java -Dquarkus.profile=$P -jar x.jar"])},
}  # fmt: skip


@pytest.mark.parametrize("name", ["quarkus.profile", "smallrye.config.profile", "mp.config.profile"])
@pytest.mark.parametrize("form", OUT_OF_REACH)
def test_a_profile_that_may_not_reach_the_server_is_left(tmp_path: Path, form: str, name: str) -> None:
    files = {path: yaml.safe_load(yaml.safe_dump(text).replace("quarkus.profile", name))
             for path, text in OUT_OF_REACH[form].items()}  # fmt: skip
    migration = migrated(tmp_path, application_properties=APP, **files)
    assert f"property `{name}`" in left_of(migration)
    assert rules_of(migration)["a"].startswith(SHUT)


@pytest.mark.parametrize("option", ["-Dnessie.server.default-branch=b", "-Dconfig_ordinal=10", "-Dmp.config.x=y"])
def test_other_properties_behind_the_jar_are_left(tmp_path: Path, option: str) -> None:
    migration = migrated(tmp_path, application_properties=APP, deploy_yaml=pod(args=[option]))
    assert option[2:].partition("=")[0] in left_of(migration)
    assert yaml.safe_load(migration.files["pdp.yaml"])["warehouses"]["nessie"]["default_ref"] == "main"


def test_properties_without_a_say_about_rules_stay_ignored(tmp_path: Path) -> None:
    migration = migrated(tmp_path, application_properties=APP, deploy_yaml=pod(args=["-Dquarkus.http.port=1"]))
    assert (rules_of(migration), migration.left) == ({"a": NARROW}, [])


@pytest.mark.parametrize("command", [
    {"command": ["java", OPTION, "-jar", "x.jar"]}, {"env": [{"name": "JAVA_OPTS_APPEND", "value": OPTION}]},
    {"command": ["sh", "-c", f"exec java -Xmx1g {OPTION} -jar x.jar"]},
])  # fmt: skip
def test_a_profile_that_reaches_the_server_counts(tmp_path: Path, command: dict[str, object]) -> None:
    migration = migrated(tmp_path, application_properties=APP, deploy_yaml=pod(**command))
    assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])


RULE_OPTION = f"-D{PREFIX}a={WIDE}"
JAVA = ["java", OPTION, "-jar", "check.jar"]
SHELL = ["sh", "-c", f"java {OPTION} -jar check.jar"]
CHANGES = ["sh", "-c", "cp /tmp/x /deployments/config/application.properties"]
UNIT = "[Service]\nExecStart=/usr/bin/java -jar /opt/nessie.jar\n"
HELD = ["livenessProbe", "readinessProbe", "startupProbe", "customLivenessProbe"]
HOOKS: dict[str, dict[str, object]] = {
    **{f"{key} {command[0]}": {"deploy_yaml": pod(**{key: {"exec": {"command": command}}})}
       for key in HELD for command in (JAVA, SHELL, CHANGES, ["java", RULE_OPTION])},
    **{f"{key} {command[0]}": {"deploy_yaml": pod(lifecycle={key: {"exec": {"command": command}}})}
       for key in ("postStart", "preStop") for command in (JAVA, SHELL)},
    **{f"{key} {number}": {"compose_yaml": compose(**{key: [hook]})} for key in ("post_start", "pre_stop")
       for number, hook in enumerate([
           {"command": JAVA}, {"command": " ".join(JAVA)}, {"command": ["x"], "environment": {"QUARKUS_PROFILE": "dev"}},
           {"command": ["x"], "environment": ["QUARKUS_PROFILE=dev"]}, {"environment": {"MP_CONFIG_PROFILE": "dev"}},
           {"command": ["x"], "environment": {"NESSIE_SERVER_AUTHORIZATION_RULES_A": WIDE}},
           {"command": ["x"], "environment": {"JAVA_OPTS": RULE_OPTION}},
       ])},
    "health check of compose": {"compose_yaml": compose(healthcheck={"test": ["CMD", *JAVA]})},
    "health check of compose, text": {"compose_yaml": compose(healthcheck={"test": " ".join(JAVA)})},
    "watch of compose": {"compose_yaml": compose(develop={"watch": [{"path": "x", "target": "/x", "exec": {
        "command": JAVA, "environment": {"QUARKUS_PROFILE": "dev"}}}]})},
    "health check of ECS": {"deploy_json": {"containerDefinitions": [
        {"name": "n", "image": IMAGE, "healthCheck": {"command": ["CMD-SHELL", " ".join(JAVA)]}}]}},
    "health check of an image": {"Dockerfile": f"FROM {IMAGE}\nHEALTHCHECK CMD {' '.join(JAVA)}\n"},
    **{key: {"n_service": f"{UNIT}{key}={prefix}{' '.join(JAVA)}\n"} for prefix, key in [
        ("", "ExecStartPre"), ("-", "ExecStartPost"), ("+", "ExecStop"), ("", "ExecStopPost"), ("", "ExecReload"),
        ("!", "ExecCondition")]},
    "ExecStop with a rule": {"n_service": f"{UNIT}ExecStop=java {RULE_OPTION} -jar x\n"},
    "before the server": {"n_service": UNIT.replace("ExecStart", f"ExecStartPre={' '.join(JAVA)}\nExecStart")},
    "HealthCmd": {"n_container": f"[Container]\nImage={IMAGE}\nHealthCmd={' '.join(JAVA)}\n"},
}  # fmt: skip


@pytest.mark.parametrize("form", HOOKS)
def test_programs_beside_the_server_set_nothing_and_are_named(tmp_path: Path, form: str) -> None:
    migration = migrated(tmp_path, application_properties=APP, **HOOKS[form])
    assert rules_of(migration) == {"a": NARROW}
    assert "beside the server" in left_of(migration)


@pytest.mark.parametrize("hook", [
    {"livenessProbe": {"httpGet": {"path": "/q/health", "port": 9000}}},
    {"readinessProbe": {"exec": {"command": ["curl", "-f", "http://localhost:9000"]}}},
    {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}}},
])  # fmt: skip
def test_harmless_programs_beside_the_server_are_silent(tmp_path: Path, hook: dict[str, object]) -> None:
    migration = migrated(tmp_path, application_properties=APP, deploy_yaml=pod(**hook))
    assert (rules_of(migration), migration.left) == ({"a": NARROW}, [])


@pytest.mark.parametrize("key", ["post_start", "pre_stop"])
@pytest.mark.parametrize("variables", [{"LAKEKEEPER__INSTANCE_ADMINS": "[oidc~eve]"},
                                       ["LAKEKEEPER__INSTANCE_ADMINS=[oidc~eve]"]])  # fmt: skip
def test_hooks_of_lakekeeper_set_nothing(tmp_path: Path, key: str, variables: object) -> None:
    hooks = [{"command": ["x"], "environment": variables}]
    service = {"image": "quay.io/lakekeeper/catalog", "environment": {"LAKEKEEPER__AUTHZ_BACKEND": "openfga"}}
    path = tmp_path / "compose.yaml"
    path.write_text(yaml.safe_dump({"services": {"lakekeeper": {**service, key: hooks}}}))
    migration = migrate_lakekeeper([path])
    assert "oidc~eve" not in migration.files["pdp.yaml"]
    assert "LAKEKEEPER__INSTANCE_ADMINS" in left_of(migration)
