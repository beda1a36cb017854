"""Sources of Nessie's configuration whose rank or name is not certain: none opens what Nessie keeps shut."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pdp.errors import PolicyError
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

PREFIX = "nessie.server.authorization.rules."
VARIABLE = "NESSIE_SERVER_AUTHORIZATION_RULES_"
WIDE = "op in ['VIEW_REFERENCE','READ_ENTITY_VALUE']"
NARROW = f"{WIDE} && role=='admin'"
MAIN = "application.properties"


def migrated(folder: Path, files: Mapping[str, str], *profiles: str) -> Migration:
    """Migrate files by name; those that end in `.env` are env files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    env_files = [folder / name for name in files if name.endswith(".env")]
    return migrate_nessie([folder / name for name in files if not name.endswith(".env")], env_files, profiles)


def rules_of(migration: Migration) -> dict[str, str]:
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return rules


def is_shut(migration: Migration, text: str = WIDE) -> bool:
    """Tell whether no rule has a text, the branches stay hidden, and a part is left."""
    rules = rules_of(migration).values()
    return text not in rules and any("VIEW_REFERENCE" in rule for rule in rules) and bool(migration.left)


@pytest.mark.parametrize("id", ["_VIEW_", "_VIEW", "_A_B_", "VIEW__", "VIEW_", "_A__B__C_", "__VIEW"])
def test_a_variable_with_an_open_quote_permits_nothing_and_is_left(tmp_path: Path, id: str) -> None:
    known = f"{PREFIX}\"a.b\"={WIDE}\n{PREFIX}read=op=='READ_ENTRIES'\n" if id == "_A_B_" else f"{PREFIX}read=true\n"
    migration = migrated(tmp_path, {MAIN: known, "a.env": f"{VARIABLE}{id}={NARROW}\n"})
    assert is_shut(migration)
    assert is_shut(migration, NARROW)
    assert [part.subject for part in migration.left] == [f"variable `{VARIABLE}{id}`"]


@pytest.mark.parametrize(("id", "rule"), [("_VIEW__", "view"), ("_A_B__", "a.b"), ("_A__B", '"a".b'), ("A", "a")])
def test_a_variable_with_closed_quotes_is_translated(tmp_path: Path, id: str, rule: str) -> None:
    migration = migrated(tmp_path, {"a.env": f"{VARIABLE}{id}={NARROW}\n"})
    assert (rules_of(migration), migration.left) == ({rule: NARROW}, [])


@given(parts=st.lists(st.sampled_from(("A", "B", "_", "__", "_", "1")), min_size=1, max_size=7))
def test_every_variable_of_a_rule_is_in_force_or_reported(parts: list[str]) -> None:
    name = f"{VARIABLE}{''.join(parts)}"
    with TemporaryDirectory() as folder:
        try:
            migration = migrated(Path(folder), {MAIN: f"{PREFIX}read=true\n", "a.env": f"{name}={NARROW}\n"})
        except PolicyError:
            return
    assert NARROW in rules_of(migration).values() or is_shut(migration, NARROW), migration.parts


@pytest.mark.parametrize("names", [("a.env", "b.env"), ("b.env", "a.env")])
def test_two_values_of_a_variable_are_refused_with_both_places(tmp_path: Path, names: tuple[str, str]) -> None:
    files = {name: f"#\n{VARIABLE}A=role=='{name}'\n" for name in names}
    with pytest.raises(PolicyError, match=rf"{names[1]}:2:1: `{VARIABLE}A` has another value at .*{names[0]}:2:1"):
        migrated(tmp_path, files)
    same = dict.fromkeys(names, f"{VARIABLE}A={NARROW}\n")
    assert rules_of(migrated(tmp_path, same)) == {"a": NARROW}
    text = f"FROM ghcr.io/projectnessie/nessie:0.104.1\nENV {VARIABLE}A=true\nENV {VARIABLE}A=false\n"
    with pytest.raises(PolicyError, match=r"Dockerfile:3:1: .* has another value at .*Dockerfile:2:1"):
        migrated(tmp_path, {"Dockerfile": text})


RULE = f"{PREFIX}a="


