"""Bodies of native JSON requests, and their conversion to value types.

Conversion is pure: it knows no caller and checks no evidence. gRPC messages become the same bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from pdp.errors import InvalidArgument, InvalidReference
from pdp.model.question import (
    NAMED_TYPES,
    NO_ARGUMENTS,
    RESOURCE_TYPES,
    VERSIONED_TYPES,
    Arguments,
    Principal,
    Question,
    RequestContext,
    Resource,
    attributes_text,
)
from pdp.model.references import (
    DETACHED,
    bound_claims,
    bound_name,
    check_part,
    check_path,
    encode_part,
    parse_principal,
    parse_resource,
)
from pdp.model.strict import FIRST_INEXACT, exact_numbers

REF_TYPES: Final = ("BRANCH", "TAG", DETACHED)
MAX_NESTING: Final = 64
MAX_VALUES: Final = 10_000
MAX_TEXT: Final = 1 << 20
"""Levels, values and characters of properties, attributes or arguments."""
AnswerForm: TypeAlias = Literal["decisions", "indices"]
"""Form of an answer: a decision for each position, or the permitted positions."""


class JsonBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Base of native JSON bodies: camelCase keys, unknown keys refused.

    No default is an object with fields: `pdp.model.strict.has_all_strings` needs bodies that encode no key of their
    own.
    """


class PrincipalBody(JsonBody):
    """Principal with the claims of its token."""

    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)


class ResourceBody(JsonBody):
    """Resource in parts, or a reference with the properties that a reference cannot express."""

    type: str = ""
    warehouse: str = ""
    path: tuple[str, ...] = ()
    name: str = ""
    ref: str | None = None
    ref_type: str = ""
    content_type: str = ""
    properties: dict[str, Any] | None = None
    id: str = ""
    reference: str = ""


class ApiBody(JsonBody):
    """API that the principal used."""

    name: str = ""
    version: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] = 0


class ContextBody(JsonBody):
    """Environment of a check."""

    api: ApiBody | UnsetType = UNSET
    actions: tuple[str, ...] = ()
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    query_id: str = ""


class CheckBody(JsonBody, kw_only=True):
    """One check as written in JSON: a question about one resource, or about each of `resources`.

    The fields are in the order in which most clients write them: see `pdp.model.strict.has_all_strings`.
    """

    principal: str | PrincipalBody | UnsetType = UNSET
    action: str
    resource: str | ResourceBody | UnsetType = UNSET
    delegated: bool = False
    acting_role: str | UnsetType = UNSET
    context: ContextBody | UnsetType = UNSET
    resources: list[str | ResourceBody] | UnsetType = UNSET


def make_question(body: CheckBody, principal: Principal, context: RequestContext) -> Question:
    """Return the question of a body; raise InvalidArgument for an invalid acting role."""
    role = None if body.acting_role is UNSET else make_acting_role(body.acting_role)
    return Question(principal, body.action, body.delegated, role, context)


class ErrorBody(msgspec.Struct, frozen=True):
    """Error in the form that every surface shows."""

    code: str
    message: str


def bound_values(values: Mapping[str, Any] | None, field: str) -> bool:
    """Raise InvalidReference for free values that are too many, too long or nested too deeply.

    Return whether there is a number that `exact_numbers` must look at.
    """
    level: list[Any] = [values] if values else []
    count = length = 0
    odd_numbers = False
    for _ in range(MAX_NESTING):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                length += sum(map(len, value))
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str):
                length += len(value)
            elif isinstance(value, int | float):
                odd_numbers |= _is_odd(value)
        count += len(inner)
        if count > MAX_VALUES or length > MAX_TEXT:
            raise InvalidReference(f"`{field}` has more than {MAX_VALUES} values or {MAX_TEXT} characters")
        if not inner:
            return odd_numbers
        level = inner
    if any(isinstance(value, dict | list) for value in level):
        raise InvalidReference(f"`{field}` is nested deeper than {MAX_NESTING} levels")
    return True  # nobody has looked at the numbers of the last level


def _is_odd(number: float) -> bool:
    return number.is_integer() if isinstance(number, float) else abs(number) >= FIRST_INEXACT


def read_values(values: dict[str, Any], field: str) -> dict[str, Any]:
    """Return free values as policies see them; raise as `bound_values` and `exact_numbers` do."""
    return exact_numbers(values) if bound_values(values, field) else values


