"""Text of a statement: bounds before the parser runs, its tokens by the engines' rules, its trees, and edits.

Where an engine ends a comment or a text earlier than the parser, the engine reads SQL behind the parser's back. So this
module finds comments and quotes by the rules of the engines, refuses forms with different readings, and compares the
rest with the parser's tokens.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sqlglot import Dialect, Parser, Token, Tokenizer, exp

from pdp.engines.row_access.dialects import MAX_DEPTH, PARSER_ERRORS, is_deep
from pdp.rewrite.errors import FILTER_INVALID, MULTI_STATEMENT, PARSE_ERROR, UNSUPPORTED_STATEMENT, RewriteRefused
from pdp.rewrite.names import PIPES, ArrayPathParser, without_pipes
from pdp.rewrite.process.messages import LONGEST_SQL

MAX_TOKENS: Final = 20_000
"""Bounds of one text."""

_LINE_COMMENT: Final = r"--[^\n\r]*"
_BLOCK_COMMENT: Final = r"/\*.*?\*/"
_STANDARD_TEXT: Final = r"'(?:[^']|'')*'"
_STANDARD_NAME: Final = r'"(?:[^"]|"")*"'
_ESCAPED_TEXT: Final = r"'(?:[^'\\]|\\.)*'"
_ESCAPED_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_BACKTICK_NAME: Final = r"`(?:[^`]|``)*`"
_RAW_TEXT: Final = r"""[rRbB](?<!\w.)(?:'(?:[^'\\]|\\[^'])*'|"(?:[^"\\]|\\[^"])*")(?!['"])"""
"""Raw text or bytes, without a backslash before its own quote: readers differ on whether such a text ends there."""
_TRIPLE_TEXT: Final = (
    r""""\"\"(?:"{0,2}(?:[^"\\]|\\.))*"{3}(?!")|'\'\'(?:'{0,2}(?:[^'\\]|\\.))*'{3}(?!')"""
    r"""|[rRbB](?<!\w.)(?:"{3}(?:"{0,2}(?:[^"\\]|\\[^"']))*"{3}(?!")|'{3}(?:'{0,2}(?:[^'\\]|\\[^"']))*'{3}(?!'))"""
)
"""Text between three quotes. It ends at the first three quotes, and no quote touches those."""
_ESCAPE_TEXT: Final = r"[eE](?<!\w.)'(?:[^'\\]|\\[^']|'')*'"
"""Text of DuckDB with escapes, without a backslash before its own quote."""
_HEX_TEXT: Final = r"[xX](?<!\w.)'[0-9A-Fa-f]*'(?!')"
_RAW_LINE: Final = r"""[rR](?<!\w.)(?:'(?:[^'\\]|\\[^'])*'|"(?:[^"\\]|\\[^"])*")(?!['"])"""
_HINT: Final = r"(?P<hint>/\*\+|\*/)"
_OPEN: Final = r"(?P<open>/\*|['\"`])"


def _pattern(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts), re.DOTALL)


_QUOTED: Final = {
    "trino": _pattern(_LINE_COMMENT, _BLOCK_COMMENT, _HEX_TEXT, _STANDARD_TEXT, _STANDARD_NAME, _OPEN),
    "duckdb": _pattern(_LINE_COMMENT, _BLOCK_COMMENT, _ESCAPE_TEXT, _STANDARD_TEXT, _STANDARD_NAME, _OPEN),
    "spark": _pattern(
        *(_HINT, _LINE_COMMENT, _BLOCK_COMMENT, _HEX_TEXT, _RAW_LINE),
        *(_ESCAPED_TEXT, _ESCAPED_QUOTED, _BACKTICK_NAME, _OPEN),
    ),
    "bigquery": _pattern(
        _LINE_COMMENT,
        r"#[^\n\r]*",
        _BLOCK_COMMENT,
        _TRIPLE_TEXT,
        _RAW_TEXT,
        _ESCAPED_TEXT,
        _ESCAPED_QUOTED,
        _BACKTICK_NAME,
        _OPEN,
    ),
}
"""Dialect -> comments, texts and quoted names, as the lexer of the engine finds them."""
_COMMENT_STARTS: Final = ("--", "/*", "#")
_LEGACY: Final = re.compile(r"\W*legacy_?sql\b", re.IGNORECASE)
"""Comment with which BigQuery and the tools around read a statement as legacy SQL."""
_ODD: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]|\r(?!\n)"
)
"""Control characters, odd blanks and lone carriage returns: engines differ on where they end a word or a line."""
_PREFIX: Final = re.compile(r"(?:[$@&]|(?<!\w)[A-Za-z]\w?)\Z")
"""End of the text before a quote that changes how an engine reads the quote."""
_PREFIXED: Final = re.compile("[rRbBeExX]['\"]")
"""Start of a text with a prefix. A prefix that the dialect has not is refused before."""
_DOLLAR_QUOTE: Final = re.compile(r"\$\w*\$")
_SUBSTITUTED: Final = "${"
"""Start of a variable, which Spark replaces before it reads the text."""
_PIPE: Final = re.compile(r"\|\s*>")
MARK: Final = "\1"
"""Sign in place of each sign of a quoted piece."""


