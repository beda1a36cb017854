"""JSON of requests and results about stored row policies, and masks with a `column`. Only converts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from pdp.audit.records.writing import timestamp
from pdp.decision.bodies import PrincipalBody
from pdp.engines.row_access.policies import MaskBody, PolicyBody, written
from pdp.errors import InvalidArgument
from pdp.facts.objects import RowPolicy, TablePath, key_text
from pdp.management.codec import make_page_request, make_requester, page_token, query_requester, read_page_size
from pdp.management.requests import PageRequest, Requester
from pdp.management.row_policies import RowPolicyPage, StatementResult
from pdp.management.row_policy_edits import Mode, RowPolicyDrop, RowPolicyWrite, etag_of, new_rule, table_of
from pdp.model.question import Caller
from pdp.model.strict import decode, read_parameters, sentence

T = TypeVar("T")
Etag: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
"""Tag in a body. A tag without text would be none, and overwrite what others wrote."""
LIST_KEYS: Final = frozenset({"table", "pageSize", "pageToken", "actor", "actingRole"})
ENTRY_KEYS: Final = frozenset({"table", "column", "etag", "actor", "actingRole"})


class _RequesterBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    actor: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET

    def requester(self, caller: Caller) -> Requester:
        """Return the requester with the named actor."""
        return make_requester(caller, self.actor, self.acting_role)


class _WriteBody(_RequesterBody, kw_only=True):
    """Keys of a write beside those of the policy or mask, which are the keys of a file."""

    etag: Etag = ""


class BatchDeleteBody(_RequesterBody, kw_only=True):
    """Rules of one table to delete, all or none. Masks need their `column`."""

    table: str
    ids: tuple[str, ...]
    column: str = ""


class PermissionsBody(_RequesterBody, kw_only=True):
    """Permissions on the rules of a table to test."""

    table: str
    permissions: tuple[str, ...]


_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
WRITE_KEYS: Final = tuple(field.encode_name for field in msgspec.structs.fields(_WriteBody))
_OF_FILES: Final = "identity"
"""Key that files alone have: it names who evaluates, and not what holds."""
_BATCH: Final = msgspec.json.Decoder(BatchDeleteBody)
_PERMISSIONS: Final = msgspec.json.Decoder(PermissionsBody)


def decode_rule(body: bytes, caller: Caller, id: str, mode: Mode, *, masks: bool) -> tuple[Requester, RowPolicyWrite]:
    """Return the requester and the rule to write. `id` is that of the path, if the path has one."""
    fields = decode(body, _OBJECT)
    request = _converted({key: fields.pop(key) for key in WRITE_KEYS if key in fields}, _WriteBody)
    rule = _new_rule(fields, MaskBody if masks else PolicyBody, id)
    return request.requester(caller), RowPolicyWrite(rule, mode, request.etag)


def make_rule(fields: dict[str, Any]) -> RowPolicy:
    """Return the rule of the fields of a body; raise InvalidArgument for unknown and missing fields."""
    return _new_rule(fields, MaskBody if "column" in fields else PolicyBody)


def _new_rule(fields: dict[str, Any], kind: type[PolicyBody | MaskBody], id: str = "") -> RowPolicy:
    if _OF_FILES in fields:
        raise InvalidArgument(f"object contains unknown field `{_OF_FILES}`")
    body = _converted({"id": "", **fields}, kind)
    return new_rule(msgspec.structs.replace(body, id=_same_id(body.id, id)))


def _converted(fields: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidArgument(sentence(str(error))) from None


def decode_batch_delete(body: bytes, caller: Caller, *, masks: bool) -> tuple[Requester, list[RowPolicyDrop]]:
    """Return the requester and the rules to drop; raise InvalidArgument for an id that stands twice."""
    request = decode(body, _BATCH)
    if bool(request.column) != masks:
        raise InvalidArgument("a mask has a `column`, a row policy has none")
    if not request.ids or len(set(request.ids)) < len(request.ids):
        raise InvalidArgument("`ids` is a list of different ids")
    table = table_of(request.table)
    return request.requester(caller), [RowPolicyDrop(table, id, request.column) for id in request.ids]


def decode_permissions(body: bytes, caller: Caller) -> tuple[Requester, TablePath, tuple[str, ...]]:
    """Return requester, table and permissions."""
    request = decode(body, _PERMISSIONS)
    return request.requester(caller), table_of(request.table), request.permissions


def decode_rule_list(
    query: Iterable[tuple[str, str]], caller: Caller
) -> tuple[Requester, TablePath | None, PageRequest]:
    """Return requester, table if any, and page from query parameters."""
    given = read_parameters(query, LIST_KEYS)
    size = read_page_size(given)
    table = table_of(given["table"]) if "table" in given else None
    return query_requester(given, caller), table, make_page_request(size, given.get("pageToken", ""))


def decode_entry(
    query: Iterable[tuple[str, str]], caller: Caller, id: str, *, masks: bool
) -> tuple[Requester, RowPolicyDrop]:
    """Return the requester, and the rule that a path and its query parameters name."""
    given = read_parameters(query, ENTRY_KEYS)
    if not given.get("table"):
        raise InvalidArgument("`table` is missing: an id names a policy of one table")
    if bool(given.get("column")) != masks:
        raise InvalidArgument("a mask has a `column`, a row policy has none")
    drop = RowPolicyDrop(table_of(given["table"]), id, given.get("column", ""), etag=given.get("etag", ""))
    return query_requester(given, caller), drop


def rule_body(rule: RowPolicy) -> dict[str, Any]:
    """Return a rule as JSON: the keys of a file, with author, times and etag."""
    body: dict[str, Any] = {"id": rule.id, "table": key_text(("table", rule.table)), "grantees": list(rule.grantees)}
    if rule.column:
        body |= {"column": rule.column, "kind": rule.kind}
        body |= {"expression": written(rule)} if rule.text else {}
        body |= {"except": list(rule.exempt)} if rule.exempt else {}
    else:
        body["filter"] = written(rule)
        body |= {"restrictive": True} if rule.restrictive else {}
    body |= {"author": rule.author} if rule.others else {"dialect": rule.dialect, "author": rule.author}
    body |= {"created": timestamp(rule.created), "updated": timestamp(rule.updated), "etag": etag_of(rule)}
    return body | ({"tombstone": True} if rule.tombstone else {})


def encode_rule(rule: RowPolicy, revision: str, warnings: Sequence[str] = ()) -> bytes:
    """Return one rule with the revision, and `warnings` if there are any."""
    body = rule_body(rule) | {"revision": revision}
    return msgspec.json.encode(body | {"warnings": warnings} if warnings else body)


def encode_rules(page: RowPolicyPage, *, masks: bool) -> bytes:
    """Return a page of rules."""
    name = "columnMasks" if masks else "rowAccessPolicies"
    return msgspec.json.encode(
        {name: [*map(rule_body, page.rules)], "nextPageToken": page_token(page.next), "revision": page.revision}
    )


def encode_permissions(permissions: Sequence[str]) -> bytes:
    """Return the permissions that an actor has."""
    return msgspec.json.encode({"permissions": permissions})


def statement_body(result: StatementResult) -> dict[str, Any]:
    """Return the result of a DDL statement as JSON."""
    body = {"statementType": result.operation, "changed": result.changed, "revision": result.revision}
    return body | {"warnings": result.warnings} if result.warnings else body


def _same_id(given: str, id: str) -> str:
    if id and given and given != id:
        raise InvalidArgument(f"`id` is `{given}`, and the path says `{id}`")
    return id or given
