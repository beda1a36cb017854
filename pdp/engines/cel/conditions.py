"""Necessary conditions of a rule: tests of single variables in the tree. Wherever the rule is true, all tests hold.

A condition never raises. If a condition does not hold, the rule is false and raises nothing: in `a && b` a false
operand absorbs the error of the other operand. So a selector may skip the rule, and no answer and no error changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, repeat
from operator import contains
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pdp.cel import patterns
from pdp.cel.checker import CheckedExpression, Variable
from pdp.cel.syntax import Call, Comprehension, Conditional, Constant, ListOf, Logic, Node
from pdp.cel.unparse import children, variable_name, walk
from pdp.model.vocabulary import is_cluster_action

Kind: TypeAlias = Literal["equals", "starts", "ends", "contains", "holds"]
_STRINGS: Final = frozenset({"op", "role", "ref", "path", "contentType", "type", "warehouse", "action"})
EVERY_ROLE: Final = "roles by any evidence"
"""Variable that no rule can spell: what a forbid reads where it tests for a role. See `role_readings`."""
_LISTS: Final = frozenset({"roles", EVERY_ROLE, "actions", "groups"})
_ESCAPED: Final = re.compile(r"\\.")
_WORD: Final = re.compile(r"[^\W_][\w-]*")
_STRING_TESTS: Final[Mapping[str, Kind]] = {"startsWith": "starts", "endsWith": "ends", "contains": "contains"}
"""Functions of strings -> the kind of test."""
_PATTERN_KINDS: Final[Mapping[str, Kind]] = {kind: kind for kind in ("equals", "starts", "ends", "contains")}


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A test of a variable against alternative `texts`.

    A string variable equals, starts with, ends with or contains a text, or a list variable holds a text.
    """

    variable: str
    kind: Kind
    texts: frozenset[str]

    def is_met_by(self, value: Any) -> bool:
        """Tell whether a value of the variable meets the condition."""
        if self.kind == "equals":
            return value in self.texts
        if self.kind == "starts":
            return bool(value.startswith(tuple(self.texts)))
        if self.kind == "ends":
            return bool(value.endswith(tuple(self.texts)))
        if self.kind == "contains":
            for text in self.texts:  # noqa: SIM110  a generator costs three times as much
                if text in value:
                    return True
            return False
        return not self.texts.isdisjoint(value)

    def rows_met_by(self, texts: Sequence[str]) -> Iterable[int]:
        """Return the rows of `texts` that meet the condition on a string."""
        if self.kind in ("starts", "ends"):
            test = str.startswith if self.kind == "starts" else str.endswith
            return compress(range(len(texts)), map(test, texts, repeat(tuple(self.texts))))
        if self.kind == "equals":
            return compress(range(len(texts)), map(self.texts.__contains__, texts))
        if len(self.texts) == 1:
            return compress(range(len(texts)), map(contains, texts, repeat(*self.texts)))
        return (row for row, text in enumerate(texts) if self.is_met_by(text))


class Requirements(msgspec.Struct, frozen=True, gc=False):
    """The necessary `conditions` of a rule. `sufficient`: the rule is true if all conditions hold, and never raises."""

    conditions: tuple[Condition, ...]
    sufficient: bool


_UNKNOWN: Final = Requirements((), sufficient=False)
_ALWAYS: Final = Requirements((), sufficient=True)
_NEVER: Final = Requirements((Condition("op", "equals", frozenset()),), sufficient=True)


def requirements_of(checked: CheckedExpression) -> Requirements:
    """Return the conditions of a rule over RULE_VARIABLES."""
    return _requirements(checked.root, checked)


def warehouses_of(conditions: Iterable[Condition]) -> frozenset[str] | None:
    """Return the warehouses that conditions name; None if they name none."""
    return next((one.texts for one in conditions if (one.variable, one.kind) == ("warehouse", "equals")), None)


def shared_requirements(readings: Sequence[CheckedExpression]) -> Requirements:
    """Return the conditions of a rule that is true where one of several readings is."""
    found = [requirements_of(checked) for checked in readings]
    return found[0] if len(found) == 1 else Requirements(_any_of(found).conditions, sufficient=False)


def role_readings(checked: CheckedExpression) -> tuple[CheckedExpression, ...]:
    """Return the readings of a forbid. The forbid binds where any reading is true.

    A test for a role reads EVERY_ROLE, a test against a role reads `roles`. For any other use, the first reading has
    EVERY_ROLE, and the second reading has `roles`.

    A gained role by other evidence makes no test for a role false, and changes no test against a role. So a gained role
    takes nobody out of a reading with such tests alone.
    """
    places: dict[Node, int] = {}
    _collect_role_tests(checked.root, 1, checked, places)
    every = [node for node, sign in places.items() if sign > 0]
    both = [node for node, sign in places.items() if not sign]
    chosen = [every + both, every] if both else [every]
    return tuple(_with_every_role(checked, nodes) for nodes in chosen)


