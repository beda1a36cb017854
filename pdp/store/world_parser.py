"""Text of a world file as JSON values, and the place of a value in the text. Knows no objects and no grants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from pdp.errors import Place, PolicyError
from pdp.model import strict

STDIN: Final = "-"
"""Name of a world file that stands for standard input."""
Where: TypeAlias = tuple[str | int, ...]
"""Path of keys and list positions to a value: `("grants", 3, "privilege")`."""


def parse_text(text: str, file: str) -> Any:
    """Return the value of a text, in the language of the file's name. STDIN has JSON if it can be, else YAML.

    Raise PolicyError with line and column for a syntax error or a key that occurs twice in a mapping.
    """
    is_json = _is_json(text) if file == STDIN else not is_yaml(file)
    return _parse_json(text, file) if is_json else _parse_yaml(text, file)


def is_yaml(file: str | Path) -> bool:
    """Tell whether a world file of this name is YAML; a file with the suffix `.json` is JSON."""
    return Path(file).suffix != ".json"


def _is_json(text: str) -> bool:
    """Tell whether a text is JSON. Not all JSON is YAML: JSON may escape a character as two surrogates."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def place_of(text: str, file: str, where: Where) -> Place:
    """Return file, line and column of a value; of the nearest enclosing one if the value is missing.

    Slow, because PyYAML reads the text again with marks: call after a failure only.
    """
    found = strict.position_of(text, where)
    return Place(file, *found[:2]) if found else Place(file)


def _parse_json(text: str, file: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise PolicyError(f"key `{twice}` stands twice in one mapping", Place(file))
        return mapping

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise PolicyError(f"not JSON: {error.msg}", Place(file, error.lineno, error.colno)) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        raise PolicyError(f"not JSON: {error}", Place(file)) from error


def _parse_yaml(text: str, file: str) -> Any:
    try:
        return strict.load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise PolicyError(f"not YAML: {error.problem}", place) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date
        raise PolicyError(f"not YAML: {error}", Place(file)) from error
