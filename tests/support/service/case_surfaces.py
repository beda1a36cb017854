"""Runs a case over HTTP, gRPC, Connect, Trino's endpoints and AuthZEN: the same file, the same wants, other ways in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from support.clients.grpc_messages import check_message
from support.clients.http_client import HttpClient, client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient, RpcClient, RpcError
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.app.service import Service
from pdp.audit.records.rows import requests, rows
from pdp.errors import InvalidReference, PdpError
from pdp.model.references import parse_resource
from pdp.offline.cases.cases import Case
from pdp.offline.cases.outcomes import CaseOutcome, compare_checks, compare_error, compare_view
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.surfaces.wire import decision_pb2 as wire


class Endpoints(NamedTuple):
    """A running service with a client for each of its surfaces."""

    http: HttpClient
    channel: grpc.aio.Channel

    @property
    def service(self) -> Service:
        """Return the service."""
        return self.http.service

    def rpc_client(self, surface: str) -> RpcClient | None:
        """Return the client of a surface whose requests are messages of gRPC; None for any other surface."""
        if surface == "grpc":
            return GrpcClient(self.channel)
        return ConnectClient(self.http, json=surface == "connect_json") if surface.startswith("connect") else None


class Surfaces:
    """Services by configuration. Each takes over a case's policies before it decides the case."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._endpoints: dict[str, Endpoints] = {}

    async def run(self, case: Case, surface: str) -> CaseOutcome | None:
        """Return the outcome over one surface; None if the surface cannot express the case."""
        recorder = MemoryAudit()
        try:
            pdp, _ = build_case_pdp(case, build_pdp, recorder)
        except PdpError as error:
            return compare_error(case, error)
        endpoints = await self._start(case)
        running = endpoints.service.pdp
        running.bundle, running.source, running.audit, running.clock = pdp.bundle, pdp.source, recorder, pdp.clock
        kind = case.view_key
        if kind:
            return None if surface in ("trino", "authzen") else await _view(case, surface, endpoints, recorder, kind)
        if "scopeChecks" in case.data:
            decisions = await _scopes_over_http(case, endpoints) if surface == "http" else None
        elif client := endpoints.rpc_client(surface):
            decisions = await _checks_over_rpc(case, client)
        else:
            decisions = await _CHECKS[surface](case, endpoints)
        if isinstance(decisions, PdpError):
            return compare_error(case, decisions)
        return None if decisions is None else compare_checks(case, decisions, recorder.records)

    async def _start(self, case: Case) -> Endpoints:
        """Return the service for a case's configuration; start the service for the first such case."""
        config = {
            key: case.data.get("config", {})[key]
            for key in ("identity", "limits", "trusted_engines")
            if key in case.data.get("config", {})
        }
        key = json.dumps(config, sort_keys=True)
        if key not in self._endpoints:
            http = await self._stack.enter_async_context(client_of(settings_of(config, self._folder)))
            channel = grpc.aio.insecure_channel(http.service.addresses["grpc"])
            self._endpoints[key] = Endpoints(http, await self._stack.enter_async_context(channel))
        return self._endpoints[key]


async def _checks_over_http(case: Case, endpoints: Endpoints) -> Any:
    status, body = await endpoints.http.post("/v1/check", case.request_body())
    return body["decisions"] if status == 200 else _error(body["error"]["code"])


async def _checks_over_rpc(case: Case, client: RpcClient) -> Any:
    try:
        checks = [_complete_message(check) for check in case.data["checks"]]
    except (ParseError, KeyError, TypeError, AttributeError):
        return None
    if not checks or "consistency" in case.data:
        return None  # a message cannot tell an empty list from none
    try:
        response = await client.call("Check", wire.CheckRequest(checks=checks))
    except RpcError as error:
        return _error(error.code)
    return [_decision(decision) for decision in response.decisions]


async def _checks_over_trino(case: Case, endpoints: Endpoints) -> Any:
    """Send one allow request per check, if Trino could have sent each of them."""
    pdp = endpoints.service.pdp
    try:
        bodies = [_trino_body(check, pdp.bundle.trino.catalogs) for check in case.data["checks"]]
    except InvalidReference:
        return None
    if not all(bodies) or any(not isinstance(want, bool) and "error" in want for want in case.data.get("want", [])):
        return None
    decisions = [{"allowed": (await endpoints.http.trino("allow", body))[1]["result"]} for body in bodies]
    audited = [row for record in pdp.audit.records for row in (list(requests(record)) or rows(record))]  # type: ignore[attr-defined]
    return [
        decision | {"by": row["by"], "errors": want.get("errors", [])}
        for decision, row, want in zip(decisions, audited, _wants(case), strict=True)
    ]


