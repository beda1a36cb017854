"""Requests to AND/OR trees of concrete checks, and the fold of their verdicts; the way of every request.

A tree is planned once for all resources of a check and folded column by column. Owns acting roles, default refs,
aliases and `table_or_view`; Trino's operations are planned beside it. Must not know engines' insides or any surface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import or_
from typing import Final, TypeAlias, TypeVar

import msgspec

from pdp.decision.bundle import Bundle
from pdp.engines.engine import ABSTAIN, FAILED, FORBID, PERMIT, Group, Verdicts
from pdp.engines.rowaccess.engine import Restriction
from pdp.facts.snapshot import Facts
from pdp.model.checks import (
    DEFAULT_DENY,
    STORE_STALE,
    VERSIONED_TYPES,
    Arguments,
    Check,
    Env,
    Principal,
    Reason,
    Resource,
)
from pdp.model.references import format_resource
from pdp.model.vocabulary import (
    ALIASES,
    CATALOG_ACTIONS,
    CONFIG_CHECKS,
    CREATE_ACTION,
    DATA_ACTIONS,
    NESSIE_CHECKS,
    NESSIE_TARGETS,
    RENAMES,
    TABLE_OR_VIEW,
)

K = TypeVar("K")
INSTANCE_ADMINS: Final = "config:identity.instance_admins"

_MOVED_AWAY: Final = "CATALOG_RENAME_ENTITY_FROM"
"""What Nessie's catalogs say of a deletion that is one end of a rename."""
_ABOUT_REFS: Final = NESSIE_CHECKS - CONFIG_CHECKS
"""Raw checks of Nessie's that make no sense without a ref."""


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """One concrete check of many resources: one action on one concrete type.

    `passed`: why it is permitted where its engines are silent; their forbids and failures bind.
    """

    group: Group
    resources: Sequence[Resource]
    passed: Reason | None = None


class FixedDecision(msgspec.Struct, frozen=True, gc=False):
    """What no engine decides: the same answer for every resource, and its reason."""

    allowed: bool
    by: Reason
    group: Group
    resources: Sequence[Resource]
    errors: tuple[str, ...] = ()


class AllOf(msgspec.Struct, frozen=True, gc=False):
    """Every part must permit."""

    parts: tuple[Node, ...]


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """One permit suffices; a forbid or a failure of any part binds."""

    parts: tuple[Node, ...]


class EachOf(msgspec.Struct, frozen=True, gc=False):
    """Parts that stand for themselves: one permit suffices, whatever binds the others; `optional`: not even one."""

    parts: tuple[Node, ...]
    optional: bool = False


class Split(msgspec.Struct, frozen=True, gc=False):
    """Resources that need different trees: `parts[k]` answers for the positions `at[k]`."""

    at: tuple[Sequence[int], ...]
    parts: tuple[Node, ...]


Node: TypeAlias = Leaf | FixedDecision | AllOf | AnyOf | EachOf | Split


