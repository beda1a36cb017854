"""Commands on rule files of Nessie, and beside variables of Nessie and Lakekeeper."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.generators.setting_keys import NAME, setting_keys
from support.service.commands import run_pdp

from pdp.cli.config.foreign_variables import check_foreign_variables, unread_warnings
from pdp.config.load import load_settings
from pdp.errors import ConfigError

PREFIX = "nessie.server.authorization.rules."
STRANGER = {"principal": "user:oidc~stranger", "action": "VIEW_REFERENCE", "resource": "reference:lake@secret"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.properties", f"%prod.{PREFIX}view=op=='VIEW_REFERENCE' && ref=='main'\n"),
        ("a.properties", f"{PREFIX}view=op=='VIEW_REFERENCE' && ref=='${{b:main}}'\n"),
        (
            "a.yaml",
            "nessie: {server: {authorization: {rules: {view: \"op=='VIEW_REFERENCE' && ref=='x'\"}}}}\n",
        ),
    ],
)
def test_a_rule_that_hides_branches_hides_them_in_every_form(tmp_path: Path, name: str, text: str) -> None:
    """A skipped rule would leave Nessie's implicit rule in force, which shows every branch to everybody."""
    (tmp_path / name).write_text(text)
    ended = run_pdp("check", "--rules", name, stdin=json.dumps(STRANGER) + "\n", cwd=tmp_path)
    assert (ended.stderr, json.loads(ended.stdout)["allowed"]) == ("", False)


