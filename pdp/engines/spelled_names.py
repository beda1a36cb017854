"""Names as policies spell them. Query engines fold names, so a forbid binds a name in every spelling.

Owns the other spellings of a path. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, islice, repeat
from typing import Final, TypeAlias

import msgspec
from immutables import Map
from msgspec.structs import replace

from pdp.engines.engine import ANY_TEXT, DOT_IN_PART, ForbiddenPath, NamingEngine
from pdp.errors import AmbiguousName
from pdp.facts.index import Index
from pdp.facts.nodes import ObjectNode
from pdp.facts.objects import ContainerPath, Object, ObjectName, ObjectPut
from pdp.model.arrays import Path
from pdp.model.references import MOST_PARTS


class SpelledNames(msgspec.Struct, frozen=True, dict=True):
    """Names as policies spell them: `declared` objects, by container, and texts that forbids compare with paths.

    `described` are the declared objects beside forbids, which may read attributes: paths by warehouse and folded path.
    """

    declared: Map[ContainerPath, Map[ObjectName, ObjectNode]] = Map()
    forbidden: tuple[ForbiddenPath, ...] = ()
    described: Mapping[tuple[str, str], Sequence[Path]] = {}

    @classmethod
    def of(cls, engines: Sequence[NamingEngine]) -> SpelledNames:
        """Return the names of engines, with their index."""
        declared = Index().after(ObjectPut(Object(key)) for engine in engines for key in engine.declared_objects())
        described: dict[tuple[str, str], list[Path]] = {}
        forbidding = (engine for engine in engines if getattr(engine, "has_forbids", False))
        for _, (warehouse, *path) in dict.fromkeys(key for each in forbidding for key in each.declared_objects()):
            described.setdefault((warehouse, ".".join(path).casefold()), []).append(tuple(path))
        texts = tuple(path for engine in engines for path in engine.forbidden_paths())
        names = cls(declared.objects, texts, described)
        _ = names._by_first, names._with_capitals, names._above_capitals
        return names

    @property
    def may_spell(self) -> bool:
        """Tell whether any name may have another spelling."""
        return bool(self.forbidden or self.described)

    @cached_property
    def _by_first(self) -> _TextsByFirst:
        return _texts_by_first(self.forbidden)

    @cached_property
    def _with_capitals(self) -> _TextsByFirst:
        return _texts_by_first(text for text in self.forbidden if text.text != text.text.casefold())

    @cached_property
    def _above_capitals(self) -> frozenset[tuple[str, str]]:
        """Folded paths of described objects with capitals, and of the containers above."""
        spelled = ((warehouse, path) for (warehouse, folded), some in self.described.items() for path in some)
        return frozenset(
            (warehouse, folded)
            for warehouse, path in spelled
            if (joined := ".".join(path)) != joined.casefold()
            for folded in _folded_prefixes(path)
        )

    def _as_described(self, warehouse: str, path: Sequence[str]) -> Iterator[Path]:
        """Yield a path with the object, or a container above, in the spelling of a described object."""
        for count in range(len(path), 0, -1) if self.described else ():
            above = tuple(path[:count])
            for spelled in self.described.get((warehouse, ".".join(above).casefold()), ()):
                if spelled != above:
                    yield (*spelled, *path[count:])

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
        """Return the other paths of a name in the spellings of forbids and of what they read, however dots divide it.

        A policy of the name covers them, and an engine that folds names may mean one. Raise AmbiguousName for too many.
        """
        joined = ".".join(path)
        folded = joined.casefold()
        # To a name without capitals, a text without capitals is no other spelling, unless dots divide it otherwise.
        is_plain = joined == folded and joined.count(".") == len(path) - 1
        here = list(self.texts_near(warehouse, folded, with_capitals=is_plain))
        described = list(dict.fromkeys(self._as_described(warehouse, path)))
        if not here and len(described) <= MOST_SPELLINGS:
            return described
        own = ".".join(part.replace(".", DOT_IN_PART) for part in path)
        others = other_texts(own, here, divided=False)
        if len(others) + len(described) > MOST_SPELLINGS or joined.count(".") >= MOST_PARTS:
            raise AmbiguousName(f"forbids spell `{joined[:200]}` in too many ways")
        texts = (other for text in (own, *others) for other in (text, text.replace(DOT_IN_PART, ".")))
        divided = dict.fromkeys(tuple(part.replace(DOT_IN_PART, ".") for part in text.split(".")) for text in texts)
        more = [other for other in divided if other != tuple(path) and all(other)]
        return list(dict.fromkeys((*more, *described)))

    def may_have_others(self, warehouse: str, parents: Sequence[Sequence[str]], names: Sequence[str]) -> bool:
        """Tell whether a name in a container may have another spelling by a forbid; in doubt True."""
        joined = "".join([*names, *(part for parent in parents for part in parent)])
        if "." in joined or joined != joined.casefold() or not all(parents):
            return True
        if self._above_capitals:
            above = {(warehouse, folded) for parent in parents for folded in _folded_prefixes(parent)}
            if not above.isdisjoint(self._above_capitals):
                return True
        return any(True for parent in parents for _ in self.texts_near(warehouse, ".".join(parent), with_capitals=True))


def _folded_prefixes(path: Sequence[str]) -> Iterator[str]:
    for count in range(1, len(path) + 1):
        yield ".".join(path[:count]).casefold()


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
_MOST_PLACES: Final = 256
"""Places of one name where texts of forbids may stand. A name with more is ambiguous."""
_Place: TypeAlias = tuple[str, int, int]
"""Text of a forbid, and a place for the text in a folded path."""
_Signs: TypeAlias = Mapping[int, int]
"""Offset in a folded path -> offset in the path. Offsets within a sign are absent."""
_Met: TypeAlias = list[tuple[ForbiddenPath, list[tuple[_Place, ...]]]]
"""Texts of a forbid, each with the places in a folded path. The pieces of a pattern have a place each."""


def other_texts(own: str, texts: Sequence[ForbiddenPath], *, divided: bool = True) -> list[str]:
    """Return a path in the spelling of each text, and of several texts of one forbid, which may test a path often.

    Without `divided`, a dot within a part equals one between parts. For too many spellings or places, return
    MOST_SPELLINGS + 1 texts. Callers choose the length of a path: the cost grows with the length and no faster.
    """
    met: dict[str, _Met] = {}
    places: list[tuple[_Place, ...]] = []
    for text in texts:
        found = list(islice(_places(own, text, divided=divided), _MOST_PLACES + 1 - len(places)))
        places += found
        if found:
            met.setdefault(text.forbid, []).append((text, found))
    if len(places) > _MOST_PLACES:
        return [own] * (MOST_SPELLINGS + 1)
    every = dict(_signs(own)) if places else {}
    signs = {bound: every[bound] for pieces in places for _, *both in pieces for bound in both if bound in every}
    others: dict[str, None] = {}
    for forbid, tests in met.items():
        for other in _spellings(own, signs, tests, combined=bool(forbid)):
            others[other] = None
            if len(others) > MOST_SPELLINGS:
                return list(others)
    return list(others)


def words_of_pattern(text: ForbiddenPath) -> Iterator[ForbiddenPath]:
    """Yield the words of a pattern as parts of paths, and any other text unchanged."""
    if text.kind != "like":
        yield text
        return
    for word in filter(None, text.text.split(ANY_TEXT)):
        yield replace(text, text=word, kind="parts")


def _spellings(own: str, signs: _Signs, tests: _Met, *, combined: bool) -> Iterator[str]:
    """Yield each other spelling of a path by one text, with `combined` by any number of texts; too many are cut."""
    found, pending = {own}, [(own, signs)]
    while pending:
        path, signs = pending.pop()
        for text, places in tests:
            if text.kind == "contains" and text.text in path:
                continue  # no other spelling meets the text more
            for pieces in places:
                other = _with(path, signs, pieces)
                if other is not None and other[0] not in found:
                    found.add(other[0])
                    yield other[0]
                    if len(found) > MOST_SPELLINGS + 1:
                        return
                    pending += [other] if combined else ()


def _with(path: str, signs: _Signs, pieces: Sequence[_Place]) -> tuple[str, _Signs] | None:
    """Return a path with texts at places, and the signs; None for an equal path, or for a place within a sign."""
    changed = path
    for place in pieces:
        text, first, last = place
        start, end = signs.get(first, -1), signs.get(last, -1)
        if min(start, end) < 0:
            return None
        if changed[start:end] != text:
            changed = changed[:start] + text + changed[end:]
            signs = _signs_with(place, signs)
    return None if changed is path else (changed, signs)


def _fold(text: str, *, divided: bool) -> str:
    return text.casefold() if divided else text.casefold().replace(DOT_IN_PART, ".")


def _places(own: str, text: ForbiddenPath, *, divided: bool) -> Iterator[tuple[_Place, ...]]:
    """Yield where a text may stand in a folded path."""
    path, folded = _fold(own, divided=divided), _fold(text.text, divided=divided)
    size = len(folded)
    if text.kind == "like":
        yield from _alike(own, text.text, path)
    elif text.kind in ("equals", "starts", "ends"):
        start = max(0, len(path) - size) if text.kind == "ends" else 0
        if path.startswith(folded, start) and (text.kind == "starts" or start + size == len(path)):
            yield ((text.text, start, start + size),)
    elif folded:
        around, sought = (f".{path}.", f".{folded}.") if text.kind == "parts" else (path, folded)
        start = around.find(sought)
        while start >= 0:
            yield ((text.text, start, start + size),)
            start = around.find(sought, start + 1)


def _alike(own: str, pattern: str, path: str) -> Iterator[tuple[_Place, ...]]:
    """Yield where the pieces of a pattern may stand in a folded path, together, for each name that policies may see.

    Such a name is some first parts of the path, or last ones. Dots stay, between and within parts.
    """
    if path.count(".") >= MOST_PARTS:
        yield from repeat((), _MOST_PLACES + 1)  # too many names
        return
    raw = own.casefold()
    dotted, size = raw.replace(DOT_IN_PART, "."), len(path)
    pieces = [(piece, piece.casefold()) for piece in pattern.split(ANY_TEXT) if piece]
    dots = [at - 1 for at in accumulate(len(part) + 1 for part in path.split("."))][:-1]
    names = [(0, size)]
    names += [] if pattern.endswith(ANY_TEXT) else [(0, at) for at in dots]
    names += [] if pattern.startswith(ANY_TEXT) else [(at + 1, size) for at in dots]
    for start, end in names if pieces else ():
        for found in _aligned(dotted, pieces, pattern, (start, end)):
            ends = [at + len(folded) for at, (_, folded) in zip(found, pieces, strict=True)]
            texts = [_with_dots(piece, raw[at:to]) for at, to, (piece, _) in zip(found, ends, pieces, strict=True)]
            yield tuple(zip(texts, found, ends, strict=True))


def _aligned(
    path: str, pieces: Sequence[tuple[str, str]], pattern: str, name: tuple[int, int]
) -> Iterator[tuple[int, ...]]:
    """Yield the places of a pattern's pieces in a name, in order: a piece without letters at the first place alone."""
    start, end = name
    latest: list[int] = []
    for _, folded in reversed(pieces):
        latest.insert(0, end := path.rfind(folded, start, end))
        if end < 0:
            return
    _, last = pieces[-1]
    if not (pattern.endswith(ANY_TEXT) or latest[-1] + len(last) == name[1]):
        return
    pending: list[tuple[int, ...]] = [()]
    while pending:
        chosen = pending.pop()
        number = len(chosen)
        if number == len(pieces):
            yield chosen
            continue
        free = chosen[-1] + len(pieces[number - 1][1]) if chosen else start
        is_first, is_last = not (chosen or pattern.startswith(ANY_TEXT)), number == len(pieces) - 1
        if is_last and not pattern.endswith(ANY_TEXT):
            places = [latest[number]]
        else:
            places = _found(path, pieces[number], free, latest[number])
        pending += [(*chosen, at) for at in places if at >= free and not (is_first and at != start)]


