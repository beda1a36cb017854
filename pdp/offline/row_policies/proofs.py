"""Proofs about row filters: never true, always true, and true wherever another filter is true.

A proof tries a finite list of values of each column that stand for all values: NULL, the literals that the filters
compare with, and a value between each two of them. Any other condition, such as a function or a comparison of two
columns, may be true, false or NULL, but has one outcome at a time. So more inputs are tried than exist, and a proof
holds; without a proof nothing is said.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias

from sqlglot import exp

_MOST_INPUTS: Final = 10_000
_UNKNOWN: Final = (True, False, None)
Truth: TypeAlias = bool | None
"""Truth of a condition in SQL; None for NULL."""
Evaluation: TypeAlias = Callable[[Mapping[str, Any]], Truth]
"""Condition as a function of an input."""
_COMPARISONS: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    exp.EQ: lambda left, right: left == right,
    exp.NEQ: lambda left, right: left != right,
    exp.GT: lambda left, right: left > right,
    exp.GTE: lambda left, right: left >= right,
    exp.LT: lambda left, right: left < right,
    exp.LTE: lambda left, right: left <= right,
}
_MIRRORED: Final[Mapping[type, type]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}


def truths(*trees: exp.Expr) -> Iterator[tuple[Truth, ...]]:
    """Yield the truth of conditions for each input; nothing if there are too many inputs to try."""
    conditions = [_Condition(tree) for tree in trees]
    literals: dict[str, set[Any]] = {}
    free: set[str] = set()
    for condition in conditions:
        condition.collect(literals, free)
    mixed = {name for name, values in literals.items() if len({_kind(value) for value in values}) > 1}
    pools: dict[str, Sequence[Any]] = {name: _pool(values) for name, values in literals.items() if name not in mixed}
    for condition in conditions:
        free |= condition.texts_of(mixed)
    pools |= dict.fromkeys(free, _UNKNOWN)
    count = 1
    for pool in pools.values():
        count *= len(pool)
    if count > _MOST_INPUTS:
        return
    evaluations = [condition.compiled(pools.keys() - free) for condition in conditions]
    for values in itertools.product(*pools.values()):
        given = dict(zip(pools, values, strict=True))
        yield tuple(evaluation(given) for evaluation in evaluations)


def is_never_true(tree: exp.Expr) -> bool:
    """Tell whether a condition is proven to be true for no row."""
    found = [truth for (truth,) in truths(tree)]
    return bool(found) and True not in found


def is_always_true(tree: exp.Expr) -> bool:
    """Tell whether a condition is proven to be true for every row."""
    found = [truth for (truth,) in truths(tree)]
    return bool(found) and all(found)


def implies(first: exp.Expr, second: exp.Expr) -> bool:
    """Tell whether the second condition is proven to be true wherever the first condition is true."""
    found = list(truths(first, second))
    return bool(found) and all(then for given, then in found if given)


def truth_of_row(tree: exp.Expr, row: Mapping[str, Any]) -> Truth | Literal["unknown"]:
    """Return the truth of a condition for the values of a row; `unknown` if only an engine can tell.

    `row` has values by column in lower case: None, booleans, texts and floats.
    """
    for atom in _atoms(tree):
        known = _known(atom)
        if known is None or known[0] not in row:
            return "unknown"
        value = row[known[0]]
        if value is not None and any(type(value) is not type(literal) for literal in known[1]):
            return "unknown"
    return _compiled(tree, row.keys())(row)


class _Condition:
    """Condition as a tree, evaluated in the three-valued logic of SQL."""

    def __init__(self, tree: exp.Expr) -> None:
        self._tree = tree

    def collect(self, literals: dict[str, set[Any]], free: set[str]) -> None:
        """Add the columns with the literals they are compared with, and the texts of conditions that are not read."""
        for atom in _atoms(self._tree):
            known = _known(atom)
            if known is None:
                free.add(_text(atom))
            else:
                literals.setdefault(known[0], set()).update(known[1])

    def texts_of(self, columns: Iterable[str]) -> set[str]:
        """Return the texts of the atoms on some columns."""
        chosen = set(columns)
        return {_text(atom) for atom in _atoms(self._tree) if (known := _known(atom)) and known[0] in chosen}

    def compiled(self, columns: Container[str]) -> Evaluation:
        """Return the truth as a function of an input: values of columns, and truths of the texts of other atoms."""
        return _compiled(self._tree, columns)


def _compiled(node: exp.Expr, columns: Container[str]) -> Evaluation:
    if isinstance(node, exp.Paren):
        return _compiled(node.this, columns)
    if isinstance(node, exp.Not):
        inner = _compiled(node.this, columns)
        return lambda given: None if (truth := inner(given)) is None else not truth
    if isinstance(node, (exp.And, exp.Or)):
        decisive = isinstance(node, exp.Or)
        return _joined(_compiled(node.this, columns), _compiled(node.expression, columns), decisive)
    if isinstance(node, (exp.Boolean, exp.Null)):
        constant = bool(node.this) if isinstance(node, exp.Boolean) else None
        return lambda given: constant
    known = _known(node)
    if known is None or known[0] not in columns:
        return itemgetter(_text(node))
    name, test = known[0], _comparison(node)
    return lambda given: test(given[name])


def _joined(left: Evaluation, right: Evaluation, decisive: bool) -> Evaluation:
    """Return the truth of AND or OR. One truth decides whatever the other side is: `decisive`."""

    def truth(given: Mapping[str, Any]) -> Truth:
        one = left(given)
        if one is decisive:
            return decisive
        other = right(given)
        if other is decisive:
            return decisive
        return None if one is None or other is None else not decisive

    return truth


def _comparison(node: exp.Expr) -> Callable[[Any], Truth]:
    """Return the truth of a comparison of a column with literals as a function of the value."""
    if isinstance(node, exp.Is):
        return lambda value: value is None
    if isinstance(node, exp.Column):
        return lambda value: value
    if isinstance(node, exp.In):
        literals = [_literal(part) for part in node.expressions]
        return lambda value: None if value is None else value in literals
    if isinstance(node, exp.Between):
        low, high = _literal(node.args["low"]), _literal(node.args["high"])
        return lambda value: None if value is None else bool(low <= value <= high)
    is_mirrored = not isinstance(node.this, exp.Column)
    compare = _COMPARISONS[_MIRRORED.get(type(node), type(node)) if is_mirrored else type(node)]
    other = node.this if is_mirrored else node.expression
    if isinstance(other, exp.Column):
        return lambda value: None if value is None else compare(value, value)
    literal = _literal(other)
    return lambda value: None if value is None else compare(value, literal)


def _atoms(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND, OR and NOT join."""
    if isinstance(node, (exp.And, exp.Or)):
        yield from _atoms(node.this)
        yield from _atoms(node.expression)
    elif isinstance(node, (exp.Not, exp.Paren)):
        yield from _atoms(node.this)
    elif not isinstance(node, (exp.Boolean, exp.Null)):
        yield node