async def _checks_over_authzen(case: Case, endpoints: Endpoints) -> Any:
    """Send one evaluation per check, if AuthZEN can say each of them."""
    bodies = [_evaluation(check) for check in case.data["checks"]]
    has_errors = any(not isinstance(want, bool) and "error" in want for want in case.data.get("want", []))
    if not bodies or not all(bodies) or has_errors or {"consistency", "wantError"} & case.data.keys():
        return None
    answers = [await endpoints.http.post("/access/v1/evaluation", body) for body in bodies]
    rows_of = [list(requests(record)) or rows(record) for record in endpoints.service.pdp.audit.records]  # type: ignore[attr-defined]
    return [
        {"allowed": answer["decision"], "by": row["by"], "errors": want.get("errors", [])}
        for (_, answer), row, want in zip(answers, [row for some in rows_of for row in some], _wants(case), strict=True)
    ]


def _evaluation(check: Any) -> dict[str, Any] | None:
    """Return the body of an evaluation, where there is one: names of the service are those of AuthZEN without settings."""
    if not isinstance(check, dict) or set(check) - {"principal", "action", "resource", "context"}:
        return None
    if set(check.get("context", {})) - {"arguments"} or not {"principal", "action", "resource"} <= check.keys():
        return None
    subject, resource = _entity(check["principal"], "id"), _entity(check["resource"], "reference")
    if subject is None or resource is None:
        return None
    properties = check.get("context", {}).get("arguments", {})
    return {"subject": subject, "action": {"name": check["action"], "properties": properties}, "resource": resource}


def _entity(named: Any, key: str) -> dict[str, Any] | None:
    if not isinstance(named, str | dict):
        return None
    fields: dict[str, Any] = {key: named} if isinstance(named, str) else dict(named)
    type, colon, id = str(fields.pop(key, "")).partition(":")
    properties = fields.pop("attributes", {}) | fields.pop("properties", {})
    properties |= {name: fields.pop(name) for name in ("roles", "groups") if name in fields}
    return {"type": type, "id": id, "properties": properties} if colon and not fields else None


async def _scopes_over_http(case: Case, endpoints: Endpoints) -> Any:
    """Send one request per scope map. The answer has no reason: take the wanted one."""
    decisions = []
    for body, want in zip(case.data["scopeChecks"], case.data.get("want", [False]), strict=True):
        status, answer = await endpoints.http.post("/v1/scopes", json.dumps(body).encode())
        if status != 200:
            return _error(answer["error"]["code"])
        by = want.get("by", "") if isinstance(want, dict) else ""
        decisions.append({**answer, "by": [by]})
    return decisions


_CHECKS = {"http": _checks_over_http, "trino": _checks_over_trino, "authzen": _checks_over_authzen}


async def _view(case: Case, surface: str, endpoints: Endpoints, recorder: MemoryAudit, kind: str) -> CaseOutcome | None:
    if client := endpoints.rpc_client(surface):
        answer = await _view_over_rpc(case, kind, client)
    else:
        status, answer = await endpoints.http.post(VIEW_PATHS[kind], case.request_body())
        assert (status == 200) == ("decisionId" in answer)
    if answer is not None and "decisionId" not in answer:
        return compare_error(case, _error(answer["error"]["code"]), recorder.records)
    return None if answer is None else compare_view(case, answer, recorder.records)


VIEW_PATHS = {"load": "/v1/load", "commitView": "/v1/commit-view"}


async def _view_over_rpc(case: Case, kind: str, client: RpcClient) -> Any:
    """The answer in its JSON form; None where gRPC has no form for the case."""
    body = json.loads(case.request_body())
    method, message = (
        ("CheckLoad", wire.CheckLoadRequest) if kind == "load" else ("CheckViewCommit", wire.CheckViewCommitRequest)
    )
    try:
        body |= {"principal": _named_as(body["principal"], "id")}
        if kind == "load":
            body |= {"target": _named_as(body["target"], "reference")}
            body["views"] = [
                view | {"resource": _named_as(view["resource"], "reference")} for view in body.get("views", [])
            ]
            if isinstance(body.get("referencedBy"), list):
                body["viewNames"] = {"views": [{"parts": parts} for parts in body.pop("referencedBy")]}
            if "metadata" in body:
                body["metadata"] = json.dumps(body["metadata"])
        else:
            body |= {"view": _named_as(body["view"], "reference")}
        request = ParseDict(body, message())
    except (ParseError, KeyError, TypeError, AttributeError):
        return None
    try:
        response = await client.call(method, request)
    except RpcError as error:
        return {"error": {"code": error.code}}
    answer = MessageToDict(response, always_print_fields_with_no_presence=True)
    restrictions = answer.pop("readRestrictions", "")
    return answer | ({"readRestrictions": json.loads(restrictions)} if restrictions else {})


