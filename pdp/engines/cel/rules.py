"""Rule sets: compiled rules from files or from memory, with unique ids, and the parts of a rule for explanations.

Must not know any engine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.compiler import load_function
from pdp.cel.syntax import Call, CompileError, Conditional, Logic, Node
from pdp.cel.unparse import unparse, walk
from pdp.config.names import NameCheck
from pdp.config.quarkus.profiles import PROD
from pdp.config.references import name_check
from pdp.config.settings import Settings
from pdp.config.warehouses import PolarisSettings, TrinoSettings
from pdp.engines.cel.conditions import (
    EVERY_ROLE,
    forget_conditions,
    role_names,
    texts_beside_roles,
    warehouses_of,
)
from pdp.engines.cel.program import (
    RULE_ARGUMENTS,
    Program,
    check_rule,
    compile_program,
    missing_errors,
    rule_emitter,
)
from pdp.engines.cel.questions import has_sound_names
from pdp.engines.cel.sources import RuleText, advice_for_rule, inline_rule, read_rule_file
from pdp.errors import DuplicateRule, Notice, Place, RuleCompileError
from pdp.facts.nodes import UNKNOWN
from pdp.facts.snapshot import Facts

IMPLICIT_RULE: Final = "__ALLOW_VIEWING_REF_ID"
"""Nessie's rule that permits everyone to view references, added unless the text of a rule contains VIEW_REFERENCE."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule. `place`: the position of the first character of the text."""

    id: str
    program: Program
    place: Place


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules sorted by id, their texts by id, and warnings about other content of the files.

    `as_sent`: the rules are those of a bundle whose version counted roles as sent, and no others.
    """

    rules: tuple[Rule, ...]
    texts: Mapping[str, str]
    warnings: tuple[Notice, ...]
    as_sent: bool = False

    @property
    def reads_roles(self) -> bool:
        """Tell whether a rule reads the roles of the principal."""
        return any("roles" in rule.program.variables for rule in self.rules)

    def digest(self, provider: str, *, stored: bool) -> str:
        """Return the digest of the rules of a provider. `stored`: permits see stored roles."""
        parts = [dict(self.texts), provider, *(["stored"] if stored else ())]
        return sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def load_rules(
    paths: Sequence[Path],
    extensions: frozenset[str] = frozenset(),
    profiles: Sequence[str] = PROD,
    names: NameCheck | None = None,
) -> RuleSet:
    """Load the rules of all files that are in force under some profiles into a set.

    Raise PolicyError if a file cannot be read, RuleCompileError if a rule is not valid, and DuplicateRule if two rules
    have the same id. With `names`, raise RuleCompileError for a name in error, and warn of others.
    """
    files = [read_rule_file(path, profiles) for path in paths]
    texts = [rule for file in files for rule in file.rules]
    rules = _rule_set(texts, extensions, [warning for file in files for warning in file.warnings])
    if names is None:
        return rules
    programs = {rule.id: rule.program for rule in rules.rules}
    found = tuple(notice for text in texts for notice in _name_notices(text, programs[text.id], names))
    return replace(rules, warnings=(*rules.warnings, *found))


def configured_check(settings: Settings, *, is_forbid: bool) -> NameCheck | None:
    """Return the judgement of names at a load; None for permits, whose faults lint names, unless they are errors."""
    check = name_check(settings, forbid=is_forbid)
    return check if check.forbid or check.strict else None


def _name_notices(text: RuleText, program: Program, names: NameCheck) -> Iterator[Notice]:
    """Yield a notice for each remark on the names of a rule; raise RuleCompileError for an error."""
    if has_sound_names(program.requirements, names.known):
        return
    from pdp.engines.cel.names import remark_on_names  # noqa: PLC0415  conditions show that most rules are sound

    for remark in remark_on_names(check_rule(text.text, program.extensions), names):
        place, hint = text.place(remark.offset), f": {remark.hint}" if remark.hint else ""
        if remark.severity == "error":
            raise RuleCompileError(text.id, f"{remark.message}{hint}", place)
        yield Notice(place, f"rule `{text.id}`: {remark.message}{hint}")


def inline_rules(rules: Mapping[str, str], extensions: frozenset[str] = frozenset()) -> RuleSet:
    """Compile rules given as texts by id.

    Raise RuleCompileError if a rule is not valid.
    """
    return _rule_set([inline_rule(id, text) for id, text in rules.items()], extensions, ())


def with_implicit_rule(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Add the implicit rule. As in Nessie, a configured rule with the same id gives way."""
    implicit = inline_rules({IMPLICIT_RULE: "op=='VIEW_REFERENCE'"}).rules
    others = [rule for rule in rules if rule.id != IMPLICIT_RULE]
    return tuple(sorted([*others, *implicit], key=lambda rule: rule.id))