class LexicalText:
    """Text within the bounds, with quoted pieces and comments, before the parser runs.

    `bare` has blanks in place of quoted pieces and comments, so that places are the same in both. `marked` has marks in
    place of quoted pieces.
    """

    __slots__ = ("bare", "comments", "marked", "quoted", "text")

    def __init__(self, text: str, dialect: str, *, several: bool = False) -> None:
        """Read a text, of `several` statements; raise RewriteRefused for a long, deep or ambiguous text."""
        if len(text) > LONGEST_SQL:
            raise RewriteRefused(PARSE_ERROR, f"the text has more than {LONGEST_SQL} characters")
        if not text or text.isspace():
            raise RewriteRefused(PARSE_ERROR, "the text is empty")
        self.text = text
        self.quoted: list[tuple[int, int]] = []
        self.comments: list[tuple[int, int]] = []
        self.bare = self._read(dialect)
        _check_bounds(self.bare, several=several)
        self.marked = self._marked()
        _check_pipes(self.bare, dialect)
        if dialect == "spark" and _SUBSTITUTED in text:
            raise RewriteRefused(PARSE_ERROR, "variables (`${`) are not read")

    def _read(self, dialect: str) -> str:
        """Note the places of comments and quoted pieces; return the bare text."""
        text, at = self.text, 0
        bare: list[str] = []
        outside: list[str] = []
        for match in _QUOTED[dialect].finditer(text):
            if match.lastgroup == "open":
                raise RewriteRefused(PARSE_ERROR, "a quote or a comment does not end")
            if match.lastgroup == "hint":
                continue
            start, end = match.span()
            piece, before = match[0], text[at:start]
            if piece.startswith(_COMMENT_STARTS):
                _check_comment(piece)
                if dialect == "bigquery" and _LEGACY.match(piece):
                    raise RewriteRefused(PARSE_ERROR, "the text asks for legacy SQL, which is not read")
                self.comments.append((start, end))
                outside += (before, piece)
            else:
                if _PREFIX.search(before):
                    raise RewriteRefused(PARSE_ERROR, f"the prefix of the text at {start} is not read")
                self.quoted.append((start, end))
                outside.append(before)
            bare += (before, " " * (end - start))
            at = end
        rest = text[at:]
        whole = "".join((*outside, rest))
        if not (whole.isascii() and whole.isprintable()) and _ODD.search(whole):
            raise RewriteRefused(PARSE_ERROR, "the text has a control character or an odd blank")
        return "".join((*bare, rest))

    def _marked(self) -> str:
        pieces: list[str] = []
        at = 0
        for start, end in self.quoted:
            pieces += (self.bare[at:start], MARK * (end - start))
            at = end
        return "".join((*pieces, self.bare[at:])) if pieces else self.bare

    def check_tokens(self, tokens: Sequence[Token]) -> None:
        """Raise RewriteRefused if the parser's tokens divide the text differently."""
        if len(tokens) > MAX_TOKENS:
            raise RewriteRefused(PARSE_ERROR, f"the text has more than {MAX_TOKENS} words and signs")
        text, bare, at = self.text, self.bare, 0
        found = []
        for token in tokens:
            start, end = token.start, token.end + 1
            if start > at and not bare[at:start].isspace():
                raise RewriteRefused(PARSE_ERROR, "a comment could be read in two ways")
            if text[start] in "'\"`" or _PREFIXED.match(text, start, end):
                found.append((start, end))
            at = end
        if found != self.quoted or bare[at:].strip(" \t\r\n;"):
            raise RewriteRefused(PARSE_ERROR, "a quote or a comment could be read in two ways")


def _check_comment(piece: str) -> None:
    """Raise RewriteRefused for a comment in a comment, and for a line comment that may go on in the next line.

    Some engines nest comments, and others do not. In Spark a backslash before the end of the line goes on.
    """
    if not piece.startswith("/*") and piece.rstrip(" \t").endswith("\\"):
        raise RewriteRefused(PARSE_ERROR, "a line comment ends with a backslash")
    if "/*" in piece[1:] or "*/" in piece[2:-2]:
        raise RewriteRefused(PARSE_ERROR, "a comment holds the start or the end of a comment")


