"""Parser of the notation in `model`: the text of a rule becomes a tree. Knows no object types and no evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from pdp.engines.grants.model import CIRCUMSTANCES

_TOKENS: Final = re.compile(r"[\w.]+|\S")


class RelationRule(NamedTuple):
    """Node of a parsed rule. `kind` is `|`, `&`, `-`, `stored`, `own`, `up` or `down`. Leaves have a name."""

    kind: str
    name: str = ""
    parts: tuple[RelationRule, ...] = ()


def parse_rule(relation: str, text: str) -> RelationRule:
    """Return the tree of a relation's rule; raise ValueError if the text is not a rule."""
    return _Parser(relation, text).parse()


class _Parser:
    """Recursive descent over one rule. `|` binds loosest; `&` and `-` bind alike, and to the left."""

    def __init__(self, relation: str, text: str) -> None:
        self._relation = relation
        self._tokens: Iterator[str] = iter(_TOKENS.findall(text))
        self._next = next(self._tokens, "")

    def parse(self) -> RelationRule:
        rule = self._union()
        if self._next:
            raise ValueError(f"rule of `{self._relation}`: unexpected `{self._next}`")
        return rule

    def _union(self) -> RelationRule:
        parts = [self._term()]
        while self._accept("|"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else RelationRule("|", parts=tuple(parts))

    def _term(self) -> RelationRule:
        rule = self._leaf()
        while self._next in {"&", "-"}:
            rule = RelationRule(self._take(), parts=(rule, self._leaf()))
        return rule

    def _leaf(self) -> RelationRule:
        word = self._take()
        if word == "(":
            rule = self._union()
            if not self._accept(")"):
                raise ValueError(f"rule of `{self._relation}`: `)` expected before `{self._next}`")
            return rule
        if word == "+":
            return RelationRule("stored", self._relation)
        direction, dot, name = word.rpartition(".")
        if dot:
            return RelationRule(direction, name)
        return RelationRule("stored" if word in CIRCUMSTANCES else "own", word)

    def _accept(self, token: str) -> bool:
        return self._next == token and bool(self._take())

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens, "")
        return token
