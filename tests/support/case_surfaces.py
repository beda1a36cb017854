"""Runs a case over HTTP, gRPC and Trino's endpoints: the same file, the same wants, other ways in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from support.grpc_messages import check_message
from support.serving import serving, settings_of

from pdp.app import Service, build_pdp
from pdp.audit.rows import requests, rows
from pdp.errors import InvalidReference, PdpError
from pdp.model.references import parse_resource
from pdp.offline.case_outcomes import CaseOutcome, compare_checks, compare_error, compare_view
from pdp.offline.case_runner import MemoryAudit, build_case_pdp
from pdp.offline.cases import Case
from pdp.wire import decision_pb2 as wire
from pdp.wire import decision_pb2_grpc as wire_grpc


class Surfaces:
    """Services by configuration, each swapped to a case's policies before it is asked."""

    def __init__(self, folder: Path, session: aiohttp.ClientSession) -> None:
        self._folder = folder
        self._session = session
        self._services: dict[str, tuple[Any, Service, grpc.aio.Channel]] = {}

    async def run(self, case: Case, surface: str) -> CaseOutcome | None:
        """The outcome over one surface; None where the case cannot be said there."""
        recorder = MemoryAudit()
        try:
            pdp, _ = build_case_pdp(case, build_pdp, recorder)
        except PdpError as error:
            return compare_error(case, error)
        service, channel = await self._service(case)
        service.pdp.bundle, service.pdp.source, service.pdp.audit = pdp.bundle, pdp.source, recorder
        kind = case.view_key
        if kind:
            return None if surface == "trino" else await self._view(case, surface, recorder, kind)
        decisions = await getattr(self, f"_{surface}")(case, service, channel)
        if isinstance(decisions, PdpError):
            return compare_error(case, decisions)
        return None if decisions is None else compare_checks(case, decisions, recorder.records)

    async def close(self) -> None:
        for context, _, channel in self._services.values():
            await channel.close()
            await context.__aexit__(None, None, None)

    async def _service(self, case: Case) -> tuple[Service, grpc.aio.Channel]:
        config = {
            key: case.data.get("config", {})[key]
            for key in ("identity", "limits", "trusted_engines")
            if key in case.data.get("config", {})
        }
        key = json.dumps(config, sort_keys=True)
        if key not in self._services:
            context = serving(settings_of(config, self._folder))
            service = await context.__aenter__()
            self._services[key] = (context, service, grpc.aio.insecure_channel(service.addresses["grpc"]))
        _, service, channel = self._services[key]
        return service, channel

    async def _http(self, case: Case, service: Service, channel: grpc.aio.Channel) -> Any:
        headers = {"content-type": "application/json"}
        url = f"http://{service.addresses['http']}/v1/check"
        async with self._session.post(url, data=case.request_body(), headers=headers) as response:
            body = await response.json()
        return body["decisions"] if response.status == 200 else _error(body["error"]["code"])

    async def _view(self, case: Case, surface: str, recorder: MemoryAudit, kind: str) -> CaseOutcome | None:
        service, channel = await self._service(case)
        if surface == "grpc":
            answer = await _view_over_grpc(case, kind, channel)
        else:
            url = f"http://{service.addresses['http']}{VIEW_PATHS[kind]}"
            headers = {"content-type": "application/json"}
            async with self._session.post(url, data=case.request_body(), headers=headers) as response:
                answer = await response.json()
                assert (response.status == 200) == ("decisionId" in answer)
        if answer is not None and "decisionId" not in answer:
            return compare_error(case, _error(answer["error"]["code"]), recorder.records)
        return None if answer is None else compare_view(case, answer, recorder.records)

    async def _grpc(self, case: Case, service: Service, channel: grpc.aio.Channel) -> Any:
        try:
            checks = [_complete_message(check) for check in case.data["checks"]]
        except (ParseError, KeyError, TypeError, AttributeError):
            return None
        if "consistency" in case.data:
            return None
        try:
            response = await wire_grpc.DecisionServiceStub(channel).Check(  # type: ignore[no-untyped-call]
                wire.CheckRequest(checks=checks)
            )
        except grpc.aio.AioRpcError as error:
            return _error((error.details() or "").partition(":")[0])
        return [_decision(decision) for decision in response.decisions]

    async def _trino(self, case: Case, service: Service, channel: grpc.aio.Channel) -> Any:
        """One allow request per check; only what Trino could have asked."""
        try:
            bodies = [_trino_body(check, service.pdp.bundle.trino.catalogs) for check in case.data["checks"]]
        except InvalidReference:
            return None
        if not all(bodies) or any(not isinstance(want, bool) and "error" in want for want in case.data.get("want", [])):
            return None
        decisions = []
        for body in bodies:
            async with self._session.post(
                f"http://{service.addresses['http']}/v1/data/trino/allow", json=body
            ) as response:
                decisions.append({"allowed": (await response.json())["result"]})
        audited = [row for record in service.pdp.audit.records for row in (list(requests(record)) or rows(record))]  # type: ignore[attr-defined]
        return [
            decision | {"by": row["by"], "errors": want.get("errors", [])}
            for decision, row, want in zip(decisions, audited, _wants(case), strict=True)
        ]


VIEW_PATHS = {"load": "/v1/load", "commitView": "/v1/commit-view"}


async def _view_over_grpc(case: Case, kind: str, channel: grpc.aio.Channel) -> Any:
    """The answer in its JSON form; None where gRPC has no form for the case."""
    body = json.loads(case.request_body())
    stub = wire_grpc.DecisionServiceStub(channel)  # type: ignore[no-untyped-call]
    method, message = (
        (stub.CheckLoad, wire.CheckLoadRequest)
        if kind == "load"
        else (stub.CheckViewCommit, wire.CheckViewCommitRequest)
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
        else:
            body |= {"view": _named_as(body["view"], "reference")}
        request = ParseDict(body, message())
    except (ParseError, KeyError, TypeError, AttributeError):
        return None
    try:
        response = await method(request)
    except grpc.aio.AioRpcError as error:
        return {"error": {"code": (error.details() or "").partition(":")[0]}}
    return MessageToDict(response, always_print_fields_with_no_presence=True)


def _named_as(value: Any, key: str) -> Any:
    return {key: value} if isinstance(value, str) else value


def _wants(case: Case) -> list[Any]:
    return [want if isinstance(want, dict) else {} for want in case.data.get("want", [{}] * len(case.data["checks"]))]


def _error(code: str) -> PdpError:
    error = PdpError(code)
    error.code = code  # type: ignore[misc]
    return error


def _complete_message(check: Mapping[str, Any]) -> wire.Check:
    """Return a check's message. Raise KeyError or ParseError if gRPC has no form for the check."""
    assert check["principal"] is not check["resource"]
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
    async with aiohttp.ClientSession() as session:
        found = Surfaces(folder, session)
        try:
            yield found
        finally:
            await found.close()
