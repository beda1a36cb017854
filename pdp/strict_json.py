"""JSON from strangers: typed, without duplicate keys, without bottomless nesting.

Decoders keep the last of duplicate keys silently, and another reader may keep the first: a body that two readers
understand differently is refused.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from pdp.errors import InvalidArgument

T = TypeVar("T")


def decode(body: bytes, decoder: msgspec.json.Decoder[T], *, typed: bool = False) -> T:
    """The typed value of a body; raises InvalidArgument, naming the field, on anything else.

    `typed` says that the type holds no raw JSON: then a body that equals its re-encoding holds nothing twice.
    """
    value = parse(body, decoder)
    if not typed or msgspec.json.encode(value) != body:
        refuse_duplicates(body)
    return value


def parse(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The typed value of a body that is still to be shown to hold no key twice."""
    try:
        return decoder.decode(body)
    except RecursionError:
        raise InvalidArgument("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise InvalidArgument(sentence(str(error))) from None


def refuse_duplicates(body: bytes) -> None:
    """Raise InvalidArgument where an object of a body holds a key twice."""
    try:
        json.loads(body, object_pairs_hook=_unique)
    except RecursionError:
        raise InvalidArgument("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidArgument(sentence(str(error))) from None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"duplicate key `{key}`")
        seen.add(key)


def sentence(text: str) -> str:
    """A library's message in our form: one line, not capitalised."""
    first = text[:1] if text[1:2].isupper() else text[:1].lower()
    return first + text[1:].replace("\n", " ")
