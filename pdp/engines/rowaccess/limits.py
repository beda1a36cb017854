"""Sizes of filters and masks, of files and of the store: every process that rewrites reads all of them."""

from __future__ import annotations

import re
from typing import Final

LONGEST_SQL: Final = 10_000
"""Characters of a filter or of the expression of a mask."""
LONGEST_CONSTANT: Final = 1_000
"""Characters of the constant of a mask."""
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_sql_size(text: str) -> None:
    """Raise ValueError for a filter or expression that is too long."""
    if len(text) > LONGEST_SQL:
        raise ValueError(f"it has {len(text):,} characters, the limit is {LONGEST_SQL:,}: read a table in a subquery")


def check_constant(text: str) -> None:
    """Raise ValueError for a constant that is too long, or has no certain literal in every engine."""
    if len(text) > LONGEST_CONSTANT:
        raise ValueError(f"a constant has up to {LONGEST_CONSTANT:,} characters, not {len(text):,}")
    if _UNSAFE.search(text):
        raise ValueError("a constant has no control characters and no line breaks")
