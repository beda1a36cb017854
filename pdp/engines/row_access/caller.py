"""The caller as a value in filters and masks: marks in Trino's SQL, and the literals that take their place.

Trino's planner evaluates `current_user` and `current_groups()` with the session of the statement, whoever a filter was
decided for. Behind a view that runs as its owner, that is the reader. So a compiled text holds marks, and an answer
holds the literals of the principal of the decision. Must not know policies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pdp.engines.row_access.trino import PLAIN, UNSAFE_SIGNS, text_sql

MARK: Final = "\0"
"""Sign of every mark. The texts of authors have none."""
ROLES: Final = "\0roles\0"
"""Mark for the roles of the caller."""
_USER: Final = "\0user\0"
_GROUPS: Final = "\0groups\0"
CLAIM: Final = "claim:"
"""Start of the mark of an attribute of the caller."""
LISTS: Final = ("groups", "roles")
"""Marks of lists, without their signs."""
_MARKED: Final = re.compile("'\0([^\0]+)\0'|\0([^\0]+)\0")
"""Marks, in quotes where an expression of another dialect is printed with them."""
_NO_CLAIMS: Final[Mapping[str, str]] = {}


class CallerValues(NamedTuple):
    """Values of a principal. `name` is that of the member, `user` that of Trino's user; both are empty for a role.

    `groups` and `roles` are None for unknown lists. `claims` has the texts among the attributes.
    """

    name: str
    user: str
    groups: tuple[str, ...] | None
    roles: tuple[str, ...] | None = None
    claims: Mapping[str, str] = _NO_CLAIMS

    def text(self, mark: str) -> str:
        """Return the text for a mark without signs; empty for an unknown text."""
        if mark.startswith(CLAIM):
            return self.claims.get(mark.removeprefix(CLAIM), "")
        return self.name if mark == "caller" else self.user

    def texts(self, mark: str) -> tuple[str, ...] | None:
        """Return the texts for the mark of a list; None for an unknown list."""
        return self.groups if mark == "groups" else self.roles


class _Unbound(Exception):
    """A value is unknown, or has no certain literal."""


def bind_caller(text: str, caller: CallerValues) -> str | None:
    """Return Trino's SQL with literals in place of marks; None if a value is unknown, or has no certain literal."""
    if MARK not in text:
        return text
    is_folded = text.endswith(PLAIN)

    def literal(match: re.Match[str]) -> str:
        mark = match[1] or match[2]
        if mark in LISTS:
            values = caller.texts(mark)
            if values is None or not all(map(_is_plain, values)):
                raise _Unbound
            return f"CAST(ARRAY[{', '.join(map(text_sql, values))}] AS array(varchar))"
        value = caller.text(mark)
        if not _is_plain(value) or (is_folded and not value.isascii()):
            raise _Unbound
        return text_sql(value)

    try:
        return _MARKED.sub(literal, text.removesuffix(PLAIN))
    except _Unbound:
        return None


def call_caller(text: str) -> str:
    """Return Trino's SQL with functions in place of marks, as `mark_caller` reads them."""

    def call(match: re.Match[str]) -> str:
        mark = match[1] or match[2]
        if mark.startswith(CLAIM):
            return f"current_claim('{mark.removeprefix(CLAIM)}')"
        return f"current_{mark}()" if mark in LISTS else "current_user"

    return _MARKED.sub(call, text.removesuffix(PLAIN))


def _is_plain(value: str) -> bool:
    return value != "" and not UNSAFE_SIGNS.search(value)


CLAIM_NAME: Final = r"[\w.:/@-]+"
"""Pattern of the name of a claim."""
_NAME: Final = r'(?:"(?:[^"]|"")*"|\w+)'
_CALL: Final = rf"\s*\(\s*(?:'(?P<claim>{CLAIM_NAME})'\s*)?\)"
_PIECE: Final = re.compile(rf"'(?:[^']|'')*'|(?P<name>{_NAME}(?:\s*\.\s*{_NAME})*)(?P<call>{_CALL})?", re.ASCII)
"""Texts, and names with their dots. A call without arguments, or with the name of a claim, belongs to its name."""
_PART: Final = re.compile(_NAME, re.ASCII)
_BUILTIN: Final[tuple[list[str], ...]] = (["system", "builtin"], ["builtin"], [])
"""Names before a function of Trino itself."""
_FUNCTIONS: Final[Mapping[str, str]] = {"$current_user": _USER, "current_groups": _GROUPS}
_KEYWORD: Final = "current_user"
"""Reserved word of Trino: without quotes it is no name of a column."""


def mark_caller(text: str) -> str:
    """Return an expression in Trino's dialect, without comments, with marks in place of the functions of the caller.

    Names in quotes and words in texts stay. `current_roles()` and `current_claim('name')` are functions of ours.
    """
    return _PIECE.sub(_marked, text) if "current_" in text.lower() else text


def _marked(piece: re.Match[str]) -> str:
    name, call, claim = piece["name"], piece["call"], piece["claim"]
    if name is None:
        return piece[0]
    folded = name.lower()
    if claim is not None:
        return f"'\0{CLAIM}{claim}\0'" if folded == "current_claim" else piece[0]
    if folded == _KEYWORD:
        return _USER
    if folded == "current_roles" and call is not None:
        return ROLES
    *above, last = (part.strip('"').lower() for part in _PART.findall(name))
    mark = _FUNCTIONS.get(last) if call is not None and above in _BUILTIN else None
    return piece[0] if mark is None else mark
