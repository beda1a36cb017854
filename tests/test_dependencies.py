"""Declared dependencies beside imports, their page and what `make run` installs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = {re.split(r"[=<>~ ]", line)[0] for line in PROJECT["dependencies"]}
EXTRAS = {"duckdb", "jinja2", "markupsafe", "py4j", "pyarrow", "pyspark", "watchfiles"}
"""Modules of extras that imports in functions need."""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower().partition("[")[0]


def imported_modules() -> set[str]:
    """Return the top-level names of all absolute imports in the product, without the standard library.

    Starter projects import what their users install.
    """
    names: set[str] = set()
    files = (file for file in (ROOT / "pdp").rglob("*.py") if "starters" not in file.parts)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"pdp"} - EXTRAS


def test_each_import_of_the_product_is_declared_and_each_declaration_imported() -> None:
    providers = packages_distributions()
    declared = {normalized(name) for name in DEPENDENCIES}
    imported = {module: {normalized(each) for each in providers.get(module, ())} for module in imported_modules()}
    assert {module for module, by in imported.items() if not by & declared} == set()
    assert declared - set().union(*imported.values()) == set()


def test_the_page_lists_the_dependencies() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert set(re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)) == {name.lower() for name in DEPENDENCIES}


@pytest.mark.process
def test_make_run_installs_no_tools_of_developers() -> None:
    printed = subprocess.run(
        ["make", "-n", "VENV=nowhere", "run"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "pip install" in printed
    assert "[dev]" not in printed
    tools = subprocess.run(
        ["make", "-n", "VENV=nowhere", "cases"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "[dev]" in tools