class PlanContext(msgspec.Struct, frozen=True, gc=False):
    """As whom, and in which circumstances, the parts of a check are asked.

    `admin`: the principal is an instance admin who asks for itself, under no other role. `stale`: the facts are too
    old to permit anything.
    """

    principal: Principal
    delegated: bool
    env: Env
    bundle: Bundle
    facts: Facts
    stale: bool = False
    admin: bool = False

    def group(self, type: str, action: str, resource: Resource) -> Group:
        """The group of concrete checks that `resource` belongs to; its ref is resolved here, before any engine."""
        ref = resource.ref
        if ref is None and (type in VERSIONED_TYPES or type == "warehouse"):
            ref = self.bundle.default_ref(resource.warehouse)
        return Group(self.principal, action, type, resource.warehouse, ref, self.delegated, self.env)

    def leaf(self, type: str, action: str, resources: Sequence[Resource]) -> Node:
        """A concrete check, or its denial where a raw check of Nessie lacks the ref that it is about."""
        group = self.group(type, ALIASES.get(type, {}).get(action, action), resources[0])
        if group.ref is None and action in _ABOUT_REFS and type in NESSIE_TARGETS[action]:
            return FixedDecision(False, "missing_reference", group, resources, ("missing_reference",))
        passes = self.admin and not self.delegated and _is_control(group)
        return Leaf(group, resources, INSTANCE_ADMINS if passes else None)

    def restriction(self, table: Resource) -> Restriction:
        """What of a table or view is seen."""
        return self.bundle.row_access.restrict(self.principal, table, self.facts, stale=self.stale)

    def restricted(self, object: Resource) -> Reason | None:
        """Why not every row and column is seen of a table, or of what a namespace holds; None where it is."""
        if object.type in ("namespace", "warehouse"):
            return self.bundle.row_access.reason_below(self.principal, object, self.facts, stale=self.stale)
        return self.restriction(object).reason

    def unless_restricted(
        self, resources: Sequence[Resource], action: str, node: Callable[[Sequence[Resource]], Node]
    ) -> Node:
        """Denied where not everything is seen; `node` plans the rest."""
        return self.unless(self.restricted, resources, action, node)

    def unless(
        self,
        denied: Callable[[Resource], Reason | None],
        resources: Sequence[Resource],
        action: str,
        node: Callable[[Sequence[Resource]], Node],
    ) -> Node:
        """Denied where `denied` says why; `node` plans the rest."""
        return split(resources, denied, lambda why, some: self.fixed(False, why, action, some) if why else node(some))

    def fixed(self, allowed: bool, by: Reason, action: str, resources: Sequence[Resource]) -> FixedDecision:
        """An answer that no engine makes."""
        return FixedDecision(allowed, by, self.group(resources[0].type, action, resources[0]), resources)

    def concrete(self, action: str, resources: Sequence[Resource], type: str = "") -> Node:
        """A catalog action or a Nessie check, as `type` or as resources are named; `table_or_view` is two checks."""
        type = type or resources[0].type
        pairs = TABLE_OR_VIEW.get(ALIASES["table"].get(action, action)) if type == "table_or_view" else None
        parts = tuple(self._with_target(type, action, resources) for type, action in pairs or ((type, action),))
        return parts[0] if len(parts) == 1 else AnyOf(parts)

    def with_actions(self, actions: Sequence[str]) -> PlanContext:
        """The same, with more of the names that rules see in `actions`."""
        return msgspec.structs.replace(
            self, env=msgspec.structs.replace(self.env, actions=(*self.env.actions, *actions))
        )

    def _with_target(self, type: str, action: str, resources: Sequence[Resource]) -> Node:
        """A rename needs the right at both ends: the source's, and to create in the target's container.

        Row policies and masks stay behind with the name, so only who sees everything may give it another.
        """
        if (action == "DELETE_ENTITY" and _MOVED_AWAY in self.env.actions) or (
            action in RENAMES and type == "warehouse"
        ):
            return self.unless_restricted(resources, action, lambda some: self.leaf(type, action, some))
        if action not in RENAMES or type not in CREATE_ACTION:
            return self.leaf(type, action, resources)
        return self.unless_restricted(resources, action, lambda some: self._renamed(type, action, some))

    def _renamed(self, type: str, action: str, resources: Sequence[Resource]) -> Node:
        create = CREATE_ACTION[type]
        to = self.with_actions(("CATALOG_RENAME_ENTITY_TO",))

        def both_ends(target: str, some: list[Resource]) -> Node:
            if target not in ("", type, "table_or_view"):
                return self.fixed(False, "rule:rename_target", action, some)
            source = self.leaf(type, action, some)
            return AllOf((source, to.in_parent(create, _destinations(some)))) if target else source

        return split(resources, _target_type, both_ends)

    def in_parent(self, action: str, resources: Sequence[Resource]) -> Node:
        """An action on the containers of resources, whose names go along as arguments."""
        return split(
            [parent_of(resource) for resource in resources],
            lambda parent: (parent.type, parent.warehouse, parent.ref),
            lambda place, some: self.leaf(place[0], action, some),
        )


def _is_control(group: Group) -> bool:
    """Whether a concrete check is about a catalog's control plane: what reads or writes data is not."""
    return group.action in CATALOG_ACTIONS.get(group.type, ()) and group.action not in DATA_ACTIONS


