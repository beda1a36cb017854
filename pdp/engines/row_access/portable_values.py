"""Values in a filter of another engine: kinds, bounds of integers, and letters whose case engines fold differently.

`LOWER` and `UPPER` of Trino and DuckDB map letter by letter; those of BigQuery and Spark write `ß` as `SS` and `İ` as
two signs. So a folded text is compared with plain letters alone, and signs that would count are replaced before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError

from pdp.engines.row_access.caller_calls import mark_of
from pdp.engines.row_access.mask_kinds import Family
from pdp.engines.row_access.trino import LISTS, UntranslatableSql

TypeOf: TypeAlias = Callable[[exp.Column], str]
"""Type of a column as text; empty for an unknown one."""
Kind: TypeAlias = Literal[
    "", "integer", "decimal", "real", "double", "text", "boolean", "date", "timestamp", "instant", "null", "other"
]
"""Kind of a value in comparisons. `real` has 32 bits, a `timestamp` no zone. Empty: unknown."""
Compile: TypeAlias = Callable[["PortableValues", Any], "PortableValue"]
"""Compiler of a kind of expression whose parts are compiled; raises UntranslatableSql."""
_T: Final = exp.DataType.Type
_BITS: Final[dict[Any, int]] = {
    _T.TINYINT: 8, _T.SMALLINT: 16, _T.MEDIUMINT: 24, _T.INT: 32, _T.BIGINT: 64,
    _T.UTINYINT: 9, _T.USMALLINT: 17, _T.UINT: 33,
}  # fmt: skip
"""Bits of a type with a sign that holds all values of the integer type."""
_KINDS: Final[dict[Any, Kind]] = {
    **dict.fromkeys(_BITS, "integer"),
    **dict.fromkeys((_T.DECIMAL, _T.BIGDECIMAL), "decimal"),
    **dict.fromkeys((_T.VARCHAR, _T.TEXT, _T.NVARCHAR), "text"),
    _T.FLOAT: "real", _T.DOUBLE: "double", _T.BOOLEAN: "boolean", _T.DATE: "date",
    **dict.fromkeys((_T.DATETIME, _T.TIMESTAMP, _T.TIMESTAMPNTZ), "timestamp"),
    **dict.fromkeys((_T.TIMESTAMPTZ, _T.TIMESTAMPLTZ), "instant"),
}  # fmt: skip
_WITHOUT_ZONE: Final = re.compile(r"timestamp\s*(\(\s*[0-6]\s*\))?\s+without\s+time\s+zone", re.IGNORECASE)
_FINE: Final = re.compile(r"\(\s*(?:[7-9]|1[0-2])\s*\)")
"""Digits of a second that not all engines have."""
_DIALECTS: Final = ("trino", "bigquery", "spark", "duckdb")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NEW_CAPITALS: Final = "\u0412\u0414\u041e\u0421\u0422\u042a"
"""Capitals of letters that Unicode 9 added: U+1C80 to U+1C86."""
_TYPES: Final = 4_096
"""Types of columns whose kind is kept."""
INT: Final = 2**31
LONG: Final = 2**63
WIDEST: Final = 10**38
"""Bounds of whole numbers of 32 bits, of 64 bits, and of the widest exact numbers of all engines."""
_BOOLEANS: Final = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is,
    exp.Exists, exp.Boolean,
)  # fmt: skip
_LETTERWISE: Final = frozenset({"trino", "duckdb"})
"""Dialects that fold each letter to one letter."""
_UPPER: Final = {
    "\u00df": "SS", "\ufb00": "FF", "\ufb01": "FI", "\ufb02": "FL", "\ufb03": "FFI", "\ufb04": "FFL", "\ufb05": "ST",
    "\ufb06": "ST", "\u0149": "\u02bcN", "\u01f0": "J\u030c", "\u1e96": "H\u0331", "\u1e97": "T\u0308",
    "\u1e98": "W\u030a", "\u1e99": "Y\u030a", "\u1e9a": "A\u02be",
}  # fmt: skip
"""Signs whose capital is several signs, some of them plain, in BigQuery and Spark."""
_DOTTED: Final = "\u0130"
_NEUTRAL: Final = "\ufffd"
"""Sign without case, in place of one whose capital is several signs."""


class Fold(NamedTuple):
    """Call of LOWER or UPPER in a value. `is_whole`: the value is the folded text and nothing else."""

    function: str
    call: exp.Anonymous
    is_whole: bool = True


class PortableValue(NamedTuple):
    """Expression of a known kind. `low` and `high` are bounds of an integer; `text` is that of a literal.

    `is_constant`: a literal or the caller's name. `bits`: at least so many has the type of an integer in Spark.
    `is_clamped`: a date beyond BigQuery's last or first day is that day. Bounds of a date are numbers of days.
    `is_partial`: NULL also stands for a failure of the author's engine, or for a value without a common text.
    """

    node: exp.Expr
    kind: Kind
    low: int = -WIDEST
    high: int = WIDEST
    text: str | None = None
    is_constant: bool = False
    folds: tuple[Fold, ...] = ()
    bits: int = 8
    is_clamped: bool = False
    is_partial: bool = False

    @property
    def is_number(self) -> bool:
        """Tell whether the value is one whole number."""
        return self.kind == "integer" and self.low == self.high


class PortableValues:
    """Values of the expressions that were compiled, and of columns and literals."""

    def __init__(self, source: str, target: str, type_of: TypeOf) -> None:
        self.source, self.target, self.type_of = source, target, type_of
        self._known: dict[int, PortableValue] = {}

    def note(self, value: PortableValue) -> exp.Expr:
        """Return the expression of a value, whose kind is kept."""
        inner = value.node.unnest() if isinstance(value.node, exp.Paren) else value.node
        if not isinstance(inner, (exp.Literal, exp.Column)):
            self._known[id(inner)] = value
        return value.node

    def is_operand(self, node: exp.Expr) -> bool:
        """Tell whether a node is a column or a compiled expression."""
        return isinstance(node, exp.Column) or id(node) in self._known

    def compiled(self, node: exp.Expr) -> PortableValue | None:
        """Return the value of a compiled expression; None for another node."""
        return self._known.get(id(node))

    def atom(self, node: exp.Expr) -> exp.Expr:
        """Return a side of a comparison, past parentheses and a cast that the comparison added."""
        inner: exp.Expr = node.unnest() if isinstance(node, exp.Paren) else node
        return inner.this if isinstance(inner, exp.Cast) and id(inner) not in self._known else inner

    def kind(self, node: exp.Expr) -> Kind:
        """Return the kind of a column or compiled expression."""
        known = self._known.get(id(node))
        return known.kind if known else kind_of(self.type_of(node)) if isinstance(node, exp.Column) else ""

    def of(self, node: exp.Expr) -> PortableValue:
        """Return the value of a part of an expression; of kind `` for one without a certain kind."""
        inner: exp.Expr = node.unnest() if isinstance(node, exp.Paren) else node
        known = self._known.get(id(inner))
        if known is not None:
            return known
        if isinstance(inner, exp.Column):
            type = self.type_of(inner)
            bits = 64 if "bigquery" in (self.source, self.target) else _bits_of(type)  # it has no smaller numbers
            bound = 2 ** (bits - 1) if kind_of(type) == "integer" else WIDEST
            return PortableValue(node, kind_of(type), -bound, bound - 1, bits=_least_bits_of(type))
        if is_caller(inner):
            return PortableValue(node, "text", is_constant=True)
        if isinstance(inner, exp.Literal) and inner.is_string:
            return PortableValue(node, "text", text=inner.name, is_constant=True)
        if isinstance(inner, exp.Null):
            return PortableValue(node, "null")
        number = inner.this if isinstance(inner, exp.Neg) else inner
        if isinstance(number, exp.Literal) and not number.is_string and _is_digits(number.name):
            whole = -int(number.name) if isinstance(inner, exp.Neg) else int(number.name)
            return number_of(whole)._replace(node=node)
        return PortableValue(node, "boolean" if isinstance(inner, _BOOLEANS) else "")

    def settle(
        self, value: PortableValue, others: Sequence[PortableValue], *, is_equality: bool = True, counts: bool = False
    ) -> None:
        """Write a folded value so that a comparison with constants is the author's; raise UntranslatableSql.

        `counts`: the number of signs matters.
        """
        if not value.folds:
            return
        if not all(other.is_constant for other in others):
            raise UntranslatableSql(
                f"`{value.folds[0].function}` folds some letters differently: compare it with literals"
            )
        texts = [mark_plain(other) for other in others]
        literals = [text for other in others for text in literal_texts(other)]
        for fold in value.folds:
            if not all(is_certain(text, fold.function) for text in literals):
                raise UntranslatableSql(f"`{fold.function}` folds a letter of the text beside it differently")
            self._write(fold, texts, is_equality=is_equality and fold.is_whole, counts=counts)

    def _write(self, fold: Fold, texts: Sequence[str | None], *, is_equality: bool, counts: bool) -> None:
        if fold.function == "UPPER" and counts:
            raise UntranslatableSql("`UPPER` has another number of signs in each engine: write LOWER")
        if (self.source in _LETTERWISE) == (self.target in _LETTERWISE):
            return
        needed = {_DOTTED: "i\u0307"} if fold.function == "LOWER" else _UPPER
        for sign, full in needed.items():
            if counts or any(text is None or _meets(text, full, is_equality=is_equality) for text in texts):
                plain = "i" if fold.function == "LOWER" else _NEUTRAL
                new = plain if self.source in _LETTERWISE else full
                self._replace(fold.call, sign, new)

    def _replace(self, call: exp.Anonymous, sign: str, new: str) -> None:
        (inner,) = call.expressions
        done = call.meta.setdefault("signs", set())
        if sign not in done:
            done.add(sign)
            call.set("expressions", [function("REPLACE", inner, exp.Literal.string(sign), exp.Literal.string(new))])


def _meets(text: str, full: str, *, is_equality: bool) -> bool:
    """Tell whether a text could be equal to, or meet, a folded text with the signs."""
    if full[0] == "i":
        return "i" in text or not is_equality
    plain = [sign for sign in full if sign.isascii()]
    return full in text if is_equality else any(sign in text for sign in plain)


def literal_texts(value: PortableValue) -> list[str]:
    """Return the texts of the literals in a constant; the name of the caller is none."""
    if value.text is not None:
        return [value.text]
    literals = value.node.find_all(exp.Literal)
    return [literal.name for literal in literals if literal.is_string and not is_caller(literal)]


def date_of(text: str) -> date | None:
    """Return the date of a text such as `2024-01-31`; None for another text."""
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def is_certain(text: str, function: str) -> bool:
    """Tell whether all engines fold the same letters to those of a text."""
    return all(map(_is_certain_lower if function == "LOWER" else _is_certain_upper, text))


def _is_certain_lower(sign: str) -> bool:
    return sign.isascii() or (_is_old_letter(sign) and sign not in "\u0131\u0138\u0149\u017f\u00b5")


def _is_certain_upper(sign: str) -> bool:
    return sign.isascii() or (
        _is_old_letter(sign) and sign not in f"\u0130\u0131\u0138\u0149\u017f\u00b5\u00df\u00ff\u0178{_NEW_CAPITALS}"
    )


def _is_old_letter(sign: str) -> bool:
    """Tell whether a sign is a letter of Latin or Cyrillic, kana or Han, whose case has been settled for long."""
    return any(
        low <= sign <= high
        for low, high in (("\u00a1", "\u017f"), ("\u0400", "\u045f"), ("\u3041", "\u30fe"), ("\u4e00", "\u9fff"))
    )


def mark_plain(value: PortableValue) -> str | None:
    """Return the text of a constant; None for the caller's name, which is marked: it must have plain letters."""
    if value.text is None:
        for node in value.node.walk():
            if is_caller(node):
                node.meta["plain"] = True
    return value.text


