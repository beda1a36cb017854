"""The shape of the code: imports, the folders of tests, and generated files."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT, TESTS

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


@pytest.mark.process
def test_the_import_contract_holds(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("pdp/model/question.py", "import pdp.decision.service"),
        ("pdp/engines/cel/engine.py", "import pdp.engines.grants.engine"),
        ("pdp/surfaces/http/handlers.py", "import pdp.engines.cel.engine"),
        ("pdp/engines/engine.py", "import pdp.decision.plan"),
        ("pdp/audit/records/record.py", "import pdp.store.world"),
        ("pdp/decision/service.py", "import pdp.app"),
        ("pdp/decision/plan.py", "import pdp.dialects.trino.operations"),
        ("pdp/decision/plan.py", "import pdp.views.plans"),
        ("pdp/cel/checker.py", "import pdp.model.question"),
        ("pdp/dialects/trino/operations.py", "import pdp.lake.tables"),
        ("pdp/app/service.py", "import pdp.lake.tables"),
        ("pdp/offline/replay/replay.py", "import pdp.lake.tables"),
        ("pdp/cli/main.py", "import pyspark"),
        ("pdp/offline/replay/replay.py", "from pyspark.sql import SparkSession"),
        ("pdp/lake/tables.py", "import pdp.cli.main"),
    ],
)
def test_the_import_contract_bites(copy: Path, module: str, planted: str) -> None:
    with (copy / module).open("a") as file:
        file.write(f"\n{planted}  # planted\n")
    assert lint_imports(copy).returncode == 1


def late_imports(tree: ast.Module, package: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield the imports of a package, each with whether it is made at run time, when a function is called."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if any(f"{name}.".startswith(f"{package}.") for name in names):
            yield node, node.col_offset > 0


@pytest.mark.parametrize(
    ("text", "found"),
    [("import pyspark.sql", [False]), ("def f():\n    from pyspark import sql", [True]), ("import pysparkling", [])],
)
def test_late_imports_are_told_from_others(text: str, found: list[bool]) -> None:
    assert [late for _, late in late_imports(ast.parse(text), "pyspark")] == found


def test_commands_import_the_pipeline_when_they_run() -> None:
    """No other command pays for the pipeline, and none needs Spark for its help."""
    for file in (ROOT / "pdp" / "cli").rglob("*.py"):
        found = list(late_imports(ast.parse(file.read_text()), "pdp.lake"))
        assert all(late for _, late in found), file
        assert not found or file.parent.name == "lake", file


@pytest.mark.process
def test_generated_messages_are_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "pdp" / "surfaces" / "wire").mkdir(parents=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-Ipdp/surfaces/wire={ROOT / 'protos/pdp/v1'}"]
    outputs = [f"--{kind}_out=." for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([*command, *outputs, "pdp/surfaces/wire/decision.proto"], cwd=tmp_path, check=True, timeout=60)
    generated = {path.name: path.read_text() for path in (tmp_path / "pdp" / "surfaces" / "wire").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "pdp" / "surfaces" / "wire").glob("decision*")}
    assert generated == committed


@pytest.fixture(scope="module")
def generated_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all generated pages."""
    folder = tmp_path_factory.mktemp("pages")
    subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", folder], check=True, timeout=60, env={"PYTHONPATH": str(ROOT)}
    )
    return folder


@pytest.mark.process
@pytest.mark.parametrize(
    "page", ["audit-schema.json", "configuration.md", "pipeline-tables.md", "trino.md", "vocabulary.md"]
)
def test_generated_pages_are_up_to_date(generated_pages: Path, page: str) -> None:
    assert (generated_pages / page).read_text() == (ROOT / "docs" / page).read_text()


# --- tests --------------------------------------------------------------------------------------------------------

PARTS = {"contracts", "real_trino"}
"""Folders of test modules about several packages."""
WITHOUT_TESTS = {
    "surfaces/wire", "store/migrations", "store/migrations/versions", "engines", "engines/cel/lint", "cli/starters/custom",
    "dialects",
}  # fmt: skip
"""Packages that are generated, or that the tests of another package run."""


def sources_with(words: set[str]) -> Iterator[tuple[Path, list[ast.AST]]]:
    """Yield the modules of tests and of bench that contain one of the words, with the nodes of its syntax tree."""
    for file in (file for folder in (TESTS, ROOT / "bench") for file in folder.rglob("*.py")):
        text = file.read_text()
        if words & {*re.findall(r"\w+", text)}:
            yield file, list(ast.walk(ast.parse(text)))


def imported(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names of imported modules, and of what is imported from them."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def test_no_module_imports_a_test_module() -> None:
    """What test modules share is in `tests/support` and `tests/spec`."""
    modules = {file.stem for file in TESTS.rglob("test_*.py")} | {"conftest"}
    wrong = [
        f"{file}: {name}"
        for file, nodes in sources_with(modules)
        for name in imported(nodes)
        if modules & {*name.split(".")}
    ]
    assert wrong == []


def test_folders_of_tests_mirror_the_product() -> None:
    tested = {str(file.parent.relative_to(TESTS)) for file in TESTS.rglob("test_*.py")} - PARTS - {"."}
    packages = {str(file.parent.relative_to(ROOT / "pdp")) for file in (ROOT / "pdp").rglob("*.py")} - {"."}
    modules = {str(file.relative_to(ROOT / "pdp").with_suffix("")) for file in (ROOT / "pdp").rglob("*.py")}
    assert tested - packages - modules == set(), "no package or module of this name"
    assert packages - tested - WITHOUT_TESTS == set(), "no tests"


def test_no_test_forks_its_process() -> None:
    """A fork of a process that runs gRPC's threads may abort; these arguments make `subprocess` fork, not vfork."""
    forking = {"preexec_fn", "user", "group", "extra_groups"}
    found = sources_with({"subprocess"})
    calls = [(file, node) for file, nodes in found for node in nodes if isinstance(node, ast.Call)]
    wrong = [
        f"{file}:{call.lineno}"
        for file, call in calls
        if ast.unparse(call.func) in {"subprocess.run", "subprocess.Popen"}
        and forking & {keyword.arg for keyword in call.keywords}
    ]
    assert wrong == []


def test_a_process_needs_a_marker_and_a_fork_is_refused() -> None:
    with pytest.raises(RuntimeError, match="mark the test"):
        subprocess.run(["true"], check=True)
    with pytest.raises(RuntimeError, match="no test forks"):
        os.fork()
