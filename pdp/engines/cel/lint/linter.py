"""Rule files to findings: every file is read to its end, every rule looked at alone and then among the others.

Owns the order of work and the findings' form. It serves nothing and decides nothing; what it says of reach is proven.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.cel.checker import check
from pdp.cel.compiler import function_table
from pdp.cel.grammar import parse
from pdp.cel.syntax import CompileError, Comprehension, Constant
from pdp.cel.walk import canonical_text, walk
from pdp.engines.cel.condition_index import ConditionIndex
from pdp.engines.cel.engine import IMPLICIT_RULE
from pdp.engines.cel.lint import remarks
from pdp.engines.cel.lint import studies as asked
from pdp.engines.cel.lint.formula import formula
from pdp.engines.cel.lint.reach import Reachable, SearchBudget, Shadowed, StudiedRule, Unreachable, judge
from pdp.engines.cel.lint.remarks import CODES, Remark, Severity
from pdp.engines.cel.lint.studies import RuleStudy
from pdp.engines.cel.program import RULE_VARIABLES, compile_program
from pdp.engines.cel.sources import RuleText, read_rule_file
from pdp.errors import Notice, Place, PolicyError

_VIEW: Final = "VIEW_REFERENCE"
_PARTS: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})
_EXACT: Final = frozenset({"_==_", "_!=_", "@in", "startsWith", "endsWith"})


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that lint has to say, and where. `witness` is an input that shows it."""

    code: str
    severity: Severity
    file: str
    line: int
    column: int
    rule: str
    message: str
    hint: str = ""
    witness: Mapping[str, Any] | None = None


class Options(msgspec.Struct, frozen=True):
    """`warehouses` is how many the rules serve; `forbid` says that the rules deny; `witnesses` are wanted, too."""

    extensions: frozenset[str] = frozenset()
    warehouses: int = 1
    forbid: bool = False
    witnesses: bool = False


def lint(files: Sequence[Path], options: Options) -> list[Finding]:
    """The findings on all files together, which make one rule set, in the order of files and lines."""
    findings: list[Finding] = []
    rules: list[RuleText] = []
    for file in files:
        try:
            source = read_rule_file(file)
        except PolicyError as error:
            findings.append(_finding("unreadable-file", error.place, error.message))
            continue
        findings += [_ignored(warning) for warning in source.warnings]
        rules += source.rules
    order = {str(file): number for number, file in enumerate(files)}
    findings += lint_rules(rules, options)
    return sorted(findings, key=lambda found: (order[found.file], found.line, found.column, found.code))


def lint_rules(rules: Sequence[RuleText], options: Options) -> Iterator[Finding]:
    """The findings on the rules of one set."""
    studies: list[RuleStudy] = []
    for rule in rules:
        found = studied(rule, options.extensions)
        if isinstance(found, RuleStudy):
            studies.append(found)
        else:
            yield _remark(rule, found)
    first: dict[str, RuleText] = {}
    for rule in rules:
        if first.setdefault(rule.id, rule) is not rule:
            yield _finding("duplicate-id", rule.place(), f"stands at {first[rule.id].place()} already", rule=rule.id)
    budget = SearchBudget()
    for study in studies:
        yield from (_remark(study.rule, found) for found in _alone(study, options, budget))
    yield from _lookalikes(studies)
    unique = [study for study in studies if first[study.rule.id] is study.rule and _is_test(study)]
    yield from _among(sorted(unique, key=lambda study: study.rule.id), options, budget)
    if not options.forbid:
        yield from _viewing(rules, studies, budget)


def studied(rule: RuleText, extensions: frozenset[str]) -> RuleStudy | Remark:
    """A rule that compiles, or why it does not."""
    parsed = False
    try:
        root = parse(rule.text)
        parsed = True
        checked = check(root, RULE_VARIABLES, function_table(extensions))
        program = compile_program(rule.text, extensions)
    except CompileError as error:
        return _uncompiled(rule, error, parsed)
    macros = any(isinstance(node, Comprehension) for node in walk(root))
    return RuleStudy(rule, checked, StudiedRule(rule.id, program, formula(checked), covers=not macros))


def _uncompiled(rule: RuleText, error: CompileError, parsed: bool) -> Remark:
    escape = rule.text[error.offset : error.offset + 2]
    if not parsed and rule.file.endswith(".properties") and escape[:1] == "\\":
        hint = f"properties files halve backslashes: write `\\\\\\{escape}`, or a class such as `[.]`"
        return Remark("properties-escape", error.offset, error.message, hint)
    return remarks.uncompiled(rule.text, error.offset, error.message, parsed)


def _is_test(study: RuleStudy) -> bool:
    return study.checked.types[study.checked.root].kind in ("bool", "dyn")


def _alone(study: RuleStudy, options: Options, budget: SearchBudget) -> Iterator[Remark]:
    yield from remarks.remarks(study.checked)
    if _is_test(study):
        yield from asked.empty_variables(study, budget)
    if options.warehouses > 1 and "warehouse" not in study.subject.program.variables:
        message = f"the rule is the same for all {options.warehouses} warehouses: it does not test `warehouse`"
        yield Remark("untested-warehouse", 0, message)


