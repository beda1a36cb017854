"""Plans of checks, behind acting roles: the plan for the role, and the forbids on the person behind the role.

The role is the principal, and its grants alone count. Rules then see neither the name nor the groups nor the attributes
of the person. So each concrete check of the role is also asked about the person, and there only forbids count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.plan import AllOf, FixedDenial, Leaf, Node, PlanContext, Planner, plan_action
from pdp.model.answer import STORE_STALE, Reason
from pdp.model.question import Check, Principal, Resource

ASSUMED: Final[Reason] = "rule:acting_role"
"""Reason of the right to act as a role, and of each permit that a forbid on the person behind the role takes away."""


def plan(check: Check, context: PlanContext, planners: Sequence[Planner]) -> Node:
    """Plan a check, for the acting role if the check has one."""
    action, role = check.question.action, check.question.acting_role
    if role is None:
        return plan_action(check, context, planners)
    if context.stale:  # the right to act as a role is a fact too, and stale facts permit nothing
        return context.denied(STORE_STALE, action, check.resources)
    if not context.facts.can_assume(context.principal, role):
        return context.denied("cannot_assume", action, check.resources)
    person, principal = context.principal, context.principal.acting_as(role)
    acting = replace(context.asking(principal=principal), admin=False, person=person)
    node = _with_person(plan_action(check, acting, planners), acting, person)
    if not _may_forbid(context.bundle, "", "assume", "role"):
        return node
    return AllOf((node, _assumption(check, context, role)), named=False)


def _with_person(node: Node, acting: PlanContext, person: Principal) -> Node:
    """Ask the concrete checks of the role about the person, too, where an engine can forbid.

    Each pair stands where the check stood, so that all other parts of the plan keep their meaning. The owner of a view
    acts as nobody.
    """
    if isinstance(node, FixedDenial):
        return node
    if not isinstance(node, Leaf):
        return replace(node, parts=tuple([_with_person(part, acting, person) for part in node.parts]))
    group = node.group
    if group.principal != acting.principal or not _may_forbid(acting.bundle, group.warehouse, group.action, group.type):
        return node
    question = replace(group.question, principal=person, acting_role=acting.principal.name)
    return AllOf((node, Leaf(replace(group, question=question), node.resources, ASSUMED)), named=False)


def _may_forbid(bundle: ActivePolicies, warehouse: str, action: str, type: str) -> bool:
    """Tell whether a policy can forbid an action on a type in a warehouse, one in report mode included."""
    reporting = (report.bundle for report in bundle.reports if report.covers(warehouse))
    return any(each.has_forbids(warehouse, action, type) for each in (bundle, *reporting))


def _assumption(check: Check, context: PlanContext, role: str) -> Leaf:
    """Plan the right to act as a role of the facts: a forbid on the person denies."""
    places = [Resource("role", name=role)] * len(check.resources)
    own = context.asking(acting_role=None, action="assume", view_security=None, delegated=False)
    return own.permitted(ASSUMED, "assume", places)
