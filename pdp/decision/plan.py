"""Planning: a check to a tree of concrete checks. Every request takes this way.

Owns the tree, default refs, aliases, renames and `table_or_view`. Acting roles are planned by `acting_roles.py`, view
chains and Trino's operations by planners that the composition root hands in. Must not know the insides of an engine,
nor any surface.

One tree covers all resources of a check: every node holds a column of resources, not one resource.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from pdp.decision.active_policies import ActivePolicies, drop_of
from pdp.engines.engine import EngineQuestion
from pdp.engines.row_access.engine import PROTECTED, Restriction
from pdp.engines.row_access.through_views import through
from pdp.facts.objects import ObjectKey, arrival_of, moved
from pdp.facts.snapshot import Facts
from pdp.model.answer import ReadRestrictions, Reason
from pdp.model.arrays import positions_by
from pdp.model.question import VERSIONED_TYPES, Arguments, Check, Principal, QuerySession, Question, Resource
from pdp.model.trino_operations import TRINO_PREFIX
from pdp.model.vocabulary import (
    ALIASES,
    CATALOG_ACTIONS,
    CONFIG_CHECKS,
    CREATE_ACTION,
    DATA_ACTIONS,
    NESSIE_CHECKS,
    NESSIE_TARGETS,
    RENAMES,
    ROW_ACTIONS,
    TABLE_OR_VIEW,
)

K = TypeVar("K", bound=Hashable)


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """Concrete check of many resources: one action on one concrete type, for the engines to decide.

    `override` is a reason to permit where the engines neither forbid nor fail. A permit comes with the `restrictions`.
    """

    group: EngineQuestion
    resources: Sequence[Resource]
    override: Reason | None = None
    restrictions: ReadRestrictions | None = None


class FixedDenial(msgspec.Struct, frozen=True, gc=False):
    """Denial without an engine, with the same reason for every resource.

    No node permits without a question: a permit by the configuration is a Leaf with an override.
    """

    by: Reason
    group: EngineQuestion
    resources: Sequence[Resource]
    errors: tuple[str, ...] = ()
    restrictions: ReadRestrictions | None = None


class AllOf(msgspec.Struct, frozen=True, gc=False):
    """Conjunction: every part must permit. Without `named`, a denial keeps the reason of its part as it stands."""

    parts: tuple[Node, ...]
    named: bool = True


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """Disjunction of dependent parts: one permit suffices, but a forbid or a failure of any part denies."""

    parts: tuple[Node, ...]


class AnyAlone(msgspec.Struct, frozen=True, gc=False):
    """Disjunction of independent parts: one permit suffices even if another part forbids or fails.

    With `optional`, no permit is needed: the parts are only reported.
    """

    parts: tuple[Node, ...]
    optional: bool = False


class Split(msgspec.Struct, frozen=True, gc=False):
    """Resources that need different trees. `parts[k]` is the tree of the rows `at[k]`."""

    at: tuple[Sequence[int], ...]
    parts: tuple[Node, ...]


Node: TypeAlias = Leaf | FixedDenial | AllOf | AnyOf | AnyAlone | Split
PlanOf: TypeAlias = Callable[[Sequence[Resource]], Node]


def split(
    resources: Sequence[Resource], key: Callable[[Resource], K], node: Callable[[K, list[Resource]], Node]
) -> Node:
    """Return the tree of resources with different keys. `node` plans the resources of one key."""
    rows_by = positions_by(resources, key)
    parts = tuple(node(value, [resources[row] for row in rows]) for value, rows in rows_by.items())
    return parts[0] if len(parts) == 1 else Split(tuple(rows_by.values()), parts)


def leaves_of(node: Node) -> list[Leaf | FixedDenial]:
    """Return the leaves of a tree in order."""
    kind = type(node)
    if kind is Leaf or kind is FixedDenial:
        return [node]  # type: ignore[list-item]
    return [leaf for part in node.parts for leaf in leaves_of(part)]  # type: ignore[union-attr]


def without_need(node: Node, by: Reason) -> Node:
    """Return a plan that needs no permit: what forbids and failures of engines deny stays denied.

    A denial without an engine counts only where nothing else is asked. `by` is the reason of the permit.
    """
    if isinstance(node, Leaf):
        return replace(node, override=by)
    if isinstance(node, FixedDenial):
        return node
    parts = tuple([without_need(part, by) for part in node.parts])
    if isinstance(node, Split):
        return replace(node, parts=parts)
    return replace(node, parts=tuple([part for part in parts if not isinstance(part, FixedDenial)]) or parts)


INSTANCE_ADMINS: Final = "config:identity.instance_admins"

MOST_OBJECTS_BELOW: Final = 500
"""Known objects below a namespace that one move, drop or rename of the namespace asks about."""
TOO_MANY_OBJECTS: Final = "rule:too_many_objects"
"""The reason of denials about namespaces with more known objects below."""
MOVED_ALONG: Final = "rule:moved_along"
DROPPED_ALONG: Final = "rule:dropped_along"
"""The reasons of a rename, or a drop, of an object together with its namespace, which nothing needs to permit."""
NAMED_BY_POLICY: Final = "rule:named_by_policy"
"""The reason of denials of renames of warehouses that policies name: such policies would end."""
_RENAME_FROM: Final = "CATALOG_RENAME_ENTITY_FROM"
RENAME_TO: Final = "CATALOG_RENAME_ENTITY_TO"
"""Actions by which Nessie's catalogs mark the two ends of a rename: the deletion and the creation."""
_REF_CHECKS: Final = NESSIE_CHECKS - CONFIG_CHECKS
"""Raw Nessie checks that are meaningless without a ref."""


