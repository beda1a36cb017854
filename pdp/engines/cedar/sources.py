"""Texts of Cedar files, and the places of their characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import msgspec

from pdp.config.regular_files import read_regular
from pdp.errors import Place, PolicyError


class SourceText(msgspec.Struct, frozen=True, dict=True):
    """Text of a file. `file` serves messages alone."""

    text: str
    file: str = Place().file

    def place(self, offset: int = 0) -> Place:
        """Return the place of a character."""
        line = bisect_right(self._line_starts, offset)
        return Place(self.file, line, offset - self._line_starts[line - 1] + 1)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]


class CedarSources(msgspec.Struct, frozen=True):
    """All texts that a Cedar engine is made of.

    `schema` replaces the schema of pdp, `fragment` adds to the schema; None for neither.
    """

    policies: tuple[SourceText, ...]
    entities: tuple[SourceText, ...] = ()
    schema: SourceText | None = None
    fragment: SourceText | None = None


def read_sources(paths: Iterable[Path]) -> tuple[SourceText, ...]:
    """Return the texts of files; raise PolicyError for a file that cannot be read or is not UTF-8."""
    return tuple(SourceText(_read(path), str(path)) for path in paths)


def _read(path: Path) -> str:
    try:
        data = read_regular(path)
    except OSError as error:
        raise PolicyError(f"cannot be read: {(error.strerror or str(error)).lower()}", Place(str(path), 0)) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PolicyError("not UTF-8", Place(str(path), data.count(b"\n", 0, error.start) + 1)) from None
