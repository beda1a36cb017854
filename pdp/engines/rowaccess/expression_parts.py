"""Parts of row filters and masks: those with one meaning in many dialects, and those that no filter holds.

One table for Trino's plugin and for rewritten SQL.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

_PORTABLE: Final = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between, exp.Is,
    exp.Boolean, exp.Null, exp.Literal, exp.Column, exp.Identifier, exp.Neg,
)  # fmt: skip
"""Expressions with the same meaning in all dialects that compare as Trino does."""
OF_SUBQUERIES: Final = (
    exp.SessionUser, exp.CurrentUser, exp.Exists, exp.Subquery, exp.Select, exp.From, exp.Where, exp.Table,
    exp.TableAlias, exp.Star,
)  # fmt: skip
"""Further expressions with the same meaning in the dialects of the rewriter."""
_PARAMETERS: Final = (exp.Placeholder, exp.Parameter, exp.SessionParameter)
_RANDOM: Final = tuple(
    kind
    for name in ("Rand", "Randn", "Randstr", "Uuid", "Shuffle", "Uniform", "Normal", "Zipf", "Nextval")
    if (kind := getattr(exp, name, None)) is not None
)
_RANDOM_NAMES: Final = frozenset(
    """rand random randn randstr random_normal random_poisson secure_rand secure_random shuffle uniform uuid uuid_string
    uuidv4 uuidv7 gen_random_uuid generate_uuid newid monotonically_increasing_id nextval setseed""".split()  # noqa: SIM905
)
"""Functions with another value in each call, as engines name them."""


def is_portable(node: exp.Expr, others: tuple[type[exp.Expr], ...] = ()) -> bool:
    """Tell whether a part, or one of the `others`, means the same in every dialect. Trino has no IS TRUE."""
    return isinstance(node, (*_PORTABLE, *others)) and not (
        isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null)
    )


def unfit_part(node: exp.Expr) -> str:
    """Return the name of a part that no filter and no mask holds; empty for another part."""
    if isinstance(node, _PARAMETERS):
        return "a parameter"
    is_named = isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)) and node.name.lower() in _RANDOM_NAMES
    return "a random value" if is_named or isinstance(node, _RANDOM) else ""
