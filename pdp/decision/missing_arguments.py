"""Plans of checks without the name of a new object, or without the destination of a move.

Nobody knows the path then. Rules see no `path`, and row policies and forbids on any possible path deny. Engines permit
as for a named object.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache, partial
from typing import Final

from pdp.decision.plan import (
    MOST_OBJECTS_BELOW,
    RENAME_TO,
    TOO_MANY_OBJECTS,
    AllOf,
    FixedDenial,
    Node,
    PlanContext,
    Split,
)
from pdp.facts.objects import ObjectKey, TablePath
from pdp.model.answer import MISSING_ARGUMENT
from pdp.model.arrays import positions_by
from pdp.model.question import Arguments, Check, Resource, is_missing
from pdp.model.vocabulary import ARGUMENTS, CREATE_ACTION, RENAMES, TABLE_OR_VIEW

UNKNOWN_PLACE: Final = "rule:unknown_destination"
"""The reason of a creation at an unknown place, which nothing needs to permit."""
_DEEP: Final = frozenset({*RENAMES, CREATE_ACTION["namespace"]})
"""Actions by which tables at any depth can get their names."""


def plan_missing_arguments(context: PlanContext, check: Check) -> Node | None:
    """Plan a check with resources without a name or destination; None for every other check."""
    question, type = check.question, check.resources[0].type
    argument = ARGUMENTS.get((type, question.action), "")
    has_rules = context.bundle.row_access.tables or context.facts.index.rules
    if not argument or question.nameless or not (has_rules or question.action in RENAMES):
        return None
    missing = [is_missing(argument, resource) for resource in check.resources]
    if not any(missing):
        return None
    may_be_hidden = cache(partial(_may_be_hidden, context))
    is_rename = question.action in RENAMES
    takes_along = is_rename and type == "namespace"
    keys = [
        (
            without and is_rename,
            without and may_be_hidden(_top(resource, question.action)),
            context.content(resource) if without and takes_along else (),
        )
        for without, resource in zip(missing, check.resources, strict=True)
    ]
    if not any(map(any, keys)):
        return None
    places = positions_by(keys, lambda key: key)
    if len(places) == 1:
        return _plan(context, keys[0], check.resources)
    parts = tuple(_plan(context, key, [check.resources[at] for at in rows]) for key, rows in places.items())
    return Split(tuple(places.values()), parts)


def _plan(context: PlanContext, key: tuple[bool, bool, Sequence[ObjectKey]], resources: Sequence[Resource]) -> Node:
    """Plan resources by three answers: is a destination missing, may a row policy hide a name, and what comes along."""
    action, type = context.question.action, resources[0].type
    is_moved, is_hidden, content = key
    if len(content) > MOST_OBJECTS_BELOW:
        return context.denied(TOO_MANY_OBJECTS, action, resources)
    node = context.concrete(action, resources)
    more = _creations(context, resources, {one[0] for one in content}) if is_moved else []
    more += [context.departures(one, resources, [None] * len(resources)) for one in content]
    if is_hidden:  # behind the other parts, so that these keep the reasons of their denials
        group = context.group(type, action, resources[0])
        more.append(FixedDenial(MISSING_ARGUMENT, group, resources, (MISSING_ARGUMENT,)))
    return AllOf((node, *more), named=False) if more else node


def _top(resource: Resource, action: str) -> TablePath:
    """Return the container of all possible names: a rename may lead anywhere in the warehouse."""
    return (resource.warehouse,) if action in RENAMES else (resource.warehouse, *resource.path)


def _may_be_hidden(context: PlanContext, top: TablePath) -> bool:
    """Tell whether a row policy or mask restricts a table with a possible name below a container."""
    warehouse, *path = top
    if not warehouse:
        return False
    tables = context.bundle.row_access.tables_below(Resource("namespace", warehouse, tuple(path)), context.facts)
    if context.question.action not in _DEEP:
        tables = [each for each in tables if len(each) == len(top)]
    return any(context.restriction(Resource("table", warehouse, each)).reason for each in tables)


def _creations(context: PlanContext, resources: Sequence[Resource], below: Collection[str]) -> list[Node]:
    """Return the creations at an unknown place behind a rename. A forbid there denies, and no permit is needed.

    `below` are the types of the known objects that come along: each stands in a namespace afterwards.
    """
    type = resources[0].type
    types = [kind for kind, _ in TABLE_OR_VIEW[context.question.action]] if type == "table_or_view" else [type]
    containers = ("warehouse", "namespace") if type == "namespace" else ("namespace",)
    to = context.with_actions((RENAME_TO,))
    found: list[Node] = []
    for container in containers:
        places = [_place(resource, container) for resource in resources]
        actions = [CREATE_ACTION[kind] for kind in types]
        if container == "namespace":
            actions += [CREATE_ACTION[kind] for kind in sorted(below) if kind not in types]
        found += [
            to.permitted(UNKNOWN_PLACE, action, places)
            for action in actions
            if context.bundle.may_forbid(resources[0].warehouse, action, container)
        ]
    return found


def _place(resource: Resource, container: str) -> Resource:
    """Return the container of an object without a destination: somewhere in the warehouse."""
    path = (resource.path[:-1] or resource.path) if container == "namespace" else ()
    return Resource(container, resource.warehouse, path, resource.ref, arguments=Arguments(missing_place=True))
