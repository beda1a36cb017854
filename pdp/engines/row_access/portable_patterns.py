"""Patterns and pieces of texts in a filter or mask, written so that another engine finds the author's texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import Dialect, TokenType, exp

from pdp.engines.row_access.portable_regular import (
    RE2,
    Group,
    PatternReading,
    pattern_sql,
    plain_text,
    quoted,
    read_pattern,
)
from pdp.engines.row_access.portable_values import Compile, PortableValue, PortableValues, function, number_sql, text_of
from pdp.engines.row_access.trino import UntranslatableSql

_ESCAPING: Final = frozenset({"bigquery", "spark"})
"""Dialects with a backslash as the escape of LIKE."""
_WILD: Final = "%_"
_SEARCH: Final = "REGEXP_CONTAINS"
_SEARCHES: Final = {
    "bigquery": _SEARCH, "trino": "REGEXP_LIKE", "spark": "REGEXP_LIKE", "duckdb": "REGEXP_MATCHES",
}  # fmt: skip
_FINDS_NULL: Final = frozenset({"bigquery", "trino"})
"""Dialects whose REGEXP_EXTRACT is NULL without a match; it is empty in others."""
_FURTHER: Final = ("flag", "position", "occurrence", "parameters", "modifiers")
"""Parts of a call beside text, pattern, group and replacement."""
_MOST_REFERENCES: Final = 9
_OPERATORS: Final = frozenset(
    {TokenType.RLIKE, TokenType.IRLIKE, TokenType.LIKE, TokenType.ILIKE, TokenType.GLOB, TokenType.TILDE}
)
_MAYBE_OPERATOR: Final = re.compile(r"~|\b(?:rlike|regexp)\b", re.IGNORECASE)


def check_operators(text: str, source: str) -> None:
    """Raise UntranslatableSql for `~` and its family: the parser reads DuckDB's match of a whole text as a search."""
    if not _MAYBE_OPERATOR.search(text):
        return
    for token in Dialect.get_or_raise(source).tokenize(text):
        if token.token_type not in _OPERATORS:
            continue
        if "~" in token.text or (token.token_type is TokenType.RLIKE and source == "duckdb"):
            raise UntranslatableSql(f"`{token.text}` is read in two ways: write regexp_matches, or LIKE for `~~`")


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


def _search(values: PortableValues, node: exp.RegexpLike) -> PortableValue:
    """Return a search by a regular expression; raise UntranslatableSql."""
    value, reading = _read(values, node, _SEARCH)
    return PortableValue(_found(values, value, reading), "boolean")


def _read(values: PortableValues, node: exp.Func, name: str) -> tuple[PortableValue, PatternReading]:
    """Return the text of a call and the reading of its pattern; raise UntranslatableSql."""
    value, pattern = text_of(values, node.this, name), text_of(values, node.expression, name)
    if not pattern.text or any(node.args.get(part) for part in _FURTHER):
        raise UntranslatableSql(f"`{name}` takes a literal that is not empty as the pattern, and no flags or places")
    reading = read_pattern(pattern.text, values.source, values.target)
    part = PortableValue(pattern.node, "text", text=reading.letters, is_constant=True)
    values.settle(value, [part], is_equality=False, counts=True)
    folds = tuple(fold._replace(is_whole=False) for fold in value.folds)
    return value._replace(folds=folds), reading


def _found(values: PortableValues, value: PortableValue, reading: PatternReading) -> exp.Expr:
    return function(_SEARCHES[values.target], value.node, pattern_sql(reading.text()))


def _extracted(values: PortableValues, node: exp.RegexpExtract | exp.RegexpSubstr) -> PortableValue:
    """Return what a group of a pattern takes of a text; raise UntranslatableSql."""
    value, reading = _read(values, node, "REGEXP_EXTRACT")
    number = _group_number(values, node, reading)
    _check_ends(values, reading)
    pattern = pattern_sql(reading.text({number}))
    place = [] if values.target == "bigquery" else [number_sql(min(number, 1))]
    call = function("REGEXP_EXTRACT", value.node, pattern, *place)
    finds_null = values.source in _FINDS_NULL or isinstance(node, exp.RegexpSubstr)
    if finds_null and values.target not in _FINDS_NULL:
        return PortableValue(_null_if_missing(values, value, reading, number, call), "text", folds=value.folds)
    if not finds_null and values.target in _FINDS_NULL:
        return PortableValue(or_empty(value.node, call), "text", folds=value.folds)
    return PortableValue(call, "text", folds=value.folds)


