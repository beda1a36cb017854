r"""Patterns of texts in a filter, written so that another engine finds the author's texts.

A regular expression may have what RE2 (BigQuery, DuckDB), Java (Spark), and Joni or RE2J (Trino, by its setting
`regex-library`) read alike by their manuals. They differ on `.` and `$` beside ends of lines, on `\d`, `\w` and `\s`,
and on all that is not read here. Only whether a text matches somewhere counts. Tests run DuckDB, Spark 4.1.4 and Trino
476 with Joni on the listed patterns; RE2J and BigQuery are assumed to follow RE2's manual.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from sqlglot import Dialect, TokenType, exp

from pdp.engines.row_access.portable_values import Compile, PortableValue, PortableValues, function, text_of
from pdp.engines.row_access.trino import UntranslatableSql

_ESCAPING: Final = frozenset({"bigquery", "spark"})
"""Dialects with a backslash as the escape of LIKE."""
_WILD: Final = "%_"
_SEARCH: Final = "REGEXP_CONTAINS"
_SEARCHES: Final = {
    "bigquery": _SEARCH, "trino": "REGEXP_LIKE", "spark": "REGEXP_LIKE", "duckdb": "REGEXP_MATCHES",
}  # fmt: skip


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


def _regular(values: PortableValues, node: exp.RegexpLike) -> PortableValue:
    """Return a search by a regular expression; raise UntranslatableSql."""
    value, pattern = text_of(values, node.this, _SEARCH), text_of(values, node.expression, _SEARCH)
    if not pattern.text or node.args.get("flag"):
        raise UntranslatableSql("a regular expression is a literal that is not empty, without flags")
    text, letters = translated(pattern.text, values.source, values.target)
    part = PortableValue(pattern.node, "text", text=letters, is_constant=True)
    values.settle(value, [part], is_equality=False, counts=True)
    return PortableValue(function(_SEARCHES[values.target], value.node, _pattern_sql(text)), "boolean")


def _pattern_sql(text: str) -> exp.Expr:
    """Return a pattern as SQL: no literal holds the ends of lines that Joni and RE2J escape in other ways."""
    parts = [part for part in re.split(r"([\x85\u2028\u2029])", text) if part]
    if len(parts) == 1:
        return exp.Literal.string(text)
    return function(
        "CONCAT",
        *(function("CHR", exp.Literal.number(ord(p))) if p in _LINES else exp.Literal.string(p) for p in parts),
    )


_RE2: Final = frozenset({"bigquery", "duckdb"})
_LINES: Final = "\n\r\x85\u2028\u2029"
"""Ends of lines for Java's `.` and `$`."""
_ITEM: Final = re.compile(
    r"(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<or>\|)|(?P<start>\^|\\A)|(?P<end>\$)|(?P<last>\\z)|(?P<any>\.)"
    r"|(?P<set>\[\^?(?!\^)(?:\\.|[^\[\]\\&~])+\])|(?P<named>\\[dwsDWS])|\\(?P<escaped>[^\w\s])|(?P<sign>[^\\^$.|?*+()\[\]{}])"
)
_MANY: Final = re.compile(r"(?:[*+?]|\{(\d{1,3})(?:,(\d{0,3}))?\})", re.ASCII)
_MOST_SIGNS: Final = 20_000
"""Signs of a pattern with each part as often as it may stand: RE2 in DuckDB took 80,000 and more, by measure."""
_IN_SET: Final = re.compile(r"\\(?P<named>[dws])|(?:\\(?P<escaped>[^\w\s])|(?P<sign>[^\\]))(?:-(?P<to>[A-Za-z0-9]))?")
_NAMED: Final = {"d": "0-9", "w": "0-9A-Z_a-z"}
_HINT: Final = "write plain signs, [..], ., ^, $, |, groups, *, +, ? and {..}"
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _]")


class _Reading(NamedTuple):
    """Pattern as printed, and its signs without meaning."""

    text: str
    letters: str


def translated(pattern: str, source: str, target: str) -> _Reading:
    """Return a pattern of one dialect for another; raise UntranslatableSql for one that engines read differently."""
    return _Pattern(pattern, source, target).read()


