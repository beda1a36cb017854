"""Migration of Nessie's authorization from manifests, charts and options of Java: nothing is dropped in silence."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pdp.errors import InvalidArgument, PolicyError
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

PREFIX = "nessie.server.authorization.rules."
VIEW = "op=='VIEW_REFERENCE'&&ref=='main'"
READ = "op=='READ_ENTITY_VALUE'"
RULES = {"view": VIEW, "read": READ}
PROPERTIES = "".join(f"{PREFIX}{id}={text}\n" for id, text in RULES.items())
OPTIONS = [f"-D{PREFIX}{id}={text}" for id, text in RULES.items()]
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


def migrated(folder: Path, text: object, name: str = "deploy.yaml", *, as_env: bool = True) -> Migration:
    path = folder / name
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text, sort_keys=False))
    return migrate_nessie([], [path]) if as_env else migrate_nessie([path])


def rules_of(migration: Migration) -> dict[str, str]:
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return rules


def pod(container: object) -> dict[str, object]:
    return {**DEPLOYMENT, "spec": {"template": {"spec": {"containers": [container]}}}}


def compose(service: object) -> dict[str, object]:
    return {"services": {"nessie": service}}


NESTED = {"nessie": {"server": {"authorization": {"rules": RULES}}}}
CHART = {"authorization": {"enabled": True, "rules": RULES}}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nessie"}}
QUOTED = " ".join(f'"{option}"' for option in OPTIONS)
FORMS: dict[str, object] = {
    "chart": CHART,
    "chart with a switch in text": {"authorization": {"enabled": "true", "rules": RULES}},
    "chart inside of a chart": {"my-nessie": CHART, "postgres": {"enabled": True}},
    "chart, advanced, flat": {"advancedConfig": {f"{PREFIX}{id}": text for id, text in RULES.items()}},
    "chart, advanced, nested": {"advancedConfig": NESTED, "authorization": {"enabled": True}},
    "chart, half and half": {
        "authorization": {"enabled": True, "rules": {"view": VIEW, "read": "false"}},
        "advancedConfig": {f"{PREFIX}read": READ},
    },
    "chart, variables": {"extraEnv": [{"name": f"{PREFIX}{id}", "value": text} for id, text in RULES.items()]},
    "release of a chart": {"apiVersion": "helm/v2", "kind": "HelmRelease", "spec": {"values": CHART}},
    "operator": {"apiVersion": "nessie.projectnessie.org/v1", "kind": "Nessie", "spec": CHART},
    "config map": {**CONFIG_MAP, "data": {"application.properties": PROPERTIES}},
    "config map in yaml": {**CONFIG_MAP, "data": {"application.yaml": yaml.safe_dump(NESTED)}},
    "config map in a list": {"kind": "List", "items": [{**CONFIG_MAP, "data": {"application.properties": PROPERTIES}}]},
    "config map of variables": {**CONFIG_MAP, "data": {f"{PREFIX}{id}": text for id, text in RULES.items()}},
    "secret": {"kind": "Secret", "data": {"application.properties": b64encode(PROPERTIES.encode()).decode()}},
    "config map in base64": {
        **CONFIG_MAP, "binaryData": {"application.properties": b64encode(PROPERTIES.encode()).decode()}
    },
    "secret beside a key store": {
        "kind": "Secret",
        "data": {"x.jks": b64encode(b"\xff\xfe\x00").decode()},
        "stringData": {"application.properties": PROPERTIES},
    },
    "compose, merged": (
        "x-common: &common {" + ", ".join(f'"{PREFIX}{id}": "{text}"' for id, text in RULES.items()) + "}\n"
        "services: {nessie: {environment: {<<: *common, A: b}}, other: {environment: *common}}\n"
    ),
    "secret in text": {"kind": "Secret", "stringData": {"application.properties": PROPERTIES}},
    "pod, variables": pod({"env": [{"name": f"{PREFIX}{id}", "value": text} for id, text in RULES.items()]}),
    "pod, capitals": pod({
        "env": [{"name": f"{PREFIX.replace('.', '_')}{id}".upper(), "value": text} for id, text in RULES.items()]
    }),
    "pod, options": pod({"env": [{"name": "JAVA_OPTS_APPEND", "value": f"-Xmx1g {' '.join(OPTIONS)} -Dx=y"}]}),
    "pod, command": pod({"command": ["java", "-cp", "x", *OPTIONS, "-jar", "nessie.jar", "--x"]}),
    "pod, arguments of java": pod({"command": ["/usr/bin/java"], "args": [*OPTIONS, "-jar", "nessie.jar"]}),
    "pod, shell": pod({"command": ["sh", "-c"], "args": ["exec java -Xmx1g " + QUOTED + " -jar nessie.jar"]}),
    "compose, list": compose({"environment": [f"{PREFIX}{id}={text}" for id, text in RULES.items()]}),
    "compose, mapping": compose({"environment": {f"{PREFIX}{id}": text for id, text in RULES.items()}}),
    "compose, quoted parts": compose({"environment": {f"NESSIE_SERVER_AUTHORIZATION_RULES__{id.upper()}__": text
                                                      for id, text in RULES.items()}}),
    "compose, options": compose({"environment": {"JAVA_OPTS": " ".join(OPTIONS)}}),
    "compose, old options": compose({"environment": [f"JAVA_OPTIONS={' '.join(OPTIONS)}"]}),
    "compose, tool options": compose({"environment": {"JAVA_TOOL_OPTIONS": QUOTED}}),
    "compose, launcher options": compose({"environment": {"JDK_JAVA_OPTIONS": QUOTED}}),
    "compose, command": compose({"command": f"java {QUOTED} -jar nessie.jar"}),
    "compose, shell": compose({"command": ["sh", "-c", f"java {QUOTED} -jar nessie.jar"]}),
    "compose, entry point": compose({"entrypoint": ["java", *OPTIONS], "command": ["-jar", "nessie.jar"]}),
    "quarkus": NESTED,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_env", [True, False])
def test_every_form_of_deployment_gives_the_same_rules(tmp_path: Path, form: str, as_env: bool) -> None:
    migration = migrated(tmp_path, FORMS[form], as_env=as_env)
    assert (rules_of(migration), migration.left) == (RULES, [])
    if form not in ("quarkus", "compose, merged"):
        as_json = migrated(tmp_path, json.dumps(FORMS[form]), "deploy.json", as_env=as_env)
        assert (rules_of(as_json), as_json.left) == (RULES, [])


@pytest.mark.parametrize("name", ["JAVA_OPTS", "JAVA_OPTS_APPEND", "JAVA_OPTIONS"])
def test_options_in_an_env_file_are_read(tmp_path: Path, name: str) -> None:
    migration = migrated(tmp_path, f'{name}="{" ".join(OPTIONS)}"\n', "a.env")
    assert (rules_of(migration), migration.left) == (RULES, [])
    migration = migrated(tmp_path, "\n".join(OPTIONS) + "\n", "a.env")
    assert (rules_of(migration), migration.left) == (RULES, [])


ANOTHER = f"{PREFIX}a={READ}"
NOT_READ: dict[str, tuple[object, str]] = {
    "chart that is off": ({"authorization": {"enabled": False, "rules": RULES}}, "the chart writes no rules"),
    "chart without a switch": ({"authorization": {"rules": RULES}}, "the chart writes no rules"),
    "template": (
        {"authorization": {"enabled": True, "rules": {"view": "op=='VIEW_REFERENCE' && ref=='{{ .Values.b }}'"}}},
        "is a template",
    ),
    "template of a variable": (
        {"extraEnv": [{"name": f"{PREFIX}view", "value": "ref=='{{ .Values.b }}'"}]},
        "stands in a secret",
    ),
    "unknown value of the chart": ({"authorization": {"enabled": True, "rule": {"a": VIEW}}}, "no such value"),
    "arguments of the image": (compose({"command": OPTIONS}), "Java gives this to the program"),
    "arguments of the image, pod": (pod({"args": OPTIONS}), "Java gives this to the program"),
    "behind the jar": (pod({"command": ["java", "-jar", "x.jar", *OPTIONS]}), "Java gives this to the program"),
    "behind a class": (pod({"command": ["java", "Main", *OPTIONS]}), "Java gives this to the program"),
    "variable of arguments": (compose({"environment": {"JAVA_ARGS": OPTIONS[0]}}), "Java gives this to the program"),
    "blank": (
        compose({"environment": {"JAVA_OPTS": f"-D{PREFIX}view=op=='VIEW_REFERENCE' && ref=='main' -Dx=y"}}),
        "a blank ends an option",
    ),
    "beside other options": (
        compose({"environment": {"JAVA_OPTS": "-Xmx1g", "JAVA_OPTS_APPEND": OPTIONS[0]}}),
        "does not read JAVA_OPTS_APPEND",
    ),
    "quotes that go away": (compose({"environment": {"JAVA_TOOL_OPTIONS": OPTIONS[0]}}), ""),
    "secret": (
        pod({"env": [{"name": "NESSIE_SERVER_AUTHORIZATION_RULES_A", "valueFrom": {"secretKeyRef": {"name": "x"}}}]}),
        "stands in a secret",
    ),
    "profile in a secret": (
        pod({"env": [{"name": "QUARKUS_PROFILE", "valueFrom": {"configMapKeyRef": {"name": "x"}}}]}),
        "stands in a secret",
    ),
    "sealed": ({"kind": "SealedSecret", "spec": {"encryptedData": {f"{PREFIX}a": "AgB"}}}, ""),
    "external": (
        {"kind": "ExternalSecret", "spec": {"data": [{"secretKey": "NESSIE_SERVER_AUTHORIZATION_RULES_A"}]}},
        "looks like authorization",
    ),
    "unit": ({"kind": "X", "unit": f"ExecStart=java -D{PREFIX}view={VIEW} -jar x.jar"}, "looks like authorization"),
    "options in a secret": (
        pod({"env": [{"name": "JAVA_OPTS_APPEND", "valueFrom": {"secretKeyRef": {"name": "x"}}}]}),
        "stands in a secret",
    ),
    "secret of a profile": (
        pod({"env": [{"name": f"%prod.{PREFIX}a", "valueFrom": {"secretKeyRef": {"name": "x"}}}]}),
        "stands in a secret",
    ),
    "variable of compose": (compose({"environment": {f"{PREFIX}view": "${RULE}"}}), "stands in a secret"),
    "variable of the host": (compose({"environment": {f"{PREFIX}view": None}}), "stands in a secret"),
    "variable of the host, list": (compose({"environment": [f"{PREFIX}view"]}), "looks like authorization"),
    "variable of kubernetes": (pod({"env": [{"name": f"{PREFIX}view", "value": "$(RULE)"}]}), "stands in a secret"),
    "variable of others": (compose({"environment": {"RULE_OF_NESSIE": VIEW}}), "Nessie reads no such variable"),
    "misspelt property": (compose({"environment": {"JAVA_OPTS": f"-Dnesie.server.authorization.rules.a={VIEW}"}}), "no prop"),
    "config map that is missing": (
        pod({"envFrom": [{"configMapRef": {"name": "rules"}}], "env": [{"name": f"{PREFIX}a", "value": READ}]}),
        "was not given",
    ),
    "config map with a prefix": (
        [{**CONFIG_MAP, "data": {"RULES_A": READ}}, pod({"envFrom": [{"configMapRef": {"name": "nessie"}, "prefix": "X_"}]})],
        "Nessie reads no such variable",
    ),
    "env file that is missing": (compose({"env_file": ["rules.env"], "environment": [ANOTHER]}), "was not given"),
    "mounted file that is missing": (
        compose({"volumes": ["./c/application.properties:/deployments/config/application.properties"],
                 "environment": [ANOTHER]}),
        "was not given",
    ),
    "values as text": (
        {"apiVersion": "argo/v1", "kind": "Application", "spec": {"helm": {"values": yaml.safe_dump(CHART)}}},
        "looks like authorization",
    ),
    "parameters": (
        {"kind": "Application", "spec": {"parameters": [{"name": "authorization.rules.view", "value": VIEW}]}},
        "",
    ),
    "nested rules elsewhere": ({"kind": "X", "spec": NESTED}, "looks like authorization"),
    "shell": (pod({"command": ["sh", "-c", f"export {PREFIX}view={VIEW}; /run.sh"]}), "looks like authorization"),
    "compose, file": ({"services": {}, "configs": {"application.properties": PROPERTIES}}, "no container has it"),
    "text": ({"kind": "X", "notes": [f"allow {VIEW}"]}, "looks like authorization"),
}  # fmt: skip


@pytest.mark.parametrize("form", NOT_READ)
def test_what_is_not_read_is_left_and_opens_no_branch(tmp_path: Path, form: str) -> None:
    given, message = NOT_READ[form]
    migration = migrated(tmp_path, yaml.safe_dump_all(given) if isinstance(given, list) else given)
    assert any(message in part.message for part in migration.left), migration.parts
    assert any("VIEW_REFERENCE" in text for text in rules_of(migration).values())
    assert not any(text == VIEW for text in rules_of(migration).values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"authorization": {"enabled": True, "rules": [VIEW]}}, "is a list"),
        ({"authorization": {"enabled": True, "rules": {"a": {"b": VIEW}}}}, "is not text"),
        (compose({"environment": {"JAVA_OPTS": f"-D{PREFIX}a=true -D{PREFIX}a=false"}}), "has another value"),
        (pod({"env": [{"name": "QUARKUS_PROFILE", "value": one} for one in "ab"]}), "has another value"),
        ({"nessie": {"server": {"authorisation": {"rules": RULES}}}}, "no rule and looks like one"),
        (compose({"environment": {"NESSIE_AUTHORIZATION_RULES_A": VIEW}}), "no rule and looks like one"),
    ],
)
def test_what_cannot_be_read_for_sure_is_refused(tmp_path: Path, given: object, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        migrated(tmp_path, given)


def test_a_manifest_without_nessie_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no rules found"):
        migrated(
            tmp_path,
            pod(
                {
                    "env": [{"name": "JAVA_OPTS", "value": "-Xmx1g -Dtrino.x=y"}],
                    "command": ["java", "-jar", "trino.jar"],
                }
            ),
        )


def test_the_ranks_are_those_of_quarkus(tmp_path: Path) -> None:
    variables = [f"{PREFIX}b='env'==''", f"{PREFIX}c='env'==''", f"JAVA_OPTS=-D{PREFIX}c='java'==''"]
    chart = {"authorization": {"enabled": True, "rules": dict.fromkeys("abc", "'chart'==''")}}
    main = tmp_path / "application.properties"
    main.write_text("".join(f"{PREFIX}{id}='file'==''\n" for id in "abcd"))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(chart))
    (tmp_path / "a.env").write_text("\n".join(variables))
    migration = migrate_nessie([main, tmp_path / "values.yaml"], [tmp_path / "a.env"])
    assert rules_of(migration) == {"a": "'chart'==''", "b": "'env'==''", "c": "'java'==''", "d": "'file'==''"}


def test_a_chart_writes_its_texts_into_a_properties_file(tmp_path: Path) -> None:
    rules = {
        "lines": "op=='VIEW_REFERENCE'\n  && ref=='a'\n",
        "escape": r"path.matches('a\\\\.b')",
        "a=b": "true",
        "n": None,
    }
    migration = migrated(tmp_path, {"authorization": {"enabled": True, "rules": rules}})
    found = rules_of(migration)
    assert (found["lines"], found["escape"]) == ("op=='VIEW_REFERENCE'&& ref=='a'", r"path.matches('a\\.b')")
    assert found["a"].startswith("false // does not compile: b=true")


def test_compose_and_kubernetes_write_a_dollar_twice(tmp_path: Path) -> None:
    rule = "ref.matches('^main$')"
    migration = migrated(tmp_path, compose({"environment": {f"{PREFIX}view": rule.replace("$", "$$")}}))
    assert rules_of(migration)["view"] == rule
    assert rules_of(migrated(tmp_path, pod({"env": [{"name": f"{PREFIX}view", "value": rule}]})))["view"] == rule


def test_files_that_are_given_are_not_missing(tmp_path: Path) -> None:
    documents = [
        {**CONFIG_MAP, "data": {f"{PREFIX}a": READ}},
        pod({"envFrom": [{"configMapRef": {"name": "nessie"}}], "env": [{"name": f"{PREFIX}view", "value": VIEW}]}),
    ]
    assert migrated(tmp_path, yaml.safe_dump_all(documents)).left == []
    (tmp_path / "rules.env").write_text(f"{PREFIX}view={VIEW}\n")
    (tmp_path / "application.properties").write_text(ANOTHER + "\n")
    volume = "./c/application.properties:/deployments/config/application.properties"
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(compose({"env_file": "./rules.env", "volumes": [volume]})))
    migration = migrate_nessie([tmp_path / "application.properties"], [tmp_path / "c.yaml", tmp_path / "rules.env"])
    assert (rules_of(migration), migration.left) == ({"a": READ, "view": VIEW}, [])


WORDS = st.sampled_from((
    "java", "-jar", "x.jar", "-cp", "sh", "-c", "Main", "-Xmx1g", *OPTIONS, *(f"-Dx={text}" for text in RULES.values()),
    "--", "@file", f"{PREFIX}view={VIEW}",
))  # fmt: skip
PLACES = st.sampled_from(
    ("command", "args", "entrypoint", "JAVA_OPTS", "JAVA_OPTS_APPEND", "JAVA_TOOL_OPTIONS", "OTHER")
)


@given(parts=st.dictionaries(PLACES, st.lists(WORDS, min_size=1, max_size=5), max_size=3), in_compose=st.booleans())
def test_no_rule_is_dropped_wherever_it_stands(parts: dict[str, list[str]], in_compose: bool) -> None:
    service: dict[str, object] = {name: words for name, words in parts.items() if name.islower()}
    variables = {name: " ".join(words) for name, words in parts.items() if not name.islower()}
    env = [{"name": name, "value": text} for name, text in variables.items()]
    given = compose({**service, "environment": variables}) if in_compose else pod({**service, "env": env})
    written = [word for words in parts.values() for word in words]
    with TemporaryDirectory() as folder:
        try:
            migration = migrated(Path(folder), given)
        except PolicyError as error:
            assert "has another value" in str(error)  # noqa: PT017  other outcomes have other claims
            return
        except InvalidArgument:
            assert not any(text in word for word in written for text in RULES.values())
            return
    found = rules_of(migration)
    for id, text in RULES.items():
        if any(text in word for word in written):
            assert found.get(id) == text or migration.left
    if any(VIEW in word for word in written):
        assert any("VIEW_REFERENCE" in text for text in found.values())


NESSIE = "ghcr.io/projectnessie/nessie:0.104.1"
SWITCH = {"NESSIE_SERVER_AUTHORIZATION_ENABLED": "true"}
A, B = "NESSIE_SERVER_AUTHORIZATION_RULES_A", "NESSIE_SERVER_AUTHORIZATION_RULES_B"


def objects(*texts: Mapping[str, str]) -> list[dict[str, object]]:
    return [{**CONFIG_MAP, "metadata": {"name": f"c{at}"}, "data": dict(text)} for at, text in enumerate(texts)]


def named(name: str, **container: object) -> dict[str, object]:
    return {**pod({"name": "nessie", "image": NESSIE, **container}), "metadata": {"name": name}}


def from_object(at: int) -> dict[str, object]:
    return {"envFrom": [{"configMapRef": {"name": f"c{at}"}}]}


def units(**units: Mapping[str, str]) -> dict[str, object]:
    return {
        f"{name}.service": "[Service]\n" + "".join(f'Environment="{key}={text}"\n' for key, text in unit.items())
        for name, unit in units.items()
    }


SERVERS: dict[str, Mapping[str, object]] = {
    "own objects": {"k.yaml": [*objects({A: READ}, {B: VIEW}), named("a", **from_object(0)), named("b", **from_object(1))]},
    "one object": {"k.yaml": [*objects({A: READ}), named("a", **from_object(0)), named("b")]},
    "values of objects": {"k.yaml": [*objects({"k": READ}), named("b"), named("a", env=[
        {"name": A, "valueFrom": {"configMapKeyRef": {"name": "c0", "key": "k"}}}])]},
    "own files of variables": {
        "compose.yaml": {"services": {"a": {"env_file": "a.env"}, "b": {"env_file": ["b.env"]}}},
        "a.env": f"{A}={READ}\n", "b.env": f"{B}={VIEW}\n"},
    "file of another maker's service": {
        "compose.yaml": {"services": {"a": {"image": NESSIE}, "b": {"image": "acme/nessie", "env_file": "b.env"}}},
        "b.env": f"{B}={VIEW}\n"},
    "own images": {
        "compose.yaml": {"services": {"a": {"build": {"dockerfile": "a.Dockerfile"}}, "b": {"environment": {B: VIEW}}}},
        "a.Dockerfile": f'FROM {NESSIE}\nENV {A}="{READ}"\n'},
    "options": {"compose.yaml": {"services": {
        "a": {"environment": {"JAVA_OPTS": OPTIONS[1]}}, "b": {"environment": {"JAVA_OPTS_APPEND": OPTIONS[0]}}}}},
    "commands": {"compose.yaml": {"services": {
        "a": {"image": NESSIE, "command": ["java", OPTIONS[1], "-jar", "x"]}, "b": {"environment": {B: VIEW}}}}},
    "units": units(a={A: READ}, b={B: VIEW}),
}  # fmt: skip


def written(folder: Path, files: Mapping[str, object]) -> list[Path]:
    for name, content in files.items():
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        text = yaml.safe_dump_all(content) if isinstance(content, list) else text
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    return [folder / name for name in files]


def read(folder: Path, files: Mapping[str, object]) -> Migration:
    paths = written(folder, files)
    return migrate_nessie(
        [path for path in paths if path.suffix != ".env"], [path for path in paths if path.suffix == ".env"]
    )


@pytest.mark.parametrize("form", SERVERS)
def test_rules_of_several_servers_permit_nothing(tmp_path: Path, form: str) -> None:
    migration = read(tmp_path, SERVERS[form])
    assert "is a rule of one server of several" in " ".join(part.message for part in migration.left)
    assert [text for text in rules_of(migration).values() if not text.startswith("false //")] == []


@pytest.mark.parametrize("form", ["objects", "compose", "options", "spellings", "three"])
def test_two_texts_of_one_rule_permit_nothing_and_the_servers_are_named(tmp_path: Path, form: str) -> None:
    """Two servers ended the command with an error about one place."""
    services = {"a": {"environment": {A: READ}}, "b": {"environment": {A: VIEW}}}
    given: dict[str, object] = {"compose.yaml": {"services": services}}
    if form == "objects":
        given = {"k.yaml": [
            *objects({A: READ}, {A: VIEW}), named("a", **from_object(0)), named("b", **from_object(1))]}  # fmt: skip
    elif form == "options":
        services["a"]["environment"] = {"JAVA_OPTS": f"-D{PREFIX}a={READ}"}
        services["b"]["environment"] = {"JAVA_OPTS": f"-D{PREFIX}a=true"}
    elif form == "spellings":
        services["b"]["environment"] = {f"{PREFIX}a": VIEW}
    elif form == "three":
        services["c"] = {"environment": {A: "true"}}
    migration = read(tmp_path, given)
    rules = rules_of(migration)
    assert {id for id in rules if id != "left-parts"} == {"a"}
    assert all(text.startswith("false //") for text in rules.values())
    messages = " ".join(part.message for part in migration.left)
    assert "has other texts in the servers" in messages
    if form == "compose":
        assert "has other texts in the servers `a` of `compose.yaml`, `b` of `compose.yaml`: migrate" in messages


@pytest.mark.parametrize(
    "name", ["JAVA_OPTS", "NESSIE_SERVER_DEFAULT_BRANCH", "QUARKUS_HTTP_PORT", "NESSIE_SERVER_AUTHORIZATION_ENABLED"]
)
def test_other_variables_that_differ_are_left(tmp_path: Path, name: str) -> None:
    services = {one: {"environment": {A: READ, name: text}} for one, text in (("a", "true"), ("b", "false"))}
    migration = read(tmp_path, {"compose.yaml": {"services": services}})
    assert rules_of(migration).keys() == {"a", "left-parts"}
    assert {part.subject for part in migration.left} == {f"variable `{name}`"}


def test_variables_of_no_meaning_may_differ(tmp_path: Path) -> None:
    services = {one: {"environment": {A: READ, "TZ": one, "POD_NAME": one}} for one in ("a", "b")}
    migration = read(tmp_path, {"compose.yaml": {"services": services}})
    assert (rules_of(migration), migration.left) == ({"a": READ}, [])


SAME: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
    "workloads": ({"one.yaml": named("n", env=[{"name": A, "value": READ}])}, {"two.yaml": named("n", env=[{"name": B, "value": VIEW}])}),
    "services": ({"one/compose.yaml": compose({"environment": {A: READ}})}, {"two/compose.yaml": compose({"environment": {B: VIEW}})}),
    "services of one folder": ({"staging.yaml": compose({"environment": {A: READ}})}, {"prod.yaml": compose({"environment": {B: VIEW}})}),
    "objects": ({"one.yaml": [*objects({A: READ}), named("n", **from_object(0))]}, {"two.yaml": named("n", env=[{"name": B, "value": VIEW}])}),
    "units": ({"one/n.service": units(n={A: READ})["n.service"]}, {"two/n.service": units(n={B: VIEW})["n.service"]}),
    "one text each": ({"one.yaml": named("n", env=[{"name": A, "value": READ}])}, {"two.yaml": named("n", env=[{"name": A, "value": VIEW}])}),
}  # fmt: skip


@pytest.mark.parametrize("form", SAME)
def test_workloads_of_one_name_in_two_files_are_not_joined(tmp_path: Path, form: str) -> None:
    """They may be of two clusters: together, their rules permit more than each."""
    one, two = SAME[form]
    migration = read(tmp_path, {**one, **two})
    assert [text for text in rules_of(migration).values() if not text.startswith("false //")] == []
    assert migration.left


def test_files_that_compose_joins_are_joined(tmp_path: Path) -> None:
    files = {
        "compose.yaml": compose({"environment": {A: READ}}),
        "compose.override.yaml": compose({"environment": {B: VIEW}}),
    }
    migration = read(tmp_path, files)
    assert (rules_of(migration), migration.left) == ({"a": READ, "b": VIEW}, [])
    drop_in = {"n.service": units(n={A: READ})["n.service"], "n.service.d/b.conf": units(n={B: VIEW})["n.service"]}
    assert rules_of(read(tmp_path, drop_in)) == {"a": READ, "b": VIEW}


def test_workloads_of_one_name_with_the_same_rules_are_one_server(tmp_path: Path) -> None:
    server = named("n", env=[{"name": A, "value": READ}])
    migration = read(tmp_path, {"one.yaml": server, "two.yaml": server})
    assert (rules_of(migration), migration.left) == ({"a": READ}, [])


def test_variables_of_another_program_set_no_rule(tmp_path: Path) -> None:
    postgres = {"name": "db", "image": "postgres:16", "command": ["java", *OPTIONS, "-jar", "x"], "env": [
        {"name": A, "valueFrom": {"configMapKeyRef": {"name": "c0", "key": "k"}}}]}  # fmt: skip
    server = named("a", env=[{"name": B, "value": VIEW}])
    server["spec"]["template"]["spec"]["containers"].append(postgres)  # type: ignore[index]
    migration = read(tmp_path, {"k.yaml": [*objects({"k": READ}), server]})
    assert rules_of(migration) == {"b": VIEW}
    assert {part.subject for part in migration.left} == {"`k`", "`command`", f"`{A}`"}


def bound(path: str, **keys: object) -> dict[str, object]:
    return {"image": NESSIE, "environment": {B: VIEW}, "volumes": [path], **keys}


GIVEN = "./application.properties"
THERE = "/deployments/config/application.properties"
GENERATED = {"configMapGenerator": [{"name": "c0", "files": ["application.properties"]}]}
VOLUME = {"volumes": [{"name": "c", "configMap": {"name": "c0"}}]}


def generated(path: str) -> dict[str, object]:
    container = {"name": "n", "image": NESSIE, "env": [{"name": B, "value": VIEW}],
                 "volumeMounts": [{"name": "c", "mountPath": path}]}  # fmt: skip
    return {"kustomization.yaml": GENERATED, "k.yaml": {**DEPLOYMENT, "spec": {"containers": [container], **VOLUME}}}


ELSEWHERE: dict[str, Mapping[str, object]] = {
    "another folder": {"compose.yaml": {"services": {"n": bound(f"{GIVEN}:/opt/other/application.properties")}}},
    "another name": {"compose.yaml": {"services": {"n": bound(f"{GIVEN}:/deployments/config/rules.properties")}}},
    "another service": {"compose.yaml": {"services": {
        "n": bound("data:/data"), "billing": bound(f"{GIVEN}:{THERE}", image="acme/billing", environment={})}}},
    "another program": {"compose.yaml": {"services": {
        "n": bound("data:/data"), "t": bound(f"{GIVEN}:{THERE}", image="trinodb/trino")}}},
    "folder of another service": {"compose.yaml": {"services": {
        "n": bound("data:/data"), "b": bound(".:/deployments/config", image="acme/b", environment={})}}},
    "image": {"Dockerfile": f'FROM {NESSIE}\nCOPY application.properties /opt/unused/\nENV {B}="{VIEW}"\n'},
    "generated object": generated("/unused"),
    "config of compose": {"compose.yaml": {"configs": {"c": {"file": GIVEN}}, "services": {
        "n": {"image": NESSIE, "environment": {B: VIEW}, "configs": [{"source": "c", "target": "/x"}]}}}},
}  # fmt: skip


@pytest.mark.parametrize("form", ELSEWHERE)
def test_a_file_that_the_server_does_not_have_is_left(tmp_path: Path, form: str) -> None:
    migration = read(tmp_path, {**ELSEWHERE[form], "application.properties": f"{PREFIX}a=true\n{PREFIX}b=true\n"})
    assert rules_of(migration).keys() == {"b"}
    assert "true" not in rules_of(migration).values()
    assert "is mounted or copied to where" in " ".join(part.message for part in migration.left)


HAD: dict[str, Mapping[str, object]] = {
    "file": {"compose.yaml": {"services": {"n": bound(f"{GIVEN}:{THERE}:ro")}}},
    "folder": {"compose.yaml": {"services": {"n": bound("./:/deployments/config")}}},
    "image": {"Dockerfile": f'FROM {NESSIE}\nCOPY application.properties /deployments/config/\nENV {B}="{VIEW}"\n'},
    "generated object": generated("/deployments/config"),
}  # fmt: skip


@pytest.mark.parametrize("form", HAD)
def test_a_file_that_the_server_has_counts(tmp_path: Path, form: str) -> None:
    migration = read(tmp_path, {**HAD[form], "application.properties": f"{PREFIX}a={READ}\n"})
    assert rules_of(migration) == {"a": READ, "b": VIEW}


JAVA = ["java", "-jar", "x.jar"]


def run_in(folder: str, command: object = JAVA, key: str = "command") -> Mapping[str, object]:
    manifest = generated("/deployments/config")
    pod = manifest["k.yaml"]["spec"]["containers"][0]  # type: ignore[index]
    pod |= {"workingDir": folder, **({key: command} if command else {})}
    return manifest


def image(*steps: str) -> Mapping[str, object]:
    return {"Dockerfile": "\n".join([f"FROM {NESSIE}", *steps, f'ENV {B}="{VIEW}"', ""])}


MOVED: dict[str, Mapping[str, object]] = {
    "compose": {"compose.yaml": {"services": {
        "n": bound(f"{GIVEN}:{THERE}", working_dir="/opt/x", command="java -jar x")}}},
    "compose, entrypoint": {"compose.yaml": {"services": {
        "n": bound("./:/deployments/config", working_dir="/opt/x", entrypoint=JAVA)}}},
    "compose, config": {"compose.yaml": {"configs": {"c": {"file": GIVEN}}, "services": {
        "n": {"image": NESSIE, "environment": {B: VIEW}, "working_dir": "/x", "command": JAVA,
              "configs": [{"source": "c", "target": THERE}]}}}},
    "pod": run_in("/opt/x"),
    "image": image("WORKDIR /opt/x", "COPY application.properties /deployments/config/", 'CMD ["java", "-jar", "x"]'),
    "image, relative": image("WORKDIR /opt", "WORKDIR config", "COPY application.properties ."),
    "image, unknown folder": image("COPY application.properties config/"),
    "image, unknown variable": image("WORKDIR $HOME/config", "COPY application.properties ."),
    "image, later folder": image("COPY application.properties .", "WORKDIR /deployments/config"),
}  # fmt: skip


@pytest.mark.parametrize("form", MOVED)
def test_a_file_counts_only_where_the_server_starts(tmp_path: Path, form: str) -> None:
    """A server that starts in another folder looks for `config/` there."""
    migration = read(tmp_path, {**MOVED[form], "application.properties": f"{PREFIX}a=true\n{PREFIX}b=true\n"})
    assert "true" not in rules_of(migration).values()
    assert "is mounted or copied to where" in " ".join(part.message for part in migration.left)


STAYS: dict[str, Mapping[str, object]] = {
    "compose": {"compose.yaml": {"services": {"n": bound(f"{GIVEN}:{THERE}", working_dir="/opt/x")}}},
    "compose, own folder": {"compose.yaml": {"services": {
        "n": bound(f"{GIVEN}:{THERE}", working_dir="/deployments", command=JAVA)}}},
    "pod": run_in("/opt/x", None),
    "pod, own folder": run_in("/deployments/"),
    "image": image("WORKDIR /deployments/config", "COPY application.properties ."),
    "image, relative": image("WORKDIR /deployments", "COPY application.properties ./config/"),
    "image, two steps": image("WORKDIR /deployments", "WORKDIR config", "COPY a/application.properties ./"),
}  # fmt: skip


@pytest.mark.parametrize("form", STAYS)
def test_a_relative_copy_counts_from_the_folder_of_the_image(tmp_path: Path, form: str) -> None:
    name = "a/application.properties" if form == "image, two steps" else "application.properties"
    migration = read(tmp_path, {**STAYS[form], name: f"{PREFIX}a={READ}\n"})
    assert rules_of(migration) == {"a": READ, "b": VIEW}


IMAGES = {
    "acme/nessie": True, "registry.acme.io/projectnessie/nessie": True, "ghcr.io/projectnessie/nessie": False,
    "projectnessie/nessie": False, "postgres": False,
}  # fmt: skip


@pytest.mark.parametrize("repository", IMAGES)
@pytest.mark.parametrize("above", ["", "nessie", "values"])
def test_an_image_of_another_maker_in_a_chart_is_left(tmp_path: Path, above: str, repository: str) -> None:
    values: dict[str, object] = {**CHART, "image": {"repository": repository, "tag": "1"}}
    migration = migrated(tmp_path, {above: values} if above else values, "values.yaml")
    subjects = {part.subject for part in migration.left}
    assert subjects == ({f"`{repository}`"} if IMAGES[repository] else set())
    split: dict[str, object] = {**CHART, "image": {"registry": "acme.io", "repository": "x/nessie"}}
    migration = migrated(tmp_path, split, "values.yaml")
    assert {part.subject for part in migration.left} == {"`acme.io/x/nessie`"}


@pytest.mark.parametrize(
    "registry", {"acme.io": True, "acme.io/": True, "ghcr.io": False, "quay.io": False, "": False}.items()
)
@pytest.mark.parametrize("above", ["", "nessie"])
@pytest.mark.parametrize("form", ["imageRegistry", "image"])
def test_a_registry_for_all_images_of_a_chart_is_left(
    tmp_path: Path, above: str, form: str, registry: tuple[str, bool]
) -> None:
    """An image of another registry may hold settings, whatever its name."""
    name, is_left = registry
    of_all = {"imageRegistry": name} if form == "imageRegistry" else {"image": {"registry": name}}
    values: dict[str, object] = {**CHART, "image": {"repository": "projectnessie/nessie"}, "global": of_all}
    migration = migrated(tmp_path, {above: values} if above else values, "values.yaml")
    assert {part.subject for part in migration.left} == ({f"`{name}`"} if is_left else set())


def composed(**files: str) -> dict[str, object]:
    """Return manifests of docker compose that each mount a file of their own to the same place, without an image each."""
    services = {name: bound(f"./{name}.properties:{THERE}") | {"environment": {"X_Y": "z"}} for name in files}
    for name in list(services)[1:]:
        del services[name]["image"]
    return {f"{name}.yaml": {"services": {"nessie": service}} for name, service in services.items()}


def overlaid(*, is_given: bool = True) -> dict[str, object]:
    """Return a workload with a file of a ConfigMap, and a patch with another ConfigMap in its place."""
    texts = {name: {"application.properties": f"{PREFIX}{name}=true\n"} for name in ("base", "prod")}
    maps = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        for name, data in texts.items()
    ]
    mount = {"volumeMounts": [{"name": "c", "mountPath": "/deployments/config"}]}
    pods = {
        name: {"containers": [{"name": "nessie", **keys}], "volumes": [{"name": "c", "configMap": {"name": name}}]}
        for name, keys in (("base", {"image": NESSIE, **mount}), ("prod", {"env": [{"name": "X_Y", "value": "z"}]}))
    }
    workloads = [
        {**DEPLOYMENT, "metadata": {"name": "nessie"}, "spec": {"template": {"spec": pod}}} for pod in pods.values()
    ]
    kustomization = {"kind": "Kustomization", "resources": ["base.yaml"], "patches": [{"path": "prod.yaml"}]}
    return {
        "kustomization.yaml": kustomization, "base.yaml": [workloads[0], *maps[: 2 if is_given else 1]],
        "prod.yaml": workloads[1],
    }  # fmt: skip


JOINED: dict[str, Mapping[str, object]] = {
    "compose": {
        **composed(base="", prod=""),
        **{f"{one}.properties": f"{PREFIX}{one}=true\n" for one in ("base", "prod")},
    },
    "kustomize": overlaid(),
    "kustomize, not given": overlaid(is_given=False),
}


@pytest.mark.parametrize("form", JOINED)
def test_a_file_that_a_joined_manifest_replaces_permits_nothing(tmp_path: Path, form: str) -> None:
    """Programs join parts of one name: the file of the first is not in the container."""
    migration = read(tmp_path, JOINED[form])
    assert "true" not in rules_of(migration).values()
    assert migration.left
    if form != "kustomize, not given":
        assert "`docker compose config` or `kustomize build`" in " ".join(part.message for part in migration.left)


def test_a_file_counts_under_the_name_that_it_has_in_the_container(tmp_path: Path) -> None:
    services = {"n": bound(f"./application-dev.properties:{THERE}")}
    migration = read(
        tmp_path, {"compose.yaml": {"services": services}, "application-dev.properties": f"{PREFIX}a={READ}\n"}
    )
    assert (rules_of(migration), migration.left) == ({"a": READ, "b": VIEW}, [])


def test_files_of_two_servers_are_not_joined(tmp_path: Path) -> None:
    services = {one: {"image": NESSIE, "volumes": [f"./{one}/application.properties:{THERE}"]} for one in "ab"}
    files = {f"{one}/application.properties": f"{PREFIX}{one}=true\n" for one in "ab"}
    migration = read(tmp_path, {"compose.yaml": {"services": services}, **files})
    assert rules_of(migration).keys() == {"left-parts"}


PROFILES = f"{PREFIX}a={READ}\n%dev.{PREFIX}all=true\n%dev.{PREFIX}a=true\n"
MOUNT = {"volumes": ["./application.properties:/deployments/config/application.properties"]}
DEV = {"QUARKUS_PROFILE": "dev"}
FOREIGN: dict[str, Mapping[str, object]] = {
    "service": {"compose.yaml": {"services": {
        "nessie": {"image": NESSIE, **MOUNT}, "billing": {"image": "acme/billing", "environment": DEV}}}},
    "container": {"k.yaml": {**DEPLOYMENT, "spec": {"containers": [
        {"name": "nessie", "image": NESSIE},
        {"name": "billing", "image": "acme/billing", "env": [{"name": "QUARKUS_PROFILE", "value": "dev"}]}]}}},
    "object": {"k.yaml": [*objects(DEV), named("a"), {
        **named("b", **from_object(0), image="acme/billing")}]},
    "file": {"compose.yaml": {"services": {
        "nessie": {"image": NESSIE, **MOUNT}, "billing": {"image": "acme/b", "env_file": "b.env"}}},
        "b.env": "QUARKUS_PROFILE=dev\n"},
    "options": {"compose.yaml": {"services": {"nessie": {"image": NESSIE, **MOUNT}, "billing": {
        "image": "acme/catalog", "environment": {"JAVA_OPTS_APPEND": "-Dquarkus.profile=dev"}}}}},
    "unit": units(nessie=SWITCH, billing=DEV),
    "other program": {"compose.yaml": {"services": {
        "nessie": {"image": NESSIE, **MOUNT}, "g": {"image": "grafana/grafana", "environment": DEV}}}},
}  # fmt: skip


@pytest.mark.parametrize("form", FOREIGN)
def test_a_profile_of_another_service_is_not_in_force(tmp_path: Path, form: str) -> None:
    migration = read(tmp_path, {**FOREIGN[form], "application.properties": PROFILES})
    assert {id: text for id, text in rules_of(migration).items() if id != "left-parts"} == {"a": READ}
    assert [part for part in migration.left if "PROFILE" in part.subject or "profile" in part.subject]


DIFFERENT: dict[str, Mapping[str, object]] = {
    "one of two servers": {"compose.yaml": {"services": {
        "a": {"image": NESSIE, **MOUNT}, "b": {"image": NESSIE, **MOUNT, "environment": DEV}}}},
    "two profiles": {"compose.yaml": {"services": {
        "a": {"image": NESSIE, **MOUNT, "environment": ["QUARKUS_PROFILE=x"]},
        "b": {"image": NESSIE, **MOUNT, "environment": DEV}}}},
    "images of other makers": {"compose.yaml": {"services": {
        "a": {"image": "acme/nessie", **MOUNT}, "b": {"image": "acme/catalog", "environment": DEV}}}},
    "units": units(a={**SWITCH, **DEV}, b=SWITCH),
    "secret": {"k.yaml": named("a", env=[
        {"name": "QUARKUS_PROFILE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])},
}  # fmt: skip


@pytest.mark.parametrize("form", DIFFERENT)
def test_profiles_that_differ_permit_nothing_that_rests_on_them(tmp_path: Path, form: str) -> None:
    given = {**DIFFERENT[form], "application.properties": f"{PROFILES}{PREFIX}b={VIEW}\n"}
    migration = read(tmp_path, given)
    assert rules_of(migration) == {"a": f"false // {READ}", "b": VIEW}
    assert [part for part in migration.left if "QUARKUS_PROFILE" in part.subject]
    chosen = migrate_nessie(written(tmp_path, given), [], ["dev"])
    assert rules_of(chosen)["all"] == "true"


@pytest.mark.parametrize("env", [{}, DEV])
def test_the_profile_of_the_only_server_is_in_force(tmp_path: Path, env: Mapping[str, str]) -> None:
    services = {one: {"image": NESSIE, **MOUNT, "environment": dict(env)} for one in ("a", "b")}
    migration = read(tmp_path, {"compose.yaml": {"services": services}, "application.properties": PROFILES})
    assert rules_of(migration) == ({"a": "true", "all": "true"} if env else {"a": READ})


@pytest.mark.parametrize(
    ("keys", "subject"),
    [
        ({"volumes_from": ["other:ro"]}, "`other:ro`"),
        ({"develop": {"watch": [{"path": "./c", "target": "/deployments/config", "action": "sync"}]}}, "`./c`"),
        ({"develop": {"watch": [{"path": "./c", "action": "sync+restart", "target": "/"}]}}, "`./c`"),
        ({"environmentFiles": [{"value": "arn:aws:s3:::b/x.env", "type": "s3"}]}, "`arn:aws:s3:::b/x.env`"),
        ({"image": "acme/nessie-hardened:1"}, "`acme/nessie-hardened:1`"),
        ({"image": "${IMAGE:-ghcr.io/projectnessie/nessie}"}, "`${IMAGE:-ghcr.io/projectnessie/nessie}`"),
    ],
)
def test_a_part_of_a_container_that_may_hold_settings_is_left(tmp_path: Path, keys: object, subject: str) -> None:
    server = {"name": "nessie", "image": NESSIE, "environment": {A: READ}, **keys}  # type: ignore[dict-item]
    for manifest in ({"services": {"nessie": server}}, {"containerDefinitions": [server]}):
        if "containerDefinitions" in manifest and keys.keys() & {"volumes_from", "develop"}:  # type: ignore[attr-defined]
            continue
        migration = migrated(tmp_path, manifest)
        assert ({part.subject for part in migration.left}, "left-parts" in rules_of(migration)) == ({subject}, True)
    other = {"services": {"nessie": {"image": NESSIE, "environment": {A: READ}}, "db": {**keys, "image": "postgres"}}}  # type: ignore[dict-item]
    assert migrated(tmp_path, other).left == []