def _among(studies: Sequence[RuleStudy], options: Options, budget: SearchBudget) -> Iterator[Finding]:
    """Duplicates, and what no smaller id leaves anything to; `studies` come sorted by id."""
    seen: dict[str, RuleStudy] = {}
    smaller = ConditionIndex[StudiedRule]()
    for study in studies:
        same = seen.setdefault(canonical_text(study.checked.root), study)
        if same is not study:
            yield _remark(study.rule, Remark("duplicate-rule", 0, f"says the same as rule `{same.rule.id}`"))
            continue
        found = judge(study.subject, smaller, budget)
        smaller.add(study.subject, study.subject.program.requirements.conditions)
        if isinstance(found, Unreachable):
            yield _remark(study.rule, Remark("unreachable", 0, "is never true: its conditions exclude one another"))
        elif isinstance(found, Shadowed):
            yield _remark(study.rule, Remark("shadowed", 0, _shadowed_by([rule.id for rule in found.by])))
        elif isinstance(found, Reachable) and options.witnesses:
            yield _decides(study, found.witness)


def _decides(study: RuleStudy, witness: Mapping[str, Any]) -> Finding:
    mentioned = study.subject.program.variables
    shown = ", ".join(f"{name}={value!r}" for name, value in witness.items() if name in mentioned)
    return _finding("witness", study.rule.place(), f"decides {shown}", rule=study.rule.id, witness=witness)


def _shadowed_by(ids: Sequence[str]) -> str:
    listed = ", ".join(f"`{id}`" for id in ids)
    return f"is true only where rule {listed} is" if len(ids) == 1 else f"is true only where one of rules {listed} is"


def _viewing(rules: Sequence[RuleText], studies: Sequence[RuleStudy], budget: SearchBudget) -> Iterator[Finding]:
    """Nessie's implicit rule: what switches it off, and what is missing where it is off."""
    naming = [rule for rule in rules if _VIEW in rule.text]
    if rules and not naming:
        yield _implicit_rule_on(rules)
        yield from (_reserved(rule) for rule in rules if rule.id == IMPLICIT_RULE)
        return
    meant = [study for study in studies if _VIEW in study.rule.text and _means_view(study)]
    if len(studies) < len(rules):
        return
    if not meant:
        message = (
            f"only this mention of {_VIEW} keeps references from being viewable by everyone, and it is no `op` test"
        )
        yield from (_remark(rule, Remark("implicit-rule-off", rule.text.index(_VIEW), message)) for rule in naming)
    sound = [study for study in studies if _is_test(study)]
    yield from (_remark(study.rule, remark) for study, remark in asked.unseen_references(sound, budget))


def _implicit_rule_on(rules: Sequence[RuleText]) -> Finding:
    message = f"no rule mentions {_VIEW}, so everyone may view every reference"
    return _finding("implicit-rule-on", Place(rules[0].file), message)


def _reserved(rule: RuleText) -> Finding:
    message = f"the implicit rule has this id and takes the place of this one, since no rule mentions {_VIEW}"
    return _finding("reserved-id", rule.place(), message, rule=rule.id)


def _means_view(study: RuleStudy) -> bool:
    """Whether a rule compares with the check type, and does not just have its letters somewhere."""
    parts = (one.text for one in remarks.comparisons(study.checked) if one.variable == "op" and one.test in _PARTS)
    constants = (node.value for node in walk(study.checked.root) if isinstance(node, Constant))
    return any(_VIEW in part for part in parts) or _VIEW in constants


def _lookalikes(studies: Sequence[RuleStudy]) -> Iterator[Finding]:
    """Names that one person may take for another: equal after NFC and case folding."""
    seen: dict[tuple[str, str], str] = {}
    told: set[tuple[str, str]] = set()
    for study in studies:
        for one in remarks.comparisons(study.checked):
            if one.variable not in ("path", "ref") or one.test not in _EXACT:
                continue
            for name in _siblings(one):
                like = seen.setdefault((one.variable, unicodedata.normalize("NFC", name).casefold()), name)
                if like != name and (one.variable, name) not in told:
                    told.add((one.variable, name))
                    message = f"`{name}` differs from `{like}` in case or Unicode form only"
                    yield _remark(study.rule, Remark("lookalike-names", one.offset, message))


def _siblings(one: remarks.Comparison) -> Iterable[str]:
    """The text, and where it is a path that of everything above it: `Sales.x` and `sales.y` have siblings."""
    if one.variable == "ref" or one.test == "endsWith":
        return (one.text,)
    parts = one.text.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1) if parts[count - 1])


def _ignored(notice: Notice) -> Finding:
    return _finding("ignored-key", notice.place, notice.message)


def _remark(rule: RuleText, remark: Remark) -> Finding:
    return _finding(remark.code, rule.place(remark.offset), remark.message, rule=rule.id, hint=remark.hint)


def _finding(code: str, place: Place, message: str, **more: Any) -> Finding:
    return Finding(code, CODES[code], place.file, place.line, place.column, more.pop("rule", ""), message, **more)
