"""References to arrays of paths: all texts split at once, one look at each distinct container.

The arrays hold what `parse_resource` returns for each text. Texts of another form are left to the caller. Owns the
bound on the text that many resources of one request share.

A list of resources needs the arguments of its check only once in a body. But rules, errors and the audit see the
arguments with each resource. So the product of both is bounded before any work on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Final, TypeAlias, cast

import msgspec
from msgspec import UNSET

from pdp.decision.bodies import CheckBody
from pdp.errors import InvalidReference, TooMuchRepeated
from pdp.model.arrays import Path, PathArray
from pdp.model.question import Resource
from pdp.model.references import MAX_NAME, has_long, parse_resource
from pdp.model.vocabulary import TABULAR_TYPES

_COLUMN_TYPES: Final = frozenset({*TABULAR_TYPES, "table_or_view", "namespace"})
_PLAIN: Final = re.compile(r"[^%@/\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
"""Parts that stand for themselves in a reference."""
_TextsByRef: TypeAlias = Mapping[str | None, tuple[Sequence[str], Sequence[int]]]
_SHORT: Final = 200
"""Most characters of a container that is split without a look at the limits of references, and of a remembered one."""
_Container: TypeAlias = tuple[list[int], int, list[str], list[int]]
"""Place of the rows of one container: its number, between the three lists of its column."""
_HEADS: Final = 4096
"""Containers that are remembered."""
_Place: TypeAlias = tuple[str, str, Path]
"""Type of resources, their warehouse, and the path of their container."""


class ParsedPathArray:
    """Column under construction, with the position of each row in the answer."""

    __slots__ = ("_like", "at", "names", "numbers", "parent_at")

    def __init__(self, like: Resource) -> None:
        """Make an empty column. `like` has the type, the warehouse and the ref."""
        self._like = like
        self.numbers: dict[Path, int] = {}
        """Numbers of the containers, by path below the warehouse."""
        self.parent_at: list[int] = []
        self.names: list[str] = []
        self.at: list[int] = []

    def resources(self) -> PathArray:
        """Return the finished column."""
        return PathArray(self._like, tuple(self.numbers), self.parent_at, self.names)


class PathArrayParser:
    """Parser of many references. `columns` has the columns by type, warehouse and ref."""

    def __init__(self) -> None:
        self.columns: dict[tuple[str, str, str | None], ParsedPathArray] = {}
        self._left: list[int] = []

    def add(self, named: Sequence[object], at: Sequence[int]) -> list[int]:
        """Add resources, item i at position `at[i]`. Return the positions of items that are in no column.

        Only texts can be in a column.
        """
        try:
            texts = cast(Sequence[str], named)
            joined = " ".join(texts)
        except TypeError:  # not all are texts
            texts = [item for item in named if isinstance(item, str)]
            joined = " ".join(texts)
            self._left = [position for item, position in zip(named, at, strict=True) if not isinstance(item, str)]
            at = [position for item, position in zip(named, at, strict=True) if isinstance(item, str)]
        if texts:
            self._add_texts(texts, joined, at)
        return self._left

    def _add_texts(self, texts: Sequence[str], joined: str, at: Sequence[int]) -> None:
        """Add references. `joined` has all of them."""
        if has_long(texts, joined):
            rows = [row for row, text in enumerate(texts) if len(text) <= MAX_NAME]
            self._left += [position for text, position in zip(texts, at, strict=True) if len(text) > MAX_NAME]
            texts, at = [texts[row] for row in rows], [at[row] for row in rows]
            if not texts:
                return
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
            container = containers.get(head)
            if container is None and head not in containers:
                container = containers[head] = self._container(head, ref, plain=plain)
            if container is None:
                self._left.append(position)
                continue
            parent_at, number, names, positions = container
            parent_at.append(number)
            names.append(name)
            positions.append(position)

    def _container(self, head: str, ref: str | None, *, plain: bool) -> _Container | None:
        """Return the container of texts that begin with `head` and a slash; None if such texts have no column."""
        if len(head) > _SHORT:
            place = _parse_head(head)
        else:
            place = _parse_plain_head(head) if plain else _parse_head_once(head)
        if place is None:
            return None
        type, warehouse, path = place
        key = type, warehouse, ref
        column = self.columns.get(key)
        if column is None:
            column = self.columns[key] = ParsedPathArray(Resource(type, warehouse, ref=ref))
        numbers = column.numbers
        return column.parent_at, numbers.setdefault(path, len(numbers)), column.names, column.at


@lru_cache(maxsize=_HEADS)
def _parse_plain_head(head: str) -> _Place | None:
    """Return the same as `_parse_head` for a short head whose characters are all plain."""
    type, _, rest = head.partition(":")
    if type not in _COLUMN_TYPES:
        return None
    warehouse, *path = rest.split("/")
    return (type, warehouse, tuple(path)) if warehouse and "" not in path else _parse_head(head)


def _parse_head(head: str) -> _Place | None:
    """Return the type, the warehouse and the container of references that begin with `head` and a slash.

    Return None if such references have no column.
    """
    try:
        some = parse_resource(f"{head}/x")
    except InvalidReference:
        return None
    return (some.type, some.warehouse, some.path[:-1]) if some.type in _COLUMN_TYPES else None


_parse_head_once: Final = lru_cache(maxsize=_HEADS)(_parse_head)


def _by_ref(texts: Sequence[str], at: Sequence[int]) -> _TextsByRef:
    """Return texts without what follows the first `@`, with their positions, by what follows."""
    by_ref: dict[str | None, tuple[list[str], list[int]]] = {}
    for text, position in zip(texts, at, strict=True):
        unversioned, sign, ref = text.partition("@")
        some = by_ref.setdefault(ref if sign else None, ([], []))
        some[0].append(unversioned)
        some[1].append(position)
    return by_ref


MOST_REPEATED: Final = 4 << 20
"""Most bytes of shared text in one request: the bytes of a text, for each resource but the first."""
_LONGEST_MESSAGE: Final = 500
"""Most characters of an error that many positions share."""


class RepeatedText:
    """Count of the shared text of one request."""

    __slots__ = ("_size",)

    def __init__(self) -> None:
        self._size = 0

    def add(self, body: CheckBody, count: int) -> None:
        """Count the text of a body that `count` resources share; raise TooMuchRepeated beyond the limit."""
        if count > 1:
            self.add_bytes(_length(body), count)

    def add_bytes(self, length: int, count: int) -> None:
        """Count a text of some bytes that `count` resources share; raise TooMuchRepeated beyond the limit."""
        self._size += bound_repeated(length, count)
        if self._size > MOST_REPEATED:
            raise _too_much(length, count)


def bound_repeated(length: int, count: int) -> int:
    """Return the bytes that repeat if `count` resources share a text; raise TooMuchRepeated beyond the limit."""
    repeated = length * max(0, count - 1)
    if repeated > MOST_REPEATED:
        raise _too_much(length, count)
    return repeated


def shared_message(error: Exception) -> str:
    """Return the message of an error that many positions share, cut if long."""
    return str(error)[:_LONGEST_MESSAGE]


def _too_much(length: int, count: int) -> TooMuchRepeated:
    return TooMuchRepeated(
        f"{count} resources share {length} bytes of arguments, names and action, and the limit of a request is "
        f"{MOST_REPEATED} bytes for all resources together: split the list of resources or shorten the arguments"
    )


def _length(body: CheckBody) -> int:
    """Return the bytes of a body that count for each resource: the arguments, and texts that errors repeat."""
    principal, context = body.principal, body.context
    length = len(body.action)
    if principal is not UNSET:
        length += len(principal if isinstance(principal, str) else principal.id)
    if body.acting_role is not UNSET:
        length += len(body.acting_role)
    if context is not UNSET and context.arguments:
        length += len(msgspec.json.encode(context.arguments))
    return length
