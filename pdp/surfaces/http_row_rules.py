"""HTTP for row rules: `/v1/row-access-policies` and `/v1/column-masks`. Only maps bodies; holds no policy."""

from __future__ import annotations

from functools import partial
from typing import Final

from pdp.decision.turns import converted
from pdp.management.codec import encode_written
from pdp.management.row_policies import RuleService
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
from pdp.management.row_policy_edits import Mode
from pdp.model.question import Caller
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_answers import EndpointAnswer
from pdp.surfaces.http_handlers import EntryRequest, HttpHandlers, Query, Routes

PATHS: Final = {"/v1/row-access-policies": False, "/v1/column-masks": True}
"""Path -> True for masks."""


def row_rule_routes(handlers: HttpHandlers, rules: RuleService, limits: BodyLimits) -> Routes:
    """Return the routes of row policies and of masks."""
    routes: Routes = {}
    for path, masks in PATHS.items():
        endpoints = _Endpoints(rules, masks=masks)
        routes |= {
            ("GET", path): handlers.for_query("http", endpoints.list_rules),
            ("POST", path): handlers.for_body("http", endpoints.insert, limits),
            ("POST", f"{path}:batchDelete"): handlers.for_body("http", endpoints.batch_delete, limits),
            ("POST", f"{path}:testPermissions"): handlers.for_body("http", endpoints.permissions, limits),
            ("GET", f"{path}/*"): handlers.for_entry("http", endpoints.get, limits),
            ("PUT", f"{path}/*"): handlers.for_entry("http", endpoints.update, limits),
            ("DELETE", f"{path}/*"): handlers.for_entry("http", endpoints.delete, limits),
        }
    return routes


class _Endpoints:
    """Endpoints of one kind of rules."""

    def __init__(self, rules: RuleService, *, masks: bool) -> None:
        self._rules, self._masks = rules, masks

    async def list_rules(self, query: Query, caller: Caller) -> EndpointAnswer:
        requester, table, page = decode_rule_list(query, caller)
        found = await self._rules.list_rules(requester, table, page, masks=self._masks)
        return EndpointAnswer(encode_rules(found, masks=self._masks), requester.id)

    async def get(self, request: EntryRequest, caller: Caller) -> EndpointAnswer:
        requester, entry = decode_entry(request.query, caller, request.name, masks=self._masks)
        found = await self._rules.get_rule(requester, entry.table, entry.id, entry.column)
        return EndpointAnswer(encode_rule(found.rules[0], found.revision), requester.id)

    async def insert(self, body: bytes, caller: Caller) -> EndpointAnswer:
        return await self._write(body, caller, "", "insert")

    async def update(self, request: EntryRequest, caller: Caller) -> EndpointAnswer:
        return await self._write(request.body, caller, request.name, "update")

    async def delete(self, request: EntryRequest, caller: Caller) -> EndpointAnswer:
        requester, entry = decode_entry(request.query, caller, request.name, masks=self._masks)
        written = await self._rules.write(requester, (entry,))
        return EndpointAnswer(encode_written(written.revision), requester.id)

    async def batch_delete(self, body: bytes, caller: Caller) -> EndpointAnswer:
        requester, drops = await converted(body, partial(decode_batch_delete, masks=self._masks), caller)
        written = await self._rules.write(requester, drops)
        return EndpointAnswer(encode_written(written.revision), requester.id)

    async def permissions(self, body: bytes, caller: Caller) -> EndpointAnswer:
        requester, table, asked = await converted(body, decode_permissions, caller)
        return EndpointAnswer(encode_permissions(await self._rules.permissions(requester, table, asked)), requester.id)

    async def _write(self, body: bytes, caller: Caller, id: str, mode: Mode) -> EndpointAnswer:
        requester, edit = await converted(body, partial(decode_rule, masks=self._masks), caller, id, mode)
        written = await self._rules.write(requester, (edit,))
        (rule,) = written.rules
        assert rule is not None
        return EndpointAnswer(encode_rule(rule, written.revision), requester.id)
