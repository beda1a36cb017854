"""Migration of Nessie's rules where the profile, or another choice between texts of a rule, is not certain."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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
