"""Questions of recorded checks: from the fields of a record, or of a row of a table, to checks for a replay.

Owns the strict reading of all inputs of a decision. `entries` reads records, `asked_rows` reads rows of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pdp.audit.entry_rows import EntryError, WrittenResource
from pdp.audit.schema import Inputs
from pdp.audit.view_security import RecordedLoad, RecordedViewCommit, check_target, read_view_security
from pdp.model.question import NO_ARGUMENTS, Arguments, Check, Env, Principal, Resource
from pdp.model.references import format_resource, parse_principal, parse_resource

MASKED: Final = "values are masked"
"""Why a check cannot be decided again: its record hides values that rules may read."""
UNASKABLE: Final = "check that cannot be asked now"
UNREADABLE: Final = "entry that cannot be read"
UNENCODABLE: Final = "a record that could not be written whole"
MIXED_LISTING: Final = "a listing over several revisions"
NO_CHECK: Final = "a request that was answered without a check"
"""Further causes."""


class MaskedValues(EntryError):
    """Masked values among the inputs of a check."""


NAMELESS: Final = Principal("user", "")
"""User of LakeQL without a name. No request can spell the id."""


def check_with(inputs: Inputs) -> Check:
    """Return a check with inputs, without action and resource. The id of the query decides nothing and is left out.

    Raise MaskedValues or InvalidReference.
    """
    recorded = inputs.principal
    if recorded.masked:
        raise MaskedValues("attributes are masked")
    name = NAMELESS if recorded.id == NAMELESS.id else parse_principal(recorded.id)
    attributes = bytes(recorded.attributes).decode()
    principal = Principal(name.type, name.name, recorded.roles, recorded.groups, attributes, recorded.member_of)
    role = parse_principal(inputs.acting_role).name if inputs.acting_role is not None else None
    api = inputs.context.api
    env = Env(api.name, api.version, inputs.context.actions, inputs.context.now)
    return Check(principal, "", (), (), acting_role=role, env=env, inspected=inputs.inspected)


def ask(
    check: Check, action: str, load: RecordedLoad | None, change: RecordedViewCommit | None, *, delegated: bool
) -> Check:
    """Return a check with an action, still without a resource; raise InvalidReference for a load of no view."""
    security = read_view_security(action, load, change)
    return msgspec.structs.replace(check, action=action, delegated=delegated, view_security=security)


def ask_about(check: Check, written: WrittenResource, *, delegated: bool) -> tuple[Check, str]:
    """Return a check with a resource, and the key of the resource; raise EntryError or InvalidReference."""
    resource, key = _resource(written)
    check_target(check, resource)
    return msgspec.structs.replace(check, resources=(resource,), at=(0,), delegated=delegated), key


def _resource(recorded: WrittenResource) -> tuple[Resource, str]:
    """Return a resource and its key."""
    if isinstance(recorded, str):
        return parse_resource(recorded), recorded
    if isinstance(recorded, Resource):
        return recorded, format_resource(recorded)
    if recorded.masked:
        raise MaskedValues("values are masked")
    bare = parse_resource(recorded.reference)
    resource = msgspec.structs.replace(
        bare,
        ref=recorded.ref or bare.ref,
        content_type=recorded.content_type,
        ref_type=recorded.ref_type,
        id=recorded.id,
        properties=recorded.properties,
        arguments=_arguments(recorded.arguments),
    )
    return resource, msgspec.json.encode(recorded, order="sorted").decode()


def _arguments(recorded: Mapping[str, Any]) -> Arguments:
    if not recorded:
        return NO_ARGUMENTS
    name, destination = recorded.get("name"), recorded.get("destination")
    if not isinstance(name, str | None) or not isinstance(destination, str | None):
        raise EntryError("`name` or `destination` is not a text")
    return Arguments(name, parse_resource(destination) if destination else None, recorded)
