"""Questions to the scopes engine: catalog actions as LakeQL's scopes, and resources as catalog, schema and table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pdp.engines.engine import Group
from pdp.engines.scopes.permissions import Scope
from pdp.model.question import Principal, Resource
from pdp.model.vocabulary import CREATE_ACTION, TABULAR_TYPES

READ: Final[Scope] = "readPermission"
WRITE: Final[Scope] = "writePermission"
_INCOMPLETE: Final = ("namespace", "warehouse", "server")
"""Types that stand for a scope without a table name, such as those of LakeQL's server with a null in it."""
_READS: Final = ("get_metadata", "include_in_list", "read_data", "select")
_CHANGES: Final = (
    "write_data commit drop undrop rename move set_protection manage_tags promote update_settings reset "
    "expire_snapshots restore_snapshots update_retention manage_refs"
)
QUESTIONS: Final[Mapping[tuple[str, str], Scope]] = {
    **{(action, type): READ for action in _READS for type in TABULAR_TYPES},
    **{(action, type): WRITE for action in _CHANGES.split() for type in TABULAR_TYPES},
    **{(CREATE_ACTION[type], "namespace"): WRITE for type in TABULAR_TYPES},
    **{("read_data", type): READ for type in _INCOMPLETE},
    **{("write_data", type): WRITE for type in _INCOMPLETE},
}
"""Action and concrete type -> the scope that decides. All other actions do not apply."""


class ScopeUser(NamedTuple):
    """User of a scope. `known` is False without any user; `name` is None for a user without a name."""

    name: str | None
    known: bool


class Target(NamedTuple):
    """Object of a scope; None for a part that the scope does not name."""

    catalog: str
    schema: str | None
    table: str | None


def user_of(principal: Principal, provider: str) -> ScopeUser:
    """Return the user of a principal. Permission files know the subjects of one provider.

    A user of another provider has no name here: nobody gets the entry of another user.
    """
    if principal.type != "user":
        return ScopeUser(None, known=False)
    idp, _, subject = principal.name.partition("~")
    return ScopeUser(subject if idp == provider else None, known=True)


def target_of(group: Group, resource: Resource) -> Target:
    """Return the catalog, the schema and the table of a resource. A new table has the name of the arguments."""
    path = resource.path
    if group.type in TABULAR_TYPES:
        return Target(group.warehouse, path[0] if len(path) == 2 else ".".join(path[:-1]), path[-1])
    if group.type == "namespace":
        return Target(group.warehouse, ".".join(path), resource.arguments.name)
    return Target(group.warehouse, None, None)