def role_tests(checked: CheckedExpression) -> frozenset[int]:
    """Return the kinds of uses of `roles`: 1 for a role, -1 against one, 0 for a use that may be either."""
    places: dict[Node, int] = {}
    _collect_role_tests(checked.root, 1, checked, places)
    return frozenset(places.values())


def role_names(checked: CheckedExpression) -> frozenset[str]:
    """Return the constant texts beside `roles` in calls, and in macros over `roles`."""
    found: set[str] = set()
    for node in walk(checked.root):
        if isinstance(node, Call | Comprehension):
            parts = list(walk(node) if isinstance(node, Comprehension) else children(node))
            if any(variable_name(part, checked) == "roles" for part in parts):
                found |= {text for part in parts if (text := _text(part)) is not None}
    return frozenset(found)


def texts_beside_roles(checked: CheckedExpression) -> Iterator[str]:
    """Yield the constant texts in all calls and macros that read `roles`."""
    for node in walk(checked.root):
        if isinstance(node, Call | Comprehension):
            parts = list(walk(node))
            if any(variable_name(part, checked) in ("roles", EVERY_ROLE) for part in parts):
                yield from (text for part in parts if (text := _text(part)) is not None)


def _with_every_role(checked: CheckedExpression, nodes: Sequence[Node]) -> CheckedExpression:
    names = {**checked.names, **dict.fromkeys(nodes, Variable(EVERY_ROLE))}
    return msgspec.structs.replace(checked, names=names)


def _collect_role_tests(node: Node, sign: int, checked: CheckedExpression, places: dict[Node, int]) -> None:
    """Put each use of `roles` into `places`: 1 if more roles can only make the rule true, -1 if only false, else 0.

    `sign` is the same for the truth of `node`.
    """
    if variable_name(node, checked) == "roles":
        places[node] = 0
        return
    signs: dict[Node, int] = {}
    if isinstance(node, Logic):
        signs = dict.fromkeys(node.parts, sign)
    elif isinstance(node, Conditional):
        signs = {node.then: sign, node.otherwise: sign}
    elif isinstance(node, Call) and node.function == "!_":
        signs = {node.args[0]: -sign}
    elif isinstance(node, Call) and node.function == "@in":
        _place_list(node.args[1], sign, checked, places)
    elif isinstance(node, Comprehension) and node.macro in ("exists", "all"):
        signs = {node.body: sign}
        _place_list(node.range, sign if node.macro == "exists" else -sign, checked, places)
    for child in children(node):
        if child not in places:
            _collect_role_tests(child, signs.get(child, 0), checked, places)


def _place_list(node: Node, sign: int, checked: CheckedExpression, places: dict[Node, int]) -> None:
    """Put a list that is `roles` itself. More members make `x in list` and `list.exists` true, and `list.all` false."""
    if variable_name(node, checked) == "roles":
        places[node] = sign


def path_tests(checked: CheckedExpression) -> Iterator[Condition]:
    """Yield the tests of `path` anywhere in a rule."""
    for node in walk(checked.root):
        if isinstance(node, Call):
            condition = condition_of(node, checked) or _necessary_text(node, checked)
            if condition and condition.variable == "path":
                yield condition


def words_of(checked: CheckedExpression) -> frozenset[str]:
    """Return the texts of a rule that may be parts of a path, also those within a pattern."""
    texts = {node.value for node in walk(checked.root) if isinstance(node, Constant) and isinstance(node.value, str)}
    return frozenset(word for text in texts for word in (text, *_WORD.findall(_ESCAPED.sub(" ", text))) if word)


def _requirements(node: Node, checked: CheckedExpression) -> Requirements:
    if isinstance(node, Logic):
        parts = [_requirements(part, checked) for part in node.parts]
        return _all_of(parts) if node.conjunction else _any_of(parts)
    if isinstance(node, Constant) and isinstance(node.value, bool):
        return _ALWAYS if node.value else _NEVER
    if not isinstance(node, Call):
        return _UNKNOWN
    if condition := condition_of(node, checked):
        return Requirements((condition,), sufficient=True)
    condition = _necessary_text(node, checked)
    return Requirements((condition,), sufficient=False) if condition else _UNKNOWN


def _all_of(parts: Sequence[Requirements]) -> Requirements:
    """Return the requirements of `&&`: a condition of any part is a condition of the whole."""
    conditions = tuple(dict.fromkeys(condition for part in parts for condition in part.conditions))
    return Requirements(conditions, all(part.sufficient for part in parts))


