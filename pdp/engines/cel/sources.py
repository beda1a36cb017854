"""Readers of rule files: from `.properties` and YAML to texts with the line and column of every character.

Properties files are read as in Quarkus: with continuations, escapes and UTF-8, but `${}` is not expanded. YAML
files have a mapping `rules:` from id to expression. Compiles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import javaproperties
import yaml

from pdp.errors import Notice, Place, PolicyError

PREFIX: Final = "nessie.server.authorization.rules."
"""The beginning of the key of a rule in a properties file."""
MAX_FILE_BYTES: Final = 64 << 20
_MAX_YAML_DEPTH: Final = 16

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPED: Final = re.compile(r"(?:\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u.{4}|\\.|.", re.DOTALL)

Position: TypeAlias = tuple[int, int]
"""Line and column, both from 1."""


class RuleText(NamedTuple):
    """A rule of a file. `start` is the position of the first character.

    `locate` returns the position of each character, and of the end of the text. Only errors need these positions, so
    they are not kept. Where the positions inside are unknown, there is only the position of the beginning.
    """

    id: str
    text: str
    file: str
    start: Position
    locate: Callable[[], Sequence[Position]]

    def place(self, offset: int = 0) -> Place:
        """Return the place of the character at `offset`."""
        if not offset:
            return Place(self.file, *self.start)
        positions = self.locate()
        return Place(self.file, *positions[min(offset, len(positions) - 1)])


class RuleFile(NamedTuple):
    """The rules of a file, and warnings about other keys."""

    rules: list[RuleText]
    warnings: list[Notice]


def read_rule_file(path: Path) -> RuleFile:
    """Read the rules of a `.properties`, `.yaml` or `.yml` file.

    Raise PolicyError if the file cannot be read or is no rule file.
    """
    readers = {".properties": _properties, ".yaml": _yaml, ".yml": _yaml}
    reader = readers.get(path.suffix)
    if reader is None:
        raise PolicyError("not a rule file: neither .properties nor .yaml", Place(str(path)))
    return reader(_text(path), str(path))


def inline_rule(id: str, text: str) -> RuleText:
    """Return a rule given as text, not in a file."""
    return RuleText(id, text, Place().file, (1, 1), partial(_positions, text, 1, 1))


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


def _positions(text: str, line: int, column: int) -> list[Position]:
    positions = []
    for character in text:
        positions.append((line, column))
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    return [*positions, (line, column)]


def _properties(text: str, file: str) -> RuleFile:
    result = RuleFile([], [])
    for element, line in _elements(text, file):
        if not isinstance(element, javaproperties.KeyValue):
            continue
        if not element.key.startswith(PREFIX):
            result.warnings.append(Notice(Place(file, line), f"ignored key `{element.key}`"))
            continue
        id = _unquote(element.key[len(PREFIX) :])
        if not id:
            raise PolicyError("a rule without an id", Place(file, line))
        locate = partial(_value_positions, element.source, len(element.value), line)
        result.rules.append(
            RuleText(id, element.value, file, _value_start(element.source, line) or locate()[0], locate)
        )
    return result


def _elements(text: str, file: str) -> Iterator[tuple[javaproperties.PropertiesElement, int]]:
    """Yield the entries of the file with their first lines."""
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


def _unquote(id: str) -> str:
    quoted = len(id) > 1 and id[0] == id[-1] == '"'
    return id[1:-1] if quoted else id


def _value_start(source: str, line: int) -> Position | None:
    """Return the position of the first character of the value; None for an entry with escapes or continuations."""
    if "\\" in source:
        return None
    stripped = source.lstrip(" \t\f")
    key = _KEY.match(stripped.rstrip("\r\n"))
    assert key is not None
    return line, len(source) - len(stripped) + key.end() + 1


def _value_positions(source: str, length: int, line: int) -> Sequence[Position]:
    """Return the position of each character of the value, and of the end.

    An escape stands for a character, and two UTF-16 escapes for a character beyond the BMP. If the count does not agree
    with the `length` of the library's value, only the beginning of the entry is known.
    """
    joined, positions = _join_lines(source, line)
    start = _KEY.match(joined)
    assert start is not None
    value = [positions[match.start()] for match in _ESCAPED.finditer(joined, start.end())]
    if len(value) != length:
        return [(line, 1)]
    return [*value, positions[len(joined)]]


def _join_lines(source: str, line: int) -> tuple[str, list[Position]]:
    """Return the logical line without continuations, with the position of each character and of the end."""
    text, positions, end = "", [], (line, 1)
    for physical in _LINE.findall(source):
        body = physical.rstrip("\r\n")
        stripped = body.lstrip(" \t\f")
        continued = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        content = stripped[:-1] if continued else stripped
        first = len(body) - len(stripped) + 1
        positions += [(line, first + index) for index in range(len(content))]
        text, end, line = text + content, (line, first + len(content)), line + 1
        if not continued:
            break
    return text, [*positions, end]


def _yaml(text: str, file: str) -> RuleFile:
    result = RuleFile([], [])
    root = _compose(text, file)
    if root is None:
        return result
    lines = text.splitlines()
    for key, value in _pairs(root, file):
        if key.value == "rules":
            result.rules.extend(_yaml_rule(lines, file, id, rule) for id, rule in _pairs(value, file))
        else:
            result.warnings.append(Notice(_mark(key, file), f"ignored key `{key.value}`"))
    return result


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
    """Raise PolicyError if a document is nested too deeply.

    Composing a document recurses in C without a limit. Reading the events does not recurse, so this check comes first.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_YAML_DEPTH:
            raise PolicyError("nested too deeply", _mark(event, file))


