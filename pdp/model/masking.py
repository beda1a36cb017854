"""Masks of secrets in properties, attributes and arguments that records and explanations show.

A value is a secret if its key contains one of the words, in any case, at any depth. Decisions see the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

SECRET_WORDS: Final = ("password", "secret", "token", "key", "credential")
MASK: Final = "***"


class Masker:
    """Masker of values by key. `words` are added to `SECRET_WORDS`."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._words = (*SECRET_WORDS, *(word.lower() for word in words))

    def masked(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values with a mask in place of every secret; the same object if there is none."""
        shown = {key: MASK if self._is_secret(key) else self._masked(value) for key, value in values.items()}
        unchanged = all(shown[key] is value for key, value in values.items())
        return values if unchanged else shown

    def _masked(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return self.masked(value)
        if isinstance(value, list | tuple):
            items = [self._masked(item) for item in value]
            return value if all(map(_is_same, items, value)) else items
        return value

    def _is_secret(self, key: str) -> bool:
        lowered = str(key).lower()
        return any(word in lowered for word in self._words)


def _is_same(one: object, other: object) -> bool:
    return one is other


DEFAULT_MASKER: Final = Masker()
