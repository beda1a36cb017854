"""Questions that rules are asked, as bits: where a rule may be true, from the values that each question fixes.

The vocabulary fixes `op` and `action` of a question, and which other texts are empty. All other values may be any.
Owns the proof that a rule holds nowhere, and the quick look at the names of a plain rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, reduce
from operator import and_, or_
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pdp.cel.checker import CheckedExpression
from pdp.cel.compiler import load_function
from pdp.cel.syntax import Call, CompileError, Conditional, Logic, Node
from pdp.cel.unparse import variable_name, walk
from pdp.cel.values import RuleError
from pdp.config.names import KnownNames, name_fault
from pdp.engines.cel.conditions import NAME_KINDS, WORDS, Condition, Requirements, condition_of
from pdp.engines.cel.program import RULE_ARGUMENTS, rule_emitter
from pdp.model.trino_operations import CLUSTER_ACTIONS, TRINO_PREFIX
from pdp.model.vocabulary import (
    CATALOG_ACTIONS,
    CEL_CHECKS,
    CONTENT_TYPE,
    RENAME_ENDS,
    NessieCheck,
    forbid_checks,
    is_cluster_action,
)

Question: TypeAlias = Mapping[str, str]
"""Variable -> the only value that it has in a question. All others may have any value."""
MADE: Final = "made"
"""Key of questions with the `path` of a new object other than a namespace."""


class PartOutcomes(NamedTuple):
    """Questions, as bits, where a part of a rule may be true, may be false, and may raise."""

    true: int
    false: int
    raises: int

    @property
    def possible(self) -> int:
        """Return the questions where the part may bind a check: a forbid that raises denies, too."""
        return self.true | self.raises


@cache
def questions() -> tuple[Question, ...]:
    """Return all different questions of the vocabulary."""
    asked = {(type, action) for type, actions in CATALOG_ACTIONS.items() for action in actions} | CEL_CHECKS.keys()
    found = [_question(type, action, check) for type, action in sorted(asked) for check in _checks(type, action)]
    empty = dict.fromkeys(("path", "contentType", "type", "ref", "warehouse"), "")
    found += [{"op": action, "action": action, **empty} for action in sorted(CLUSTER_ACTIONS)]
    return tuple({tuple(sorted(one.items())): one for one in found}.values())


def _checks(type: str, action: str) -> Iterator[NessieCheck]:
    """Yield the checks of an action, for forbids under each value of `action`."""
    for sent in ((), RENAME_ENDS):
        yield from forbid_checks(type, action, sent, ("action",))


def _question(type: str, action: str, check: NessieCheck) -> Question:
    fixed = {"op": check.op, "action": check.action or action}
    if type != "repository_config":
        fixed["type"] = ""
    if check.path == "none":
        fixed |= {"path": "", "contentType": ""}
    elif check.creates:
        fixed["contentType"] = check.content_type
        fixed |= {} if check.content_type == CONTENT_TYPE["namespace"] else {MADE: "yes"}
    return fixed


@cache
def _every() -> int:
    return (1 << len(questions())) - 1


def _met(condition: Condition) -> int:
    """Return the questions where a condition may be met."""
    return _may_be(condition)[0]


def _may_be(condition: Condition) -> tuple[int, int]:
    """Return the questions where a condition may be met, and where it may not be met."""
    name = condition.variable
    if name in _CLOSED:
        return _by_words(condition)
    if name in _OFTEN_EMPTY:  # rules name many paths, and only "" is ever fixed
        return (_every(), _not_empty(name)) if condition.is_met_by("") else (_not_empty(name), _every())
    return _every(), _every()


_OFTEN_EMPTY: Final = frozenset({"path", "type", "ref", "warehouse"})
"""Variables that some questions fix to ""."""
_CLOSED: Final = frozenset({"op", "action", "contentType"})
"""Variables that some questions fix to other texts, too."""
_FIXED: Final = _OFTEN_EMPTY | _CLOSED


@lru_cache(maxsize=4096)
def _by_words(condition: Condition) -> tuple[int, int]:
    name = condition.variable
    is_met = [condition.is_met_by(one[name]) if name in one else None for one in questions()]
    may_be = (sum(1 << at for at, met in enumerate(is_met) if met is not surely) for surely in (False, True))
    return next(may_be), next(may_be)


@cache
def _not_empty(name: str) -> int:
    return _bits(lambda one: name not in one)


def _bits(test: Callable[[Question], bool]) -> int:
    return sum(1 << at for at, one in enumerate(questions()) if test(one))


def outcomes(node: Node, checked: CheckedExpression) -> PartOutcomes:
    """Return where a part of a rule may be true, be false and raise; in doubt too many."""
    if isinstance(node, Logic):
        return _joined([outcomes(part, checked) for part in node.parts], conjunction=node.conjunction)
    if isinstance(node, Conditional):
        test, then, other = (outcomes(part, checked) for part in (node.condition, node.then, node.otherwise))
        raises = test.raises | test.true & then.raises | test.false & other.raises
        true, false = (test.true & one | test.false & two for one, two in zip(then[:2], other[:2], strict=True))
        return PartOutcomes(true, false, raises)
    if isinstance(node, Call) and node.function == "!_":
        true, false, raises = outcomes(node.args[0], checked)
        return PartOutcomes(false, true, raises)
    return _of_leaf(node, checked)


def _joined(parts: list[PartOutcomes], *, conjunction: bool) -> PartOutcomes:
    """Return the outcomes of `&&` or `||`, where a part that surely decides absorbs the errors of others."""
    true = reduce(and_ if conjunction else or_, (part.true for part in parts))
    false = reduce(or_ if conjunction else and_, (part.false for part in parts))
    spared = [part.raises | (part.true if conjunction else part.false) for part in parts]
    return PartOutcomes(true, false, reduce(or_, (part.raises for part in parts)) & reduce(and_, spared))


def _of_leaf(node: Node, checked: CheckedExpression) -> PartOutcomes:
    """Return the outcomes of a part without logic: by evaluation, where a question fixes all that the part reads."""
    condition = condition_of(node, checked) if isinstance(node, Call) else None
    if condition:
        met, unmet = _may_be(condition)
        may_raise = condition.kind == "holds" or condition.variable in ("path", "ref")
        return PartOutcomes(met, unmet, _not_empty(condition.variable) if may_raise else 0)
    names = sorted(_read(node, checked))
    run = _function(node, checked) if names and _FIXED.issuperset(names) else None
    if run is None:
        return PartOutcomes(_every(), _every(), _every())
    true = false = raises = 0
    for values, bits in _groups(tuple(names)):
        value = _value(run, dict(zip(names, values, strict=True))) if values else "any"
        true |= bits if value in (True, "any") else 0
        false |= bits if value in (False, "any") else 0
        raises |= bits if value in (None, "any") else 0
    return PartOutcomes(true, false, raises)


@lru_cache(maxsize=256)
def _groups(names: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the different values of variables with their questions; no values for questions that leave one open."""
    found: dict[tuple[str, ...], int] = {}
    for at, fixed in enumerate(questions()):
        values = tuple(fixed[name] for name in names) if fixed.keys() >= set(names) else ()
        found[values] = found.get(values, 0) | 1 << at
    return tuple(found.items())


