"""The native JSON form of checks and decisions, as HTTP, the command line and case files write it.

Only maps: a check that does not parse becomes a rejection at its own position and never touches its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pdp.errors import InvalidArgument, InvalidReference, TooManyChecks
from pdp.identity.callers import own_principal, weigh
from pdp.model.checks import (
    NAMED_TYPES,
    NO_ARGUMENTS,
    RESOURCE_TYPES,
    VERSIONED_TYPES,
    Answer,
    Arguments,
    AtLeast,
    Batch,
    Caller,
    Check,
    CheckGrouper,
    Decision,
    Env,
    Principal,
    Rejected,
    Resource,
    Siblings,
)
from pdp.model.references import check_part, check_path, encode_part, is_id, parse_principal, parse_resource
from pdp.strict import decode, sentence


class _Body(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


class PrincipalBody(_Body):
    """A principal with what its token carried."""

    id: str
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)


class ResourceBody(_Body):
    """A resource in parts, or a reference with what a reference cannot say."""

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


class ApiBody(_Body):
    """The API that the principal used."""

    name: str = ""
    version: int = 0


class ContextBody(_Body):
    """The circumstances of a check."""

    api: ApiBody = msgspec.field(default_factory=ApiBody)
    actions: tuple[str, ...] = ()
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    query_id: str = ""


class CheckBody(_Body):
    """One check as written."""

    action: str
    resource: str | ResourceBody
    principal: str | PrincipalBody | UnsetType = UNSET
    delegated: bool = False
    acting_role: str | UnsetType = UNSET
    context: ContextBody = msgspec.field(default_factory=ContextBody)


class CheckRequest(_Body):
    """The body of POST /v1/check."""

    checks: list[msgspec.Raw]
    consistency: str | AtLeast = "minimize_latency"
    explain: bool = False


class ErrorBody(msgspec.Struct, frozen=True):
    """An error as every surface shows it."""

    code: str
    message: str


class DecisionBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision as written; what is empty by nature is always there."""

    allowed: bool
    by: tuple[str, ...]
    errors: tuple[str, ...] | msgspec.UnsetType = UNSET
    cached: bool | msgspec.UnsetType = UNSET
    trace: Any = UNSET
    error: ErrorBody | msgspec.UnsetType = UNSET


MAX_EXPLAINED = 500
"""Checks in one request that asks for traces."""
_REQUEST = msgspec.json.Decoder(CheckRequest)
_CHECK = msgspec.json.Decoder(CheckBody)


class BatchBuilder:
    """A batch in the making: checks that share everything but the resource become one."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._gathered = CheckGrouper()
        self._columns: list[Check] = []
        self._rejected: dict[int, Rejected] = {}
        self._size = 0

    def put(self, body: CheckBody) -> None:
        """Add a check at the next position."""
        try:
            self.add(_check(body, self._caller))
        except InvalidArgument as error:
            self.reject(Rejected(error.code, str(error)))

    def add(self, check: Check) -> None:
        """Add a check of one resource at the next position; its caller's evidence is weighed here."""
        weighed = weigh(self._caller, check)
        if isinstance(weighed, Rejected):
            self.reject(weighed)
            return
        self._gathered.put(weighed, self._size)
        self._size += 1

    def spread(self, check: Check, resources: Iterable[Resource | Rejected]) -> None:
        """Add one question about many resources, each at the next position."""
        weighed = weigh(self._caller, check)
        refused = weighed if isinstance(weighed, Rejected) else None
        buckets: dict[tuple[str, str, str | None], tuple[list[Resource], list[int]]] = {}
        for resource in resources:
            rejected = refused or (resource if isinstance(resource, Rejected) else None)
            if rejected:
                self._rejected[self._size] = rejected
            elif isinstance(resource, Resource):
                key = (resource.type, resource.warehouse, resource.ref)
                bucket = buckets.get(key)
                if bucket is None:
                    bucket = buckets[key] = ([], [])
                bucket[0].append(resource)
                bucket[1].append(self._size)
            self._size += 1
        if isinstance(weighed, Check):
            self._columns += (msgspec.structs.replace(weighed, resources=some, at=at) for some, at in buckets.values())

    def siblings(self, check: Check, resources: Siblings, at: Sequence[int]) -> None:
        """The same about siblings, as one column at positions of their own; whoever asks so leaves none out."""
        weighed = weigh(self._caller, check)
        self._size += len(resources)
        if isinstance(weighed, Rejected):
            self._rejected.update(dict.fromkeys(at, weighed))
        else:
            self._columns.append(msgspec.structs.replace(weighed, resources=resources, at=at))

    def reject(self, rejected: Rejected) -> None:
        """Give the next position to a check that cannot be asked."""
        self._rejected[self._size] = rejected
        self._size += 1

    def batch(self, surface: str, consistency: str | AtLeast = "minimize_latency", explain: bool = False) -> Batch:
        """The finished batch."""
        checks = (*self._gathered.checks(), *self._columns)
        return Batch(surface, self._caller, self._size, checks, self._rejected, consistency, explain)