def parent_of(resource: Resource) -> Resource:
    """The container of a new object; the object's name goes along as an argument."""
    *path, name = resource.path
    arguments = Arguments(name, given={**resource.arguments.given, "name": name})
    type = "namespace" if path else "warehouse"
    return Resource(type, resource.warehouse, tuple(path), resource.ref, arguments=arguments)


def _target_type(resource: Resource) -> str:
    destination = resource.arguments.destination
    return destination.type if destination else ""


def _destinations(resources: Sequence[Resource]) -> list[Resource]:
    return [resource.arguments.destination for resource in resources if resource.arguments.destination]


Planner: TypeAlias = Callable[[PlanContext, Check], Node | None]
"""Plans the checks of one subject (view chains, Trino's operations); None for a check of another subject."""


class Planners(msgspec.Struct, frozen=True):
    """The planners beside the plain one, in order, and the lookup of a table's row filter and masks."""

    checks: tuple[Planner, ...]
    restriction: Callable[[PlanContext, Resource], Restriction]


def plan(check: Check, asker: PlanContext, planners: Sequence[Planner]) -> Node:
    """Plan one check: the first planner that knows its subject, else the plain plan of its action."""
    if check.acting_role is not None:
        # who may act as a role is a fact, too: old facts let nobody
        if asker.stale:
            return asker.fixed(False, STORE_STALE, check.action, check.resources)
        if not asker.facts.can_assume(asker.principal, check.acting_role):
            return asker.fixed(False, "cannot_assume", check.action, check.resources)
        asker = msgspec.structs.replace(asker, principal=Principal("role", check.acting_role), admin=False)
    for planner in planners:
        if node := planner(asker, check):
            return node
    return asker.concrete(check.action, check.resources)


def asker_of(check: Check, bundle: Bundle, facts: Facts, *, stale: bool) -> PlanContext:
    """As whom a check begins to be asked."""
    principal = bundle.with_memberships(check.principal)
    admin = principal.id in bundle.instance_admins and not check.inspected
    return PlanContext(principal, check.delegated, check.env, bundle, facts, stale, admin)


def leaves(node: Node, at: Sequence[int]) -> Iterator[tuple[Leaf | FixedDecision, Sequence[int]]]:
    """The concrete checks and fixed answers of a tree, in order, with the positions that they are about.

    `at[i]` is the position of the tree's resource i.
    """
    if isinstance(node, Leaf | FixedDecision):
        yield node, at
    elif isinstance(node, Split):
        for rows, part in zip(node.at, node.parts, strict=True):
            yield from leaves(part, [at[row] for row in rows])
    else:
        for part in node.parts:
            yield from leaves(part, at)


def fold(node: Node, decided: Callable[[Leaf], Verdicts]) -> Verdicts:
    """The outcome of a tree, given those of its leaves."""
    if isinstance(node, Leaf):
        return decided(node)
    if isinstance(node, FixedDecision):
        count = len(node.resources)
        effect = PERMIT if node.allowed else ABSTAIN
        errors = dict.fromkeys(range(count), node.errors) if node.errors else {}
        return Verdicts(bytes([effect]) * count, [node.by] * count, errors)
    columns = [fold(part, decided) for part in node.parts]
    if isinstance(node, Split):
        return _scatter(node.at, columns)
    if isinstance(node, AnyOf):
        return _any_of_silent(columns) or _fold_rows(columns, _any_row)
    if isinstance(node, EachOf):
        return _fold_rows(columns, _optional_row if node.optional else _each_row)
    if all(column.effects.count(PERMIT) == len(column.effects) for column in columns):
        return columns[0]
    return _fold_rows(columns, lambda rows: _all_row(rows, node.parts))


def split(
    resources: Sequence[Resource], key: Callable[[Resource], K], node: Callable[[K, list[Resource]], Node]
) -> Node:
    """The tree of resources that `key` tells apart; `node` plans those of one key."""
    at: dict[K, list[int]] = {}
    for position, resource in enumerate(resources):
        at.setdefault(key(resource), []).append(position)
    parts = tuple(node(found, [resources[position] for position in positions]) for found, positions in at.items())
    return parts[0] if len(parts) == 1 else Split(tuple(at.values()), parts)


