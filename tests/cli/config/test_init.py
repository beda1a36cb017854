"""`pdp init`: every starter project loads, lints and passes its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.service.commands import run_pdp

from pdp.cli.config.init import MODELS, starter_files

pytestmark = pytest.mark.process


@pytest.mark.parametrize("model", sorted({*MODELS} - {"custom"}))
def test_a_starter_project_passes_its_tests(tmp_path: Path, model: str) -> None:
    made = run_pdp("init", "--model", model, "project", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("next: cd project && pdp test -c pdp.yaml tests\n")
    project = tmp_path / "project"
    for command in (("test", "-c", "pdp.yaml", "--strict", "tests"), ("config", "check"), ("lint",)):
        done = run_pdp(*command, cwd=project)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    assert all("#" in (project / file).read_text() for file in starter_files(model) if file.suffix == ".yaml")


def test_the_engine_of_a_starter_project_passes_its_tests(tmp_path: Path) -> None:
    """The package is installed into a folder beside pdp. The contract of engines runs by pytest."""
    made = run_pdp("init", "--model", "custom", "project", cwd=tmp_path)
    assert made.stdout.endswith("next: cd project && pip install -e . && pdp test -c pdp.yaml tests\n")
    project, site = tmp_path / "project", tmp_path / "site"
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    install = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(project)]
    subprocess.run(install, check=True, timeout=300)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    for command in (("test", "-c", "pdp.yaml", "--strict", "tests"), ("config", "check"), ("lint",)):
        done = run_pdp(*command, cwd=project, env=env, fresh=True, timeout=300)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    contract = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_team_tables.py"]
    tested = subprocess.run(contract, cwd=project, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert tested.returncode == 0, tested.stdout
    assert "7 passed" in tested.stdout


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
