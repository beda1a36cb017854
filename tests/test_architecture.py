"""The shape of the code: imports go down only, generated files are what their sources say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

BIN = Path(sys.executable).parent


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PYTHONPATH": str(folder)},
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "pdp", tmp_path / "pdp", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_contract_holds(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("pdp/model/checks.py", "import pdp.decision.service"),
        ("pdp/engines/cel/engine.py", "import pdp.engines.grants.engine"),
        ("pdp/surfaces/http.py", "import pdp.engines.cel.engine"),
        ("pdp/engines/engine.py", "import pdp.decision.plan"),
        ("pdp/audit/record.py", "import pdp.store.world"),
        ("pdp/decision/service.py", "import pdp.app"),
    ],
)
def test_the_import_contract_bites(copy: Path, module: str, planted: str) -> None:
    with (copy / module).open("a") as file:
        file.write(f"\n{planted}  # planted\n")
    assert lint_imports(copy).returncode == 1


def test_generated_messages_are_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "pdp" / "wire").mkdir(parents=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-Ipdp/wire={ROOT / 'protos/pdp/v1'}"]
    outputs = [f"--{kind}_out=." for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([*command, *outputs, "pdp/wire/decision.proto"], cwd=tmp_path, check=True, timeout=60)
    generated = {path.name: path.read_text() for path in (tmp_path / "pdp" / "wire").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "pdp" / "wire").glob("decision*")}
    assert generated == committed


@pytest.mark.parametrize("page", ["configuration.md", "trino.md", "vocabulary.md"])
def test_generated_pages_are_up_to_date(tmp_path: Path, page: str) -> None:
    subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", tmp_path], check=True, timeout=60, env={"PYTHONPATH": str(ROOT)}
    )
    assert (tmp_path / page).read_text() == (ROOT / "docs" / page).read_text()
