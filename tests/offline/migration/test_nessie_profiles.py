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


def migrated(folder: Path, profiles: tuple[str, ...] = (), /, **files: object) -> Migration:
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
    branch = yaml.safe_load(migration.files["pdp.yaml"])["warehouses"]["nessie"].get("default_ref")
    assert branch == (None if "branch" in option else "main")


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


PARENT = APP.replace("%dev", "%common")
PARENTS: dict[str, dict[str, object]] = {
    **{key: {"application_properties": f"{key}=common\n{PARENT}"} for key in (
        "quarkus.config.profile.parent", "smallrye.config.profile.parent", "%prod.quarkus.config.profile.parent",
        "%prod,dev.smallrye.config.profile.parent")},
    **{key: {"application_properties": PARENT, "a_env": f"{key}=common\n"} for key in (
        "QUARKUS_CONFIG_PROFILE_PARENT", "SMALLRYE_CONFIG_PROFILE_PARENT", "_PROD_QUARKUS_CONFIG_PROFILE_PARENT")},
    "a variable of the parent": {
        "application_properties": f"{PREFIX}a={NARROW}\n",
        "a_env": f"QUARKUS_CONFIG_PROFILE_PARENT=common\n_COMMON_NESSIE_SERVER_AUTHORIZATION_RULES_A={WIDE}\n"
    },
    "option of Java": {
        "application_properties": PARENT, "a_env": "JAVA_OPTS=-Dquarkus.config.profile.parent=common\n"
    },
    "option of Java out of reach": {
        "application_properties": PARENT, "deploy_yaml": pod(args=["-Dquarkus.config.profile.parent=common"])
    },
    "in a secret": {"application_properties": PARENT, "deploy_yaml": pod(env=[
        {"name": "QUARKUS_CONFIG_PROFILE_PARENT", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])},
    "file of the parent": {
        "application_properties": f"quarkus.config.profile.parent=common\n{PREFIX}a={NARROW}\n",
        "application__common_properties": f"{PREFIX}a={WIDE}\n",
    },
    "in YAML": {"application_yaml": {
        "quarkus": {"config": {"profile": {"parent": "common"}}},
        "nessie": {"server": {"authorization": {"rules": {"a": NARROW}}}},
        "%common": {"nessie": {"server": {"authorization": {"rules": {"a": WIDE}}}}},
    }},
}  # fmt: skip


@pytest.mark.parametrize("form", PARENTS)
@pytest.mark.parametrize("profiles", [(), ("prod",)])
def test_a_rule_that_a_parent_profile_may_replace_is_false(
    tmp_path: Path, form: str, profiles: tuple[str, ...]
) -> None:
    migration = migrated(tmp_path, profiles, **PARENTS[form])
    assert rules_of(migration)["a"].startswith(SHUT)
    assert "parent" in left_of(migration).lower()


def test_a_parent_among_the_given_profiles_counts_below_the_last(tmp_path: Path) -> None:
    text = (
        f"quarkus.config.profile.parent=common\n{APP}%common.{PREFIX}a={NARROW} && ref=='b'\n%prod.{PREFIX}b={WIDE}\n"
    )
    migration = migrated(tmp_path, ("common", "prod"), application_properties=text)
    assert (rules_of(migration), migration.left) == ({"a": f"{NARROW} && ref=='b'", "b": WIDE}, [])


def test_a_parent_of_another_profile_does_not_count(tmp_path: Path) -> None:
    migration = migrated(tmp_path, application_properties=f"%dev.quarkus.config.profile.parent=common\n{PARENT}")
    assert rules_of(migration) == {"a": NARROW}


@pytest.mark.parametrize("key", ["quarkus.profile", "mp.config.profile"])
def test_a_profile_that_another_profile_chooses_is_uncertain(tmp_path: Path, key: str) -> None:
    migration = migrated(tmp_path, application_properties=f"%prod.{key}=dev\n{APP}")
    assert rules_of(migration)["a"].startswith(SHUT)


@pytest.mark.parametrize("text", ["", ",", "dev,", "dev, prod", " dev"])
@pytest.mark.parametrize("line", ["QUARKUS_PROFILE='{}'", "JAVA_OPTS='-Dquarkus.profile={}'"])
def test_a_profile_with_an_empty_name_is_uncertain(tmp_path: Path, line: str, text: str) -> None:
    migration = migrated(tmp_path, application_properties=APP, a_env=f"{line.format(text)}\n")
    assert rules_of(migration)["a"].startswith(SHUT)
    assert migration.left


def test_a_given_profile_needs_no_advice_to_give_it(tmp_path: Path) -> None:
    migration = migrated(tmp_path, ("dev",), application_properties=APP, a_env="SMALLRYE_CONFIG_PROFILE=prod\n")
    assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])
    assert [part.message for part in migration.parts if "asks for" in part.message] == [
        "asks for `prod`, and `dev` counts, because it was given"
    ]


