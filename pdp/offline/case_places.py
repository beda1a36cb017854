"""Places of cases, and of the checks of a case, in their files. Read only for messages, so that runs stay fast."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import yaml

from pdp.errors import Place
from pdp.model.strict import bound_yaml
from pdp.offline.cases import Case


def place_of_case(case: Case) -> Place | None:
    """Return the place of a case; None for a case that comes from no file."""
    return None if case.file is None else Place(str(case.file), *_mark(_node_of(case), case))


def line_of_check(case: Case, number: int) -> int | None:
    """Return the line of a check of a case; None if unknown, or if the check stands on the line of its case."""
    checks = _value(_node_of(case), "checks")
    if not isinstance(checks, yaml.SequenceNode) or number >= len(checks.value):
        return None
    line = checks.value[number].start_mark.line + 1
    place = place_of_case(case)
    return None if place is None or line == place.line else line


def forget_places() -> None:
    """Forget the files read so far: they may have changed."""
    _document.cache_clear()


def _mark(node: yaml.Node | None, case: Case) -> tuple[int, int]:
    if node is not None:
        return node.start_mark.line + 1, node.start_mark.column + 1
    return (case.number if _is_by_line(case) else 1), 1


def _is_by_line(case: Case) -> bool:
    return case.file is not None and case.file.suffix == ".jsonl"


def _node_of(case: Case) -> yaml.Node | None:
    """Return the node of a case in its file; None if unknown."""
    if case.file is None or _is_by_line(case):
        return None
    root = _document(case.file)
    cases = root if isinstance(root, yaml.SequenceNode) else _value(root, "cases")
    if not isinstance(cases, yaml.SequenceNode):
        return root
    return cases.value[case.number] if case.number < len(cases.value) else None


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


@lru_cache(maxsize=8)
def _document(file: Path) -> yaml.Node | None:
    """Return the root of a file. JSON is read as YAML; the few texts that differ have no places."""
    try:
        text = file.read_text(encoding="utf-8")
        bound_yaml(text)
        return yaml.compose(text, yaml.CSafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
