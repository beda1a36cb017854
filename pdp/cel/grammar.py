"""Text to syntax tree: the grammar of cel-python, corrected and extended, in a separate parser.

Only the grammar file of cel-python is read: an import of the package would load its evaluator and a global parser.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from pdp.cel.ast_builder import AstBuilder, only_node
from pdp.cel.syntax import MAX_SOURCE, CompileError, Node

_STRING: Final = r"""(?:[rR](?:"[^"\r\n]*"|'[^'\r\n]*')|"(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*')"""
_LONG_STRING: Final = (
    r'(?:[rR](?:"""[\s\S]*?"""|' + r"'''[\s\S]*?''')"
    r'|"""(?:[^"\\]|\\[\s\S]|"(?!""))*"""' + r"|'''(?:[^'\\]|\\[\s\S]|'(?!''))*''')"
)
TERMINALS: Final = {
    "STRING_LIT": f"STRING_LIT.5 : /{_STRING}/",
    "MLSTRING_LIT": f"MLSTRING_LIT.6 : /{_LONG_STRING}/",
    "BYTES_LIT": f"BYTES_LIT.7 : /[bB](?:{_LONG_STRING}|{_STRING})/",
    "FLOAT_LIT": r"FLOAT_LIT.4 : /-?(?:[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)/",
    "UINT_LIT": "UINT_LIT.3 : /(?:0x[0-9a-fA-F]+|[0-9]+)[uU]/",
    "INT_LIT": "INT_LIT.2 : /-?(?:0x[0-9a-fA-F]+|[0-9]+)/",
    "BOOL_LIT": "BOOL_LIT.1 : /(?:true|false)(?![_a-zA-Z0-9])/",
    "NULL_LIT": "NULL_LIT.1 : /null(?![_a-zA-Z0-9])/",
    "COMMENT": r"COMMENT : /\/\/[^\r\n]*/" + "\nIN.1 : /in(?![_a-zA-Z0-9])/\nQUOTED : /`[a-zA-Z0-9_.\\-\\/ ]+`/",
}
"""Replacements for terminals of cel-python, by name.

The string patterns of cel-python backtrack exponentially, and its keywords match the beginning of longer names. The
patterns here accept every escape; `literals` validates escapes.
"""
RULES: Final = (
    ('relation_in    : relation "in"', "relation_in    : relation IN"),
    ('member_dot     : member "." IDENT', 'member_dot     : member "." (IDENT | QUOTED)'),
    ('list_lit       : "[" [exprlist] "]"', 'list_lit       : "[" [_exprs [","]] "]"'),
    ('map_lit        : "{" [mapinits] "}"', 'map_lit        : "{" [_pairs [","]] "}"'),
    ('exprlist       : expr ("," expr)*', 'exprlist       : _exprs\n_exprs         : expr | _exprs "," expr'),
    ('mapinits       : expr ":" expr ("," expr ":" expr)*', '_pairs : expr ":" expr | _pairs "," expr ":" expr'),
)
"""Extended rules of the grammar: old text, new text.

Fields may be quoted, lists and maps may end with a comma, and list rules are left-recursive. `_exprs` and `_pairs` are
inlined into their parents by lark, because their names begin with an underscore.
"""


def load_grammar() -> str:
    """Return the extended grammar. Raise RuntimeError if cel-python's grammar lacks a text that is replaced here."""
    grammar = Path(str(distribution("cel-python").locate_file("celpy/cel.lark"))).read_text("utf-8")
    for name, replacement in TERMINALS.items():
        pattern = rf"(?ms)^{name}\s*:.*?(?=^(?:[A-Z]|//|%)|\Z)"
        grammar, count = re.subn(pattern, lambda _, new=replacement: f"{new}\n\n", grammar)  # type: ignore[misc]
        _expect_once(count, name)
    for old, new in RULES:
        _expect_once(grammar.count(old), old)
        grammar = grammar.replace(old, new)
    return grammar


def _expect_once(count: int, text: str) -> None:
    if count != 1:
        raise RuntimeError(f"cel-python's grammar has changed: expected `{text}` once, but it occurs {count} times")


def parse(text: str) -> Node:
    """Return the syntax tree of `text`. Raise CompileError for a syntax error or a text over a limit."""
    if len(text) > MAX_SOURCE:
        raise CompileError(f"too long: more than {MAX_SOURCE} characters", MAX_SOURCE)
    if not text.strip():
        raise CompileError("empty rule", 0)
    try:
        tree: Any = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    return only_node(tree)


def _syntax_error(text: str, error: UnexpectedInput) -> CompileError:
    if isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return CompileError("syntax error: unexpected end", len(text))
    offset = error.pos_in_stream or 0
    if isinstance(error, UnexpectedToken):
        return CompileError(f"syntax error: unexpected `{error.token!s:.40}`", offset)
    assert isinstance(error, UnexpectedCharacters)
    return CompileError(f"syntax error: unexpected character {text[offset : offset + 1]!r}", offset)


@cache
def _parser() -> Lark:
    return Lark(
        load_grammar(),
        parser="lalr",
        start="expr",
        lexer="contextual",
        maybe_placeholders=False,
        transformer=AstBuilder(visit_tokens=False),
        g_regex_flags=re.MULTILINE,
    )
