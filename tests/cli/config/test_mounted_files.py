"""A mount of Kubernetes shows each file twice: by its name, and in a hidden folder. Each command reads it once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from support.service.command_line import COMPOSITION

from pdp.cli.lint import lint
from pdp.config.load import load_settings
from pdp.config.policy_files import policy_files
from pdp.config.regular_files import find_files
from pdp.facts.snapshot import Facts
from pdp.offline.cases.cases import find_cases

RULE = "rules: {open: \"op == 'VIEW_REFERENCE' && role == 'alice'\"}\n"
CASES = 'cases: [{note: one, checks: [{principal: "user:oidc~a", action: read_data, resource: "table:lake/s/t@main"}]}]'


def mount(folder: Path, files: dict[str, str], *, left: Sequence[str] = ()) -> Path:
    """Make a folder as a kubelet does. `left`: files of the version before, whose folder still stands."""
    for version, names in (("..2026_1", left), ("..2026_2", files)):
        for name in names:
            file = folder / version / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(files.get(name, RULE.replace("open", "former")))
    (folder / "..data").symlink_to("..2026_2")
    for first in {Path(name).parts[0] for name in files}:
        (folder / first).symlink_to(f"..data/{first}")
    return folder


MOUNTS = [
    ({"r.yaml": RULE}, ()),
    ({"r.yaml": RULE}, ("r.yaml", "gone.yaml")),
    ({"sub/r.yaml": RULE}, ()),
    ({"sub/r.yaml": RULE, "b.yaml": RULE.replace("open", "b")}, ("sub/gone.yaml",)),
    ({"sub/deep/r.yaml": RULE, "sub/s.yaml": RULE.replace("open", "s")}, ()),
]


@pytest.mark.parametrize(("files", "left"), MOUNTS)
def test_a_walk_finds_each_mounted_file_once_by_its_name(
    tmp_path: Path, files: dict[str, str], left: Sequence[str]
) -> None:
    folder = mount(tmp_path, files, left=left)
    found = [path for path in find_files(folder) if path.is_file()]
    assert found == find_files(folder, "**/*.yaml") == sorted(folder / name for name in files)


@pytest.mark.parametrize(("files", "left"), MOUNTS)
def test_lint_of_a_mounted_folder_finds_no_second_rule(
    tmp_path: Path, files: dict[str, str], left: Sequence[str]
) -> None:
    folder = mount(tmp_path, files, left=left)
    for paths in ([str(folder)], [str(folder), str(folder)], [str(folder), str(folder / "..data")]):
        ended = CliRunner().invoke(lint, ["--format", "json", *paths])
        found = json.loads(ended.stdout)
        assert not [each for each in found if each["code"] == "duplicate-id" or "/..2026" in each["file"]]
        assert ended.exit_code == 0


@pytest.mark.parametrize("pattern", ["*", "*.yaml", "**/*.yaml", "**/*", "..data/*.yaml", "r.yaml", "[r]*", "*.*"])
@pytest.mark.parametrize("absolute", [True, False])
def test_the_service_reads_each_mounted_rule_once(tmp_path: Path, pattern: str, *, absolute: bool) -> None:
    folder = mount(tmp_path / "rules", {"r.yaml": RULE}, left=("r.yaml", "gone.yaml"))
    (tmp_path / "pdp.yaml").write_text(
        yaml.safe_dump(
            {
                "warehouses": {"lake": {}},
                "policies": {"rules": [f"{folder if absolute else 'rules'}/{pattern}"]},
                "authorities": {"default": {"engines": ["cel"]}},
            }
        )
    )
    settings = load_settings(tmp_path / "pdp.yaml", (), {})
    name = "..data/r.yaml" if ".." in pattern else "r.yaml"
    assert policy_files(settings, "rules").paths == (folder / name,)
    assert COMPOSITION.build_pdp(settings, Facts.empty(), COMPOSITION.read_rules(settings)).bundle


def test_a_glob_of_one_level_finds_mounted_folders_and_no_hidden_ones(tmp_path: Path) -> None:
    folder = mount(tmp_path, {"r.yaml": RULE, "sub/s.yaml": RULE})
    assert find_files(folder, "*/*.yaml") == [folder / "sub/s.yaml"]
    assert find_files(folder, "..data/*.yaml") == [folder / "..data/r.yaml"]


def test_a_link_to_another_file_and_a_broken_one(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RULE)
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    (tmp_path / "lost.yaml").symlink_to("nowhere")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "..plain.yaml").write_text(RULE)
    names = [path.name for path in find_files(tmp_path, "*.yaml")]
    assert names == ["..plain.yaml", "a.yaml", "loop.yaml", "lost.yaml"]


def test_tests_of_a_mounted_folder_run_once(tmp_path: Path) -> None:
    folder = mount(tmp_path, {"cases.yaml": CASES})
    assert [case.file for case in find_cases([folder])] == [folder / "cases.yaml"]
