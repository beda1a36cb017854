"""Functions of texts in a filter or mask, written so that another engine has the author's value.

Read: the manuals of the four engines, GoogleSQL's `functions/string.cc`, and Trino's `SliceUtf8`. Tests run DuckDB,
Spark 4.1.4 and Trino 476 on the listed forms. No test runs BigQuery: its side is assumed from what was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from pdp.engines.row_access.caller_calls import mark_of
from pdp.engines.row_access.portable_values import (
    INT,
    Compile,
    Fold,
    PortableValue,
    PortableValues,
    function,
    is_list_of_texts,
    literal_texts,
    mark_plain,
    number_of,
    number_sql,
    of_kind,
    settled,
    text_of,
)
from pdp.engines.row_access.trino import LISTS, UntranslatableSql

_T: Final = exp.DataType.Type
_BLANK: Final = " "
_SPACES: Final = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_JAVA: Final = "".join(sign for sign in _SPACES if sign not in "\u00a0\u2007\u202f")
_CONTROLS: Final = "\t\n\x0b\x0c\r"
_TRIMMED: Final = {
    "spark": _BLANK,
    "duckdb": _SPACES,
    "trino": f"{_JAVA}{_CONTROLS}\x1c\x1d\x1e\x1f\u2028\u2029",
    "bigquery": f"{_SPACES}{_CONTROLS}\x85\u2028\u2029",
}
"""Signs that TRIM without signs removes: blanks alone, separators, Java's white space, Unicode's white space."""
_SPARK_CODES: Final = 256
"""Spark's CHR knows smaller codes."""
_STARTS: Final = {"spark": "STARTSWITH"}
_ENDS: Final = {"spark": "ENDSWITH"}
_POSITIONS: Final = {"spark": "INSTR"}


def _folded(values: PortableValues, node: exp.Lower | exp.Upper) -> PortableValue:
    name = "LOWER" if isinstance(node, exp.Lower) else "UPPER"
    value = text_of(values, node.this, name)
    if value.folds:
        raise UntranslatableSql(f"`{name}` folds a folded text: write one of the two")
    if value.is_constant:
        text = mark_plain(value)
        if text is None:
            _check_ascii(name, *literal_texts(value))
            return PortableValue(function(name, value.node), "text", is_constant=True)
        _check_ascii(name, text)
        text = text.lower() if name == "LOWER" else text.upper()
        return PortableValue(exp.Literal.string(text), "text", text=text, is_constant=True)
    call = function(name, value.node)
    return PortableValue(call, "text", folds=(Fold(name, call),))


def _check_ascii(name: str, *texts: str) -> None:
    if not all(map(str.isascii, texts)):
        raise UntranslatableSql(f"`{name}` folds a letter of a text differently: write the folded text")


def _trim(values: PortableValues, node: exp.Trim) -> PortableValue:
    value = text_of(values, node.this, "TRIM")
    signs = node.args.get("expression")
    given = text_of(values, signs, "TRIM").text if signs is not None else _TRIMMED[values.source]
    if not given:
        raise UntranslatableSql("`TRIM` takes a literal of the signs to remove")
    if signs is not None and not set(given) <= set(_SPACES):
        value = settled(values, value, given)
    position = (node.args.get("position") or "BOTH").upper()
    names = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}
    if set(given) == set(_TRIMMED[values.target]):
        call: exp.Expr = function(names[position], value.node)
    elif values.target in ("trino", "spark"):
        call = exp.Trim(this=value.node, expression=_signs(values, given), position=position)
    else:
        call = function(names[position], value.node, _signs(values, given))
    return PortableValue(call, "text", folds=value.folds)


