"""The values of all variables of a check, without the path."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

PATH_ARGUMENT: Final = 4
"""Index of the path among the arguments of a rule."""


class CheckValues(NamedTuple):
    """The values of all variables of a check but `path`. Hashable, to serve as a key of caches."""

    op: str
    role: str
    roles: tuple[str, ...]
    ref: str
    content_type: str
    type: str
    api: tuple[str, int]
    actions: tuple[str, ...]
    delegated: bool
    warehouse: str

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of a rule in the order of RULE_VARIABLES, with "" at PATH_ARGUMENT."""
        api = {"apiName": self.api[0], "apiVersion": self.api[1]}
        return (
            self.op, self.role, self.roles, self.ref, "", self.content_type, self.type, api, self.actions,
            self.delegated, self.warehouse,
        )  # fmt: skip

    def length(self) -> int:
        """Count the characters of all values together."""
        texts = (
            self.role,
            *self.roles,
            self.ref,
            self.content_type,
            self.type,
            self.api[0],
            *self.actions,
            self.warehouse,
        )
        return sum(map(len, texts))

    def by_variable(self) -> dict[str, Any]:
        """Return the values of the variables that conditions test, by name."""
        return {
            "op": self.op, "role": self.role, "roles": self.roles, "ref": self.ref, "contentType": self.content_type,
            "type": self.type, "actions": self.actions, "warehouse": self.warehouse,
        }  # fmt: skip