@pytest.mark.parametrize(
    "files",
    [
        {MAIN: f"config_ordinal=500\n{RULE}{WIDE}\n", "application-prod.properties": f"{RULE}{NARROW}\n"},
        {MAIN: f"config_ordinal=300\n{RULE}{WIDE}\n", "a.env": f"CONFIG_ORDINAL=301\n{VARIABLE}A={NARROW}\n"},
        {MAIN: f"{RULE}{NARROW}\n", "a.env": f"CONFIG_ORDINAL=10\n{VARIABLE}A={WIDE}\n"},
        {MAIN: f"{RULE}{NARROW}\n", "a.env": f"config_ordinal=10\n{VARIABLE}A={WIDE}\n"},
        {MAIN: f"%prod.{RULE}{NARROW}\n", "a.env": f"CONFIG_ORDINAL=10\n_PROD_{VARIABLE}A={WIDE}\n"},
        {MAIN: f"%prod.{RULE}{NARROW}\n", "application-prod.properties": f"config_ordinal=9\n{RULE}{WIDE}\n"},
        {MAIN: f"{RULE}{NARROW}\n", "a.env": f'JAVA_OPTS="-Dconfig_ordinal=5 -D{RULE}op==\'VIEW_REFERENCE\'"\n'},
        {"values.yaml": "advancedConfig: {config_ordinal: 251, " + f'"{RULE[:-1]}": "{WIDE}"}}\n', MAIN: "a=b\n",
         "application.yaml": f'nessie: {{server: {{authorization: {{rules: {{a: "{NARROW}"}}}}}}}}\n'},
    ],
)  # fmt: skip
def test_an_ordinal_counts_wherever_it_stands(tmp_path: Path, files: Mapping[str, str]) -> None:
    migration = migrated(tmp_path, files)
    assert (rules_of(migration), migration.left) == ({"a": NARROW}, [])


@pytest.mark.parametrize("ordinal", ["high", "", "1.5"])
@pytest.mark.parametrize("name", [MAIN, "a.env"])
def test_an_ordinal_that_is_no_number_is_refused(tmp_path: Path, ordinal: str, name: str) -> None:
    with pytest.raises(PolicyError, match="is no whole number"):
        migrated(tmp_path, {MAIN: f"{RULE}true\n", name: f"config_ordinal={ordinal}\n{RULE}true\n"})


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_the_file_of_the_last_profile_wins(tmp_path: Path, order: tuple[str, str]) -> None:
    texts = {"a": WIDE, "b": NARROW}
    files = {f"application-{profile}.properties": f"{RULE}{texts[profile]}\n" for profile in order}
    migration = migrated(tmp_path, {**files, MAIN: "x=y\n"}, "a", "b")
    assert (rules_of(migration), migration.left) == ({"a": NARROW}, [])


@pytest.mark.parametrize(
    ("main", "profile"),
    [
        (MAIN, "application-prod.yaml"),
        (MAIN, "config/application-prod.properties"),
        ("config/application.properties", "application-prod.properties"),
        ("application.yaml", "application-prod.yml"),
        ("", "application-prod.properties"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("texts", [(NARROW, WIDE), (WIDE, NARROW)])
def test_the_file_of_a_profile_counts_beside_its_main_file(
    tmp_path: Path, main: str, profile: str, texts: tuple[str, str]
) -> None:
    def text(name: str, rule: str) -> str:
        nested = f'nessie: {{server: {{authorization: {{rules: {{a: "{rule}"}}}}}}}}\n'
        return f"{RULE}{rule}\n" if name.endswith(".properties") else nested

    files = {name: text(name, rule) for name, rule in zip((main, profile), texts, strict=True) if name}
    migration = migrated(tmp_path, files)
    assert is_shut(migration)
    assert is_shut(migration, NARROW)
    assert any("reads it only beside" in part.message for part in migration.left)


def test_the_file_of_a_profile_in_a_config_map_counts_beside_its_main_file(tmp_path: Path) -> None:
    def deployed(data: Mapping[str, str]) -> str:
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": data}
        return yaml.safe_dump(document)

    of_profile = {"application-prod.properties": f"{RULE}{WIDE}\n"}
    migration = migrated(tmp_path, {"cm.yaml": deployed(of_profile)})
    assert is_shut(migration)
    migration = migrated(tmp_path, {"cm.yaml": deployed({**of_profile, MAIN: f"{RULE}{NARROW}\n"})})
    assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])


def test_a_profile_may_have_hyphens(tmp_path: Path) -> None:
    files = {MAIN: f"{RULE}{WIDE}\n", "application-my-prod.properties": f"{RULE}{NARROW}\n"}
    assert rules_of(migrated(tmp_path, files, "my-prod")) == {"a": NARROW}
    assert rules_of(migrated(tmp_path, files, "prod")) == {"a": WIDE}


def test_a_rule_of_several_lines_is_shut_as_a_whole(tmp_path: Path) -> None:
    rule = "op=='VIEW_REFERENCE'\n|| op=='READ_ENTRIES'\n"
    services = {name: {"environment": {f"{VARIABLE}{name}": rule}} for name in "AB"}
    migration = migrated(tmp_path, {"compose.yaml": yaml.safe_dump({"services": services})})
    assert rules_of(migration) == dict.fromkeys("ab", "false // op=='VIEW_REFERENCE' || op=='READ_ENTRIES'")


def compose(service: object, **root: object) -> str:
    return yaml.safe_dump({"services": {"nessie": service}, **root})


def pod(**container: object) -> str:
    spec = {"template": {"spec": {"containers": [container]}}}
    return yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec})


