r"""Patterns of regular expressions, read so that another engine finds the same texts.

A pattern may have what RE2 (BigQuery, DuckDB), Java (Spark), and Joni or RE2J (Trino, by its setting `regex-library`)
read alike by the manuals. Engines differ on `.` and `$` beside ends of lines, on `\d`, `\w` and `\s`, and on empty
matches. All engines take the leftmost match, and the first fitting part beside `|`. Everything else is refused.
Tests run DuckDB, Spark 4.1.4, Trino 476 with both libraries, and GoogleSQL's evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlglot import exp

from pdp.engines.row_access.portable_values import function
from pdp.engines.row_access.trino import UntranslatableSql

RE2: Final = frozenset({"bigquery", "duckdb"})
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
_PLAIN_ITEM: Final = re.compile(r"\[(?P<one>[^\[\]\\^&~])\]|\\(?P<escaped>[^\w\s])|(?P<sign>[^\\^$.|?*+()\[\]{}])")
_PLAIN_ITEMS: Final = re.compile(f"(?:{re.sub('P<[a-z]+>', ':', _PLAIN_ITEM.pattern)})+")


class Group(NamedTuple):
    """Group of a pattern: its place among the printed parts. It can match nothing, or have no part in a match."""

    at: int
    may_be_empty: bool = False
    may_be_missing: bool = False


class PatternReading(NamedTuple):
    """Parts of a pattern as printed, its signs without meaning, and its groups."""

    parts: tuple[str, ...]
    letters: str
    groups: tuple[Group, ...]
    may_be_empty: bool
    has_end: bool

    def text(self, numbers: Collection[int] = ()) -> str:
        """Return the pattern, with groups of some numbers."""
        places = {group.at for number, group in enumerate(self.groups, 1) if number in numbers}
        return "".join("(" if at in places else part for at, part in enumerate(self.parts))


@dataclass(slots=True)
class _Level:
    """Open bracket of a pattern, or the pattern itself: `first` groups are before it."""

    first: int
    is_group: bool = False
    has_choice: bool = False
    was_empty: bool = False
    is_empty: bool = True

    def choose(self) -> None:
        """Begin another part beside `|`."""
        self.has_choice, self.was_empty, self.is_empty = True, self.was_empty or self.is_empty, True

    @property
    def may_be_empty(self) -> bool:
        """Tell whether the level can match nothing."""
        return self.was_empty or self.is_empty


class _PatternReader:
    """Reader of one pattern from the left; raises UntranslatableSql for one that engines read differently."""

    def __init__(self, pattern: str, source: str, target: str) -> None:
        self._pattern, self._source, self._target = pattern, source, target
        self._printed: list[str] = []
        self._letters: list[str] = []
        self._sees_ends = False
        self._size = 0
        self._groups: list[Group] = []
        self._levels = [_Level(0)]

    def read(self) -> PatternReading:
        """Return the reading of the pattern."""
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
            self._note(kind, found[0])
            self._printed.append(self._item(kind, found))
            at = self._repeated(at, kind)
            last = kind
        if depth or last == "or":
            raise UntranslatableSql(f"the regular expression has an empty part: {_HINT}")
        if ends and self._source == "spark" and self._sees_ends:
            raise UntranslatableSql("`$` beside a part that takes ends of lines differs: write \\z")
        level = self._levels[0]
        self._miss(level.first, level.has_choice)
        return PatternReading(
            tuple(self._printed), "".join(self._letters), tuple(self._groups), level.may_be_empty, ends
        )

    def _note(self, kind: str, text: str) -> None:
        """Note an opened bracket, or another part beside `|`."""
        if kind == "open":
            self._levels.append(_Level(len(self._groups), is_group=text == "("))
            if text == "(":
                self._groups.append(Group(len(self._printed)))
        elif kind == "or":
            self._levels[-1].choose()

    def _ended(self, kind: str, least: int) -> None:
        """Note an item that stands at least so often, or a closed bracket."""
        if kind == "close":
            level = self._levels.pop()
            if level.is_group:
                self._groups[level.first] = self._groups[level.first]._replace(may_be_empty=level.may_be_empty)
            self._miss(level.first + level.is_group, level.has_choice)
            self._miss(level.first, least == 0)
            self._levels[-1].is_empty &= level.may_be_empty or least == 0
        elif kind in ("escaped", "sign", "set", "named", "any"):
            self._levels[-1].is_empty &= least == 0

    def _miss(self, first: int, is_so: bool) -> None:
        """Note that groups from a number on may have no part in a match."""
        if is_so:
            self._groups[first:] = [group._replace(may_be_missing=True) for group in self._groups[first:]]

    def _check_end(self, at: int, depth: int) -> None:
        """Raise UntranslatableSql for a `$` of Java or Joni inside of a pattern: it matches before a line's end."""
        if self._source == "trino":
            raise UntranslatableSql("`$` differs between Trino's two libraries of regular expressions: write \\z")
        if self._source not in RE2 and (depth or (at < len(self._pattern) and self._pattern[at] != "|")):
            raise UntranslatableSql("`$` inside of a regular expression differs: write it at the end")

    def _item(self, kind: str, found: re.Match[str]) -> str:
        if kind in ("escaped", "sign"):
            self._letters.append(found[kind])
            return quoted(found[kind])
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
            return "\\t\\n\\f\\r " if self._source in RE2 else "\\t\\n\\x0B\\f\\r "
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
            printed.append(f"{quoted(first)}-{to}" if to else quoted(first))
        return f"[{'^' if is_without else ''}{''.join(printed)}]"

    def _repeated(self, at: int, kind: str) -> int:
        """Print how often the last item stands; return the place behind it. Raise UntranslatableSql."""
        many = _MANY.match(self._pattern, at)
        self._count(many)
        if many is None:
            self._ended(kind, 1)
            return at
        if kind in ("open", "or", "start", "end", "last") or (kind == "close" and many[0] != "?"):
            raise UntranslatableSql("a group of a regular expression repeats, which can take an engine very long")
        low, high = many[1], many[2]
        if low and high and int(low) > int(high):
            raise UntranslatableSql(f"the regular expression is read in two ways: {_HINT}")
        self._ended(kind, int(low) if low else int(many[0][0] == "+"))
        end = many.end() + (self._pattern[many.end() : many.end() + 1] == "?")
        self._printed.append(self._pattern[at : end if not low or high is not None else many.end()])
        if self._pattern[end : end + 1] and self._pattern[end] in "*+?{":
            raise UntranslatableSql(f"the regular expression is read in two ways: {_HINT}")
        return end

    def _count(self, many: re.Match[str] | None) -> None:
        """Add the size of the last item; raise UntranslatableSql for a pattern that could be too large for RE2."""
        times = max(int(many[1] or 1) + 1, int(many[2] or 0)) if many else 1
        self._size += times * len(self._printed[-1])
        if self._size > _MOST_SIGNS:
            raise UntranslatableSql("the regular expression may be too large: repeat fewer signs less often")

    def _code(self, sign: str) -> str:
        if sign in "\n\r":
            return {"\n": "\\n", "\r": "\\r"}[sign]
        if self._target == "trino":
            return sign
        return f"\\x{{{ord(sign):x}}}" if self._target in RE2 else f"\\u{ord(sign):04x}"


