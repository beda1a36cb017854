"""Proofs about row filters: never true, always true, and true wherever another filter is true.

A proof tries a finite list of values of each column that stand for all values of its type (`column_values`). Any other
condition, such as a function or a comparison of two columns, may be true, false or NULL, but has one outcome at a time.
So more inputs are tried than exist, and a proof holds; without a proof nothing is said.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sqlglot import exp

from pdp.offline.row_policies.column_values import (
    UNKNOWN,
    UNORDERED,
    Domain,
    NumberLiteral,
    Truth,
    Value,
    literal_of,
    takes,
    values_of,
)

_MOST_INPUTS: Final = 10_000
_UNKNOWN_TRUTHS: Final[Sequence[Truth]] = (True, False, None)
Domains: TypeAlias = Mapping[str, Domain]
"""Domains of columns, by name in lower case."""
NO_DOMAINS: Final[Domains] = MappingProxyType({})
Evaluation: TypeAlias = Callable[[Mapping[str, Truth]], Truth]
"""Condition as a function of the truths of its comparisons, by text."""
_SIGNS: Final[Mapping[type, frozenset[int]]] = {
    exp.EQ: frozenset({0}),
    exp.NEQ: frozenset({-1, 1, UNORDERED}),
    exp.GT: frozenset({1}),
    exp.GTE: frozenset({0, 1}),
    exp.LT: frozenset({-1}),
    exp.LTE: frozenset({-1, 0}),
}
"""ColumnComparison -> signs of the left side beside the right side for which the comparison is true."""
_MIRRORED: Final[Mapping[type, type]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


class ColumnComparison(NamedTuple):
    """ColumnComparison of a column with literals, with NULL or with itself, or the column as a condition."""

    column: str
    literals: tuple[Any, ...]
    truth: Callable[[Value], Truth]
    ordered: bool = False
    bare: bool = False


def truths(*trees: exp.Expr, domains: Domains = NO_DOMAINS) -> Iterator[tuple[Truth, ...]]:
    """Yield the truth of conditions for each input; nothing if there are too many inputs to try."""
    atoms = {_text(atom): _comparison(atom) for tree in trees for atom in _atoms(tree)}
    columns: dict[str, dict[str, ColumnComparison]] = {}
    for text, comparison in atoms.items():
        if comparison is not None:
            columns.setdefault(comparison.column, {})[text] = comparison
    pools: list[Sequence[Mapping[str, Truth]]] = []
    free = [text for text, comparison in atoms.items() if comparison is None]
    for name, comparisons in columns.items():
        known, others = _column_truths(domains.get(name, UNKNOWN), comparisons)
        pools += [known] if known else []
        free += others
    pools += [[{text: truth} for truth in _UNKNOWN_TRUTHS] for text in free]
    count = 1
    for pool in pools:
        count *= len(pool)
    if count > _MOST_INPUTS:
        return
    evaluations = [_compiled(tree) for tree in trees]
    for parts in itertools.product(*pools):
        given = {text: truth for part in parts for text, truth in part.items()}
        yield tuple(evaluation(given) for evaluation in evaluations)


def _column_truths(
    domain: Domain, comparisons: Mapping[str, ColumnComparison]
) -> tuple[Sequence[Mapping[str, Truth]], Sequence[str]]:
    """Return the possible truths of the comparisons of a column together, and the texts of those that are not known."""
    known = {text: one for text, one in comparisons.items() if all(takes(domain, literal) for literal in one.literals)}
    literals = list(dict.fromkeys(literal for one in known.values() for literal in one.literals))
    has_order, has_bare = (any(getattr(one, name) for one in known.values()) for name in ("ordered", "bare"))
    values = values_of(domain, literals, ordered=has_order, bare=has_bare)
    if values is None or not known:
        return (), list(comparisons)
    outcomes = {tuple(one.truth(value) for one in known.values()) for value in values}
    return [dict(zip(known, outcome, strict=True)) for outcome in outcomes], [
        text for text in comparisons if text not in known
    ]


def is_never_true(tree: exp.Expr, *, domains: Domains = NO_DOMAINS) -> bool:
    """Tell whether a condition is proven to be true for no row."""
    found = [truth for (truth,) in truths(tree, domains=domains)]
    return bool(found) and True not in found


def is_always_true(tree: exp.Expr, *, domains: Domains = NO_DOMAINS) -> bool:
    """Tell whether a condition is proven to be true for every row."""
    found = [truth for (truth,) in truths(tree, domains=domains)]
    return bool(found) and all(found)


def implies(first: exp.Expr, second: exp.Expr, *, domains: Domains = NO_DOMAINS) -> bool:
    """Tell whether the second condition is proven to be true wherever the first condition is true."""
    found = list(truths(first, second, domains=domains))
    return bool(found) and all(then for given, then in found if given)


def truth_of_row(tree: exp.Expr, row: Mapping[str, Any]) -> Truth | Literal["unknown"]:
    """Return the truth of a condition for the values of a row; `unknown` if only an engine can tell.

    `row` has values by column in lower case: None, booleans, texts, and numbers: fractions and doubles.
    """
    given: dict[str, Truth] = {}
    for atom in _atoms(tree):
        known = _comparison(atom)
        if known is None or known.column not in row:
            return "unknown"
        value = row[known.column]
        if value is not None and not all(_fits(value, literal) for literal in known.literals):
            return "unknown"
        given[_text(atom)] = known.truth(_value_of(value))
    return _compiled(tree)(given)


def _fits(value: Any, literal: Any) -> bool:
    """Tell whether a value of a row is compared with a literal without a change of either. NaN is for the engine."""
    if isinstance(literal, NumberLiteral):
        return isinstance(value, (Fraction, float)) and value == value  # noqa: PLR0124  NaN alone is unequal to itself
    return type(value) is type(literal)


def _value_of(value: Any) -> Value:
    if value is None:
        return Value(lambda _: None, None, is_null=True)

    def sign(literal: Any) -> int:
        other = literal
        if isinstance(literal, NumberLiteral):
            other = float(literal.value) if isinstance(value, float) else literal.value
        return int(value > other) - int(value < other)

    return Value(sign, 0, value if isinstance(value, bool) else None)


def _compiled(node: exp.Expr) -> Evaluation:
    """Return the truth of a condition in the three-valued logic of SQL."""
    if isinstance(node, exp.Paren):
        return _compiled(node.this)
    if isinstance(node, exp.Not):
        inner = _compiled(node.this)
        return lambda given: None if (truth := inner(given)) is None else not truth
    if isinstance(node, (exp.And, exp.Or)):
        return _joined(_compiled(node.this), _compiled(node.expression), isinstance(node, exp.Or))
    if isinstance(node, (exp.Boolean, exp.Null)):
        constant = bool(node.this) if isinstance(node, exp.Boolean) else None
        return lambda given: constant
    return itemgetter(_text(node))


def _joined(left: Evaluation, right: Evaluation, decisive: bool) -> Evaluation:
    """Return the truth of AND or OR. One truth decides whatever the other side is: `decisive`."""

    def truth(given: Mapping[str, Truth]) -> Truth:
        one = left(given)
        if one is decisive:
            return decisive
        other = right(given)
        if other is decisive:
            return decisive
        return None if one is None or other is None else not decisive

    return truth


def _atoms(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND, OR and NOT join."""
    if isinstance(node, (exp.And, exp.Or)):
        yield from _atoms(node.this)
        yield from _atoms(node.expression)
    elif isinstance(node, (exp.Not, exp.Paren)):
        yield from _atoms(node.this)
    elif not isinstance(node, (exp.Boolean, exp.Null)):
        yield node