FOR_ALL_BUT = "op in ['VIEW_REFERENCE','READ_ENTITY_VALUE']&&role!='{}'"
OPTION = f"-D{RULE}{FOR_ALL_BUT}"
IN_CONFIG = {"source": "app", "target": "/deployments/config/application.properties"}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}}
WITH_A_VARIABLE: dict[str, tuple[str, str]] = {
    "content of a config": ("compose.yaml", compose(
        {"configs": [IN_CONFIG]}, configs={"app": {"content": f"{RULE}{FOR_ALL_BUT.format('${X:-mallory}')}\n"}})),
    "content of a config, short": ("compose.yaml", compose(
        {"configs": [IN_CONFIG]}, configs={"app": {"content": f"{RULE}{FOR_ALL_BUT.format('$X')}\n"}})),
    "command of compose": ("compose.yaml", compose({"command": ["java", OPTION.format("${X:-mallory}"), "-jar", "x"]})),
    "command of compose, text": ("compose.yaml", compose({"command": f'java "{OPTION.format("$X")}" -jar x'})),
    "entrypoint of compose": ("compose.yaml", compose({"entrypoint": ["java", OPTION.format("${X-mallory}")]})),
    "shell of compose": ("compose.yaml", compose(
        {"command": ["sh", "-c", f'exec java "{OPTION.format("$$X")}" -jar x']})),
    "file of compose": ("compose.yaml", compose(
        {}, configs={MAIN: f"{RULE}{FOR_ALL_BUT.format('${X:-mallory}')}\n"})),
    "command of kubernetes": ("pod.yaml", pod(command=["java", OPTION.format("$(X)"), "-jar", "x"])),
    "shell of kubernetes": ("pod.yaml", pod(command=["sh", "-c"], args=[f'java "{OPTION.format("$X")}" -jar x'])),
    "shell with a command": ("pod.yaml", pod(command=["sh", "-c", f'java "{OPTION.format("`whoami`")}" -jar x'])),
    "unit of systemd": ("nessie.service", f"[Service]\nExecStart=/bin/java \"{OPTION.format('${X}')}\" -jar x\n"),
    "shell of a unit": ("nessie.service", f"[Service]\nExecStart=/bin/sh -c 'java \"{OPTION.format('$$X')}\"'\n"),
    "shell of a Dockerfile": ("Dockerfile", f'FROM ghcr.io/projectnessie/n:1\nCMD java "{OPTION.format("$X")}" -jar x\n'),
    "template of a file": ("cm.yaml", yaml.safe_dump(
        {**CONFIG_MAP, "data": {MAIN: f"{RULE}{FOR_ALL_BUT.format('{{ .Values.x }}')}\n"}})),
    "condition of a file": ("cm.yaml", yaml.safe_dump(
        {**CONFIG_MAP, "data": {MAIN: "{{ if .x }}\n" + f"{RULE}{FOR_ALL_BUT.format('x')}\n" + "{{ end }}\n"}})),
}  # fmt: skip


@pytest.mark.parametrize("form", WITH_A_VARIABLE)
def test_a_rule_with_a_variable_of_another_program_permits_nothing(tmp_path: Path, form: str) -> None:
    name, text = WITH_A_VARIABLE[form]
    migration = migrated(tmp_path, {name: text, "a.env": f"{VARIABLE}B=op=='READ_ENTRIES'\n"})
    found = rules_of(migration)
    is_whole = "command" in form.split() and "kubernetes" in form  # a word of a list stays one word
    is_whole = is_whole or form.startswith(("content", "file", "template", "condition"))
    assert (found.pop("b") == "op=='READ_ENTRIES'") == is_whole
    assert migration.left
    assert all(rule.startswith("false // ") for rule in found.values()), found
    assert any("VIEW_REFERENCE" in rule for rule in found.values())


def test_a_dollar_of_quarkus_and_of_a_pattern_counts(tmp_path: Path) -> None:
    content = f"{RULE}role=='$${{who}}' && ref.matches('^main$$')\nwho=admin\n"
    files = {"compose.yaml": compose({"configs": [IN_CONFIG]}, configs={"app": {"content": content}})}
    migration = migrated(tmp_path, files)
    assert (rules_of(migration), migration.left) == ({"a": "role=='admin' && ref.matches('^main$')"}, [])
    option = f"-D{RULE}role=='${{who}}'"
    migration = migrated(tmp_path, {"pod.yaml": pod(command=["java", option, "-jar", "x"]), MAIN: "who=admin\n"})
    assert (rules_of(migration), migration.left) == ({"a": "role=='admin'"}, [])


