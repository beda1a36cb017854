"""The linter of rule files: from files to findings.

Reads every file to the end, examines every rule alone, and then all rules together. Owns the order of the work and the
form of findings. Decides nothing for the service.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from pdp.cel.syntax import Constant
from pdp.cel.unparse import canonical_text, unparse_value, walk
from pdp.cel.values import Timestamp
from pdp.config.names import NameCheck, name_fault
from pdp.config.quarkus.profiles import PROD
from pdp.engines.cel.conditions import warehouses_of
from pdp.engines.cel.lint import check_bindings, remarks
from pdp.engines.cel.lint.check_bindings import LintRule, analyze_rule
from pdp.engines.cel.lint.remarks import CODES, Remark, Severity
from pdp.engines.cel.lint.search import Reachable, RuleModel, SearchBudget, Shadowed, Unreachable, determine_reach
from pdp.engines.cel.names import NEVER, name_tests, remark_on_names
from pdp.engines.cel.path_tables import path_string
from pdp.engines.cel.program import check_rule
from pdp.engines.cel.rules import IMPLICIT_RULE, Rule
from pdp.engines.cel.selection import ConditionIndex
from pdp.engines.cel.sources import RuleText, read_rule_file
from pdp.errors import Notice, Place, PolicyError
from pdp.facts.nodes import ObjectNode
from pdp.facts.objects import ContainerPath, ObjectName

_Objects: TypeAlias = Mapping[ContainerPath, Mapping[ObjectName, ObjectNode]]
_VIEW: Final = "VIEW_REFERENCE"
_PART_TESTS: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})
_NAME_TESTS: Final = frozenset({"_==_", "_!=_", "@in", "startsWith", "endsWith"})


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """A finding of lint with a place. `witness`: an input that shows the finding."""

    code: str
    severity: Severity
    file: str
    line: int
    column: int
    rule: str
    message: str
    hint: str = ""
    witness: Mapping[str, Any] | None = None


class LintOptions(msgspec.Struct, frozen=True):
    """Options of lint.

    `warehouses`: the number of warehouses that the rules serve. `witnesses`: also find an input for every rule, and the
    roles that the rule sees. `profiles`: the rules in force of a file with several profiles. `names`: the judgement of
    names, and whether the rules forbid instead of permitting.
    """

    extensions: frozenset[str] = frozenset()
    warehouses: int = 1
    witnesses: bool = False
    profiles: tuple[str, ...] = PROD
    names: NameCheck = NameCheck()


def lint_files(files: Sequence[Path], options: LintOptions) -> list[Finding]:
    """Return the findings on all files, in the order of files and lines. The files together make a single rule set."""
    findings: list[Finding] = []
    rules: list[RuleText] = []
    for file in files:
        try:
            content = read_rule_file(file, options.profiles)
        except PolicyError as error:
            findings.append(_finding("unreadable-file", error.place, error.message))
            continue
        findings += [_ignored_key(warning) for warning in content.warnings]
        rules += content.rules
    order = {str(file): number for number, file in enumerate(files)}
    findings += lint_rules(rules, options)
    return sorted(findings, key=lambda finding: (order[finding.file], finding.line, finding.column, finding.code))


def lint_rules(texts: Sequence[RuleText], options: LintOptions) -> Iterator[Finding]:
    """Yield the findings on the rules of a set."""
    rules: list[LintRule] = []
    for text in texts:
        result = analyze_rule(text, options.extensions)
        if isinstance(result, LintRule):
            rules.append(result)
        else:
            yield _remark(text, result)
    first: dict[str, RuleText] = {}
    for text in texts:
        if first.setdefault(text.id, text) is not text:
            yield _finding("duplicate-id", text.place(), f"stands at {first[text.id].place()} already", rule=text.id)
    budget = SearchBudget()
    for rule in rules:
        yield from (_remark(rule.source, remark) for remark in _lint_alone(rule, options, budget))
    yield from _lookalikes(rules)
    unique = [rule for rule in rules if first[rule.source.id] is rule.source and rule.is_test]
    yield from _redundant_rules(sorted(unique, key=lambda rule: rule.source.id), options, budget)
    if not options.names.forbid:
        yield from _lint_viewing(texts, rules, budget)


def spellings(objects: _Objects, warehouses: AbstractSet[str]) -> Iterator[str]:
    """Yield the paths with capitals of known objects in some warehouses, as in the variable `path` of rules."""
    for container, content in objects.items():
        if container and container[0] in warehouses:
            paths = (path_string((*container[1:], last)) for _, last in content)
            yield from (path for path in paths if path != path.lower())


def unasked_spellings(
    rules: Sequence[Rule], known: Callable[[frozenset[str] | None], AbstractSet[str] | None]
) -> Iterator[Notice]:
    """Yield a notice for each text with capitals in a comparison with paths, if Trino never asks about such a path.

    Trino asks about an object under the spelling of a known one, else in lower case. `known` returns the spellings with
    capitals in some warehouses, or in all; None for warehouses that Trino does not ask about.
    """
    for rule in rules:
        checked = check_rule(rule.program.text, rule.program.extensions)
        tests = [one for one in remarks.path_comparisons(checked) if one.text != one.text.lower()]
        paths = known(warehouses_of(rule.program.requirements.conditions)) if tests else None
        for compared in dict.fromkeys(tests):
            if paths is not None and not _is_asked(compared, paths):
                shown = compared.text.replace("\u001d", ".")
                message = (
                    f"rule `{rule.id}` compares `path` with `{shown}`, and Trino asks about no such name: it lowers "
                    f"names, and no known object is spelled so; write `{shown.lower()}`, or register the object"
                )
                yield Notice(rule.place, message)


def roles_in_another_case(rules: Sequence[Rule], check: NameCheck, roles: AbstractSet[str]) -> Iterator[Notice]:
    """Yield a notice for each role of a rule that differs in case alone from one of `roles`, which `check` lacks."""
    known = msgspec.structs.replace(check.known, roles=check.known.roles | roles)
    for rule in rules:
        if "roles" in rule.program.variables:
            for found in name_tests(check_rule(rule.program.text, rule.program.extensions)):
                is_judged = found.subject == "roles" and not found.change and found.test != NEVER
                faults = [name_fault("role", found.test, found.text, names) for names in (check.known, known)]
                if is_judged and faults[0] is None and faults[1]:
                    yield Notice(rule.place, f"rule `{rule.id}`: {faults[1].message}")


def _is_asked(compared: remarks.Comparison, known: AbstractSet[str]) -> bool:
    """Tell whether a path of known spelling, or a path below in lower case, may meet the text."""
    text = compared.text
    heads = [text[:at] for at, sign in enumerate(text) if sign == "." and text[at:] == text[at:].lower()]
    if compared.test == "startsWith":
        return any(path.startswith(text) for path in known) or not known.isdisjoint(heads)
    if compared.test == "endsWith":
        return any(path.endswith((text, *heads)) for path in known)
    if compared.test == "contains":
        return any(text in path or path.endswith(tuple(heads)) for path in known)
    return not known.isdisjoint((text, *heads))


def _lint_alone(rule: LintRule, options: LintOptions, budget: SearchBudget) -> Iterator[Remark]:
    yield from remarks.remark_on_rule(rule.checked, forbid=options.names.forbid)
    yield from check_bindings.raising_constants(rule.checked, forbid=options.names.forbid)
    if options.witnesses:
        yield from remarks.remark_on_roles(rule.checked, forbid=options.names.forbid)
    yield from remark_on_names(rule.checked, options.names)
    if rule.is_test:
        yield from check_bindings.empty_variables(rule, budget)
    if options.warehouses > 1 and "warehouse" not in rule.model.program.variables:
        message = f"the rule is the same for all {options.warehouses} warehouses: it does not test `warehouse`"
        yield Remark("untested-warehouse", 0, message)


def _redundant_rules(rules: Sequence[LintRule], options: LintOptions, budget: SearchBudget) -> Iterator[Finding]:
    """Yield duplicate, unreachable and shadowed rules, and witnesses for the others. `rules` come sorted by id."""
    by_meaning: dict[str, LintRule] = {}
    smaller = ConditionIndex[RuleModel]()
    for rule in rules:
        same = by_meaning.setdefault(canonical_text(rule.checked.root), rule)
        if same is not rule:
            yield _remark(rule.source, Remark("duplicate-rule", 0, f"says the same as rule `{same.source.id}`"))
            continue
        reach = determine_reach(rule.model, smaller, budget)
        # A rule is shadowed by smaller ids only, as the smallest id determines. A shadowed rule may shadow others.
        smaller.add(rule.model, rule.model.program.requirements.conditions)
        if isinstance(reach, Unreachable):
            yield _remark(rule.source, Remark("unreachable", 0, "is never true: its conditions exclude one another"))
        elif isinstance(reach, Shadowed):
            yield _remark(rule.source, Remark("shadowed", 0, _shadowed_message([cover.id for cover in reach.by])))
        elif isinstance(reach, Reachable) and options.witnesses:
            yield _witness(rule, reach.witness)


def _witness(rule: LintRule, witness: Mapping[str, Any]) -> Finding:
    used = rule.model.program.variables
    plain = {name: unparse_value(value) if isinstance(value, Timestamp) else value for name, value in witness.items()}
    values = ", ".join(f"{name}={value!r}" for name, value in plain.items() if name in used)
    return _finding("witness", rule.source.place(), f"decides {values}", rule=rule.source.id, witness=plain)


def _shadowed_message(ids: Sequence[str]) -> str:
    listed = ", ".join(f"`{id}`" for id in ids)
    return f"is true only where rule {listed} is" if len(ids) == 1 else f"is true only where one of rules {listed} is"


def _lint_viewing(texts: Sequence[RuleText], rules: Sequence[LintRule], budget: SearchBudget) -> Iterator[Finding]:
    """Yield findings about Nessie's implicit rule: on, off by accident, or off with references that nobody may view."""
    mentioning = [text for text in texts if _VIEW in text.text]
    if texts and not mentioning:
        yield _implicit_rule_on(texts)
        yield from (_reserved_id(text) for text in texts if text.id == IMPLICIT_RULE)
        return
    if len(rules) < len(texts):
        return  # a rule that does not compile may be the rule that permits viewing
    if not any(_VIEW in rule.source.text and _tests_view(rule) for rule in rules):
        message = (
            f"only this mention of {_VIEW} keeps references from being viewable by everyone, and it is no `op` test"
        )
        yield from (_remark(text, Remark("implicit-rule-off", text.text.index(_VIEW), message)) for text in mentioning)
    tests = [rule for rule in rules if rule.is_test]
    yield from (_remark(rule.source, remark) for rule, remark in check_bindings.unseen_references(tests, budget))