def join_rules(first: RuleSet, second: RuleSet) -> RuleSet:
    """Return the rules of both sets; raise DuplicateRule if an id stands in both."""
    places = {rule.id: rule.place for rule in first.rules}
    for rule in second.rules:
        if rule.id in places:
            raise DuplicateRule(f"rule `{rule.id}` stands at {places[rule.id]} already", rule.place)
    rules = tuple(sorted((*first.rules, *second.rules), key=lambda rule: rule.id))
    texts = {**first.texts, **second.texts}
    by_id = MappingProxyType({rule.id: texts[rule.id] for rule in rules})
    return RuleSet(rules, by_id, (*first.warnings, *second.warnings), first.as_sent or second.as_sent)


def _rule_set(texts: Iterable[RuleText], extensions: frozenset[str], warnings: Iterable[Notice]) -> RuleSet:
    by_id: dict[str, RuleText] = {}
    for text in texts:
        if text.id in by_id:
            raise DuplicateRule(f"rule `{text.id}` stands at {by_id[text.id].place()} already", text.place())
        by_id[text.id] = text
    rules = tuple(_compile(by_id[id], extensions) for id in sorted(by_id))
    forget_conditions()
    return RuleSet(rules, MappingProxyType({id: by_id[id].text for id in sorted(by_id)}), tuple(warnings))


def _compile(rule: RuleText, extensions: frozenset[str]) -> Rule:
    try:
        return Rule(rule.id, compile_program(rule.text, extensions), rule.place())
    except CompileError as error:
        advice = advice_for_rule(rule.text, rule.file, extensions)
        message = "; ".join(filter(None, (error.message, error.hint, advice)))
        raise RuleCompileError(rule.id, message, rule.place(error.offset)) from None


def unfed_rules(rules: Sequence[Rule], settings: Settings) -> Iterator[Notice]:
    """Yield a notice for each forbid on evidence without a source in Trino or Polaris."""
    yield from rules_unfed_by_trino(rules, settings.trino)
    yield from rules_unfed_by_polaris(rules, settings.polaris)


def rules_unfed_by_trino(rules: Sequence[Rule], trino: TrinoSettings) -> Iterator[Notice]:
    """Yield a notice for each forbid on evidence without a source in Trino, or on properties: there, they are empty.

    `trino.groups` feeds `roles`, and `trino.unknown` makes such a forbid deny.
    """
    fed = frozenset(trino.groups.values())
    mapped = {catalog.warehouse for catalog in trino.catalogs.values()}
    for rule in rules if trino.catalogs else ():
        places = warehouses_of(rule.program.requirements.conditions)
        if "properties" in rule.program.variables and (places is None or not places.isdisjoint(mapped)):
            message = f"forbid `{rule.id}` reads `properties`, which Trino does not send: the map is empty there, so "
            message += "`has(properties.x)` is false; name the objects by `path`, too"
            yield Notice(rule.place, message)
        is_fed = _is_fed(rule, fed)
        lacking = {name.partition(".")[0] for name in rule.program.evidence} - {"groups", *trino.unknown}
        for name in sorted(lacking - ({"roles"} if is_fed else set())):
            feeds, effect = "", "it is empty there"
            if name == "roles":
                feeds, effect = ", and no `trino.groups` feeds", "stored roles alone count there"
            message = (
                f"forbid `{rule.id}` reads `{name}`, which Trino does not send{feeds}: {effect}; "
                f"`trino.unknown: [{name}]` makes the rule deny"
            )
            yield Notice(rule.place, message)


