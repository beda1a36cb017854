"""Reader of YAML as Quarkus flattens it: nested keys joined by dots, `~` for the key above, quoted keys with dots."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import yaml

from pdp.config.quarkus.properties import ConfigEntry, Position, positions_of, unknown_positions
from pdp.errors import Place, PolicyError
from pdp.model.strict import bound_yaml

_MAX_DEPTH: Final = 16
_MOST_NODES: Final = 2_000_000
"""Nodes of one file. Aliases can make a small file stand for far more."""


class YamlText:
    """Text of a YAML file, with its documents."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self._lines = text.splitlines()
        self.documents = _compose(text, file)
        self._nodes = 0

    def pairs(self, node: Any) -> list[tuple[Any, Any]]:
        """Return the entries of a mapping, including duplicate keys. A null node has none.

        Raise PolicyError for another node or for a key of another kind.
        """
        if _is_null(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            raise PolicyError("not a mapping", self.mark(node))
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise PolicyError("a key that is not text", self.mark(key))
            if key.tag.endswith(":merge"):
                raise PolicyError("a merge key `<<` is not read: write the keys out", self.mark(key))
        pairs: list[tuple[Any, Any]] = node.value
        return pairs

    def mark(self, node: Any) -> Place:
        """Return the place of a node."""
        return Place(self.file, *position_of(node))

    def entry(self, name: str, key: Any, node: Any) -> ConfigEntry:
        """Return the entry of a scalar below a key. A null is an empty text."""
        start, locate = self._positions(node)
        text = "" if _is_null(node) else _scalar_text(node)
        return ConfigEntry(name, text, self.file, start, locate, position_of(key))

    def flatten(self, key: Any, node: Any, path: str = "", depth: int = 0) -> Iterator[ConfigEntry]:
        """Yield the entries of a key and everything below. A null is an empty text, as for Quarkus."""
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > _MOST_NODES:
            raise PolicyError("nested too deeply", self.mark(node))
        name = _joined(path, "" if _is_null(key) else key.value)
        if isinstance(node, yaml.MappingNode):
            for below, value in self.pairs(node):
                yield from self.flatten(below, value, name, depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            yield self._listed(name, key, node)
        else:
            yield self.entry(name, key, node)

    def _listed(self, name: str, key: Any, node: Any) -> ConfigEntry:
        """Return a list as one entry with `[]` after the name, and the texts of the list between commas."""
        texts = [_scalar_text(one) for one in node.value if isinstance(one, yaml.ScalarNode)]
        start = position_of(node)
        return ConfigEntry(f"{name}[]", ",".join(texts), self.file, start, unknown_positions(start), position_of(key))

    def _positions(self, node: Any) -> tuple[Position, Callable[[], Sequence[Position]]]:
        """Return the position of the first character of a scalar, and a function that returns all positions.

        Exact for literal blocks and for scalars in a single line without escapes. Otherwise only the beginning is
        known.
        """
        start, end = node.start_mark, node.end_mark
        line, column = start.line + 1, start.column + 1
        if node.style == "|":
            first = next((text for text in self._lines[line : end.line + 1] if text.strip()), "")
            indent = len(first) - len(first.lstrip(" "))
            return (line + 1, indent + 1), partial(_block_positions, node.value, line + 1, indent)
        quotes = 1 if node.style in ("'", '"') else 0
        if node.style == ">" or start.line != end.line or end.column - start.column != len(node.value) + 2 * quotes:
            return (line, column), unknown_positions((line, column))
        return (line, column + quotes), partial(positions_of, node.value, line, column + quotes)


def _compose(text: str, file: str) -> list[Any]:
    try:
        bound_yaml(text)
        return [node for node in yaml.compose_all(text, yaml.CSafeLoader) if node is not None]
    except RecursionError as error:
        raise PolicyError(str(error), Place(file)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise PolicyError(f"not YAML: {error.problem}", place) from None
    except yaml.YAMLError as error:
        raise PolicyError(f"not YAML: {str(error).splitlines()[0]}", Place(file)) from None


def position_of(node: Any) -> Position:
    """Return the place of a node."""
    return node.start_mark.line + 1, node.start_mark.column + 1


def _joined(path: str, key: str) -> str:
    part = f'"{key}"' if "." in key else key
    return f"{path}.{part}" if path and part else path or part


def _is_null(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _scalar_text(node: Any) -> str:
    """Return the text of a scalar. A boolean has Java's spelling."""
    if node.tag.endswith(":bool"):
        return "true" if node.value.lower() in ("true", "yes", "on") else "false"
    return str(node.value)


def _block_positions(value: str, line: int, indent: int) -> Sequence[Position]:
    """Return the positions of a literal block, whose first line is `line`. Every line has the same indentation."""
    positions = []
    for number, text in enumerate(value.split("\n")):
        positions += [(line + number, indent + 1 + index) for index in range(len(text) + 1)]
    return positions


def pairs_of(node: Any) -> dict[str, Any]:
    """Return the keys of a mapping with their values, and the other keys of merged mappings."""
    found: dict[str, Any] = {}
    merged: list[Any] = []
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.tag.endswith(":merge"):
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
        elif isinstance(key, yaml.ScalarNode):
            found[str(key.value)] = value
    for one in merged:
        found = {**pairs_of(one), **found}
    return found


def scalar(node: Any) -> str:
    """Return the text of a scalar, "" for other nodes and for null."""
    is_text = isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":null")
    return str(node.value) if is_text else ""


def manifest_documents(text: str, file: str) -> list[Any]:
    """Return the documents of a manifest; raise PolicyError for a key that stands twice in a mapping, `<<` among them.

    Programs take the first, the last or none.
    """
    documents = YamlText(text, file).documents
    stack, seen = [*documents], set()
    while stack:
        node = stack.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        keys: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and str(key.value) in keys:
                message = f"`{key.value}` stands twice in a mapping, and programs differ in which counts: keep one"
                raise PolicyError(message, Place(file, *position_of(key)))
            keys.add(str(key.value))
        stack += [below for _, below in node.value] if isinstance(node, yaml.MappingNode) else node.value
    return documents


def value_text(node: Any) -> str | None:
    """Return the text of a variable's value; None for null, and for a spelling that programs print as another one.

    Without quotes, `on`, `True`, `010`, `0x1F`, `1_000`, `1e3` and dates are booleans, numbers and times to some.
    """
    if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
        return None
    is_text = node.tag.endswith(":str") and (node.style or not _LIKE_A_NUMBER.fullmatch(node.value))
    return str(node.value) if is_text or _PLAIN.fullmatch(node.value) else None


_PLAIN: Final = re.compile(r"true|false|-?(?:0|[1-9][0-9]{0,17})|-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9]")
_LIKE_A_NUMBER: Final = re.compile(r"[-+]?(?:0[box]\w+|\.?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?)|[ynYN]")


def items_of(node: Any) -> Sequence[Any]:
    """Return the items of a list; another node is a list of one item."""
    if node is None or (isinstance(node, yaml.ScalarNode) and not scalar(node)):
        return ()
    return node.value if isinstance(node, yaml.SequenceNode) else [node]


def merged_nodes(node: Any) -> Iterator[Any]:
    """Yield the mappings that a mapping merges, at the top level, and their values: none of a key `x-...`."""
    for key, value in node.value:
        if key.tag.endswith(":merge"):
            yield value
            for one in items_of(value):
                yield one
                yield from (each for key, each in pairs_of(one).items() if not key.startswith("x-"))


def scalars_below(node: Any) -> Iterator[Any]:
    """Yield the scalars below a node."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, yaml.ScalarNode):
            yield one
        elif isinstance(one, yaml.MappingNode):
            stack += [value for _, value in one.value]
        else:
            stack += one.value


def flat_values(node: Any, above: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the keys of nested values, joined by dots, with the node and the text of each."""
    for key, value in node.value:
        name = f"{above}.{key.value}" if above else str(key.value)
        if isinstance(value, yaml.MappingNode):
            yield from flat_values(value, name)
        else:
            yield name, key, printed_text(value)


def printed_text(node: Any) -> str:
    """Return the text of a value as a template prints it."""
    if not isinstance(node, yaml.ScalarNode) or node.tag.endswith(":null"):
        return ""
    if node.tag.endswith(":bool"):
        return "true" if node.value.lower() in ("true", "yes", "on") else "false"
    return str(node.value)
