"""Other spellings of a name by forbids: all of a short name, and few steps for any name that a caller makes up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdp.engines import spelled_names
from pdp.engines.engine import ANY_TEXT, DOT_IN_PART, ForbiddenPath
from pdp.engines.spelled_names import MOST_SPELLINGS, SpelledNames, other_texts
from pdp.errors import AmbiguousName

KINDS: tuple[Literal["equals", "starts", "ends", "contains", "parts"], ...] = (
    "equals",
    "starts",
    "ends",
    "contains",
    "parts",
)


def fold(text: str, divided: bool) -> str:
    return text.casefold() if divided else text.casefold().replace(DOT_IN_PART, ".")


def respelled(path: str, text: ForbiddenPath, divided: bool) -> Iterator[str]:
    """Yield a path with a text in place of each piece that folds to the same."""
    if text.kind == "contains" and text.text in path:
        return
    for start in range(len(path) + 1):
        for end in range(start, len(path) + 1):
            before, piece, after = (fold(each, divided) for each in (path[:start], path[start:end], path[end:]))
            is_met = {
                "equals": not before and not after,
                "starts": not before,
                "ends": not after,
                "contains": True,
                "parts": before[-1:] in ("", ".") and after[:1] in ("", "."),
            }[text.kind]
            if is_met and piece == fold(text.text, divided):
                yield path[:start] + text.text + path[end:]


def every_spelling(path: str, texts: Sequence[ForbiddenPath], divided: bool) -> set[str]:
    """Return all spellings by texts of one forbid, one after the other."""
    found, pending = {path}, [path]
    while pending and len(found) <= MOST_SPELLINGS + 1:
        others = {other for text in texts for other in respelled(pending[-1], text, divided)} - found
        pending[-1:] = others
        found |= others
    return found - {path}


SIGNS = st.text(st.sampled_from(["a", "A", "b", ".", DOT_IN_PART, "\u00df", "s", "\u0130"]), min_size=1, max_size=6)
TEXTS = st.lists(st.builds(ForbiddenPath, SIGNS, st.none(), st.sampled_from(KINDS), st.just("f")), max_size=4)


@settings(max_examples=400, deadline=None)
@given(SIGNS, TEXTS, st.booleans())
@example("AaAaA", [ForbiddenPath("a", None, "parts", "f"), ForbiddenPath("A", None, "ends", "f")], True)
def test_a_short_name_has_every_spelling(path: str, texts: list[ForbiddenPath], divided: bool) -> None:
    found, every = other_texts(path, texts, divided=divided), every_spelling(path, texts, divided)
    assert (set(found) == every) if len(every) <= MOST_SPELLINGS else (len(found) == MOST_SPELLINGS + 1)
    assert len(set(found)) == len(found)


class TooManySteps(Exception):
    """More lines than any name may cost."""


def bound_steps(work: Callable[[], object], most: int) -> None:
    """Do work; raise TooManySteps as soon as more lines of the module run."""
    count = 0

    def line(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        if count > most:
            raise TooManySteps
        return line

    def call(frame: FrameType, event: str, arg: object) -> Any:
        return line if frame.f_code.co_filename == spelled_names.__file__ else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)


HOSTILE = ("aA", "pIi", "A", "a", "\u00df", "S\u00df", "A.", "a.A.", "a" * 40 + "A", "Secret", "\u0130")
WORDS = ("pii", "Aa", "a", "SS", "a.a", "Secret", "a" * 30)
PATTERNS = ("*a*", "a*a", "*A*a*A*a*", "*A.a", "pii*", "*S*", "a.*A", "*i*p*I*")
FORBIDDEN = [
    *(ForbiddenPath(text, None, kind, forbid) for text in WORDS for kind in KINDS for forbid in ("", "f")),
    *(ForbiddenPath(text.replace("*", ANY_TEXT), None, "like", "f") for text in PATTERNS),
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("length", [64, 1_024, 4_096])
def test_the_steps_of_a_name_do_not_grow_with_the_name(piece: str, length: int) -> None:
    names, name = SpelledNames(forbidden=tuple(FORBIDDEN)), (piece * length)[:length]

    def work() -> None:
        try:
            names.other_paths("lake", ("s", name))
        except AmbiguousName:
            return

    for texts in (FORBIDDEN, *([text] for text in FORBIDDEN)):
        bound_steps(partial(other_texts, name, texts), 30_000)
        assert len(other_texts(name, texts)) <= MOST_SPELLINGS + 1
    bound_steps(work, 30_000)


def test_too_many_places_are_ambiguous() -> None:
    """A pattern may meet a name nearly everywhere."""
    pattern = [ForbiddenPath(f"{ANY_TEXT}a{ANY_TEXT}", None, "like", "f")]
    assert len(other_texts("A" + "a" * 300, pattern)) > MOST_SPELLINGS
    assert other_texts("A" + "a" * 200, pattern) == ["a" * 201]