def _signs(values: PortableValues, text: str) -> exp.Expr:
    """Return a text that may have signs that no literal holds."""
    plain = "".join(sign for sign in text if sign.isprintable() or sign in _SPACES)
    parts: list[exp.Expr] = [exp.Literal.string(plain)] if plain else []
    for sign in text:
        if sign in plain:
            continue
        if values.target == "spark" and ord(sign) >= _SPARK_CODES:
            raw = function("UNHEX", exp.Literal.string(sign.encode().hex().upper()))
            parts.append(exp.Cast(this=raw, to=exp.DataType(this=_T.TEXT)))
        else:
            parts.append(function("CHR", exp.Literal.number(ord(sign))))
    return parts[0] if len(parts) == 1 else function("CONCAT", *parts)


def _length(values: PortableValues, node: exp.Length) -> PortableValue:
    value = settled(values, text_of(values, node.this, "LENGTH"))
    return PortableValue(function("LENGTH", value.node), "integer", 0, INT - 2, bits=32)


def _substring(values: PortableValues, node: exp.Substring) -> PortableValue:
    value = settled(values, text_of(values, node.this, "SUBSTR"))
    start = of_kind(values, node.args.get("start"), "SUBSTR", "integer")
    size = of_kind(values, node.args["length"], "SUBSTR", "integer") if node.args.get("length") else None
    if size is not None and not 0 <= size.low <= size.high < INT:
        raise UntranslatableSql("`SUBSTR` takes a length that is certainly not negative: write a literal")
    if 1 <= start.low <= start.high < INT:
        return _part(values, value, start.node, size)
    if not start.is_number or (size is not None and not size.is_number) or abs(start.low) >= INT:
        raise UntranslatableSql("`SUBSTR` takes a start that is certainly 1 or more: write a literal")
    return _part_from_end(values, value, -start.low, size.low if size else None)


def _part(values: PortableValues, value: PortableValue, start: exp.Expr, size: PortableValue | None) -> PortableValue:
    parts = [value.node, start, *([size.node] if size else [])]
    return PortableValue(function("SUBSTR", *parts), "text", folds=value.folds)


def _part_from_end(values: PortableValues, value: PortableValue, back: int, size: int | None) -> PortableValue:
    """Return a part that begins `back` signs before the end. Engines differ where the text is shorter."""
    if back == 0:
        if values.source == "trino" or (values.source == "duckdb" and size is not None):
            raise UntranslatableSql("`SUBSTR` starts at 0: start at 1")
        return _part(values, value, number_sql(1), None if size is None else number_of(size))
    rest = None if size is None else number_of(size)
    found = _part(values, value, number_sql(-back), rest)
    if values.source == "trino":
        short = _part(values, value._replace(node=value.node.copy()), number_sql(1), number_of(0))
    elif values.source == "bigquery" and size is not None:
        short = _part(values, value._replace(node=value.node.copy()), number_sql(1), number_of(size))
    elif size is None or size >= back:
        short = value._replace(node=value.node.copy())
    else:
        raise UntranslatableSql("`SUBSTR` from the end with a length differs for shorter texts: write two of them")
    if size is None and (values.source == "trino") == (values.target == "trino"):
        return found
    length = function("LENGTH", value.node.copy())
    condition = exp.GTE(this=length, expression=number_sql(back))
    case = exp.Case(ifs=[exp.If(this=condition, true=found.node)], default=short.node)
    return PortableValue(case, "text", folds=value.folds)


def _end(values: PortableValues, node: exp.Left | exp.Right) -> PortableValue:
    name = "LEFT" if isinstance(node, exp.Left) else "RIGHT"
    value = settled(values, text_of(values, node.this, name))
    size = of_kind(values, node.expression, name, "integer")
    if not size.is_number or not 1 <= size.low < INT:
        raise UntranslatableSql(f"`{name}` takes a number of 1 or more: write SUBSTR")
    if name == "LEFT":
        return _part(values, value, number_sql(1), number_of(size.low))
    found = _part(values, value, number_sql(-size.low), None)
    if values.target != "trino":
        return found
    condition = exp.GTE(this=function("LENGTH", value.node.copy()), expression=number_sql(size.low))
    case = exp.Case(ifs=[exp.If(this=condition, true=found.node)], default=value.node.copy())
    return PortableValue(case, "text", folds=value.folds)