def decode_batch(body: bytes, caller: Caller, max_checks: int, surface: str = "http") -> Batch:
    """The batch of a POST /v1/check body; raises InvalidArgument or TooManyChecks for the request as a whole."""
    request = decode(body, _REQUEST)
    bound_checks(len(request.checks), min(max_checks, MAX_EXPLAINED) if request.explain else max_checks)
    return draft(request.checks, caller).batch(surface, request.consistency, request.explain)


def bound_checks(count: int, max_checks: int) -> None:
    """Raise TooManyChecks above the limit."""
    if count > max_checks:
        raise TooManyChecks(f"{count} checks in one request, the limit is {max_checks}")


def draft(checks: Iterable[msgspec.Raw | bytes], caller: Caller, *, strictly: bool = False) -> BatchBuilder:
    """Checks as JSON texts; one that does not parse rejects its own position.

    `strictly` looks for duplicate keys, for texts that no whole body was checked for.
    """
    made = BatchBuilder(caller)
    for text in checks:
        try:
            made.put(decode(bytes(text), _CHECK) if strictly else _CHECK.decode(text))
        except InvalidArgument as error:
            made.reject(Rejected(error.code, str(error)))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            made.reject(Rejected("invalid_argument", sentence(str(error))))
    return made


def decision_body(decision: Decision) -> DecisionBody:
    """A decision as JSON shows it."""
    error = ErrorBody(decision.error.code, decision.error.message) if decision.error else UNSET
    if decision.error:
        return DecisionBody(False, decision.by, error=error)
    trace = UNSET if decision.trace is None else decision.trace
    return DecisionBody(decision.allowed, decision.by, decision.errors, decision.cached, trace)


def encode_answer(answer: Answer) -> bytes:
    """The answer of POST /v1/check."""
    decisions = [decision_body(answer.decision(at)) for at in range(len(answer.allowed))]
    return msgspec.json.encode({"decisions": decisions, "revision": answer.revision, "decisionId": answer.id})


def make_resource(body: str | ResourceBody) -> Resource:
    """A resource from either of its forms; raises InvalidReference."""
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
    """A principal from either of its forms; raises InvalidReference."""
    if isinstance(body, str):
        return parse_principal(body)
    attributes = msgspec.json.encode(body.attributes, order="sorted").decode() if body.attributes else "{}"
    bare = parse_principal(body.id)
    return Principal(bare.type, bare.name, body.roles, body.groups, attributes)


def _check(body: CheckBody, caller: Caller) -> Check:
    resource = make_resource(body.resource)
    arguments = make_arguments(body.context.arguments)
    if arguments is not NO_ARGUMENTS:
        resource = msgspec.structs.replace(resource, arguments=arguments)
    api = body.context.api
    if not is_id(body.context.query_id):
        raise InvalidArgument("`context.queryId` is not 1 to 128 of A-Z a-z 0-9 . _ : -")
    return Check(
        own_principal(caller) if body.principal is UNSET else make_principal(body.principal),
        body.action,
        (resource,),
        (0,),
        body.delegated,
        make_acting_role(body.acting_role),
        Env(api.name, api.version, body.context.actions),
        body.context.query_id,
    )


def make_acting_role(role: str | UnsetType) -> str | None:
    """The id of an assumed role; an empty one is invalid, not absent."""
    if role is UNSET:
        return None
    principal = parse_principal(role)
    if principal.type != "role":
        raise InvalidReference(f"actingRole `{role}` is not `role:<id>`")
    return principal.name


def make_arguments(given: Mapping[str, Any]) -> Arguments:
    """The arguments of a check; `name` and `destination` are read, the rest is kept as given."""
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