def _read(node: Node, checked: CheckedExpression) -> set[str]:
    return {name for part in walk(node) if (name := variable_name(part, checked))}


def _function(node: Node, checked: CheckedExpression) -> Callable[..., Any] | None:
    emitter = rule_emitter(msgspec.structs.replace(checked, root=node))
    try:
        return load_function(emitter.emit_function("part", RULE_ARGUMENTS.values(), wants_bool=True), "part", emitter)
    except CompileError:
        return None


def _value(run: Callable[..., Any], fixed: Question) -> bool | None:
    """Return the value of a part; None for a part that raises."""
    try:
        return bool(run(*[fixed.get(name, "") for name in RULE_ARGUMENTS]))
    except RuleError:
        return None


class Clash(NamedTuple):
    """Parts of a rule that no question meets together, one or two of them or more, and the words of `action` beside."""

    parts: tuple[Node, ...]
    beside: tuple[str, ...] = ()


def find_clash(checked: CheckedExpression) -> Clash | None:
    """Return the first parts of a rule that no question meets together; None for a rule that may hold."""
    root = checked.root
    if _read(root, checked).isdisjoint(_CLOSED | {"type"}):
        return None  # such a rule may hold wherever a caller asks
    parts = root.parts if isinstance(root, Logic) and root.conjunction else (root,)
    found = [(part, outcomes(part, checked)) for part in parts]
    if _joined([one for _, one in found], conjunction=True).possible:
        return None
    for part, one in found:
        if not one.possible:
            return Clash((part,))
    for at, (part, one) in enumerate(found):
        for other, two in found[:at]:
            if not one.possible & two.possible:
                return Clash((other, part), tuple(_actions(two.possible)))
    return Clash(tuple(parts))


def asked_ops(requirements: Requirements) -> frozenset[str]:
    """Return the ops of all questions that the tests of `op` and `action` admit; empty without such a test."""
    tests = [_by_words(one)[0] for one in requirements.conditions if one.variable in WORDS]
    bits = reduce(and_, tests, _every()) if tests else 0
    return frozenset(one["op"] for at, one in enumerate(questions()) if bits >> at & 1)


def asked_questions(checked: CheckedExpression) -> tuple[Question, ...]:
    """Return the questions where a rule may bind."""
    possible = outcomes(checked.root, checked).possible
    return tuple(one for at, one in enumerate(questions()) if possible >> at & 1)


def _actions(bits: int) -> Iterator[str]:
    yield from sorted({one["action"] for at, one in enumerate(questions()) if bits >> at & 1})


_NAME_TESTS: Final = {"holds": "equals"}
"""Kind of a condition -> the test of a name that it is, if the kinds differ."""


def has_sound_names(requirements: Requirements, known: KnownNames) -> bool:
    """Tell whether a rule surely has no name at fault, and may hold. Conditions have all tests of a plain rule."""
    conditions = requirements.conditions
    # few rules name a question on a cluster, of which more is to be said
    if not requirements.sufficient or any(_is_on_cluster(one) for one in conditions):
        return False
    has_place = any(one.variable == "warehouse" for one in conditions)
    kinds = NAME_KINDS if has_place else {**NAME_KINDS, "path": "place"}
    is_at_fault = any(
        name_fault(kinds[one.variable], _NAME_TESTS.get(one.kind, one.kind), text, known)
        for one in conditions
        if one.variable in kinds
        for text in one.texts
    )
    met = reduce(and_, map(_met, conditions), _every())
    is_plain_path = all("." in text for one in conditions if one.variable == "path" for text in one.texts)
    doubtful = _of_trino() if is_plain_path else _of_trino() | _of_new_names()
    return not is_at_fault and bool(met & ~doubtful)


@cache
def _of_trino() -> int:
    return _bits(lambda one: one["op"].startswith(TRINO_PREFIX))


@cache
def _of_new_names() -> int:
    return _bits(lambda one: MADE in one)


def _is_on_cluster(condition: Condition) -> bool:
    return condition.variable in WORDS and any(map(is_cluster_action, condition.texts))