def _mark(node: Any, file: str) -> Place:
    return Place(file, node.start_mark.line + 1, node.start_mark.column + 1)


def _pairs(node: Any, file: str) -> list[tuple[Any, Any]]:
    """Return the entries of a mapping, including duplicate keys. A null node has none.

    Raise PolicyError for another node or for a key of another kind.
    """
    if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
        return []
    if not isinstance(node, yaml.MappingNode):
        raise PolicyError("not a mapping", _mark(node, file))
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise PolicyError("a key that is not text", _mark(key, file))
    pairs: list[tuple[Any, Any]] = node.value
    return pairs


def _yaml_rule(lines: Sequence[str], file: str, id: Any, rule: Any) -> RuleText:
    if not isinstance(rule, yaml.ScalarNode):
        raise PolicyError(f"rule `{id.value}` is not text", _mark(rule, file))
    if not id.value:
        raise PolicyError("a rule without an id", _mark(id, file))
    value = "" if rule.tag.endswith(":null") else rule.value
    start, locate = _yaml_positions(lines, rule)
    return RuleText(id.value, value, file, start, locate)


def _yaml_positions(lines: Sequence[str], rule: Any) -> tuple[Position, Callable[[], Sequence[Position]]]:
    """Return the position of the first character of a scalar, and a function that returns all positions.

    Exact for literal blocks and for scalars in a single line without escapes. Otherwise only the beginning is known.
    """
    start, end = rule.start_mark, rule.end_mark
    line, column = start.line + 1, start.column + 1
    if rule.style == "|":
        first = next((text for text in lines[line : end.line + 1] if text.strip()), "")
        indent = len(first) - len(first.lstrip(" "))
        return (line + 1, indent + 1), partial(_block_positions, rule.value, line + 1, indent)
    quotes = 1 if rule.style in ("'", '"') else 0
    if rule.style == ">" or start.line != end.line or end.column - start.column != len(rule.value) + 2 * quotes:
        return (line, column), lambda: [(line, column)]
    return (line, column + quotes), partial(_positions, rule.value, line, column + quotes)


def _block_positions(value: str, line: int, indent: int) -> Sequence[Position]:
    """Return the positions of a literal block, whose first line is `line`. Every line has the same indentation."""
    positions = []
    for number, text in enumerate(value.split("\n")):
        positions += [(line + number, indent + 1 + index) for index in range(len(text) + 1)]
    return positions
