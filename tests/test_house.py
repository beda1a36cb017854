"""The house: bounds on the files and folders of the product, the rows of the layers, and circles of files.

The bounds stand here alone. A bound that hinders is discussed and changed here, with the reason in the commit.
`docs/check_prose.py` measures what is in a file: functions, names and docstrings.
"""

from __future__ import annotations

import ast
import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from support.paths import ROOT

PRODUCT: Final = ROOT / "pdp"

MOST_FILES: Final = 445
"""Modules with content, without the dialects beside Trino's and their tables of operations. An empty `__init__.py` is none."""
MOST_OF_DIALECTS: Final = 12
"""Modules of those dialects: each is a protocol of others, and can go by itself."""
LONGEST_FILE: Final = 400
"""Lines of a file, but for those of LONG_FILES."""
LONG_FILES: Final[Mapping[str, str]] = {
    "surfaces/http/connection.py": "one connection is one state machine: its steps are read side by side",
}
"""File -> the reason why it is better whole."""
MEDIAN_FILE: Final = (120, 240)
"""Lines of the middle file: shorter means that one line of thought is cut into several files, longer that half of the files
have no room to grow. Small files of one subject were merged, so the middle is nearer to the longest file."""
MOST_ENTRIES: Final = 24
"""Files and folders of one folder."""
MOST_AT_THE_TOP: Final = 23
"""Files and folders of `pdp/`."""
MOST_LAYERS: Final = 14
"""Rows of the contract `layers` in pyproject.toml."""


@cache
def modules() -> dict[str, Path]:
    """Return every module of the product by name."""
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in PRODUCT.rglob("*.py")
    }


@cache
def lines() -> dict[str, int]:
    """Return the lines of every file with content."""
    counts = {file: len(file.read_text().splitlines()) for file in modules().values()}
    return {str(file.relative_to(PRODUCT)): count for file, count in counts.items() if count}


def entries(folder: Path) -> int:
    return sum(entry.name != "__pycache__" for entry in folder.iterdir())


def test_the_product_has_few_files() -> None:
    of_trino = ("dialects/trino/", "model/trino_operations.py")
    dialects = [
        file
        for file in lines()
        if file.startswith("dialects/") or (file.startswith("model/") and file.endswith("_operations.py"))
    ]
    dialects = [file for file in dialects if not file.startswith(of_trino)]
    assert len(lines()) - len(dialects) <= MOST_FILES
    assert len(dialects) <= MOST_OF_DIALECTS


def test_a_file_is_read_at_once_or_has_a_reason_not_to_be() -> None:
    assert {file for file, count in lines().items() if count > LONGEST_FILE} - LONG_FILES.keys() == set()
    assert MEDIAN_FILE[0] <= statistics.median(lines().values()) <= MEDIAN_FILE[1]


def test_no_reason_outlives_its_file() -> None:
    assert {file for file in LONG_FILES if lines().get(file, 0) <= LONGEST_FILE} == set()


def test_a_folder_is_seen_at_once() -> None:
    folders = {file.parent for file in modules().values()}
    folders |= {parent for folder in folders for parent in folder.parents if parent.is_relative_to(PRODUCT)}
    assert {str(folder): entries(folder) for folder in folders if entries(folder) > MOST_ENTRIES} == {}
    assert entries(PRODUCT) <= MOST_AT_THE_TOP


@cache
def layers() -> list[str]:
    """Return the rows of the layers, from above."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(contract["layers"] for contract in contracts if contract["id"] == "layers")


def test_the_layers_are_few_and_have_everything() -> None:
    assert len(layers()) <= MOST_LAYERS
    named = [name.strip() for row in layers() for name in row.replace(":", "|").split("|")]
    tops = {name for name in modules() if name.count(".") == 1 and not name.endswith("__main__")}
    tops |= {f"pdp.{folder.name}" for folder in PRODUCT.iterdir() if folder.is_dir() and folder.name != "__pycache__"}
    assert sorted(named) == sorted(tops)


# --- circles ------------------------------------------------------------------------------------------------------


def at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run when a module is imported: all but those in functions, and for type checkers."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from at_import(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield from at_import(ast.iter_child_nodes(node))


def imported(tree: ast.Module, known: Iterable[str]) -> set[str]:
    """Return the known modules that a module names in imports at run time."""
    names: set[str] = set()
    for node in at_import(tree.body):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, "the product imports by full names"
            found = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in known else str(node.module) for name in found}
    return names & {*known}


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the sets of nodes that reach one another, by Kosaraju's two walks."""
    finished: list[str] = []
    _walk(graph, graph, set(), finished)
    back: dict[str, list[str]] = {node: [] for node in graph}
    for node, others in graph.items():
        for other in others:
            back[other].append(node)
    seen: set[str] = set()
    found: list[set[str]] = []
    for node in reversed(finished):
        reached: list[str] = []
        _walk(back, [node], seen, reached)
        found.append({*reached})
    return [nodes for nodes in found if len(nodes) > 1]


def _walk(graph: Mapping[str, Iterable[str]], starts: Iterable[str], seen: set[str], finished: list[str]) -> None:
    """Visit all that the starts reach and nobody has seen; add each node once all behind it are added."""
    for start in starts:
        stack = [] if start in seen else [(start, iter(graph[start]))]
        seen.add(start)
        while stack:
            following = next((other for other in stack[-1][1] if other not in seen), None)
            if following is None:
                finished.append(stack.pop()[0])
            else:
                seen.add(following)
                stack.append((following, iter(graph[following])))


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {name: imported(ast.parse(file.read_text()), modules()) - {name} for name, file in modules().items()}
    assert circles(graph) == []


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a", "c": "a"}, [{"a", "b"}]),
        ({"a": "bd", "b": "c", "c": "a", "d": "e", "e": "d"}, [{"a", "b", "c"}, {"d", "e"}]),
    ],
)
def test_circles_are_found(graph: dict[str, str], found: list[set[str]]) -> None:
    assert sorted(circles(graph), key=min) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import pdp.a", {"pdp.a"}),
        ("from pdp import a\nfrom pdp.b import Name", {"pdp.a", "pdp.b"}),
        ("try:\n    import pdp.a\nexcept ImportError:\n    import pdp.b", {"pdp.a", "pdp.b"}),
        ("class Name:\n    import pdp.a", {"pdp.a"}),
        ("def f():\n    import pdp.a", set()),
        ("if TYPE_CHECKING:\n    import pdp.a\nelse:\n    import pdp.b", {"pdp.b"}),
        ("match 1:\n    case 1:\n        import pdp.a", {"pdp.a"}),
        ("import os", set()),
    ],
)
def test_imports_at_run_time_are_found(text: str, found: set[str]) -> None:
    assert imported(ast.parse(text), ["pdp.a", "pdp.b"]) == found
