"""JSON of the inputs of a check: principal, acting role, context and resources.

The written form must carry every input that decides; `reader` makes the same checks from the JSON again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from pdp.model.checks import NO_ARGUMENTS, Check, Principal, Resource
from pdp.model.references import format_resource

InputsKey: TypeAlias = tuple[Any, ...]
"""The inputs of a check beside action and resource: checks with equal keys share one `inputs` object of a record."""


def inputs_key(check: Check) -> InputsKey:
    """Return the key by which checks share inputs."""
    return (check.principal, check.acting_role, check.env, check.query_id, check.query_user, check.inspected)


def first_by_inputs(checks: Sequence[Check]) -> dict[InputsKey, Check]:
    """Return the first check of each distinct inputs, in order of appearance."""
    first: dict[InputsKey, Check] = {}
    for check in checks:
        first.setdefault(inputs_key(check), check)
    return first


def write_inputs(check: Check) -> dict[str, Any]:
    """Return the `inputs` object of a check."""
    env = check.env
    context: dict[str, Any] = {"actions": env.actions}
    if env.api_name or env.api_version:
        context["api"] = {"name": env.api_name, "version": env.api_version}
    if check.query_id:
        context["queryId"] = check.query_id
    if check.query_user:
        context["queryUser"] = check.query_user
    inputs = {
        "principal": _principal(check.principal),
        "actingRole": f"role:{check.acting_role}" if check.acting_role is not None else None,
        "context": context,
    }
    return inputs | {"inspected": True} if check.inspected else inputs


def write_resource(resource: Resource, type: str = "", ref: str | None = None) -> str | dict[str, Any]:
    """Return a resource with everything that decides: the bare reference, or an object if there is more.

    `type` and `ref` replace those of the resource in the reference: a plan may decide on others than the caller named.
    """
    reference = format_resource(resource, ref, type)
    if _is_bare(resource):
        return reference
    more = {
        "ref": resource.ref if resource.type == "warehouse" else None,
        "contentType": resource.content_type,
        "refType": resource.ref_type,
        "id": resource.id,
        "properties": resource.properties,
        "arguments": _arguments(resource),
    }
    return {"reference": reference, **{key: value for key, value in more.items() if value}}


def _is_bare(resource: Resource) -> bool:
    more = resource.content_type or resource.ref_type or resource.id or resource.properties
    if resource.type == "warehouse" and resource.ref:
        return False
    return not more and resource.arguments is NO_ARGUMENTS


def _arguments(resource: Resource) -> Mapping[str, Any]:
    arguments = resource.arguments
    if arguments is NO_ARGUMENTS:
        return {}
    if arguments.destination is None:
        return arguments.given
    return {**arguments.given, "destination": format_resource(arguments.destination)}


def _principal(principal: Principal) -> dict[str, Any]:
    fields = {
        "id": principal.id,
        "roles": principal.roles,
        "groups": principal.groups,
        "attributes": msgspec.Raw(principal.attributes.encode()),
    }
    return fields | {"memberOf": principal.member_of} if principal.member_of else fields