def _check_pipes(bare: str, dialect: str) -> None:
    """Raise RewriteRefused for pipes where the engine has none, and for a pipe in two pieces."""
    if any(dialect not in PIPES or pipe != "|>" for pipe in _PIPE.findall(bare)):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, "pipe syntax (`|>`) of this form is not supported")


def _check_bounds(bare: str, *, several: bool) -> None:
    """Raise RewriteRefused for several statements, dollar quotes, and nesting beyond the bounds."""
    if "$" in bare and _DOLLAR_QUOTE.search(bare):
        raise RewriteRefused(PARSE_ERROR, "dollar quotes are not read")
    _, semicolon, rest = bare.partition(";")
    if semicolon and rest.strip(" \t\r\n;") and not several:
        raise RewriteRefused(MULTI_STATEMENT, "the text has more than one statement")
    if is_deep(bare.lower()):
        raise RewriteRefused(PARSE_ERROR, f"the text is nested deeper than {MAX_DEPTH} levels, or has too many joins")


_QUOTES: Final = {"trino": '"', "duckdb": '"', "spark": "`", "bigquery": "`"}
_ESCAPING: Final = frozenset({"spark", "bigquery"})
"""Dialects in whose texts a backslash escapes the next character."""
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\$\\{")
_OPENING: Final = re.compile(r"[\s(]*(\w+)")
STATEMENTS: Final = frozenset(
    "select with from table values insert update delete merge create truncate pivot unpivot".split()  # noqa: SIM905
)
"""First words of the statements that are read. The parser keeps other statements as a text of its own."""


class _Grammars(threading.local):
    """Tokenizers and parsers of this thread. Both begin anew with each text; making them costs as much as a text."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Tokenizer, Parser]] = {}

    def of(self, dialect: str) -> tuple[Tokenizer, Parser]:
        """Return the tokenizer and parser of a dialect."""
        found = self._known.get(dialect)
        if found is None:
            grammar = Dialect.get_or_raise(dialect)
            parser = ArrayPathParser(dialect=grammar) if dialect == "bigquery" else grammar.parser()
            found = self._known[dialect] = grammar.tokenizer(), parser
        return found


_GRAMMARS: Final = _Grammars()
logging.getLogger("sqlglot").setLevel(logging.ERROR)
"""The parser warns of statements that it keeps as text. Those are refused."""


class ParsedText:
    """Text with lexical reading, tokens and a single tree."""

    __slots__ = ("lexical", "text", "tokens", "tree")

    def __init__(self, text: str, dialect: str, *, statement: bool = False) -> None:
        """Read a text; raise RewriteRefused unless the text is a single statement or expression."""
        self.text = text
        self.lexical = LexicalText(text, dialect)
        if statement:
            _check_opening(self.lexical.bare)
        tokenizer, parser = _GRAMMARS.of(dialect)
        try:
            self.tokens = tokenizer.tokenize(text)
            self.lexical.check_tokens(self.tokens)
            if dialect == "spark":
                _check_scripts(self.tokens, text)
            trees = parser.parse(without_pipes(self.tokens, dialect), text)
        except RecursionError:
            raise RewriteRefused(PARSE_ERROR, "the text is nested too deeply") from None
        except PARSER_ERRORS as error:
            raise RewriteRefused(PARSE_ERROR, f"the text does not parse: {_first_line(str(error))}") from None
        self.tree = _only_tree(trees)


def parse_part(text: str, dialect: str) -> exp.Expr:
    """Return the tree of a text made of parts that were read before; raise RewriteRefused."""
    tokenizer, parser = _GRAMMARS.of(dialect)
    try:
        return _only_tree(parser.parse(without_pipes(tokenizer.tokenize(text), dialect), text))
    except PARSER_ERRORS as error:
        raise RewriteRefused(PARSE_ERROR, f"the text does not parse: {_first_line(str(error))}") from None


def _only_tree(trees: Sequence[exp.Expr | None]) -> exp.Expr:
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1:
        raise RewriteRefused(PARSE_ERROR, "the text is not exactly one statement")
    if isinstance(found[0], exp.Command):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, f"{found[0].name.upper()} is not supported")
    return found[0]


def _check_opening(bare: str) -> None:
    """Raise RewriteRefused for an unsupported kind of statement."""
    opening = _OPENING.match(bare)
    if opening and opening[1].lower() not in STATEMENTS:
        raise RewriteRefused(UNSUPPORTED_STATEMENT, f"{opening[1].upper()[:40]} is not supported")


_DESCRIBED: Final = frozenset({"duckdb", "trino", "bigquery"})
"""Dialects in which a new table of columns alone is empty. In Spark it may be a name for files."""


def is_new_table(tree: exp.Create, dialect: str) -> bool:
    """Tell whether a statement creates an empty table by columns alone, without a place or an option."""
    properties = tree.args.get("properties")
    is_plain = all(isinstance(part, exp.TemporaryProperty) for part in properties.expressions) if properties else True
    if dialect not in _DESCRIBED or not isinstance(tree.this, exp.Schema) or not is_plain:
        return False
    return bool(tree.this.expressions) and tree.find(exp.Query) is None


def _check_scripts(tokens: Sequence[Token], text: str) -> None:
    """Raise RewriteRefused for `USING 'script'`: Spark runs the script on the rows."""
    for token, following in pairwise(tokens):
        if token.text.lower() == "using" and text[following.start] in "'\"":
            raise RewriteRefused(UNSUPPORTED_STATEMENT, "scripts (TRANSFORM, MAP and REDUCE) are not supported")


def quote_name(name: str, dialect: str) -> str:
    """Return a name in quotes; raise RewriteRefused for a name that the dialect cannot quote with certainty."""
    quote = _QUOTES[dialect]
    if _UNSAFE.search(name) or (dialect == "bigquery" and ("`" in name or "\\" in name)):
        raise RewriteRefused(PARSE_ERROR, "a name has a character that cannot be quoted")
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"


def quote_names(parts: Iterable[str], dialect: str) -> str:
    """Return a full name, each part in quotes."""
    return ".".join(quote_name(part, dialect) for part in parts)


def quote_text(value: str, dialect: str) -> str:
    """Return a text literal; raise RewriteRefused for a value that has no certain literal in the dialect."""
    if _UNSAFE.search(value):
        message = (
            "the name of the caller, or a text, has a control character or `${`, which no literal holds for certain"
        )
        raise RewriteRefused(FILTER_INVALID, message)
    if dialect in _ESCAPING:
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    return "'{}'".format(value.replace("'", "''"))


_PARAMETER: Final = re.compile(r"\?|(?<![:\w]):\s*[A-Za-z_]")
"""Marks outside of quotes for values that the client of an engine binds."""


def check_substitution(text: str, dialect: str) -> None:
    """Raise RewriteRefused for a text in which the engine would replace a variable, whoever wrote the part."""
    if dialect == "spark" and _SUBSTITUTED in text:
        raise RewriteRefused(FILTER_INVALID, "the result holds a variable (`${`), which Spark would replace")


def check_printed(pieces: Sequence[str], dialect: str) -> None:
    """Raise RewriteRefused for an expression that an engine could change before it reads SQL.

    `pieces` is the text, cut where the name of the caller stands. The engine replaces variables and parameters, and
    divides the text by its own quotes, so a name of the caller must not touch another text.
    """
    mark = "'x'"
    lexical = LexicalText(mark.join(pieces), dialect)
    at, names = 0, []
    for piece in pieces[:-1]:
        names.append((at + len(piece), at + len(piece) + len(mark)))
        at = names[-1][1]
    if lexical.comments or not set(names) <= set(lexical.quoted) or _PARAMETER.search(lexical.bare):
        raise RewriteRefused(FILTER_INVALID, "it holds a comment, a parameter, or a text beside the name of the caller")


def place_of(identifier: exp.Expr) -> tuple[int, int]:
    """Return the place of an identifier in the text; raise RewriteRefused if the parser did not note the place."""
    start, end = identifier.meta.get("start"), identifier.meta.get("end")
    if start is None or end is None:
        raise RewriteRefused(PARSE_ERROR, f"`{identifier.name}` has no certain place in the text")
    return start, end + 1


def _first_line(text: str) -> str:
    """Return the first line of a message of the parser, without colours, and with words in place of its objects."""
    line = re.sub("\x1b\\[[0-9;]*m| for <class '[^']*'>", "", text.partition("\n")[0])
    return re.sub(r"<Token .*?text: (.*?), line: .*?>", r"`\1`", line).strip().rstrip(".")[:200]


class Edit(NamedTuple):
    """Replacement of the characters from `start` to before `end`. Equal places mean an insertion."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits. The same edit twice counts once; raise RewriteRefused for edits that overlap."""
    pieces: list[str] = []
    at = 0
    last: Edit | None = None
    for edit in sorted(edits):
        if edit == last:
            continue
        if edit.start < at:
            raise RewriteRefused(PARSE_ERROR, "two references stand in the same place")
        pieces += (text[at : edit.start], edit.text)
        at, last = edit.end, edit
    return "".join((*pieces, text[at:]))


def without_spans(text: str, spans: Sequence[tuple[int, int]]) -> list[Edit]:
    """Return the edits that put a blank in place of each span."""
    return [Edit(start, end, " ") for start, end in spans]
