"""Prepared plans: the questions of a cached plan, ready to be asked about one resource after another.

The engines of each leaf are chosen, and have done their work for the question, before the resource is known. Leaves
often ask an engine the same: a table and a view of one name mostly meet the same rules. Such questions are asked once.

Valid for one bundle and one snapshot of the facts, as the plan is. `decide_check` decides one resource without
preparation: a prepared plan gives the same outcome, or none.

Long requests gather the leaves of all trees first, so that each engine is called once per question. `decide_check` has
few leaves, and decides each when the fold needs the leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from pdp.audit.records.record import DecidedCheck, LeafDecision
from pdp.decision.active_policies import ActivePolicies, EngineStack
from pdp.decision.combine import combine_one, denial_verdicts, fold_parts, leaves
from pdp.decision.evaluation import LeafVerdicts
from pdp.decision.plan import AnyOf, FixedDenial, Leaf, Node
from pdp.engines.engine import SILENT, EngineQuestion, FixedAnswer, PreparingEngine, ResourceCall, Verdicts
from pdp.facts.snapshot import Facts
from pdp.model.question import Check, Resource


class _StackQuestion(NamedTuple):
    """Engines that decide a leaf, and the numbers of their calls, in the same order.

    `combined` is false if the only engine decides alone.
    """

    stack: EngineStack
    calls: tuple[int, ...]
    combined: bool


class PreparedPlan:
    """Plan whose engines' work for the question is done. `frames` is a place for texts of the audit's encoder."""

    __slots__ = ("_groups", "_is_plain", "frames", "numbers")

    def __init__(self, *, is_plain: bool) -> None:
        """Make a plan without leaves. `is_plain`: its one leaf is the check itself."""
        self._is_plain = is_plain
        self._groups: list[tuple[EngineQuestion, int]] = []
        """The questions of leaves, each with the number of its verdicts."""
        self.numbers: tuple[int, ...] = ()
        self.frames: dict[Any, Any] = {}

    def add_leaf(self, group: EngineQuestion, number: int) -> None:
        """Add a leaf, decided by the verdicts of a number."""
        self._groups.append((group, number))
        self.numbers = tuple([number for _, number in self._groups]) + (() if self._is_plain else (-1,))

    def verdicts(self, resource: Resource) -> Sequence[Verdicts] | None:
        """Return the verdicts on a resource, the outcome last; None if only the plain way can decide the check."""
        raise NotImplementedError

    def decided(self, check: Check, found: Sequence[Verdicts]) -> DecidedCheck:
        """Return the decided check of one resource with these verdicts."""
        resources, at = check.resources, check.at
        leaves = tuple([LeafDecision(group, resources, at, found[number]) for group, number in self._groups])
        return DecidedCheck(check, self._is_plain, leaves, found[-1])


class PreparedLeaf(PreparedPlan):
    """Plan of one leaf that one engine decides alone."""

    __slots__ = ("_call",)

    def __init__(self, group: EngineQuestion, call: ResourceCall, action: str) -> None:
        """Keep the call. `action` is the action of the check."""
        super().__init__(is_plain=group.action == action)
        self._call = call
        self.add_leaf(group, 0)

    def verdicts(self, resource: Resource) -> Sequence[Verdicts] | None:
        """Return the verdict of the engine."""
        try:
            outcome = self._call(resource)
        except Exception:  # noqa: BLE001  the plain way denies, logs and counts the failure
            return None
        return None if outcome is None else (outcome,)


class PreparedTree(PreparedPlan):
    """Plan of one leaf, or of any of several, with any number of engines."""

    __slots__ = ("_calls", "_found", "_has_fixed", "_node", "_open", "_stacks")

    def __init__(self, node: Leaf | AnyOf, action: str) -> None:
        """Make a plan without engines. `action` is the action of the check."""
        super().__init__(is_plain=isinstance(node, Leaf) and node.group.action == action)
        self._node = node
        self._calls: list[ResourceCall] = []
        self._found: list[Verdicts] = []
        """Verdicts by the number of the call. Those of calls without a fixed answer are replaced for each resource."""
        self._open: list[tuple[int, ResourceCall]] = []
        self._has_fixed = False
        self._stacks: list[_StackQuestion] = []

    def add(self, group: EngineQuestion, stack: EngineStack, calls: Sequence[ResourceCall]) -> None:
        """Add a leaf with its engines, and their calls in the same order. Equal calls are kept once."""
        for call in calls:
            if call not in self._calls:
                self._add_call(call)
        stack, calls = _without_silent(stack, calls)
        question = _StackQuestion(stack, tuple(map(self._calls.index, calls)), len(calls) > 1 or not stack.single)
        if question not in self._stacks:
            self._stacks.append(question)
        self.add_leaf(group, self._stacks.index(question))

    def _add_call(self, call: ResourceCall) -> None:
        if isinstance(call, FixedAnswer):
            self._has_fixed = True
            self._found.append(call.verdicts)
        else:
            self._open.append((len(self._calls), call))
            self._found.append(SILENT)
        self._calls.append(call)

    def verdicts(self, resource: Resource) -> Sequence[Verdicts] | None:
        """Return the verdicts of each stack, and the outcome of the fold if there are several."""
        if self._has_fixed and (resource.content_type or resource.properties):
            return None
        found = self._found.copy()
        try:
            for number, call in self._open:
                verdicts = call(resource)
                if verdicts is None:
                    return None
                found[number] = verdicts
        except Exception:  # noqa: BLE001  the plain way denies, logs and counts the failure
            return None
        outcomes = [
            combine_one([found[number] for number in calls], stack) if combined else found[calls[0]]
            for stack, calls, combined in self._stacks
        ]
        if len(outcomes) > 1:
            parts = [outcomes[number] for _, number in self._groups]
            outcomes.append(fold_parts(self._node, parts))  # type: ignore[arg-type]
        return outcomes


def _without_silent(stack: EngineStack, calls: Sequence[ResourceCall]) -> tuple[EngineStack, Sequence[ResourceCall]]:
    """Return a stack and its calls without engines that are silent about every resource.

    Such an engine changes nothing, unless all engines must permit.
    """
    kept = [
        number
        for number, call in enumerate(calls)
        if not _is_silent(call) or (number >= stack.forbids and stack.combine == "all")
    ]
    engines = tuple([stack.engines[number] for number in kept])
    fewer = EngineStack(engines, sum([number < stack.forbids for number in kept]), stack.combine)
    # Silence has another reason without an engine that could permit.
    if not kept or len(kept) == len(calls) or fewer.silence != stack.silence:
        return stack, calls
    return fewer, [calls[number] for number in kept]


def _is_silent(call: ResourceCall) -> bool:
    """Tell whether a call is silent about every resource, without a reason and without errors."""
    return (
        isinstance(call, FixedAnswer)
        and (call.verdicts.effects, *call.verdicts.by) == (SILENT.effects, None)
        and not call.verdicts.errors
    )


def prepare_plan(node: Node, action: str, bundle: ActivePolicies, facts: Facts) -> PreparedPlan | None:
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


def _calls(stack: EngineStack, group: EngineQuestion, facts: Facts) -> Sequence[ResourceCall]:
    """Return the calls of the engines of a stack; none if an engine has no call."""
    calls = []
    for engine in stack.engines:
        call = engine.prepare(group, facts) if isinstance(engine, PreparingEngine) else None
        if call is None:
            return ()
        calls.append(call)
    return calls


LeafCall: TypeAlias = Callable[[Leaf, Sequence[Resource]], Verdicts]
"""Call of the engines about a leaf."""


def decide_check(check: Check, tree: Node, decide: LeafCall) -> DecidedCheck:
    """Decide a check of one resource; return the decided check with its outcome.

    Leaves of `tree` without resources ask about the resource of the check.
    """
    if type(tree) is Leaf:
        resources = tree.resources or check.resources
        verdicts = decide(tree, resources)
        plain = (
            resources is check.resources
            and tree.group.action == check.question.action
            and check.question.view_security is None
        )
        leaf = LeafDecision(tree.group, resources, check.at, verdicts)
        return DecidedCheck(check, plain, (leaf,), verdicts)
    concrete: list[LeafDecision] = []
    outcome = _decide(tree, check, decide, concrete)
    plain = False
    if type(tree) is FixedDenial and check.question.view_security is None:
        leaf = concrete[0]
        plain = leaf.group.action == check.question.action and leaf.resources is check.resources
    return DecidedCheck(check, plain, tuple(concrete), outcome)


def _decide(node: Node, check: Check, decide: LeafCall, concrete: list[LeafDecision]) -> Verdicts:
    """Return the outcome of a tree. Add its decided leaves to `concrete`, in order."""
    kind = type(node)
    if kind is Leaf:
        resources = node.resources or check.resources  # type: ignore[union-attr]
        verdicts = decide(node, resources)  # type: ignore[arg-type]
    elif kind is FixedDenial:
        resources, verdicts = node.resources, denial_verdicts(node)  # type: ignore[union-attr,arg-type]
    else:
        columns = [_decide(part, check, decide, concrete) for part in node.parts]  # type: ignore[union-attr]
        return fold_parts(node, columns)  # type: ignore[arg-type]
    concrete.append(leaf_decision(node, resources, check.at, verdicts))  # type: ignore[arg-type]
    return verdicts


def leaf_decision(
    leaf: Leaf | FixedDenial, resources: Sequence[Resource], at: Sequence[int], verdicts: Verdicts
) -> LeafDecision:
    """Return the decision on a leaf about resources at positions of the answer."""
    return LeafDecision(leaf.group, resources, at, verdicts, leaf.restrictions)


def _decided_leaf(check: Check, leaf: Leaf | FixedDenial, verdicts: Verdicts) -> DecidedCheck:
    group, resources, question = leaf.group, leaf.resources, check.question
    plain = group.action == question.action and resources is check.resources and question.view_security is None
    return DecidedCheck(check, plain, (LeafDecision(group, resources, check.at, verdicts),), verdicts)


def decided_check(check: Check, tree: Node, verdicts_of: LeafVerdicts, outcome: Verdicts) -> DecidedCheck:
    """Return a check with its concrete checks. It is plain if the tree is one leaf that asks the same."""
    if isinstance(tree, Leaf | FixedDenial):
        return _decided_leaf(check, tree, outcome)
    decisions = [leaf_decision(leaf, leaf.resources, at, verdicts_of(leaf)) for leaf, at in leaves(tree, check.at)]
    return DecidedCheck(check, False, tuple(decisions), outcome)
