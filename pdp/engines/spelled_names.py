"""Names as policies spell them. Query engines fold names, so a forbid binds a name in every spelling.

Owns the other spellings of a path. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final, TypeAlias

import msgspec
from immutables import Map

from pdp.engines.engine import DOT_IN_PART, ForbiddenPath, NamingEngine
from pdp.errors import AmbiguousName
from pdp.facts.index import Index
from pdp.facts.nodes import ObjectNode
from pdp.facts.objects import ContainerPath, Object, ObjectName, ObjectPut


class SpelledNames(msgspec.Struct, frozen=True, dict=True):
    """Names as policies spell them: `declared` objects, by container, and texts that forbids compare with paths."""

    declared: Map[ContainerPath, Map[ObjectName, ObjectNode]] = Map()
    forbidden: tuple[ForbiddenPath, ...] = ()

    @classmethod
    def of(cls, engines: Sequence[NamingEngine]) -> SpelledNames:
        """Return the names of engines, with their index."""
        declared = Index().after(ObjectPut(Object(key)) for engine in engines for key in engine.declared_objects())
        names = cls(declared.objects, tuple(path for engine in engines for path in engine.forbidden_paths()))
        _ = names._by_first, names._with_capitals
        return names

    @cached_property
    def _by_first(self) -> _TextsByFirst:
        return _texts_by_first(self.forbidden)

    @cached_property
    def _with_capitals(self) -> _TextsByFirst:
        return _texts_by_first(text for text in self.forbidden if text.text != text.text.casefold())

    def texts_near(self, warehouse: str, path: str, *, with_capitals: bool) -> Iterator[ForbiddenPath]:
        """Yield the texts that may meet a folded path, or a path below, in some spelling.

        `with_capitals`: only those that full case folding changes.
        """
        texts = self._with_capitals if with_capitals else self._by_first
        for first in {path.partition(".")[0], ""} if texts else ():
            for folded, text in texts.get(first, ()):
                is_here = text.warehouses is None or warehouse in text.warehouses
                if is_here and (text.kind in _ANYWHERE or _is_near(folded, path)):
                    yield text

    def other_paths(self, warehouse: str, path: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the other paths of a name in the spellings of forbids, however dots divide it.

        A policy of the name covers them, and an engine that folds names may mean one. Raise AmbiguousName for too many.
        """
        joined = ".".join(path)
        folded = joined.casefold()
        # To a name without capitals, a text without capitals is no other spelling, unless dots divide it otherwise.
        is_plain = joined == folded and joined.count(".") == len(path) - 1
        here = list(self.texts_near(warehouse, folded, with_capitals=is_plain))
        if not here:
            return []
        others = other_texts(joined, here, divided=False)
        if len(others) > MOST_SPELLINGS:
            raise AmbiguousName(f"forbids spell `{joined[:200]}` in too many ways")
        divided = dict.fromkeys(
            tuple(part.replace(DOT_IN_PART, ".") for part in text.split(".")) for text in (joined, *others)
        )
        return [other for other in divided if other != tuple(path) and all(other)]

    def may_have_others(self, warehouse: str, parents: Sequence[Sequence[str]], names: Sequence[str]) -> bool:
        """Tell whether a name in a container may have another spelling by a forbid; in doubt True."""
        joined = "".join([*names, *(part for parent in parents for part in parent)])
        if "." in joined or joined != joined.casefold() or not all(parents):
            return True
        return any(True for parent in parents for _ in self.texts_near(warehouse, ".".join(parent), with_capitals=True))


_ANYWHERE: Final = ("ends", "contains", "parts")
"""Kinds of texts that do not begin a path."""
_TextsByFirst: TypeAlias = Mapping[str, Sequence[tuple[str, ForbiddenPath]]]
"""Folded first part of a path -> folded texts that can only meet such paths. Others stand at the empty text."""


def _texts_by_first(texts: Iterable[ForbiddenPath]) -> _TextsByFirst:
    found: dict[str, list[tuple[str, ForbiddenPath]]] = {}
    for text in dict.fromkeys(texts):
        folded = text.text.casefold().replace(DOT_IN_PART, ".")
        first, dot, _ = folded.partition(".")
        is_whole = text.kind == "equals" or (text.kind == "starts" and dot)
        found.setdefault(first if is_whole else "", []).append((folded, text))
    return found


def _is_near(text: str, path: str) -> bool:
    """Tell whether one of a text and a path is the beginning of the other."""
    return path.startswith(text) or text.startswith(path)


NO_NAMES: Final = SpelledNames()


MOST_SPELLINGS: Final = 16
"""Spellings of one name by forbids. A name with more is ambiguous."""


class _FoldedPath:
    """Path as one text, folded sign by sign."""

    def __init__(self, path: str, *, divided: bool) -> None:
        self.path = path
        self._divided = divided
        self.folded = self._fold(path)
        self._places: dict[int, int] | None = None
        if len(self.folded) != len(path):  # a sign may fold to several: where the n-th sign of the path begins
            lengths = accumulate((len(sign.casefold()) for sign in path), initial=0)
            self._places = {place: number for number, place in enumerate(lengths)}

    def _fold(self, text: str) -> str:
        return text.casefold() if self._divided else text.casefold().replace(DOT_IN_PART, ".")

    def respelled(self, text: ForbiddenPath) -> Iterator[str]:
        """Yield the path in the spelling of a text at each place where both fold to the same."""
        folded = self._fold(text.text)
        at = self.folded.find(folded)
        while at == 0 or (at > 0 and text.kind not in ("equals", "starts")):
            if self._is_met(text.kind, at, at + len(folded)):
                yield from self._with(text.text, at, at + len(folded))
            at = self.folded.find(folded, at + 1)

    def _is_met(self, kind: str, start: int, end: int) -> bool:
        """Tell whether a text may stand between two places."""
        if kind == "parts":
            return self.folded[start - 1 : start] in ("", ".") and self.folded[end : end + 1] in ("", ".")
        return end == len(self.folded) or kind in ("starts", "contains")

    def _with(self, text: str, start: int, end: int) -> Iterator[str]:
        """Yield the path with a text between two places of the folded path, unless a place is within a sign."""
        places = self._places
        if places is None:
            yield self.path[:start] + text + self.path[end:]
        elif start in places and end in places:
            yield self.path[: places[start]] + text + self.path[places[end] :]


def other_texts(own: str, texts: Sequence[ForbiddenPath], *, divided: bool = True) -> list[str]:
    """Return a path in the spelling of each text, and of each pair of texts: one forbid may test a path twice.

    Without `divided`, a dot within a part equals one between parts. At most one spelling more than MOST_SPELLINGS.
    """
    folded = _FoldedPath(own, divided=divided)
    found: dict[str, None] = {own: None}
    for text in texts:
        found.update(dict.fromkeys(folded.respelled(text)))
        if len(found) > MOST_SPELLINGS:
            break
    for other in tuple(found)[1:]:
        again = _FoldedPath(other, divided=divided)
        for text in texts:
            found.update(dict.fromkeys(again.respelled(text)))
            if len(found) > MOST_SPELLINGS + 1:
                break
    return list(found)[1:]
