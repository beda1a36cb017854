"""Patterns compiled by RE2. Loaded with the first pattern that no string test decides."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import re2

from pdp.cel.arithmetic import bytes_from_string
from pdp.cel.patterns import MAX_PATTERN
from pdp.cel.values import PatternError, RuleError

_MAX_CACHED_TEXT: Final = 512


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 4 << 20
    return options


class Pattern:
    """Compiled pattern. Patterns compare by identity, so the cache of results can use a pattern as a key."""

    __slots__ = ("_regex",)

    def __init__(self, text: str) -> None:
        """Compile `text`. Raise RuleError if RE2 refuses the pattern."""
        if len(text) > MAX_PATTERN:
            raise RuleError(f"pattern longer than {MAX_PATTERN} characters")
        try:
            self._regex = re2.compile(bytes_from_string(text), _options())
        except re2.error as error:
            raise PatternError(text, _reason(error)) from None

    def find(self, text: str) -> bool:
        """Tell whether the pattern matches anywhere in `text`. Results for short texts are cached."""
        if len(text) <= _MAX_CACHED_TEXT:
            return _find_cached(self, text)
        return self.search(text)

    def search(self, text: str) -> bool:
        """Tell the same without the cache.

        A lone surrogate is not valid UTF-8 and matches nothing. No error is raised, because the emitter treats the
        search in a string as a call that cannot fail.
        """
        return self._regex.search(text.encode("utf-8", "surrogatepass")) is not None


@lru_cache(maxsize=16_384)
def _find_cached(pattern: Pattern, text: str) -> bool:
    return pattern.search(text)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unknown"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
