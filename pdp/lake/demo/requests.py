"""Requests that engines, catalogs and tools send to the service of a demonstration. Pure: sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pdp.lake.demo.company import IDP, WAREHOUSE

Sender: TypeAlias = Literal["trino", "svc-catalog", "svc-console", "svc-airflow", "svc-old-etl"]
"""Sender of a request: Trino is known by its address, all others by the subject of a token."""
CATALOG: Final = "lakehouse"
TableName: TypeAlias = tuple[str, str]
"""Namespace and name."""


class PlayedRequest(msgspec.Struct, frozen=True, order=True):
    """A request, or the start of new policies where there is no `path`. `time` in seconds since 1970."""

    time: float
    path: str
    body: bytes = b""
    sender: Sender = "trino"


def select_query(time: float, user: str, table: TableName, query: str) -> PlayedRequest:
    """Return the request of Trino before a query of a user reads a table or view."""
    resource = {"table": {**_trino_table(table), "columns": ["id", "updated_at"]}}
    return _trino("allow", time, user, {"operation": "SelectFromColumns", "resource": resource}, query)


def insert_query(time: float, user: str, table: TableName, query: str) -> PlayedRequest:
    """Return the request of Trino before a user inserts rows into a table."""
    action = {"operation": "InsertIntoTable", "resource": {"table": _trino_table(table)}}
    return _trino("allow", time, user, action, query)


def row_filter(time: float, user: str, table: TableName, query: str) -> PlayedRequest:
    """Return the request of Trino for the visible rows of a table."""
    action = {"operation": "GetRowFilters", "resource": {"table": _trino_table(table)}}
    return _trino("rowFilters", time, user, action, query)


def column_masks(time: float, user: str, table: TableName, columns: Sequence[str], query: str) -> PlayedRequest:
    """Return the request of Trino for the masks of columns."""
    place = _trino_table(table)
    resources = [{"column": {**place, "columnName": name, "columnType": "varchar"}} for name in columns]
    return _trino("batchColumnMasks", time, user, {"operation": "GetColumnMask", "filterResources": resources}, query)


def show_tables(time: float, user: str, tables: Sequence[TableName], query: str) -> PlayedRequest:
    """Return the request of Trino for the tables that a user sees in a list."""
    resources = [{"table": _trino_table(table)} for table in tables]
    return _trino("batch", time, user, {"operation": "FilterTables", "filterResources": resources}, query)


def load_through_views(time: float, user: str, table: TableName, chain: Sequence[tuple[str, str]]) -> PlayedRequest:
    """Return the request of a catalog for a table that a user reaches through views, each with the user it runs as."""
    body = {
        "principal": f"user:{IDP}~{user}",
        "action": "loadTable",
        "target": f"table:{WAREHOUSE}/{table[0]}/{table[1]}",
        "referencedBy": [["reports", view] for view, _ in chain],
        "views": [
            {
                "resource": f"view:{WAREHOUSE}/reports/{view}",
                "properties": {"trino.run-as-owner": owner} if owner else {},
            }
            for view, owner in chain
        ],
        "caller": {"idp": IDP, "subject": "svc-trino", "audiences": ["trino"]},
    }
    return _request(time, "/v1/load", body, "svc-catalog")


def check_tables(time: float, action: str, tables: Sequence[TableName]) -> PlayedRequest:
    """Return the request of the scheduler before a job does something to tables."""
    checks = [{"action": action, "resource": f"table:{WAREHOUSE}/{namespace}/{table}"} for namespace, table in tables]
    return _request(time, "/v1/check", {"checks": checks}, "svc-airflow")


def check_for(time: float, user: str, action: str, table: TableName) -> PlayedRequest:
    """Return the request of a catalog that a program of a user asked for a table."""
    resource = f"table:{WAREHOUSE}/{table[0]}/{table[1]}"
    checks = [{"principal": f"user:{IDP}~{user}", "action": action, "resource": resource}]
    return _request(time, "/v1/check", {"checks": checks}, "svc-catalog")


def change_grants(time: float, actor: str, **changes: Sequence[tuple[str, str, str]]) -> PlayedRequest:
    """Return the request of the console that adds or removes grants: principal, privilege, object."""
    edits = {
        edit: [{"principal": who, "privilege": what, "object": where} for who, what, where in grants]
        for edit, grants in changes.items()
    }
    return _request(time, "/v1/grants", {"actor": f"user:{IDP}~{actor}", **edits}, "svc-console")


def malformed_check(time: float) -> PlayedRequest:
    """Return a request of a client with a mistake: the service refuses it as a whole."""
    return PlayedRequest(time, "/v1/check", b'{"checks":[{"action":"read_data","resource":', "svc-catalog")


def unknown_token(time: float) -> PlayedRequest:
    """Return a request with a token that is not valid any more."""
    return _request(time, "/v1/check", {"checks": []}, "svc-old-etl")


def new_policies(time: float) -> PlayedRequest:
    """Return the step that restarts the service with other policies."""
    return PlayedRequest(time, "")


def _trino(endpoint: str, time: float, user: str, action: Mapping[str, Any], query: str) -> PlayedRequest:
    context = {"identity": {"user": user, "groups": []}, "queryId": query}
    return _request(time, f"/v1/data/trino/{endpoint}", {"input": {"context": context, "action": action}}, "trino")


def _trino_table(table: TableName) -> dict[str, str]:
    namespace, name = table
    return {"catalogName": CATALOG, "schemaName": namespace, "tableName": name}


def _request(time: float, path: str, body: Any, sender: Sender) -> PlayedRequest:
    return PlayedRequest(time, path, msgspec.json.encode(body), sender)