def _named_as(value: Any, key: str) -> Any:
    return {key: value} if isinstance(value, str) else value


def _wants(case: Case) -> list[Any]:
    return [want if isinstance(want, dict) else {} for want in case.data.get("want", [{}] * len(case.data["checks"]))]


def _error(code: str) -> PdpError:
    error = PdpError(code)
    error.code = code
    return error


def _complete_message(check: Mapping[str, Any]) -> wire.Check:
    """Return a check's message. Raise KeyError or ParseError if gRPC has no form for the check."""
    if "principal" not in check or not ("resource" in check or check.get("resources")):
        raise KeyError("principal or resource")
    return check_message(check)


def _decision(decision: wire.Decision) -> dict[str, Any]:
    body = {
        "allowed": decision.allowed,
        "by": list(decision.by),
        "errors": list(decision.errors),
        "cached": decision.cached,
    }
    return body | ({"error": MessageToDict(decision.error)} if decision.HasField("error") else {})


def _trino_body(check: Any, catalogs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The body that Trino would have sent for a native `trino:` check, where there is one."""
    if (
        not isinstance(check, dict)
        or not str(check.get("action", "")).startswith("trino:")
        or not isinstance(check["principal"], str)
        or "resource" not in check
    ):
        return None
    user = check["principal"].removeprefix("user:oidc~")
    if set(check) - {"principal", "action", "resource", "context"} or user == check["principal"]:
        return None
    arguments = check.get("context", {}).get("arguments", {})
    if set(check.get("context", {})) - {"arguments"} or set(arguments) - {"destination", "procedure"}:
        return None
    named = _named(check["resource"], catalogs)
    target = _named(arguments["destination"], catalogs) if "destination" in arguments else {}
    if named is None or target is None:
        return None
    if "procedure" in arguments:
        named["function"] = {"functionName": arguments["procedure"]}
    action = {"operation": check["action"].removeprefix("trino:")}
    action |= ({"resource": named} if named else {}) | ({"targetResource": target} if target else {})
    return {"input": {"context": {"identity": {"user": user, "groups": []}}, "action": action}}


def _named(reference: Any, catalogs: Mapping[str, Any]) -> dict[str, Any] | None:
    if not isinstance(reference, str):
        return None
    resource = parse_resource(reference)
    of_warehouse = {mapped.warehouse: name for name, mapped in catalogs.items()}
    catalog = of_warehouse.get(resource.warehouse, resource.warehouse if "catalog" in resource.type else None)
    path = resource.path
    if resource.ref is not None:
        return None
    if resource.type == "server":
        return {}
    if resource.type == "user":
        return {"user": {"user": resource.name.removeprefix("oidc~")}}
    if resource.type == "function":
        return (
            {"function": {"catalogName": resource.warehouse, "schemaName": path[0], "functionName": path[1]}}
            if len(path) == 2
            else None
        )
    if resource.type == "session_property":
        if resource.warehouse == "system":
            return {"systemSessionProperty": {"name": path[0]}}
        return {"catalogSessionProperty": {"catalogName": resource.warehouse, "propertyName": path[0]}}
    if catalog is None or any("." in part for part in path):
        return None
    if not path:
        return {"catalog": {"name": catalog}}
    if resource.type == "namespace":
        return {"schema": {"catalogName": catalog, "schemaName": ".".join(path)}}
    if resource.type in ("system_schema", "catalog", "system_catalog") and len(path) == 1:
        return {"schema": {"catalogName": catalog, "schemaName": path[0]}}
    if resource.type in (
        "table_or_view",
        "metadata_table",
        "system_schema",
        "catalog",
        "system_catalog",
    ):
        return (
            {"table": {"catalogName": catalog, "schemaName": ".".join(path[:-1]), "tableName": path[-1]}}
            if len(path) > 1
            else None
        )
    return None


@asynccontextmanager
async def surfaces(folder: Path) -> AsyncIterator[Surfaces]:
    """Yield the surfaces; stop all their services at the end."""
    async with AsyncExitStack() as stack:
        yield Surfaces(folder, stack)
