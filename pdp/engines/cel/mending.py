"""Usual mistakes in rules that were pasted from a manual, and the mended text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pdp.cel.syntax import CompileError
from pdp.engines.cel.program import compile_program

_PLACEHOLDER: Final = re.compile(r"<[^<>]+>")


def mended_text(text: str, extensions: frozenset[str] = frozenset()) -> str | None:
    """Return the text with the usual mistakes mended; None if the result does not compile.

    The mistakes are a backtick for a quote, a bracket too many at the end, and a single backslash in a pattern.
    """
    for mended in _candidates(text):
        try:
            compile_program(mended, extensions)
        except CompileError:
            continue
        return mended
    return None


def _candidates(text: str) -> Iterator[str]:
    quoted = text.replace("`", "'")
    for one in (quoted, text):
        if one != text:
            yield one
        if one.rstrip().endswith(")"):
            yield one.rstrip().removesuffix(")")
    if "\\" in text:
        yield text.replace("\\", "\\\\")


def advice_for_rule(text: str, file: str, extensions: frozenset[str] = frozenset()) -> str:
    """Return advice for a rule that does not compile, in the escapes of its file; "" without advice."""
    if _PLACEHOLDER.fullmatch(text.strip()):
        return f"`{text.strip()}` is a placeholder: write an expression such as `op=='VIEW_REFERENCE' && ref=='main'`"
    mended = mended_text(text, extensions)
    if mended is None:
        return ""
    shown = mended.replace("\\", "\\\\") if file.endswith(".properties") else mended
    return f"write `{' '.join(shown.split())}`"
