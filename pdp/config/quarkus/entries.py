"""Entries of a configuration: a key and a text, with the place of every character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

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
