"""Starts of a server that are not known whole: words of variables, and variables that change what starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration

IMAGE = "ghcr.io/projectnessie/nessie:0.99"
WIDE = "op=='VIEW_REFERENCE'"
RULE = "NESSIE_SERVER_AUTHORIZATION_RULES_A"
START = ["java", "-jar", "q.jar"]


def pod(env: dict[str, Any], **container: Any) -> str:
    named = [{"name": name, **(value if isinstance(value, dict) else {"value": value})} for name, value in env.items()]
    spec = {"containers": [{"name": "n", "image": IMAGE, "env": named, **container}]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": spec})


def compose(env: dict[str, str], **service: Any) -> str:
    return yaml.safe_dump({"services": {"n": {"image": IMAGE, "environment": env, **service}}})


def unit(env: dict[str, str], command: str) -> str:
    lines = "".join(f'Environment="{name}={value}"\n' for name, value in env.items())
    return f"[Service]\n{lines}ExecStart={command}\n"


def image(env: dict[str, str], *steps: str) -> str:
    return "\n".join([f"FROM {IMAGE}", *(f'ENV {name}="{value}"' for name, value in env.items()), *steps, ""])


def migrated(folder: Path, name: str, text: str) -> Migration:
    (folder / name).write_text(text)
    return migrate_nessie([], [folder / name])


def rules_of(migration: Migration) -> dict[str, str]:
    rules: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return rules


def check_shut(migration: Migration) -> None:
    assert WIDE not in rules_of(migration).values()
    assert migration.left


def in_form(form: str, value: str | None) -> tuple[str, str]:
    """Return a file whose command has a word of the variable X, with a value, or with none that is known."""
    env = {RULE: WIDE, **({} if value is None else {"X": value})}
    script = "exec java $X -jar q.jar"
    texts = {
        "pod": lambda: pod(env, command=["java", "$(X)", "-jar", "q.jar"]),
        "pod, arguments": lambda: pod(env, command=["java"], args=["$(X)", "-jar", "q.jar"]),
        "pod, shell": lambda: pod(env, command=["sh", "-c", script]),
        "pod, shell of braces": lambda: pod(env, command=["bash", "-ec", script.replace("$X", "${X}")]),
        "pod, script": lambda: pod(env, command=["sh", "-c", "exec java $(X) -jar q.jar"]),
        "compose, shell": lambda: compose(env, entrypoint=["sh", "-c", script.replace("$", "$$")]),
        "unit": lambda: unit(env, "/bin/java $X -jar q.jar"),
        "unit, braces": lambda: unit(env, "/bin/java ${X} -jar q.jar"),
        "unit, shell": lambda: unit(env, '/bin/sh -c "exec java $$X -jar q.jar"'),
        "image": lambda: image(env, f"CMD {script}"),
        "image, entry point": lambda: image(env, f"ENTRYPOINT {script}"),
    }
    name = {"p": "pod.yaml", "c": "compose.yaml", "u": "n.service", "i": "Dockerfile"}[form[0]]
    return name, texts[form]()


FORMS = [
    "pod", "pod, arguments", "pod, shell", "pod, shell of braces", "pod, script", "compose, shell", "unit",
    "unit, braces", "unit, shell", "image", "image, entry point",
]  # fmt: skip
ONE_WORD = ("pod", "pod, arguments", "unit, braces")
"""Forms that make one word of a value with blanks."""
BAD = [
    None, "-javaagent:/x.jar", "@/etc/opts", "-cp /x Main", "-Dquarkus.config.locations=/x", "-Duser.dir=/x",
    "-Dnessie.server.authorization.rules.a=false", "-Dnessie.server.authorization.enabled=false;x", "$Y", "a b",
    "-Da=b -XX:Flags=/x -javaagent:/x",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", BAD)
def test_a_word_of_a_variable_may_change_every_rule(tmp_path: Path, form: str, value: str | None) -> None:
    if value and " -" in value and form in ONE_WORD:
        return  # one property with blanks, which brings nothing
    check_shut(migrated(tmp_path, *in_form(form, value)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", ["-Xmx1g", "-XX:+UseG1GC", "-Da=b"])
def test_a_variable_with_a_known_plain_text_is_read(tmp_path: Path, form: str, value: str) -> None:
    migration = migrated(tmp_path, *in_form(form, value))
    if form.startswith("image"):  # another file may set it for a container
        check_shut(migration)
    else:
        assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])


@pytest.mark.parametrize("value", ["-Xmx1g", "-javaagent:/x.jar"])
@pytest.mark.parametrize("form", ["$X", "${X}", "${X:-}"])
@pytest.mark.parametrize("is_list", [True, False])
def test_a_variable_that_docker_compose_replaces_is_not_known(
    tmp_path: Path, value: str, form: str, is_list: bool
) -> None:
    words = ["java", form, *START[1:]]
    text = compose({RULE: WIDE, "X": value}, command=words if is_list else " ".join(words))
    check_shut(migrated(tmp_path, "compose.yaml", text))


@pytest.mark.parametrize("option", [
    "-Duser.dir=/x", "-Djava.class.path=/x", "-Djava.system.class.loader=x", "-Djdk.module.path=/x", "-XX:OnError=/x",
    "-XX:OnOutOfMemoryError=x", "-XX:+ReadVMOptionsFile", "-XX:SharedArchiveFile=/x", "--module-path", "-p", "-splash:x",
    "--source", "--new-option=x", "-Xshareclasses:x", "--patch-module=a=b",
])  # fmt: skip
@pytest.mark.parametrize("place", ["command", "JAVA_TOOL_OPTIONS", "JAVA_OPTS", "GC_CONTAINER_OPTIONS"])
def test_an_option_of_java_that_is_not_known_to_be_harmless_makes_rules_false(
    tmp_path: Path, option: str, place: str
) -> None:
    env = {RULE: WIDE} | ({} if place == "command" else {place: option})
    command = {"command": ["java", option, "-jar", "q.jar"]} if place == "command" else {}
    check_shut(migrated(tmp_path, "pod.yaml", pod(env, **command)))


OF_START = {
    "BASH_ENV": "/x", "ENV": "/x", "JAVA_HOME": "/x", "LD_PRELOAD": "/x.so", "LD_LIBRARY_PATH": "/x", "PATH": "/x:/bin",
    "JAVA_APP_JAR": "/x.jar", "JAVA_MAIN_CLASS": "x", "JAVA_APP_DIR": "/x", "JAVA_LIB_DIR": "/x", "JAVA_CLASSPATH": "/x",
    "GC_CONTAINER_OPTIONS": "-javaagent:/x.jar", "CLASSPATH": "/x", "SHELLOPTS": "xtrace",
    "BASH_FUNC_java": "() { x; }", "JAVA_MAX_MEM_RATIO": "a[$(x)]", "GC_MIN_HEAP_FREE_RATIO": "1 -javaagent:/x.jar",
    "AB_JOLOKIA_OPTS": "x", "JAVA_NEW": "-javaagent:/x", "JDK_NEW": "x", "S2I_X": "x", "HTTP_PROXY": "x -cp y", "PS4": "$(x)",
}  # fmt: skip


@pytest.mark.parametrize("name", OF_START)
@pytest.mark.parametrize("form", ["pod", "compose", "image", "env file", "secret"])
def test_a_variable_that_changes_the_start_makes_rules_false(tmp_path: Path, name: str, form: str) -> None:
    env = {RULE: WIDE, name: OF_START[name]}
    hidden = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    text = {
        "pod": lambda: pod(env), "compose": lambda: compose(env), "image": lambda: image(env),
        "env file": lambda: "".join(f"{one}={value}\n" for one, value in env.items()),
        "secret": lambda: pod({**env, name: hidden}),
    }[form]()  # fmt: skip
    file = {"compose": "compose.yaml", "image": "Dockerfile", "env file": "a.env"}.get(form, "pod.yaml")
    check_shut(migrated(tmp_path, file, text))


def test_an_option_of_the_collector_may_set_a_rule(tmp_path: Path) -> None:
    env = {RULE: WIDE, "GC_CONTAINER_OPTIONS": "-Dnessie.server.authorization.rules.a=false"}
    assert rules_of(migrated(tmp_path, "pod.yaml", pod(env))) == {"a": "false"}


HARMLESS = {
    "JAVA_HOME": "/usr/lib/jvm/jre-21", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "JAVA_MAX_MEM_RATIO": "80", "JAVA_VERSION": "21.0.2+13", "GC_MAX_METASPACE_SIZE": "256", "AB_JOLOKIA_OFF": "",
    "JAVA_OPTS": "-Xmx2g -Xms512m -XX:+UseG1GC -XX:MaxRAMPercentage=75.0 -Duser.timezone=UTC -Dfile.encoding=UTF-8",
    "GC_CONTAINER_OPTIONS": "-XX:+UseParallelGC", "NO_PROXY": "localhost,.svc", "LD_PRELOAD": "", "TZ": "UTC",
    "JAVA_TOOL_OPTIONS": "--add-opens java.base/java.lang=ALL-UNNAMED -XX:HeapDumpPath=/tmp", "CONTAINER_CORE_LIMIT": "2",
    "HTTPS_PROXY": "http://proxy:3128", "JAVA_DIAGNOSTICS": "true",
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_variable_of_the_start_changes_nothing(tmp_path: Path, name: str) -> None:
    migration = migrated(tmp_path, "pod.yaml", pod({RULE: WIDE, name: HARMLESS[name]}))
    assert (rules_of(migration), migration.left) == ({"a": WIDE}, [])


@pytest.mark.parametrize("step", [
    'SHELL ["/x.sh"]\nCMD java -jar q.jar', 'SHELL ["/bin/bash", "-lc"]\nCMD java -jar q.jar', 'SHELL ["/bin/sh"]',
    "COPY --exclude=*.properties . /deployments/config/", "COPY --parents a /deployments/config/",
    "ADD --unpack=true a /deployments/config/",
])  # fmt: skip
def test_a_step_of_an_image_that_is_not_known_whole_makes_rules_false(tmp_path: Path, step: str) -> None:
    (tmp_path / "application.properties").write_text(f"nessie.server.authorization.rules.b={WIDE}\n")
    (tmp_path / "Dockerfile").write_text(image({RULE: WIDE}, step))
    check_shut(migrate_nessie([tmp_path / "application.properties"], [tmp_path / "Dockerfile"]))


def test_a_known_shell_and_known_options_of_a_copy_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "application.properties").write_text(f"nessie.server.authorization.rules.b={WIDE}\n")
    steps = (
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"]',
        "COPY --chown=1 application.properties /deployments/config/",
    )
    (tmp_path / "Dockerfile").write_text(image({RULE: WIDE}, *steps))
    migration = migrate_nessie([tmp_path / "application.properties"], [tmp_path / "Dockerfile"])
    assert (rules_of(migration), migration.left) == ({"a": WIDE, "b": WIDE}, [])


OPA: dict[str, dict[str, Any]] = {
    "argument": {"command": ["opa", "run", "--server", "$(X)"]}, "arguments": {"args": ["run", "--server", "$(X)"]},
    "shell": {"command": ["sh", "-c", "opa run --server $X"]}, "bundle": {"env": {"OPA_RUN_BUNDLE": "https://x"}},
    "config": {"env": {"OPA_RUN_CONFIG_FILE": "/x"}}, "preload": {"env": {"LD_PRELOAD": "/x.so"}},
}  # fmt: skip


@pytest.mark.parametrize("form", OPA)
def test_a_bridge_whose_start_is_not_known_opens_nothing(tmp_path: Path, form: str) -> None:
    more = {key: value for key, value in OPA[form].items() if key != "env"}
    env = {"TRINO_ALLOW_UNMANAGED_CATALOGS": "true", "X": "--bundle=https://x", **OPA[form].get("env", {})}
    text = pod(env, **more).replace(IMAGE, "openpolicyagent/opa:1.0.0")
    (tmp_path / "pod.yaml").write_text(text)
    migration = migrate_lakekeeper([tmp_path / "pod.yaml"])
    assert migration.left
    assert "allow" not in json.dumps(yaml.safe_load(migration.files["pdp.yaml"]).get("trino", {}))