def _pipe(values: PortableValues, node: exp.DPipe) -> PortableValue:
    return _joined(values, [text_of(values, part, "||") for part in (node.this, node.expression)])


def _concat(values: PortableValues, node: exp.Concat) -> PortableValue:
    parts = [text_of(values, part, "CONCAT") for part in node.expressions]
    if values.source == "duckdb":  # leaves out NULL
        parts = [
            part if part.is_constant else part._replace(node=function("COALESCE", part.node, exp.Literal.string("")))
            for part in parts
        ]
    return _joined(values, parts)


def _joined(values: PortableValues, parts: Sequence[PortableValue]) -> PortableValue:
    if not parts:
        raise UntranslatableSql("`CONCAT` takes texts: write them")
    texts = [part.text for part in parts if part.text is not None]
    if len(texts) == len(parts):
        text = "".join(texts)
        if "${" in text:
            raise UntranslatableSql("a joined text holds `${`")
        return PortableValue(exp.Literal.string(text), "text", text=text, is_constant=True)
    node = parts[0].node
    for part in parts[1:]:
        node = exp.DPipe(this=node, expression=part.node)
    folds = tuple(fold._replace(is_whole=False) for part in parts for fold in part.folds)
    return PortableValue(exp.Paren(this=node), "text", is_constant=all(part.is_constant for part in parts), folds=folds)


def _replaced(values: PortableValues, node: exp.Replace) -> PortableValue:
    value = text_of(values, node.this, "REPLACE")
    old = text_of(values, node.expression, "REPLACE")
    if not old.text:
        raise UntranslatableSql("`REPLACE` takes a literal that is not empty as the text to replace")
    values.settle(value, [old], is_equality=False, counts=True)
    given = node.args.get("replacement")
    new = (
        text_of(values, given, "REPLACE")
        if given is not None
        else PortableValue(exp.Literal.string(""), "text", text="")
    )
    folds = tuple(fold._replace(is_whole=False) for part in (value, new) for fold in part.folds)
    return PortableValue(function("REPLACE", value.node, old.node, new.node), "text", folds=folds)


def _starts(values: PortableValues, node: exp.StartsWith) -> PortableValue:
    value, part = text_of(values, node.this, "STARTS_WITH"), text_of(values, node.expression, "STARTS_WITH")
    _meet(values, value, part)
    return PortableValue(function(_STARTS.get(values.target, "STARTS_WITH"), value.node, part.node), "boolean")


def _ends(values: PortableValues, node: exp.EndsWith) -> PortableValue:
    value, part = text_of(values, node.this, "ENDS_WITH"), text_of(values, node.expression, "ENDS_WITH")
    _meet(values, value, part)
    if values.target != "trino":
        return PortableValue(function(_ENDS.get(values.target, "ENDS_WITH"), value.node, part.node), "boolean")
    if part.text == "":
        return PortableValue(function("STARTS_WITH", value.node, part.node), "boolean")
    if part.text is not None:
        end: exp.Expr = function("SUBSTR", value.node, number_sql(-len(part.text)))
        return PortableValue(exp.Paren(this=exp.EQ(this=end, expression=part.node)), "boolean")
    turned = [function("REVERSE", one.node) for one in (value, part)]
    return PortableValue(exp.Paren(this=exp.EQ(this=function("STRPOS", *turned), expression=number_sql(1))), "boolean")


def _meet(values: PortableValues, value: PortableValue, part: PortableValue) -> None:
    for one, other in ((value, part), (part, value)):
        values.settle(one, [other], is_equality=False)


def _position(values: PortableValues, node: exp.StrPosition) -> PortableValue:
    if node.args.get("position") or node.args.get("occurrence"):
        raise UntranslatableSql("`STRPOS` takes two texts: write it without a start")
    return _place(values, node.this, node.args.get("substr"), "STRPOS", counts=True)


