"""JSON as text, piece by piece: a record is the pieces of its values, joined.

A string costs half as much here as in `msgspec`, whose result is bytes. `msgspec` writes all larger values.
"""

from __future__ import annotations

from collections.abc import Iterable
from json.encoder import encode_basestring as quote
from typing import Any, Final

import msgspec

__all__ = ["FLAGS", "json_text", "quote", "quote_all"]

FLAGS: Final = ("false", "true")
"""Text of 0 and 1, or of False and True."""


def json_text(value: Any) -> str:
    """Return any value as JSON."""
    return msgspec.json.encode(value).decode()


def quote_all(texts: Iterable[str]) -> str:
    """Return an array of strings as JSON."""
    return f"[{','.join(map(quote, texts))}]"
