"""Sources of Nessie's configuration whose rank or name is not certain: none opens what Nessie keeps shut."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

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