def _place(values: PortableValues, text: exp.Expr, part: exp.Expr | None, name: str, *, counts: bool) -> PortableValue:
    value, found = text_of(values, text, name), text_of(values, part, name)
    if not found.text:
        raise UntranslatableSql(f"`{name}` takes a literal that is not empty as the text to find")
    values.settle(value, [found], is_equality=False, counts=counts)
    call = function(_POSITIONS.get(values.target, "STRPOS"), value.node, found.node)
    return PortableValue(call, "integer", 0, INT - 2, bits=32)


def _contains(values: PortableValues, node: exp.Contains) -> PortableValue:
    if values.source == "bigquery":  # the parser reads CONTAINS_SUBSTR, which normalizes both texts
        raise UntranslatableSql("`CONTAINS_SUBSTR` normalizes texts: write STRPOS(..) > 0")
    if isinstance(node.this, exp.Column) and is_list_of_texts(values.type_of(node.this)):
        return _member(values, node)
    place = _place(values, node.this, node.expression, "CONTAINS", counts=False)
    return PortableValue(exp.Paren(this=exp.GT(this=place.node, expression=number_sql(0))), "boolean")


def _hashed(values: PortableValues, node: exp.SHA2) -> PortableValue:
    """Return the hexadecimal SHA-256 of a text; raise UntranslatableSql."""
    if values.source not in ("spark", "duckdb") or (node.args.get("length") and node.args["length"].name != "256"):
        raise UntranslatableSql("`SHA2` takes 256 bits")
    return _hex(values, text_of(values, node.this, "SHA256"))


def _hex(values: PortableValues, value: PortableValue) -> PortableValue:
    if value.folds:
        raise UntranslatableSql("`SHA256` of a folded text differs: write the text as it is")
    if values.target == "trino":
        digest = function("SHA256", function("TO_UTF8", value.node))
        return PortableValue(function("LOWER", function("TO_HEX", digest)), "text")
    if values.target == "bigquery":
        return PortableValue(function("TO_HEX", function("SHA256", value.node)), "text")
    if values.target == "spark":
        return PortableValue(function("SHA2", value.node, number_sql(256)), "text")
    return PortableValue(function("SHA256", value.node), "text")


def _bytes(values: PortableValues, node: exp.SHA2Digest | exp.Encode) -> PortableValue:
    """Return bytes that only LOWER(TO_HEX(..)) around turns into a text."""
    within = exp.LowerHex if isinstance(node, exp.SHA2Digest) else exp.SHA2Digest
    if not isinstance(node.parent, within):
        raise UntranslatableSql("`SHA256` of bytes differs: write the hexadecimal text of SHA-256")
    return PortableValue(node, "other")


def _lower_hex(values: PortableValues, node: exp.LowerHex) -> PortableValue:
    digest = node.this
    inner = digest.this if isinstance(digest, exp.SHA2Digest) and digest.args["length"].name == "256" else None
    if values.source == "trino":
        is_utf8 = isinstance(inner, exp.Encode) and inner.args["charset"].name.lower() == "utf-8"
        inner = inner.this if is_utf8 and inner is not None else None
    if inner is None:
        raise UntranslatableSql("`TO_HEX` takes the SHA-256 of a text")
    return _hex(values, text_of(values, inner, "SHA256"))


_MEMBER_TESTS: Final = {"trino": "contains", "duckdb": "list_contains", "spark": "array_contains"}


def _member(values: PortableValues, node: exp.Expr) -> PortableValue:
    """Return a test for a member of a list of the caller: unknown for NULL, which BigQuery finds in no empty list."""
    listed, found = node.args["this"], text_of(values, node.args.get("expression"), "contains")
    if isinstance(listed, exp.Column) and not found.folds:
        return _member_of_column(values, node, listed, found.node)
    if mark_of(listed) not in LISTS or found.folds:
        raise UntranslatableSql("`contains` looks for a text as it is in a list of the caller, or in a column, alone")
    known = exp.Not(this=exp.Is(this=found.node.copy(), expression=exp.null()))
    test = _member_test(values, listed, found.node)
    return PortableValue(exp.Case(ifs=[exp.If(this=known, true=test)]), "boolean")