def is_caller(node: exp.Expr) -> bool:
    """Tell whether a node is the name of the caller, or a claim."""
    return isinstance(node, (exp.SessionUser, exp.CurrentUser)) or bool(mark_of(node) and mark_of(node) not in LISTS)


def folds_caller(tree: exp.Expr) -> bool:
    """Tell whether an adapted tree folds the case of the caller's name, or compares it with folded text."""
    return any(is_caller(node) and node.meta.get("plain") for node in tree.walk())


def converted(node: exp.Expr, type: Any) -> exp.Cast:
    """Return a cast to a type without parameters."""
    return exp.Cast(this=node, to=exp.DataType(this=type))


def function(name: str, *parts: exp.Expr) -> exp.Anonymous:
    """Return a call that is printed as it is named."""
    return exp.Anonymous(this=name, expressions=list(parts))


@lru_cache(_TYPES)
def kind_of(text: str) -> Kind:
    """Return the kind of a type; `other` if dialects read the text as types that they compare differently."""
    if _WITHOUT_ZONE.fullmatch(text.strip()):  # the parser leaves the words out in some dialects
        return "timestamp"
    kinds = {_KINDS.get(found, "other") for found in _readings(text)}
    if kinds & {"timestamp", "instant"} and _FINE.search(text):
        return "other"
    return kinds.pop() if len(kinds) == 1 else "other" if text else ""


