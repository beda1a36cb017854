"""Measure the functions, names and docstrings of the product; exit with 1 where one is over its limit.

Run by `make lint`. Prints every figure with its limit, and the places to mend where the limit is exceeded.
`tests/test_house.py` has the limits of files and folders.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

PRODUCT: Final = Path(__file__).parent.parent / "pdp"
OPENINGS: Final = frozenset({"What", "Who", "Whom", "Whose", "Whether", "Where", "That", "Which"})
"""First words that no docstring may have."""
NO_VERBS: Final = frozenset(
    """The A An All Every Each Any Some No One Those These This Its It As For With To From If How Why When In Of On At
    Is Are Only Also Same Everything Nothing""".split()  # noqa: SIM905
)
"""First words that no function's docstring may have: it begins with a verb."""
PRONOUNS: Final = frozenset(
    """what who whom whose whoever whatever it its one ones some somebody something that which they them
    those""".split()  # noqa: SIM905
)
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Figure(NamedTuple):
    """One measured value, its limit, and the places that exceed it."""

    name: str
    value: float
    limit: float
    places: Sequence[str] = ()
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Tell whether the value is within the limit."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


class Module(NamedTuple):
    """One source file and its syntax tree."""

    name: str
    tree: ast.Module

    def definitions(self) -> Iterator[tuple[Definition, bool]]:
        """Yield every function and class, and whether its name is public."""
        stack: list[tuple[ast.AST, bool]] = [(self.tree, True)]
        while stack:
            node, public = stack.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, Definition):
                    shown = public and not child.name.startswith("_")
                    yield child, shown
                    stack.append((child, shown and isinstance(child, ast.ClassDef)))
                else:
                    stack.append((child, public))

    def docstrings(self) -> Iterator[tuple[str, str, bool]]:
        """Yield the place, the text and whether it is a function's, for every docstring."""
        if text := ast.get_docstring(self.tree):
            yield self.name, text, False
        for node, _ in self.definitions():
            if text := ast.get_docstring(node):
                yield f"{self.name}:{node.lineno} {node.name}", text, not isinstance(node, ast.ClassDef)


def main() -> int:
    """Print the figures; return the exit code."""
    figures = list(measure([_parse(path) for path in sorted(PRODUCT.rglob("*.py")) if "wire" not in path.parts]))
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        print(f"{'ok  ' if figure.holds else 'FAIL'} {figure.name}: {figure.value:.4g} ({sign} {figure.limit:g})")
        for place in figure.places[:40] if not figure.holds else ():
            print(f"       {place}")
    return 0 if all(figure.holds for figure in figures) else 1


def measure(modules: Sequence[Module]) -> Iterator[Figure]:
    """Yield every figure of the modules."""
    yield from _sizes(modules)
    yield from _names(modules)
    yield from _docstrings(modules)


def _parse(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(str(path.relative_to(PRODUCT.parent)), ast.parse(text))


def _sizes(modules: Sequence[Module]) -> Iterator[Figure]:
    functions = sorted(
        (
            (node.end_lineno or node.lineno) - node.lineno + 1,
            f"{module.name}:{node.lineno} {node.name}",
        )
        for module in modules
        for node, _ in module.definitions()
        if not isinstance(node, ast.ClassDef)
    )
    lengths = [length for length, _ in functions]
    yield Figure("lines of a function, median", statistics.median(lengths), 8)
    yield Figure("lines of a function, 95%", lengths[int(len(lengths) * 0.95)], 25)
    yield Figure("lines of a function, most", lengths[-1], 50, [place for _, place in functions[-5:]])


def _names(modules: Sequence[Module]) -> Iterator[Figure]:
    classes = [
        (node.name, module.name)
        for module in modules
        for node, public in module.definitions()
        if public and isinstance(node, ast.ClassDef)
    ]
    counts = Counter(name for name, _ in classes)
    twice = sorted(f"{name} in {module}" for name, module in classes if counts[name] > 1)
    yield Figure("public class names that occur twice", len(twice), 0, twice)


def _docstrings(modules: Sequence[Module]) -> Iterator[Figure]:
    found = [docstring for module in modules for docstring in module.docstrings()]
    opened = [f"{place}: {text.split()[0]}" for place, text, _ in found if _first(text) in OPENINGS]
    yield Figure("docstrings that open with What, Who, Whether, ...", len(opened), 0, opened)
    verbless = [f"{place}: {text.split()[0]}" for place, text, of in found if of and _first(text) in NO_VERBS]
    yield Figure("docstrings of functions that open without a verb", len(verbless), 0, verbless)
    words = [word.lower() for _, text, _ in found for word in re.findall(r"[A-Za-z']+", text)]
    pronouns = sum(word in PRONOUNS for word in words)
    worst = sorted(((_pronouns(text), place) for place, text, _ in found), reverse=True)
    yield Figure("pronouns in 1,000 words of docstrings", 1000 * pronouns / len(words), 45, [p for _, p in worst])
    public = [
        (f"{module.name}:{node.lineno} {node.name}", ast.get_docstring(node))
        for module in modules
        for node, shown in module.definitions()
        if shown
    ]
    bare = [place for place, text in public if not text]
    yield Figure("public names with a docstring, %", 100 - 100 * len(bare) / len(public), 95, bare, at_least=True)


def _first(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]


def _pronouns(text: str) -> int:
    return sum(word.lower() in PRONOUNS for word in re.findall(r"[A-Za-z']+", text))


if __name__ == "__main__":
    sys.exit(main())
