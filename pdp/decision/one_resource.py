"""Decisions about one resource: each leaf of a tree is decided when the fold needs it.

Long requests gather the leaves of all trees first, so that each engine is called once per group. A single question has
few leaves, and needs no groups. Pure but for the engines' calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pdp.audit.records.record import DecidedCheck, LeafDecision
from pdp.decision.fold import fixed_verdicts, fold_parts
from pdp.decision.tree import FixedDecision, Leaf, Node
from pdp.engines.engine import Verdicts
from pdp.model.question import Check, Resource

LeafCall: TypeAlias = Callable[[Leaf, Sequence[Resource]], Verdicts]
"""Call of the engines about a leaf."""


def decide_check(check: Check, tree: Node, decide: LeafCall) -> DecidedCheck:
    """Decide a check of one resource; return the decided check with its outcome.

    Leaves of `tree` without resources ask about the resource of the check.
    """
    if type(tree) is Leaf:
        resources = tree.resources or check.resources
        verdicts = decide(tree, resources)
        plain = resources is check.resources and tree.group.action == check.action and check.view_security is None
        leaf = LeafDecision(tree.group, resources, check.at, verdicts)
        return DecidedCheck(check, plain, (leaf,), verdicts)
    concrete: list[LeafDecision] = []
    outcome = _decide(tree, check, decide, concrete)
    plain = False
    if type(tree) is FixedDecision and check.view_security is None:
        leaf = concrete[0]
        plain = leaf.group.action == check.action and leaf.resources is check.resources
    return DecidedCheck(check, plain, tuple(concrete), outcome)


def _decide(node: Node, check: Check, decide: LeafCall, concrete: list[LeafDecision]) -> Verdicts:
    """Return the outcome of a tree. Add its decided leaves to `concrete`, in order."""
    kind = type(node)
    if kind is Leaf:
        resources = node.resources or check.resources  # type: ignore[union-attr]
        verdicts = decide(node, resources)  # type: ignore[arg-type]
    elif kind is FixedDecision:
        resources, verdicts = node.resources, fixed_verdicts(node)  # type: ignore[union-attr,arg-type]
    else:
        columns = [_decide(part, check, decide, concrete) for part in node.parts]  # type: ignore[union-attr]
        return fold_parts(node, columns)  # type: ignore[arg-type]
    concrete.append(LeafDecision(node.group, resources, check.at, verdicts))  # type: ignore[union-attr]
    return verdicts
