"""`pdp init`: every starter project loads, lints and passes its own tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import run_pdp

from pdp.cli.init import MODELS, starter_files

pytestmark = pytest.mark.process


@pytest.mark.parametrize("model", MODELS)
def test_a_starter_project_passes_its_tests(tmp_path: Path, model: str) -> None:
    made = run_pdp("init", "--model", model, "project", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("next: cd project && pdp test -c pdp.yaml tests\n")
    project = tmp_path / "project"
    for command in (("test", "-c", "pdp.yaml", "--strict", "tests"), ("config", "check"), ("lint",)):
        done = run_pdp(*command, cwd=project)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert all("#" in (project / file).read_text() for file in starter_files(model) if file.suffix == ".yaml")


def test_existing_files_stay(tmp_path: Path) -> None:
    (tmp_path / "pdp.yaml").write_text("mine")
    refused = run_pdp("init", "--model", "cedar", cwd=tmp_path)
    assert refused.returncode == 2
    assert "`pdp.yaml` exists already: nothing was written" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["pdp.yaml"]
    assert (tmp_path / "pdp.yaml").read_text() == "mine"


def test_an_unknown_model_names_the_known_ones(tmp_path: Path) -> None:
    refused = run_pdp("init", "--model", "cedr", cwd=tmp_path)
    assert refused.returncode == 2
    assert "cedar" in refused.stderr
