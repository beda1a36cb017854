"""The checks of a group, and the values of variables for each check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from pdp.engines.cel.check_values import CheckValues
from pdp.engines.cel.residue import ResidueSet
from pdp.engines.engine import Group
from pdp.model.checks import VERSIONED_TYPES, Resource
from pdp.model.identities import policy_name
from pdp.model.vocabulary import CEL_CHECKS, CONTENT_TYPE, CelCheck

_MAX_RESIDUES: Final = 8
_LONGEST_KIND: Final = 64
"""Residues that a group remembers, and characters of the kinds of content of a remembered one. Few resources of a group
differ in more than the path."""

Question: TypeAlias = tuple[CelCheck, ResidueSet]
"""A check with the residues for its values."""


class GroupChecks:
    """The checks of a group. `lacks_ref`: a ref is needed, but neither the resource nor the warehouse has one.

    `select` returns the residues for the values of a check. The residues of the group are remembered.
    """

    def __init__(self, group: Group, provider: str, select: Callable[[CheckValues], ResidueSet]) -> None:
        self.checks = CEL_CHECKS[group.type, group.action]
        self._select = select
        self._questions: Sequence[Question] | None = None
        """The questions for resources without a type of content of their own."""
        self._residues: dict[tuple[int, str, str], ResidueSet] = {}
        self.lacks_ref = group.ref is None and (group.type in VERSIONED_TYPES or group.type == "warehouse")
        self._group = group
        self._role, self._roles = _role_variables(group, provider)

    def length(self) -> int:
        """Count the characters of the group's texts."""
        group = self._group
        return group.principal.length() + group.env.length() + len(group.warehouse) + len(group.ref or "")

    def varies(self, check: CelCheck) -> bool:
        """Tell whether the check differs from resource to resource."""
        return check.path != "none" or self._group.type == "repository_config"

    def questions(self, resource: Resource) -> Sequence[Question]:
        """Return all checks with their residues for a resource."""
        if resource.content_type or self._group.type == "repository_config":
            return [(check, self.residues(number, resource)) for number, check in enumerate(self.checks)]
        if self._questions is None:
            self._questions = tuple((check, self.residues(at, resource)) for at, check in enumerate(self.checks))
        return self._questions

    def residues(self, number: int, resource: Resource) -> ResidueSet:
        """Return the residues of the check with this number for a resource."""
        check = self.checks[number]
        kinds = self._kinds(check, resource)
        residues = self._residues.get((number, *kinds))
        if residues is None:
            residues = self._select(self._values(check, *kinds))
            if len(self._residues) < _MAX_RESIDUES and sum(map(len, kinds)) <= _LONGEST_KIND:
                self._residues[number, *kinds] = residues
        return residues

    def values(self, check: CelCheck, resource: Resource) -> CheckValues:
        """Return the values of all variables but `path` for a check of a resource."""
        return self._values(check, *self._kinds(check, resource))

    def _kinds(self, check: CelCheck, resource: Resource) -> tuple[str, str]:
        """Return the values of `contentType` and `type`, the only ones that differ in a group, besides the path."""
        group, content_type, type = self._group, "", ""
        if check.path == "new":
            content_type = check.content_type
        elif check.path != "none":
            content_type = resource.content_type or CONTENT_TYPE.get(group.type, "")
        elif group.type == "repository_config":
            type = resource.path[0]
        return content_type, type

    def _values(self, check: CelCheck, content_type: str, type: str) -> CheckValues:
        group = self._group
        return CheckValues(
            check.op,
            self._role,
            self._roles,
            group.ref or "",
            content_type,
            type,
            (group.env.api_name, group.env.api_version),
            (*group.env.actions, *check.actions),
            group.delegated,
            group.warehouse,
        )


def _role_variables(group: Group, provider: str) -> tuple[str, tuple[str, ...]]:
    """Return `role`, the user's name, and `roles`, the roles of the token. A principal of type role has only itself."""
    principal = group.principal
    if principal.type == "role":
        return "", (principal.name,)
    return policy_name(principal, provider), principal.roles