def _scatter(at: Sequence[Sequence[int]], columns: Sequence[Verdicts]) -> Verdicts:
    size = sum(map(len, at))
    effects = bytearray(size)
    by: list[Reason | None] = [None] * size
    errors: dict[int, tuple[str, ...]] = {}
    for positions, column in zip(at, columns, strict=True):
        for row, position in enumerate(positions):
            effects[position] = column.effects[row]
            by[position] = column.by[row]
        errors.update((positions[row], raised) for row, raised in column.errors.items())
    return Verdicts(bytes(effects), by, errors)


_Row: TypeAlias = tuple[int, int, Reason | None, tuple[str, ...]]
"""Position, effect, reason and errors of one resource in one column."""


def _fold_rows(columns: Sequence[Verdicts], combine: Callable[[Sequence[_Row]], _Row]) -> Verdicts:
    effects = bytearray(len(columns[0].effects))
    by: list[Reason | None] = []
    errors: dict[int, tuple[str, ...]] = {}
    for at in range(len(effects)):
        rows = [(at, column.effects[at], column.by[at], column.errors.get(at, ())) for column in columns]
        _, effects[at], reason, raised = combine(rows)
        by.append(reason)
        if raised:
            errors[at] = raised
    return Verdicts(bytes(effects), by, errors)


def _any_of_silent(columns: Sequence[Verdicts]) -> Verdicts | None:
    """The fold of two columns in which parts only permit or are silent without a word, the usual thing; else None."""
    if all(column is columns[0] for column in columns):
        return columns[0]
    if len(columns) != 2 or any(column.errors or max(column.effects) > PERMIT for column in columns):
        return None
    if any(column.effects.count(PERMIT) != len(column.by) - column.by.count(None) for column in columns):
        return None
    first, second = columns
    if PERMIT not in first.effects or PERMIT not in second.effects:
        return first if PERMIT in first.effects else second
    by = [one if one is not None else other for one, other in zip(first.by, second.by, strict=True)]
    return Verdicts(bytes(map(or_, first.effects, second.effects)), by)


def _any_row(rows: Sequence[_Row]) -> _Row:
    for wanted in (FORBID, FAILED, PERMIT):
        for row in rows:
            if row[1] == wanted:
                return row
    return (rows[0][0], ABSTAIN, _common_reason(rows), tuple(sorted({rule for row in rows for rule in row[3]})))


def _each_row(rows: Sequence[_Row]) -> _Row:
    return next((row for row in rows if row[1] == PERMIT), None) or _any_row(rows)


def _optional_row(rows: Sequence[_Row]) -> _Row:
    row = _each_row(rows)
    return row if row[1] == PERMIT else (row[0], PERMIT, "not_needed", row[3])


def _common_reason(rows: Sequence[_Row]) -> Reason | None:
    """A reason that all denied parts share, such as `unknown_action`."""
    reasons = {row[2] for row in rows}
    return reasons.pop() if len(reasons) == 1 else None


def _all_row(rows: Sequence[_Row], parts: Sequence[Node]) -> _Row:
    failing = [part for part, row in enumerate(rows) if row[1] != PERMIT]
    if not failing:
        return rows[0]
    part = next((part for part in failing if rows[part][1] == FORBID), failing[0])
    at, effect, reason, errors = rows[part]
    return (at, effect, f"{_names(parts[part])(at)}: {reason or DEFAULT_DENY}", errors)


def _names(node: Node) -> Callable[[int], str]:
    """How a failing part names its object: the resource of its first concrete check."""
    if isinstance(node, Leaf | FixedDecision):
        return lambda row: format_resource(node.resources[row], node.group.ref, node.group.type)
    if isinstance(node, Split):
        parts = list(zip(node.parts, node.at, strict=True))
        return lambda row: next(_names(part)(at.index(row)) for part, at in parts if row in at)
    return _names(node.parts[0])
