"""Row filters and masks as Trino's SQL, made of texts that the compiler has parsed, with marks for the caller.

Trino's planner evaluates `current_user` and `current_groups()` with the session of the statement, whoever a filter was
decided for. Behind a view that runs as its owner, that is the reader. So a compiled text holds marks, and an answer
holds the literals of the principal of the decision. Must not know policies.

This module needs no parser of SQL: `dialects` parses and translates, and only policies load that module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from pdp.engines.row_access.mask_kinds import trino_sql


class UntranslatableSql(ValueError):
    """Valid expression of another dialect without a certain meaning in Trino, or in another target."""


FALSE: Final = "false"
"""Filter without rows."""
_CALLER: Final = "\0caller\0"
CALLER: Final = f"'{_CALLER}'"
"""Mark in a filter for the name of the caller. The texts of authors have no NUL."""
PLAIN: Final = "\0plain\0"
"""Mark at the end of a filter that folds the case of the caller's name: engines agree on plain letters alone."""
UNSAFE_SIGNS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BARE_NULL: Final = "NULL"
_TEXTS: Final = frozenset({"varchar", "char"})
_FROM_CONSTANTS: Final = _TEXTS | {
    *("boolean", "tinyint", "smallint", "integer", "int", "bigint", "real", "double", "decimal"),
    *("date", "time", "timestamp", "uuid", "ipaddress", "json"),
}
"""Types to which a constant can be cast."""
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')
_PLAIN_TYPE: Final = re.compile(r"[A-Za-z][\w ,()]*")
"""Name of a type, its parameters and the field names of a row, without quoted names."""
_LEVELS: Final = {ord("("): 1, ord(")"): -1}
_NO_PARENTHESES: Final = bytes(set(range(256)) - set(_LEVELS))
_LONGEST_TYPE: Final = 4096
_DEEPEST_TYPE: Final = 64
"""Characters and nested parentheses of a type. Beyond, a type gets a bare NULL: the creator of a table chooses both."""
VISIBLE_CHARACTERS: Final = 4
SHORTEST_VALUE: Final = 8
"""Characters that a partial mask shows at the end of a value, and the shortest value for which it does."""


def text_sql(value: str) -> str:
    """Return a text as a literal."""
    return "'{}'".format(value.replace("'", "''"))


def join_filters(filters: Sequence[str]) -> str:
    """Return a filter for the rows of any of the filters; a single filter stays as written."""
    return filters[0] if len(filters) == 1 else " OR ".join(f"({text})" for text in filters)


def require_filters(filters: Sequence[str]) -> str:
    """Return a filter for the rows of all of the filters."""
    return filters[0] if len(filters) == 1 else " AND ".join(f"({text})" for text in filters)


def mask_sql(kind: str, value: str, column: str, type: str) -> str:
    """Return the expression in place of the column of a name, see `masked_value`."""
    return masked_value(kind, value, '"{}"'.format(column.replace('"', '""')), type)


def masked_value(kind: str, value: str, column: str, type: str) -> str:
    """Return the expression in place of a column as SQL, of exactly the column's type, as Trino demands.

    `value` is the SQL of a `constant` or `expression`. A value that does not fit the type becomes NULL.
    """
    if not _is_type(type):
        return _BARE_NULL
    base = re.split(r"\W", type, maxsplit=1)[0].lower()
    text = f"CAST({column} AS varchar)"
    if base == "char":
        text = f"rtrim({text})"  # without the blanks that pad a value
    sql = None
    if kind == "expression":
        sql = value
    elif kind == "constant" and base in _FROM_CONSTANTS:
        # By way of a text: TRY_CAST accepts a text for every type, but a cast from a number to a date fails the query.
        return f"TRY_CAST({value if base == 'json' else f'CAST({value} AS varchar)'} AS {type})"
    elif kind == "hash" and base in _TEXTS:
        sql = f"lower(to_hex(sha256(to_utf8({text}))))"
    elif kind == "partial" and base in _TEXTS:
        sql = f"IF(length({text}) >= {SHORTEST_VALUE}, '****' || substr({text}, -{VISIBLE_CHARACTERS}), '****')"
    else:
        sql = trino_sql(kind, text if base in _TEXTS else column, type)
    return f"CAST({_BARE_NULL if sql is None else sql} AS {type})"


def null_sql(type: str) -> str:
    """Return NULL of a type; a bare NULL, valid for any type, if the text of the type could contain other SQL."""
    return f"CAST({_BARE_NULL} AS {type})" if _is_type(type) else _BARE_NULL


def _is_type(text: str) -> bool:
    """Tell whether a text is safe as the type in a cast.

    Trino sends the field names of a row type without quotes, and the creator of a table chooses the names. So a type
    is safe only if its parentheses match and it consists of names, numbers, commas and blanks.
    """
    if len(text) > _LONGEST_TYPE:
        return False
    bare = _QUOTED.sub("", text)
    return _PLAIN_TYPE.fullmatch(bare) is not None and _has_matching_parentheses(bare)


def _has_matching_parentheses(text: str) -> bool:
    """Tell whether each parenthesis of a text has its match, within the bound on nesting."""
    parentheses = text.encode(errors="surrogatepass").translate(None, _NO_PARENTHESES)
    depths = list(accumulate(map(_LEVELS.__getitem__, parentheses), initial=0))
    return depths[-1] == min(depths) == 0 and max(depths) <= _DEEPEST_TYPE


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