def _comparison(node: exp.Expr) -> ColumnComparison | None:
    """Return a condition as a comparison of one column; None for another condition."""
    if isinstance(node, exp.Column):
        return ColumnComparison(_name(node), (), lambda value: value.truth, bare=True)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return ColumnComparison(_name(node.this), (), _is_null) if isinstance(node.this, exp.Column) else None
    if type(node) in _SIGNS:
        return _simple_comparison(node)
    if isinstance(node, exp.In) and not {name for name, part in node.args.items() if part} - {"this", "expressions"}:
        parts, is_ordered, signs = node.expressions, False, [_SIGNS[exp.EQ]] * len(node.expressions)
    elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
        parts, is_ordered, signs = [node.args["low"], node.args["high"]], True, [_SIGNS[exp.GTE], _SIGNS[exp.LTE]]
    else:
        return None
    literals = tuple(map(literal_of, parts))
    if not isinstance(node.this, exp.Column) or not literals or any(literal is None for literal in literals):
        return None
    join = all if is_ordered else any

    def truth(value: Value) -> Truth:
        found = [value.sign(literal) for literal in literals]
        return None if None in found else join(sign in wanted for sign, wanted in zip(found, signs, strict=True))

    return ColumnComparison(_name(node.this), literals, truth, is_ordered)


def _simple_comparison(node: exp.Expr) -> ColumnComparison | None:
    is_mirrored = not isinstance(node.this, exp.Column)
    column, other = (node.expression, node.this) if is_mirrored else (node.this, node.expression)
    signs = _SIGNS[_MIRRORED.get(type(node), type(node)) if is_mirrored else type(node)]
    if not isinstance(column, exp.Column):
        return None
    if isinstance(other, exp.Column):
        if _name(other) != _name(column):
            return None
        return ColumnComparison(_name(column), (), lambda value: None if value.own is None else value.own in signs)
    literal = literal_of(other)
    if literal is None:
        return None

    def truth(value: Value) -> Truth:
        sign = value.sign(literal)
        return None if sign is None else sign in signs

    return ColumnComparison(_name(column), (literal,), truth, type(node) not in (exp.EQ, exp.NEQ))


def _is_null(value: Value) -> Truth:
    return value.is_null


def _name(column: exp.Column) -> str:
    """Return the name with all qualifiers: `a.b` may be a field of the column `a`."""
    return "\0".join(part.name.lower() for part in column.parts)


def _text(node: exp.Expr) -> str:
    return node.sql(comments=False)
