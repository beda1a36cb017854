"""Rule sets: compiled rules from files or from memory, with unique ids. Knows no engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pdp.cel.syntax import CompileError
from pdp.config.quarkus.profiles import PROD
from pdp.engines.cel.mending import advice_for_rule
from pdp.engines.cel.program import Program, compile_program
from pdp.engines.cel.sources import RuleText, inline_rule, read_rule_file
from pdp.errors import DuplicateRule, Notice, Place, RuleCompileError


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule. `place`: the position of the first character of the text."""

    id: str
    program: Program
    place: Place


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules sorted by id, their texts by id, and warnings about other content of the files."""

    rules: tuple[Rule, ...]
    texts: Mapping[str, str]
    warnings: tuple[Notice, ...]


def load_rules(
    paths: Sequence[Path], extensions: frozenset[str] = frozenset(), profiles: Sequence[str] = PROD
) -> RuleSet:
    """Load the rules of all files that are in force under some profiles into a set.

    Raise PolicyError if a file cannot be read, RuleCompileError if a rule is not valid, and DuplicateRule if two rules
    have the same id.
    """
    files = [read_rule_file(path, profiles) for path in paths]
    texts = [rule for file in files for rule in file.rules]
    return _rule_set(texts, extensions, [warning for file in files for warning in file.warnings])


def inline_rules(rules: Mapping[str, str], extensions: frozenset[str] = frozenset()) -> RuleSet:
    """Compile rules given as texts by id.

    Raise RuleCompileError if a rule is not valid.
    """
    return _rule_set([inline_rule(id, text) for id, text in rules.items()], extensions, ())


def join_rules(first: RuleSet, second: RuleSet) -> RuleSet:
    """Return the rules of both sets; raise DuplicateRule if an id stands in both."""
    places = {rule.id: rule.place for rule in first.rules}
    for rule in second.rules:
        if rule.id in places:
            raise DuplicateRule(f"rule `{rule.id}` stands at {places[rule.id]} already", rule.place)
    rules = tuple(sorted((*first.rules, *second.rules), key=lambda rule: rule.id))
    texts = {**first.texts, **second.texts}
    by_id = MappingProxyType({rule.id: texts[rule.id] for rule in rules})
    return RuleSet(rules, by_id, (*first.warnings, *second.warnings))


def _rule_set(texts: Iterable[RuleText], extensions: frozenset[str], warnings: Iterable[Notice]) -> RuleSet:
    by_id: dict[str, RuleText] = {}
    for text in texts:
        if text.id in by_id:
            raise DuplicateRule(f"rule `{text.id}` stands at {by_id[text.id].place()} already", text.place())
        by_id[text.id] = text
    rules = tuple(_compile(by_id[id], extensions) for id in sorted(by_id))
    return RuleSet(rules, MappingProxyType({id: by_id[id].text for id in sorted(by_id)}), tuple(warnings))


def _compile(rule: RuleText, extensions: frozenset[str]) -> Rule:
    try:
        return Rule(rule.id, compile_program(rule.text, extensions), rule.place())
    except CompileError as error:
        advice = advice_for_rule(rule.text, rule.file, extensions)
        message = f"{error.message}; {advice}" if advice else error.message
        raise RuleCompileError(rule.id, message, rule.place(error.offset)) from None