class PlanContext(msgspec.Struct, frozen=True, gc=False):
    """Question behind the concrete checks of one check, and the circumstances of their planning.

    `question` is what engines get: an acting role is already its principal, and what only plans obey is gone.
    `admin`: the principal is an instance admin, asks for itself and acts as no role. `stale`: the facts are too old to
    permit anything. `rules_follow`: row policies of the store follow the object of a rename.
    `session`: the principal may be the owner of a view, and the row policies of the user of the query count.
    `person` acts as the role. `unfiltered`: the caller shows whole tables, and lists unasked.
    """

    question: Question
    bundle: ActivePolicies
    facts: Facts
    stale: bool = False
    admin: bool = False
    rules_follow: bool = False
    session: QuerySession | None = None
    person: Principal | None = None
    unfiltered: bool = False

    @property
    def principal(self) -> Principal:
        """Return the subject of the concrete checks."""
        return self.question.principal

    @property
    def delegated(self) -> bool:
        """Tell whether the concrete checks are delegated."""
        return self.question.delegated

    def asking(self, **changes: Any) -> PlanContext:
        """Return the context with another question. `changes` are fields of the question."""
        return replace(self, question=replace(self.question, **changes))

    def group(self, type: str, action: str, resource: Resource) -> EngineQuestion:
        """Return the group of a concrete check. The ref is resolved here, before any engine."""
        ref = resource.ref
        if ref is None and (type in VERSIONED_TYPES or type == "warehouse"):
            ref = self.bundle.default_ref(resource.warehouse)
        question = self.question if self.question.action == action else replace(self.question, action=action)
        if not self.bundle.counts_stored_roles:
            return EngineQuestion(question, type, resource.warehouse, ref)
        others = self.bundle.other_roles(self.principal, self.person, self.facts, stale=self.stale)
        return EngineQuestion(question, type, resource.warehouse, ref, *others)

    def leaf(self, type: str, action: str, resources: Sequence[Resource]) -> Leaf | FixedDenial:
        """Plan one concrete check; deny a raw Nessie check that lacks its ref."""
        group = self.group(type, ALIASES.get(type, {}).get(action, action), resources[0])
        if group.ref is None and action in _REF_CHECKS and type in NESSIE_TARGETS[action]:
            return FixedDenial("missing_reference", group, resources, ("missing_reference",))
        overridden = self.admin and not self.delegated and _is_control(group)
        return Leaf(group, resources, INSTANCE_ADMINS if overridden else None)

    def denied(self, by: Reason, action: str, resources: Sequence[Resource]) -> FixedDenial:
        """Plan the same denial for all resources, without an engine."""
        return FixedDenial(by, self.group(resources[0].type, action, resources[0]), resources)

    def permitted(self, by: Reason, action: str, resources: Sequence[Resource]) -> Leaf:
        """Plan a permit that no engine makes: forbids are asked, and deny."""
        return Leaf(self.group(resources[0].type, action, resources[0]), resources, by)

    def concrete(self, action: str, resources: Sequence[Resource], type: str = "") -> Node:
        """Plan an action on resources, as `type` or as their own type: on `table_or_view` a check on each type."""
        type = type or resources[0].type
        pairs = TABLE_OR_VIEW.get(ALIASES["table"].get(action, action)) if type == "table_or_view" else None
        if pairs is None:
            return self._with_target(type, action, resources)
        parts = [self._with_target(type, action, resources) for type, action in pairs]
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def in_parent(self, action: str, resources: Sequence[Resource]) -> Node:
        """Plan an action on the containers of resources. The resources' names become arguments."""
        return split(
            [parent_of(resource) for resource in resources],
            lambda parent: (parent.type, parent.warehouse, parent.ref),
            lambda place, part: self.leaf(place[0], action, part),
        )

    def restriction(self, table: Resource) -> Restriction:
        """Return the row and column restriction of a table or view."""
        return self._restrict(table, self.facts)

    def _restrict(self, table: Resource, facts: Facts) -> Restriction:
        access, session = self.bundle.row_access, self.session
        own = access.restrict(self.principal, table, facts, stale=self.stale)
        if session is None or (session.user is not None and session.user.id == self.principal.id):
            return own
        user, name = session.user, ""
        theirs = None
        if user is not None:
            known = self.bundle.with_mapped_roles(user)
            theirs = access.restrict(known, table, facts, stale=self.stale)
            name = user.name.removeprefix(self.bundle.trino.user_prefix)
        return through(self.bundle.through_views(table.warehouse), own, theirs, name)

    def restriction_reason(self, object: Resource) -> Reason | None:
        """Return the reason why rows or columns of a table, or of tables in a container, are hidden; None if none."""
        access, facts = self.bundle.row_access, self.facts.without_rules() if self.rules_follow else self.facts
        if object.type == "warehouse" and not self.admin:
            target = object.arguments.destination or object
            if any(map(self.bundle.names_warehouse, {object.warehouse, target.warehouse})):
                return NAMED_BY_POLICY
        if object.type in ("namespace", "warehouse"):
            return access.reason_below(self.principal, object, facts, stale=self.stale)
        return self._restrict(object, facts).reason

    def deny_restricted(self, resources: Sequence[Resource], action: str, node: PlanOf) -> Node:
        """Deny the resources with hidden rows or columns; `node` plans the others."""
        return self.deny_where(self.restriction_reason, resources, action, node)

    def deny_where(
        self, reason_of: Callable[[Resource], Reason | None], resources: Sequence[Resource], action: str, node: PlanOf
    ) -> Node:
        """Deny the resources for which `reason_of` returns a reason; `node` plans the others."""
        return split(
            resources, reason_of, lambda reason, part: self.denied(reason, action, part) if reason else node(part)
        )

    def with_actions(self, actions: Sequence[str]) -> PlanContext:
        """Return this context with more names in the `actions` that rules see."""
        context = self.question.context
        return self.asking(context=replace(context, actions=(*context.actions, *actions)))

    def _with_target(self, type: str, action: str, resources: Sequence[Resource]) -> Node:
        """Plan an action; a rename also needs the right to create in the target's container.

        Row policies follow no object to another name, unless the rename is reported: who renames must see all.
        """
        bundle, facts, warehouse = self.bundle, self.facts, resources[0].warehouse
        if self.unfiltered and action == "list_everything" and not bundle.has_grants_alone(warehouse, facts):
            denied = self.denied("rule:list_everything", action, resources)
            return AllOf((self.leaf(type, action, resources), denied), named=False)
        is_rename = action == "DELETE_ENTITY" and _RENAME_FROM in self.question.context.actions
        is_rename |= action in RENAMES and type == "warehouse"
        if is_rename or (self.unfiltered and action in ROW_ACTIONS and bundle.has_row_policies(facts)):
            return self.deny_restricted(resources, action, lambda part: self.leaf(type, action, part))
        if action == "delete" and type == "namespace" and not self.question.action.startswith(TRINO_PREFIX):
            return self._drop(action, resources)
        if action not in RENAMES or type not in CREATE_ACTION:
            return self.leaf(type, action, resources)
        return self.deny_where(self._rename_reason, resources, action, lambda part: self._rename(type, action, part))

    def _rename_reason(self, object: Resource) -> Reason | None:
        """Return the reason against a rename. A table hidden by a container may take a name whose policies show all."""
        reason, target = self.restriction_reason(object), object.arguments.destination
        if target is None or reason != PROTECTED or not self.bundle.row_access.has_policies(target, self.facts):
            return reason
        return self.restriction_reason(target)

    def _rename(self, type: str, action: str, resources: Sequence[Resource]) -> Node:
        """Plan the source and, with a destination, the creation there. Known objects below come along: forbids bind.

        Where the row policies of the store follow, each object is asked about by itself.
        """

        def both_ends(key: tuple[str, Sequence[ObjectKey], Sequence[ObjectKey]], part: list[Resource]) -> Node:
            target_type, content, arriving = key
            if target_type not in ("", type, "table_or_view"):
                return self.denied("rule:rename_target", action, part)
            if not target_type:
                return self.leaf(type, action, part)
            if max(len(content), len(arriving)) > MOST_OBJECTS_BELOW:
                return self.denied(TOO_MANY_OBJECTS, action, part)
            target = self.arrivals(type, list(map(arrival_of, part)))
            there = [(one[0], [moved(one[0], one[1][1:], namespace) for namespace in part]) for one in content]
            along = [self.departures(one, part, new) for one, (_, new) in zip(content, there, strict=True)]
            there += [(one[0], _column(one, part)) for one in arriving]
            along += [without_need(self.arrivals(kind, new), MOVED_ALONG) for kind, new in there]
            return AllOf((self.leaf(type, action, part), target, *along))

        def key_of(resource: Resource) -> tuple[str, Sequence[ObjectKey], Sequence[ObjectKey]]:
            target = resource.arguments.destination
            if target is None or type != "namespace":
                return target.type if target else "", (), ()
            return target.type, self.content(resource), self.content(target, known=False)

        return split(resources, key_of, both_ends)

    def arrivals(self, type: str, resources: Sequence[Resource]) -> Node:
        """Plan the creation of renamed objects at their new paths."""
        return self.with_actions((RENAME_TO,)).in_parent(CREATE_ACTION[type], resources)

    def content(self, namespace: Resource, *, known: bool = True, dropped: bool = False) -> Sequence[ObjectKey]:
        """Return the objects that move, or end, with a namespace; none where nothing forbids. At most one too many.

        These are known objects, and those that forbids name. Without `known`, the latter alone.
        """
        place, facts = (namespace.warehouse, *namespace.path), self.facts if known else None
        most = 0 if self.rules_follow else MOST_OBJECTS_BELOW + 1
        return self.bundle.content_below(facts, place, most, dropped=dropped) if most else ()

    def _drop(self, action: str, namespaces: Sequence[Resource]) -> Node:
        """Plan the end of namespaces with all below. There forbids bind, and no permit is needed."""

        def with_content(content: Sequence[ObjectKey], part: list[Resource]) -> Node:
            if len(content) > MOST_OBJECTS_BELOW:
                return self.denied(TOO_MANY_OBJECTS, action, part)
            along = [self.leaf(one[0], drop_of(one[0]), _column(one, part)) for one in content]
            own = self.leaf("namespace", action, part)
            return AllOf((own, *(without_need(leaf, DROPPED_ALONG) for leaf in along))) if along else own

        return split(namespaces, lambda namespace: self.content(namespace, dropped=True), with_content)

    def departures(self, key: ObjectKey, namespaces: Sequence[Resource], new: Sequence[Resource | None]) -> Node:
        """Plan the rename of a known object with its namespaces. No permit is needed."""
        type, (_, *path) = key
        old = [
            Resource(type, namespace.warehouse, tuple(path), namespace.ref, arguments=Arguments(destination=target))
            for namespace, target in zip(namespaces, new, strict=True)
        ]
        return without_need(self.leaf(type, "move" if type == "namespace" else "rename", old), MOVED_ALONG)