def make_resource(body: str | ResourceBody) -> Resource:
    """Return the resource of a reference or of a body in parts; raise InvalidReference."""
    if isinstance(body, str):
        return parse_resource(body)
    properties = _read_properties(body)
    if body.reference:
        return _referenced(body, properties)
    if body.type not in RESOURCE_TYPES:
        raise InvalidReference(f"unknown resource type `{body.type}`")
    if body.type in NAMED_TYPES:
        return _named(body, properties)
    if body.name:
        raise InvalidReference(f"a {body.type} has no `name`: its last part stands in `path`")
    if body.type == "server":
        _ref_type(body.ref_type, body.type)
        if body.warehouse or body.path or body.ref:
            raise InvalidReference("`server` has no parts")
        return Resource("server")
    if body.ref and body.type not in VERSIONED_TYPES:
        raise InvalidReference(f"a {body.type} has no ref")
    ref_type = _ref_type(body.ref_type, body.type)
    return Resource(
        body.type,
        check_part(body.warehouse),
        check_path(body.type, body.path),
        DETACHED if ref_type == DETACHED else check_part(body.ref) if body.ref else None,
        content_type=body.content_type,
        ref_type=ref_type,
        id=body.id,
        properties=properties,
    )


def _read_properties(body: ResourceBody) -> Mapping[str, Any] | None:
    """Return the properties of a body; raise InvalidReference, also for long texts. Others look at the path."""
    for text in (body.type, body.id, body.content_type, body.ref_type):
        bound_name(text)
    return read_values(body.properties, "properties") if body.properties else body.properties


def _named(body: ResourceBody, properties: Mapping[str, Any] | None) -> Resource:
    _ref_type(body.ref_type, body.type)
    if body.warehouse or body.path or body.ref:
        raise InvalidReference(f"a {body.type} has a `name` alone")
    parse_resource(f"{body.type}:{encode_part(body.name) if body.type in ('project', 'tag') else body.name}")
    return Resource(body.type, name=body.name, id=body.id, properties=properties)


def _referenced(body: ResourceBody, properties: Mapping[str, Any] | None) -> Resource:
    if body.type or body.warehouse or body.path or body.ref or body.name:
        raise InvalidReference("a resource is its `reference` or its parts, not both")
    resource = parse_resource(body.reference)
    ref_type = _ref_type(body.ref_type, resource.type)
    return msgspec.structs.replace(
        resource,
        ref=DETACHED if ref_type == DETACHED else resource.ref,
        content_type=body.content_type,
        ref_type=ref_type,
        id=body.id,
        properties=properties,
    )


def _ref_type(text: str, type: str) -> str:
    """Return the type of a ref in capitals; raise InvalidReference for an unknown type or for an object without a ref.

    A detached ref is a commit without a name. Rules see `DETACHED` in place of a name, as in Nessie.
    """
    if not text:
        return text
    ref_type = text.upper()
    if ref_type not in REF_TYPES:
        raise InvalidReference(f"`refType` is none of {', '.join(REF_TYPES)}: `{text}`")
    if ref_type == DETACHED and type not in VERSIONED_TYPES:
        raise InvalidReference(f"a {type} has no ref")
    return ref_type


def make_principal(body: str | PrincipalBody) -> Principal:
    """Return the principal of an id or of a body; raise InvalidReference, or InvalidArgument for too many claims."""
    if isinstance(body, str):
        return parse_principal(body)
    attributes = attributes_text(read_values(body.attributes, "attributes"))
    bound_claims(body.roles, body.groups)
    bare = parse_principal(body.id)
    return Principal(bare.type, bare.name, body.roles, body.groups, attributes)


def make_acting_role(role: str | UnsetType) -> str | None:
    """Return the id of an acting role, None if absent; raise InvalidReference if invalid. An empty text is invalid."""
    if role is UNSET:
        return None
    principal = parse_principal(role)
    if principal.type != "role":
        raise InvalidReference(f"actingRole `{role}` is not `role:<id>`")
    return principal.name


_NEAR: Final = 0.75
"""Likeness from which a name is a misspelling of an argument: one letter of `name`, two or three of `destination`."""


def make_arguments(given: dict[str, Any], needed: str = "") -> Arguments:
    """Return the arguments of a check. `name` and `destination` are parsed; the others stay as given.

    `needed` is the argument of the action. Raise InvalidArgument if `name` is not a string, `destination` is not a
    resource, or if another spelling stands for the needed argument.
    """
    if not given:
        return NO_ARGUMENTS
    given = read_values(given, "context.arguments")
    name, destination = given.get("name"), given.get("destination")
    if needed and given.get(needed) is None:
        _refuse_misspelt(given, needed)
    if name is not None and not isinstance(name, str):
        raise InvalidArgument("`context.arguments.name` is not a string")
    return Arguments(None if name is None else check_part(name), _destination(destination), given)


def _refuse_misspelt(given: Mapping[str, Any], needed: str) -> None:
    spelled = {name.strip().casefold(): name for name in given if name != needed}
    near = get_close_matches(needed, spelled, 1, _NEAR)
    if near:
        raise InvalidArgument(f"`context.arguments.{spelled[near[0]]}` is unknown: write `{needed}`")


def _destination(given: Any) -> Resource | None:
    if given is None:
        return None
    try:
        return make_resource(msgspec.convert(given, str | ResourceBody))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"`context.arguments.destination`: {error}") from None
