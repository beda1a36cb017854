"""Findings that follow from the values of variables: empty ones, references without a viewer, parts that always raise.

Every finding is proven by a search. If a search gives up, there is no finding. Owns the parts of a rule that may permit
more here than in Nessie, too: of these, a doubtful one counts.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pdp.cel.checker import CheckedExpression, LocalName, ResolvedCall, Variable, check
from pdp.cel.compiler import Emitter, function_table, load_function
from pdp.cel.parser import parse
from pdp.cel.syntax import (
    MAX_NODES,
    Call,
    CompileError,
    Comprehension,
    Constant,
    ListOf,
    Logic,
    Name,
    Node,
)
from pdp.cel.types import Type
from pdp.cel.unparse import children, constant_text, unparse, variable_name, walk
from pdp.cel.values import RuleError, Timestamp, Uint
from pdp.engines.cel.lint import remarks
from pdp.engines.cel.lint.formula import Connective, Formula, TextTest, formula_of, possible_results
from pdp.engines.cel.lint.remarks import Remark, Severity, comparisons
from pdp.engines.cel.lint.search import RuleModel, SearchBudget, SearchExhausted, satisfy
from pdp.engines.cel.program import RULE_VARIABLES, compile_program
from pdp.engines.cel.selection import ConditionIndex, texts_of
from pdp.engines.cel.sources import RuleText
from pdp.model.vocabulary import CONFIG_CHECKS, CONTENT_CHECKS, NESSIE_CHECKS, REFERENCE_CHECKS


class LintRule(NamedTuple):
    """A valid rule."""

    source: RuleText
    checked: CheckedExpression
    model: RuleModel

    @property
    def is_test(self) -> bool:
        """Tell whether the result can be a bool. Any other rule always raises."""
        return self.checked.types[self.checked.root].kind in ("bool", "dyn")


def analyze_rule(rule: RuleText, extensions: frozenset[str]) -> LintRule | Remark:
    """Compile a rule. Return a remark with the reason if the rule does not compile."""
    parsed = False
    try:
        root = parse(rule.text)
        parsed = True
        checked = check(root, RULE_VARIABLES, function_table(extensions))
        program = compile_program(rule.text, extensions)
    except CompileError as error:
        return _remark_on_error(rule, error, parsed)
    has_macro = any(isinstance(node, Comprehension) for node in walk(root))
    return LintRule(rule, checked, RuleModel(rule.id, program, formula_of(checked), exact=not has_macro))


def _remark_on_error(rule: RuleText, error: CompileError, parsed: bool) -> Remark:
    escape = rule.text[error.offset : error.offset + 2]
    if not parsed and rule.file.endswith(".properties") and escape[:1] == "\\":
        hint = f"properties files halve backslashes: write `\\\\\\{escape}`, or a class such as `[.]`"
        return Remark("properties-escape", error.offset, error.message, hint)
    return remarks.remark_on_error(rule.text, error, parsed)


_ZONES: Final = "a zone is a name such as `Europe/Berlin`, or an offset such as `+02:00`"
_CONSTANTS: Final[Mapping[str, str]] = {
    "timestamp": "write date, time and zone: `timestamp('2024-01-01T00:00:00Z')`",
    "duration": "the units are h, m, s, ms, us and ns: seven days are `duration('168h')`",
    "int": "a text of decimal digits becomes a number; hexadecimal is written without quotes: `0x10`",
}
_SHOWN: Final = 80


def raising_constants(checked: CheckedExpression, *, forbid: bool) -> Iterator[Remark]:
    """Yield a remark on each smallest part that always raises: an error, unless a permit can still be true.

    A forbid that raises denies, so nothing makes the part harmless there.
    """
    failing = constant_errors(checked)
    severity: Severity = "error" if forbid or True not in possible_results(checked.root, failing) else "warning"
    for node, error in failing.items():
        name = node.function if isinstance(node, Call) else ""
        if name == "matches" and isinstance(checked.calls[node].args[1], Constant):
            continue  # `bad-pattern` says so
        shown = unparse(node)
        shown = f"{shown[:_SHOWN]}..." if len(shown) > _SHOWN else shown
        hint = _CONSTANTS.get(name, _ZONES if name.startswith("get") else "")
        yield Remark("always-raises", node.pos, f"`{shown}` always raises: {error.detail}", hint, severity)


_MACRO_NODES: Final = 2_000
"""Nodes that a macro counts as: it repeats its body."""
_SAMPLES: Final = {"timestamp": Timestamp(0), "string": "", "int": 1, "uint": Uint(1)}
"""Kind -> a value for which no division by a divisor but 0, and no valid zone or pattern, raises."""


class _Part(NamedTuple):
    """Part of an expression: size, and the variables and macros around on which the value depends.

    `raises`: a smaller part raises.
    """

    free: frozenset[object]
    size: int
    raises: bool


def constant_errors(checked: CheckedExpression) -> Mapping[Node, RuleError]:
    """Return the smallest parts that raise for all values of the variables, with their errors.

    Each part is run as in a rule. Parts beyond a size in total are not looked at.
    """
    finder = _ConstantErrors(checked)
    finder.visit(checked.root)
    return finder.errors


class _ConstantErrors:
    """Finder of parts that always raise."""

    def __init__(self, checked: CheckedExpression) -> None:
        self.errors: dict[Node, RuleError] = {}
        self._checked = checked
        self._calls, self._types = dict(checked.calls), dict(checked.types)
        self._parts: dict[Node, _Part] = {}
        self._nodes_left = MAX_NODES

    def visit(self, node: Node) -> _Part:
        """Look at a part, smaller ones first."""
        meaning = self._checked.names.get(node)
        if isinstance(meaning, Variable | LocalName):
            local = meaning.node if isinstance(meaning, LocalName) else meaning
            part = _Part(frozenset((local,)), 1, raises=False)
        else:
            below = [] if meaning else [self.visit(child) for child in children(node)]
            free = frozenset[object]().union(*(each.free for each in below)) - {node}
            size = sum(each.size for each in below) + (_MACRO_NODES if isinstance(node, Comprehension) else 1)
            part = _Part(free, size, any(each.raises for each in below))
            part = part._replace(raises=part.raises or self._fails(node, part))
        self._parts[node] = part
        return part

    def _fails(self, node: Node, part: _Part) -> bool:
        if part.free:
            checked = self._sampled(node)
        else:
            checked = None if isinstance(node, Constant | ListOf | Name) else self._checked
        if checked is None or part.size > self._nodes_left:
            return False
        self._nodes_left -= part.size
        emitter = Emitter(msgspec.structs.replace(checked, root=node), {})
        is_rule = node is self._checked.root and checked.types[node].kind == "dyn"
        source = emitter.emit_function("constant", (), wants_bool=is_rule)
        try:
            load_function(source, "constant", emitter)()
        except RuleError as error:
            self.errors[node] = error
        except CompileError:  # too many levels: the load of the rule says so
            return False
        return node in self.errors

    def _sampled(self, node: Node) -> CheckedExpression | None:
        """Return the expression with a sample for the first argument, if the second is constant and decides."""
        call = self._checked.calls.get(node)
        if call is None or len(call.args) != 2 or self._parts[call.args[1]].free:
            return None
        name, first = call.key[0], call.args[0]
        kind = self._checked.types[first].kind
        decides = name in ("_/_", "_%_", "matches") or (name.startswith("get") and kind == "timestamp")
        if not decides or kind not in _SAMPLES:
            return None
        sample = Constant(first.pos, 1, _SAMPLES[kind])
        run = ResolvedCall(call.key, call.overloads, (sample, call.args[1]))
        calls = ChainMap[Node, ResolvedCall]({node: run}, self._calls)
        types = ChainMap[Node, Type]({sample: self._types[first]}, self._types)
        return msgspec.structs.replace(self._checked, calls=calls, types=types)


EMPTY_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(REFERENCE_CHECKS, ("path", "contentType", "type")),
    **dict.fromkeys(CONTENT_CHECKS, ("type",)),
    **dict.fromkeys(CONFIG_CHECKS, ("path", "contentType")),
}
"""For each check type the variables that are always ""."""
_VIEW: Final[Mapping[str, Any]] = {
    "op": "VIEW_REFERENCE",
    **dict.fromkeys(EMPTY_VARIABLES["VIEW_REFERENCE"], ""),
}
_NEEDS_VIEW: Final = TextTest("op", "equals", NESSIE_CHECKS - CONFIG_CHECKS - {"VIEW_REFERENCE", "CREATE_REFERENCE"})
"""Check types that come together with VIEW_REFERENCE on the same reference."""
_MAX_ROLES: Final = 50


def empty_variables(rule: LintRule, budget: SearchBudget) -> Iterator[Remark]:
    """Yield a remark for ops that a rule names but never matches, because a variable is empty in their checks."""
    by_cause: dict[str, list[str]] = {}
    named = {compared.text for compared in comparisons(rule.checked) if compared.variable == "op"}
    for op in sorted(named & NESSIE_CHECKS):
        name = _cause(rule.model, op, budget)
        if name:
            by_cause.setdefault(name, []).append(op)
    for name, ops in by_cause.items():
        offset, listed = _first_mention(rule, name), ", ".join(ops)
        if name == "actions":
            message = f"in Nessie {listed} comes without actions; here it has those that the caller sends"
            yield Remark("actions-on-reference", offset, message)
        else:
            message = f'`{name}` is always "" where `op` is {listed}, so the rule never matches it'
            yield Remark("empty-variable", offset, message, "give it a rule of its own")


def _first_mention(rule: LintRule, name: str) -> int:
    return next(node.pos for node in walk(rule.checked.root) if variable_name(node, rule.checked) == name)


def _cause(model: RuleModel, op: str, budget: SearchBudget) -> str:
    """Return the variable that is empty for `op` and so keeps the rule from being true, or ""."""
    formula = model.formula.given({"op": op})
    names = [name for name in EMPTY_VARIABLES[op] if name in model.program.variables]
    lists = ["actions"] if op in REFERENCE_CHECKS and "actions" in model.program.variables else []
    if not names + lists or not _is_possible(formula, budget):
        return ""
    for name in names:
        if not _is_possible(formula.given({name: ""}), budget):
            return name
    if not _is_possible(formula.given(dict.fromkeys(names, "")), budget):
        return names[0]
    return next((name for name in lists if not _is_possible(formula.given({name: ()}), budget)), "")


def _is_possible(formula: Formula, budget: SearchBudget) -> bool:
    """Tell whether the formula can be true. True if the search gives up."""
    try:
        return satisfy(formula, (), budget) is not None
    except SearchExhausted:
        return True


def unseen_references(rules: Sequence[LintRule], budget: SearchBudget) -> Iterator[tuple[LintRule, Remark]]:
    """Yield a remark for every rule whose users may not view the references of the permitted operations.

    `actions` differ between the check of the operation and the VIEW_REFERENCE check of the same request. So nothing is
    proven if `actions` occurs in a rule with VIEW_REFERENCE.
    """
    views = [(rule, rule.model.formula.given(_VIEW)) for rule in rules]
    views = [(rule, view) for rule, view in views if _is_possible(view, budget)]
    if any("actions" in rule.model.program.variables for rule, _ in views):
        return
    index = ConditionIndex[Formula]()
    for rule, view in views:
        conditions = rule.model.program.requirements.conditions
        index.add(view, [condition for condition in conditions if condition.variable not in _VIEW])
    for rule in rules:
        blind = [role for role in _roles(rule) if _is_blind(rule, role, index, budget)]
        if blind:
            named = ", ".join(f"`{role}`" for role in blind if role is not None)
            users = f"{named} may" if named else "the users of this rule may"
            message = f"{users} not view any reference that the rule is true for: no rule permits VIEW_REFERENCE"
            yield rule, Remark("unseen-reference", 0, message, "permit VIEW_REFERENCE, too")


def _roles(rule: LintRule) -> Sequence[str | None]:
    """Return the users that a rule names, each to be examined alone; None for all users together."""
    conditions = rule.model.program.requirements.conditions
    names = next((c.texts for c in conditions if c.variable == "role" and c.kind == "equals"), frozenset())
    return sorted(names) if 0 < len(names) <= _MAX_ROLES else [None]


def _is_blind(rule: LintRule, role: str | None, views: ConditionIndex[Formula], budget: SearchBudget) -> bool:
    """Tell whether the rule permits an operation to `role`, but no view permits the reference of any such operation.

    False if the search gives up.
    """
    given = {} if role is None else {"role": role}
    formula = Connective(True, (rule.model.formula, _NEEDS_VIEW)).given(given)
    conditions = rule.model.program.requirements.conditions
    texts = {condition.variable: condition.texts for condition in conditions if condition.kind == "equals"}
    try:
        point = satisfy(formula, (), budget)
        near = views.find({**texts, **texts_of(given)}) if point is not None else []
        return point is not None and not any(_can_meet(formula, view.given(given), budget) for view in near)
    except SearchExhausted:
        return False


def _can_meet(rule: Formula, view: Formula, budget: SearchBudget) -> bool:
    """Tell whether the rule and the view can be true for the same reference and user.

    In the view op, path and types are constants already, so the two formulas share the other variables only.
    """
    both = Connective(True, (rule, view))
    return satisfy(view, (), budget) is not None and satisfy(both, (), budget) is not None


UNKNOWN: Final = "unknown-names"
UNBOUND: Final = "unbound-names"
PATTERNS: Final = "patterns"
WIDENINGS: Final = (UNKNOWN, UNBOUND, PATTERNS)
"""Names of widenings: what Nessie does not know, raises on, and reads otherwise."""
_OF_NESSIE: Final = {"op", "role", "roles", "ref", "path", "contentType", "type", "api", "actions"}
_OURS: Final = frozenset(RULE_VARIABLES) - _OF_NESSIE
"""Variables of this service alone. Nessie's manual has `api` and `actions`, and its own authorizers have them."""
_BOUND: Final[Mapping[str, frozenset[str]]] = {"contentType": NESSIE_CHECKS - CONFIG_CHECKS, "type": CONFIG_CHECKS}
"""Variable that Nessie sets for some checks alone -> these checks. For the others, a rule raises there."""
_JAVA_DIFFERS: Final = re.compile(r"\(\?(?:P|[a-z]*[iU])|\{,|\\C|\[[^\]]*(?:\[|&&)")
"""Parts of patterns that Java refuses or reads otherwise: groups and flags, `{,n}`, classes inside of classes."""


