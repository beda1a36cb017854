"""Masks of secrets in properties, attributes and arguments that records, explanations and logs show.

A value is a secret if the key contains one of the words, in any case, at any depth. SQL may hold literals of any kind:
keys of SQL are masked, too. Decisions see the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final

SECRET_WORDS: Final = ("password", "secret", "token", "key", "credential")
SQL_KEYS: Final = frozenset({"sql", "query", "statement"})
"""Keys, as a whole and in any case, whose values are texts of SQL."""
MASK: Final = "***"
_TEXTS: Final = frozenset({str})
_KEYS: Final = 1024
_LONGEST_KEY: Final = 64
"""Keys that a redactor remembers, and characters of a remembered key."""


class Redactor:
    """Redactor of values by key. `words` are added to `SECRET_WORDS`."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._words = (*SECRET_WORDS, *(word.lower() for word in words))
        self._known: dict[str, bool] = {}
        """Key -> whether its value is a secret. Two threads may use a redactor at once."""

    def masked(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values with a mask in place of every secret; the same object if there is none."""
        known = self._known.get
        for key, value in values.items():
            if known(key) is not False or not _is_text(value):
                break
        else:  # nearly always
            return values
        shown = {key: MASK if self._is_secret(key) else self._masked(value) for key, value in values.items()}
        unchanged = all(shown[key] is value for key, value in values.items())
        return values if unchanged else shown

    def places(self, value: Any, at: str) -> Iterator[str]:
        """Yield the places of all masks that `masked` puts into a value, as JSON pointers (RFC 6901).

        `at` is the place of the value.
        """
        if isinstance(value, Mapping):
            for key, part in value.items():
                place = f"{at}/{_pointer_part(key)}"
                if self._is_secret(key):
                    yield place
                else:
                    yield from self.places(part, place)
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                yield from self.places(item, f"{at}/{number}")

    def _masked(self, value: Any) -> Any:
        if type(value) is str:  # nearly all values; the next test costs much more
            return value
        if isinstance(value, Mapping):
            return self.masked(value)
        if isinstance(value, list | tuple):
            items = [self._masked(item) for item in value]
            return value if all(map(_is_same, items, value)) else items
        return value

    def _is_secret(self, key: str) -> bool:
        known = self._known.get(key)
        if known is not None:
            return known
        lowered = str(key).lower()
        found = lowered in SQL_KEYS or any(word in lowered for word in self._words)
        if type(key) is str and len(key) <= _LONGEST_KEY:
            if len(self._known) >= _KEYS:
                self._known.clear()
            self._known[key] = found
        return found


def _pointer_part(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return str(key).replace("~", "~0").replace("/", "~1")


def _is_text(value: Any) -> bool:
    """Tell whether a value is a text or a list of texts: no key inside can be that of a secret."""
    return type(value) is str or ((type(value) is list or type(value) is tuple) and set(map(type, value)) <= _TEXTS)


def _is_same(one: object, other: object) -> bool:
    return one is other


DEFAULT_MASKER: Final = Redactor()


class HiddenError(Exception):
    """Stand-in for an exception whose text may quote values of a request. The text names the type alone."""


def without_text(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return an exception for a log: the type and the traceback, without texts and causes."""
    return HiddenError, HiddenError(type(error).__name__), error.__traceback__
