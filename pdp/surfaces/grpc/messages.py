"""Mapping between gRPC messages and the request bodies and results of the decision API. Holds no policy.

Request messages become the same body types as JSON requests, so that both protocols share all validation.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value
from msgspec import UNSET, UnsetType

from pdp.decision.bodies import AnswerForm, ApiBody, CheckBody, ContextBody, PrincipalBody, ResourceBody
from pdp.errors import InvalidArgument
from pdp.model.answer import Rejection
from pdp.model.question import AtLeast
from pdp.model.strict import FIRST_INEXACT
from pdp.surfaces.wire import decision_pb2 as wire
from pdp.views.codec import ChangeBody, LoadBody, LoadResult, LoadStep, TokenBody, ViewBody, decode_metadata

M = TypeVar("M", bound=Message)


def parse(body: bytes, kind: type[M]) -> M:
    """Parse bytes as a message of a type; raise InvalidArgument if they do not parse."""
    try:
        return kind.FromString(body)
    except DecodeError:
        raise InvalidArgument(f"the bytes are no {kind.__name__}") from None


def read_consistency(consistency: wire.Consistency) -> str | AtLeast:
    """Return how fresh the facts must be; `minimize_latency` by default."""
    requirement = consistency.WhichOneof("requirement")
    if requirement == "at_least":
        return AtLeast(consistency.at_least)
    return requirement or "minimize_latency"


def read_answer_form(form: str) -> AnswerForm:
    """Return the form of an answer, `decisions` by default; raise InvalidArgument for an unknown form."""
    if form in ("", "decisions"):
        return "decisions"
    if form == "indices":
        return "indices"
    raise InvalidArgument(f"answer `{form}` is none of `decisions`, `indices`")


def read_check(check: wire.Check) -> CheckBody:
    """Return the body of one check. A list of resources may be empty, which counts as absent."""
    body = read_question(check)
    if check.resources:
        body.resources = [read_resource(resource) for resource in check.resources]
    if check.HasField("resource") or not check.resources:
        body.resource = read_resource(check.resource)
    return body


def read_question(check: wire.Check) -> CheckBody:
    """Return the body of one check without its resources."""
    return CheckBody(
        principal=read_optional_principal(check),
        action=check.action,
        delegated=check.delegated,
        acting_role=check.acting_role if check.HasField("acting_role") else UNSET,
        context=_context(check.context) if check.HasField("context") else UNSET,
    )


def _context(context: wire.Context) -> ContextBody:
    return ContextBody(
        ApiBody(context.api.name, context.api.version),
        tuple(context.actions),
        read_struct(context.arguments, "context.arguments"),
        context.query_id,
    )


def read_load(request: wire.CheckLoadRequest) -> LoadBody:
    """Return the body of a load; raise InvalidArgument for a view without properties."""
    names = request.view_names.views
    return LoadBody(
        read_resource(request.target),
        request.action,
        read_optional_principal(request),
        request.acting_role if request.HasField("acting_role") else UNSET,
        [list(name.parts) for name in names] if names else request.referenced_by,
        [_view(view) for view in request.views],
        _token(request.caller) if request.HasField("caller") else None,
        decode_metadata(request.metadata) if request.metadata else None,
    )


def read_change(request: wire.CheckViewCommitRequest) -> ChangeBody:
    """Return the body of a view commit."""
    return ChangeBody(
        read_resource(request.view),
        request.operation,
        read_optional_principal(request),
        request.acting_role if request.HasField("acting_role") else UNSET,
        read_struct(request.set, "set"),
        list(request.remove),
        _token(request.caller) if request.HasField("caller") else None,
    )


def load_response(loaded: LoadResult) -> wire.CheckLoadResponse:
    """Return the response to a load."""
    return wire.CheckLoadResponse(
        allowed=loaded.decision.allowed,
        by=loaded.decision.by,
        errors=loaded.decision.errors,
        storage_access=loaded.storage_access,
        referenced_by_used=loaded.referenced_by_used,
        steps=map(_step, loaded.steps),
        revision=loaded.revision,
        decision_id=loaded.id,
        error=_error(loaded.decision.error),
        read_restrictions=loaded.read_restrictions,
    )


def change_response(changed: LoadResult) -> wire.CheckViewCommitResponse:
    """Return the response to a view commit."""
    return wire.CheckViewCommitResponse(
        allowed=changed.decision.allowed,
        by=changed.decision.by,
        errors=changed.decision.errors,
        steps=map(_step, changed.steps),
        revision=changed.revision,
        decision_id=changed.id,
        error=_error(changed.decision.error),
    )


def _step(step: LoadStep) -> wire.Step:
    return wire.Step(
        resource=step.resource,
        as_principal=step.as_principal,
        delegated=step.delegated,
        action=step.action,
        allowed=step.allowed,
        by=step.by,
    )


def _error(error: Rejection | None) -> wire.Error | None:
    return wire.Error(code=error.code, message=error.message) if error else None


def _view(view: wire.View) -> ViewBody:
    if not view.HasField("properties"):
        raise InvalidArgument("a view in `views` is without its `properties`")
    return ViewBody(read_resource(view.resource), read_struct(view.properties, "properties"))


def _token(token: wire.TokenIdentity) -> TokenBody:
    return TokenBody(token.idp, token.subject, tuple(token.audiences))


def read_optional_principal(message: Any) -> str | PrincipalBody | UnsetType:
    """Return the `principal` of a message; UNSET if the message has none."""
    return read_principal(message.principal) if message.HasField("principal") else UNSET


def read_principal(principal: wire.Principal) -> str | PrincipalBody:
    """Return the body of a principal: the id if there is nothing else."""
    if not (principal.roles or principal.groups or principal.HasField("attributes")):
        return principal.id
    return PrincipalBody(
        principal.id, tuple(principal.roles), tuple(principal.groups), read_struct(principal.attributes, "attributes")
    )


def read_resource(resource: wire.Resource) -> str | ResourceBody:
    """Return the body of a resource: the reference if there is nothing else."""
    reference = resource.reference
    # a tag, a length and the text: of other fields, and of a long text, the generated classes must decide
    if reference and (resource.ByteSize() == len(reference) + 2 or resource == wire.Resource(reference=reference)):
        return reference
    return ResourceBody(
        resource.type,
        resource.warehouse,
        tuple(resource.path),
        resource.name,
        resource.ref or None,
        resource.ref_type,
        resource.content_type,
        read_struct(resource.properties, "properties") or None,
        resource.id,
        resource.reference,
    )


def read_struct(struct: Struct, field: str) -> dict[str, Any]:
    """Return a Struct as a dict; raise InvalidArgument for a value that JSON over HTTP could not mean."""
    return {key: _read_value(value, field) for key, value in struct.fields.items()}


def _read_value(value: Value, field: str) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return read_struct(value.struct_value, field)
    if kind == "list_value":
        return [_read_value(item, field) for item in value.list_value.values]
    if kind == "number_value":
        return _read_number(value.number_value, field)
    if kind is None:
        raise InvalidArgument(f"`{field}` has a value without a kind")
    return None if kind == "null_value" else getattr(value, kind)


def _read_number(number: float, field: str) -> float:
    """Return a number of a Struct; raise InvalidArgument if it is not finite, or may be another one, rounded."""
    if not math.isfinite(number):
        raise InvalidArgument(f"`{field}` has a number that is not finite")
    if abs(number) >= FIRST_INEXACT and number.is_integer():
        raise InvalidArgument(
            f"`{field}` has a whole number of 2^53 or more, which google.protobuf.Struct may have rounded: "
            "send it as a text, or ask by JSON over HTTP"
        )
    return number
