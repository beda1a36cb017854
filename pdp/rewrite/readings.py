"""Numbers and sources of a text by its words, beside the tree: what only one of the two readings sees is refused.

An engine takes the word after FROM or JOIN for a source. Where the parser takes the same word for a column or an
alias, the statement reads a table that no filter covers. So each FROM and JOIN outside of quotes has to lead to a
source of the tree.

Knows no caller and no policy.
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from pdp.rewrite.errors import PARSE_ERROR, UNSUPPORTED_FUNCTION, UNSUPPORTED_SOURCE, RewriteRefused
from pdp.rewrite.functions import is_table_function, words_of_sql
from pdp.rewrite.sql import MARK, ParsedText

_NUMBER_WORD: Final = re.compile(r"(?<![\w.])(?:(?!0[xX])\.?[0-9][\w.]*?[eE][+-][0-9][\w.]*|\.?[0-9][\w.]*)")
"""Number, with the sign of its exponent, and all words and dots that touch it."""
_NUMBER: Final = re.compile(
    r"(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE](?:[+-]?[0-9]+)?)?|0[xX][0-9a-fA-F]+|0[bB][01]+", re.ASCII
)
_SPARK_NUMBER: Final = re.compile(
    r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:[LlSsYyDdFf]|[Bb][Dd])|[0-9]+[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*",
    re.ASCII,
)
"""Number with a suffix, or a name that begins with a digit: Spark takes the longest word."""
_PROJECT_END: Final = re.compile(r"[0-9]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)
"""End of a name such as `my-project-1.ds.t` of BigQuery."""
CLAUSE: Final = r"(?:select|from|join|table|with|union|except|intersect|into|lateral|where|using)\b"
"""Words of SQL that no name after a dot may be, for both ways."""
_CUT_WORD: Final = re.compile(rf"\.\s*{CLAUSE}|\.[0-9][0-9_]*(?:e[0-9]+)?{CLAUSE}", re.IGNORECASE)
"""Word of SQL after a dot, or after a number that begins with a dot: a column to one reader, a clause to another."""
_AFTER_NUMBER: Final = re.compile(r"(?<![\w.])[0-9]+\.\Z")
_SOURCE_WORD: Final = re.compile(r"\b(?:from|join)\b", re.IGNORECASE)
_SOURCE: Final = re.compile(
    rf"(?P<open>[\s(]*)(?:[\w{MARK}]+\s*:(?!:)\s*)?(?P<name>[\w{MARK}]*(?:\s*\.\s*[\w{MARK}]+)*)(?P<call>\s*\()?",
    re.IGNORECASE,
)
"""What follows the word: parentheses, and the first word of a source or of a query in parentheses."""
_QUERIES: Final = frozenset({"select", "with", "from", "table", "pivot", "unpivot"})
"""First words of a query in parentheses."""
_COMPARISON: Final = re.compile(r"\bis\s+(?:not\s+)?distinct\s+\Z", re.IGNORECASE)
_PARTS: Final = re.compile(r"\b(?:extract|trim|substring|overlay|position|ceil|floor)\s*\Z", re.IGNORECASE)
_PARTS_CALL: Final = re.compile(_PARTS.pattern.replace(r"\Z", r"\("), re.IGNORECASE)
_QUERY: Final = re.compile(r"\b(?:select|from)\b", re.IGNORECASE)
_LONGEST_WORD: Final = 80
"""Characters before a FROM, or before a bracket, in which its word is looked for."""
_WORDS: Final = (exp.From, exp.Join, exp.Delete)  # parts that FROM and JOIN begin; the tree keeps no FROM of DELETE
_CALLED_CLAUSE: Final = re.compile(
    r"(?:(?:,|\b(?:by|select|where|having|on|from|join)\b)\s*(?=(?:from|join|where|having|group|order|union|except|intersect|minus"
    r"|on|is|as)\b)|\(\s*(?=from\s*\()|\bby\s+(?=(?:all|distinct)\s*\())(\w+)",
    re.IGNORECASE,
)
"""Word in place of an expression, which the parser skips, or FROM between parentheses. Spark takes it for a name."""
_SKIPPED: Final = re.compile(
    r",\s*(fetch|limit|offset|window|qualify|for|using|cluster|distribute|sort|left|right|full|inner|cross|natural|tablesample|pivot"
    r"|unpivot|connect|start|settings|format|sample|prewhere|match_recognize|semi|anti|asof|positional)\b"
    r"|(?<![\w.])(insert|into|overwrite|table|from|join|update|using|merge|delete|with|select|lateral|values|where)\s*\.",
    re.IGNORECASE,
)
"""Word behind a comma that the parser skips, or before a dot. To an engine the word can be the name of a table."""
_BARE_QUERY: Final = re.compile(r"(?<![\w.])using\s+(?:select|from|with|values|table)\b", re.IGNORECASE)
_EMPTY_ROW: Final = re.compile(r"\bvalues\s*\(\s*\)", re.IGNORECASE)
_PARAMETER_SIGN: Final = re.compile(r"(?<!@)@@?\s*\w")
_NAMED_PARAMETER: Final = re.compile(r"(?<![\w:)\]])(?<![\w:)\]]\s):\s*(?=[A-Za-z_])")
_EMPTY_PART: Final = re.compile(
    r"(?i)(?:[,(]|\b(?:select|distinct|all|by|limit|offset|fetch|from|join|using|where|having|qualify|on|and|or|not|when|then"
    r"|else|values|set|into)\b)\s*,"
)
"""Comma without an expression before. The parser skips the comma. To Spark `FROM t SELECT, u` has a table `u`."""
_LIMITED: Final = re.compile(r"(?<![\w.])limit\b", re.IGNORECASE)
_BRACKET_OR_COMMA: Final = re.compile(r"(?i)[(),]|\|>|(?<![\w.])limit\b")
_FRAME_WORD: Final = re.compile(
    r"(?i)(?<![\w.])(?:(?P<from>from)|(?P<columns>select)(?=\s*\()|union|except|intersect|minus|select)\b|[()]"
)
"""Brackets, and words that begin or end the sources of a query."""
_ROWS_WORD: Final = re.compile(r"(?<![\w.])values\b", re.IGNORECASE)
_FIRST_OF_ROWS: Final = {"duckdb": re.compile(r"\("), "spark": re.compile(r"[(0-9'\"+-]")}
"""Dialect in which `values` is no reserved word -> first sign of a row."""
_SEVERAL_NAMES: Final = (exp.Anonymous, exp.Explode, exp.Inline, exp.Posexplode, exp.Stack)
"""Functions of Spark that give several columns. Elsewhere `word (name)` is a call, which the parser takes for names."""
_FORMS: Final = frozenset({
    exp.Aliases, exp.From, exp.Join, exp.Interval, exp.Star, exp.Any, exp.All, exp.Select, exp.Values,
    exp.Distinct, exp.Returning, exp.Fetch,
})  # fmt: skip
"""Parts of a tree that can be a form of another engine."""
_COMPARED_TO_ALL: Final = re.compile(r"(?i)[(,]\s*all\s*\(")
_CALLED_IN_HINT: Final = re.compile(r"/\*\+[^*]*\([^()*]*\(")
_CALLED: Final = re.compile(r"(?<!\w)\w+(?=\s*\()")
_LAST_WORD: Final = re.compile(r"\w+\Z|\|>\Z|.\Z", re.DOTALL)
_BEFORE_OPERANDS: Final = frozenset(
    """( , = < > ! + / % | & ^ ~ - select distinct all by where having on and or not when then else case from join limit
    offset in between like is of""".split()  # noqa: SIM905
)
"""Words and signs behind which an operand begins."""
_BEHIND: Final = {
    "not": frozenset("in between like ilike rlike regexp materialized".split()),  # noqa: SIM905
    **dict.fromkeys(("distinct", "limit", "offset"), frozenset({"from"})),
    "(": frozenset({"where"}),
}
"""Word or sign -> words of SQL behind it in no operand: NOT IN, IS DISTINCT FROM, FILTER (WHERE, a column `offset`."""
_PRODUCT: Final = re.compile(r"(?i)\*\s*(?:from\s*\((?P<value>\s*[\1\d])?|exclude\b)")
_BEFORE_STAR: Final = frozenset({"select", "distinct", ",", "(", "."})
_LEAVES: Final = (exp.Identifier, exp.Literal, exp.Column)
"""Parts without sources. Those of array paths are looked for by the path."""


def check_readings(parsed: ParsedText, dialect: str) -> None:
    """Raise RewriteRefused for numbers and sources that an engine reads otherwise than the parser."""
    _check_numbers(parsed.lexical.marked, dialect)
    _check_sources(parsed)
    _check_skipped(parsed, dialect)
    _check_commas(parsed)
    _check_target(parsed.tree)
    _check_projections(parsed.tree)
    _check_laterals(parsed.tree, dialect)
    if dialect != "duckdb":
        _check_foreign_forms(parsed.tree, dialect)
        _check_called(parsed.lexical.marked, dialect)
    if dialect == "spark":
        _check_spark(parsed.lexical.marked)
    if dialect in _FIRST_OF_ROWS:
        _check_rows(parsed, _FIRST_OF_ROWS[dialect])


def _check_numbers(marked: str, dialect: str) -> None:
    """Raise RewriteRefused for numbers and dots that touch words: engines end the number at other places.

    DuckDB reads `@1.from t` as `@ 1. FROM t`, the parser as a column `from` of `1`.
    """
    for match in _NUMBER_WORD.finditer(marked):
        is_open = match[0][-1] in "eE" and match[0][:2].lower() != "0x"
        if _NUMBER.fullmatch(match[0]) and not is_open:
            continue
        if dialect == "spark" and _SPARK_NUMBER.fullmatch(match[0]):
            continue
        if dialect == "bigquery" and marked[: match.start()].endswith("-") and _PROJECT_END.fullmatch(match[0]):
            continue
        raise RewriteRefused(PARSE_ERROR, f"the number at {match.start()} touches a word: put a blank between them")
    for match in _CUT_WORD.finditer(marked):
        is_number = match[0][1:2].isspace() and _AFTER_NUMBER.search(marked[: match.start() + 1])
        if not is_number:
            raise RewriteRefused(PARSE_ERROR, f"a word of SQL touches the dot at {match.start()}: quote the name")


def _check_sources(parsed: ParsedText) -> None:
    """Raise RewriteRefused for a FROM or JOIN of the text that leads to no source of the tree."""
    marked = parsed.lexical.marked
    if not (words := list(_SOURCE_WORD.finditer(marked))):
        return
    starts, most = _sources(parsed.tree, marked.count("|>"))
    found = {"from": 0, "join": 0}
    has_parts = _PARTS_CALL.search(marked) is not None
    for word in words:
        kind = "from" if word[0][0] in "fF" else "join"  # letters that fold to `join` match, too
        is_certain = _is_source(marked, word.end(), starts)
        if not is_certain and kind == "from" and _is_no_source(marked, word.start(), has_parts):
            continue
        if not is_certain and not _may_be_source(parsed.text, marked, word.end()):
            raise _two_readings(word)
        found[kind] += 1
    if found["from"] > most["from"] or found["join"] > most["join"]:
        raise _two_readings(words[0])


def _check_skipped(parsed: ParsedText, dialect: str) -> None:
    """Raise RewriteRefused for words and parameters that the parser skips, and for a row without values."""
    marked, tree = parsed.lexical.marked, parsed.tree
    if _EMPTY_ROW.search(marked) or _BARE_QUERY.search(marked):  # to Spark `USING select x` is a table `select`
        raise RewriteRefused(PARSE_ERROR, "a row of VALUES has no values, or a query behind USING no parentheses")
    if words := list(_SKIPPED.finditer(marked)):
        names = _starts_of_names(tree)
        if any(word.start(word.lastindex or 0) not in names for word in words):
            raise RewriteRefused(PARSE_ERROR, f"the word of SQL at {words[0].start()} could be a name: quote names")
    if dialect == "bigquery" and "@" in marked:
        seen = sum(1 for _ in tree.find_all(exp.Parameter, exp.SessionParameter))
        if len(_PARAMETER_SIGN.findall(marked)) > seen:
            raise RewriteRefused(PARSE_ERROR, "a parameter touches a word of SQL")
    named = len(_NAMED_PARAMETER.findall(marked)) if dialect == "spark" and ":" in marked else 0
    if dialect != "duckdb" and (named or "?" in marked):
        signs = sum(match.text("pattern").count("?") for match in tree.find_all(exp.MatchRecognize))
        if named + marked.count("?") > signs + sum(1 for _ in tree.find_all(exp.Placeholder)):
            raise RewriteRefused(PARSE_ERROR, "a parameter touches a word of SQL")


def _check_commas(parsed: ParsedText) -> None:
    """Raise RewriteRefused for a comma without an expression before: Spark reads `u` of `LIMIT, u`, `LIMIT (a), u`."""
    marked = parsed.lexical.marked
    empty = [found.start() for found in _EMPTY_PART.finditer(marked)]
    limits = [found.start() for found in _LIMITED.finditer(marked) if _has_comma(marked, found.end())]
    if not empty and not limits:
        return
    names = _starts_of_names(parsed.tree)
    if any(at not in names for at in empty):
        raise RewriteRefused(PARSE_ERROR, f"nothing stands before the comma behind {empty[0]}")
    if any(at not in names for at in limits):
        raise RewriteRefused(PARSE_ERROR, "LIMIT has a comma: write LIMIT and OFFSET")


def _has_comma(marked: str, at: int) -> bool:
    """Tell whether a comma follows a place before the brackets around the place end."""
    depth = 0
    for sign in _BRACKET_OR_COMMA.finditer(marked, at):
        if not depth and sign[0] != "(":
            return sign[0] == ","
        depth += (sign[0] == "(") - (sign[0] == ")")
    return False


def _check_spark(marked: str) -> None:
    """Raise RewriteRefused for words that Spark calls, and for `FROM t SELECT (a), u` with a table `u`."""
    if word := _CALLED_CLAUSE.search(marked) or _COMPARED_TO_ALL.search(marked) or _CALLED_IN_HINT.search(marked):
        raise RewriteRefused(PARSE_ERROR, f"the word of SQL at {word.start()} could be a function or a column")
    has_sources = [False]
    for word in _FRAME_WORD.finditer(marked):
        if word[0] == "(":
            has_sources.append(False)
        elif word[0] == ")":
            has_sources = has_sources[:-1] or [False]
        elif word["columns"] and has_sources[-1]:
            raise RewriteRefused(PARSE_ERROR, "SELECT stands between FROM and a bracket: write SELECT before FROM")
        else:
            has_sources[-1] = word["from"] is not None


def _starts_of_names(tree: exp.Expr) -> set[int | None]:
    return {name.meta.get("start") for name in tree.find_all(exp.Identifier, exp.Func)}


def _check_target(tree: exp.Expr) -> None:
    """Raise RewriteRefused for a change without a target, or with a name that Spark computes: IDENTIFIER('t')."""
    if isinstance(tree, (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create)):
        target, names = tree.this, list[str]()
        if isinstance(target, exp.Schema):
            target, names = target.this, [part.name.lower() for part in target.this.parts]
        if not isinstance(target, (exp.Table, exp.Directory, exp.UserDefinedFunction)) or "identifier" in names:
            raise RewriteRefused(PARSE_ERROR, "the statement names no table to change")


def _check_projections(tree: exp.Expr) -> None:
    """Raise RewriteRefused for a query without columns: in `SELECT FROM (t)`, Spark calls a function `from`."""
    for query in tree.find_all(exp.Select):
        if not query.expressions:
            raise RewriteRefused(PARSE_ERROR, "a query has no columns")
        group = query.args.get("group")
        if group is not None and not any(group.args.values()):
            raise RewriteRefused(PARSE_ERROR, "nothing stands behind GROUP BY")
        if not query.args.get("from_") and (query.args.get("joins") or query.args.get("laterals")):
            raise RewriteRefused(PARSE_ERROR, "a query joins a source and has no FROM")


def _check_laterals(tree: exp.Expr, dialect: str) -> None:
    """Raise RewriteRefused where Trino reads `LATERAL t` as a table, and Spark `LATERAL (t * a)` as a call."""
    for lateral in tree.find_all(exp.Lateral):
        is_query = isinstance(lateral.this, exp.Subquery) and isinstance(lateral.this.unnest(), exp.Query)
        is_source = lateral.args.get("view") and lateral.arg_key != "laterals"  # `FROM LATERAL VIEW f(x)`: a table VIEW
        if is_source or (not is_query and (dialect == "trino" or not isinstance(lateral.this, exp.Func))):
            raise RewriteRefused(UNSUPPORTED_SOURCE, "LATERAL stands before a query in parentheses, or a function")
        if dialect == "spark" and isinstance(lateral.this, exp.Func) and not is_table_function(lateral.this, dialect):
            raise RewriteRefused(UNSUPPORTED_FUNCTION, "the function behind LATERAL is no known table function")


def _check_foreign_forms(tree: exp.Expr, dialect: str) -> None:
    """Raise RewriteRefused for forms of other engines, in which the engine calls functions and reads tables."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if node.__class__ in _FORMS and _is_foreign(node, dialect):
            message = "a word of SQL could be a function or a table here: put names into quotes, queries into brackets"
            raise RewriteRefused(PARSE_ERROR, message)
        for value in node.args.values():
            if value.__class__ is list:
                nodes += [part for part in value if isinstance(part, exp.Expr)]
            elif isinstance(value, exp.Expr) and value.__class__ is not exp.Identifier:
                nodes.append(value)


def _is_foreign(node: exp.Expr, dialect: str) -> bool:
    """Tell whether the engine reads a part otherwise: a keyword without a form there is a name to the engine."""
    kind, inner = node.__class__, node.args.get("this")
    if kind is exp.Aliases:
        return dialect != "spark" or not isinstance(inner, _SEVERAL_NAMES)
    if kind is exp.From or kind is exp.Join:
        return isinstance(inner, (exp.Select, exp.SetOperation, *((exp.Values,) if dialect == "bigquery" else ())))
    if kind is exp.Interval:
        value = inner.this if isinstance(inner, exp.Neg) else inner
        return dialect != "bigquery" and value is not None and not isinstance(value, exp.Literal)
    if kind is exp.Values and dialect == "bigquery" and not isinstance(node.parent, exp.Insert):
        return True  # `FROM values(a)` calls a table function `values`
    if kind is exp.Select or kind is exp.Values:  # `abs(SELECT (a))` calls a function `select`
        return dialect != "bigquery" and isinstance(node.parent, exp.Func) and not isinstance(node.parent, exp.Exists)
    if kind is exp.Distinct:  # table functions know no DISTINCT
        return isinstance(node.parent, exp.Func) and isinstance(node.parent.parent, exp.Table)
    if kind is exp.Fetch or (kind is exp.Star and any(node.args.values())):
        return (dialect == "trino") is (kind is exp.Star)  # Trino alone has FETCH, and alone no parts of a star
    return kind is exp.Returning or ((kind is exp.Any or kind is exp.All) and isinstance(inner, exp.Star))


def _check_called(marked: str, dialect: str) -> None:
    """Raise RewriteRefused for a word of SQL in place of a function, which the engine calls by that name."""
    for call in _CALLED.finditer(marked):
        if (word := call[0].lower()) not in words_of_sql(dialect):
            continue
        if (before := _before(marked, call.start())) in _BEFORE_OPERANDS and word not in _BEHIND.get(before, ()):
            raise RewriteRefused(PARSE_ERROR, f"the word of SQL at {call.start()} could be a function")
    for star in _PRODUCT.finditer(marked):
        if star["value"] or star[0][-1] != "(" or _before(marked, star.start()) not in _BEFORE_STAR:
            raise RewriteRefused(PARSE_ERROR, f"the word behind a star at {star.start()} could be a function")


def _before(marked: str, at: int) -> str:
    """Return the word or sign before a place, in lower case; empty at the start."""
    while at and marked[at - 1].isspace():
        at -= 1
    found = _LAST_WORD.search(marked, max(at - _LONGEST_WORD, 0), at)
    return found[0].lower() if found else ""


def _check_rows(parsed: ParsedText, first: re.Pattern[str]) -> None:
    """Raise RewriteRefused for VALUES before a word, which the engine takes for the alias of a table `values`."""
    if not (words := list(_ROWS_WORD.finditer(parsed.lexical.marked))):
        return
    names = {name.meta.get("start") for name in parsed.tree.find_all(exp.Identifier)}
    for word in words:
        if word.start() not in names and not first.match(parsed.text, _after_comments(parsed, word.end())):
            raise RewriteRefused(PARSE_ERROR, "a row of VALUES could be the alias of a table: put it into parentheses")


def _after_comments(parsed: ParsedText, at: int) -> int:
    """Return the place of the next sign, behind blanks and comments."""
    return len(parsed.lexical.marked) - len(parsed.lexical.marked[at:].lstrip())


def _two_readings(word: re.Match[str]) -> RewriteRefused:
    message = f"the word {word[0].upper()} at {word.start()} could begin a source that is not seen: quote names"
    return RewriteRefused(PARSE_ERROR, message)


def _sources(tree: exp.Expr, steps: int) -> tuple[set[int], dict[str, int]]:
    """Return the places where the names of sources begin, and the number of FROM and JOIN, without those of pipes."""
    starts: set[int] = set()
    most = {"from": -steps, "join": 0}
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (exp.Table, exp.Unnest)):
            starts |= _start_of(node)
        elif isinstance(node, _WORDS):
            most["join" if isinstance(node, exp.Join) else "from"] += 1
        for value in node.args.values():
            if value.__class__ is list:
                nodes += [part for part in value if isinstance(part, exp.Expr)]
            elif isinstance(value, exp.Expr) and not isinstance(value, _LEAVES):
                nodes.append(value)
    return starts, most


def _start_of(source: exp.Table | exp.Unnest) -> set[int]:
    """Return the place where the name of a source begins, if it has a name: a table, or an array path of BigQuery."""
    parts = source.parts if isinstance(source, exp.Table) else source.find_all(exp.Identifier)
    places = [part.meta["start"] for part in parts if isinstance(part, exp.Identifier) and "start" in part.meta]
    return {min(places)} if places else set()


def _is_source(marked: str, at: int, starts: set[int]) -> bool:
    """Tell whether a source of the tree begins at a place."""
    found = _SOURCE.match(marked, at)
    # The parser gives a name in one pair of quotes with dots the place of a later part.
    return found is not None and any(found.start("name") <= start < found.end("name") for start in starts)


def _may_be_source(text: str, marked: str, at: int) -> bool:
    """Tell whether a query in parentheses, VALUES, a function, a text or LATERAL begins at a place.

    The walk of the tree judges those.
    """
    found = _SOURCE.match(marked, at)
    if found is None:
        return False
    start, name = found.start("name"), found["name"].lower()
    is_query = name in ("values", "lateral") or ("(" in found["open"] and name in _QUERIES)
    return is_query or found["call"] is not None or text[start : start + 1] == "'"


def _is_no_source(marked: str, start: int, has_parts: bool) -> bool:
    """Tell whether a FROM stands in IS DISTINCT FROM, or between the arguments of a function."""
    if _COMPARISON.search(marked, max(start - _LONGEST_WORD, 0), start):
        return True
    if not has_parts:
        return False
    depth, at = 0, start
    while depth >= 0 and at:
        at -= 1
        depth += (marked[at] == ")") - (marked[at] == "(")
    function = _PARTS.search(marked, max(at - _LONGEST_WORD, 0), at)
    return function is not None and _QUERY.search(marked, at, start) is None