def _any_of(parts: Sequence[Requirements]) -> Requirements:
    """Return the requirements of `||`.

    If every part tests the same variable in the same way, the whole tests for the union of the texts. Other conditions
    are lost: a part can be true without the condition of another. The union is sufficient only if each part is
    exactly this condition and no more. Of `(op == 'X' && role == 'a') || (op == 'Y' && role == 'b')` the unions alone
    would also admit op X with role b.
    """
    # If a part tests one variable twice in the same way, the table has the last test. Each test alone is necessary.
    tables = [
        {(condition.variable, condition.kind): condition.texts for condition in part.conditions} for part in parts
    ]
    shared = [key for key in tables[0] if all(key in table for table in tables)]
    conditions = tuple(Condition(*key, frozenset().union(*(table[key] for table in tables))) for key in shared)
    sufficient = all(part.sufficient and len(part.conditions) == 1 for part in parts) and len(conditions) == 1
    return Requirements(conditions, sufficient)


def condition_of(call: Call, checked: CheckedExpression) -> Condition | None:
    """Return the condition that a call is; None for another call."""
    operands = (call.target, *call.args) if call.target is not None else call.args
    if len(operands) != 2:
        return None
    left, right = operands
    if call.function == "_==_":
        return _equals(left, right, checked) or _equals(right, left, checked)
    if call.function == "@in":
        return _in(left, right, checked)
    if call.function in _STRING_TESTS:
        return _on_string(_STRING_TESTS[call.function], left, _text(right), checked)
    if call.function == "matches":
        return _matches(left, _text(right), checked)
    return None


def _equals(tested: Node, value: Node, checked: CheckedExpression) -> Condition | None:
    return _on_string("equals", tested, _text(value), checked)


def _in(left: Node, right: Node, checked: CheckedExpression) -> Condition | None:
    name = variable_name(right, checked)
    if name in _LISTS and (text := _text(left)) is not None:
        return _condition_on(name, "holds", (text,))
    texts = [_text(item) for item in right.items] if isinstance(right, ListOf) else [None]
    name = variable_name(left, checked)
    if name not in _STRINGS or None in texts:
        return None
    return _condition_on(name, "equals", tuple(text for text in texts if text is not None))


def _matches(tested: Node, pattern: str | None, checked: CheckedExpression) -> Condition | None:
    test = patterns.find_string_test(pattern) if pattern is not None else None
    name = variable_name(tested, checked)
    # With `one_line` the pattern also refuses line breaks, so the condition would not say all that the pattern says.
    if test is None or test.one_line or test.kind not in _PATTERN_KINDS or name not in _STRINGS:
        return None
    return _condition_on(name, _PATTERN_KINDS[test.kind], test.texts)


def _necessary_text(call: Call, checked: CheckedExpression) -> Condition | None:
    """Return the condition that a string holds a text that every match of a pattern holds; None without such a text."""
    operands = (call.target, *call.args) if call.target is not None else call.args
    if call.function != "matches" or len(operands) != 2:
        return None
    text = patterns.required_text(_text(operands[1]) or "")
    return _on_string("contains", operands[0], text, checked) if text else None


def _on_string(kind: Kind, tested: Node, text: str | None, checked: CheckedExpression) -> Condition | None:
    name = variable_name(tested, checked)
    return _condition_on(name, kind, (text,)) if name in _STRINGS and text is not None else None


@lru_cache(maxsize=16_384)
def _condition_on(variable: str, kind: Kind, texts: tuple[str, ...]) -> Condition:
    """Return a condition. Equal conditions of a large rule set are one object."""
    return Condition(variable, kind, frozenset(texts))


forget_conditions: Final = _condition_on.cache_clear
"""Forget which conditions are one object. A cache of thousands takes as much memory as the conditions."""


def _text(node: Node) -> str | None:
    return node.value if isinstance(node, Constant) and isinstance(node.value, str) else None


NAME_KINDS: Final[Mapping[str, str]] = {
    "role": "user",
    "roles": "role",
    "groups": "group",
    "warehouse": "warehouse",
    "path": "path",
    "ref": "ref",
    "contentType": "content",
    "type": "configuration",
    "actions": "operation",
    "op": "op",
    "action": "action",
    "arguments.user": "user",
    "arguments.catalog": "catalog",
    "arguments.schema": "schema",
    "arguments.table": "table",
    "arguments.function": "routine",
    "arguments.property": "property",
    "arguments.project": "project",
    "arguments.name": "named",
    "api.apiName": "api",
}
"""Variable, or key of one -> the kind of its names."""
WORDS: Final = frozenset({"op", "action"})
"""Variables with words of a closed set. Lint has other remarks on these in permits."""
_EMPTY_ON_CLUSTERS: Final = ("warehouse", "path", "ref", "contentType")
"""Variables without a value in a question on a cluster."""


def empty_on_clusters(checked: CheckedExpression) -> str:
    """Return a variable needed by a rule and empty in all questions of the rule; empty for none."""
    conditions = requirements_of(checked).conditions
    asked = [one for one in conditions if one.variable in WORDS and one.kind in ("equals", "starts") and one.texts]
    if not any(all(map(is_cluster_action, one.texts)) for one in asked):
        return ""
    needed = {one.variable for one in conditions if one.kind in _PATTERN_KINDS and not one.is_met_by("")}
    return next((name for name in _EMPTY_ON_CLUSTERS if name in needed), "")
