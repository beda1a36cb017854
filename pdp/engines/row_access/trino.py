"""Row filters and masks as Trino's SQL, made of texts that the compiler has parsed. Knows no principal.

This module needs no parser of SQL: `dialects` parses and translates, and only policies load that module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

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
