"""Tokens of Cedar policies: where each policy begins, and the entities whose attributes or parents a condition reads.

Serves places in messages and the division of batches. Cedar's own parser decides what is a policy; a text that Cedar
refuses may give any tokens here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from pdp.engines.cedar.actions import Uid
from pdp.engines.engine import ANY_TEXT

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>\s+|//[^\r\n]*)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>::|==|!=|<=|>=|&&|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-7][0-9A-Fa-f])|u\{([0-9A-Fa-f_]+)\}|(.))", re.DOTALL)
_PATTERN: Final = re.compile(rf"{_ESCAPE.pattern}|\*", re.DOTALL)
_DEPTH: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|[(\[{)\]},;]|&&|\|\||[=!<>]=?|[-+*.]|\b(?:if|has|like|in|is)\b', re.DOTALL
)
"""Signs that make an expression deeper or end it, and texts and comments, in which signs do not count."""
MOST_BRACKETS: Final = 100
MOST_OPERATORS: Final = 400
"""Open brackets at one place of a text, and operators that may stand one in another."""
TOO_DEEP: Final = (
    f"nested deeper than {MOST_BRACKETS} brackets or {MOST_OPERATORS} operators: write several policies, or a set"
)
_PLAIN_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSING: Final = frozenset(_OPENING.values())
_COMPARED: Final = frozenset({"==", "!=", "in"})
_NOT_READ_AFTER: Final = frozenset({"contains"})


class CedarToken(NamedTuple):
    """CedarToken with its offset. `kind` is text, name, sign or entity; an entity's `text` is its id, not escaped."""

    kind: str
    text: str
    start: int
    type: str = ""


class PolicyText(NamedTuple):
    """One policy of a file: the offsets of its first character and behind its semicolon."""

    start: int
    end: int
    text: str


def split_policies(text: str) -> list[PolicyText]:
    """Return the policies of a text, in order. Text behind the last semicolon is one more."""
    policies, start, end = [], -1, 0
    for token in tokens_of(text):
        start = token.start if start < 0 else start
        end = token.start + len(token.text)
        if token.text == ";" and token.kind == "sign":
            policies.append(PolicyText(start, end, text[start:end]))
            start = -1
    if start >= 0:
        policies.append(PolicyText(start, len(text), text[start:].rstrip()))
    return policies


def find_depth(text: str) -> int | None:
    """Return where policies or a schema are nested beyond the bounds; None if nowhere.

    Cedar's parser has no bound: it overflows the stack, which ends the process. A chain of operators is deep, too.
    """
    inside = [_Depth()]
    for match in _DEPTH.finditer(text):
        sign, depth = match[0], inside[-1]
        if sign in _OPENING:
            inside.append(_Depth())
        elif sign in _CLOSING and len(inside) > 1:
            within = inside.pop().end()
            inside[-1].operators += sign == "]"
            inside[-1].within = max(inside[-1].within, within + 1)
        elif sign in (",", ";"):
            depth.end()
        elif sign in ("&&", "||", "if"):
            depth.join()
        elif sign[0] not in '"/':
            depth.operators += 1
        if len(inside) > MOST_BRACKETS or inside[-1].most() > MOST_OPERATORS:
            return match.start()
    return None


class _Depth:
    """Depth of the expressions between two brackets: `joined` by `&&` and others, each with operators and brackets."""

    def __init__(self) -> None:
        self.operators = self.within = 0
        self._joined = self._operands = self._ended = 0

    def most(self) -> int:
        """Return a bound of the depth of the expression so far."""
        return self._joined + max(self._operands, self.operators + self.within)

    def join(self) -> None:
        """Begin the next operand."""
        self._operands = max(self._operands, self.operators + self.within)
        self._joined += 1
        self.operators = self.within = 0

    def end(self) -> int:
        """Begin the next expression; return the depth of the deepest so far."""
        self._ended = max(self._ended, self.most())
        self.operators = self.within = self._joined = self._operands = 0
        return self._ended


def named_entities(policy: str) -> frozenset[Uid]:
    """Return all entities that a policy names."""
    return frozenset((token.type, token.text) for token in entity_tokens(policy))


def entity_tokens(policy: str) -> list[CedarToken]:
    """Return the tokens of the entities that a policy names, with their types and places."""
    return [token for token in _joined(list(tokens_of(policy))) if token.kind == "entity"]