def _implicit_rule_on(texts: Sequence[RuleText]) -> Finding:
    message = f"no rule mentions {_VIEW}, so everyone may view every reference: a warehouse opens by READ_ENTRIES"
    return _finding("implicit-rule-on", Place(texts[0].file), message)


def _reserved_id(text: RuleText) -> Finding:
    message = f"the implicit rule has this id and takes the place of this one, since no rule mentions {_VIEW}"
    return _finding("reserved-id", text.place(), message, rule=text.id)


def _tests_view(rule: LintRule) -> bool:
    """Tell whether a rule compares with the check type. The letters may also stand in a comment or in a longer text."""
    compared = remarks.comparisons(rule.checked)
    parts = (one.text for one in compared if one.variable == "op" and one.test in _PART_TESTS)
    constants = (node.value for node in walk(rule.checked.root) if isinstance(node, Constant))
    return any(_VIEW in part for part in parts) or _VIEW in constants


def _lookalikes(rules: Sequence[LintRule]) -> Iterator[Finding]:
    """Yield names that are easy to confuse: equal after NFC normalization and case folding."""
    first: dict[tuple[str, str], str] = {}
    reported: set[tuple[str, str]] = set()
    for rule in rules:
        for comparison in remarks.comparisons(rule.checked):
            variable = comparison.variable
            if variable not in ("path", "ref") or comparison.test not in _NAME_TESTS:
                continue
            for name in _names(comparison):
                like = first.setdefault((variable, unicodedata.normalize("NFC", name).casefold()), name)
                if like != name and (variable, name) not in reported:
                    reported.add((variable, name))
                    message = f"`{name}` differs from `{like}` in case or Unicode form only"
                    yield _remark(rule.source, Remark("lookalike-names", comparison.offset, message))


def _names(comparison: remarks.Comparison) -> Iterable[str]:
    """Return the text. For a path, return every beginning at a dot: `Sales.x` and `sales.y` have lookalike parents."""
    if comparison.variable == "ref" or comparison.test == "endsWith":
        return (comparison.text,)
    parts = comparison.text.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[count - 1])


def _ignored_key(notice: Notice) -> Finding:
    return _finding("ignored-key", notice.place, notice.message)


def _remark(text: RuleText, remark: Remark) -> Finding:
    found = _finding(remark.code, text.place(remark.offset), remark.message, rule=text.id, hint=remark.hint)
    return msgspec.structs.replace(found, severity=remark.severity) if remark.severity else found


def _finding(code: str, place: Place, message: str, **more: Any) -> Finding:
    return Finding(code, CODES[code], place.file, place.line, place.column, more.pop("rule", ""), message, **more)
