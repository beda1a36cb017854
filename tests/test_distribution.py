"""Name of the distribution: no text says to install the `pdp` of PyPI, which is the work of others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.paths import RECORDED, ROOT

from pdp import __version__

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS: Final = "lakehouse-pdp"
EXTRAS: Final = PROJECT["optional-dependencies"]
FOLDERS: Final = (".ci", "bench", "deploy", "docs", "pdp", "protos", "rules", "tests")
OPTIONAL: Final = {re.split(r"[=<>~ \[]", package)[0] for extra in EXTRAS.keys() - {"dev"} for package in EXTRAS[extra]}
"""Packages of extras. Each has the name of its module."""

_NAME: Final = r"pdp(?<![\w./~:-]pdp)[\"'`]*"
_FOREIGN: Final = (
    rf"{_NAME}\\?\s?\[[a-z{{%$][^\]\n]*\](?!\s*=[^=])",  # with extras, also of a template
    rf"{_NAME}\s*(?:===?|~=|!=|[<>]=?)\s*\d",  # with a version
    rf"{_NAME}\s+@\s+\w+[+:]",  # with an address
    r"pypi\.org/(?:project|simple|pypi)/pdp\b",
    r"\b(?:version|distribution|metadata|requires|from_name)\(\s*[\"']pdp[\"']\s*\)",  # importlib.metadata
    r"dependencies\s*=\s*\[[^\]]*[\"']pdp[\"']",
)
"""Ways to name the distribution `pdp`, beside a command that installs it."""
_INSTALLER: Final = re.compile(
    r"\b(?:pip3?(?:\.\d+)?|pipx|uv|uvx|poetry|pdm|conda|mamba)\s+(?:pip\s+|tool\s+)?(?:install|add|download|wheel|run)\b"
    r"\s*((?:[^\n`;&|#\\]|\\\n)*)"
)
"""Command that installs, with its arguments: they end with the line, unless it goes on."""


def foreign_names(text: str) -> list[str]:
    """Return what in a text names the other distribution."""
    installed = [found[0] for found in _INSTALLER.finditer(text) if "pdp" in map(_argument, found[1].split())]
    return installed + [found[0] for pattern in _FOREIGN for found in re.finditer(pattern, text)]


def _argument(word: str) -> str:
    return word.strip("\"'().,:")


def texts() -> Iterator[tuple[str, str]]:
    """Yield all texts of the repository with their paths, but this test and recorded data."""
    files = [file for file in ROOT.iterdir() if file.is_file() and file.name != ".git"]
    for folder in FOLDERS:
        files += [file for file in (ROOT / folder).rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    for file in files:
        if (
            RECORDED not in file.parents
            and file != Path(__file__)
            and file.suffix not in (".gz", ".png", ".pyc", ".zst")
        ):
            yield str(file.relative_to(ROOT)), file.read_text(errors="replace")


def test_no_text_names_the_distribution_of_others() -> None:
    found = {path: names for path, text in texts() if (names := foreign_names(text))}
    assert found == {}


def test_all_folders_are_read() -> None:
    folders = {file.name for file in ROOT.iterdir() if file.is_dir()}
    hidden = {name for name in folders if name.startswith(".")} - {".ci", ".github"}
    assert folders - hidden - {"build", "dist", "spark-warehouse", "__pycache__"} <= set(FOLDERS)


@pytest.mark.parametrize(
    "text",
    [
        "pip install pdp",
        "pip install 'pdp'",
        "pip install --quiet pdp && pdp serve",
        "pip install -c constraints.txt \\\n  pdp",
        "python -m pip install -U pdp.",
        "run `pip install pdp`, then",
        "pipx install pdp",
        "uv tool install pdp",
        "uv pip install pdp",
        "uv add pdp",
        "pip download duckdb pdp",
        "pip install 'pdp[spark]'",
        "install `pdp[watch]`",
        "match=r'pip install pdp\\[cedar\\]'",
        "extra pdp[cedar, spark]",
        'f"install `pdp[{extra}]`"',
        "'pip install pdp[%s]' % extra",
        "pdp==0.1.0",
        "pdp >= 0.1",
        '"pdp~=1.0"',
        "pdp @ git+https://github.com/acme/pdp",
        "https://pypi.org/project/pdp/",
        'importlib.metadata.version("pdp")',
        "distribution('pdp')",
        'dependencies = ["click", "pdp"]',
    ],
)
def test_each_way_to_name_it_is_found(text: str) -> None:
    assert foreign_names(text)
    ours = re.sub(r"(?<![\w/])pdp(?! serve)", OURS, text)
    assert foreign_names(ours.replace("project/pdp", f"project/{OURS}")) == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install '.[spark]'",
        "pip install -e . && pdp test -c pdp.yaml tests",
        "docker build -f deploy/Dockerfile -t pdp .",
        "image: pdp:0.1.0",
        "pip uninstall pdp",
        "from importlib.resources import files; files('pdp')",
        "pdp.config",
        "$ pdp lint rules/old.properties",
    ],
)
def test_other_uses_of_the_word_are_none(text: str) -> None:
    assert foreign_names(text) == []


def test_the_distribution_its_command_and_its_package() -> None:
    assert PROJECT["name"] == OURS
    assert PROJECT["scripts"] == {"pdp": "pdp.app:main"}


def test_every_named_extra_is_one_and_every_extra_of_users_is_named() -> None:
    named = {extra for _, text in texts() for extra in re.findall(rf"{OURS}\\?\[(\w+)", text)}
    assert named == EXTRAS.keys() - {"dev"}


@pytest.mark.process
def test_the_version_is_that_of_the_code_beside_another_distribution(tmp_path: Path) -> None:
    info = tmp_path / "pdp-9.9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pdp\nVersion: 9.9.9\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['pdp', '--version']\n"
    script += "from importlib.metadata import version; print(version('p' + 'dp'))\nfrom pdp.app import main; main()"
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == f"9.9.9\npdp {__version__}\n"


# --- the image ----------------------------------------------------------------------------------------------------


def optional_modules(file: Path) -> set[str]:
    """Return the modules of extras that a file of the product loads, by a statement or by name."""
    text = file.read_text()
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)) if any(name in text for name in OPTIONAL) else ():
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module.partition(".")[0])
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]):
                found.add(module.partition(".")[0])
    return found & OPTIONAL


def test_the_image_installs_the_extras_that_a_service_loads() -> None:
    """Jobs on Spark and exports to Parquet read files of the audit, on a machine of their own."""
    product = ROOT / "pdp"
    elsewhere = (product / "lake", product / "cli")
    files = [file for file in product.rglob("*.py") if not any(file.is_relative_to(folder) for folder in elsewhere)]
    loaded = set().union(*map(optional_modules, files))
    assert {"cedarpy", "watchfiles"} <= loaded
    [installed] = re.findall(r"pip install .* '\.\[([a-z,]+)\]'", (ROOT / "deploy" / "Dockerfile").read_text())
    brought = {package for extra in installed.split(",") for package in EXTRAS[extra]}
    assert loaded == brought