@lru_cache(_TYPES)
def _bits_of(text: str) -> int:
    return max((_BITS.get(found, 64) for found in _readings(text)), default=64)


@lru_cache(_TYPES)
def _least_bits_of(text: str) -> int:
    return min((_BITS.get(found, 64) for found in _readings(text)), default=8)


_FAMILIES: Final[dict[Any, Family]] = {
    **dict.fromkeys(exp.DataType.TEXT_TYPES, "text"),
    **dict.fromkeys(exp.DataType.NUMERIC_TYPES - {_T.BIT}, "number"),
    **dict.fromkeys((_T.DATETIME, _T.TIMESTAMP, _T.TIMESTAMPNTZ, _T.TIMESTAMP_S, _T.TIMESTAMP_MS), "timestamp"),
    **dict.fromkeys((_T.TIMESTAMPTZ, _T.TIMESTAMPLTZ), "instant"),
    **dict.fromkeys((_T.BINARY, _T.VARBINARY), "bytes"),
    **dict.fromkeys((_T.ARRAY, _T.LIST), "list"),
    _T.TIMESTAMP_NS: "timestamp", _T.BOOLEAN: "boolean", _T.DATE: "date", _T.TIME: "time", _T.UUID: "uuid",
    _T.MAP: "map", _T.STRUCT: "struct",
}  # fmt: skip