def _known(node: exp.Expr) -> tuple[str, list[Any]] | None:
    """Return the column of a comparison with literals, and the literals; None for another condition."""
    parts: list[exp.Expr] = []
    if isinstance(node, exp.Column):
        return _name(node), [True, False]
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return (_name(node.this), []) if isinstance(node.this, exp.Column) else None
    if type(node) in _COMPARISONS:
        column, parts = node.this, [node.expression]
        if not isinstance(column, exp.Column):
            column, parts = node.expression, [node.this]
    elif isinstance(node, exp.In) and not node.args.get("query") and not node.args.get("unnest"):
        column, parts = node.this, node.expressions
    elif isinstance(node, exp.Between):
        column, parts = node.this, [node.args["low"], node.args["high"]]
    else:
        return None
    if not isinstance(column, exp.Column):
        return None
    if len(parts) == 1 and isinstance(parts[0], exp.Column):
        return (_name(column), []) if _name(parts[0]) == _name(column) else None
    literals = [_literal(part) for part in parts]
    return None if not literals or any(value is None for value in literals) else (_name(column), literals)


def _literal(node: exp.Expr) -> Any:
    """Return the value of a number, text or truth; None for all else."""
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Paren):
        return _literal(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        value = _literal(node.this)
        return None if value is None else -value
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return node.this
    try:
        return float(node.this)
    except ValueError:
        return None


def _kind(value: Any) -> type:
    return type(value)


def _pool(literals: Iterable[Any]) -> list[Any]:
    """Return values that stand for all values of a column: NULL, the literals, and values beside and between them."""
    values = sorted(literals)
    if not values:
        return [None, "", "a"]
    if isinstance(values[0], bool):
        return [None, True, False]
    if isinstance(values[0], str):
        return [None, "", *values, *(f"{value}\x01" for value in values)]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(values)]
    return [None, values[0] - 1, *values, *middles, values[-1] + 1]


def _name(column: exp.Column) -> str:
    return column.name.lower()


def _text(node: exp.Expr) -> str:
    return f"\0{node.sql(comments=False)}"