def or_empty(text: exp.Expr, found: exp.Expr) -> exp.Expr:
    """Return a part of a text: empty in place of NULL, but for a text that is NULL."""
    known = exp.Not(this=exp.Is(this=text.copy(), expression=exp.null()))
    return exp.Case(ifs=[exp.If(this=known, true=function("COALESCE", found, exp.Literal.string("")))])


def _null_if_missing(
    values: PortableValues, value: PortableValue, reading: PatternReading, number: int, call: exp.Expr
) -> exp.Expr:
    """Return a call whose empty text stands for a missing match as NULL; raise UntranslatableSql."""
    group = reading.groups[number - 1] if number else Group(0, may_be_empty=reading.may_be_empty)
    if not group.may_be_empty:
        return function("NULLIF", call, exp.Literal.string(""))
    if group.may_be_missing:
        raise UntranslatableSql("a group of `REGEXP_EXTRACT` may be empty or missing: write one that takes a sign")
    return exp.Case(ifs=[exp.If(this=_found(values, value._replace(node=value.node.copy()), reading), true=call)])


def _group_number(values: PortableValues, node: exp.RegexpExtract | exp.RegexpSubstr, reading: PatternReading) -> int:
    """Return the number of the group that a call takes, 0 for the whole match; raise UntranslatableSql."""
    if isinstance(node, exp.RegexpSubstr):
        return 0
    count = len(reading.groups)
    if values.source == "bigquery":  # it takes the only group, and fails for more
        number = count if count < 2 else -1
    else:
        given = values.of(node.args["group"]) if node.args.get("group") is not None else None
        number = given.low if given is not None and given.is_number else -1
    if not 0 <= number <= count:
        raise UntranslatableSql("`REGEXP_EXTRACT` takes the number of a group of the pattern: write one group")
    return number


def _check_ends(values: PortableValues, reading: PatternReading) -> None:
    """Raise UntranslatableSql for a `$` of Java, which is printed with the end of a line that it stands before."""
    if values.source == "spark" and reading.has_end:
        raise UntranslatableSql("`$` differs where a part of the text is taken: write \\z")


def _substituted(values: PortableValues, node: exp.RegexpReplace) -> PortableValue:
    """Return a text with its matches replaced, or the first one for DuckDB without `g`; raise UntranslatableSql."""
    flags = node.args.get("modifiers")
    is_all = values.source != "duckdb" or (flags is not None and flags.is_string and flags.name == "g")
    if is_all:
        node.set("modifiers", None)
    value, reading = _read(values, node, "REGEXP_REPLACE")
    _check_ends(values, reading)
    if reading.may_be_empty:
        raise UntranslatableSql("the pattern of `REGEXP_REPLACE` may match nothing: write one that takes a sign")
    given = node.args.get("replacement")
    text = text_of(values, given, "REGEXP_REPLACE").text if given is not None else ""
    if text is None:
        raise UntranslatableSql("`REGEXP_REPLACE` takes a literal as the new text")
    parts = list(_replacement(text, values.source))
    numbers = {part for part in parts if isinstance(part, int)}
    if numbers and max(numbers) > len(reading.groups):
        raise UntranslatableSql("the new text of `REGEXP_REPLACE` names a group that the pattern does not have")
    pattern = reading.text(range(1, len(reading.groups) + 1))
    if not is_all:  # others replace all matches: this one begins at the start of the text, so there is one
        pattern = f"\\A([\\s\\S]*?)({pattern})"
        parts = [1, *(part + 2 if isinstance(part, int) else part for part in parts)]
    flag = [exp.Literal.string("g")] if values.target == "duckdb" else []
    new = exp.Literal.string(_replacement_text(parts, values.target))
    call = function("REGEXP_REPLACE", value.node, pattern_sql(pattern), new, *flag)
    return PortableValue(call, "text", folds=value.folds)


_NEW_PARTS: Final = {
    True: re.compile(r"\\(?P<group>\d)|\\(?P<escaped>\\)|(?P<sign>[^\\])", re.ASCII | re.DOTALL),
    False: re.compile(r"\$(?P<group>\d)(?!\d)|\\(?P<escaped>[\\$0-9])|(?P<sign>[^\\$])", re.ASCII | re.DOTALL),
}
"""Parts of a new text: those of RE2, and those of Java."""


def _replacement(text: str, source: str) -> Iterator[str | int]:
    """Yield the signs of a new text and the numbers of groups; raise UntranslatableSql."""
    at = 0
    while at < len(text):
        found = _NEW_PARTS[source in RE2].match(text, at)
        if found is None:
            group = "\\1" if source in RE2 else "$1"
            raise UntranslatableSql(f"the new text of `REGEXP_REPLACE` is read in two ways: write {group} for a group")
        at = found.end()
        yield int(found["group"]) if found["group"] else found["escaped"] or found["sign"]


