"""Bodies of AuthZEN 1.0 as types, and their reading. Unknown fields are ignored, doubled keys are refused.

Source: OpenID AuthZEN Authorization API 1.0. Must not know names of the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from pdp.decision.codec import bound_checks
from pdp.decision.path_arrays import RepeatedText
from pdp.errors import InvalidArgument, TooManyChecks
from pdp.model.strict import decode, parse, sentence

Properties: TypeAlias = dict[str, Any] | UnsetType
Semantic: TypeAlias = Literal["execute_all", "deny_on_first_deny", "permit_on_first_permit"]


class _Body(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of AuthZEN's bodies. Defaults are omitted: see `pdp.model.strict.has_all_strings`."""


class NamedEntity(_Body):
    """A subject or a resource."""

    type: str
    id: str
    properties: Properties = UNSET


class ActionName(_Body):
    """An action."""

    name: str
    properties: Properties = UNSET


class Evaluation(_Body):
    """One question."""

    subject: NamedEntity
    action: ActionName
    resource: NamedEntity
    context: Properties = UNSET


class _Part(_Body):
    """An item of `evaluations`: what is missing comes whole from the request around."""

    subject: NamedEntity | UnsetType = UNSET
    action: ActionName | UnsetType = UNSET
    resource: NamedEntity | UnsetType = UNSET
    context: Properties = UNSET


class _Options(_Body):
    evaluations_semantic: Semantic = "execute_all"


class _Evaluations(_Part):
    options: _Options | UnsetType = UNSET
    evaluations: list[_Part] | UnsetType = UNSET


class _Texts(_Part):
    options: _Options | UnsetType = UNSET
    evaluations: list[Raw] | UnsetType = UNSET


class Kind(_Body):
    """A searched subject or resource: an id and properties have no meaning."""

    type: str


class Page(_Body):
    """A page of a search."""

    token: str = ""
    limit: Annotated[int, msgspec.Meta(ge=0)] | UnsetType = UNSET


class _Search(_Body):
    context: Properties = UNSET
    page: Page | UnsetType = UNSET


class SubjectSearch(_Search, kw_only=True):
    """Body of a search for subjects."""

    subject: Kind
    action: ActionName
    resource: NamedEntity


class ResourceSearch(_Search, kw_only=True):
    """Body of a search for resources."""

    subject: NamedEntity
    action: ActionName
    resource: Kind


class ActionSearch(_Search, kw_only=True):
    """Body of a search for actions."""

    subject: NamedEntity
    resource: NamedEntity


_EVALUATION: Final = msgspec.json.Decoder(Evaluation)
_EVALUATIONS: Final = msgspec.json.Decoder(_Evaluations)
_TEXTS: Final = msgspec.json.Decoder(_Texts)
_PART: Final = msgspec.json.Decoder(_Part)
_FIELDS: Final = ("subject", "action", "resource")
_SHORT: Final = 128
"""Bytes of a part that may be repeated without a count: the most items have a megabyte of them."""


class Evaluations(msgspec.Struct):
    """A request: its items, each a question or the error of the item, or else a single question."""

    items: Sequence[Evaluation | InvalidArgument]
    single: Evaluation | None = None
    semantic: Semantic = "execute_all"


def read_evaluation(body: bytes) -> Evaluation:
    """Return the question of a body; raise InvalidArgument."""
    return decode(body, _EVALUATION, typed=True)


def read_evaluations(body: bytes, most: int) -> Evaluations:
    """Return the questions of a body, at most `most`; raise InvalidArgument for an error outside of the items.

    Raise TooManyChecks, TooMuchRepeated.
    """
    parts: Sequence[_Part | InvalidArgument]
    request: _Evaluations | _Texts
    try:
        request = decode(body, _EVALUATIONS, typed=True)
        parts = request.evaluations or ()
        bound_checks(len(parts), most)
    except TooManyChecks:
        raise
    except InvalidArgument:  # perhaps of one item alone
        request = decode(body, _TEXTS)
        texts = request.evaluations or ()
        bound_checks(len(texts), most)
        parts = [_read_part(bytes(text)) for text in texts]
    semantic = request.options.evaluations_semantic if request.options else "execute_all"
    if not parts:
        return Evaluations((), _whole(request, request), semantic)
    _bound_shared(request, parts)
    return Evaluations([_item(part, request) for part in parts], None, semantic)


def _bound_shared(around: _Part, parts: Sequence[_Part | InvalidArgument]) -> None:
    """Raise TooMuchRepeated if a short body makes long questions: items without a large shared part."""
    repeated = RepeatedText()
    for field in _FIELDS:
        shared = getattr(around, field)
        if shared is not UNSET and (length := len(msgspec.json.encode(shared))) > _SHORT:
            count = sum(isinstance(part, _Part) and getattr(part, field) is UNSET for part in parts)
            repeated.add_bytes(length, count)


def _read_part(text: bytes) -> _Part | InvalidArgument:
    try:
        return parse(text, _PART)
    except InvalidArgument as error:
        return error.with_traceback(None)


def _item(part: _Part | InvalidArgument, around: _Part) -> Evaluation | InvalidArgument:
    if isinstance(part, InvalidArgument):
        return part
    try:
        return _whole(part, around)
    except InvalidArgument as error:
        return error.with_traceback(None)


def _whole(part: _Part, around: _Part) -> Evaluation:
    """Return the question of an item; raise InvalidArgument if a field is missing in both."""
    subject = around.subject if part.subject is UNSET else part.subject
    action = around.action if part.action is UNSET else part.action
    resource = around.resource if part.resource is UNSET else part.resource
    if subject is UNSET or action is UNSET or resource is UNSET:
        missing = next(name for name, value in zip(_FIELDS, (subject, action, resource), strict=True) if value is UNSET)
        raise InvalidArgument(f"object missing required field `{missing}`")
    return Evaluation(subject, action, resource)


def names_of(value: object, field: str) -> tuple[str, ...]:
    """Return the texts of a list in `subject.properties`; raise InvalidArgument for another value."""
    try:
        return msgspec.convert(value, tuple[str, ...], strict=True)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"`subject.properties.{field}`: {sentence(str(error))}") from None
