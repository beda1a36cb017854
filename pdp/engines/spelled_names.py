"""Names as policies spell them. Query engines fold names, so a forbid binds a name in every spelling.

Owns the other spellings of a path. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

import msgspec
from immutables import Map
from msgspec.structs import replace

from pdp.engines.engine import ANY_TEXT, DOT_IN_PART, ForbiddenPath, NamingEngine
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
        own = ".".join(part.replace(".", DOT_IN_PART) for part in path)
        others = other_texts(own, here, divided=False)
        if len(others) > MOST_SPELLINGS:
            raise AmbiguousName(f"forbids spell `{joined[:200]}` in too many ways")
        texts = (other for text in (own, *others) for other in (text, text.replace(DOT_IN_PART, ".")))
        divided = dict.fromkeys(tuple(part.replace(DOT_IN_PART, ".") for part in text.split(".")) for text in texts)
        return [other for other in divided if other != tuple(path) and all(other)]

    def may_have_others(self, warehouse: str, parents: Sequence[Sequence[str]], names: Sequence[str]) -> bool:
        """Tell whether a name in a container may have another spelling by a forbid; in doubt True."""
        joined = "".join([*names, *(part for parent in parents for part in parent)])
        if "." in joined or joined != joined.casefold() or not all(parents):
            return True
        return any(True for parent in parents for _ in self.texts_near(warehouse, ".".join(parent), with_capitals=True))


_ANYWHERE: Final = ("ends", "contains", "parts", "like")
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


class _Placed(NamedTuple):
    """Text at a place of a folded path."""

    start: int
    end: int
    text: str


class _FoldedPath:
    """Path as one text, folded sign by sign."""

    def __init__(self, path: str, *, divided: bool) -> None:
        self.path = path
        self._divided = divided
        folded = path.casefold()
        self._dotted = folded.replace(DOT_IN_PART, ".")
        self._folded = folded if divided else self._dotted
        self._places: dict[int, int] | None = None
        if len(folded) != len(path):  # a sign may fold to several: where the n-th sign of the path begins
            lengths = accumulate((len(sign.casefold()) for sign in path), initial=0)
            self._places = {place: number for number, place in enumerate(lengths)}

    def respelled(self, text: ForbiddenPath) -> Iterator[str]:
        """Yield the path in the spelling of a text at each place where both fold to the same."""
        if text.kind == "like":
            pieces = [piece for piece in text.text.split(ANY_TEXT) if piece]
            every = [self._found(self._dotted, piece.casefold(), piece) for piece in pieces]
            places = [[self._with_own_dots(one) for one in each] for each in every]
            for start, end in self._names() if places else ():
                yield from self._alike(_with_room(places, text.text, start, end), start)
        elif text.kind != "contains" or text.text not in self.path:  # else no other spelling meets the text more
            folded = text.text.casefold()
            found = self._found(self._folded, folded if self._divided else folded.replace(DOT_IN_PART, "."), text.text)
            yield from (self._with([one]) for one in found if self._is_met(text.kind, one.start, one.end))

    def _names(self) -> Iterator[tuple[int, int]]:
        """Yield where each name begins and ends that policies may see: some first parts of the path, or last ones."""
        length = len(self._folded)
        dots = [at for at, sign in enumerate(self._folded) if sign == "."]
        yield from ((0, end) for end in (*dots, length))
        yield from ((at + 1, length) for at in dots)

    def _found(self, path: str, folded: str, text: str) -> list[_Placed]:
        """Return the places of a folded text, but for those within a sign."""
        found, at = list[_Placed](), path.find(folded)
        while at >= 0:
            end = at + len(folded)
            if self._places is None or {at, end} <= self._places.keys():
                found.append(_Placed(at, end, text))
            at = path.find(folded, at + 1)
        return found

    def _is_met(self, kind: str, start: int, end: int) -> bool:
        """Tell whether a text may stand between two places."""
        if kind == "parts":
            return self._folded[start - 1 : start] in ("", ".") and self._folded[end : end + 1] in ("", ".")
        if kind in ("equals", "starts") and start:
            return False
        return end == len(self._folded) or kind in ("starts", "contains")

    def _alike(self, places: Sequence[Sequence[_Placed]], start: int) -> Iterator[str]:
        """Yield the path with each piece of a pattern at one of its places, in order.

        No place is tried behind one where the path has the piece's own spelling: it would leave no more room.
        """
        pending: list[tuple[_Placed, ...]] = [()] if places[0] else []
        while pending:
            chosen = pending.pop()
            if len(chosen) == len(places):
                yield self._with(chosen)
                continue
            free, choices = chosen[-1].end if chosen else start, list[_Placed]()
            for one in places[len(chosen)]:
                if one.start >= free:
                    choices.append(one)
                    if self._with([one]) == self.path:
                        break
            pending += [(*chosen, one) for one in reversed(choices)]

    def _with_own_dots(self, one: _Placed) -> _Placed:
        """Return a piece of a pattern with dots within or between parts, as the path has them."""
        first, last = self._own(one)
        dots = iter(sign for sign in self.path[first:last] if sign in (".", DOT_IN_PART))
        return one._replace(text="".join(next(dots) if sign == "." else sign for sign in one.text))

    def _own(self, one: _Placed) -> tuple[int, int]:
        """Return where a place of the folded path begins and ends in the path."""
        return (one.start, one.end) if self._places is None else (self._places[one.start], self._places[one.end])

    def _with(self, texts: Sequence[_Placed]) -> str:
        """Return the path with texts at their places."""
        made, done = list[str](), 0
        for one in texts:
            first, last = self._own(one)
            made += (self.path[done:first], one.text)
            done = last
        return "".join((*made, self.path[done:]))


def _with_room(found: Sequence[Sequence[_Placed]], pattern: str, start: int, end: int) -> Sequence[Sequence[_Placed]]:
    """Return the places of each piece of a pattern between two places that leave room for the pieces behind it."""
    places = [[one for one in each if start <= one.start and one.end <= end] for each in found]
    if not pattern.startswith(ANY_TEXT):
        places[0] = [one for one in places[0] if one.start == start]
    if not pattern.endswith(ANY_TEXT):
        places[-1] = [one for one in places[-1] if one.end == end]
    for each in reversed(places):
        each[:] = [one for one in each if one.end <= end]
        end = each[-1].start if each else -1
    return places


def words_of_pattern(text: ForbiddenPath) -> Iterator[ForbiddenPath]:
    """Yield the words of a pattern as parts of paths, and any other text as it is."""
    if text.kind != "like":
        yield text
        return
    for word in filter(None, text.text.split(ANY_TEXT)):
        yield replace(text, text=word, kind="parts")


def other_texts(own: str, texts: Sequence[ForbiddenPath], *, divided: bool = True) -> list[str]:
    """Return a path in the spelling of each text, and of several texts of one forbid, which may test a path often.

    Without `divided`, a dot within a part equals one between parts. At most two spellings more than MOST_SPELLINGS.
    """
    forbids: dict[str, list[ForbiddenPath]] = {}
    for text in texts:
        forbids.setdefault(text.forbid, []).append(text)
    found: dict[str, None] = {own: None}
    for forbid, tests in forbids.items():
        found.update(dict.fromkeys(_spellings(own, tests, divided=divided, combined=bool(forbid))))
        if len(found) > MOST_SPELLINGS + 1:
            break
    return list(found)[1 : MOST_SPELLINGS + 3]


def _spellings(own: str, tests: Sequence[ForbiddenPath], *, divided: bool, combined: bool) -> list[str]:
    """Return a path in the spelling of tests, with `combined` of any number of them; too many are cut."""
    found: dict[str, None] = {own: None}
    pending = [own]
    while pending:
        folded = _FoldedPath(pending.pop(), divided=divided)
        for test in tests:
            for other in folded.respelled(test):
                if other not in found:
                    found[other] = None
                    pending += [other] if combined else ()
                if len(found) > MOST_SPELLINGS + 2:
                    return list(found)
    return list(found)
