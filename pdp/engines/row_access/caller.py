"""The caller as a value in filters and masks: marks in Trino's SQL, and the literals that take their place.

Trino's planner evaluates `current_user` and `current_groups()` with the session of the statement, whoever a filter was
decided for. Behind a view that runs as its owner, that is the reader. So a compiled text holds marks, and an answer
holds the literals of the principal of the decision. Must not know policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pdp.engines.row_access.trino import CALLER, PLAIN, UNSAFE_SIGNS

MARK: Final = "\0"
"""Sign of every mark. The texts of authors have none."""
USER: Final = "\0user\0"
"""Mark for the caller as Trino's user: `current_user` in Trino's dialect."""
GROUPS: Final = "\0groups\0"
"""Mark for the groups of the caller."""


class CallerValues(NamedTuple):
    """Values of a principal. `name` is that of the member, `user` that of Trino's user; both are empty for a role.

    `groups` is None if the groups are unknown.
    """

    name: str
    user: str
    groups: tuple[str, ...] | None


def bind_caller(text: str, caller: CallerValues) -> str | None:
    """Return a text with literals in place of marks; None if a value is unknown, or has no certain literal."""
    if MARK not in text:
        return text
    if CALLER in text:
        if not _is_plain(caller.name) or (PLAIN in text and not caller.name.isascii()):
            return None
        text = text.removesuffix(PLAIN).replace(CALLER, _literal(caller.name))
    if USER in text:
        if not _is_plain(caller.user):
            return None
        text = text.replace(USER, _literal(caller.user))
    if GROUPS in text:
        if caller.groups is None or not all(map(_is_plain, caller.groups)):
            return None
        text = text.replace(GROUPS, _array(caller.groups))
    return text


def _is_plain(value: str) -> bool:
    return value != "" and not UNSAFE_SIGNS.search(value)


def _literal(value: str) -> str:
    return "'{}'".format(value.replace("'", "''"))


def _array(values: Iterable[str]) -> str:
    return f"CAST(ARRAY[{', '.join(map(_literal, values))}] AS array(varchar))"


_NAME: Final = r'(?:"(?:[^"]|"")*"|\w+)'
_PIECE: Final = re.compile(rf"'(?:[^']|'')*'|(?P<name>{_NAME}(?:\s*\.\s*{_NAME})*)(?P<call>\s*\(\s*\))?", re.ASCII)
"""Texts, and names with their dots. The call of a function without arguments belongs to its name."""
_PART: Final = re.compile(_NAME, re.ASCII)
_BUILTIN: Final[tuple[list[str], ...]] = (["system", "builtin"], ["builtin"], [])
"""Names before a function of Trino itself."""
_FUNCTIONS: Final[Mapping[str, str]] = {"$current_user": USER, "current_groups": GROUPS}
_KEYWORD: Final = "current_user"
"""Reserved word of Trino: without quotes it is no name of a column."""


def mark_caller(text: str) -> str:
    """Return an expression in Trino's dialect, without comments, with marks in place of the functions of the caller.

    Names in quotes and words in texts stay.
    """
    return _PIECE.sub(_marked, text) if "current_" in text.lower() else text


def _marked(piece: re.Match[str]) -> str:
    name, call = piece["name"], piece["call"]
    if name is None:
        return piece[0]
    if name.lower() == _KEYWORD:
        return USER
    *above, last = (part.strip('"').lower() for part in _PART.findall(name))
    mark = _FUNCTIONS.get(last) if call is not None and above in _BUILTIN else None
    return piece[0] if mark is None else mark