def wider_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each widening of a rule that compiles, and what the rule does."""
    rule = parse(text)
    nodes = list(walk(rule))
    unknown = sorted({node.name for node in nodes if isinstance(node, Name) and node.name in _OURS})
    if any(isinstance(node, Call) and node.function == "matches" and node.target is None for node in nodes):
        unknown.append("matches(text, pattern)")
    if unknown:
        yield UNKNOWN, f"has `{'`, `'.join(unknown)}`, which no Nessie knows: it would not start with this rule"
    for name in sorted(_BOUND):
        if _may_hold_unset(rule, name):
            yield UNBOUND, f"may be true for checks without `{name}`, where Nessie fails and denies"
    patterns = [constant_text(node.args[-1]) for node in nodes if isinstance(node, Call) and node.function == "matches"]
    if any(text is not None and _JAVA_DIFFERS.search(text) for text in patterns):
        yield PATTERNS, "has a pattern that Java reads in another way, or refuses"


def _may_hold_unset(node: Node, name: str) -> bool:
    """Tell whether a part of a rule may be true because a variable is empty, where Nessie has no value for it.

    A test that is false for the empty text is sound below AND and OR alone: Nessie's failure takes nothing from a rule
    that is true without the test. So is whatever stands beside a test of `op` that excludes these checks.
    """
    if not any(isinstance(part, Name) and part.name == name for part in walk(node)):
        return False
    if isinstance(node, Logic):
        is_excluded = node.conjunction and any(_tests_op(part, _BOUND[name]) for part in node.parts)
        return not is_excluded and any(_may_hold_unset(part, name) for part in node.parts)
    return not _fails_when_empty(node, name)


def _tests_op(node: Node, bound: frozenset[str]) -> bool:
    """Tell whether a test of `op` is true for none of Nessie's checks but those in `bound`."""
    texts = _compared(node, "op")
    return texts is not None and bound.issuperset(NESSIE_CHECKS.intersection(texts))


def _fails_when_empty(node: Node, name: str) -> bool:
    """Tell whether a node is a plain test of a variable against texts, none of them empty."""
    texts = _compared(node, name)
    if texts is None and isinstance(node, Call) and node.function in ("startsWith", "endsWith", "contains"):
        is_plain = isinstance(node.target, Name) and node.target.name == name
        text = constant_text(node.args[0])
        texts = [text] if is_plain and text is not None else None
    return texts is not None and all(texts)


def _compared(node: Node, name: str) -> list[str] | None:
    """Return the constant texts that `==` or `in` compare a variable with; None for any other node."""
    if not isinstance(node, Call) or node.function not in ("_==_", "@in"):
        return None
    left, right = node.args
    if node.function == "_==_" and isinstance(right, Name):
        left, right = right, left
    if not isinstance(left, Name) or left.name != name:
        return None
    items = right.items if node.function == "@in" and isinstance(right, ListOf) else (right,)
    texts = [constant_text(item) for item in items]
    return None if None in texts else [text for text in texts if text is not None]
