"""What rules miss because of how checks are asked: variables that are empty there, references that nobody may view.

Sound like the search it uses: what it cannot prove it does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pdp.cel.checker import CheckedExpression
from pdp.cel.walk import variable_name, walk
from pdp.engines.cel.condition_index import ConditionIndex, texts_of
from pdp.engines.cel.lint.formula import Chain, Formula, Text
from pdp.engines.cel.lint.reach import SearchBudget, SearchExhausted, StudiedRule, satisfy
from pdp.engines.cel.lint.remarks import Remark, comparisons
from pdp.engines.cel.sources import RuleText
from pdp.model.vocabulary import CONFIG_CHECKS, CONTENT_CHECKS, NESSIE_CHECKS, REFERENCE_CHECKS

EMPTY: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(REFERENCE_CHECKS, ("path", "contentType", "type")),
    **dict.fromkeys(CONTENT_CHECKS, ("type",)),
    **dict.fromkeys(CONFIG_CHECKS, ("path", "contentType")),
}
"""Check type -> the variables that are "" in it."""
_VIEW: Final[Mapping[str, Any]] = {"op": "VIEW_REFERENCE", **dict.fromkeys(EMPTY["VIEW_REFERENCE"], "")}
_ON_REFERENCE: Final = Text("op", "equals", NESSIE_CHECKS - CONFIG_CHECKS - {"VIEW_REFERENCE", "CREATE_REFERENCE"})
"""What comes with a VIEW_REFERENCE check on the same reference."""
_MAX_ROLES: Final = 50


class RuleStudy(NamedTuple):
    """A rule that compiles, as it stands in its file and as the search sees it."""

    rule: RuleText
    checked: CheckedExpression
    subject: StudiedRule


def mention(checked: CheckedExpression, name: str) -> int:
    """Where a rule first mentions a variable."""
    return next(node.pos for node in walk(checked.root) if variable_name(node, checked) == name)


def empty_variables(study: RuleStudy, budget: SearchBudget) -> Iterator[Remark]:
    """Ops that a rule names and never matches, since it needs a variable that is empty there."""
    blamed: dict[str, list[str]] = {}
    named = {compared.text for compared in comparisons(study.checked) if compared.variable == "op"}
    for op in sorted(named & NESSIE_CHECKS):
        name = _blamed(study.subject, op, budget)
        if name:
            blamed.setdefault(name, []).append(op)
    for name, ops in blamed.items():
        offset, listed = mention(study.checked, name), ", ".join(ops)
        if name == "actions":
            message = f"in Nessie {listed} comes without actions; here it has those that the caller sends"
            yield Remark("actions-on-reference", offset, message)
        else:
            message = f'`{name}` is always "" where `op` is {listed}, so the rule never matches it'
            yield Remark("empty-variable", offset, message, "give it a rule of its own")


def _blamed(subject: StudiedRule, op: str, budget: SearchBudget) -> str:
    """The variable whose emptiness keeps a rule from matching `op`, or ""."""
    rule = subject.formula.given({"op": op})
    names = [name for name in EMPTY[op] if name in subject.program.variables]
    lists = ["actions"] if op in REFERENCE_CHECKS and "actions" in subject.program.variables else []
    if not names + lists or not _possible(rule, budget):
        return ""
    for name in names:
        if not _possible(rule.given({name: ""}), budget):
            return name
    if not _possible(rule.given(dict.fromkeys(names, "")), budget):
        return names[0]
    return next((name for name in lists if not _possible(rule.given({name: ()}), budget)), "")


def _possible(formula: Formula, budget: SearchBudget) -> bool:
    """Whether it can be true, as far as anybody knows."""
    try:
        return satisfy(formula, (), budget) is not None
    except SearchExhausted:
        return True


def unseen_references(studies: Sequence[RuleStudy], budget: SearchBudget) -> Iterator[tuple[RuleStudy, Remark]]:
    """Rules about references, or what is on them, that are true for nobody whom a rule lets view the reference."""
    views = [(study, study.subject.formula.given(_VIEW)) for study in studies]
    views = [(study, view) for study, view in views if _possible(view, budget)]
    if any("actions" in study.subject.program.variables for study, _ in views):
        return
    shelves = ConditionIndex[Formula]()
    for study, view in views:
        shelves.add(view, [one for one in study.subject.program.requirements.conditions if one.variable not in _VIEW])
    for study in studies:
        blind = [role for role in _roles(study) if _is_blind(study, role, shelves, budget)]
        if blind:
            who = ", ".join(f"`{role}`" for role in blind if role is not None) or "nobody whom it is for"
            verb = "may view no reference" if blind[0] is not None else "may view a reference"
            message = f"{who} {verb} that the rule is true for: VIEW_REFERENCE is not permitted"
            yield study, Remark("unseen-reference", 0, message, "permit VIEW_REFERENCE, too")


def _roles(study: RuleStudy) -> Sequence[str | None]:
    """The users that a rule names, each to be looked at; None for all together."""
    conditions = study.subject.program.requirements.conditions
    names = next((c.texts for c in conditions if c.variable == "role" and c.kind == "equals"), frozenset())
    return sorted(names) if 0 < len(names) <= _MAX_ROLES else [None]


def _is_blind(study: RuleStudy, role: str | None, views: ConditionIndex[Formula], budget: SearchBudget) -> bool:
    """Proven: there is something that the rule permits, and no view of its reference."""
    given = {} if role is None else {"role": role}
    rule = Chain(True, (study.subject.formula, _ON_REFERENCE)).given(given)
    conditions = study.subject.program.requirements.conditions
    texts = {one.variable: one.texts for one in conditions if one.kind == "equals"}
    try:
        point = satisfy(rule, (), budget)
        near = views.find({**texts, **texts_of(given)}) if point is not None else []
        return point is not None and not any(_sees(rule, view.given(given), budget) for view in near)
    except SearchExhausted:
        return False


def _sees(rule: Formula, view: Formula, budget: SearchBudget) -> bool:
    return satisfy(view, (), budget) is not None and satisfy(Chain(True, (rule, view)), (), budget) is not None
