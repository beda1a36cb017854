"""gRPC for row rules: the methods of `pdp.v1.PolicyService`. Only maps messages; holds no policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc

from pdp.decision.turns import converted
from pdp.errors import InvalidArgument
from pdp.facts.row_policies import RowRule
from pdp.management.codec import page_token
from pdp.management.row_policies import RuleService
from pdp.management.row_policy_checks import table_of
from pdp.management.row_policy_codec import make_rule, rule_body
from pdp.management.row_policy_edits import RuleDrop, RuleWrite
from pdp.model.question import Caller
from pdp.surfaces.grpc_handlers import GrpcHandlers, GrpcMethod, RpcAnswer
from pdp.surfaces.grpc_management import read_page, read_requester
from pdp.surfaces.grpc_messages import parse
from pdp.wire import decision_pb2 as wire


class PolicyService:
    """Methods of the policy service. Each maps a request message to a call and the result to a response message."""

    name: Final = "pdp.v1.PolicyService"

    def __init__(self, rules: RuleService) -> None:
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
        edit = RuleWrite(_rule(request.policy), "update" if request.update else "insert", request.policy.etag)
        written = await self._rules.write(requester, (edit,))
        (rule,) = written.rules
        assert rule is not None
        return RpcAnswer(wire.WriteRowPolicyResponse(policy=_policy(rule), revision=written.revision), requester.id)

    async def delete(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Delete row policies or masks of one table."""
        request = await converted(body, parse, wire.DeleteRowPoliciesRequest)
        requester, ids = read_requester(request, caller), list(request.ids)
        if not ids or len(set(ids)) < len(ids) or (request.etag and len(ids) > 1):
            raise InvalidArgument("`ids` is a list of different ids, and `etag` is for a single id")
        table = table_of(request.table)
        drops = [RuleDrop(table, id, request.column, etag=request.etag) for id in ids]
        written = await self._rules.write(requester, drops)
        return RpcAnswer(wire.DeleteRowPoliciesResponse(revision=written.revision), requester.id)

    async def permissions(self, body: bytes, caller: Caller) -> RpcAnswer:
        """Tell which permissions the actor has on the row policies of a table."""
        request = await converted(body, parse, wire.TestRowPolicyPermissionsRequest)
        requester = read_requester(request, caller)
        found = await self._rules.permissions(requester, table_of(request.table), list(request.permissions))
        return RpcAnswer(wire.TestRowPolicyPermissionsResponse(permissions=found), requester.id)


def _rule(message: wire.RowPolicy) -> RowRule:
    """Return the rule of a message; empty fields count as missing ones of JSON."""
    fields: dict[str, Any] = {"id": message.id, "table": message.table}
    names = ("grantees", "dialect", "column", "kind", "expression", "except")
    given = {name: getattr(message, name) for name in names if getattr(message, name)}
    lists = {name: list(value) for name, value in given.items() if name in ("grantees", "except")}
    if not message.column:
        fields["filter"] = message.filter
    elif message.filter:
        raise InvalidArgument("a mask has no `filter`")
    return make_rule(fields | given | lists)


def _policy(rule: RowRule) -> wire.RowPolicy:
    return wire.RowPolicy(**rule_body(rule))
