"""The values of all variables of a check, without the path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pdp.cel.values import INT_MAX, INT_MIN, Timestamp

PATH_ARGUMENT: Final = 4
"""Index of the path among the arguments of a rule."""
_NANOS: Final = 1_000_000_000
_NO_MEMBERS: Final = "{}"
_UNREAD: Final[Mapping[str, tuple[str, Any]]] = {
    "contentType": ("content_type", ""),
    "type": ("type", ""),
    "action": ("action", ""),
    "groups": ("groups", ()),
    "attributes": ("attributes", _NO_MEMBERS),
    "properties": ("properties", _NO_MEMBERS),
    "now": ("now", 0),
}
"""Variable that few rules use -> the field of CheckValues, and the value that stands for all values."""


class CheckValues(NamedTuple):
    """The values of all variables of a check but `path`. Hashable, to serve as a key of caches.

    `attributes` and `properties` are JSON objects as text. `now` is in seconds since 1970.
    """

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
    action: str = ""
    groups: tuple[str, ...] = ()
    attributes: str = _NO_MEMBERS
    properties: str = _NO_MEMBERS
    now: int = 0

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of a rule in the order of RULE_VARIABLES, with "" at PATH_ARGUMENT."""
        api = {"apiName": self.api[0], "apiVersion": self.api[1]}
        return (
            self.op, self.role, self.roles, self.ref, "", self.content_type, self.type, api, self.actions,
            self.delegated, self.warehouse, self.action, self.groups, _as_map(self.attributes),
            _as_map(self.properties), Timestamp(self.now * _NANOS),
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
            self.action,
            *self.groups,
            self.attributes,
            self.properties,
        )
        return sum(map(len, texts))

    def by_variable(self) -> dict[str, Any]:
        """Return the values of the variables that conditions test, by name."""
        return {
            "op": self.op, "role": self.role, "roles": self.roles, "ref": self.ref, "contentType": self.content_type,
            "type": self.type, "actions": self.actions, "warehouse": self.warehouse, "action": self.action,
            "groups": self.groups,
        }  # fmt: skip


def unread_fields(variables: frozenset[str]) -> Mapping[str, Any]:
    """Return the fields of CheckValues that rules with these variables do not read, each with one value for all."""
    return dict(field for variable, field in _UNREAD.items() if variable not in variables)


def json_text(members: Mapping[str, Any] | None) -> str:
    """Return a JSON object as canonical text."""
    return msgspec.json.encode(members, order="sorted").decode() if members else _NO_MEMBERS


def _as_map(text: str) -> Mapping[str, Any]:
    """Return the JSON object `text` as a value of the language."""
    return {} if text == _NO_MEMBERS else _as_value(msgspec.json.decode(text))


def _as_value(value: Any) -> Any:
    """Return a JSON value as a value of the language: an integer beyond 64 bits is a double, a list is a tuple."""
    if isinstance(value, dict):
        return {key: _as_value(member) for key, member in value.items()}
    if isinstance(value, list):
        return tuple(_as_value(item) for item in value)
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return float(value)
    return value
