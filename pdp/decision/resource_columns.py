"""References to columns of resources: all texts split at once, one look at each distinct container.

The columns hold what `parse_resource` returns for each text. Texts that are not plain are left to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Final, TypeAlias

from pdp.errors import InvalidReference
from pdp.model.checks import Resource
from pdp.model.columns import Path, PathColumn
from pdp.model.references import parse_resource
from pdp.model.vocabulary import TABULAR_TYPES

_COLUMN_TYPES: Final = frozenset({*TABULAR_TYPES, "table_or_view", "namespace"})
_PLAIN: Final = re.compile(r"[^%@/\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""Parts that stand for themselves in a reference."""
_TextsByRef: TypeAlias = Mapping[str | None, tuple[Sequence[str], Sequence[int]]]
_SHORT: Final = 200
"""Most characters of a container that is split without a look at the limits of references."""


class ParsedColumn:
    """Column under construction, with the position of each row in the answer."""

    __slots__ = ("_like", "_numbers", "at", "names", "parent_at")

    def __init__(self, like: Resource) -> None:
        """Make an empty column. `like` has the type, the warehouse and the ref."""
        self._like = like
        self._numbers: dict[Path, int] = {}
        self.parent_at: list[int] = []
        self.names: list[str] = []
        self.at: list[int] = []

    def number_of(self, path: Path) -> int:
        """Return the number of the container with a path below the warehouse."""
        return self._numbers.setdefault(path, len(self._numbers))

    def resources(self) -> PathColumn:
        """Return the finished column."""
        return PathColumn(self._like, tuple(self._numbers), self.parent_at, self.names)


class _Container:
    """Place of the rows of one container: the column, and the number of the container in the column."""

    __slots__ = ("column", "number")

    def __init__(self, column: ParsedColumn, path: Path) -> None:
        self.column = column
        self.number = column.number_of(path)


class ColumnParser:
    """Parser of many references. `columns` has the columns by type, warehouse and ref."""

    def __init__(self) -> None:
        self.columns: dict[tuple[str, str, str | None], ParsedColumn] = {}
        self._left: list[int] = []

    def add(self, named: Sequence[object], at: Sequence[int]) -> list[int]:
        """Add resources, item i at position `at[i]`. Return the positions of items that are in no column.

        Only texts can be in a column.
        """
        texts = [item for item in named if isinstance(item, str)]
        if len(texts) < len(named):
            self._left = [position for item, position in zip(named, at, strict=True) if not isinstance(item, str)]
            at = [position for item, position in zip(named, at, strict=True) if isinstance(item, str)]
        self._add_texts(texts, at)
        return self._left

    def _add_texts(self, texts: Sequence[str], at: Sequence[int]) -> None:
        joined = " ".join(texts)
        plain = "%" not in joined and joined.isprintable()
        if "@" not in joined:
            self._add_unversioned(texts, at, None, plain=plain)
            return
        suffix = "@" + texts[0].rpartition("@")[2]
        if joined.count("@") == len(texts) and all(map(str.endswith, texts, repeat(suffix))):
            by_ref: _TextsByRef = {suffix[1:]: ([text[: -len(suffix)] for text in texts], at)}
        else:
            by_ref = _by_ref(texts, at)
        for ref, (unversioned, positions) in by_ref.items():
            if ref is None or _PLAIN.fullmatch(ref):
                self._add_unversioned(unversioned, positions, ref, plain=plain)
            else:
                self._left += positions

    def _add_unversioned(self, texts: Sequence[str], at: Sequence[int], ref: str | None, *, plain: bool) -> None:
        """Add references on one ref, written without the ref. `plain` says that all characters are plain."""
        containers: dict[str, _Container | None] = {}
        for text, position in zip(texts, at, strict=True):
            head, _, name = text.rpartition("/")
            if not name or not (plain or _PLAIN.fullmatch(name)):
                self._left.append(position)
                continue
            try:
                container = containers[head]
            except KeyError:
                container = containers[head] = self._container(head, ref, plain=plain)
            if container is None:
                self._left.append(position)
                continue
            column = container.column
            column.parent_at.append(container.number)
            column.names.append(name)
            column.at.append(position)

    def _container(self, head: str, ref: str | None, *, plain: bool) -> _Container | None:
        """Return the container of texts that begin with `head` and a slash; None if such texts have no column."""
        type, _, rest = head.partition(":")
        if type not in _COLUMN_TYPES:
            return None
        warehouse, *path = rest.split("/")
        if not plain or not warehouse or "" in path or len(head) > _SHORT:
            try:
                some = parse_resource(f"{head}/x")
            except InvalidReference:
                return None
            warehouse, path = some.warehouse, list(some.path[:-1])
        key = type, warehouse, ref
        column = self.columns.get(key)
        if column is None:
            column = self.columns[key] = ParsedColumn(Resource(type, warehouse, ref=ref))
        return _Container(column, tuple(path))


def _by_ref(texts: Sequence[str], at: Sequence[int]) -> _TextsByRef:
    """Return texts without what follows the first `@`, with their positions, by what follows."""
    by_ref: dict[str | None, tuple[list[str], list[int]]] = {}
    for text, position in zip(texts, at, strict=True):
        unversioned, sign, ref = text.partition("@")
        some = by_ref.setdefault(ref if sign else None, ([], []))
        some[0].append(unversioned)
        some[1].append(position)
    return by_ref