_TIMES: Final[frozenset[Family | None]] = frozenset({"timestamp", "instant"})


def family_of(type: exp.DataType) -> Family | None:
    """Return the family of a type; None for a type without one, such as JSON or an array of a fixed size."""
    return None if type.args.get("values") else _FAMILIES.get(type.this)


@lru_cache(_TYPES)
def families_of(text: str) -> frozenset[Family | None]:
    """Return the families of a type as each dialect reads it, None for one without; empty for an unknown type."""
    return frozenset(map(family_of, _types(text)))


@lru_cache(_TYPES)
def is_list_of_texts(text: str) -> bool:
    """Tell whether all dialects that read a type read lists of texts."""
    found = list(_types(text))
    inner = [one.expressions[0].this for one in found if one.this in (_T.ARRAY, _T.LIST) and len(one.expressions) == 1]
    return bool(found) and len(inner) == len(found) and all(_KINDS.get(one) == "text" for one in inner)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _types(text: str) -> Iterator[exp.DataType]:
    """Yield a type as each dialect reads it."""
    for read in _DIALECTS if text else ():
        try:
            found = exp.DataType.build(text, dialect=read)
        except (SqlglotError, ValueError, RecursionError):
            continue
        if found.this not in (_T.USERDEFINED, _T.UNKNOWN):
            yield found


def _readings(text: str) -> set[Any]:
    return {found.this for found in _types(text)}


def text_of(values: PortableValues, node: exp.Expr | None, name: str) -> PortableValue:
    """Return a part that is a text; raise UntranslatableSql."""
    return of_kind(values, node, name, "text")


def of_kind(values: PortableValues, node: exp.Expr | None, name: str, kind: Kind) -> PortableValue:
    value = values.of(node) if node is not None else None
    if value is None or value.kind != kind:
        if value is not None and value.kind == "" and isinstance(value.node.unnest(), exp.Column):
            raise UntranslatableSql(
                f"`{name}` reads `{value.node.unnest().name}`, which has no known type: describe its table"
            )
        if value is not None:
            check_type(values, value)
        raise UntranslatableSql(f"`{name}` takes a value of kind {kind} alone: write one")
    return value


def check_type(values: PortableValues, value: PortableValue) -> None:
    """Raise UntranslatableSql for a column with a zone in a part of the engines alone, by the text of the type."""
    column = value.node.unnest()
    if isinstance(column, exp.Column) and value.kind == "other" and families_of(values.type_of(column)) & _TIMES:
        raise UntranslatableSql(
            f"`{column.name}` has a type that engines read in two ways: in `tables`, write DATETIME for a time without "
            "a zone, or TIMESTAMP WITH TIME ZONE, of up to 6 digits"
        )


def settled(values: PortableValues, value: PortableValue, beside: str = "i") -> PortableValue:
    """Return a value whose folded letters are those of the author's engine, beside a text; raise UntranslatableSql."""
    values.settle(value, [PortableValue(value.node, "text", text=beside, is_constant=True)], counts=True)
    return value._replace(folds=tuple(fold._replace(is_whole=False) for fold in value.folds))


def number_sql(value: int) -> exp.Expr:
    literal = exp.Literal.number(str(abs(value)))
    return exp.Neg(this=literal) if value < 0 else literal


def number_of(value: int) -> PortableValue:
    bits = 32 if -INT <= value < INT else 64
    return PortableValue(number_sql(value), "integer", value, value, is_constant=True, bits=bits)
