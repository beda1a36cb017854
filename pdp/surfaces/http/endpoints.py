"""HTTP endpoints: bodies to calls, results to bodies. Hold no policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from pdp.decision.bodies import AnswerForm
from pdp.decision.codec import decode_call, encode_answer
from pdp.decision.scopes import ScopeService, decode_scopes, encode_scopes
from pdp.decision.service import Pdp
from pdp.decision.turns import converted
from pdp.errors import InvalidArgument
from pdp.identity.evidence import admit
from pdp.management.codec import (
    decode_access,
    decode_grants,
    decode_list,
    decode_objects,
    decode_query,
    encode_access,
    encode_grants,
    encode_list,
    encode_written,
)
from pdp.management.requests import Requester
from pdp.management.row_policies import RowPolicyService
from pdp.management.row_policy_codec import (
    decode_batch_delete,
    decode_entry,
    decode_permissions,
    decode_rule,
    decode_rule_list,
    encode_permissions,
    encode_rule,
    encode_rules,
)
from pdp.management.row_policy_edits import Mode, RowPolicyDrop
from pdp.management.service import Management
from pdp.model.question import Batch, Caller
from pdp.model.strict import read_parameters
from pdp.row_access.requests import decode_filter, decode_rewrite, encode_filter, encode_rewrite
from pdp.row_access.service import StatementService
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import NATIVE, EndpointAnswer
from pdp.surfaces.http.handlers import EntryRequest, HttpHandlers, Query, Routes
from pdp.views.codec import decode_change, decode_load, encode_change, encode_load
from pdp.views.loads import ViewSecurity


def decision_routes(handlers: HttpHandlers, pdp: Pdp, max_checks: int, limits: BodyLimits) -> Routes:
    """Return the routes of the check API."""

    def admitted(body: bytes, caller: Caller) -> tuple[Batch, AnswerForm]:
        request, form = decode_call(body, max_checks)
        return admit(request, caller), form

    async def check(body: bytes, caller: Caller) -> EndpointAnswer:
        batch, form = await converted(body, admitted, caller)
        answer = (await pdp.decide(batch)).answer
        return EndpointAnswer(encode_answer(answer, form), answer.id)

    def check_now(body: bytes, caller: Caller) -> EndpointAnswer | None:
        request, form = decode_call(body, max_checks)
        result = pdp.decide_now(admit(request, caller))
        if result is None:
            return None
        answer = result.answer
        return EndpointAnswer(encode_answer(answer, form), answer.id)

    return {("POST", "/v1/check"): handlers.for_decision(NATIVE, check, limits, check_now)}


def management_routes(handlers: HttpHandlers, management: Management, limits: BodyLimits) -> Routes:
    """Return the routes of the management API."""

    async def write_grants(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, edits = await converted(body, decode_grants, caller)
        return EndpointAnswer(encode_written(*await management.write_grants(requester, edits)), requester.id)

    async def grants(query: Query, caller: Caller) -> EndpointAnswer:
        requester, filter, page = decode_query(query, caller)
        return EndpointAnswer(encode_grants(await management.list_grants(requester, filter, page)), requester.id)

    async def write_objects(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, edits = await converted(body, decode_objects, caller)
        return EndpointAnswer(encode_written(await management.write_objects(requester, edits)), requester.id)

    async def access(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, action, resource, page = await converted(body, decode_access, caller)
        found = await management.list_access(requester, action, resource, page)
        return EndpointAnswer(encode_access(found), requester.id)

    async def list_objects(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, asked, page = await converted(body, decode_list, caller)
        return EndpointAnswer(encode_list(await management.list_objects(requester, asked, page)), requester.id)

    return {
        ("POST", "/v1/grants"): handlers.for_body(NATIVE, write_grants, limits),
        ("GET", "/v1/grants"): handlers.for_query(NATIVE, grants),
        ("POST", "/v1/objects"): handlers.for_body(NATIVE, write_objects, limits),
        ("POST", "/v1/access"): handlers.for_body(NATIVE, access, limits),
        ("POST", "/v1/list"): handlers.for_body(NATIVE, list_objects, limits),
    }


def rewriting_routes(handlers: HttpHandlers, rewriting: StatementService, limits: BodyLimits) -> Routes:
    """Return the routes POST /v1/rewrite and POST /v1/filters."""

    async def rewrite(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await rewriting.rewrite(await converted(body, decode_rewrite), caller, "http")
        return EndpointAnswer(encode_rewrite(result), result.id)

    async def filter(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await rewriting.filter(await converted(body, decode_filter), caller, "http")
        return EndpointAnswer(encode_filter(result), result.id)

    return {
        ("POST", "/v1/rewrite"): handlers.for_body(NATIVE, rewrite, limits),
        ("POST", "/v1/filters"): handlers.for_body(NATIVE, filter, limits),
    }


PATHS: Final = {"/v1/row-access-policies": False, "/v1/column-masks": True}
"""Path -> True for masks."""


def row_rule_routes(handlers: HttpHandlers, rules: RowPolicyService, limits: BodyLimits) -> Routes:
    """Return the routes of row policies and of masks."""
    routes: Routes = {}
    for path, masks in PATHS.items():
        endpoints = _Endpoints(rules, masks=masks)
        routes |= {
            ("GET", path): handlers.for_query(NATIVE, endpoints.list_rules),
            ("POST", path): handlers.for_body(NATIVE, endpoints.insert, limits),
            ("POST", f"{path}:batchDelete"): handlers.for_body(NATIVE, endpoints.batch_delete, limits),
            ("POST", f"{path}:testPermissions"): handlers.for_body(NATIVE, endpoints.permissions, limits),
            ("GET", f"{path}/*"): handlers.for_entry(NATIVE, endpoints.get, limits),
            ("PUT", f"{path}/*"): handlers.for_entry(NATIVE, endpoints.update, limits),
            ("DELETE", f"{path}/*"): handlers.for_entry(NATIVE, endpoints.delete, limits),
        }
    return routes


class _Endpoints:
    """Endpoints of one kind of rules."""

    def __init__(self, rules: RowPolicyService, *, masks: bool) -> None:
        self._rules, self._masks = rules, masks

    async def list_rules(self, query: Query, caller: Caller) -> EndpointAnswer:
        requester, table, page = decode_rule_list(query, caller)
        found = await self._rules.list_rules(requester, table, page, masks=self._masks)
        return EndpointAnswer(encode_rules(found, masks=self._masks), requester.id)

    async def get(self, request: EntryRequest, caller: Caller) -> EndpointAnswer:
        requester, entry = self._entry(request, caller)
        found = await self._rules.get_rule(requester, entry.table, entry.id, entry.column)
        return EndpointAnswer(encode_rule(found.rules[0], found.revision), requester.id)

    async def insert(self, body: bytes, caller: Caller) -> EndpointAnswer:
        return await self._write(body, caller, "", "insert")

    async def update(self, request: EntryRequest, caller: Caller) -> EndpointAnswer:
        read_parameters(request.query, frozenset())
        return await self._write(request.body, caller, request.name, "update")

    async def delete(self, request: EntryRequest, caller: Caller) -> EndpointAnswer:
        requester, entry = self._entry(request, caller)
        written = await self._rules.write(requester, (entry,))
        return EndpointAnswer(encode_written(written.revision), requester.id)

    async def batch_delete(self, body: bytes, caller: Caller) -> EndpointAnswer:
        requester, drops = await converted(body, partial(decode_batch_delete, masks=self._masks), caller)
        written = await self._rules.write(requester, drops)
        return EndpointAnswer(encode_written(written.revision), requester.id)

    async def permissions(self, body: bytes, caller: Caller) -> EndpointAnswer:
        requester, table, asked = await converted(body, decode_permissions, caller)
        return EndpointAnswer(encode_permissions(await self._rules.permissions(requester, table, asked)), requester.id)

    def _entry(self, request: EntryRequest, caller: Caller) -> tuple[Requester, RowPolicyDrop]:
        """Return the requester and the named entry; raise InvalidArgument for a body, which would have no effect."""
        if request.body:
            raise InvalidArgument("this endpoint takes no body: name the `actor` and the `etag` in the query")
        return decode_entry(request.query, caller, request.name, masks=self._masks)

    async def _write(self, body: bytes, caller: Caller, id: str, mode: Mode) -> EndpointAnswer:
        requester, edit = await converted(body, partial(decode_rule, masks=self._masks), caller, id, mode)
        written = await self._rules.write(requester, (edit,))
        (rule,) = written.rules
        assert rule is not None
        return EndpointAnswer(encode_rule(rule, written.revision, written.warnings), requester.id)


def scope_routes(handlers: HttpHandlers, service: ScopeService, limits: BodyLimits) -> Routes:
    """Return the route POST /v1/scopes."""

    async def scopes(body: bytes, caller: Caller) -> EndpointAnswer:
        answer = await service.answer(decode_scopes(body), caller, "http")
        return EndpointAnswer(encode_scopes(answer), answer.id)

    return {("POST", "/v1/scopes"): handlers.for_decision(NATIVE, scopes, limits)}


def view_routes(handlers: HttpHandlers, views: ViewSecurity, limits: BodyLimits) -> Routes:
    """Return the routes POST /v1/load and POST /v1/commit-view."""

    async def load(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await views.load(await converted(body, decode_load), caller, "http")
        return EndpointAnswer(encode_load(result), result.id)

    async def change(body: bytes, caller: Caller) -> EndpointAnswer:
        result = await views.change(await converted(body, decode_change), caller, "http")
        return EndpointAnswer(encode_change(result), result.id)

    return {
        ("POST", "/v1/load"): handlers.for_body(NATIVE, load, limits),
        ("POST", "/v1/commit-view"): handlers.for_body(NATIVE, change, limits),
    }
