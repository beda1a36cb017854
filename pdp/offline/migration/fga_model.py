"""Models of OpenFGA: the JSON of the API and the language of `.fga` files, as one tree of rules.

https://openfga.dev/docs/configuration-language. Conditions are refused: a tuple with a condition has no counterpart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.errors import InvalidArgument


class Direct(NamedTuple):
    """Tuples of the relation itself."""


class Computed(NamedTuple):
    """Another relation of the same object."""

    relation: str


class FromParent(NamedTuple):
    """Relation of every object that `tupleset` names: `relation from tupleset`."""

    tupleset: str
    relation: str


class AnyRule(NamedTuple):
    """Union."""

    rules: tuple[FgaRule, ...]


class AllRules(NamedTuple):
    """Intersection."""

    rules: tuple[FgaRule, ...]


class ButNot(NamedTuple):
    """Difference."""

    base: FgaRule
    subtracted: FgaRule


FgaRule: TypeAlias = Direct | Computed | FromParent | AnyRule | AllRules | ButNot
FgaModel: TypeAlias = Mapping[str, Mapping[str, FgaRule]]
"""Type -> relation -> rule."""

_TOKEN: Final = re.compile(r"\s*(\[[^\]]*\]|\(|\)|[^\s()\[\]]+)")
_DEFINE: Final = re.compile(r"\s*define\s+(?P<name>[^\s:]+)\s*:\s*(?P<rule>.+)")
_TYPE: Final = re.compile(r"\s*(?:extend\s+)?type\s+(?P<name>\S+)\s*")
_OTHER: Final = re.compile(r"\s*(?:model|module\s.+|schema\s.+|relations)\s*")


def read_model(file: Path, text: str) -> FgaModel:
    """Return the model of a text: JSON, a `.fga` file, or the list of modules in `fga.mod`.

    Raise InvalidArgument for a form that is not read.
    """
    try:
        if text.lstrip().startswith("{"):
            data = json.loads(text)
            return _from_json(data.get("authorization_model", data))
        return _from_language(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(f"`{file}` is no model that is read: {' '.join(str(error).split())}") from None


def _from_json(data: Mapping[str, Any]) -> FgaModel:
    return {
        definition["type"]: {name: _json_rule(rule) for name, rule in (definition.get("relations") or {}).items()}
        for definition in data["type_definitions"]
    }


def _json_rule(rule: Mapping[str, Any]) -> FgaRule:
    if "this" in rule:
        return Direct()
    if "computedUserset" in rule:
        return Computed(rule["computedUserset"]["relation"])
    if "tupleToUserset" in rule:
        both = rule["tupleToUserset"]
        return FromParent(both["tupleset"]["relation"], both["computedUserset"]["relation"])
    if "union" in rule:
        return AnyRule(tuple(map(_json_rule, rule["union"]["child"])))
    if "intersection" in rule:
        return AllRules(tuple(map(_json_rule, rule["intersection"]["child"])))
    if "difference" in rule:
        return ButNot(_json_rule(rule["difference"]["base"]), _json_rule(rule["difference"]["subtract"]))
    raise ValueError(f"unknown rule {json.dumps(rule)[:60]}")


def _from_language(text: str) -> FgaModel:
    model: dict[str, dict[str, FgaRule]] = {}
    current: dict[str, FgaRule] = {}
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"(^|\s)#.*", "", line)
        if not code.strip() or _OTHER.fullmatch(code):
            continue
        if match := _TYPE.fullmatch(code):
            current = model.setdefault(match["name"], {})
        elif match := _DEFINE.fullmatch(code):
            tokens = _TOKEN.findall(match["rule"])
            current[match["name"]] = _Parser(tokens, number).parse()
        else:
            raise ValueError(f"line {number}: `{code.strip()}` is not read")
    return model


class _Parser:
    """Parser of the rule of one relation."""

    def __init__(self, tokens: Sequence[str], line: int) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0
        self._line = line

    def parse(self) -> FgaRule:
        rule = self._rule()
        if self._tokens[self._at]:
            raise ValueError(f"line {self._line}: unexpected `{self._tokens[self._at]}`")
        return rule

    def _rule(self) -> FgaRule:
        rules = [self._term()]
        word = self._tokens[self._at]
        if word == "but":
            self._at += 1
            self._expect("not")
            return ButNot(rules[0], self._term())
        while word in ("or", "and") and self._tokens[self._at] == word:
            self._at += 1
            rules.append(self._term())
        if len(rules) == 1:
            return rules[0]
        return AnyRule(tuple(rules)) if word == "or" else AllRules(tuple(rules))

    def _term(self) -> FgaRule:
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":  # noqa: S105  a bracket
            rule = self._rule()
            self._expect(")")
            return rule
        if token.startswith("["):
            if " with " in token:
                raise ValueError(f"line {self._line}: conditions are not read")
            return Direct()
        if not token or token in (")", "or", "and", "but", "from"):
            raise ValueError(f"line {self._line}: a relation is missing")
        if self._tokens[self._at] != "from":
            return Computed(token)
        self._at += 1
        parent = self._tokens[self._at]
        if not parent:
            raise ValueError(f"line {self._line}: a relation is missing behind `from`")
        self._at += 1
        return FromParent(parent, token)

    def _expect(self, word: str) -> None:
        found = self._tokens[self._at]
        if found != word:
            raise ValueError(f"line {self._line}: `{word}` is missing" + (f" before `{found}`" if found else ""))
        self._at += 1


def module_files(text: str) -> Iterator[str]:
    """Yield the files that an `fga.mod` lists."""
    for line in text.splitlines():
        match = re.fullmatch(r"\s*-\s*(?P<file>\S+\.fga)\s*", line)
        if match:
            yield match["file"]
