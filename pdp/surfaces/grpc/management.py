"""Methods of gRPC beside Check: grants, row policies, rewriting and LakeQL's scopes. Hold no policy.

Each maps a message to the JSON body that HTTP takes, and the result back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc
from msgspec import UNSET, UnsetType

from pdp.decision.bodies import PrincipalBody, make_resource
from pdp.decision.scopes import ScopesBody, ScopeService
from pdp.decision.turns import converted
from pdp.errors import InvalidArgument
from pdp.facts.objects import RowPolicy
from pdp.management.codec import (
    PAGE_SIZE,
    also_unassertable,
    canonical_action,
    check_grantable,
    grant_body,
    grant_edits,
    make_grant_filter,
    make_list_requester,
    make_object_query,
    make_page_request,
    make_requester,
    object_edits,
    page_token,
)
from pdp.management.requests import GrantEdits, GrantListing, ObjectEdits, PageRequest, Requester
from pdp.management.row_policies import RowPolicyService
from pdp.management.row_policy_codec import make_rule, rule_body
from pdp.management.row_policy_edits import RowPolicyDrop, RowPolicyWrite, table_of
from pdp.management.service import Management
from pdp.model.question import Caller, Resource
from pdp.rewrite.process.messages import SuppliedCatalog, SuppliedTable, SuppliedView
from pdp.row_access.requests import ColumnBody, FilterBody, RewriteBody, bound_columns
from pdp.row_access.service import StatementService
from pdp.surfaces.grpc.handlers import GrpcHandlers, GrpcMethod, RpcAnswer
from pdp.surfaces.grpc.messages import parse, read_consistency, read_optional_principal, read_resource, read_struct
from pdp.surfaces.wire import decision_pb2 as wire


class GrantsService:
    """Methods of the grants service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.GrantsService"

    def __init__(self, management: Management) -> None:
        self._management = management

    @property
    def methods(self) -> Mapping[str, GrpcMethod]:
        """Return the methods by name."""
        return {
            "WriteGrants": self.write_grants,
            "ListGrants": self.list_grants,
            "WriteObjects": self.write_objects,
            "Access": self.access,
        }

    def handler(self, handlers: GrpcHandlers) -> grpc.GenericRpcHandler:
        """Return the handler of all methods."""
        return handlers.service(self.name, self.methods)

    async def write_grants(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Add and remove grants."""
        request, edits = await converted(body, _read_grants)
        requester = read_requester(request, caller)
        revision, flagged = await self._management.write_grants(requester, edits)
        return RpcAnswer(wire.WriteGrantsResponse(revision=revision, flagged=map(_grant, flagged)), requester.id)

    async def list_grants(self, body: bytes, caller: Caller) -> RpcAnswer:
        """List one page of grants."""
        request = await converted(body, parse, wire.ListGrantsRequest)
        filter = make_grant_filter(
            {
                "object": request.object,
                "below": "true" if request.below else "false",
                "principal": request.principal,
                "privilege": request.privilege,
            }
        )
        requester = read_requester(request, caller)
        page = await self._management.list_grants(requester, filter, read_page(request))
        grants, token = map(_grant, page.entries), page_token(page.next)
        return RpcAnswer(
            wire.ListGrantsResponse(grants=grants, next_page_token=token, revision=page.revision), requester.id
        )

    async def write_objects(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Delete, move and register objects."""
        request, edits = await converted(body, _read_objects)
        requester = read_requester(request, caller)
        revision = await self._management.write_objects(requester, edits)
        return RpcAnswer(wire.WriteObjectsResponse(revision=revision), requester.id)

    async def access(self, body: bytes, caller: Caller) -> RpcAnswer:
        """List one page of the principals that may do an action on an object."""
        request, named = await converted(body, _read_access)
        resource, unassertable = check_grantable(named, caller)
        action = canonical_action(resource.type, request.action)
        requester = also_unassertable(read_requester(request, caller), unassertable)
        page = await self._management.list_access(requester, action, resource, read_page(request))
        principals = [wire.AccessResponse.Access(principal=name, by=[by]) for name, by in page.entries.items()]
        token = page_token(page.next)
        return RpcAnswer(
            wire.AccessResponse(principals=principals, next_page_token=token, revision=page.revision), requester.id
        )


async def list_objects(management: Management, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.List`: list one page of the objects on which a principal may do an action."""
    request, principal = await converted(body, _read_list)
    role = request.acting_role if request.HasField("acting_role") else UNSET
    requester = make_list_requester(caller, principal, role, read_consistency(request.consistency))
    query = make_object_query(request.action, request.type, request.container)
    page = await management.list_objects(requester, query, read_page(request))
    objects, token = list(page.entries), page_token(page.next)
    return RpcAnswer(wire.ListResponse(objects=objects, next_page_token=token, revision=page.revision), requester.id)


def _read_grants(body: bytes) -> tuple[wire.WriteGrantsRequest, GrantEdits]:
    request = parse(body, wire.WriteGrantsRequest)
    return request, grant_edits([*map(_grant_entry, request.add)], [*map(_grant_entry, request.remove)])


def _read_objects(body: bytes) -> tuple[wire.WriteObjectsRequest, ObjectEdits]:
    request = parse(body, wire.WriteObjectsRequest)
    moves = [(getattr(move, "from"), move.to) for move in request.move]
    return request, object_edits([*map(_object_entry, request.put)], request.delete, moves)


def _read_access(body: bytes) -> tuple[wire.AccessRequest, Resource]:
    request = parse(body, wire.AccessRequest)
    return request, make_resource(read_resource(request.resource))


def _read_list(body: bytes) -> tuple[wire.ListRequest, str | PrincipalBody | UnsetType]:
    request = parse(body, wire.ListRequest)
    return request, read_optional_principal(request)


def read_page(request: Any) -> PageRequest:
    """Return the page that a message asks for; raise InvalidArgument."""
    return make_page_request(request.page_size or PAGE_SIZE, request.page_token)


def read_requester(request: Any, caller: Caller) -> Requester:
    """Return the requester of a message. Messages without the field `consistency` read the facts at hand."""
    actor = request.actor
    if request.HasField("actor") and not (actor.HasField("principal") or actor.HasField("acting_role")):
        # Without `actor` the caller writes as the operator: a message that lost the name must not.
        raise InvalidArgument("`actor` has no `principal`: name one, or leave `actor` out")
    consistency = read_consistency(request.consistency) if hasattr(request, "consistency") else "minimize_latency"
    role: str | UnsetType = actor.acting_role if actor.HasField("acting_role") else UNSET
    return make_requester(caller, read_optional_principal(actor), role, consistency)


def _grant_entry(grant: wire.Grant) -> dict[str, str]:
    """Return a grant as a world file writes an entry."""
    entry = {"principal": grant.principal, "privilege": grant.privilege, "object": grant.object}
    return entry | ({"id": grant.id} if grant.id else {})


def _object_entry(object: wire.Object) -> dict[str, Any]:
    entry: dict[str, Any] = {"object": object.object}
    if object.parent:
        entry["parent"] = object.parent
    if object.HasField("managed_access"):
        entry["managedAccess"] = object.managed_access
    return entry | ({"id": object.id} if object.id else {})


def _grant(listing: GrantListing) -> wire.Grant:
    return wire.Grant(**grant_body(listing))


class PolicyService:
    """Methods of the policy service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.PolicyService"

    def __init__(self, rules: RowPolicyService) -> None:
        self._rules = rules

    @property
    def methods(self) -> Mapping[str, GrpcMethod]:
        """Return the methods by name."""
        return {
            "ListRowPolicies": self.list_rules,
            "GetRowPolicy": self.get,
            "WriteRowPolicy": self.write,
            "DeleteRowPolicies": self.delete,
            "TestRowPolicyPermissions": self.permissions,
        }

    def handler(self, handlers: GrpcHandlers) -> grpc.GenericRpcHandler:
        """Return the handler of all methods."""
        return handlers.service(self.name, self.methods)

    async def list_rules(self, body: bytes, caller: Caller) -> RpcAnswer:
        """List one page of row policies or of masks."""
        request = await converted(body, parse, wire.ListRowPoliciesRequest)
        requester = read_requester(request, caller)
        table = table_of(request.table) if request.table else None
        page = await self._rules.list_rules(requester, table, read_page(request), masks=request.masks)
        policies, token = map(_policy, page.rules), page_token(page.next)
        answer = wire.ListRowPoliciesResponse(policies=policies, next_page_token=token, revision=page.revision)
        return RpcAnswer(answer, requester.id)

    async def get(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Read one row policy or mask."""
        request = await converted(body, parse, wire.GetRowPolicyRequest)
        requester = read_requester(request, caller)
        page = await self._rules.get_rule(requester, table_of(request.table), request.id, request.column)
        answer = wire.GetRowPolicyResponse(policy=_policy(page.rules[0]), revision=page.revision)
        return RpcAnswer(answer, requester.id)

    async def write(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Insert or update a row policy or mask."""
        request = await converted(body, parse, wire.WriteRowPolicyRequest)
        requester = read_requester(request, caller)
        edit = RowPolicyWrite(_rule(request.policy), "update" if request.update else "insert", request.policy.etag)
        written = await self._rules.write(requester, (edit,))
        (rule,) = written.rules
        assert rule is not None
        answer = wire.WriteRowPolicyResponse(policy=_policy(rule), revision=written.revision, warnings=written.warnings)
        return RpcAnswer(answer, requester.id)

    async def delete(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Delete row policies or masks of one table."""
        request = await converted(body, parse, wire.DeleteRowPoliciesRequest)
        requester, ids = read_requester(request, caller), list(request.ids)
        if not ids or len(set(ids)) < len(ids) or (request.etag and len(ids) > 1):
            raise InvalidArgument("`ids` is a list of different ids, and `etag` is for a single id")
        table = table_of(request.table)
        drops = [RowPolicyDrop(table, id, request.column, etag=request.etag) for id in ids]
        written = await self._rules.write(requester, drops)
        return RpcAnswer(wire.DeleteRowPoliciesResponse(revision=written.revision), requester.id)

    async def permissions(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Tell which permissions the actor has on the row policies of a table."""
        request = await converted(body, parse, wire.TestRowPolicyPermissionsRequest)
        requester = read_requester(request, caller)
        found = await self._rules.permissions(requester, table_of(request.table), list(request.permissions))
        return RpcAnswer(wire.TestRowPolicyPermissionsResponse(permissions=found), requester.id)


_OF_ANSWERS: Final = frozenset({"etag", "author", "created", "updated", "tombstone"})
"""Fields of a message beside those of a policy or mask: of answers, and the tag of an update."""


def _rule(message: wire.RowPolicy) -> RowPolicy:
    """Return the rule of a message; empty fields count as missing ones of JSON."""
    given = {field.name: getattr(message, field.name) for field, _ in message.ListFields()}
    fields = {name: value for name, value in given.items() if name not in _OF_ANSWERS}
    lists = {name: list(fields[name]) for name in ("grantees", "except") if name in fields}
    fields |= lists | {"id": message.id, "table": message.table}
    text = "expression" if message.column else "filter"
    if texts := fields.pop("texts", None):
        if text in fields or message.dialect:
            raise InvalidArgument(f"`texts` stand in place of `{text}` and `dialect`")
        fields[text] = dict(texts)
    elif not message.column:
        fields["filter"] = message.filter
    if message.column and message.filter:
        raise InvalidArgument("a mask has no `filter`")
    return make_rule(fields)


def _policy(rule: RowPolicy) -> wire.RowPolicy:
    body = rule_body(rule)
    if rule.others:
        body["texts"] = body.pop("expression" if rule.column else "filter")
    return wire.RowPolicy(**body)


async def rewrite(rewriting: StatementService, surface: str, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.Rewrite`: return a statement with row access enforced."""
    request = await converted(body, _read_rewrite)
    result = await rewriting.rewrite(request, caller, surface)
    response = wire.RewriteResponse(
        sql=result.sql, changed=result.changed, revision=result.revision, decision_id=result.id,
        operation=result.operation, warnings=result.warnings,
    )  # fmt: skip
    return RpcAnswer(response, result.id)


async def row_filter(rewriting: StatementService, surface: str, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.RowFilter`: return the visible part of a table."""
    request = await converted(body, _read_filter)
    result = await rewriting.filter(request, caller, surface)
    rows = result.row_filter
    response = wire.RowFilterResponse(
        row_filter=wire.SqlExpression(expression=rows.expression, identity=rows.identity) if rows else None,
        column_masks=[
            wire.RowFilterResponse.Mask(column=name, expression=mask.expression, identity=mask.identity)
            for name, mask in result.masks
        ],
        revision=result.revision,
        decision_id=result.id,
    )
    return RpcAnswer(response, result.id)


def _read_rewrite(body: bytes) -> RewriteBody:
    request = parse(body, wire.RewriteRequest)
    return RewriteBody(
        request.sql, request.dialect, read_optional_principal(request), _role(request), _catalog(request),
        read_consistency(request.consistency),
    )  # fmt: skip


def _read_filter(body: bytes) -> FilterBody:
    request = parse(body, wire.RowFilterRequest)
    bound_columns(len(request.columns))
    columns = [ColumnBody(column.name, column.type) for column in request.columns]
    return FilterBody(
        read_resource(request.resource), request.dialect, read_optional_principal(request), _role(request), columns,
        _catalog(request), read_consistency(request.consistency),
    )  # fmt: skip


def _role(request: Any) -> str | UnsetType:
    return request.acting_role if request.HasField("acting_role") else UNSET


def _catalog(request: Any) -> SuppliedCatalog | UnsetType:
    if not request.HasField("catalog"):
        return UNSET
    given = request.catalog
    tables = {name: SuppliedTable(dict(table.columns)) for name, table in given.tables.items()}
    views = {
        name: SuppliedView(view.sql, tuple(view.columns), view.dialect, view.owner)
        for name, view in given.views.items()
    }
    return SuppliedCatalog(tuple(given.default), tables, views)


async def check_scopes(service: ScopeService, surface: str, body: bytes, caller: Caller) -> RpcAnswer:
    """Answer `DecisionService.CheckScopes`: decide the scopes of a field."""
    answer = await service.answer(await converted(body, _read), caller, surface)
    return RpcAnswer(wire.CheckScopesResponse(allowed=answer.decision.allowed), answer.id)


def _read(body: bytes) -> ScopesBody:
    request = parse(body, wire.CheckScopesRequest)
    return ScopesBody(
        read_struct(request.current_user, "currentUser") if request.HasField("current_user") else None,
        read_struct(request.scopes, "scopes") if request.HasField("scopes") else UNSET,
    )