def _replacement_text(parts: list[str | int], target: str) -> str:
    """Return a new text as an engine reads it; raise UntranslatableSql for more groups than engines name."""
    special = "\\" if target in RE2 else "\\$"
    written: list[str] = []
    for part in parts:
        if isinstance(part, int):
            if part > _MOST_REFERENCES:
                raise UntranslatableSql("the new text of `REGEXP_REPLACE` names more groups than engines do")
            written.append(f"\\{part}" if target in RE2 else f"${part}")
        elif part in special or (target not in RE2 and part.isdecimal()):  # a digit would belong to the group before
            written.append(f"\\{part}")
        else:
            written.append(part)
    return "".join(written)


def _pieces(values: PortableValues, node: exp.Split | exp.RegexpSplit) -> PortableValue:
    """Return pieces that only an index behind turns into a text."""
    if not isinstance(node.parent, exp.Bracket):
        raise UntranslatableSql("`SPLIT` gives a list: write one piece, such as SPLIT(..)[SAFE_OFFSET(0)]")
    return PortableValue(node, "other")


def _indexed(values: PortableValues, node: exp.Bracket) -> PortableValue:
    """Return a piece of a text. A place behind the last one is NULL in DuckDB, and fails elsewhere."""
    split = node.this
    if not isinstance(split, (exp.Split, exp.RegexpSplit)) or split.args.get("limit") or len(node.expressions) != 1:
        raise UntranslatableSql("an index stands behind `SPLIT` without a limit alone")
    index = values.of(node.expressions[0])
    place = index.low - (node.args.get("offset") or 0) if index.is_number else -1
    sign = text_of(values, split.expression, "SPLIT").text
    if sign and isinstance(split, exp.RegexpSplit):
        sign = plain_text(sign)
    piece = _piece(values, split.this, sign, place)
    return piece._replace(is_partial=place > 0 and values.source != "duckdb" and not node.args.get("safe"))


def _split_part(values: PortableValues, node: exp.SplitPart) -> PortableValue:
    """Return a piece of a text. A place behind the last one is NULL in Trino, and empty in DuckDB and Spark."""
    index, sign = values.of(node.args["part_index"]), text_of(values, node.args["delimiter"], "SPLIT_PART").text
    place = index.low - 1 if index.is_number else -1
    piece = _piece(values, node.this, sign, place)
    if values.source == "trino":
        return piece
    if values.target in ("duckdb", "spark"):
        parts = (node.this, exp.Literal.string(sign), number_sql(place + 1))
        return piece._replace(node=function("SPLIT_PART", *parts))
    return piece._replace(node=or_empty(node.this, piece.node))


def _piece(values: PortableValues, text: exp.Expr, sign: str | None, place: int) -> PortableValue:
    """Return a piece of a text, counted from 0: NULL behind the last one. Raise UntranslatableSql."""
    value = text_of(values, text, "SPLIT")
    if not sign or place < 0:
        raise UntranslatableSql(
            "`SPLIT` takes a literal that is not empty between pieces, and a place from the first on"
        )
    values.settle(value, [PortableValue(text, "text", text=sign, is_constant=True)], is_equality=False, counts=True)
    folds = tuple(fold._replace(is_whole=False) for fold in value.folds)
    literal, number = exp.Literal.string(sign), number_sql(place + 1)
    if values.target == "trino":
        found: exp.Expr = function("SPLIT_PART", value.node, literal, number)
    elif values.target == "duckdb":
        found = function("LIST_EXTRACT", function("STRING_SPLIT", value.node, literal), number)
    elif values.target == "spark":
        pieces = function("SPLIT", value.node, exp.Literal.string(quoted(sign)))
        found = function("GET", pieces, number_sql(place))
    else:
        pieces = function("SPLIT", value.node, literal)
        found = exp.Bracket(this=pieces, expressions=[number_sql(place)], offset=0, safe=True)
    return PortableValue(found, "text", folds=folds)


PATTERNS: Final[dict[type, Compile]] = {
    exp.RawString: _raw,
    exp.Like: _like,
    exp.Escape: _escaped,
    exp.RegexpLike: _search,
    exp.RegexpExtract: _extracted,
    exp.RegexpSubstr: _extracted,
    exp.RegexpReplace: _substituted,
    exp.Split: _pieces,
    exp.RegexpSplit: _pieces,
    exp.Bracket: _indexed,
    exp.SplitPart: _split_part,
}
"""Kind of expression -> its compiler."""