class _Pattern:
    """Reading of one pattern from the left."""

    def __init__(self, pattern: str, source: str, target: str) -> None:
        self._pattern, self._source, self._target = pattern, source, target
        self._printed: list[str] = []
        self._letters: list[str] = []
        self._sees_ends = False
        self._size = 0

    def read(self) -> _Reading:
        at, depth = 0, 0
        last, ends = "or", False
        while at < len(self._pattern):
            found = _ITEM.match(self._pattern, at)
            kind = found.lastgroup if found else None
            if found is None or kind is None:
                raise UntranslatableSql(f"the regular expression is read in two ways: {_HINT}")
            at = found.end()
            depth += (kind == "open") - (kind == "close")
            if depth < 0 or (kind in ("close", "or") and last in ("or", "open")):
                raise UntranslatableSql(f"the regular expression has an empty part: {_HINT}")
            if kind == "end":
                self._check_end(at, depth)
                ends = True
            self._printed.append(self._item(kind, found))
            at = self._repeated(at, kind)
            last = kind
        if depth or last == "or":
            raise UntranslatableSql(f"the regular expression has an empty part: {_HINT}")
        if ends and self._source == "spark" and self._sees_ends:
            raise UntranslatableSql("`$` beside a part that takes ends of lines differs: write \\z")
        return _Reading("".join(self._printed), "".join(self._letters))

    def _check_end(self, at: int, depth: int) -> None:
        """Raise UntranslatableSql for a `$` of Java or Joni inside of a pattern: it matches before a line's end."""
        if self._source == "trino":
            raise UntranslatableSql("`$` differs between Trino's two libraries of regular expressions: write \\z")
        if self._source not in _RE2 and (depth or (at < len(self._pattern) and self._pattern[at] != "|")):
            raise UntranslatableSql("`$` inside of a regular expression differs: write it at the end")

    def _item(self, kind: str, found: re.Match[str]) -> str:
        if kind in ("escaped", "sign"):
            self._letters.append(found[kind])
            return self._sign(found[kind])
        if kind == "set":
            return self._set(found[0])
        if kind == "named":
            name = found[0][1]
            self._sees_ends |= name in "sDWS"
            return f"[{'^' if name.isupper() else ''}{self._named(name.lower())}]"
        if kind == "any":
            return f"[^{''.join(map(self._code, _LINES if self._source == 'spark' else _LINES[0]))}]"
        if kind == "end" and self._source == "spark":
            others = "".join(map(self._code, _LINES))
            return f"(?:\\r\\n|[{others}])?\\z"
        return {"open": "(?:", "close": ")", "or": "|", "start": "\\A", "end": "\\z", "last": "\\z"}[kind]

    def _named(self, name: str) -> str:
        if self._source == "trino":
            raise UntranslatableSql(f"`\\{name}` takes signs of all languages in Trino: write [0-9] and the like")
        if name == "s":
            return "\\t\\n\\f\\r " if self._source in _RE2 else "\\t\\n\\x0B\\f\\r "
        return _NAMED[name]

    def _set(self, text: str) -> str:
        inner = text[1:-1].removeprefix("^")
        is_without = text[1] == "^"
        self._sees_ends |= is_without or "\\s" in text
        printed, at = [], 0
        while at < len(inner):
            found = _IN_SET.match(inner, at)
            if found is None or (found["sign"] == "-" and 0 < at < len(inner) - 1):
                raise UntranslatableSql(f"a set of the regular expression is read in two ways: {_HINT}")
            at = found.end()
            if found["named"]:
                printed.append(self._named(found["named"]))
                continue
            first, to = found["escaped"] or found["sign"], found["to"]
            if to and not (first.isascii() and first.isalnum() and _is_range(first, to)):
                raise UntranslatableSql("a range of a regular expression has two plain letters or digits")
            self._letters.append(first)
            printed.append(f"{self._sign(first)}-{to}" if to else self._sign(first))
        return f"[{'^' if is_without else ''}{''.join(printed)}]"

    def _repeated(self, at: int, kind: str) -> int:
        """Print how often the last item stands; return the place behind it. Raise UntranslatableSql."""
        many = _MANY.match(self._pattern, at)
        self._count(many)
        if many is None:
            return at
        if kind in ("open", "or", "start", "end", "last") or (kind == "close" and many[0] != "?"):
            raise UntranslatableSql("a group of a regular expression repeats, which can take an engine very long")
        low, high = many[1], many[2]
        if low and high and int(low) > int(high):
            raise UntranslatableSql(f"the regular expression is read in two ways: {_HINT}")
        self._printed.append(many[0])
        end = many.end() + (self._pattern[many.end() : many.end() + 1] == "?")  # the first match that comes suffices
        if self._pattern[end : end + 1] and self._pattern[end] in "*+?{":
            raise UntranslatableSql(f"the regular expression is read in two ways: {_HINT}")
        return end

    def _count(self, many: re.Match[str] | None) -> None:
        """Add the size of the last item; raise UntranslatableSql for a pattern that could be too large for RE2."""
        times = max(int(many[1] or 1) + 1, int(many[2] or 0)) if many else 1
        self._size += times * len(self._printed[-1])
        if self._size > _MOST_SIGNS:
            raise UntranslatableSql("the regular expression may be too large: repeat fewer signs less often")

    def _sign(self, sign: str) -> str:
        if not sign.isprintable():
            raise UntranslatableSql("a regular expression has a control character")
        return sign if _PLAIN.match(sign) or not sign.isascii() else f"\\{sign}"

    def _code(self, sign: str) -> str:
        if sign in "\n\r":
            return {"\n": "\\n", "\r": "\\r"}[sign]
        if self._target == "trino":
            return sign
        return f"\\x{{{ord(sign):x}}}" if self._target in _RE2 else f"\\u{ord(sign):04x}"


def _is_range(first: str, to: str) -> bool:
    kinds = (str.isdigit, str.islower, str.isupper)
    return first <= to and any(kind(first) and kind(to) for kind in kinds)


PATTERNS: Final[dict[type, Compile]] = {
    exp.RawString: _raw,
    exp.Like: _like,
    exp.Escape: _escaped,
    exp.RegexpLike: _regular,
}
"""Kind of expression -> its compiler."""
