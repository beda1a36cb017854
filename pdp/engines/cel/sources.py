"""Rule files to rule texts, every character of which knows its line and column; compiles nothing.

Properties are read as Quarkus reads them (continuations, escapes, UTF-8; `${}` stays as it is), YAML as `rules: {id:
expression}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import javaproperties
import yaml

from pdp.errors import Notice, Place, PolicyError

PREFIX: Final = "nessie.server.authorization.rules."
"""What the key of a rule begins with in a properties file."""
MAX_FILE_BYTES: Final = 64 << 20
_MAX_YAML_DEPTH: Final = 16

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPED: Final = re.compile(r"(?:\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u.{4}|\\.|.", re.DOTALL)

Spot = tuple[int, int]
"""Line and column, from 1."""


class RuleText(NamedTuple):
    """One rule as it stands in a file; `spots[i]` is where character i stands, and one more for the end."""

    id: str
    text: str
    file: str
    spots: Sequence[Spot]

    def place(self, offset: int = 0) -> Place:
        return Place(self.file, *self.spots[min(offset, len(self.spots) - 1)])


class RuleFile(NamedTuple):
    """What one file holds: its rules, and what else stands in it."""

    rules: list[RuleText]
    warnings: list[Notice]


def read(path: Path) -> RuleFile:
    """The rules of a `.properties`, `.yaml` or `.yml` file; raises PolicyError."""
    readers = {".properties": _properties, ".yaml": _yaml, ".yml": _yaml}
    reader = readers.get(path.suffix)
    if reader is None:
        raise PolicyError("not a rule file: neither .properties nor .yaml", Place(str(path)))
    return reader(_text(path), str(path))


def inline(id: str, text: str) -> RuleText:
    """A rule that stands in no file."""
    return RuleText(id, text, Place().file, _spots(text, 1, 1))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PolicyError(f"cannot read: {error.strerror}", Place(str(path))) from None
    if len(data) > MAX_FILE_BYTES:
        raise PolicyError(f"larger than {MAX_FILE_BYTES} bytes", Place(str(path)))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        lines = data[: error.start].count(b"\n")
        raise PolicyError("not UTF-8", Place(str(path), lines + 1)) from None


def _spots(text: str, line: int, column: int) -> list[Spot]:
    spots = []
    for character in text:
        spots.append((line, column))
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    return [*spots, (line, column)]


def _properties(text: str, file: str) -> RuleFile:
    found = RuleFile([], [])
    for element, line in _elements(text, file):
        if not isinstance(element, javaproperties.KeyValue):
            continue
        if not element.key.startswith(PREFIX):
            found.warnings.append(Notice(Place(file, line), f"ignored key `{element.key}`"))
            continue
        id = _unquoted(element.key[len(PREFIX) :])
        if not id:
            raise PolicyError("a rule without an id", Place(file, line))
        found.rules.append(RuleText(id, element.value, file, _value_spots(element, line)))
    return found


def _elements(text: str, file: str) -> Iterator[tuple[javaproperties.PropertiesElement, int]]:
    """The file's entries with the lines they begin on."""
    line = 1
    elements = javaproperties.parse(text)
    while True:
        try:
            element = next(elements, None)
        except javaproperties.InvalidUEscapeError as error:
            raise PolicyError(str(error), Place(file, line)) from None
        if element is None:
            return
        yield element, line
        line += len(re.findall(r"\r\n|\r|\n", element.source))


def _unquoted(id: str) -> str:
    quoted = len(id) > 1 and id[0] == id[-1] == '"'
    return id[1:-1] if quoted else id


def _value_spots(element: javaproperties.KeyValue, line: int) -> Sequence[Spot]:
    """Where each character of the value stands: continuations joined, escapes counted as what they stand for."""
    joined, spots = _joined(element.source, line)
    start = _KEY.match(joined)
    assert start is not None
    value = [spots[match.start()] for match in _ESCAPED.finditer(joined, start.end())]
    if len(value) != len(element.value):
        return [(line, 1)]
    return [*value, spots[len(joined)]]


def _joined(source: str, line: int) -> tuple[str, list[Spot]]:
    """The logical line, and the place of each of its characters and of its end."""
    text, spots, end = "", [], (line, 1)
    for physical in _LINE.findall(source):
        body = physical.rstrip("\r\n")
        stripped = body.lstrip(" \t\f")
        continued = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        kept = stripped[:-1] if continued else stripped
        first = len(body) - len(stripped) + 1
        spots += [(line, first + index) for index in range(len(kept))]
        text, end, line = text + kept, (line, first + len(kept)), line + 1
        if not continued:
            break
    return text, [*spots, end]


def _yaml(text: str, file: str) -> RuleFile:
    found = RuleFile([], [])
    root = _compose(text, file)
    if root is None:
        return found
    for key, value in _pairs(root, file):
        if key.value == "rules":
            found.rules.extend(_yaml_rule(text, file, id, rule) for id, rule in _pairs(value, file))
        else:
            found.warnings.append(Notice(_mark(key, file), f"ignored key `{key.value}`"))
    return found


def _compose(text: str, file: str) -> Any:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(text, file, loader)
        return yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise PolicyError(f"not YAML: {error.problem}", place) from None
    except yaml.YAMLError as error:
        raise PolicyError(f"not YAML: {str(error).splitlines()[0]}", Place(file)) from None


def _check_depth(text: str, file: str, loader: Any) -> None:
    """Composing recurses in C, without a limit of its own; walking the events does not."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_YAML_DEPTH:
            raise PolicyError("nested too deeply", _mark(event, file))


def _mark(node: Any, file: str) -> Place:
    return Place(file, node.start_mark.line + 1, node.start_mark.column + 1)


def _pairs(node: Any, file: str) -> list[tuple[Any, Any]]:
    """The entries of a mapping whose keys are scalars, duplicates and all."""
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
        return []
    if not isinstance(node, yaml.MappingNode):
        raise PolicyError("not a mapping", _mark(node, file))
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise PolicyError("a key that is not text", _mark(key, file))
    pairs: list[tuple[Any, Any]] = node.value
    return pairs


def _yaml_rule(text: str, file: str, id: Any, rule: Any) -> RuleText:
    if not isinstance(rule, yaml.ScalarNode):
        raise PolicyError(f"rule `{id.value}` is not text", _mark(rule, file))
    if not id.value:
        raise PolicyError("a rule without an id", _mark(id, file))
    value = "" if rule.tag.endswith(":null") else rule.value
    return RuleText(id.value, value, file, _yaml_spots(text, rule))


def _yaml_spots(text: str, rule: Any) -> Sequence[Spot]:
    """Exact for scalars on one line without escapes and for literal blocks, else where the scalar begins."""
    start, end = rule.start_mark, rule.end_mark
    line, column = start.line + 1, start.column + 1
    if rule.style == "|":
        return _block_spots(text, rule.value, line)
    quotes = 1 if rule.style in ("'", '"') else 0
    if rule.style == ">" or start.line != end.line or end.column - start.column != len(rule.value) + 2 * quotes:
        return [(line, column)]
    return _spots(rule.value, line, column + quotes)


def _block_spots(text: str, value: str, header: int) -> Sequence[Spot]:
    """A literal block stands below its header, indented like its first line that is not blank."""
    body = text.splitlines()[header:]
    first = next((line for line in body if line.strip()), "")
    indent = len(first) - len(first.lstrip(" "))
    spots = []
    for number, line in enumerate(value.split("\n")):
        spots += [(header + 1 + number, indent + 1 + index) for index in range(len(line) + 1)]
    return spots
