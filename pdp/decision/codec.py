"""Native JSON form of checks and decisions, for HTTP, the command line and case files.

Decoding is pure: it knows no caller and checks no evidence. A check with a syntax error is rejected at its own position
and does not affect the others. `pdp.identity.evidence` turns the decoded request into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pdp.errors import InvalidArgument, InvalidReference, TooManyChecks
from pdp.model.checks import (
    NAMED_TYPES,
    NO_ARGUMENTS,
    RESOURCE_TYPES,
    UNNAMED,
    VERSIONED_TYPES,
    Answer,
    Arguments,
    AtLeast,
    BatchRequest,
    Check,
    CheckGrouper,
    Decision,
    Env,
    Principal,
    Rejection,
    Resource,
)
from pdp.model.columns import PathColumn
from pdp.model.references import check_part, check_path, encode_part, is_id, parse_principal, parse_resource
from pdp.strict import decode, sentence


class JsonBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Base of native JSON bodies: camelCase keys, unknown keys refused."""


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
    version: int = 0


class ContextBody(JsonBody):
    """Environment of a check."""

    api: ApiBody = msgspec.field(default_factory=ApiBody)
    actions: tuple[str, ...] = ()
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    query_id: str = ""


class CheckBody(JsonBody):
    """One check as written in JSON."""

    action: str
    resource: str | ResourceBody
    principal: str | PrincipalBody | UnsetType = UNSET
    delegated: bool = False
    acting_role: str | UnsetType = UNSET
    context: ContextBody = msgspec.field(default_factory=ContextBody)


class CheckRequest(JsonBody):
    """Body of POST /v1/check."""

    checks: list[msgspec.Raw]
    consistency: str | AtLeast = "minimize_latency"
    explain: bool = False


class ErrorBody(msgspec.Struct, frozen=True):
    """Error in the form that every surface shows."""

    code: str
    message: str


class DecisionBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decision as written in JSON. `allowed` and `by` are always present."""

    allowed: bool
    by: tuple[str, ...]
    errors: tuple[str, ...] | msgspec.UnsetType = UNSET
    cached: bool | msgspec.UnsetType = UNSET
    trace: Any = UNSET
    error: ErrorBody | msgspec.UnsetType = UNSET


MAX_EXPLAINED = 500
"""Most checks in one request that asks for traces."""
_REQUEST = msgspec.json.Decoder(CheckRequest)
_CHECK = msgspec.json.Decoder(CheckBody)


class BatchBuilder:
    """Builder of a request: joins checks that share everything but the resource."""

    def __init__(self) -> None:
        self._grouper = CheckGrouper()
        self._columns: list[Check] = []
        self._rejected: dict[int, Rejection] = {}
        self._unresolved: list[Check] = []
        self._size = 0

    def add_json(self, body: CheckBody) -> None:
        """Add a decoded JSON check at the next position; reject the position if a part does not parse."""
        principal = None
        try:
            resource, env, query_id = _subject(body)
            principal = UNNAMED if body.principal is UNSET else make_principal(body.principal)
            role = make_acting_role(body.acting_role)
        except InvalidArgument as error:
            if principal is UNNAMED:
                # A missing principal is the earlier error. Only admission knows whether the caller has one.
                self._unresolved.append(Check(UNNAMED, "", (), (self._size,)))
            self.reject(Rejection(error.code, str(error)))
        else:
            self.add(Check(principal, body.action, (resource,), (0,), body.delegated, role, env, query_id))

    def add(self, check: Check) -> None:
        """Add a check of one resource at the next position."""
        self._grouper.put(check, self._size)
        self._size += 1

    def add_resources(
        self, check: Check, resources: Sequence[Resource | Rejection], at: Sequence[int] | None = None
    ) -> None:
        """Add one question about many resources, at the positions `at` or else at the next ones.

        `check` has no resources yet. All calls for one request with `at`, and `add_column`, must together cover all
        positions.
        """
        columns: dict[tuple[str, str, str | None], tuple[list[Resource], list[int]]] = {}
        unresolved: list[int] = []
        positions = range(self._size, self._size + len(resources)) if at is None else at
        self._size += len(resources)
        for position, resource in zip(positions, resources, strict=True):
            if isinstance(resource, Rejection):
                self._rejected[position] = resource
                unresolved.append(position)
                continue
            key = (resource.type, resource.warehouse, resource.ref)
            column = columns.get(key)
            if column is None:
                column = columns[key] = ([], [])
            column[0].append(resource)
            column[1].append(position)
        self._columns += (msgspec.structs.replace(check, resources=some, at=at) for some, at in columns.values())
        if unresolved:
            self._unresolved.append(msgspec.structs.replace(check, at=unresolved))

    def add_column(self, check: Check, resources: PathColumn, at: Sequence[int]) -> None:
        """Add one question about a column of paths at the positions `at`.

        The calls for one request must together cover all positions.
        """
        self._size += len(resources)
        self._columns.append(msgspec.structs.replace(check, resources=resources, at=at))

    def reject(self, rejected: Rejection) -> None:
        """Reject the check at the next position."""
        self._rejected[self._size] = rejected
        self._size += 1

    def request(
        self, surface: str, consistency: str | AtLeast = "minimize_latency", *, explain: bool = False
    ) -> BatchRequest:
        """Return the finished request."""
        checks = (*self._grouper.checks(), *self._columns)
        return BatchRequest(surface, self._size, checks, self._rejected, self._unresolved, consistency, explain)


def decode_batch(body: bytes, max_checks: int, surface: str = "http") -> BatchRequest:
    """Return the request in a POST /v1/check body.

    Raise InvalidArgument if the body as a whole is invalid, TooManyChecks above the limit.
    """
    request = decode(body, _REQUEST)
    bound_checks(len(request.checks), min(max_checks, MAX_EXPLAINED) if request.explain else max_checks)
    return decode_checks(request.checks).request(surface, request.consistency, explain=request.explain)


def bound_checks(count: int, max_checks: int) -> None:
    """Raise TooManyChecks above the limit."""
    if count > max_checks:
        raise TooManyChecks(f"{count} checks in one request, the limit is {max_checks}")


def decode_checks(checks: Iterable[msgspec.Raw | bytes], *, unique_keys: bool = False) -> BatchBuilder:
    """Return a builder with checks from JSON texts. A text with a syntax error rejects its position.

    `unique_keys` rejects duplicate keys. Set `unique_keys` unless a search of the whole body excludes duplicates.
    """
    builder = BatchBuilder()
    for text in checks:
        try:
            builder.add_json(decode(bytes(text), _CHECK) if unique_keys else _CHECK.decode(text))
        except InvalidArgument as error:
            builder.reject(Rejection(error.code, str(error)))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            builder.reject(Rejection("invalid_argument", sentence(str(error))))
    return builder


def decision_body(decision: Decision) -> DecisionBody:
    """Return a decision in its JSON form."""
    error = ErrorBody(decision.error.code, decision.error.message) if decision.error else UNSET
    if decision.error:
        return DecisionBody(False, decision.by, error=error)
    trace = UNSET if decision.trace is None else decision.trace
    return DecisionBody(decision.allowed, decision.by, decision.errors, decision.cached, trace)


def encode_answer(answer: Answer) -> bytes:
    """Return the answer of POST /v1/check as JSON."""
    decisions = [decision_body(answer.decision(at)) for at in range(len(answer.allowed))]
    return msgspec.json.encode({"decisions": decisions, "revision": answer.revision, "decisionId": answer.id})


def make_resource(body: str | ResourceBody) -> Resource:
    """Return the resource of a reference or of a body in parts; raise InvalidReference."""
    if isinstance(body, str):
        return parse_resource(body)
    if body.reference:
        return _referenced(body)
    if body.type not in RESOURCE_TYPES:
        raise InvalidReference(f"unknown resource type `{body.type}`")
    if body.type in NAMED_TYPES:
        return _named(body)
    if body.name:
        raise InvalidReference(f"a {body.type} has no `name`: its last part stands in `path`")
    if body.type == "server":
        if body.warehouse or body.path or body.ref:
            raise InvalidReference("`server` has no parts")
        return Resource("server")
    if body.ref and body.type not in VERSIONED_TYPES:
        raise InvalidReference(f"a {body.type} has no ref")
    return Resource(
        body.type,
        check_part(body.warehouse),
        check_path(body.type, body.path),
        check_part(body.ref) if body.ref else None,
        content_type=body.content_type,
        ref_type=body.ref_type,
        id=body.id,
        properties=body.properties,
    )


def _named(body: ResourceBody) -> Resource:
    if body.warehouse or body.path or body.ref:
        raise InvalidReference(f"a {body.type} has a `name` alone")
    parse_resource(f"{body.type}:{encode_part(body.name) if body.type in ('project', 'tag') else body.name}")
    return Resource(body.type, name=body.name, id=body.id, properties=body.properties)


def _referenced(body: ResourceBody) -> Resource:
    if body.type or body.warehouse or body.path or body.ref or body.name:
        raise InvalidReference("a resource is its `reference` or its parts, not both")
    return msgspec.structs.replace(
        parse_resource(body.reference),
        content_type=body.content_type,
        ref_type=body.ref_type,
        id=body.id,
        properties=body.properties,
    )


def make_principal(body: str | PrincipalBody) -> Principal:
    """Return the principal of an id or of a body; raise InvalidReference."""
    if isinstance(body, str):
        return parse_principal(body)
    attributes = msgspec.json.encode(body.attributes, order="sorted").decode() if body.attributes else "{}"
    bare = parse_principal(body.id)
    return Principal(bare.type, bare.name, body.roles, body.groups, attributes)


def _subject(body: CheckBody) -> tuple[Resource, Env, str]:
    """Return the resource with its arguments, the environment and the query id of a check; raise InvalidArgument."""
    resource = make_resource(body.resource)
    context = body.context
    arguments = make_arguments(context.arguments)
    if arguments is not NO_ARGUMENTS:
        resource = msgspec.structs.replace(resource, arguments=arguments)
    if not is_id(context.query_id):
        raise InvalidArgument("`context.queryId` is not 1 to 128 of A-Z a-z 0-9 . _ : -")
    return resource, Env(context.api.name, context.api.version, context.actions), context.query_id


def make_acting_role(role: str | UnsetType) -> str | None:
    """Return the id of an acting role, None if absent; raise InvalidReference if invalid. An empty text is invalid."""
    if role is UNSET:
        return None
    principal = parse_principal(role)
    if principal.type != "role":
        raise InvalidReference(f"actingRole `{role}` is not `role:<id>`")
    return principal.name


def make_arguments(given: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a check. `name` and `destination` are parsed; the others stay as given.

    Raise InvalidArgument if `name` is not a string or `destination` is not a resource.
    """
    if not given:
        return NO_ARGUMENTS
    name, destination = given.get("name"), given.get("destination")
    if name is not None and not isinstance(name, str):
        raise InvalidArgument("`context.arguments.name` is not a string")
    return Arguments(None if name is None else check_part(name), _destination(destination), given)


def _destination(given: Any) -> Resource | None:
    if given is None:
        return None
    try:
        return make_resource(msgspec.convert(given, str | ResourceBody))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"`context.arguments.destination`: {error}") from None
