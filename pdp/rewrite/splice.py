"""Edits of a text: the rest of a text stays to the letter. Reads no SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pdp.rewrite.errors import PARSE_ERROR, RewriteRefused


class Edit(NamedTuple):
    """Replacement of the characters from `start` to before `end`. Equal places mean an insertion."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits. The same edit twice counts once; raise RewriteRefused for edits that overlap."""
    pieces: list[str] = []
    at = 0
    last: Edit | None = None
    for edit in sorted(edits):
        if edit == last:
            continue
        if edit.start < at:
            raise RewriteRefused(PARSE_ERROR, "two references stand in the same place")
        pieces += (text[at : edit.start], edit.text)
        at, last = edit.end, edit
    return "".join((*pieces, text[at:]))


def without_spans(text: str, spans: Sequence[tuple[int, int]]) -> list[Edit]:
    """Return the edits that put a blank in place of each span."""
    return [Edit(start, end, " ") for start, end in spans]
