r"""Property expressions: `${name}`, `${name:default}`, nested, and `\$` or `$$` for a dollar.

Follows SmallRye's ExpressionConfigSourceInterceptor. `${handler::text}` asks for a secret and is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pdp.config.quarkus.entries import ConfigEntry, Position
from pdp.errors import PolicyError

_MOST_NESTED: Final = 32
_LONGEST: Final = 1 << 20
_MOST_EXPRESSIONS: Final = 1_000
"""Expressions of one text, with those that they lead to. Without a bound, 32 keys could stand for 2^32 expansions."""


class ExpressionReader:
    """Reader of one text with expressions. `lookup` returns the text of a name, or None."""

    def __init__(
        self, entry: ConfigEntry, lookup: Callable[[str], ConfigEntry | None], parent: ExpressionReader | None = None
    ) -> None:
        self._entry = entry
        self._text = entry.text
        self._lookup = lookup
        self.depth: int = parent.depth + 1 if parent else 0
        self.count: Iterator[int] = parent.count if parent else itertools.count()
        self._at = 0
        self._skipping = False

    def expand(self) -> tuple[str, list[int]]:
        """Return the expanded text, and for each of its characters the offset in the original text."""
        text, offsets = self._read(ends="")
        return text, offsets

    def _read(self, ends: str) -> tuple[str, list[int]]:
        """Read up to one of the signs `ends`, outside of expressions."""
        text: list[str] = []
        offsets: list[int] = []
        while self._at < len(self._text):
            start = self._at
            sign = self._text[start]
            if sign in ends and not (sign == ":" and self._text.startswith("::", start)):
                break
            if self._text.startswith(("\\$", "$$"), start):
                piece, self._at = "$", start + 2
            elif self._text.startswith("${", start):
                piece = self._expression()
            elif sign == ":" and ends and self._text.startswith("::", start):
                piece, self._at = "::", start + 2
            else:
                piece, self._at = sign, start + 1
            text.append(piece)
            offsets += [start] * len(piece)
            if len(offsets) > _LONGEST:
                raise self._entry.error(f"`{self._entry.key}` is too long after the expansion of its expressions")
        return "".join(text), offsets

    def _expression(self) -> str:
        start = self._at
        self._at += 2
        name, _ = self._read(ends=":}")
        found = None if self._skipping else self._find(start, name)
        default = self._default(skip=self._skipping or found is not None)
        if not self._text.startswith("}", self._at):
            raise self._error(start, "`${` without `}`: write `\\\\${` in a properties file for a dollar and a brace")
        self._at += 1
        if self._skipping:
            return ""
        if found is None and default is None:
            message = f"`${{{name}}}` has no value: add the key `{name}`, or write `${{{name}:default}}`"
            raise self._error(start, message)
        return (default or "") if found is None else found

    def _default(self, *, skip: bool) -> str | None:
        """Read the default after a colon; None without a default. An unused default may hold unknown names."""
        if not self._text.startswith(":", self._at):
            return None
        self._at += 1
        before, self._skipping = self._skipping, skip
        default, _ = self._read(ends="}")
        self._skipping = before
        return default

    def _find(self, start: int, name: str) -> str | None:
        if "::" in name:
            raise self._error(start, f"`${{{name}}}` asks a secret handler, which is not here: write the text itself")
        found = self._lookup(name)
        if found is None or "$" not in found.text:
            return found.text if found else None
        if self.depth >= _MOST_NESTED or next(self.count) >= _MOST_EXPRESSIONS:
            raise self._error(start, f"`${{{name}}}` refers to itself, or through too many names")
        return ExpressionReader(found, self._lookup, self).expand()[0]

    def _error(self, offset: int, message: str) -> PolicyError:
        return PolicyError(message, self._entry.place(offset))


def expand(entry: ConfigEntry, lookup: Callable[[str], ConfigEntry | None]) -> ConfigEntry:
    """Return an entry with its expressions replaced; raise PolicyError for a name without a value."""
    if "$" not in entry.text:
        return entry
    text, offsets = ExpressionReader(entry, lookup).expand()
    if text == entry.text:
        return entry

    def locate() -> Sequence[Position]:
        positions = entry.locate()
        return [positions[min(at, len(positions) - 1)] for at in (*offsets, len(entry.text))]

    start = locate()[0] if text else entry.start
    return ConfigEntry(entry.key, text, entry.file, start, locate, entry.key_start)
