"""Comparisons of a filter, written so that another engine shows the author's rows. Needs the parser of SQL.

Engines differ on NaN, on numbers beside a column of 32 bits, on texts beside times, and on the order of operators. A
comparison is kept, rewritten with the author's meaning, or refused. Types decide only where they are known: a column of
32 bits without a type is compared as written.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from sqlglot import exp

from pdp.engines.row_access.mask_kinds import Family
from pdp.engines.row_access.portable_casts import CASTS
from pdp.engines.row_access.portable_numbers import (
    NUMBERS,
    LiteralNumber,
    as_real,
    double,
    is_within,
    literal_number,
    word_kind,
)
from pdp.engines.row_access.portable_patterns import PATTERNS
from pdp.engines.row_access.portable_texts import TEXTS, membership
from pdp.engines.row_access.portable_times import TIMES, fit_times
from pdp.engines.row_access.portable_values import (
    Kind,
    PortableValue,
    PortableValues,
    TypeOf,
    date_of,
    families_of,
    is_caller,
)
from pdp.engines.row_access.trino import UntranslatableSql

_T: Final = exp.DataType.Type
_IEEE: Final = frozenset({"athena", "bigquery", "trino"})
"""Dialects in which NaN is neither larger nor equal to anything."""
_BY_VERSION: Final = frozenset({"presto"})
"""Dialects in which the version decides: NaN is equal to NaN and larger than all numbers in Presto since 0.288."""
_LARGEST: Final = frozenset({"databricks", "duckdb", "spark"})
"""Dialects in which NaN is equal to NaN and larger than all numbers."""
_COMPARES_REALS: Final = frozenset({"athena", "duckdb", "presto", "trino"})
"""Dialects with comparisons of a column of 32 bits with `0.1` in 32 bits; Spark compares in 64."""
_COERCES_DATES: Final = frozenset({"bigquery", "databricks", "duckdb", "spark"})
"""Dialects in which a text beside a date is a date."""
_ORDERS: Final = (exp.GT, exp.GTE, exp.LT, exp.LTE)
_COMPARISONS: Final = (exp.EQ, exp.NEQ, *_ORDERS)
_RANGES: Final = (*_ORDERS, exp.Between)
_OPPOSITES: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.GT: exp.LTE, exp.GTE: exp.LT, exp.LT: exp.GTE, exp.LTE: exp.GT,
}  # fmt: skip
_ON_DATES: Final = (*_COMPARISONS, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In)
_CLAMPED: Final = (
    "a moved date, or a day in a zone, is compared with literals between 0001-01-02 and 9999-12-30 alone in BigQuery"
)
_PARTIAL: Final = (
    "what can fail, such as CAST or `+` of Spark, stands below comparisons alone: write TRY_CAST, SAFE_CAST or "
    "SAFE_OFFSET, or CAST smaller numbers AS BIGINT"
)
_STRICT: Final = (
    *_COMPARISONS, exp.Between, exp.In, exp.And, exp.Or, exp.Not, exp.Paren, exp.Cast, exp.Like, exp.Escape,
    exp.StartsWith, exp.EndsWith, exp.Substring, exp.DPipe, exp.Length, exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Abs,
)  # fmt: skip
"""Expressions that are NULL for NULL, or that take NULL for unknown."""
_MOST_NODES: Final = 2_000
"""Parts of one printed expression. Some functions print a part twice, so that their nesting doubles the text."""
_CONDITIONS: Final = (exp.And, exp.Or, exp.Not, exp.Where)
_TRUE: Final = ("", "boolean")
_NUMBERS: Final = frozenset({"integer", "decimal", "real", "double"})
_FLOATS: Final = frozenset({"real", "double"})
_NESTED: Final[frozenset[Family | None]] = frozenset({"list", "map", "struct"})
_COMPARABLE: Final = frozenset({"integer", "text", "date", "boolean", "timestamp", "instant"})
_LIKE_TIME: Final = re.compile(r"\s*\d+[-/:]\d")
_COMPILERS: Final = {**TEXTS, **NUMBERS, **PATTERNS, **CASTS, **TIMES}
FUNCTIONS: Final = (*_COMPILERS, exp.NullSafeEQ, exp.NullSafeNEQ)
"""Expressions that can be written for another engine."""
PARTS: Final = (exp.Interval, exp.Var, exp.DataType, exp.DataTypeParam, exp.Array, exp.Unnest)
"""Parts of such expressions."""


def adapt(tree: exp.Expr, source: str, target: str, type_of: TypeOf) -> exp.Expr:
    """Return the tree of a filter, changed so that another dialect has its meaning; raise UntranslatableSql."""
    work = _Comparisons(source, target, type_of)
    # Inner nodes come first: a rewritten comparison holds what became of its parts.
    for node in reversed(list(tree.walk())):
        new = work.adapted(node)
        if new is not node:
            if node is tree:
                tree = new
            else:
                node.replace(new)
    work.check_root(tree)
    return tree


class _Comparisons:
    """Comparisons and functions of one dialect in another."""

    def __init__(self, source: str, target: str, type_of: TypeOf) -> None:
        self._source, self._target, self._type_of = source, target, type_of
        self._values = PortableValues(source, target, type_of)
        self._tests: set[int] = set()
        self._atom, self._kind = self._values.atom, self._values.kind

    def adapted(self, node: exp.Expr) -> exp.Expr:
        """Return a node in its place, or the new one; raise UntranslatableSql."""
        node = membership(node)
        compile = _COMPILERS.get(type(node))
        if compile is not None and not (isinstance(node, exp.If) and isinstance(node.parent, exp.Case)):
            return self._noted(node, compile(self._values, node))
        if isinstance(node, (*_COMPARISONS, exp.NullSafeEQ, exp.NullSafeNEQ)):
            return self._compared(node)
        if isinstance(node, exp.Between):
            fit_times(self._values, node.this, node.args["low"], node.args["high"])
            self._check_atoms(node.this, node.args["low"], node.args["high"])
            self._check_clamped(node.this, node.args["low"], node.args["high"])
            for side in (node.this, node.args["low"], node.args["high"]):
                self._check_folds(side, [], is_order=True)
            self._check_forms(node.args["low"], node.args["high"])
            for bound in ("low", "high"):
                self._fit(node, "this", bound)
        elif isinstance(node, exp.In):
            self._listed(node)
        elif isinstance(node, exp.Is):
            return self._tested(node)
        elif isinstance(node, exp.Neg) and (not isinstance(node.this, exp.Literal) or node.this.is_string):
            raise UntranslatableSql("a minus stands before a plain number alone: write 0 - ..")
        elif isinstance(node, exp.Column) and isinstance(_outside(node), _CONDITIONS) and self._kind(node) not in _TRUE:
            raise UntranslatableSql(f"`{node.name}` is no condition")  # DuckDB takes a number for a condition
        return node

    def _noted(self, node: exp.Expr, value: PortableValue) -> exp.Expr:
        """Return the expression of a compiled function; raise UntranslatableSql for a value in place of a condition."""
        if len(list(islice(value.node.walk(), _MOST_NODES))) == _MOST_NODES:
            raise UntranslatableSql("it is too long in another engine: write fewer functions within functions")
        if isinstance(_outside(node), _CONDITIONS) and value.kind != "boolean":
            raise UntranslatableSql("a value stands in place of a condition")
        is_inner = isinstance(node, exp.AtTimeZone)  # a cast around takes the day
        if value.is_clamped and not is_inner and not isinstance(_outside(node), (*_ON_DATES, exp.Is)):
            raise UntranslatableSql(_CLAMPED)
        if value.is_partial and not _is_strict(node):
            raise UntranslatableSql(_PARTIAL)
        if isinstance(node, (exp.Like, exp.Escape)):
            self._tests.add(id(value.node.unnest()))
        return self._values.note(value)

    def check_root(self, tree: exp.Expr) -> None:
        """Raise UntranslatableSql for an expression that is a value with letters that engines fold differently."""
        value = self._values.of(tree)
        if value.folds:
            raise UntranslatableSql(f"`{value.folds[0].function}` folds some letters differently: compare it")
        if value.kind == "" and isinstance(tree.unnest(), (*PARTS, *FUNCTIONS)):
            raise UntranslatableSql("it has no certain value")

    def _compared(self, node: exp.Expr) -> exp.Expr:
        fit_times(self._values, node.this, node.expression)
        self._check_clamped(node.this, node.expression)
        self._check_atoms(node.this, node.expression)
        self._check_folds(node.this, [node.expression], is_order=isinstance(node, _ORDERS))
        self._check_folds(node.expression, [node.this], is_order=isinstance(node, _ORDERS))
        self._fit(node, "this", "expression")
        if isinstance(node, (exp.NullSafeEQ, exp.NullSafeNEQ)):
            return self._null_safe(node)
        return self._with_nan(node) if isinstance(node, _ORDERS) else node

    def _null_safe(self, node: exp.NullSafeEQ | exp.NullSafeNEQ) -> exp.Expr:
        sides = [self._values.of(side) for side in (node.this, node.expression)]
        kinds = {side.kind for side in sides}
        if kinds & {"real", "double", "other"} or ("" in kinds and "text" not in kinds):
            raise UntranslatableSql("`IS DISTINCT FROM` compares known texts, whole numbers and dates alone")
        return self._test(exp.Paren(this=type(node)(this=node.this, expression=node.expression)))

    def _test(self, node: exp.Expr) -> exp.Expr:
        """Note a test such as `IS TRUE`, on whose order beside comparisons engines differ."""
        self._tests.add(id(node.unnest()))
        return self._values.note(PortableValue(node, "boolean"))

    def _check_folds(self, side: exp.Expr, others: list[exp.Expr], *, is_order: bool) -> None:
        """Write a folded text for a comparison with literals; raise UntranslatableSql for another comparison."""
        value = self._values.of(side)
        if not value.folds:
            return
        if is_order:
            raise UntranslatableSql(f"`{value.folds[0].function}` folds some letters differently: write = or IN")
        self._values.settle(value, [self._values.of(other) for other in others])

    def _tested(self, node: exp.Is) -> exp.Expr:
        """Return `IS NULL` as it stands, and `IS TRUE` as a function: Trino has no such test."""
        if not isinstance(node.expression, exp.Boolean):
            self._check_atoms(node.this)
            return node
        value, inner = self._values.of(node.this), node.this.unnest()
        is_operand = isinstance(node.this, exp.Paren) or self._values.is_operand(node.this)
        if id(inner) in self._tests and not isinstance(node.this.this, exp.Paren) and isinstance(inner, exp.Binary):
            is_operand = False  # the parentheses are ours
        if not is_operand or value.kind != "boolean":
            raise UntranslatableSql("`IS TRUE` tests a condition in parentheses, or a column that is known as boolean")
        inner = node.this if node.expression.this else exp.Paren(this=exp.Not(this=node.this))
        test = exp.Anonymous(this="COALESCE", expressions=[inner, exp.false()])
        return self._test(test)

    def _listed(self, node: exp.In) -> None:
        query = node.args.get("query")
        self._check_clamped(node.this, *node.expressions, *([query] if query is not None else []))
        if query is None:
            fit_times(self._values, node.this, *node.expressions)
            self._check_atoms(node.this, *node.expressions)
            self._check_forms(*node.expressions)
            self._check_folds(node.this, node.expressions, is_order=False)
            for one in node.expressions:
                self._check_folds(one, [node.this], is_order=False)
            for place in range(len(node.expressions)):
                self._fit(node, "this", place)
        else:
            self._check_atoms(node.this)
            self._check_folds(node.this, [query], is_order=False)
            self._check_pair(self._atom(node.this), query)

    def _check_atoms(self, *parts: exp.Expr) -> None:
        """Raise UntranslatableSql for a comparison of a comparison: engines differ on the order of operators."""
        for part in parts:
            atom = self._atom(part)
            is_known = (self._values.is_operand(atom) and id(atom) not in self._tests) or is_caller(atom)
            if not is_known and not isinstance(atom, (exp.Literal, exp.Neg, exp.Boolean, exp.Null, exp.Subquery)):
                raise UntranslatableSql("a comparison stands in a comparison, and engines differ on what binds first")

    def _check_clamped(self, *parts: exp.Expr) -> None:
        """Raise UntranslatableSql for a date that BigQuery cannot hold beside others than dates within its range."""
        sides = [self._values.of(part) for part in parts]
        others = [side for side in sides if not side.is_clamped]
        if len(others) < len(sides) and (len(others) < len(sides) - 1 or not all(map(is_within, others))):
            raise UntranslatableSql(_CLAMPED)

    def _check_forms(self, *values: exp.Expr) -> None:
        """Raise UntranslatableSql for numbers with and without an exponent in one list: they share a type there."""
        numbers = [number for value in values if (number := literal_number(self._atom(value))) is not None]
        if len({number.has_exponent for number in numbers}) > 1:
            raise UntranslatableSql("numbers of two forms stand in one list, which engines convert differently")

    def _fit(self, node: exp.Expr, left: str, right: str | int) -> None:
        """Write the two sides of a comparison as the target needs them; raise UntranslatableSql."""
        first = node.args[left]
        second = node.args[right] if isinstance(right, str) else node.expressions[right]
        one, other = self._atom(first), self._atom(second)
        self._check_pair(one, other)
        self._check_words(one, other)
        for operand, value, place in ((one, other, second), (other, one, first)):
            if not self._values.is_operand(operand):
                continue
            kind = self._kind(operand)
            if isinstance(value, exp.Literal) and value.is_string:
                self._fit_text(kind, operand, value, place)
            elif (number := literal_number(value)) is not None:
                if kind == "" and isinstance(node, _RANGES) and self._source in _BY_VERSION:
                    raise UntranslatableSql(_no_nan(self._source, f"`{operand.name}`"))
                self._check_wide(operand, number)
                if kind == "real" and number.value == 0 and not isinstance(node, _RANGES):
                    self._fit_zero(operand)
                new = self._fit_number(kind, operand, number)
                if new is not None:
                    place.replace(exp.Literal.number(new))
                    if not isinstance(operand.parent, exp.Cast):
                        wide = exp.Cast(to=exp.DataType(this=_T.DOUBLE))
                        operand.replace(wide)
                        wide.set("this", operand)

    def _fit_zero(self, operand: exp.Expr) -> None:
        """Add 0 to a number of 32 bits for Trino, whose lists with 0 miss -0.0; raise UntranslatableSql for its own."""
        if self._source == "trino":
            raise UntranslatableSql(f"`{operand.name}` has 32 bits, and Trino's lists with 0 miss -0.0: write < and >")
        if self._target == "trino" and not isinstance(operand, exp.Add):
            new = exp.Paren(this=exp.Add(expression=exp.Literal.number("0")))
            operand.replace(new)
            new.this.set("this", operand)
            self._values.note(PortableValue(new, "real"))

    def _check_wide(self, operand: exp.Expr, number: LiteralNumber) -> None:
        """Raise UntranslatableSql for the result of an operation beside a number with a point."""
        if not isinstance(operand, exp.Column) and self._kind(operand) == "integer" and not number.is_whole:
            raise UntranslatableSql("a whole number is compared with one that has a point")

    def _fit_text(self, kind: Kind, column: exp.Expr, value: exp.Literal, place: exp.Expr) -> None:
        text = value.name
        if kind == "date":
            if self._source not in _COERCES_DATES or date_of(text) is None:
                raise UntranslatableSql(f"`{column.name}` is a date, and a text beside it has no certain meaning")
            place.replace(exp.Cast(this=exp.Literal.string(text), to=exp.DataType(this=_T.DATE)))
        elif kind == "" and self._target != "trino" and _LIKE_TIME.match(text):
            raise UntranslatableSql(f"`{column.name}` may be a time, which has another zone in each engine")
        elif kind not in ("", "text"):
            raise UntranslatableSql(f"`{column.name}` is compared with a text, which engines convert differently")

    def _fit_number(self, kind: Kind, column: exp.Expr, number: LiteralNumber) -> str | None:
        """Return the literal for a comparison in 64 bits; None if the literal stays as written."""
        if kind not in ("", *_NUMBERS):
            raise UntranslatableSql(f"`{column.name}` is compared with a number, which engines convert differently")
        if number.is_whole and abs(number.value) >= 2.0**63:
            raise UntranslatableSql("a whole number has more than 64 bits")
        if kind in _FLOATS and self._source not in _IEEE | _LARGEST:
            raise UntranslatableSql(f"`{column.name}` is a floating number, which `{self._source}` compares in its way")
        is_exact = number.is_plain and abs(number.value) < 2.0**53
        if kind and not is_exact and not (number.is_whole and kind not in _FLOATS):
            raise UntranslatableSql(f"the number beside `{column.name}` has more digits than a double")
        if kind != "real" or as_real(number.value) == number.value:
            return None
        if "bigquery" in (self._source, self._target) or number.is_whole or not number.is_plain:
            raise UntranslatableSql(f"`{column.name}` has 32 bits, and the number beside it needs more")
        in_reals = self._source in _COMPARES_REALS and not number.has_exponent
        return double(as_real(number.value) if in_reals else number.value)

    def _check_words(self, one: exp.Expr, other: exp.Expr) -> None:
        """Raise UntranslatableSql for TRUE, the caller or a literal beside a value of another kind."""
        kinds = [self._kind(each) if self._values.is_operand(each) else word_kind(each) for each in (one, other)]
        has_word = any(kind in ("boolean", "text") for kind in kinds)
        is_literal = all(map(word_kind, (one, other))) or exp.Boolean in map(type, (one, other))
        is_caller = any(isinstance(each, (exp.SessionUser, exp.CurrentUser)) for each in (one, other))
        if all(kinds) and kinds[0] != kinds[1] and has_word and (is_literal or is_caller):
            raise UntranslatableSql("values of two kinds are compared, which engines convert differently")

    def _check_pair(self, one: exp.Expr, other: exp.Expr) -> None:
        """Raise UntranslatableSql for two columns, or a column and a subquery, that engines compare differently."""
        pair = [self._shown(each) for each in (one, other)]
        is_pair = all(map(self._values.is_operand, pair))
        if not is_pair and not any(isinstance(each, exp.Query) for each in (one, other)):
            return
        if any(self._values.of(each).folds for each, side in zip(pair, (one, other), strict=True) if each is not side):
            raise UntranslatableSql("`LOWER` and `UPPER` fold some letters differently: compare them with literals")
        kinds = {self._kind(each) if self._values.is_operand(each) else "" for each in pair}
        is_compiled = any(map(self._values.compiled, pair))
        if "" in kinds:
            if _FLOATS & kinds or is_compiled:
                raise UntranslatableSql("a floating number is compared with a value of no known type")
            if self._source in _BY_VERSION:
                raise UntranslatableSql(_no_nan(self._source, "a value of no known type"))
            return
        is_same_nan = {self._source, self._target} <= _IEEE or {self._source, self._target} <= _LARGEST
        if _FLOATS & kinds and not (is_same_nan and len(kinds) == 1):
            raise UntranslatableSql("engines differ on NaN, and on numbers beside a floating one")
        if is_compiled and (len(kinds) != 1 or not kinds <= _COMPARABLE):
            raise UntranslatableSql("values of two kinds are compared, which engines convert differently")
        if any(families_of(self._type_of(each)) & _NESTED for each in pair if isinstance(each, exp.Column)):
            raise UntranslatableSql("lists, maps and structs are compared, and engines differ on NULL in them")
        texts = {self._type_of(each).lower() for each in pair if isinstance(each, exp.Column)}
        if not (len(texts) == 1 or kinds <= {"integer", "decimal"} or (len(kinds) == 1 and "other" not in kinds)):
            raise UntranslatableSql("columns of two types are compared, which engines convert differently")

    def _with_nan(self, node: exp.Expr) -> exp.Expr:
        """Return a comparison by order that treats NaN as the author's engine does."""
        column, value = self._atom(node.this), self._atom(node.expression)
        is_left = self._values.is_operand(column)
        if is_left == self._values.is_operand(value):
            return node
        kind = self._kind(column if is_left else value)
        if kind not in ("", *_FLOATS) or (kind == "" and literal_number(value if is_left else column) is None):
            return node
        is_above = isinstance(node, (exp.GT, exp.GTE) if is_left else (exp.LT, exp.LTE))
        if not is_above or (self._source in _IEEE) == (self._target in _IEEE):
            return node
        if self._source in _IEEE:  # NaN is above nothing there, and above everything here
            nan = exp.Cast(this=exp.Literal.string("NaN"), to=exp.DataType(this=_T.DOUBLE))
            side = (node.this if is_left else node.expression).copy()
            return exp.Paren(this=exp.And(this=node.copy(), expression=exp.NEQ(this=side, expression=nan)))
        inner = _OPPOSITES[type(node)](this=node.this.copy(), expression=node.expression.copy())
        return exp.Paren(this=exp.Not(this=exp.Paren(this=inner)))

    def _shown(self, node: exp.Expr) -> exp.Expr:
        """Return the only projection of a query; another value as given."""
        query = node.unnest() if isinstance(node, exp.Query) else node
        shown = query.expressions if isinstance(query, exp.Select) else []
        return self._atom(shown[0].unalias()) if len(shown) == 1 else node


def _no_nan(dialect: str, what: str) -> str:
    return (
        f"{what} may be NaN, which versions of `{dialect}` compare in other ways: a type in `tables` could rule it out"
    )


def _outside(node: exp.Expr) -> exp.Expr | None:
    """Return the parent of a node, past parentheses."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _is_strict(node: exp.Expr) -> bool:
    """Tell whether NULL for a value makes all around NULL, below AND, OR and NOT: then no row is shown for NULL."""
    parent = node.parent
    while isinstance(parent, _STRICT):
        parent = parent.parent
    return parent is None
