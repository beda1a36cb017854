"""Patterns of texts in a filter, written so that another engine finds the author's texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from pdp.engines.row_access.portable_values import Compile, PortableValue, PortableValues, text_of
from pdp.engines.row_access.trino import UntranslatableSql

_ESCAPING: Final = frozenset({"bigquery", "spark"})
"""Dialects with a backslash as the escape of LIKE."""
_WILD: Final = "%_"


def _raw(values: PortableValues, node: exp.RawString) -> PortableValue:
    if "'" in node.name or '"' in node.name:
        raise UntranslatableSql("a raw text with a quote is read in two ways")
    return PortableValue(exp.Literal.string(node.name), "text", text=node.name, is_constant=True)


def _like(values: PortableValues, node: exp.Like) -> PortableValue:
    if isinstance(node.parent, exp.Escape):
        return PortableValue(node, "boolean")  # compiled with its escape
    return _matched(values, node, "\\" if values.source in _ESCAPING else "")


def _escaped(values: PortableValues, node: exp.Escape) -> PortableValue:
    like, sign = node.this, values.of(node.expression).text
    if not isinstance(like, exp.Like) or sign is None or len(sign) != 1 or values.source == "bigquery":
        raise UntranslatableSql("`ESCAPE` takes one sign after LIKE")
    return _matched(values, like, sign)


def _matched(values: PortableValues, node: exp.Like, escape: str) -> PortableValue:
    """Return LIKE with the signs of the author's pattern; raise UntranslatableSql."""
    value, pattern = text_of(values, node.this, "LIKE"), text_of(values, node.expression, "LIKE")
    if pattern.text is None:
        raise UntranslatableSql("`LIKE` takes a literal as its pattern")
    signs = list(_signs(pattern.text, escape, is_strict=values.source != "bigquery"))
    letters = "".join(sign for sign, is_wild in signs if not is_wild)
    part = PortableValue(pattern.node, "text", text=letters, is_constant=True)
    values.settle(value, [part], is_equality=False, counts=("_", True) in signs)
    needs_escape = any(not is_wild and (sign in _WILD or sign == "\\") for sign, is_wild in signs)
    is_escaping = values.target in _ESCAPING
    text = "".join(
        f"\\{sign}" if not is_wild and (sign in _WILD or (sign == "\\" and (is_escaping or needs_escape))) else sign
        for sign, is_wild in signs
    )
    found: exp.Expr = exp.Like(this=value.node, expression=exp.Literal.string(text))
    if needs_escape and not is_escaping:
        found = exp.Escape(this=found, expression=exp.Literal.string("\\"))
    return PortableValue(exp.Paren(this=exp.Not(this=found) if node.args.get("negate") else found), "boolean")


def _signs(pattern: str, escape: str, *, is_strict: bool) -> Iterator[tuple[str, bool]]:
    """Yield the signs of a pattern, each beside whether it stands for others; raise UntranslatableSql."""
    rest = iter(pattern)
    for sign in rest:
        if sign != escape:
            yield sign, sign in _WILD
            continue
        following = next(rest, "")
        if not following or (is_strict and following not in f"{_WILD}{escape}"):
            raise UntranslatableSql("the pattern of `LIKE` has an escape before another sign")
        yield following, False


PATTERNS: Final[dict[type, Compile]] = {exp.RawString: _raw, exp.Like: _like, exp.Escape: _escaped}
"""Kind of expression -> its compiler."""
