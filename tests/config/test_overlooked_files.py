"""Files beside those of a pattern that read like policies: the start and `pdp config check` name each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.service.commands import run_pdp
from support.service.serving import settings_of

from pdp.app.assembly import build_bundle, read_rules
from pdp.config.policy_files import FILE_KEYS, FileKey, overlooked_files

RULE = "nessie.server.authorization.rules.{}=true\n"
RULE_KEYS: Sequence[FileKey] = ("rules", "forbid")


def warnings(folder: Path, key: FileKey, *patterns: Any, **others: Any) -> str:
    section, _, name = key.rpartition(".")
    policies = {"rules": [], **others}
    policies |= {section: {name: list(patterns)}} if section else {key: list(patterns)}
    settings = settings_of({"policies": policies, "store": {"seed": "world.yaml"}}, folder)
    return "\n".join(message for _, message in overlooked_files(settings))


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        is_rule = name.lower().endswith("properties")
        (folder / name).write_text(RULE.format("a") if is_rule else "rules: {a: 'true'}\n")


ENDINGS = ("yaml", "yml", "properties")
SPELLINGS = [spelt for ending in ENDINGS for spelt in (ending, ending.upper(), ending.title())]


@pytest.mark.parametrize("key", RULE_KEYS)
@pytest.mark.parametrize("read", ENDINGS)
def test_a_file_that_differs_from_a_glob_in_the_ending_alone_is_named(tmp_path: Path, key: FileKey, read: str) -> None:
    forms = ((f"f*.{read}", "f2"), (f"d/[fg]?.{read}", "d/g2"), (f"**/f*.{read}", "d/e/f2"), (f"*/f.{read}", "d/f"))
    for number, ((pattern, stem), other) in enumerate(itertools.product(forms, SPELLINGS)):
        folder = tmp_path / str(number)
        touch(folder, f"{stem}.{read}", f"{stem}.{other}", f"{stem}.txt", f"x.{other}", f"{stem}.{read}.bak")
        said = warnings(folder, key, pattern)
        if other == read:
            assert said == ""
            continue
        assert f"`policies.{key}`" in said
        assert f"`{pattern}`" in said
        assert f"/{stem}.{other}`" in said
        assert not any(name in said for name in (f"/{stem}.{read}`", ".txt", "/x.", ".bak"))
        assert warnings(folder, key, pattern, f"{stem}.{other}") == ""


@pytest.mark.parametrize("key", [key for key in FILE_KEYS if key not in RULE_KEYS])
def test_so_is_a_file_of_other_policies(tmp_path: Path, key: FileKey) -> None:
    read, other = {"cedar.policies": ("cedar", "CEDAR"), "cedar.entities": ("json", "JSON")}.get(key, ("yaml", "yml"))
    touch(tmp_path, f"a.{read}", f"b.{other}")
    assert f"/b.{other}`" in warnings(tmp_path, key, f"*.{read}")


def test_files_that_the_configuration_names_elsewhere_are_not_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.properties", "world.yaml", "f.yaml", "r.yml")
    assert warnings(tmp_path, "rules", "*.properties", forbid=["f.yaml"], row_access=["r.yml"]) == ""
    assert warnings(tmp_path, "rules", "a.properties") == ""  # a name is meant to the letter
    assert "r.yml" in warnings(tmp_path, "rules", "*.properties", forbid=["f.yaml"])


def test_yaml_of_other_things_beside_properties_is_not_named(tmp_path: Path) -> None:
    touch(tmp_path, "rules/a.properties")
    for text in ("", "policies:\n  rules: ['*.properties']\n", "objects: [warehouse:lake]\n", "services: {}\n"):
        (tmp_path / "rules/b.yaml").write_text(text)
        for others in ({"rules": ["rules/*.properties"]}, {}):
            settings = settings_of({"policies": others}, tmp_path)
            assert list(overlooked_files(settings)) == []
    (tmp_path / "rules/b.yaml").write_text("nessie: {server: {authorization: {rules: {a: 'true'}}}}\n")
    assert "/b.yaml`" in "".join(message for _, message in overlooked_files(settings))


def test_many_files_are_counted(tmp_path: Path) -> None:
    touch(tmp_path, "a.yaml", *(f"{number}.yml" for number in range(10, 22)))
    assert "/17.yml` and 4 more" in warnings(tmp_path, "rules", "*.yaml")


@pytest.mark.parametrize("key", RULE_KEYS)
@pytest.mark.parametrize("main", ["application", "microprofile-config"])
@pytest.mark.parametrize("profiles", [["prod"], ["a", "b-c"]])
def test_the_file_of_a_profile_beside_is_named(
    tmp_path: Path, key: FileKey, main: str, profiles: Sequence[str]
) -> None:
    every = [f"{main}{part}.{ending}" for part in ("", *(f"-{one}" for one in profiles)) for ending in ENDINGS]
    touch(tmp_path, *(f"conf/{name}" for name in every), f"conf/{main}-off.yaml", f"{main}.yaml", "conf/other.yaml")
    touch(tmp_path, f"conf/x{main}.yaml", f"conf/{main}.txt")
    for read in every:
        said = warnings(tmp_path, key, f"conf/{read}", profiles=list(profiles))
        named = {name for name in every if f"/conf/{name}`" in said}
        assert named == set(every) - {read}
        assert not any(name in said for name in ("-off", "other", f"/x{main}", ".txt"))
    assert warnings(tmp_path, key, *(f"conf/{name}" for name in every), profiles=list(profiles)) == ""


@pytest.mark.process
def test_the_start_and_the_check_tell_of_them(tmp_path: Path) -> None:
    (tmp_path / "application.properties").write_text(RULE.format("a"))
    (tmp_path / "application-prod.properties").write_text(RULE.format("b"))
    (tmp_path / "f1.yaml").write_text("rules: {f: 'true'}\n")
    (tmp_path / "f2.yml").write_text("rules: {g: 'true'}\n")
    policies = {"rules": ["application.properties"], "forbid": ["f*.yaml"]}
    settings = settings_of({"policies": policies}, tmp_path)
    bundle = build_bundle(settings, *read_rules(settings))
    (tmp_path / "pdp.yaml").write_text(f"policies: {policies}\n")
    ended = run_pdp("config", "check", cwd=tmp_path)
    for said in ("\n".join(bundle.warnings), ended.stdout):
        assert "/application-prod.properties`" in said
        assert "/f2.yml`" in said
    assert ended.returncode == 0
    assert "pdp.yaml:1:60: warning: `policies.forbid`" in ended.stdout
