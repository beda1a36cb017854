"""Planner of a Trino operation: parts of plans for all rules and places."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from pdp.decision.plan import AllOf, Node, PlanContext
from pdp.model.question import Check, Resource
from pdp.model.trino_operations import SYSTEM_READS, TRINO_PREFIX, TrinoOperation
from pdp.model.vocabulary import OperationStep


class OperationPlanner:
    """One operation on resources of one type, for one principal.

    `name` is `action` without the prefix. `user` is the principal's name in Trino's spelling; empty for a user of
    another identity provider.
    """

    def __init__(self, context: PlanContext, check: Check, operation: TrinoOperation) -> None:
        self.context = context
        self.trino = context.bundle.trino
        self.action = check.action
        self.name = check.action.removeprefix(TRINO_PREFIX)
        self.resources = check.resources
        self.operation = operation
        self.user = self.trino_name(context.principal.name)
        self.is_user = context.principal.type == "user"
        self.is_admin = self.is_user and self.user in self.trino.admin_users

    @property
    def impersonated(self) -> tuple[str, ...]:
        """Return the users of Trino whom the principal may become."""
        return self.trino.impersonation.get(self.user, ()) if self.is_user else ()

    @property
    def reads(self) -> bool:
        """Tell whether the operation only reads: system schemas and metadata tables permit no other."""
        return self.name in SYSTEM_READS

    def with_resources(self, resources: Sequence[Resource]) -> OperationPlanner:
        """Return the same operation on part of the resources."""
        part = copy(self)
        part.resources = resources
        return part

    def fixed(self, allowed: bool, by: str, resources: Sequence[Resource] | None = None) -> Node:
        """Return a decision without an engine, on all resources unless `resources` is given."""
        return self.context.fixed(allowed, by, self.action, resources or self.resources)

    def unknown(self, resources: Sequence[Resource] | None = None) -> Node:
        """Return the denial of an unknown action."""
        return self.fixed(False, "unknown_action", resources)

    def plan_steps(self, resources: Sequence[Resource] | None = None) -> Node:
        """Return the checks of the operation on objects of a warehouse. All checks must permit."""
        parts = [self.plan_step(step, resources or self.resources) for step in self.operation.steps]
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def plan_step(self, step: OperationStep, resources: Sequence[Resource]) -> Node:
        """Return the check of a step."""
        context = self.context.with_actions(step.also) if step.also else self.context
        if step.on == "parent":
            return context.in_parent(step.action, resources)
        type = resources[0].type if step.on == "given" else step.on
        action = "select" if (type, step.action) == ("view", "read_data") else step.action
        return context.concrete(action, resources, type)

    def trino_name(self, name: str) -> str:
        """Return a user's name in Trino's spelling; empty for a user of another identity provider."""
        prefix = self.trino.user_prefix
        return name.removeprefix(prefix) if name.startswith(prefix) else ""