def _found(path: str, piece: tuple[str, str], free: int, latest: int) -> list[int]:
    """Return the places of a piece from one place to another; the first alone where no spelling changes the piece."""
    text, folded = piece
    places, at = list[int](), path.find(folded, free, latest + len(folded))
    while at >= 0 and len(places) <= _MOST_PLACES:
        places.append(at)
        at = path.find(folded, at + 1, latest + len(folded)) if text.lower() != text.upper() else -1
    return places


def _with_dots(piece: str, own: str) -> str:
    """Return a piece of a pattern with the dots of a path, which stand within or between parts."""
    dots = (sign for sign in own if sign in (".", DOT_IN_PART))
    return "".join(next(dots) if sign == "." else sign for sign in piece) if DOT_IN_PART in own else piece


def _signs(text: str) -> Iterable[tuple[int, int]]:
    """Return where each sign begins: in the folded text, where a sign may be several, and in the text."""
    return zip(accumulate(map(len, map(str.casefold, text)), initial=0), range(len(text) + 1), strict=True)


def _signs_with(place: _Place, signs: _Signs) -> _Signs:
    """Return the signs of a path once a text stands at a place. Reads the text alone, for a path may be long."""
    text, first, last = place
    start = signs[first]
    more = start + len(text) - signs[last]
    around = {folded: at if folded <= first else at + more for folded, at in signs.items() if not first < folded < last}
    return around | {first + folded: start + at for folded, at in _signs(text)}