ARGO = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}
CHART = {"authorization": {"enabled": True, "rules": {"a": WIDE}}}
SHUT_BY = {
    "patch of kustomize": {"kustomization.yaml": yaml.safe_dump({"patches": [{
        "target": {"kind": "ConfigMap"},
        "patch": f"- op: replace\n  path: /data/{VARIABLE}A\n  value: {NARROW}\n"}]}),
        "a.env": f"{VARIABLE}A={WIDE}\n"},
    "parameter of argo": {"argo.yaml": yaml.safe_dump({**ARGO, "spec": {"source": {"helm": {
        "parameters": [{"name": "authorization.rules.a", "value": NARROW}], "valuesObject": CHART}}}})},
    "text of values": {"argo.yaml": yaml.safe_dump({**ARGO, "spec": {"source": {"helm": {
        "values": yaml.safe_dump({"authorization": {"rules": {"b": "true", "a": NARROW}}}), "valuesObject": CHART}}}})},
    "second values": {"values.yaml": yaml.safe_dump(CHART),
                      "values-prod.yaml": yaml.safe_dump({"authorization": {"rules": {"a": NARROW, "b": None}}})},
    "second values that are on": {"values.yaml": yaml.safe_dump(CHART), "values-prod.yaml": yaml.safe_dump(
        {"authorization": {"enabled": True, "rules": {"a": NARROW}}})},
    "second values, advanced": {"values.yaml": yaml.safe_dump(CHART),
                                "values-prod.yaml": yaml.safe_dump({"advancedConfig": {f"{PREFIX}a": NARROW}})},
    "variable of a secret": {MAIN: f"{RULE}{WIDE}\n", "pod.yaml": pod(env=[
        {"name": f"{VARIABLE}A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])},
    "variable of compose": {MAIN: f"{RULE}{WIDE}\n", "compose.yaml": compose(
        {"environment": {f"{VARIABLE}A": "role=='${WHO}'"}})},
    "option that is cut": {"compose.yaml": compose({"environment": {
        "JAVA_TOOL_OPTIONS": f'-D{RULE}"{WIDE}"', "JAVA_OPTS": f"-D{RULE}op=='VIEW_REFERENCE' && role=='x'"}})},
    "script": {MAIN: f"{RULE}{WIDE}\n", "pod.yaml": pod(
        command=["sh", "-c", f"export {VARIABLE}A=\"role=='x'\"; exec java -jar x"])},
    "file in another folder": {"a.env": f"{VARIABLE}A={WIDE}\n", "compose.yaml": compose(
        {"configs": [{**IN_CONFIG, "target": "/opt/x.properties"}]},
        configs={"app": {"content": f"{RULE}{NARROW}\n"}})},
    "two keys of one rule": {MAIN: f'{PREFIX}"a"={NARROW}\n{RULE}{WIDE}\n'},
    "two files of one rank": {MAIN: f"config_ordinal=255\n{RULE}{WIDE}\n", "application.yaml":
                              f'nessie: {{server: {{authorization: {{rules: {{a: "{NARROW}"}}}}}}}}\n'},
    "files of two objects": {f"{name}.yaml": yaml.safe_dump({**CONFIG_MAP, "metadata": {"name": name},
                             "data": {MAIN: f"{RULE}{text}\n"}}) for name, text in (("n", NARROW), ("w", WIDE))},
}  # fmt: skip


@pytest.mark.parametrize("form", SHUT_BY)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_rule_that_a_part_left_may_replace_permits_nothing(tmp_path: Path, form: str, is_reversed: bool) -> None:
    items = list(SHUT_BY[form].items())
    migration = migrated(tmp_path, dict(reversed(items) if is_reversed else items))
    assert is_shut(migration), migration.parts
    assert is_shut(migration, NARROW)
    assert not any(part.subject == "rule `a`" and part.status == "done" for part in migration.parts)


def test_values_of_several_files_are_not_blamed_on_a_switch(tmp_path: Path) -> None:
    migration = migrated(tmp_path, SHUT_BY["second values"])
    assert not any("is not true" in part.message for part in migration.left)
    assert any("Helm" in part.message for part in migration.left)


OWN = {f"{VARIABLE}A": NARROW}
BESIDE = {f"{VARIABLE}B": WIDE, f"{PREFIX}c": WIDE}
VALUES = [{"name": name, "value": text} for name, text in BESIDE.items()]
NO_VARIABLES = {
    "labels of compose": ("compose.yaml", compose({"environment": OWN, "labels": BESIDE})),
    "list of labels": ("compose.yaml", compose({"environment": OWN, "labels": [f"{VARIABLE}B={WIDE}"]})),
    "labels of a deploy": ("compose.yaml", compose({"environment": OWN, "deploy": {"labels": BESIDE}})),
    "annotations": ("pod.yaml", yaml.safe_dump({
        **yaml.safe_load(pod(env=[{"name": name, "value": text} for name, text in OWN.items()])),
        "metadata": {"name": "n", "annotations": BESIDE}})),
    "containers of a chart": ("values.yaml", yaml.safe_dump(
        {"authorization": {"enabled": True, "rules": {"a": NARROW}}, "podAnnotations": BESIDE,
         "extraContainers": [{"name": "x", "env": VALUES}], "sidecars": [{"name": "y", "env": VALUES}]})),
    "another program": ("compose.yaml", yaml.safe_dump({"services": {
        "nessie": {"environment": OWN}, "ui": {"image": "nginx", "environment": BESIDE}}})),
}  # fmt: skip


@pytest.mark.parametrize("form", NO_VARIABLES)
def test_a_text_that_is_no_variable_of_the_server_permits_nothing(tmp_path: Path, form: str) -> None:
    name, text = NO_VARIABLES[form]
    migration = migrated(tmp_path, {name: text})
    assert rules_of(migration) == {"a": NARROW}
    assert migration.left


SECRET_USER = {"name": "BAD_USER", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
EXPRESSION = f"{RULE}{FOR_ALL_BUT.format('${bad.user:mallory}')}\n"
EXPRESSIONS = {
    "secret": {MAIN: EXPRESSION, "pod.yaml": pod(env=[SECRET_USER])},
    "secret beside a key": {MAIN: f"{EXPRESSION}bad.user=x\n", "pod.yaml": pod(env=[SECRET_USER])},
    "through another key": {MAIN: f"{RULE}{FOR_ALL_BUT.format('${who}')}\nwho=${{bad.user:x}}\n",
                            "pod.yaml": pod(env=[SECRET_USER])},
    "option": {MAIN: EXPRESSION, "a.env": "JAVA_OPTS_APPEND=-Dbad.user=x\n"},
    "command": {MAIN: EXPRESSION, "pod.yaml": pod(command=["java"], args=["-Dbad.user=x", "-jar", "x.jar"])},
    "profile": {MAIN: EXPRESSION, "a.env": "_PROD_BAD_USER=x\n"},
    "variable of compose": {MAIN: EXPRESSION, "compose.yaml": compose({"environment": {"BAD_USER": "${WHO}"}})},
    "script": {MAIN: EXPRESSION, "pod.yaml": pod(command=["sh", "-c", "BAD_USER=x exec java -jar x"])},
    "chart": {"values.yaml": yaml.safe_dump({
        "authorization": {"enabled": True, "rules": {"a": FOR_ALL_BUT.format("${bad.user:mallory}")}},
        "extraEnv": [SECRET_USER]})},
    "one of two services": {MAIN: EXPRESSION, "compose.yaml": yaml.safe_dump({"services": {
        "nessie": {"environment": {"A_B": "c"}}, "x": {"environment": {"BAD_USER": "x"}}}})},
}  # fmt: skip


@pytest.mark.parametrize("form", EXPRESSIONS)
def test_an_expression_without_a_certain_value_permits_nothing(tmp_path: Path, form: str) -> None:
    migration = migrated(tmp_path, EXPRESSIONS[form])
    assert all(rule.startswith("false // ") for rule in rules_of(migration).values()), migration.parts
    assert any("VIEW_REFERENCE" in rule for rule in rules_of(migration).values())
    assert migration.left


def test_an_expression_with_a_certain_value_counts(tmp_path: Path) -> None:
    files = {MAIN: EXPRESSION, "compose.yaml": compose({"environment": {"bad.user": "real", "OTHER": "${X}"}})}
    migration = migrated(tmp_path, files)
    assert (rules_of(migration), migration.left) == ({"a": FOR_ALL_BUT.format("real")}, [])


ASKING = {
    "variable of MicroProfile": {"a.env": "MP_CONFIG_PROFILE=secure\n"},
    "variable of SmallRye": {"a.env": "SMALLRYE_CONFIG_PROFILE=secure\n"},
    "key of MicroProfile": {MAIN: "mp.config.profile=secure\n"},
    "key of SmallRye": {MAIN: "smallrye.config.profile=secure\n"},
    "key of Quarkus": {MAIN: "quarkus.profile=secure\n"},
    "option of Java": {"a.env": "JAVA_OPTS=-Dmp.config.profile=secure\n"},
    "two keys": {MAIN: "mp.config.profile=secure\nsmallrye.config.profile=prod\n"},
    "variable of a secret": {"k.yaml": "kind: Deployment\nmetadata: {name: n}\nspec: {containers: [{name: n, env: [{name: "
                                       "MP_CONFIG_PROFILE, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}\n"},
}  # fmt: skip


@pytest.mark.parametrize("form", ASKING)
def test_a_profile_that_something_asks_for_shuts_the_rules_it_may_replace(tmp_path: Path, form: str) -> None:
    given = {**ASKING[form]}
    given[MAIN] = f"{given.get(MAIN, '')}{PREFIX}a={WIDE}\n%secure.{PREFIX}a={NARROW}\n{PREFIX}b=op=='READ_ENTRIES'\n"
    migration = migrated(tmp_path, given)
    assert is_shut(migration)
    assert rules_of(migration)["b"] == "op=='READ_ENTRIES'"
    assert [part for part in migration.left if "profile" in part.subject.lower() or "profile" in part.message.lower()]
    chosen = migrated(tmp_path, given, "secure")
    assert rules_of(chosen)["a"] == NARROW


@pytest.mark.parametrize("key", ["quarkus.profile", "smallrye.config.profile", "mp.config.profile"])
def test_a_profile_in_force_that_is_asked_for_changes_nothing(tmp_path: Path, key: str) -> None:
    migration = migrated(tmp_path, {MAIN: f"{key}=prod\n{PREFIX}a={WIDE}\n%secure.{PREFIX}a={NARROW}\n"})
    assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])


NESSIE = "ghcr.io/projectnessie/nessie:0.99"
FROM = f"FROM {NESSIE}\n"
JAR = '"-jar", "x.jar"'
BUILT = {"services": {"nessie": {"build": "."}}}


def d(id: str, text: str = WIDE) -> str:
    return f'"-D{PREFIX}{id}={text}"'


def built(**service: object) -> str:
    return yaml.safe_dump({"services": {"nessie": {"build": ".", **service}}})


def words(*options: str) -> list[str]:
    return ["java", *(option.strip('"') for option in options), "-jar", "x.jar"]


OVERRIDDEN: dict[str, dict[str, str]] = {
    "later CMD": {"Dockerfile": f'{FROM}CMD ["java", {d("b")}, {JAR}]\nCMD ["java", {JAR}]\n'},
    "earlier CMD": {"Dockerfile": f'{FROM}CMD ["java", {JAR}]\nCMD ["java", {d("b")}, {JAR}]\n'},
    "shell": {"Dockerfile": f"{FROM}CMD java {d('b')} -jar x.jar\nCMD java -jar x.jar\n"},
    "later ENTRYPOINT": {"Dockerfile": f'{FROM}ENTRYPOINT ["java", {d("b")}, {JAR}]\nENTRYPOINT ["java", {JAR}]\n'},
    "child": {"Dockerfile": f'{FROM[:-1]} AS a\nCMD ["java", {d("b")}, {JAR}]\nFROM a\nCMD ["java", {JAR}]\n'},
    "ENTRYPOINT of a child": {
        "Dockerfile": f'{FROM[:-1]} AS a\nCMD [{d("b")}, {JAR}]\nFROM a\nENTRYPOINT ["java"]\n'},
    "ENTRYPOINT of a shell": {"Dockerfile": f'{FROM}ENTRYPOINT java\nCMD [{d("b")}, {JAR}]\n'},
    "CMD behind the jar": {"Dockerfile": f'{FROM}ENTRYPOINT ["java", {JAR}]\nCMD [{d("b")}]\n'},
    "CMD before ENTRYPOINT": {"Dockerfile": f'{FROM}CMD ["java", {d("b")}, {JAR}]\nENTRYPOINT ["java", {JAR}]\n'},
    "command of compose": {"Dockerfile": f'{FROM}CMD ["java", {d("b")}, {JAR}]\n',
                           "compose.yaml": built(command=words())},
    "entry point of compose": {"Dockerfile": f'{FROM}ENTRYPOINT ["java", {d("b")}, {JAR}]\n',
                               "compose.yaml": built(entrypoint=words())},
    "of compose, under the image": {"Dockerfile": f'{FROM}ENTRYPOINT ["java", {JAR}]\n',
                                    "compose.yaml": built(command=words(d("b")))},
    "override of compose": {
        "compose.yaml": yaml.safe_dump({"services": {"nessie": {"image": NESSIE, "command": words(d("b"))}}}),
        "compose.override.yaml": yaml.safe_dump({"services": {"nessie": {"command": words()}}})},
    "command of a pod": {"Dockerfile": f'{FROM}CMD ["java", {d("b")}, {JAR}]\n', "pod.yaml": pod(command=words())},
    "arguments of a pod": {"Dockerfile": f'{FROM}CMD ["java", {d("b")}, {JAR}]\n', "pod.yaml": pod(args=words())},
}  # fmt: skip


@pytest.mark.parametrize("form", OVERRIDDEN)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_command_that_may_not_run_permits_nothing(tmp_path: Path, form: str, is_reversed: bool) -> None:
    items = list(OVERRIDDEN[form].items())
    migration = migrated(tmp_path, dict(reversed(items) if is_reversed else items))
    assert is_shut(migration), migration.parts
    below = {MAIN: f"{PREFIX}b={WIDE}\n{PREFIX}c=role=='c'\n"}
    rules = rules_of(migrated(tmp_path, {**below, **OVERRIDDEN[form]}))
    assert WIDE not in rules.values() or "behind" in form or "before" in form
    assert rules["c"] == "role=='c'"


def test_the_only_command_counts(tmp_path: Path) -> None:
    for steps in (f'CMD ["java", {d("b")}, {JAR}]', f'ENTRYPOINT ["java"]\nCMD [{d("b")}, {JAR}]',
                  f'ENTRYPOINT ["java", {d("b")}]\nCMD [{JAR}]'):  # fmt: skip
        migration = migrated(tmp_path, {"Dockerfile": f"{FROM}{steps}\n", "compose.yaml": yaml.safe_dump(BUILT)})
        assert (rules_of(migration), migration.left) == ({"b": WIDE}, [])


SHORT = "op=='VIEW_REFERENCE'"
"""A rule without blanks, which the start script keeps whole."""


@pytest.mark.parametrize("name", ["JAVA_OPTS", "JAVA_OPTS_APPEND", "JAVA_OPTIONS"])
@pytest.mark.parametrize("keys", [
    {"command": words()}, {"entrypoint": "java -jar x.jar"},
    {"entrypoint": ["sh", "-c", "exec java -jar x.jar"]},
])  # fmt: skip
def test_options_of_the_script_do_not_count_without_it(tmp_path: Path, name: str, keys: dict[str, object]) -> None:
    env = {name: f"-D{PREFIX}b={SHORT}", f"{VARIABLE}B": SHORT, f"{VARIABLE}C": "role=='c'"}
    rules = []
    for more in (keys, {}, {"command": ["/opt/jboss/container/java/run/run-java.sh"]}):
        service = {"nessie": {"image": NESSIE, "environment": env, **more}}
        migration = migrated(tmp_path, {"compose.yaml": yaml.safe_dump({"services": service})})
        rules.append(rules_of(migration)["b"])
        assert rules_of(migration)["c"] == "role=='c'"
        assert bool(migration.left) == (more is keys)
    assert [rule == SHORT for rule in rules] == [False, True, True]
    cmd = next(iter(keys.values()))
    image = {"Dockerfile": f'{FROM}ENV {name}="-D{PREFIX}b={SHORT}"\nENTRYPOINT {cmd}\n'.replace("'java'", '"java"')}
    (tmp_path / "image").mkdir()
    assert is_shut(migrated(tmp_path / "image", image), SHORT)


OPAQUE: dict[str, dict[str, object]] = {
    "file of arguments": {"command": ["java", "@/etc/args", "-jar", "x.jar"]},
    "file of arguments, shell": {"command": ["sh", "-c", "exec java @/etc/args -jar x.jar"]},
    "options of the machine": {"command": ["java", "-XX:VMOptionsFile=/opt/o", "-jar", "x.jar"]},
    "flags": {"command": ["java", "-XX:Flags=/opt/o", "-jar", "x.jar"]},
    "agent": {"command": ["java", "-javaagent:/opt/a.jar=x", "-jar", "x.jar"]},
    "agent of the machine": {"command": ["java", "-agentpath:/opt/a.so", "-jar", "x.jar"]},
    "classes": {"command": ["java", "-cp", "/x:/y", "io.quarkus.Main"]},
    "classes, long": {"command": "java --class-path=/x io.quarkus.Main"},
    "script that takes away": {"command": ["sh", "-c", f"unset {VARIABLE}X; exec run-java.sh"]},
    "script with another environment": {"command": ["sh", "-c", "exec env -i A=b run-java.sh"]},
    **{f"{kind} in {name}": {"environment": {name: text}}
       for name in ("JDK_JAVA_OPTIONS", "JAVA_OPTS", "JAVA_OPTS_APPEND", "JAVA_TOOL_OPTIONS")
       for kind, text in {"file": "@/etc/args", "agent": "-Xmx1g -javaagent:/a.jar", "flags": "-XX:Flags=x"}.items()},
    "value of the host": {"environment": {"JAVA_OPTS": "$OPTS"}},
    "env file": {"env_file": "missing.env"},
    "optional env file": {"env_file": [{"path": "missing.env", "required": False}]},
    "locations": {"environment": {"QUARKUS_CONFIG_LOCATIONS": "/etc/x.properties"}},
    "locations of SmallRye": {"environment": {"smallrye.config.locations": "/etc/x.properties"}},
    "locations in an option": {"environment": {"JAVA_OPTS": "-Dsmallrye.config.locations=/etc/x.properties"}},
    "folders": {"environment": {"SMALLRYE_CONFIG_SOURCE_FILE_LOCATIONS": "/etc/x"}},
}  # fmt: skip
CONTENT_UNKNOWN = {
    **{form: {"compose.yaml": yaml.safe_dump({"services": {"nessie": {"image": NESSIE, **keys, "environment": {
        f"{VARIABLE}B": WIDE, **keys.get("environment", {})}}}})}  # type: ignore[dict-item]
       for form, keys in OPAQUE.items()},
    "object": {"pod.yaml": pod(env=[{"name": f"{VARIABLE}B", "value": WIDE}],
                               envFrom=[{"configMapRef": {"name": "more"}}])},
    "secret": {"pod.yaml": pod(env=[{"name": f"{VARIABLE}B", "value": WIDE}],
                               envFrom=[{"secretRef": {"name": "more", "optional": True}}])},
    "file of a unit": {"n.service": f'[Service]\nEnvironment="{VARIABLE}B={WIDE}"\nEnvironmentFile=/etc/x\n'},
    "page": {"Dockerfile": f'{FROM}ENV {VARIABLE}B="{WIDE}"\nADD https://x.example/{MAIN} /deployments/config/\n'},
    "archive": {"Dockerfile": f'{FROM}ENV {VARIABLE}B="{WIDE}"\nADD https://x.example/a.tgz /deployments/\n'},
    "stage": {"Dockerfile": f'{FROM}ENV {VARIABLE}B="{WIDE}"\nCOPY --from=x /a /deployments/config/{MAIN}\n'},
    "key of a file": {MAIN: f"{RULE}{WIDE}\nquarkus.config.locations=/etc/other.properties\n"},
    "key of SmallRye": {MAIN: f"{RULE}{WIDE}\nsmallrye.config.locations=/etc/other.properties\n"},
    "folder of a file": {MAIN: f"{RULE}{WIDE}\nsmallrye.config.source.file.locations=/etc/other\n"},
}  # fmt: skip


@pytest.mark.parametrize("form", CONTENT_UNKNOWN)
def test_a_part_of_unknown_content_shuts_what_it_may_replace(tmp_path: Path, form: str) -> None:
    migration = migrated(tmp_path, CONTENT_UNKNOWN[form])
    assert is_shut(migration), migration.parts


@pytest.mark.parametrize("keys", [
    {"command": ["java", "-cp", "x", "-jar", "x.jar"]}, {"command": ["java", "-jar", "x.jar", "@x", "-javaagent:x"]},
    {"environment": {"JAVA_TOOL_OPTIONS": "-agentlib:jdwp=transport=dt_socket"}}, {"env_file": "known.env"},
])  # fmt: skip
def test_options_that_bring_nothing_shut_nothing(tmp_path: Path, keys: dict[str, Any]) -> None:
    env = {f"{VARIABLE}B": WIDE, **keys.get("environment", {})}
    service = {"nessie": {"image": NESSIE, **keys, "environment": env}}
    migration = migrated(tmp_path, {"compose.yaml": yaml.safe_dump({"services": service}), "known.env": "A=b\n"})
    assert (rules_of(migration), migration.left) == ({"b": WIDE}, [])


@pytest.mark.parametrize(
    "other", [VARIABLE.lower() + "a", f"{PREFIX}a", f"{VARIABLE}a", "Nessie_server_authorization_rules_a"]
)
@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("name", ["a.env", "compose.yaml", "Dockerfile"])
def test_two_spellings_of_a_variable_are_refused(tmp_path: Path, other: str, is_reversed: bool, name: str) -> None:
    pairs = [(f"{VARIABLE}A", WIDE), (other, NARROW)][:: -1 if is_reversed else 1]

    def text(found: list[tuple[str, str]]) -> str:
        if name == "compose.yaml":
            return yaml.safe_dump({"services": {"nessie": {"environment": dict(found)}}})
        lines = "".join(f'{"" if name == "a.env" else "ENV "}{key}="{value}"\n' for key, value in found)
        return lines if name == "a.env" else FROM + lines

    with pytest.raises(PolicyError, match=r"another spelling of|are one name"):
        migrated(tmp_path, {name: text(pairs)})
    assert rules_of(migrated(tmp_path, {name: text([(key, WIDE) for key, _ in pairs])})) == {"a": WIDE}
