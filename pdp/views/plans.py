"""Plans of loads through view chains, and of changes of views.

Owns the switch to a view's owner. Must not know bodies or the encoding of chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from pdp.decision.plan import AllOf, AnyAlone, Node, PlanContext, split
from pdp.model.answer import ReadRestrictions, Reason
from pdp.model.question import Check, Load, QuerySession, Resource, ViewCommit, unshown_user
from pdp.model.vocabulary import VIEW_CHANGES

NO_SUCH_VIEW: Final = "no_such_view"
"""The reason of denials of a chain with a missing view."""
PROTECTED: Final = "protected_property"
"""The reason of denials of a change of a view's owner."""
READS: Final = "read_data"
WRITES: Final = "write_data"


def plan_views(context: PlanContext, check: Check) -> Node | None:
    """Return the plan of a load or of a change of a view; None for every other check."""
    security = check.question.view_security
    if isinstance(security, Load):
        return _plan_load(context, check, security)
    return _plan_change(context, check, security) if security else None


def _plan_load(context: PlanContext, check: Check, load: Load) -> Node:
    """Check each view and the target, each for the principal of the hop.

    After a DEFINER view, the view's owner is the principal. A load needs no storage access; a load of credentials does.
    """
    targets = check.resources
    target = targets[0]
    if missing := [view for view in load.views if not view.exists]:
        hops = ([view.resource(target)] * len(targets) for view in missing)
        return AllOf(tuple(context.denied(NO_SUCH_VIEW, "get_metadata", hop) for hop in hops))
    parts: list[Node] = []
    hidden: Reason | None = None
    for view in load.views:
        hop = [view.resource(target)] * len(targets)
        hidden = hidden or context.restriction_reason(hop[0])
        parts += (context.leaf("view", "get_metadata", hop), context.leaf("view", "select", hop))
        if view.owner:
            context = _as_owner(context, view.owner)
    parts.append(context.leaf(target.type, "get_metadata", targets))
    if target.type != "view":
        parts += _plan_storage(context, check, hidden, load)
    return AllOf(tuple(parts))


def _plan_storage(context: PlanContext, check: Check, hidden: Reason | None, load: Load) -> tuple[Node, ...]:
    """Check read and write access to the target's files.

    `hidden` is the reason why a view of the chain hides rows or columns. Files hold all rows and columns, so no file is
    handed out if a row policy or mask of a view or of the target applies, unless the engine enforces these itself.
    Credentials to write also read, so none are handed out without the right to read. A view only reads: after a view
    that runs as its owner, the right to write is reported and permits nothing, unless the configuration of the engine
    says so. An engine that applies read restrictions reads the files with these, and never writes.
    """
    found = {table.path: _withheld(context, check, table, hidden, load) for table in check.resources}

    def plan_access(action: str) -> Node:
        def node(withheld: _StorageLimit, tables: Sequence[Resource]) -> Node:
            reason, restrictions = withheld if action == READS else (withheld[0], None)
            if reason and (restrictions is None or restrictions.closed):
                return replace(context.denied(reason, action, tables), restrictions=restrictions)
            return replace(context.leaf(tables[0].type, action, tables), restrictions=restrictions)

        return split(check.resources, lambda table: found[table.path], node)

    reads, writes = plan_access(READS), plan_access(WRITES)
    if check.question.action == "loadTable":
        return (AnyAlone((reads, writes), optional=True),)
    return AnyAlone((reads,)), AnyAlone((writes,), optional=True)


_StorageLimit: TypeAlias = tuple[Reason | None, ReadRestrictions | None]
"""Reason for withheld files of a table, and the read restrictions for the engine."""


def _withheld(context: PlanContext, check: Check, table: Resource, hidden: Reason | None, load: Load) -> _StorageLimit:
    """Return the reason for withheld files, and the read restrictions of a principal without an acting role."""
    reason = None if load.enforced else hidden or context.restriction_reason(table)
    question = check.question
    if not reason or hidden or not load.columns or question.acting_role is not None or question.inspected:
        return reason, None
    from pdp.engines.row_access.read_restrictions import read_restrictions  # noqa: PLC0415  its parser takes 30 MB

    return reason, read_restrictions(context.restriction(table), load.columns) if table.type == "table" else None


def _as_owner(context: PlanContext, owner: str) -> PlanContext:
    """Return the context of a view's owner: a plain user, without roles or attributes of the earlier principal.

    What the owner's token would say is unknown: grants count the roles that the store gives, a CEL rule that reads
    roles raises, and so do rules of Cedar where roles of tokens map to roles.
    The first principal stays the user whose row policies can hold behind the view.
    """
    session = context.session or QuerySession(context.principal)
    user = context.bundle.with_mapped_roles(unshown_user(owner))
    return replace(context.asking(principal=user, delegated=True), session=session)


def _plan_change(context: PlanContext, check: Check, commit: ViewCommit) -> Node:
    if commit.touched:
        return context.denied(PROTECTED, check.question.action, check.resources)
    step = next(step for action, step in VIEW_CHANGES.values() if action == check.question.action)
    context = context.with_actions(step.also)
    if step.on == "parent":
        return context.in_parent(step.action, check.resources)
    return context.leaf("view", step.action, check.resources)