def condition_texts(policy: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the strings of the conditions of a policy, without the ids of entities, and the patterns.

    A star of a pattern is ANY_TEXT.
    """
    tokens = _joined(list(tokens_of(policy)))
    begin = next((at for at, token in enumerate(tokens) if token.text in ("when", "unless")), len(tokens))
    pairs = [(before.text, token) for before, token in pairwise(tokens[begin:]) if token.kind == "text"]
    texts = frozenset(unquote(token) for before, token in pairs if before != "like")
    return texts, frozenset(_PATTERN.sub(_unescaped, token.text[1:-1]) for before, token in pairs if before == "like")


def guarded_entities(policy: str) -> frozenset[Uid]:
    """Return the entities that a policy asks for an attribute by `has`."""
    tokens = _joined(list(tokens_of(policy)))
    pairs = pairwise(tokens)
    return frozenset((one.type, one.text) for one, next in pairs if one.kind == "entity" and next.text == "has")


def read_entities(policy: str) -> frozenset[Uid]:
    """Return the entities whose attributes, tags or parents a condition may read, because the policy names them.

    Leaves out an entity that is only compared, or that stands to the right of `in`, alone or in a set: the parents of
    the left side decide there. May return too many, but never too few.
    """
    tokens = _joined(list(tokens_of(policy)))
    begin = next((at for at, token in enumerate(tokens) if token.text in ("when", "unless")), len(tokens))
    found: set[Uid] = set()
    brackets: list[int] = []
    for at in range(begin, len(tokens)):
        token = tokens[at]
        if token.kind == "entity":
            if not _is_only_compared(tokens, at, brackets):
                found.add((token.type, token.text))
        elif token.kind == "sign" and token.text in _OPENING:
            brackets.append(at)
        elif token.kind == "sign" and token.text in _OPENING.values() and brackets:
            brackets.pop()
    return frozenset(found)


def _is_only_compared(tokens: Sequence[CedarToken], at: int, brackets: Sequence[int]) -> bool:
    """Tell whether the entity at a position is an operand of `==`, the right side of `in`, or an element of a set.

    Member access binds tighter than every operator. So a whole operand is known by its neighbours, and an element of a
    set by its commas and brackets: no expression leads from a set to an element.
    """
    before, after = tokens[at - 1], tokens[at + 1] if at + 1 < len(tokens) else CedarToken("sign", "", 0)
    if after.kind == "sign" and after.text in (".", "["):
        return False
    if before.text in _COMPARED and before.kind != "text":
        return after.text not in _COMPARED
    if after.kind == "sign" and after.text in ("==", "!="):
        return True
    opening = brackets[-1] if brackets else 0
    inside = tokens[opening].text
    is_element = inside == "[" or (inside == "(" and tokens[opening - 1].text in _NOT_READ_AFTER)
    return is_element and before.text in (inside, ",") and after.text in (_OPENING[inside], ",")


def _joined(tokens: Sequence[CedarToken]) -> list[CedarToken]:
    """Return the tokens with each `Type::"id"` as one token of the kind entity."""
    joined: list[CedarToken] = []
    at = 0
    while at < len(tokens):
        names, ahead = [], at
        while ahead + 1 < len(tokens) and tokens[ahead].kind == "name" and tokens[ahead + 1].text == "::":
            names.append(tokens[ahead].text)
            ahead += 2
        if names and ahead < len(tokens) and tokens[ahead].kind == "text":
            joined.append(CedarToken("entity", _unescape(tokens[ahead].text[1:-1]), tokens[at].start, "::".join(names)))
            at = ahead + 1
        else:
            joined.append(tokens[at])
            at += 1
    return joined


def tokens_of(text: str) -> Iterator[CedarToken]:
    """Yield the tokens of a policy or a schema."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "skip":
            yield CedarToken(str(match.lastgroup), match.group(), match.start())


def unquote(token: CedarToken) -> str:
    """Return the text of a name, or the value of a string."""
    return _unescape(token.text[1:-1]) if token.kind == "text" else token.text


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    if match[0] == "*":
        return ANY_TEXT
    if match[3]:
        return _PLAIN_ESCAPES.get(match[3], match[3])
    return chr(int((match[1] or match[2]).replace("_", ""), 16))