def membership(node: exp.Expr) -> exp.Expr:
    """Return a test for a member of a list as IN for literals, as CONTAINS for a column; raise UntranslatableSql."""
    if isinstance(node, exp.In) and (unnest := node.args.get("unnest")) is not None:
        listed, value = (unnest.expressions or [None])[0], node.this
    elif isinstance(node, (exp.ArrayContains, exp.Contains)):
        listed, value = node.this, node.expression
    else:
        return node
    found: exp.Expr = node
    is_plain = isinstance(listed, exp.Array) and bool(listed.expressions)
    if is_plain and (isinstance(node, exp.In) or all(map(_is_exact, listed.expressions))):
        found = exp.In(this=value, expressions=listed.expressions)
    elif isinstance(listed, exp.Column) and isinstance(node, exp.In):
        found = exp.ArrayContains(this=listed, expression=value)
    elif isinstance(node, exp.In) or isinstance(listed, exp.Array):
        raise UntranslatableSql("a list is an array of literals or a column: write IN (..)")
    found.parent = node.parent
    return found


def _is_exact(node: exp.Expr) -> bool:
    """Tell whether a member of a list is a literal of a text, whole number or date: engines differ on -0.0 and NULL."""
    inner = node.this if isinstance(node, (exp.Neg, exp.Cast)) else node
    return isinstance(inner, exp.Literal) and (inner.is_string or inner.name.isdecimal())


def _member_test(values: PortableValues, listed: exp.Expr, value: exp.Expr) -> exp.Expr:
    name = _MEMBER_TESTS.get(values.target)
    if name is None:
        return exp.In(this=value.copy(), unnest=exp.Unnest(expressions=[listed.copy()]))
    return function(name, listed.copy(), value.copy())


def _member_of_column(values: PortableValues, node: exp.Expr, column: exp.Column, value: exp.Expr) -> PortableValue:
    """Return a test for a member of a column of lists, FALSE where engines find FALSE or NULL; raise UntranslatableSql.

    Engines differ on NULL as a list and in a list, so that the test stands where NULL counts as FALSE.
    """
    if not is_list_of_texts(values.type_of(column)):
        raise UntranslatableSql(
            f"`contains` looks for texts in `{column.name}`, which has no type such as ARRAY<STRING> in `tables`"
        )
    if not _is_positive(node):
        raise UntranslatableSql("`contains` of a column differs for NULL: write it below AND, OR and CASE WHEN alone")
    return PortableValue(function("COALESCE", _member_test(values, column, value), exp.false()), "boolean")


def _is_positive(node: exp.Expr) -> bool:
    """Tell whether a condition counts as FALSE where it is NULL."""
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.And, exp.Or)):
        node, parent = parent, parent.parent
    return parent is None or isinstance(parent, exp.Where) or (isinstance(parent, exp.If) and parent.this is node)


TEXTS: Final[dict[type, Compile]] = {
    exp.Lower: _folded,
    exp.Upper: _folded,
    exp.Trim: _trim,
    exp.Length: _length,
    exp.Substring: _substring,
    exp.Left: _end,
    exp.Right: _end,
    exp.DPipe: _pipe,
    exp.Concat: _concat,
    exp.Replace: _replaced,
    exp.StartsWith: _starts,
    exp.EndsWith: _ends,
    exp.StrPosition: _position,
    exp.Contains: _contains,
    exp.SHA2: _hashed,
    exp.SHA2Digest: _bytes,
    exp.Encode: _bytes,
    exp.LowerHex: _lower_hex,
    exp.ArrayContains: _member,
}
"""Kind of expression -> its compiler."""