def _is_range(first: str, to: str) -> bool:
    kinds = (str.isdigit, str.islower, str.isupper)
    return first <= to and any(kind(first) and kind(to) for kind in kinds)


def read_pattern(pattern: str, source: str, target: str) -> PatternReading:
    """Return the reading of a pattern of one dialect for another; raise UntranslatableSql."""
    return _PatternReader(pattern, source, target).read()


def plain_text(pattern: str) -> str:
    """Return the only text that a pattern of Spark takes, such as `.` for `[.]`; raise UntranslatableSql."""
    found = _PLAIN_ITEMS.fullmatch(pattern)
    if found is None:
        raise UntranslatableSql("`SPLIT` of Spark takes a regular expression: write SPLIT_PART(..)")
    return "".join(item["one"] or item["escaped"] or item["sign"] for item in _PLAIN_ITEM.finditer(pattern))


def quoted(text: str) -> str:
    """Return a pattern that takes a text alone; raise UntranslatableSql."""
    return "".join(map(_quoted, text))


def _quoted(sign: str) -> str:
    if not sign.isprintable():
        raise UntranslatableSql("a regular expression has a control character")
    return sign if _PLAIN.match(sign) or not sign.isascii() else f"\\{sign}"


def pattern_sql(text: str) -> exp.Expr:
    """Return a pattern as SQL: no literal holds the ends of lines that Joni and RE2J escape in other ways."""
    parts = [part for part in re.split(r"([\x85\u2028\u2029])", text) if part]
    if len(parts) == 1:
        return exp.Literal.string(text)
    return function(
        "CONCAT",
        *(function("CHR", exp.Literal.number(ord(p))) if p in _LINES else exp.Literal.string(p) for p in parts),
    )