EXPRESSION = f"{PREFIX}a={NARROW[:-1]}${{x:y}}'\n{PREFIX}b=op=='READ_ENTRIES'\n"
NO_EXPRESSIONS = "mp.config.property.expressions.enabled"
OFF: dict[str, dict[str, object]] = {
    **{f"{prefix}={text}": {"application_properties": f"{prefix}{NO_EXPRESSIONS}={text}\n{EXPRESSION}"}
       for prefix in ("", "%prod.") for text in ("false", "no", "off", "0", "${z:false}")},
    "variable": {"application_properties": EXPRESSION, "a_env": "MP_CONFIG_PROPERTY_EXPRESSIONS_ENABLED=false\n"},
    "option of Java": {"application_properties": EXPRESSION, "a_env": f"JAVA_OPTS=-D{NO_EXPRESSIONS}=false\n"},
    "option out of reach": {
        "application_properties": EXPRESSION, "deploy_yaml": pod(args=[f"-D{NO_EXPRESSIONS}=false"])
    },
    "in a secret": {"application_properties": EXPRESSION, "deploy_yaml": pod(env=[
        {"name": NO_EXPRESSIONS, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])},
    "escaped": {"application_properties": f"{NO_EXPRESSIONS}=false\n" + EXPRESSION.replace("$", "$$")},
}  # fmt: skip


@pytest.mark.parametrize("form", OFF)
def test_a_rule_with_an_expression_that_is_turned_off_is_false(tmp_path: Path, form: str) -> None:
    migration = migrated(tmp_path, **OFF[form])
    rules = rules_of(migration)
    assert (rules["a"].startswith(SHUT), rules["b"]) == (True, "op=='READ_ENTRIES'")
    assert "turned off" in left_of(migration)


def test_expressions_that_are_turned_on_are_replaced(tmp_path: Path) -> None:
    migration = migrated(tmp_path, application_properties=f"{NO_EXPRESSIONS}=true\n{EXPRESSION}")
    assert (rules_of(migration)["a"], migration.left) == (f"{NARROW[:-1]}y'", [])


FILE = "/deployments/config/application.properties"
COPIED = f"FROM {IMAGE}\nCOPY application.properties {FILE}\n"


def mounted(source: dict[str, object], mount: dict[str, object], **container: object) -> dict[str, object]:
    """Return a pod with the files of a ConfigMap, and another volume over a path."""
    found = pod(volumeMounts=[{"name": "c", "mountPath": "/deployments/config"}, {"name": "x", **mount}], **container)
    found["spec"]["volumes"] = [{"name": "c", "configMap": {"name": "c"}}, {"name": "x", **source}]  # type: ignore[index]
    held = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"application.properties": APP}}
    return {"apiVersion": "v1", "kind": "List", "items": [held, found]}


OVER: dict[str, object] = {"mountPath": FILE, "subPath": "x"}
REPLACED: dict[str, dict[str, object]] = {
    **{step: {"application_properties": APP, "Dockerfile": f"{COPIED}{step}\n"} for step in (
        f"COPY --from=build /out/a.properties {FILE}", f"ADD https://x.example/a.properties {FILE}",
        "COPY --from=build /conf/ /deployments/config/", f"RUN rm {FILE}", f"RUN sed -i s/x/y/ {FILE}",
        "COPY --from=build /out/application.properties /deployments/config/",
        "COPY --chown=1:1 --from=build /out /deployments/config")},
    "secret over the file": {"deploy_yaml": mounted({"secret": {"secretName": "s"}}, OVER)},
    "config map over the file": {"deploy_yaml": mounted({"configMap": {"name": "d"}}, OVER)},
    "secret with items over the file": {"deploy_yaml": mounted(
        {"secret": {"secretName": "s", "items": [{"key": "k", "path": "x"}]}}, OVER)},
    "projected secret over the file": {"deploy_yaml": mounted(
        {"projected": {"sources": [{"secret": {"name": "s"}}]}}, OVER)},
    "folder of the host over the file": {"deploy_yaml": mounted({"hostPath": {"path": "/x"}}, OVER)},
    "csi over the file": {"deploy_yaml": mounted({"csi": {"driver": "d"}}, OVER)},
    "script over the file": {"deploy_yaml": mounted({"emptyDir": {}}, {"mountPath": "/tmp"}, lifecycle={
        "postStart": {"exec": {"command": CHANGES}}})},
    "compose, external config": {"application_properties": APP, "compose_yaml": {
        **compose(configs=[{"source": "c", "target": FILE}]), "configs": {"c": {"external": True}}}},
    "compose, file not given": {"application_properties": APP, "compose_yaml": compose(
        volumes=[*MOUNT, f"./missing/x.properties:{FILE}"])},
}  # fmt: skip


@pytest.mark.parametrize("form", REPLACED)
def test_rules_of_a_file_that_another_part_replaces_are_false(tmp_path: Path, form: str) -> None:
    migration = migrated(tmp_path, **REPLACED[form])
    assert rules_of(migration)["a"].startswith(SHUT)
    assert "replaced or changed" in left_of(migration)


@pytest.mark.parametrize("step", ["COPY --from=build /out/app.jar /deployments/app.jar", "RUN chmod +x /run.sh",
                                  "COPY --from=build /x.properties /etc/x.properties"])  # fmt: skip
def test_parts_in_other_places_replace_no_file(tmp_path: Path, step: str) -> None:
    migration = migrated(tmp_path, application_properties=APP, Dockerfile=f"{COPIED}{step}\n")
    assert rules_of(migration)["a"] == NARROW
