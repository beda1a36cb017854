"""JSON of the inputs of a check, piece by piece: a record is the pieces of its values, joined.

A string costs half as much here as in `msgspec`, whose result is bytes. `msgspec` writes all larger values.

The written form must carry every input that decides; `recorded.py` makes the same checks from the JSON again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring as quote
from typing import Any, Final, TypeAlias

import msgspec

from pdp.audit.records.schema import more_fields, shared_inputs
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import (
    NAMED_TYPES,
    NO_ARGUMENTS,
    RESOURCE_TYPES,
    UNNAMED,
    VERSIONED_TYPES,
    Check,
    Principal,
    QuerySession,
    Question,
    RequestContext,
    Resource,
)
from pdp.model.redaction import DEFAULT_MASKER, Redactor
from pdp.model.references import encode_part, format_path, format_resource

__all__ = ["FLAGS", "json_text", "quote", "quote_all"]


_encode: Final = msgspec.json.Encoder().encode
FLAGS: Final = ("false", "true")
"""Text of 0 and 1, or of False and True."""


def json_text(value: Any) -> str:
    """Return any value as JSON."""
    return _encode(value).decode()


def quote_all(texts: Iterable[str]) -> str:
    """Return an array of strings as JSON."""
    return f"[{','.join(map(quote, texts))}]"


InputsKey: TypeAlias = tuple[Question, str, str]
"""Inputs of a check beside those of each entry: checks with equal keys share one `inputs` object of a record."""

_KEPT_INPUTS: Final = 1000
_LONGEST_KEPT: Final = 4000
"""Inputs whose text an encoder keeps, and the most characters of such a text."""
_KEPT_REFS: Final = 1000
_LONGEST_KEPT_REF: Final = 256
"""Pairs of type and ref whose text is kept, and the most characters of such a ref."""
_PATH_TYPES: Final = RESOURCE_TYPES - NAMED_TYPES - {"server"}
"""Types whose references have a warehouse and a path."""


def inputs_key(check: Check) -> InputsKey:
    """Return the key by which checks share inputs."""
    return shared_inputs(check.question), check.query_id, check.query_user


def has_inputs(check: Check) -> bool:
    """Tell whether a check has a principal, and so inputs. A refused check may have none."""
    return check.question.principal is not UNNAMED


def first_by_inputs(checks: Sequence[Check]) -> dict[InputsKey, Check]:
    """Return the first check of each distinct inputs, in order of appearance."""
    first: dict[InputsKey, Check] = {}
    for check in checks:
        first.setdefault(inputs_key(check), check)
    return first


class InputsEncoder:
    """Encoder of `inputs` objects.

    Requests differ in the query id even if all else is equal. The encoder keeps the text before the query.
    """

    def __init__(self, masker: Redactor = DEFAULT_MASKER) -> None:
        self.masker = masker
        self._kept: BoundedCache[Question, str] = BoundedCache(_KEPT_INPUTS, _LONGEST_KEPT)

    def encode(self, check: Check) -> str:
        """Return the `inputs` object of a check as JSON."""
        return f"{self.before_query(check)}{query_text(check)}}}}}"

    def before_query(self, check: Check) -> str:
        """Return an `inputs` object up to the query. The query and the ends of two objects follow."""
        question = shared_inputs(check.question)
        text = self._kept.get(question)
        if text is None:
            text = _before_query(question, self.masker)
            self._kept.keep(question, text, len(text))
        return text


def query_text(check: Check) -> str:
    """Return the fields of the query of a check as JSON: each follows a comma."""
    text = f',"queryId":{quote(check.query_id)}' if check.query_id else ""
    return f'{text},"queryUser":{quote(check.query_user)}' if check.query_user else text


def is_bare(resource: Resource) -> bool:
    """Tell whether the reference of a resource says everything that decides."""
    if resource.arguments is not NO_ARGUMENTS or (resource.ref and resource.type == "warehouse"):
        return False
    return not (resource.content_type or resource.ref_type or resource.id or resource.properties)


def path_text(resource: Resource) -> str:
    """Return the warehouse and the path of a reference as JSON without quotes."""
    parts = (resource.warehouse, *resource.path)
    if "".join(parts).isidentifier():  # most often: nothing to escape, neither for a reference nor for JSON
        return "/".join(parts)
    return quote(format_path(resource))[1:-1]


def reference_text(resource: Resource, type: str, ref: str | None, path: str) -> str:
    """Return the reference of a resource as JSON, with `type`, and with `ref` if the resource has none.

    `path` is the result of `path_text`.
    """
    around = around_path(type, resource.ref or ref or "")
    return f"{around[0]}{path}{around[1]}" if around else quote(format_resource(resource, ref, type))


def around_path(type: str, ref: str) -> tuple[str, str] | None:
    """Return the JSON of a reference before and after its path; None for other references, and for a long ref."""
    return None if type not in _PATH_TYPES or len(ref) > _LONGEST_KEPT_REF else _around_path(type, ref)


@lru_cache(maxsize=_KEPT_REFS)
def _around_path(type: str, ref: str) -> tuple[str, str]:
    """Return the JSON of a reference before and after its path."""
    after = f"@{quote(encode_part(ref))[1:-1]}" if ref and type in VERSIONED_TYPES else ""
    return f'"{type}:', f'{after}"'


def more_than_reference(resource: Resource, masker: Redactor) -> str:
    """Return the fields that decide beside the reference of a resource, as JSON: each follows a comma.

    Secrets are masked. Then the field `masked` lists their places, and the record does not decide again.
    """
    more = f',"ref":{quote(resource.ref)}' if resource.ref and resource.type == "warehouse" else ""
    if resource.content_type:
        more = f'{more},"contentType":{quote(resource.content_type)}'
    if resource.ref_type:
        more = f'{more},"refType":{quote(resource.ref_type)}'
    if resource.id:
        more = f'{more},"id":{quote(resource.id)}'
    masked: list[str] = []
    if properties := resource.properties:
        shown = masker.masked(properties)
        if shown is not properties:
            masked += masker.places(properties, "/properties")
        more = f'{more},"properties":{json_text(shown)}'
    if arguments := _arguments(resource):
        shown = masker.masked(arguments)
        if shown is not arguments:
            masked += masker.places(arguments, "/arguments")
        more = f'{more},"arguments":{json_text(shown)}'
    return f'{more},"masked":{json_text(masked)}' if masked else more


def _before_query(question: Question, masker: Redactor) -> str:
    """Return an `inputs` object without the ends of the object and of its `context`."""
    role = quote(f"role:{question.acting_role}") if question.acting_role is not None else "null"
    text = f'{{"principal":{_principal(question.principal, masker)},"actingRole":{role}'
    for field in more_fields(type(question)):
        value = getattr(question, field.name)
        if value != field.default:
            text = f'{text},"{field.key}":{_value(value, masker)}'
    return f'{text},"context":{{{_context(question.context)}'


def _value(value: Any, masker: Redactor) -> str:
    if isinstance(value, QuerySession):
        return f'{{"user":{"null" if value.user is None else _principal(value.user, masker)}}}'
    return json_text(value)


def _context(context: RequestContext) -> str:
    actions = f'"actions":{quote_all(context.actions)}'
    if context.now:
        actions = f'{actions},"now":{context.now}'
    if not context.api_name and not context.api_version:
        return actions
    return f'{actions},"api":{{"name":{quote(context.api_name)},"version":{context.api_version}}}'


def _principal(principal: Principal, masker: Redactor) -> str:
    member_of = f',"memberOf":{quote_all(principal.member_of)}' if principal.member_of else ""
    if principal.unknown:
        member_of = f'{member_of},"unknown":{quote_all(principal.unknown)}'
    if principal.unseen:
        member_of = f'{member_of},"unseen":{quote_all(principal.unseen)}'
    attributes = principal.attributes
    if attributes != "{}":
        given = msgspec.json.decode(attributes)
        shown = masker.masked(given)
        if shown is not given:
            masked = list(masker.places(given, "/attributes"))
            attributes, member_of = json_text(shown), f'{member_of},"masked":{json_text(masked)}'
    return (
        f'{{"id":{quote(principal.id)},"roles":{quote_all(principal.roles)},"groups":{quote_all(principal.groups)},'
        f'"attributes":{attributes}{member_of}}}'
    )


def _arguments(resource: Resource) -> Mapping[str, Any]:
    arguments = resource.arguments
    if arguments is NO_ARGUMENTS:
        return {}
    if arguments.destination is None:
        return arguments.given
    return {**arguments.given, "destination": format_resource(arguments.destination)}
