"""Plans of checks, with what is asked for forbids alone: the person behind an acting role, and other spellings.

An acting role is the principal, and its grants alone count. Rules then see neither the name nor the groups nor the
attributes of the person. So each concrete check of the role is also asked about the person.

A rename, a move and a grant may do more than their own action says. Each is also asked as that.

Engines that fold names mean one object by `HR` and `hr`. So each concrete check of a name is also asked in each other
spelling of forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from pdp.decision.active_policies import ActivePolicies
from pdp.decision.plan import AllOf, FixedDenial, Leaf, Node, PlanContext, Planner, Split, split
from pdp.engines.grants.model import INCLUDED_GRANTS
from pdp.engines.spelled_names import SpelledNames
from pdp.errors import AmbiguousName
from pdp.facts.snapshot import Facts
from pdp.model.answer import OTHER_SPELLING, STORE_STALE, Reason
from pdp.model.arrays import PathArray
from pdp.model.question import Check, Principal, Resource
from pdp.model.trino_operations import TRINO_OPERATIONS, TRINO_PREFIX
from pdp.model.vocabulary import RENAMES, TABULAR_TYPES

ASSUMED: Final[Reason] = "rule:acting_role"
"""Reason of the right to act as a role, and of each permit that a forbid on the person behind the role takes away."""
_NAMED: Final = frozenset({"content", "namespace", "table_or_view", *TABULAR_TYPES})
"""Types whose names engines fold."""
OTHER_DEED: Final[Reason] = "rule:other_deed"
"""Reason of another deed of a rename, a move or a grant, beside the own action. No permit is needed for such a deed."""
_OTHER_DEEDS: Final = {
    **INCLUDED_GRANTS,
    **{(type, "rename"): ("move",) for type in (*TABULAR_TYPES, "table_or_view")},
    **{(type, "move"): ("rename",) for type in (*TABULAR_TYPES, "table_or_view")},
}
"""(type, action) -> the actions that the action may do, too: a rename elsewhere is a move, and a move to another name a
rename. A grant of a privilege grants what the privilege includes."""
_TRINO_RENAMES: Final = {f"{TRINO_PREFIX}{name}" for name in TRINO_OPERATIONS if name.startswith("Rename")}
_MORE_ACTIONS: Final = frozenset({*(action for _, action in _OTHER_DEEDS), *_TRINO_RENAMES})
"""Actions whose plans may have such checks."""
_CONTAINERS: Final = ("warehouse", "namespace")
"""Types of containers of new objects: with an empty path, and with another."""


def plan(check: Check, context: PlanContext, planners: Sequence[Planner]) -> Node:
    """Plan a check with all other deeds of its action, in all spellings of names, and for an acting role."""
    node = _plan(check, context, planners)
    action = check.question.action
    if action in _MORE_ACTIONS and not check.question.rules_follow:
        node = _with_other_deeds(node, context.bundle)
    names = names_that_fold(check, context.bundle)
    return node if names is None else _in_spellings(node, context.bundle, names)


def context_of(check: Check, bundle: ActivePolicies, facts: Facts, *, stale: bool) -> PlanContext:
    """Return the context in which the planning of a check begins."""
    question = check.question
    principal = bundle.with_mapped_roles(question.principal)
    admin = principal.id in bundle.instance_admins and not question.inspected
    planned = question.planned(principal)
    return PlanContext(
        planned, bundle, facts, stale, admin, question.rules_follow, question.session, unfiltered=question.unfiltered
    )


def _plan(check: Check, context: PlanContext, planners: Sequence[Planner]) -> Node:
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


def plan_action(check: Check, context: PlanContext, planners: Sequence[Planner]) -> Node:
    """Plan a check for the principal of a context: the first planner that knows the subject, else the plain plan."""
    for planner in planners:
        if node := planner(context, check):
            return node
    return context.concrete(check.question.action, check.resources)


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


def _with_other_deeds(node: Node, bundle: ActivePolicies) -> Node:
    """Ask renames, moves and grants also by their other deeds, where an engine can forbid those."""
    if isinstance(node, FixedDenial):
        return node
    if not isinstance(node, Leaf):
        return replace(node, parts=tuple([_with_other_deeds(part, bundle) for part in node.parts]))
    group = node.group
    kind = group.type, group.action
    asked = [action for action in _OTHER_DEEDS.get(kind, ()) if _may_forbid(bundle, group.warehouse, action, kind[0])]
    if not asked:
        return node

    def deeds(does_more: bool, part: Sequence[Resource]) -> Node:
        if not does_more:
            return replace(node, resources=part)
        others = [replace(group, question=replace(group.question, action=action)) for action in asked]
        return AllOf((replace(node, resources=part), *(Leaf(other, part, OTHER_DEED) for other in others)), named=False)

    return split(node.resources, _does_more(group.action), deeds)


def _does_more(action: str) -> Callable[[Resource], bool]:
    """Return the test of a rename that is a move, or of a move that is a rename. Without a destination nobody knows."""

    def test(resource: Resource) -> bool:
        target = resource.arguments.destination
        if action not in RENAMES or target is None:
            return True
        if action == "move":
            return target.path[-1:] != resource.path[-1:]
        return (target.warehouse, target.path[:-1]) != (resource.warehouse, resource.path[:-1])

    return test


def names_that_fold(check: Check, bundle: ActivePolicies) -> SpelledNames | None:
    """Return the names of forbids that bind a check in any case; None for none.

    A load and a change of a view come from an engine, and what shows whole tables speaks for engines. An edit changes
    what engines of other warehouses show, too. Any other check counts where the names of the warehouse fold. Operations
    of Trino are planned in all spellings already.
    """
    question = check.question
    if not bundle.spelled.forbidden or question.action.startswith(TRINO_PREFIX):
        return None
    if question.rules_follow:
        folds = bool(bundle.trino.catalogs)
    else:
        is_of_engine = question.view_security is not None or question.unfiltered
        folds = is_of_engine or check.resources[0].warehouse in bundle.folding
    return bundle.spelled if folds else None


def has_other_spellings(check: Check, bundle: ActivePolicies) -> bool:
    """Tell whether a check is also asked under other names."""
    names = names_that_fold(check, bundle)
    return names is not None and any(found is None or found for found in _others_of(check.resources, names))


def _in_spellings(node: Node, bundle: ActivePolicies, names: SpelledNames) -> Node:
    """Ask the concrete checks of a plan in each other spelling, too, where an engine can forbid."""
    if isinstance(node, FixedDenial):
        return node
    if not isinstance(node, Leaf):
        return replace(node, parts=tuple([_in_spellings(part, bundle, names) for part in node.parts]))
    group = node.group
    if not _may_forbid(bundle, group.warehouse, group.action, group.type):
        return node
    others = _others_of(node.resources, names)
    rows = [row for row, found in enumerate(others) if found is None or found]
    if not rows:
        return node
    spelled = _spelled_leaf(node, rows, others)
    plain = sorted({*range(len(others))}.difference(rows))
    return Split((rows, plain), (spelled, _of_rows(node, plain))) if plain else spelled


def _spelled_leaf(leaf: Leaf, rows: Sequence[int], others: Sequence[Sequence[Resource] | None]) -> Node:
    """Return the checks of some resources of a leaf in all spellings; deny names with too many."""
    own = _of_rows(leaf, rows)
    found = [others[row] for row in rows]
    if any(each is None for each in found):
        return AllOf((own, FixedDenial(AmbiguousName.code, leaf.group, own.resources)), named=False)
    count = max(len(each or ()) for each in found)
    columns = [
        [each[at] if each and at < len(each) else leaf.resources[row] for row, each in zip(rows, found, strict=True)]
        for at in range(count)
    ]

    def spelled(type: str, column: Sequence[Resource]) -> Leaf:
        concrete = leaf.group.type if type == "table_or_view" else type
        return Leaf(replace(leaf.group, type=concrete), column, OTHER_SPELLING)

    return AllOf((own, *(split(column, attrgetter("type"), spelled) for column in columns)), named=False)


def _of_rows(leaf: Leaf, rows: Sequence[int]) -> Leaf:
    if len(rows) == len(leaf.resources):
        return leaf
    return replace(leaf, resources=[leaf.resources[row] for row in rows])


def _others_of(resources: Sequence[Resource], names: SpelledNames) -> Sequence[Sequence[Resource] | None]:
    """Return the other spellings of each resource; None for too many."""
    if type(resources) is PathArray and not names.may_have_others(
        resources.warehouse, resources.parents, resources.names
    ):
        return [()] * len(resources)
    return [_spellings(resource, names) for resource in resources]


def _spellings(resource: Resource, names: SpelledNames) -> Sequence[Resource] | None:
    try:
        return tuple(_otherwise(resource, names))
    except AmbiguousName:
        return None


def _otherwise(resource: Resource, names: SpelledNames) -> Iterator[Resource]:
    """Yield a resource with the other spellings of forbids for itself, and for what is made or moved there."""
    arguments = resource.arguments
    if resource.type not in _NAMED and not (resource.type == "warehouse" and arguments.name):
        return
    if arguments.name:
        for *path, name in names.other_paths(resource.warehouse, (*resource.path, arguments.name)):
            type = _CONTAINERS[bool(path)] if resource.type in _CONTAINERS else resource.type
            given = {**arguments.given, "name": name}
            named = replace(arguments, name=name, given=given)
            yield replace(resource, type=type, path=tuple(path), arguments=named)
        return
    for other in names.other_paths(resource.warehouse, resource.path):
        yield replace(resource, path=other)
    if arguments.destination is not None:
        for target in _otherwise(arguments.destination, names):
            yield replace(resource, arguments=replace(arguments, destination=target))
