"""Prepared plans: the questions of a remembered plan, ready to be asked about one resource after another.

The engines of each leaf are chosen, and have done their work for the group, before the resource is known. Leaves often
ask an engine the same: a table and a view of one name mostly meet the same rules. Such questions are asked once.

Valid for one bundle and one snapshot of the facts, as the plan is. The plain way is `one_resource`: a prepared plan
gives the same outcome, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pdp.audit.record import DecidedCheck, LeafDecision
from pdp.decision.bundle import Bundle, EngineStack
from pdp.decision.combine import combine_one
from pdp.decision.fold import fold_parts
from pdp.decision.tree import AnyOf, Leaf, Node
from pdp.engines.engine import Group, PreparingEngine, ResourceCall, Verdicts
from pdp.facts.snapshot import Facts
from pdp.model.checks import Check


class _StackQuestion(NamedTuple):
    """Engines that decide a leaf, and the numbers of their calls, in the same order."""

    stack: EngineStack
    calls: tuple[int, ...]


class PreparedPlan(Protocol):
    """Plan whose engines' work for the group is done."""

    def decide(self, check: Check) -> DecidedCheck | None:
        """Return a decided check of one resource; None if only the plain way can decide the check."""
        ...


class PreparedLeaf:
    """Plan of one leaf that one engine decides alone."""

    __slots__ = ("_call", "_group", "_is_plain")

    def __init__(self, group: Group, call: ResourceCall, action: str) -> None:
        """Keep the call. `action` is the action of the check."""
        self._group = group
        self._call = call
        self._is_plain = group.action == action

    def decide(self, check: Check) -> DecidedCheck | None:
        """Return a decided check of one resource; None if only the plain way can decide the check."""
        resources = check.resources
        try:
            outcome = self._call(resources[0])
        except Exception:  # noqa: BLE001  the plain way denies, logs and counts the failure
            return None
        if outcome is None:
            return None
        leaf = LeafDecision(self._group, resources, check.at, outcome)
        return DecidedCheck(check, self._is_plain, (leaf,), outcome)


class PreparedTree:
    """Plan of one leaf, or of any of several, with any number of engines."""

    __slots__ = ("_calls", "_is_plain", "_leaves", "_node", "_stacks")

    def __init__(self, node: Leaf | AnyOf, action: str) -> None:
        """Make a plan without engines. `action` is the action of the check."""
        self._node = node
        self._is_plain = isinstance(node, Leaf) and node.group.action == action
        self._calls: list[ResourceCall] = []
        self._stacks: list[_StackQuestion] = []
        self._leaves: list[tuple[Group, int]] = []
        """The groups of leaves, each with the number of its stack."""

    def add(self, group: Group, stack: EngineStack, calls: Sequence[ResourceCall]) -> None:
        """Add a leaf with its engines, and their calls in the same order. Equal calls are kept once."""
        for call in calls:
            if call not in self._calls:
                self._calls.append(call)
        question = _StackQuestion(stack, tuple(map(self._calls.index, calls)))
        if question not in self._stacks:
            self._stacks.append(question)
        self._leaves.append((group, self._stacks.index(question)))

    def decide(self, check: Check) -> DecidedCheck | None:
        """Return a decided check of one resource; None if only the plain way can decide the check."""
        resources, at = check.resources, check.at
        resource = resources[0]
        found: list[Verdicts] = []
        for call in self._calls:
            try:
                verdicts = call(resource)
            except Exception:  # noqa: BLE001  the plain way denies, logs and counts the failure
                return None
            if verdicts is None:
                return None
            found.append(verdicts)
        outcomes = [
            found[calls[0]] if len(calls) == 1 and stack.single else combine_one([found[at] for at in calls], stack)
            for stack, calls in self._stacks
        ]
        leaves = tuple([LeafDecision(group, resources, at, outcomes[number]) for group, number in self._leaves])
        if len(outcomes) == 1:
            outcome = outcomes[0]
        else:
            outcome = fold_parts(self._node, [outcomes[number] for _, number in self._leaves])  # type: ignore[arg-type]
        return DecidedCheck(check, self._is_plain, leaves, outcome)


def prepare_plan(node: Node, action: str, bundle: Bundle, facts: Facts) -> PreparedPlan | None:
    """Return the prepared plan of a check of an action; None for a plan that only the plain way can decide."""
    if not isinstance(node, Leaf | AnyOf):
        return None
    tree = PreparedTree(node, action)
    for leaf in (node,) if isinstance(node, Leaf) else node.parts:
        if not isinstance(leaf, Leaf) or leaf.override is not None:
            return None
        group = leaf.group
        stack = bundle.engines_for(group.warehouse, group.action, group.type)
        calls = _calls(stack, group, facts)
        if not calls:
            return None
        if leaf is node and stack.single:
            return PreparedLeaf(group, calls[0], action)
        tree.add(group, stack, calls)
    return tree


def _calls(stack: EngineStack, group: Group, facts: Facts) -> Sequence[ResourceCall]:
    """Return the calls of the engines of a stack; none if an engine has no call."""
    calls = []
    for engine in stack.engines:
        call = engine.prepare(group, facts) if isinstance(engine, PreparingEngine) else None
        if call is None:
            return ()
        calls.append(call)
    return calls