ANY_NAME: Final = "t"
"""Name of an object that nobody knows."""


def names_below(warehouse: str, path: Sequence[str], texts: Iterable[ForbiddenPath]) -> Iterator[tuple[str, ...]]:
    """Yield the paths below a namespace that forbids name: whole paths, and any name where a text meets the namespace.

    A pattern, or a rule that is more than plain tests, is known by its words. If one is a part of the namespace's path,
    the others may be names within. So may texts of other tests where one meets the namespace, as in
    `startsWith('v.') && endsWith('.t')`.
    """
    inside = "".join(f"{part.replace('.', DOT_IN_PART)}." for part in path)
    folded = inside.casefold()
    named = (text for text in texts if text.warehouses is None or warehouse in text.warehouses)
    here = [word for text in named for word in words_of_pattern(text)]
    found = [text.text for text in here if text.text.casefold().startswith(folded)]
    if met := {spelled for text in here for spelled in _spellings_met(inside, folded, text)}:
        ends = {text.text.lstrip(".") for text in here if text.kind not in ("equals", "starts")}
        # a word may end the path of a namespace
        ends |= {f"{text.text.strip('.')}." for text in here if text.kind == "parts"}
        names = sorted({ANY_NAME, *ends, *(ANY_NAME + end for end in ends)})
        found += [spelled + name for spelled in sorted(met) for name in names]
    for text in here:
        found += _straddling(inside, folded, text)
    for joined in dict.fromkeys(text + ANY_NAME if text.endswith(".") else text for text in found):
        yield tuple(part.replace(DOT_IN_PART, ".") for part in joined.split("."))


def _spellings_met(inside: str, folded: str, path: ForbiddenPath) -> Iterator[str]:
    """Yield the beginning of all paths in a schema, if the text of a forbid meets the path: as written, and respelled.

    A word begins a part of the path.
    """
    text = path.text.casefold()
    if not text or path.kind == "equals":
        return
    at = f".{folded}".find(f".{text}") if path.kind == "parts" else folded.find(text)
    if at < 0 or (path.kind == "starts" and at):
        return
    yield inside
    if len(text) == len(path.text) and len(folded) == len(inside):
        yield inside[:at] + path.text + inside[at + len(text) :]


def _straddling(inside: str, folded: str, path: ForbiddenPath) -> Iterator[str]:
    """Yield the paths in a schema with a text of a forbid that begins with letters of the schema's path."""
    if path.kind not in ("ends", "contains"):
        return
    text = path.text
    for cut in range(1, len(text)):
        if text[:cut].strip(".") and folded.endswith(text[:cut].casefold()):
            yield inside + text[cut:]