@pytest.mark.process
def test_lint_takes_a_profile(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text(f"%dev.{PREFIX}a=nope\n")
    assert run_pdp("lint", "a.properties", cwd=tmp_path).returncode == 0
    ended = run_pdp("lint", "a.properties", "--profile", "dev", cwd=tmp_path)
    assert (ended.returncode, "unknown-variable" in ended.stdout) == (1, True)


@pytest.mark.process
def test_lint_of_a_folder_finds_nested_rules(tmp_path: Path) -> None:
    (tmp_path / "application.yaml").write_text(
        "nessie:\n  server:\n    authorization:\n      rules:\n        a: nope\n"
    )
    (tmp_path / "flat.yml").write_text("nessie.server.authorization.rules.a: 'true'\n")
    ended = run_pdp("lint", ".", cwd=tmp_path)
    assert (ended.returncode, "application.yaml:5:12: error" in ended.stdout) == (1, True)
    assert "flat.yml:1:1: error" in ended.stdout


@pytest.mark.process
def test_config_check_knows_profiles_and_variables(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text(f"%dev.{PREFIX}a=nope\n%prod.{PREFIX}a=true\n")
    (tmp_path / "pdp.yaml").write_text("policies: {rules: [a.properties], profiles: dev}\n")
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert (ended.returncode, "undeclared" in ended.stdout + ended.stderr) == (1, True)
    (tmp_path / "pdp.yaml").write_text("policies: {rules: [a.properties]}\n")
    assert run_pdp("config", "check", cwd=tmp_path).returncode == 0
    ended = run_pdp("config", "check", cwd=tmp_path, env={"NESSIE_SERVER_AUTHORIZATION_ENABLED": "true"})
    assert (ended.returncode, "rules are read from files only" in ended.stdout + ended.stderr) == (1, True)


@pytest.mark.process
def test_a_service_does_not_start_beside_variables_of_nessie(tmp_path: Path) -> None:
    variables = {"NESSIE_SERVER_AUTHORIZATION_RULES_VIEW": "ref=='main'"}
    ended = run_pdp("serve", cwd=tmp_path, env=variables, timeout=20)
    assert ended.returncode == 2
    assert "`NESSIE_SERVER_AUTHORIZATION_RULES_VIEW`, and rules are read from files only" in ended.stderr


@pytest.mark.parametrize(
    "name",
    [
        "NESSIE_SERVER_AUTHORIZATION_RULES_A",
        "_PROD_NESSIE_SERVER_AUTHORIZATION_RULES_A",
        "nessie.server.authorization.rules.a",
        "NESSIE_SERVER_AUTHORIZATION_ENABLED",
    ],
)
def test_every_spelling_of_a_variable_of_nessie_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"`{name}`"):
        check_foreign_variables({name: "x"})


def test_variables_of_lakekeeper_are_mentioned_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    check_foreign_variables({"LAKEKEEPER__TRUSTED_ENGINES__TRINO__TYPE": "trino", "LAKEKEEPER__B": "x", "PATH": "/"})
    output = capsys.readouterr()
    (line,) = (output.out + output.err).splitlines()
    assert "`LAKEKEEPER__B` and 1 more, which the service does not read: `pdp migrate lakekeeper` translates" in line


def test_other_variables_are_not_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    check_foreign_variables({"NESSIE_VERSION_STORE_TYPE": "JDBC", "QUARKUS_HTTP_PORT": "1"})
    output = capsys.readouterr()
    assert output.out + output.err == ""


WRONG: list[Callable[[str], str]] = [
    lambda text: text[:-1],
    lambda text: f"{text}S",
    lambda text: f"{text[:-2]}{text[-1]}{text[-2]}",
    lambda text: f"{text[:1]}{text[2:]}",
]
"""Mistakes in a key."""
FORMS: list[Callable[[tuple[str, ...]], str]] = [
    lambda names: f"PDP_{'_'.join(names)}",
    lambda names: f"pdp_{'_'.join(names)}".lower(),
    lambda names: f"PDP_{'__'.join(names)}",
    lambda names: f"PDP__{'_'.join(names)}",
    lambda names: f"PDP__{'__'.join(names)}",
]


@pytest.mark.parametrize("wrong", WRONG)
def test_each_misspelt_key_in_a_variable_stops_the_start_or_is_named_with_the_nearest(
    wrong: Callable[[str], str],
) -> None:
    """Keys outside of maps and lists, in all forms of variables: `PDP_TRINO_ADMIN_USER` meant nothing, silently."""
    keys = [key.path for key in setting_keys() if len(key.path) > 1 and NAME not in key.path and 0 not in key.path]
    named = near = 0
    for path in keys:
        names = tuple(str(name).upper() for name in path)
        for form in FORMS:
            variable = form((*names[:-1], wrong(names[-1])))
            try:
                load_settings(None, (), {variable: "1"})
            except ConfigError:
                continue
            texts = [text for text in unread_warnings({variable: "hunter2"}) if f"`{variable}`" in text]
            assert len(texts) == 1, variable
            assert "hunter2" not in texts[0]
            named += 1
            near += f"`PDP__{'__'.join(names)}`" in texts[0]
    assert near > 0.9 * named > 0, (near, named)


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("PDP_TRINO_ADMIN_USER", "PDP__TRINO__ADMIN_USERS"),
        ("PDP_IDENTITY_CALLERS_X_MAY_ASERT", "PDP__IDENTITY__CALLERS__<NAME>__MAY_ASSERT"),
        ("PDP_ZZZZ", ""),
    ],
)
def test_the_start_and_the_check_name_a_variable_that_nothing_reads(
    capsys: pytest.CaptureFixture[str], variable: str, near: str
) -> None:
    check_foreign_variables({variable: "x"})
    output = capsys.readouterr()
    (line,) = (output.out + output.err).splitlines()
    assert f"`{variable}`, which nothing reads" in line
    assert (f"the nearest key is `{near}`" in line) is bool(near)


def test_variables_of_the_service_and_of_kubernetes_are_no_mistakes() -> None:
    names = [
        "PDP_DEVELOPMENT",
        "PDP_LOG_LEVEL",
        "PDP_SERVICE_HOST",
        "PDP_PORT_8181_TCP_ADDR",
        "PDP__TRINO__ADMIN_USERS",
        "PATH",
    ]
    assert list(unread_warnings(dict.fromkeys(names, "1"))) == []
