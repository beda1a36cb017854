"""Rule sets: texts from files or from memory, compiled, each under one id. Knows no engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pdp.cel.syntax import CompileError
from pdp.engines.cel.program import Program, compile_program
from pdp.engines.cel.sources import RuleText, inline, read
from pdp.errors import DuplicateRule, Notice, Place, RuleCompileError


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule, its id and where its text begins."""

    id: str
    program: Program
    place: Place


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules sorted by id, their texts, and what their files hold besides."""

    rules: tuple[Rule, ...]
    texts: Mapping[str, str]
    warnings: tuple[Notice, ...]


def load_rules(paths: Sequence[Path], extensions: frozenset[str] = frozenset()) -> RuleSet:
    """The rules of all files together; raises PolicyError, RuleCompileError or DuplicateRule."""
    sources = [read(path) for path in paths]
    texts = [rule for source in sources for rule in source.rules]
    return _rule_set(texts, extensions, [warning for source in sources for warning in source.warnings])


def inline_rules(rules: Mapping[str, str], extensions: frozenset[str] = frozenset()) -> RuleSet:
    """Rules that stand in no file; raises RuleCompileError."""
    return _rule_set([inline(id, text) for id, text in rules.items()], extensions, ())


def _rule_set(texts: Iterable[RuleText], extensions: frozenset[str], warnings: Iterable[Notice]) -> RuleSet:
    seen: dict[str, RuleText] = {}
    for text in texts:
        if text.id in seen:
            raise DuplicateRule(f"rule `{text.id}` stands at {seen[text.id].place()} already", text.place())
        seen[text.id] = text
    rules = tuple(_compiled(seen[id], extensions) for id in sorted(seen))
    return RuleSet(rules, MappingProxyType({id: seen[id].text for id in sorted(seen)}), tuple(warnings))


def _compiled(rule: RuleText, extensions: frozenset[str]) -> Rule:
    try:
        return Rule(rule.id, compile_program(rule.text, extensions), rule.place())
    except CompileError as error:
        raise RuleCompileError(rule.id, error.message, rule.place(error.offset)) from None
