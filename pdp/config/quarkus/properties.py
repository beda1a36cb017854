"""Reader of Java properties: continuations, escapes and UTF-8, with the position of every character.

Owns `ConfigEntry`, which readers of every form of configuration return.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import javaproperties

from pdp.errors import Place, PolicyError

Position: TypeAlias = tuple[int, int]
"""Line and column, both from 1."""


class ConfigEntry(NamedTuple):
    """Key and text of a configuration, with their positions: `key_start`, and `start` of the text.

    `locate` returns the position of each character, and of the end of the text. Only errors need these positions, so
    they are not kept. An unknown position inside the text is replaced by the position of the beginning.
    """

    key: str
    text: str
    file: str
    start: Position
    locate: Callable[[], Sequence[Position]]
    key_start: Position = (1, 1)

    def place(self, offset: int = 0) -> Place:
        """Return the place of the character at `offset`."""
        if not offset:
            return Place(self.file, *self.start)
        positions = self.locate()
        return Place(self.file, *positions[min(offset, len(positions) - 1)])

    @property
    def key_place(self) -> Place:
        """Return the place of the key."""
        return Place(self.file, *self.key_start)

    def error(self, message: str) -> PolicyError:
        """Return an error at the key."""
        return PolicyError(message, self.key_place)


def positions_of(text: str, line: int, column: int) -> list[Position]:
    """Return the position of each character of a text without escapes, and of the end."""
    positions = []
    for character in text:
        positions.append((line, column))
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    return [*positions, (line, column)]


def unknown_positions(start: Position) -> Callable[[], Sequence[Position]]:
    """Return a `locate` that knows the beginning alone."""
    return lambda: [start]


_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)?")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPED: Final = re.compile(r"(?:\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u.{4}|\\.|.", re.DOTALL)


def read_properties(text: str, file: str) -> Iterator[ConfigEntry]:
    """Yield the entries of a properties file, in the order of the lines.

    Raise PolicyError for an escape that is not valid.
    """
    for element, line in _elements(text, file):
        if isinstance(element, javaproperties.KeyValue):
            locate = partial(_value_positions, element.source, len(element.value), line)
            start = _value_start(element.source, line) or locate()[0]
            yield ConfigEntry(element.key, element.value, file, start, locate, (line, 1))


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
    texts: list[str] = []
    positions, end = [], (line, 1)
    for physical in _LINE.findall(source):
        body = physical.rstrip("\r\n")
        stripped = body.lstrip(" \t\f")
        continued = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        content = stripped[:-1] if continued else stripped
        first = len(body) - len(stripped) + 1
        positions += [(line, first + index) for index in range(len(content))]
        texts.append(content)
        end, line = (line, first + len(content)), line + 1
        if not continued:
            break
    return "".join(texts), [*positions, end]


def continued(text: str) -> str:
    """Return a text of several lines as a value of a properties file, with a backslash before each line."""
    if "\n" not in text:
        return text
    return "".join(f"\\\n    {line}" for line in text.replace("\r\n", "\n").split("\n"))