Planner: TypeAlias = Callable[[PlanContext, Check], Node | None]
"""Planner of one subject, such as view chains or Trino's operations. None for a check of another subject."""


class Planners(msgspec.Struct, frozen=True):
    """Planners beside the plain one, in order, and the lookup of a table's row filter and masks.

    `own_names` returns a check under the objects' own names, whose plan is the same and depends on names through
    `split` alone; None if a name may have another meaning. `meant` returns a check about the objects that names mean.
    """

    checks: tuple[Planner, ...]
    restriction: Callable[[PlanContext, Resource], Restriction]
    own_names: Callable[[Check, ActivePolicies, Facts], Check | None]
    meant: Callable[[Check, ActivePolicies, Facts], Check]


def parent_of(resource: Resource) -> Resource:
    """Return the container of a new object, with the object's name as an argument."""
    *path, name = resource.path
    given = {**resource.arguments.given, "name": name}
    arguments = Arguments(name, given=given, arriving=resource.arguments.arriving)
    type = "namespace" if path else "warehouse"
    return Resource(type, resource.warehouse, tuple(path), resource.ref, arguments=arguments)


def _column(key: ObjectKey, like: Sequence[Resource]) -> list[Resource]:
    """Return an object once for each of several resources on one ref."""
    type, (warehouse, *path) = key
    return [Resource(type, warehouse, tuple(path), resource.ref) for resource in like]


def _is_control(group: EngineQuestion) -> bool:
    """Tell whether a concrete check is about the control plane of a catalog and does not read or write data."""
    return group.action in CATALOG_ACTIONS.get(group.type, ()) and group.action not in DATA_ACTIONS
