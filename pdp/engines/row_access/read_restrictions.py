"""Restrictions of a table as `read-restrictions` of the Iceberg REST specification. Loads the parser of SQL.

Owns the predicates for rows, by field ids. A predicate of Iceberg is true or false, for NULL too. The restrictions hide
the same as those in SQL or more, never less. See https://iceberg.apache.org/expressions-spec.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from sqlglot import exp

from pdp.engines.row_access.dialects import DIALECT, parse_expression
from pdp.engines.row_access.engine import REASON_PREFIX, Restriction
from pdp.engines.row_access.mask_kinds import iceberg_action
from pdp.engines.row_access.policies import KINDS, LONGEST_SQL
from pdp.engines.row_access.policy_set import Mask
from pdp.engines.row_access.portable_numbers import as_real, literal_number
from pdp.engines.row_access.portable_values import date_of
from pdp.facts.objects import fold_column
from pdp.model.answer import ReadRestrictions, SchemaColumn

Predicate: TypeAlias = bool | dict[str, Any]
"""Predicate of Iceberg as a JSON value."""


def read_restrictions(restriction: Restriction, columns: Sequence[SchemaColumn]) -> ReadRestrictions:
    """Return the restrictions for a reader of a table: the filter `false` where no others hide enough."""
    filters = [one.expression for one in (restriction.rows, restriction.more_rows) if one is not None]
    rows = _all([row_filter(text, columns) for text in filters]) if filters else None
    actions = _actions(restriction.masks, columns)
    if rows is False or actions is None:
        return ReadRestrictions(_text({"required-row-filter": False}), restriction.by, closed=True)
    projections = [{"field-id": id, "action": action} for id, action in sorted(actions.items())]
    members = {"required-column-projections": projections or None, "required-row-filter": rows}
    masks = tuple((column, REASON_PREFIX + mask.id) for column, mask in sorted(restriction.masks.items()))
    text = _text({key: value for key, value in members.items() if value is not None})
    return ReadRestrictions(text, restriction.by, masks)


def _text(restrictions: Mapping[str, Any]) -> str:
    return json.dumps(restrictions, ensure_ascii=False, separators=(",", ":"))


def _actions(masks: Mapping[str, Mask], columns: Sequence[SchemaColumn]) -> dict[int, str] | None:
    """Return the action of each masked column by field id; None if a mask cannot be said, or has no column.

    A field with two masks, for example under an older name, gets the action of the stricter mask.
    """
    actions: dict[int, str] = {}
    for name, mask in sorted(masks.items(), key=lambda pair: KINDS.index(pair[1].kind)):
        covered = [column for column in columns if fold_column(column.name) == name]
        found = {one.id: iceberg_action(mask.kind, mask.text, one.type, required=one.required) for one in covered}
        if not found or None in found.values():
            return None
        actions = {id: action for id, action in found.items() if action} | actions
    return actions


class _Predicates(NamedTuple):
    """Predicates for the rows where a condition of SQL is true, and where the condition is false. NULL is in neither.

    Each holds for such rows alone, but perhaps not for every such row.
    """

    true: Predicate
    false: Predicate


_UNKNOWN: Final = _Predicates(False, False)
"""Condition that cannot be said, and NULL."""
_OPERATIONS: Final[Mapping[type[exp.Expr], tuple[str, str]]] = {
    exp.EQ: ("eq", "eq"), exp.NEQ: ("not-eq", "not-eq"), exp.LT: ("lt", "gt"), exp.LTE: ("lt-eq", "gt-eq"),
    exp.GT: ("gt", "lt"), exp.GTE: ("gt-eq", "lt-eq"),
}  # fmt: skip
"""Comparison -> the operation, and the operation with the sides exchanged."""
_OPPOSITES: Final = {
    "eq": "not-eq", "not-eq": "eq", "lt": "gt-eq", "gt-eq": "lt", "gt": "lt-eq", "lt-eq": "gt",
    "starts-with": "not-starts-with",
}  # fmt: skip
_OF_TEXTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "eq": operator.eq, "not-eq": operator.ne, "lt": operator.lt, "lt-eq": operator.le, "gt": operator.gt,
    "gt-eq": operator.ge, "starts-with": str.startswith,
}  # fmt: skip
"""Operations on two known texts. Python compares code points: the order of the UTF-8 bytes."""
_FLOATS: Final = frozenset({"float", "double"})
_DOUBLE: Final = exp.DataType(this=exp.DataType.Type.DOUBLE, nested=False)
_ZERO_SIGNS: Final = frozenset({"gt", "lt-eq"})
"""Operations beside the zero of a floating column with one meaning, whether -0.0 is below 0.0 or equal to 0.0."""
_COMPARABLE: Final = re.compile(r"int|long|string|date|timestamp|timestamptz|decimal\(\s*\d+\s*,\s*\d+\s*\)")
"""Types whose columns are compared with columns of the same type."""


def row_filter(text: str, columns: Sequence[SchemaColumn]) -> Predicate:
    """Return the predicate of a filter in Trino's SQL: true for visible rows alone.

    The predicate is the constant false, or misses a part of an OR, where the filter cannot be said.
    """
    if len(text) > LONGEST_SQL:  # a load waits for the parser
        return False
    try:
        tree = parse_expression(text, DIALECT)
    except ValueError:
        return False
    return _Builder(columns).said(tree).true


class _Builder:
    """Conditions on the columns of a schema."""

    def __init__(self, columns: Sequence[SchemaColumn]) -> None:
        # A name of two fields is none, even if one was dropped: an older version of the table has the other values.
        named: dict[str, set[int]] = {}
        for column in columns:
            named.setdefault(fold_column(column.name), set()).add(column.id)
        current = {fold_column(column.name): column for column in columns if column.current}
        self._columns = {name: column for name, column in current.items() if len(named[name]) == 1}

    def said(self, node: exp.Expr) -> _Predicates:
        """Return the predicates of a condition."""
        node = node.unnest()
        if isinstance(node, exp.Connector):
            parts = [self.said(part) for part in node.flatten()]
            true, false = [part.true for part in parts], [part.false for part in parts]
            if isinstance(node, exp.And):
                return _Predicates(_all(true), _any(false))
            return _Predicates(_any(true), _all(false)) if isinstance(node, exp.Or) else _UNKNOWN
        if isinstance(node, exp.Not):
            # INVARIANT: both predicates hold for certain rows alone. So NOT swaps them, and never negates one.
            return _Predicates(*reversed(self.said(node.this)))
        say = _SAYERS.get(type(node))
        return say(self, node) if say and _has_only(node) else _UNKNOWN

    def boolean(self, node: exp.Boolean) -> _Predicates:
        return _Predicates(bool(node.this), not node.this)

    def flag(self, node: exp.Column) -> _Predicates:
        return self._compared("eq", node, exp.true())

    def comparison(self, node: exp.Binary) -> _Predicates:
        operation, exchanged = _OPERATIONS[type(node)]
        if self._column(node.this):
            return self._compared(operation, node.this, node.expression)
        return self._compared(exchanged, node.expression, node.this)

    def null_test(self, node: exp.Is) -> _Predicates:
        column = self._column(node.this)
        if column is None or not column.type or not isinstance(node.expression, exp.Null):
            return _UNKNOWN
        return _Predicates(_test("is-null", column), _test("not-null", column))

    def between(self, node: exp.Between) -> _Predicates:
        low = self._compared("gt-eq", node.this, node.args["low"])
        high = self._compared("lt-eq", node.this, node.args["high"])
        return _Predicates(_all([low.true, high.true]), _any([low.false, high.false]))

    def membership(self, node: exp.In) -> _Predicates:
        return self._listed(node.this, node.expressions) if node.expressions else _UNKNOWN

    def listing(self, node: exp.ArrayContains) -> _Predicates:
        """Say the test of a list of texts, as the groups of the caller are written."""
        array = node.this.this if isinstance(node.this, exp.Cast) else None
        is_texts = isinstance(array, exp.Array) and all(map(_is_text, array.expressions))
        return self._listed(node.expression, array.expressions) if is_texts and array is not None else _UNKNOWN

    def pattern(self, node: exp.Like) -> _Predicates:
        text = node.expression.unnest()
        plain = text.name.rstrip("%")
        if not _is_text(text) or "%" in plain or "_" in plain:
            return _UNKNOWN
        operation = "eq" if plain == text.name else "starts-with"
        found = self._compared(operation, node.this, exp.Literal.string(plain))
        return _Predicates(*reversed(found)) if node.args.get("negate") else found

    def prefix(self, node: exp.StartsWith) -> _Predicates:
        return self._compared("starts-with", node.this, node.expression)

    def choice(self, node: exp.Case) -> _Predicates:
        """Say a CASE of one condition. The CASE is NULL where the condition is not true."""
        if node.this is not None or node.args.get("default") is not None or len(node.args["ifs"]) != 1:
            return _UNKNOWN
        (branch,) = node.args["ifs"]
        when, then = self.said(branch.this), self.said(branch.args["true"])
        return _Predicates(_all([when.true, then.true]), _all([when.true, then.false]))

    def _column(self, node: exp.Expr) -> SchemaColumn | None:
        """Return the column of a plain name; None for another node, and for a name of none or several columns."""
        node = node.unnest()
        if type(node) is exp.Cast and node.to == _DOUBLE:  # how a filter of 32 bits of another dialect is written
            column = self._column(node.this)
            return column if column and column.type in _FLOATS else None
        if not isinstance(node, exp.Column) or len(node.parts) != 1:
            return None
        return self._columns.get(fold_column(node.name))

    def _compared(self, operation: str, node: exp.Expr, value: exp.Expr) -> _Predicates:
        """Return the predicates of a comparison of a column, or of a known text."""
        column, other, value = self._column(node), self._column(value), value.unnest()
        if column is None:
            is_known = _is_text(node.unnest()) and _is_text(value)
            found = is_known and _OF_TEXTS[operation](node.unnest().name, value.name)
            return _Predicates(found, not found) if is_known else _UNKNOWN
        if isinstance(value, exp.Null):
            return _UNKNOWN
        if other is not None:
            is_pair = column.type == other.type and _COMPARABLE.fullmatch(column.type)
            return _decided(operation, column, _reference(other), [other]) if is_pair else _UNKNOWN
        literal = _literal(operation, column.type, value)
        return _UNKNOWN if literal is None else _decided(operation, column, literal)

    def _listed(self, node: exp.Expr, values: Sequence[exp.Expr]) -> _Predicates:
        """Return the predicates of a test for a list of values. With a NULL in the list, no row is certainly out."""
        known = [value for value in values if not isinstance(value.unnest(), exp.Null)]
        parts = [self._compared("eq", node, value) for value in known]
        column = self._column(node)
        certain = _all([part.false for part in parts]) if len(known) == len(values) else False
        if not parts:
            return _Predicates(False, column is not None and certain and _test("not-null", column))
        literals = [_literal("eq", column.type, value) for value in known] if column else []
        types = {literal["data-type"] for literal in literals if literal}
        if column is None or column.type in _FLOATS or None in literals or types != {column.type} or len(parts) == 1:
            return _Predicates(_any([part.true for part in parts]), certain)
        group = {"type": "literals", "values": [one["value"] for one in literals if one], "data-type": column.type}
        inside, outside = ({"type": type, "child": _reference(column), "values": group} for type in ("in", "not-in"))
        present = _test("not-null", column)
        return _Predicates(_all([present, inside]), certain and _all([present, outside]))


_SAYERS: Final[Mapping[type[exp.Expr], Callable[[_Builder, Any], _Predicates]]] = {
    **dict.fromkeys(_OPERATIONS, _Builder.comparison),
    exp.Boolean: _Builder.boolean, exp.Column: _Builder.flag, exp.Is: _Builder.null_test, exp.Between: _Builder.between,
    exp.In: _Builder.membership, exp.ArrayContains: _Builder.listing, exp.Like: _Builder.pattern,
    exp.StartsWith: _Builder.prefix, exp.Case: _Builder.choice,
}  # fmt: skip
_ARGUMENTS: Final = frozenset({"this", "expression", "expressions", "low", "high", "ifs", "default"})


def _has_only(node: exp.Expr) -> bool:
    """Tell whether a node has no argument beside the known arguments, such as `symmetric` of BETWEEN."""
    read = _ARGUMENTS | {"negate"} if isinstance(node, exp.Like) else _ARGUMENTS
    return not any(value for name, value in node.args.items() if name not in read)


def _decided(operation: str, column: SchemaColumn, value: Any, others: Sequence[SchemaColumn] = ()) -> _Predicates:
    """Return the predicates of a comparison. NULL is neither; NaN is unequal to each number, and not above or below."""
    present = [_test("not-null", one) for one in (column, *others)]
    holds, fails = (
        {"type": type, "left": _reference(column), "right": value} for type in (operation, _OPPOSITES[operation])
    )
    if column.type not in _FLOATS:
        return _Predicates(_all([*present, holds]), _all([*present, fails]))
    nan, number = _test("is-nan", column), _test("not-nan", column)
    true, false = _all([number, holds]), _all([number, fails])
    if operation == "not-eq":
        return _Predicates(_all([*present, _any([nan, true])]), _all([*present, false]))
    return _Predicates(_all([*present, true]), _all([*present, _any([nan, false])]))


def _test(type: str, column: SchemaColumn) -> Predicate:
    return {"type": type, "child": _reference(column)}


def _reference(column: SchemaColumn) -> dict[str, Any]:
    return {"type": "reference", "id": column.id}


def _all(parts: Iterable[Predicate]) -> Predicate:
    return _joined("and", parts, absorbing=False)


def _any(parts: Iterable[Predicate]) -> Predicate:
    return _joined("or", parts, absorbing=True)


def _joined(type: str, parts: Iterable[Predicate], *, absorbing: bool) -> Predicate:
    """Return a conjunction or disjunction as a balanced tree, without constants inside."""
    some = [part for part in parts if part is not (not absorbing)]
    if absorbing in some or not some:
        return absorbing if some else not absorbing
    while len(some) > 1:
        pairs = [some[at : at + 2] for at in range(0, len(some), 2)]
        some = [{"type": type, "left": pair[0], "right": pair[1]} if len(pair) == 2 else pair[0] for pair in pairs]
    return some[0]


# --- literals -----------------------------------------------------------------------------------------------------

_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MOMENT: Final = re.compile(r"(\d{4}-\d{2}-\d{2} [012]\d:\d{2}:\d{2}(?:\.(\d{1,6}))?)( UTC| \+00:00)?", re.ASCII)
_BITS: Final = {"int": 31, "long": 63}
_Value: TypeAlias = tuple[Any, str] | None
"""JSON value of a literal with the type; None without a certain literal."""


def _literal(operation: str, type: str, value: exp.Expr) -> dict[str, Any] | None:
    """Return the literal beside a column of a type; None for a value with two ways to compare."""
    say = _LITERALS.get("decimal" if _DECIMAL.fullmatch(type) else type)
    try:
        found = say(type, value.unnest(), operation) if say else None
    except ValueError:
        return None
    return None if found is None else {"type": "literal", "value": found[0], "data-type": found[1]}


def _text_value(type: str, value: exp.Expr, operation: str) -> _Value:
    return (value.name, type) if _is_text(value) else None


def _truth_value(type: str, value: exp.Expr, operation: str) -> _Value:
    is_equality = isinstance(value, exp.Boolean) and operation in ("eq", "not-eq")
    return (bool(value.this), type) if is_equality else None


def _whole_value(type: str, value: exp.Expr, operation: str) -> _Value:
    """Return a whole number, as a long where an int cannot hold it: readers promote the column."""
    number = literal_number(value)
    if number is None or not number.is_whole:
        return None
    whole = int(_digits(value))
    fitting = (name for name in (type, "long") if -(2 ** _BITS[name]) <= whole < 2 ** _BITS[name])
    return next(((whole, name) for name in fitting), None)


def _floating_value(type: str, value: exp.Expr, operation: str) -> _Value:
    """Return a number with the same double in all engines, and without a loss in a column of 32 bits."""
    number = literal_number(value)
    if number is None or not (number.is_plain or number.has_exponent) or not math.isfinite(number.value):
        return None
    is_certain = (
        operation in _ZERO_SIGNS if number.value == 0 else type == "double" or as_real(number.value) == number.value
    )
    return (number.value or 0.0, type) if is_certain else None


def _decimal_value(type: str, value: exp.Expr, operation: str) -> _Value:
    """Return a number with exactly the digits of the type."""
    found, number = _DECIMAL.fullmatch(type), literal_number(value)
    if found is None or number is None or number.has_exponent:
        return None
    precision, scale = int(found[1]), int(found[2])
    whole, _, fraction = _digits(value).removeprefix("-").partition(".")
    digits = (whole.lstrip("0") + fraction.rstrip("0").ljust(scale, "0")).rjust(scale + 1, "0")
    if len(fraction.rstrip("0")) > scale or len(digits.lstrip("0")) > precision:
        return None
    sign = "-" if number.value < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits), type


def _day_value(type: str, value: exp.Expr, operation: str) -> _Value:
    day = _cast_text(value, exp.DataType.Type.DATE)
    return (day, type) if date_of(day) else None


def _moment_value(type: str, value: exp.Expr, operation: str) -> _Value:
    """Return a timestamp, with a zone in UTC alone. A date beside a timestamp without a zone is midnight."""
    has_zone = type == "timestamptz"
    if day := date_of("" if has_zone else _cast_text(value, exp.DataType.Type.DATE)):
        return f"{day}T00:00:00.000000", type
    wanted = exp.DataType.Type.TIMESTAMPTZ if has_zone else exp.DataType.Type.TIMESTAMP
    found = _MOMENT.fullmatch(_cast_text(value, wanted))
    parameters = value.args["to"].expressions if found else []
    digits = int(parameters[0].name) if parameters else 3
    if found is None or bool(found[3]) != has_zone or len(found[2] or "") > digits:
        return None
    moment = datetime.fromisoformat(found[1]).isoformat(timespec="microseconds")
    return moment + ("+00:00" if has_zone else ""), type


_LITERALS: Final[Mapping[str, Callable[[str, exp.Expr, str], _Value]]] = {
    "string": _text_value, "boolean": _truth_value, "int": _whole_value, "long": _whole_value,
    "float": _floating_value, "double": _floating_value, "decimal": _decimal_value, "date": _day_value,
    "timestamp": _moment_value, "timestamptz": _moment_value,
}  # fmt: skip


def _digits(value: exp.Expr) -> str:
    return f"-{value.this.name}" if isinstance(value, exp.Neg) else value.name


def _cast_text(value: exp.Expr, kind: Any) -> str:
    """Return the text of a literal such as `DATE '2024-01-31'`; empty for another value."""
    is_literal = type(value) is exp.Cast and value.to.this == kind and _is_text(value.this)
    return str(value.this.name) if is_literal else ""


def _is_text(node: exp.Expr) -> bool:
    """Tell whether a node is a text without surrogates: JSON holds no others."""
    return isinstance(node, exp.Literal) and node.is_string and not _SURROGATE.search(node.name)


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
