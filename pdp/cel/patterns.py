"""`matches`: RE2, linear in the text and found anywhere in it, and the patterns that need no regex at all."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import re2

from pdp.cel.arithmetic import bytes_from_string
from pdp.cel.values import RuleError

MAX_PATTERN: Final = 10_000
"""Characters of a pattern."""
_MAX_CACHED_TEXT: Final = 512
_PLAIN: Final = re.compile(r"(?:[^\\.^$*+?()\[\]{}|]|\\[.^$*+?()\[\]{}|\\/-]|\[[^\\^\]\[]\])*", re.DOTALL)
_PIECE: Final = re.compile(r"\\(.)|\[(.)\]", re.DOTALL)


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 4 << 20
    return options


class Pattern:
    """A compiled pattern; compares by identity, which is what the cache of answers is keyed by."""

    __slots__ = ("_regex",)

    def __init__(self, text: str) -> None:
        """Raises RuleError where RE2 refuses the pattern."""
        if len(text) > MAX_PATTERN:
            raise RuleError(f"pattern longer than {MAX_PATTERN} characters")
        try:
            self._regex = re2.compile(bytes_from_string(text), _options())
        except re2.error as error:
            raise RuleError(f"invalid pattern `{text:.80}`: {_reason(error)}") from None

    def find(self, text: str) -> bool:
        """Whether the pattern matches anywhere in `text`."""
        if len(text) <= _MAX_CACHED_TEXT:
            return _find_cached(self, text)
        return self.search(text)

    def search(self, text: str) -> bool:
        """A lone surrogate is no UTF-8 and matches nothing; an error here would be one that no rule expects."""
        return self._regex.search(text.encode("utf-8", "surrogatepass")) is not None


@lru_cache(maxsize=16_384)
def _find_cached(pattern: Pattern, text: str) -> bool:
    return pattern.search(text)


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """The pattern of `text`; raises RuleError."""
    return Pattern(text)


def matches(text: str, pattern: str) -> bool:
    """`text.matches(pattern)` where the pattern is known at run time only."""
    return compile_pattern(pattern).find(text)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unknown"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


class StringTest(NamedTuple):
    """What a pattern without regex says: `kind` is equals, starts, ends or contains, of any of `texts`.

    `one_line` adds that the text holds no newline, which a `.*` at an anchored end means.
    """

    kind: str
    texts: tuple[str, ...]
    one_line: bool = False


def find_string_test(pattern: str) -> StringTest | None:
    """How to decide `pattern` without a regex, or None."""
    begins, ends = pattern.startswith("^"), _ends_anchored(pattern)
    body = pattern[begins : len(pattern) - ends]
    body, open_start = _trim_start(body)
    body, open_end = _trim_end(body)
    texts = _alternatives(body)
    half_open = (begins and open_start and not ends) or (ends and open_end and not begins)
    if texts is None or half_open:
        return None
    one_line = begins and ends and (open_start or open_end)
    if one_line and any("\n" in text for text in texts):
        return None
    return StringTest(_test(begins and not open_start, ends and not open_end), texts, one_line)


def _test(begins: bool, ends: bool) -> str:
    if begins:
        return "equals" if ends else "starts"
    return "ends" if ends else "contains"


def _ends_anchored(pattern: str) -> bool:
    stripped = pattern.removesuffix("$")
    return stripped != pattern and (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 0


def _trim_start(body: str) -> tuple[str, bool]:
    if body.startswith(".*") and body[2:3] not in ("?", "*", "+", "{"):
        return body[2:], True
    return body, False


def _trim_end(body: str) -> tuple[str, bool]:
    stripped = body.removesuffix(".*")
    if stripped != body and (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 0:
        return stripped, True
    return body, False


def _alternatives(body: str) -> tuple[str, ...] | None:
    grouped = body.startswith("(") and body.endswith(")") and body[1:2] != "?" and body[-2:-1] != "\\"
    parts = body[1:-1].split("|") if grouped else [body]
    if not all(_PLAIN.fullmatch(part) for part in parts):
        return None
    return tuple(_PIECE.sub(lambda match: match[1] or match[2], part) for part in parts)
