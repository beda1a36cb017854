"""Kinds of masks: their order, the types that they are for, and the SQL of kinds that mean the same in every engine.

Those kinds are actions of Iceberg's read restrictions, with their names. Each is made of functions that never fail, and
whose result no setting of a session changes. Needs no parser of SQL: the family of a column's type is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Family: TypeAlias = Literal[
    "boolean", "number", "text", "date", "time", "timestamp", "instant", "uuid", "bytes", "list", "map", "struct"
]
"""Family of types. An `instant` is a timestamp with a zone."""


class MaskKind(NamedTuple):
    """Kind of a mask. `has_text`: it has an `expression`. `families` None: no type of a column is refused.

    `values` has the words for the families.
    """

    has_text: bool = False
    families: frozenset[Family] | None = None
    values: str = ""


_TEXT: Final = MaskKind(families=frozenset({"text"}), values="texts")
_TIME: Final = MaskKind(families=frozenset({"date", "timestamp", "instant"}), values="dates and timestamps")
_DIALECTS: Final = ("bigquery", "trino", "spark", "duckdb")
_ZEROS: Final = "'00000000-0000-0000-0000-000000000000'"
_SCALARS: Final[Mapping[Family, tuple[str, str, str, str]]] = {
    "boolean": ("FALSE",) * 4,
    "number": ("CAST(0 AS {type})",) * 4,
    "text": ("'XXXXXXXX'",) * 4,
    "date": ("DATE '1970-01-01'",) * 4,
    "time": ("TIME '00:00:00'", "TIME '00:00:00'", "", "TIME '00:00:00'"),
    "timestamp": (
        "DATETIME '1970-01-01 00:00:00'", "TIMESTAMP '1970-01-01 00:00:00'", "TIMESTAMP_NTZ '1970-01-01 00:00:00'",
        "CAST(TIMESTAMP '1970-01-01 00:00:00' AS {type})",
    ),
    "instant": (
        "TIMESTAMP_SECONDS(0)", "TIMESTAMP '1970-01-01 00:00:00 UTC'", "TIMESTAMP_SECONDS(0)", "TO_TIMESTAMP(0)",
    ),
    "uuid": (_ZEROS, f"UUID {_ZEROS}", _ZEROS, f"CAST({_ZEROS} AS UUID)"),
    "bytes": ("b''", "X''", "X''", "CAST('' AS BLOB)"),
    "list": ("{type}[]", "ARRAY[]", "CAST(ARRAY() AS {type})", "CAST([] AS {type})"),
    "map": ("", "MAP()", "CAST(MAP() AS {type})", "CAST(MAP {{}} AS {type})"),
}  # fmt: skip
"""Fixed value of a family, for each of `_DIALECTS`. Empty: the engine has no such columns."""
FIXED_VALUE: Final = "mask-to-fixed-value"
MASK_KINDS: Final[Mapping[str, MaskKind]] = {
    "null": MaskKind(),
    FIXED_VALUE: MaskKind(families=frozenset({*_SCALARS, "struct"}), values="types with a fixed value"),
    "constant": MaskKind(has_text=True),
    "hash": MaskKind(),
    "mask-alphanum": _TEXT,
    "partial": MaskKind(),
    "show-last-4": _TEXT,
    "show-first-4": _TEXT,
    "truncate-to-year": _TIME,
    "truncate-to-month": _TIME,
    "expression": MaskKind(has_text=True),
}
"""Kind -> what it is. The kind that hides most comes first, and wins among several masks of one column."""
_OTHER_NAMES: Final = {"replace-with-null": "null", "sha-256-global": "hash", "sha-256-query-local": "hash"}
"""Actions of read restrictions that have another name here."""


def unknown_kind(kind: str) -> str:
    """Return the message for a name of no kind."""
    hint = f": write `{_OTHER_NAMES[kind]}`" if kind in _OTHER_NAMES else ""
    return f"`kind` is one of {', '.join(MASK_KINDS)}, not '{kind}'{hint}"


def kinds_for(families: frozenset[Family | None]) -> tuple[str, ...]:
    """Return the kinds that no column of one of the families refuses."""
    return tuple(name for name, kind in MASK_KINDS.items() if kind.families is None or kind.families & families)


def kind_sql(kind: str, column: str, family: Family | None, type: str, dialect: str) -> str | None:
    """Return the SQL of a kind that means the same in every engine; None for other kinds, and for other types.

    `column` is SQL, of a padded text without the blanks. `type` is the type as the dialect writes it. The fixed value
    of a struct is made by the caller, of those of its fields.
    """
    if family is None or family not in (MASK_KINDS[kind].families or ()):
        return None
    if kind == FIXED_VALUE:
        return _SCALARS[family][_DIALECTS.index(dialect)].format(type=type) or None if family in _SCALARS else None
    if family == "text":
        return _TEXTS[kind](column, dialect)
    return _first_day(kind.removeprefix("truncate-to-"), column, family, type, dialect)


_PRIMITIVE: Final = re.compile(
    r"boolean|int|long|float|double|string|date|time|(?:timestamp|timestamptz)(?:_ns)?|uuid|binary"
    r"|decimal\(\s*\d+\s*,\s*\d+\s*\)|fixed\[\d+\]"
)
"""Types of Iceberg with a fixed value."""
_OF_TIMES: Final = ("date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_ACTIONS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "hash": ("sha-256-global", ("string",)),
    "partial": (FIXED_VALUE, ("string",)),  # `show-last-4` would show short texts, and the length
    **{name: (name, ("string",)) for name, kind in MASK_KINDS.items() if kind is _TEXT},
    **{name: (name, _OF_TIMES) for name, kind in MASK_KINDS.items() if kind is _TIME},
}
"""Kind -> an action, and the types where the action shows the same or less."""
_CONSTANTS: Final = {
    "string": "'XXXXXXXX'", "boolean": "FALSE", **dict.fromkeys(("int", "long", "float", "double"), "0"),
}  # fmt: skip
"""Type of Iceberg -> the constant equal to the fixed value."""


def iceberg_action(kind: str, value: str, type: str, *, required: bool) -> str | None:
    """Return the action of Iceberg's read restrictions for a mask. It shows the same or less; None without an action.

    `type` is a type of Iceberg, empty for a nested type. A required column has no NULL.
    """
    action, types = _ACTIONS.get(kind, ("", ()))
    if type in types:
        return action
    is_fixed = required or kind == FIXED_VALUE or (kind == "constant" and value == _CONSTANTS.get(type))
    if is_fixed and _PRIMITIVE.fullmatch(type):
        return FIXED_VALUE
    return None if required else "replace-with-null"


def _without_letters(text: str, dialect: str) -> str:
    """Return SQL that replaces digits by `n`, and all but digits and `(),.@-` by `x`, for each code point."""
    every = ", 'g'" if dialect == "duckdb" else ""
    signs = f"REGEXP_REPLACE({text}, '[^0-9(),.@-]', 'x'{every})"
    return f"REGEXP_REPLACE({signs}, '[0-9]', 'n'{every})"


def _first_shown(text: str, dialect: str) -> str:
    return f"SUBSTR({text}, 1, 4) || {_without_letters(f'SUBSTR({text}, 5)', dialect)}"


def _last_shown(text: str, dialect: str) -> str:
    before = f"SUBSTR({text}, 1, GREATEST(LENGTH({text}) - 4, 0))"
    return f"{_without_letters(before, dialect)} || SUBSTR({text}, GREATEST(LENGTH({text}) - 3, 1))"


_TEXTS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "mask-alphanum": _without_letters,
    "show-first-4": _first_shown,
    "show-last-4": _last_shown,
}
"""Kind of texts -> its SQL. SUBSTR and LENGTH count code points in each engine."""


class _Calendar(NamedTuple):
    """Parts of a truncation in one dialect: the day in UTC of a value, its first day, and the way back to the type."""

    days: Mapping[str, str]
    first: str
    results: Mapping[str, str] = {}


_TIMES: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "date": ("SAFE_CAST({c} AS DATE)", *("TRY_CAST({c} AS DATE)",) * 3),
    "timestamp": (
        "SAFE_CAST({c} AS DATETIME)", "TRY_CAST({c} AS {type})", "TRY_CAST({c} AS TIMESTAMP_NTZ)",
        "TRY_CAST({c} AS TIMESTAMP)",
    ),
    "instant": (
        "SAFE_CAST({c} AS TIMESTAMP)", "TRY_CAST({c} AS {type})", "TRY_CAST({c} AS TIMESTAMP_LTZ)",
        "TRY_CAST({c} AS TIMESTAMPTZ)",
    ),
}  # fmt: skip
"""Column as its family, for each of `_DIALECTS`. A text of a table that has changed is NULL, and not in an error."""
_SECONDS: Final = "UNIX_SECONDS({c})"
_CALENDARS: Final[Mapping[str, _Calendar]] = {
    "bigquery": _Calendar(
        {"timestamp": "DATE({c})", "instant": "DATE({c}, 'UTC')"},
        "DATE_TRUNC({day}, {unit})",
        {"timestamp": "DATETIME({first}, TIME '00:00:00')", "instant": "TIMESTAMP({first}, 'UTC')"},
    ),
    "trino": _Calendar({"instant": "{c} AT TIME ZONE 'UTC'"}, "DATE_TRUNC('{unit}', {day})"),
    "spark": _Calendar(
        {
            "timestamp": "CAST({c} AS DATE)",
            "instant": f"DATE_FROM_UNIX_DATE(CAST(({_SECONDS} - PMOD({_SECONDS}, 86400)) DIV 86400 AS INT))",
        },
        "TRUNC({day}, '{unit}')",
        {
            "timestamp": "CAST({first} AS TIMESTAMP_NTZ)",
            "instant": "TIMESTAMP_SECONDS(CAST(UNIX_DATE({first}) AS BIGINT) * 86400)",
        },
    ),
    "duckdb": _Calendar(
        {"instant": "MAKE_TIMESTAMP(EPOCH_US({c}))"},
        "MAKE_DATE(YEAR({day}), {month}, 1)",
        {"timestamp": "TRY_CAST({first} AS {type})", "instant": "TO_TIMESTAMP(EPOCH({first}))"},
    ),
}


def _first_day(unit: str, column: str, family: Family, type: str, dialect: str) -> str:
    """Return SQL of the first of the year or month in UTC; NULL outside of the years 1 to 9999, as BigQuery ends there.

    The bound keeps engines with more years, and DuckDB's infinity, from errors that show a value.
    """
    calendar = _CALENDARS[dialect]
    value = _TIMES[family][_DIALECTS.index(dialect)].format(c=column, type=type)
    day = calendar.days.get(family, "{c}").format(c=value)
    month = f"MONTH({day})" if unit == "month" else "1"
    first = calendar.first.format(day=day, unit=unit.upper(), month=month)
    result = calendar.results.get(family, "{first}").format(first=first, type=type)
    return f"CASE WHEN EXTRACT(YEAR FROM {day}) BETWEEN 1 AND 9999 THEN {result} END"


_OF_TRINO: Final[Mapping[str, Family]] = {
    "boolean": "boolean", **dict.fromkeys(("tinyint", "smallint", "integer", "int", "bigint"), "number"),
    **dict.fromkeys(("real", "double", "decimal"), "number"), **dict.fromkeys(("varchar", "char"), "text"),
    "date": "date", "time": "time", "timestamp": "timestamp", "uuid": "uuid", "varbinary": "bytes", "array": "list",
    "map": "map", "row": "struct",
}  # fmt: skip
_TRINO_TYPE: Final = re.compile(r"(\w+)\s*(?:\((.*)\))?(\s+with time zone)?", re.IGNORECASE | re.DOTALL)
_NAMED_FIELD: Final = re.compile(r'(?:"(?:[^"]|"")*"|\w+)\s+(.+)', re.DOTALL)
_PIECE: Final = re.compile(r'"(?:[^"]|"")*"|[(),]')


def trino_sql(kind: str, column: str, type: str) -> str | None:
    """Return the SQL of a kind in Trino, whose types are texts, as `kind_sql` does. The caller casts it to the type."""
    found = _TRINO_TYPE.fullmatch(type.strip()) if MASK_KINDS[kind].families else None
    if found is None:
        return None
    family = _OF_TRINO.get(found[1].lower())
    if found[3]:
        family = "instant" if family == "timestamp" else None
    if family == "struct" and kind == FIXED_VALUE:
        fields = [_field_sql(field) for field in _fields(found[2] or "")]
        values = [value for value in fields if value]
        return f"ROW({', '.join(values)})" if values and len(values) == len(fields) else None
    return kind_sql(kind, column, family, type, "trino")


def _field_sql(field: str) -> str | None:
    """Return the fixed value of a field of a row, with or without a name; None without one."""
    named = _NAMED_FIELD.fullmatch(field)
    types = (named[1], field) if named else (field,)
    return next((value for type in types if (value := trino_sql(FIXED_VALUE, "", type))), None)


def _fields(text: str) -> Iterator[str]:
    """Yield the fields of a row's type."""
    depth = start = 0
    for piece in _PIECE.finditer(text):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if piece[0] == "," and not depth:
            yield text[start : piece.start()].strip()
            start = piece.end()
    yield text[start:].strip()