def rules_unfed_by_polaris(rules: Sequence[Rule], polaris: PolarisSettings) -> Iterator[Notice]:
    """Yield a notice for each forbid on a role that no principal role of Polaris becomes by `polaris.roles`."""
    fed = frozenset(polaris.roles.values())
    for rule in rules if polaris.catalogs else ():
        if "roles" in rule.program.evidence and not _is_fed(rule, fed):
            message = (
                f"forbid `{rule.id}` reads `roles`, and no principal role of `polaris.roles` feeds them: stored roles "
                "alone count for Polaris; map the principal roles"
            )
            yield Notice(rule.place, message)


def _is_fed(rule: Rule, fed: frozenset[str]) -> bool:
    """Tell whether settings feed each role that a rule needs, or any role where the rule needs none by name."""
    named = [one.texts for one in rule.program.requirements.conditions if one.variable == "roles"]
    return fed.issuperset(chain.from_iterable(named)) if named else bool(fed)


def permits_on_stored_roles(rules: Sequence[Rule], fed: Container[str], facts: Facts) -> Iterator[Notice]:
    """Yield a notice for each permit on a role that the store knows, where no setting feeds the role.

    `fed` are the roles of settings.
    """
    for rule in rules if facts.index.memberships else ():
        if "roles" in rule.program.variables:
            (checked,) = rule.program.readings()
            for role in sorted(role_names(checked)):
                if role not in fed and facts.node(("role", (role,))) is not UNKNOWN:
                    message = (
                        f"permit `{rule.id}` is for `{role}`, a role of the store that no `role_map` or `trino.groups` "
                        "feeds: members in the store do not pass, and whose token or request names the role passes; "
                        "`identity.cel_roles: all` lets members in the store pass, too"
                    )
                    yield Notice(rule.place, message)


def roles_named_by(rules: Sequence[Rule]) -> frozenset[str]:
    """Return the roles that rules may name: all texts beside roles."""
    programs = (rule.program for rule in rules if not {"roles", EVERY_ROLE}.isdisjoint(rule.program.variables))
    return frozenset(text for program in programs for one in program.readings() for text in texts_beside_roles(one))


def find_rule(rules: Sequence[Rule], id: str) -> Rule | None:
    """Return the rule of an id; None without such a rule. `rules` are sorted by id."""
    at = bisect_left(rules, id, key=lambda rule: rule.id)
    return rules[at] if at < len(rules) and rules[at].id == id else None


class RulePart(msgspec.Struct, frozen=True, eq=False):
    """A sub-expression: text, variables, smaller parts, and a function of the values of all variables.

    `conjunction`: the sub-expression is true only if all `parts` are.
    """

    text: str
    variables: tuple[str, ...]
    parts: tuple[RulePart, ...]
    conjunction: bool
    evaluate: Callable[[Mapping[str, Any]], Any]


@lru_cache(maxsize=256)
def split_rule(program: Program, lacking: frozenset[str] = frozenset()) -> tuple[RulePart, ...]:
    """Split a rule at the logical operators and return each reading as a part. Using a `lacking` variable raises."""
    missing = missing_errors(lacking)
    return tuple(_part(checked.root, checked, missing) for checked in program.readings())


def _part(node: Node, checked: CheckedExpression, missing: Mapping[str, str]) -> RulePart:
    emitter = rule_emitter(msgspec.structs.replace(checked, root=node), missing)
    run = load_function(emitter.emit_function("part", RULE_ARGUMENTS.values(), wants_bool=False), "part", emitter)
    return RulePart(
        unparse(node),
        tuple(sorted(_variables(node, checked))),
        tuple(_part(operand, checked, missing) for operand in _logical_operands(node)),
        isinstance(node, Logic) and node.conjunction,
        lambda values: run(*[values.get(name, "") for name in RULE_ARGUMENTS]),
    )


def _logical_operands(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Logic):
        return node.parts
    if isinstance(node, Conditional):
        return node.condition, node.then, node.otherwise
    if isinstance(node, Call) and node.function == "!_":
        return node.args
    return ()


def _variables(node: Node, checked: CheckedExpression) -> set[str]:
    meanings = map(checked.names.get, walk(node))
    return {meaning.name for meaning in meanings if isinstance(meaning, Variable)}
