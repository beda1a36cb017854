"""RE2 patterns of `matches`, and the patterns that a plain string test decides.

RE2 takes linear time and finds a pattern anywhere in the text. Source: the CEL specification (langdef.md), "Regular
Expressions".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pdp.cel.regex import Pattern

MAX_PATTERN: Final = 10_000
"""Most characters of a pattern."""
_LITERAL: Final = re.compile(r"(?:[^\\.^$*+?()\[\]{}|]|\\[.^$*+?()\[\]{}|\\/-]|\[[^\\^\]\[]\])*", re.DOTALL)
"""Pattern text that matches one string only: plain characters, escaped signs, and classes of one character."""
_ESCAPED: Final = re.compile(r"\\(.)|\[(.)\]", re.DOTALL)
_LONGEST_SIMPLE: Final = 500
_ATOM: Final = re.compile(
    r"(?:(?P<literal>[A-Za-z0-9_/:@,= -]|\\[.^$*+?()\[\]{}|/-]|\[[A-Za-z0-9_.]\])"
    r"|\.|\[\^?(?:a-z|A-Z|0-9|[A-Za-z0-9_.])+\])(?P<repeat>[+*?]?)"
)
"""Atom of a simple pattern: a literal character, a dot or a class, and the sign that repeats the atom."""
_SIMPLE: Final = re.compile(rf"\^?(?:{re.sub('[?]P<[a-z]+>', '?:', _ATOM.pattern)})*\$?")


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Return the compiled pattern. Raise RuleError if RE2 refuses the text."""
    from pdp.cel.regex import Pattern  # noqa: PLC0415  string tests decide most patterns without 2 MB of RE2

    return Pattern(text)


def matches(text: str, pattern: str) -> bool:
    """Compute `text.matches(pattern)` for a pattern known at run time only. Raise RuleError for an invalid pattern."""
    return compile_pattern(pattern).find(text)


class StringTest(NamedTuple):
    """Test that decides a pattern without a regex: the text equals, starts with, ends with or contains a string.

    `kind` is equals, starts, ends or contains. One of `texts` suffices. With `one_line`, the text must also hold no
    newline.
    """

    kind: str
    texts: tuple[str, ...]
    one_line: bool = False


def find_string_test(pattern: str) -> StringTest | None:
    r"""Return the string test that gives the same result as `pattern` for every text, or None.

    The pattern is split into an optional `^`, an optional `.*`, a body, an optional `.*` and an optional `$`. The body
    must be one literal string or a group of literal strings. In RE2, `$` is the very end of the text and `.` matches no
    newline. The cases follow:

    - `.*` at an end without an anchor adds nothing, since a match may begin and end anywhere: `.*a` is `a`.
    - `^.*a` and `a.*$` are None: the test would apply to the first or last line only, not to the whole text.
    - `^a.*$` demands that no newline follows `a`. If `a` holds no newline, the whole text must hold none: `one_line`.
    - `^.*a$` is the same from the other end, and `^.*a.*$` is `a` anywhere in a text of one line.
    """
    begins, ends = pattern.startswith("^"), _ends_anchored(pattern)
    body = pattern[begins : len(pattern) - ends]
    body, open_start = _trim_start(body)
    body, open_end = _trim_end(body)
    texts = _alternatives(body) if len(pattern) <= MAX_PATTERN and _is_unicode(pattern) else None
    half_open = (begins and open_start and not ends) or (ends and open_end and not begins)
    if texts is None or half_open:
        return None
    one_line = begins and ends and (open_start or open_end)
    if one_line and any("\n" in text for text in texts):
        return None
    return StringTest(_kind(begins and not open_start, ends and not open_end), texts, one_line)


def required_text(pattern: str) -> str:
    """Return a text that every match of `pattern` holds, the longest that is easy to find; empty if none is.

    Only patterns of plain atoms are read: literal characters, classes of letters, digits and a few signs, dots, each
    with at most one of `+`, `*` and `?`. Such a pattern is valid, and without groups and alternatives each literal
    character that may not be missing is in every match.
    """
    if len(pattern) > _LONGEST_SIMPLE or not _SIMPLE.fullmatch(pattern):
        return ""
    runs = [""]
    for atom in _ATOM.finditer(pattern.removeprefix("^")):
        literal, repeat = atom["literal"], atom["repeat"]
        if not literal or repeat in ("*", "?"):
            runs.append("")
            continue
        character = literal[1] if len(literal) > 1 else literal  # escaped, or the only one of a class
        runs[-1] += character
        if repeat == "+":
            runs.append(character)
    return max(runs, key=len)


_LITERALS: Final = re.compile(r"\^((?:(?:[\w~:/@-]|\\[.~:/@-]|\[[.~:/@-]\])(?![?*{]))+)")
"""Anchor of a pattern, and the signs behind that stand for themselves and may not be missing."""
_GROUP: Final = re.compile(r"\([^()]*\)")


def beginning(pattern: str) -> str:
    """Return a text with which every match of a pattern begins, at the beginning of the name; empty if none is sure."""
    found = None if "|" in _GROUP.sub("", pattern) else _LITERALS.match(pattern)
    return re.sub(r"\\(.)|\[(.)\]", r"\1\2", found[1]) if found else ""


def _is_unicode(pattern: str) -> bool:
    """Tell whether the pattern has no lone surrogate, which RE2 refuses."""
    return pattern.isascii() or not any("\ud800" <= character <= "\udfff" for character in pattern)


def _kind(begins: bool, ends: bool) -> str:
    if begins:
        return "equals" if ends else "starts"
    return "ends" if ends else "contains"


def _ends_anchored(pattern: str) -> bool:
    """Tell whether a `$` at the end is an anchor. After an odd number of backslashes, the `$` is a character."""
    stripped = pattern.removesuffix("$")
    return stripped != pattern and (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 0


def _trim_start(body: str) -> tuple[str, bool]:
    """Remove a `.*` at the start and tell whether there was one. A sign after `.*` would belong to the repetition."""
    if body.startswith(".*") and body[2:3] not in ("?", "*", "+", "{"):
        return body[2:], True
    return body, False


def _trim_end(body: str) -> tuple[str, bool]:
    r"""Remove a `.*` at the end and tell whether there was one. In `\.*` the dot is a character."""
    stripped = body.removesuffix(".*")
    if stripped != body and (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 0:
        return stripped, True
    return body, False


def _alternatives(body: str) -> tuple[str, ...] | None:
    """Return the literal strings of `a` or `(a|b)`, or None for any other pattern.

    A bare `a|b` is None: the anchors around the body would belong to the outer alternatives only.
    """
    grouped = body.startswith("(") and body.endswith(")") and body[1:2] != "?" and body[-2:-1] != "\\"
    parts = body[1:-1].split("|") if grouped else [body]
    if not all(_LITERAL.fullmatch(part) for part in parts):
        return None
    return tuple(_ESCAPED.sub(lambda match: match[1] or match[2], part) for part in parts)
