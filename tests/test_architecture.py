"""The shape of the code: imports, the folders of tests, and generated files."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
from support.clients.stubs import generate, stub_file
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


PLANTED = {
    "layers": [
        ("model.question", "decision.service"),
        ("engines.engine", "decision.plan"),
        ("audit.records.record", "store.world"),
        ("decision.service", "app"),
        ("decision.plan", "dialects.trino.operations"),
        ("decision.plan", "views.plans"),
        ("offline.replay.replay", "lake.tables"),
        ("lake.tables", "cli.main"),
    ],
    "engines": [("engines.cel.engine", "engines.grants.engine")],
    "surfaces": [("surfaces.http.handlers", "engines.cel.engine"), ("surfaces.connect", "store.world")],
    "language": [("cel.checker", "model.question")],
    "lake": [
        ("app.service", "lake.tables"),
        ("cli.serve", "lake.tables"),
        ("offline.replay.replay", "lake.tables"),
        ("dialects.trino.operations", "lake.tables"),
    ],
    "spark": [("cli.main", "pyspark"), ("offline.replay.replay", "pyspark.sql")],
    "cedar": [("engines.cedar.requests", "cedarpy")],
    "faces-audit": [
        ("decision.service", "audit.files.folder"),
        ("management.service", "audit.queue.queue"),
        ("cli.audit.verify", "audit.verify.segment"),
        ("cli.audit.export", "audit.files.segments"),
        ("lake.ingest.rows", "audit.records.entries"),
    ],
    "faces-rewrite": [("row_access.requests", "rewrite.rewriter"), ("cli.rewrite", "rewrite.process.worker")],
    "faces-decision": [("surfaces.http.endpoints", "decision.evaluation"), ("views.loads", "decision.cache.redis")],
    "faces-store": [("management.service", "store.replica"), ("cli.grants.store", "store.sqlite")],
    "faces-cel": [("engines.grants.engine", "cel.values"), ("engines.cel.program", "cel.arithmetic")],
    "faces-engines": [
        ("offline.cases.runner", "engines.cel.residue"),
        ("management.service", "engines.grants.rules"),
        ("app.assembly", "engines.cedar.requests"),
        ("offline.coverage.rules", "engines.grants.many_objects"),
    ],
    "faces-surfaces": [
        ("surfaces.connect", "surfaces.grpc.checks"),
        ("app.service", "surfaces.http.connection"),
        ("dialects.trino.endpoints", "surfaces.http.endpoints"),
    ],
    "faces-trino": [("app.assembly", "dialects.trino.requests"), ("cli.serve", "dialects.trino.endpoints")],
    "faces-lake": [("cli.lake.replay", "lake.replay.tasks"), ("lake.report.html", "lake.ingest.lines")],
    "faces-offline": [
        ("cli.test.command", "offline.cases.reasons"),
        ("offline.replay.replay", "offline.coverage.rules"),
        ("cli.lint", "offline.row_policies.proofs"),
    ],
    "faces-app": [("app.service", "app.workers.worker_slot"), ("app.workers.worker", "app.sources.git")],
    "faces-cli": [("app.service", "cli.serve")],
    "inner": [("surfaces.http.endpoints", "management.forbidden_edits"), ("cli.explain", "views.chains")],
    "rooms-cli": [("cli.check", "cli.lake.report"), ("cli.serve", "cli.config.problems")],
}
"""Contract -> importers in `pdp` with a module that each of them must not import."""


def contracts() -> list[dict[str, Any]]:
    """Return the import contracts of pyproject.toml."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


@pytest.mark.process
def test_every_import_contract_bites(copy: Path) -> None:
    """Each contract names every import that is planted against it. All are planted at once: a run takes seconds."""
    for importer, module in {pair for pairs in PLANTED.values() for pair in pairs}:
        with (copy / "pdp" / f"{importer.replace('.', '/')}.py").open("a") as file:
            file.write(f"\nimport {full_name(module)}  # planted\n")
    done = lint_imports(copy)
    assert done.returncode == 1
    assert {contract["id"] for contract in contracts()} == PLANTED.keys()
    output = re.sub(r"\s+", " ", done.stdout.partition("Broken contracts")[2])
    for contract in contracts():
        _, found, rest = output.partition(f" {contract['name']} ---")
        section = re.split(r" -{3,} ", rest.lstrip("-"))[0]
        links = {f"pdp.{importer} -> {shown_name(module)} (l." for importer, module in PLANTED[contract["id"]]}
        assert found, contract["name"]
        assert {link for link in links if link not in section} == set(), contract["name"]


def full_name(module: str) -> str:
    return module if module.startswith(("pyspark", "cedarpy")) else f"pdp.{module}"


def shown_name(module: str) -> str:
    """Return the name that the output has: of another package, the name of the package."""
    full = full_name(module)
    return full if full.startswith("pdp.") else full.partition(".")[0]


@cache
def graph() -> grimp.ImportGraph:
    """Return all imports of the product, also those of functions."""
    return grimp.build_graph("pdp", cache_dir=None)


def is_below(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


FACES = [
    (contract, *rule.split(" -> "))
    for contract in contracts()
    if contract["type"] == "protected"
    for rule in contract.get("ignore_imports", ())
]


@pytest.mark.parametrize(("contract", "importers", "face"), FACES, ids=[face[2] for face in FACES])
def test_each_face_has_an_importer_outside_and_a_name_in_the_docstring(
    contract: dict[str, Any], importers: str, face: str
) -> None:
    inside = [
        *contract["allowed_importers"],
        *(name for name in contract["protected_modules"] if is_below(face, [name])),
    ]
    importing = graph().find_modules_that_directly_import(face)
    assert any(
        is_below(module, [importers.removesuffix(".**").removesuffix(".*")]) and not is_below(module, inside)
        for module in importing
    ), "nobody needs this face"
    _, package, name = face.split(".", 2)
    own, house = (
        ast.get_docstring(ast.parse((ROOT / path).read_text()))
        for path in (f"pdp/{package}/__init__.py", "pdp/__init__.py")
    )
    assert f"`{name}`" in own if own else f"`{package}.{name}`" in str(house)


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
    outputs = [f"--{kind}_out=." for kind in ("python", "pyi")]
    subprocess.run([*command, *outputs, "pdp/surfaces/wire/decision.proto"], cwd=tmp_path, check=True, timeout=60)
    generated = {path.name: path.read_text() for path in (tmp_path / "pdp" / "surfaces" / "wire").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "pdp" / "surfaces" / "wire").glob("decision*")}
    assert generated == committed


def test_stubs_are_made_once_by_whoever_comes_first(tmp_path: Path) -> None:
    made = stub_file(tmp_path)
    first = made.stat()
    with pytest.raises(FileNotFoundError):
        generate(tmp_path / "missing" / "folder")
    generate(made.parent)  # as a process that found nothing, and comes second
    assert stub_file(tmp_path).stat() == first
    assert list(tmp_path.iterdir()) == [made.parent]


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
    "surfaces/wire", "store/migrations", "store/migrations/versions", "engines", "engines/cel/lint",
    "cli/starters/custom", "dialects",
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
