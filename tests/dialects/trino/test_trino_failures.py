"""Whatever fails inside, Trino gets a definite denial, or an error where that is configured; never an opening."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from structlog.testing import capture_logs
from support.clients.http_client import client_of
from support.oracles.trino_answers import objection
from support.oracles.trino_wants import FILES, Asked, bodies_of_statements, by_the_model
from support.oracles.trino_wants import settings as settings_of

from pdp.app.service import Service
from pdp.engines.engine import READS_POLICIES, Cost
from pdp.errors import Unavailable

BOTH = yaml.safe_load(next(file for file in FILES if file.stem == "both").read_text())


def kind_of(asked: Asked) -> tuple[str, ...]:
    """An endpoint, an operation, and the catalog and schema that it is about."""
    endpoint, body = asked
    action = body["input"]["action"]
    named: dict[str, str] = next(iter(action.get("resource", action.get("filterResources", [{}])[0]).values()), {})
    return endpoint, action["operation"], named.get("catalogName", named.get("name", "")), named.get("schemaName", "")


SOME = list({kind_of(asked): asked for asked in bodies_of_statements()}.values())
"""A body of every kind."""


class Failing:
    """Stands for anything of a service and raises whatever is asked of it."""

    name = "failing"
    digest = ""
    forbids = counts_stored_roles = True
    reads = READS_POLICIES
    cost = Cost.MICROSECONDS

    def __init__(self, error: Exception) -> None:
        self._error = error

    def applies(self, action: str, type: str) -> bool:
        return True

    def _raise(self, *given: Any, **named: Any) -> Any:
        raise self._error

    decide = explain = restriction = admit = append = is_stale = _raise
    facts = property(_raise)


Patch = Callable[[Service, Any], None]


def an_engine(service: Service, failing: Any) -> None:
    bundle = service.pdp.bundle
    default = msgspec.structs.replace(bundle.default, engines=(failing, *bundle.default.engines))
    service.pdp.bundle = msgspec.structs.replace(bundle, default=default)


def a_forbid(service: Service, failing: Any) -> None:
    service.pdp.bundle = msgspec.structs.replace(service.pdp.bundle, forbids=(failing,))


def the_row_policies(service: Service, failing: Any) -> None:
    service.pdp.bundle = msgspec.structs.replace(service.pdp.bundle, row_access=failing)


def the_audit(service: Service, failing: Any) -> None:
    service.pdp.audit = failing


def the_audit_at_the_end(service: Service, failing: Any) -> None:
    failing.admit = lambda: None
    service.pdp.audit = failing


def the_facts(service: Service, failing: Any) -> None:
    service.pdp.source = failing


ERRORS = [RuntimeError("injected"), RecursionError("injected"), MemoryError("injected"), Unavailable("injected")]
FATAL = [the_audit, the_audit_at_the_end, the_facts]
"""What no answer can do without."""
SAID = {"trino request failed", "engine failed, all denied"}
"""What the log says of a failure."""


@asynccontextmanager
async def breaking(folder: Path, fault: Patch, error: Exception, mode: str, *, warm: bool) -> AsyncIterator[Any]:
    """Asks a service some part of which fails; `warm`: it had answered all before."""
    policies = copy.deepcopy(BOTH)
    policies["config"]["trino"]["on_internal_failure"] = mode
    async with client_of(settings_of(policies, folder)) as client:
        service = client.service

        async def ask(endpoint: str, body: Any) -> tuple[int, bytes]:
            response = await client.send("POST", f"/v1/data/trino/{endpoint}", body)
            assert response.media_type == "application/json"
            assert objection(endpoint, body, response.status, response.content) is None, response
            return response.status, response.content

        for asked in SOME if warm else ():
            await ask(*asked)
        audit, source = service.pdp.audit, service.pdp.source
        fault(service, Failing(error))
        try:
            with capture_logs() as logs:
                yield ask
            assert {line["event"] for line in logs} <= SAID
            assert all("cause" in line or "exc_info" in line for line in logs)
        finally:
            service.pdp.audit, service.pdp.source = audit, source


def denial(endpoint: str, body: dict[str, Any]) -> Any:
    """The answer that opens nothing."""
    if endpoint in ("allow", "batch"):
        return {"result": False if endpoint == "allow" else []}
    if endpoint == "rowFilters":
        return {"result": [{"expression": "false"}]}
    action = body["input"]["action"]
    columns = [named["column"] for named in action.get("filterResources", [action.get("resource")])]
    masks = [{"expression": f"CAST(NULL AS {column['columnType']})"} for column in columns]
    if endpoint == "columnMask":
        return {"result": masks[0]}
    return {"result": [{"index": at, "viewExpression": mask} for at, mask in enumerate(masks)]}


def left_by(fault: Patch, endpoint: str, body: dict[str, Any]) -> Any:
    """The answer where an engine fails: that of a world without engines, and nothing where a forbid fails."""
    if fault is a_forbid and endpoint in ("allow", "batch"):
        return denial(endpoint, body)
    silent = copy.deepcopy(BOTH)
    silent["config"]["authorities"]["default"]["engines"] = []
    return by_the_model(silent, endpoint, body)


def test_there_is_a_body_of_every_kind() -> None:
    assert {endpoint for endpoint, _ in SOME} == {"allow", "batch", "rowFilters", "columnMask", "batchColumnMasks"}
    assert len({body["input"]["action"]["operation"] for _, body in SOME}) == 63


@pytest.mark.parametrize("warm", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("fault", FATAL)
async def test_without_an_audit_or_facts_all_is_denied(
    fault: Patch, error: Exception, warm: bool, tmp_path: Path
) -> None:
    async with breaking(tmp_path, fault, error, "deny", warm=warm) as ask:
        for endpoint, body in SOME:
            status, answer = await ask(endpoint, body)
            assert (status, json.loads(answer)) == (200, denial(endpoint, body)), (endpoint, body)


@pytest.mark.parametrize("warm", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("fault", FATAL)
async def test_or_it_is_an_error_where_that_is_wanted(
    fault: Patch, error: Exception, warm: bool, tmp_path: Path
) -> None:
    async with breaking(tmp_path, fault, error, "error", warm=warm) as ask:
        for endpoint, body in SOME:
            status, answer = await ask(endpoint, body)
            assert (status, json.loads(answer)["error"]["code"]) == (503, "unavailable"), (endpoint, body)
            assert b"injected" not in answer


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("fault", [an_engine, a_forbid])
async def test_a_failing_engine_denies_what_engines_judge(fault: Patch, error: Exception, tmp_path: Path) -> None:
    """What no engine judges, such as who administers Trino, is told as ever. A forbid judges that, too."""
    async with breaking(tmp_path, fault, error, "deny", warm=True) as ask:
        for endpoint, body in SOME:
            status, answer = await ask(endpoint, body)
            assert (status, json.loads(answer)) == (200, left_by(fault, endpoint, body)), (endpoint, body)


@pytest.mark.parametrize("fault", [an_engine, a_forbid])
async def test_or_is_an_error_where_an_engine_was_asked(fault: Patch, tmp_path: Path) -> None:
    failed = set()
    async with breaking(tmp_path, fault, RuntimeError("injected"), "error", warm=True) as ask:
        for endpoint, body in SOME:
            status, answer = await ask(endpoint, body)
            if status == 503:
                failed.add(body["input"]["action"]["operation"])
            else:
                assert json.loads(answer) == left_by(fault, endpoint, body), (endpoint, body)
    assert failed >= {
        "SelectFromColumns",
        "FilterTables",
        "FilterColumns",
        "CreateTable",
        "DropSchema",
        "AccessCatalog",
    }
    assert not failed & {"GetRowFilters", "GetColumnMask"}
    configured = {"ExecuteQuery", "ImpersonateUser"}
    assert failed & configured == (configured if fault is a_forbid else set())


@pytest.mark.parametrize("mode", ["deny", "error"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_failing_row_policies_show_nothing_of_any_managed_table(
    mode: str, error: Exception, tmp_path: Path
) -> None:
    managed = 0
    async with breaking(tmp_path, the_row_policies, error, mode, warm=True) as ask:
        for endpoint, body in bodies_of_statements():
            if endpoint in ("allow", "batch"):
                continue
            action = body["input"]["action"]
            [named] = (action["resource"] if "resource" in action else action["filterResources"][0]).values()
            status, answer = await ask(endpoint, body)
            plain = named["catalogName"] in ("iceberg", "memory") and named["schemaName"] != "information_schema"
            if plain and "$" not in named["tableName"]:
                managed += 1
                wanted = (200, denial(endpoint, body)) if mode == "deny" else (503, None)
                assert (status, json.loads(answer) if status == 200 else None) == wanted, body
    assert managed > 50
