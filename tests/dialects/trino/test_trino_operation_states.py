"""Each operation of Trino on each state of its object gets the verdict of a table that is written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from support.oracles.trino_wants import Ask, asking
from support.paths import TESTS

from pdp.model.trino_operations import TRINO_OPERATIONS

TABLE: dict[str, Any] = yaml.safe_load((TESTS / "trino_cases" / "states" / "operations.yaml").read_text())
USERS: list[str] = TABLE["users"]
STATES = {
    "tables": "table_states", "views": "table_states", "filters": "table_states", "schemas": "schema_states",
    "functions": "function_states", "catalogs": "catalog_states", "properties": "catalog_states",
}  # fmt: skip
"""Part of the table -> the states that each of its operations needs."""
REQUIRED = {"unknown", "known", "owned by another", "under row policy", "under forbid"}
"""States of an object."""
TARGETS = {
    "RenameTable": {"table": {"catalogName": "k", "schemaName": "s", "tableName": "fresh"}},
    "RenameView": {"table": {"catalogName": "k", "schemaName": "s", "tableName": "fresh"}},
    "RenameMaterializedView": {"table": {"catalogName": "k", "schemaName": "s", "tableName": "fresh"}},
    "RenameSchema": {"schema": {"catalogName": "k", "schemaName": "moved"}},
}


class Want(NamedTuple):
    """Action, its state in words, and the users who may."""

    action: dict[str, Any]
    state: str
    may: list[str]


def table(name: str, **more: Any) -> dict[str, Any]:
    schema, _, named = name.rpartition(".")
    return {"table": {"catalogName": "k", "schemaName": schema, "tableName": named, **more}}


def function(name: str) -> dict[str, Any]:
    catalog, _, schema = name.partition(".")
    return {"function": {"catalogName": catalog, "schemaName": schema, "functionName": "f"}}


def resource(part: str, operation: str, name: Any) -> dict[str, Any]:
    """Return a resource of one part of the table, as Trino names it."""
    if part == "schemas":
        return {"schema": {"catalogName": "k", "schemaName": name}}
    if part == "functions":
        return function(name)
    if part == "catalogs":
        return {"catalog": {"name": name}}
    if part == "properties":
        return {"catalogSessionProperty": {"catalogName": name, "propertyName": "free"}}
    columns = {"columns": ["c"]} if "Column" in operation and operation not in ("AddColumn", "ShowColumns") else {}
    named = table(name[part == "views"], **columns)
    return named | ({"function": {"functionName": "OPTIMIZE"}} if operation == "ExecuteTableProcedure" else {})


def action(part: str, operation: str, name: Any) -> dict[str, Any]:
    """Return the action of an operation on an object."""
    made = {"operation": operation, "resource": resource(part, operation, name)}
    if target := TARGETS.get(operation):
        made["targetResource"] = target
    if operation.endswith("Authorization"):
        made["grantee"] = {"type": "USER", "name": "etl"}
    return made


def wants() -> Iterator[Want]:
    """Yield every verdict of the table but those on rows and columns."""
    for part, states in STATES.items():
        if part == "filters":
            continue
        for operation, by_state in TABLE[part].items():
            for state, may in by_state.items():
                yield Want(action(part, operation, TABLE[states][state]), state, may)
    for operation, by_object in TABLE["others"].items():
        for named, may in by_object.items():
            kind, _, name = named.partition(" ")
            key = "user" if kind == "user" else "name"
            made = {"operation": operation} | ({"resource": {kind: {key: name}}} if kind else {})
            yield Want(made, named, may)


def body(made: dict[str, Any], user: str) -> dict[str, Any]:
    return {"input": {"context": {"identity": {"user": user, "groups": []}}, "action": made}}


def test_the_table_has_every_operation_in_every_state() -> None:
    parts = [*STATES, "others"]
    assert sum(len(TABLE[part]) for part in parts) == len({name for part in parts for name in TABLE[part]})
    assert {name for part in parts for name in TABLE[part]} == TRINO_OPERATIONS.keys()
    for part, states in STATES.items():
        for operation, by_state in TABLE[part].items():
            assert by_state.keys() == TABLE[states].keys(), operation
    assert TABLE["table_states"].keys() >= REQUIRED
    assert TABLE["schema_states"].keys() >= REQUIRED - {"under row policy"}
    assert len([state for state in TABLE["schema_states"] if state.startswith("with a")]) == len(REQUIRED) - 1


async def test_every_operation_gets_the_wanted_verdict(tmp_path: Path) -> None:
    wrong = []
    async with asking(TABLE, tmp_path) as ask:
        for want in wants():
            assert set(want.may) <= set(USERS)
            may = [user for user in USERS if (await ask("allow", body(want.action, user)))["result"]]
            if may != [user for user in USERS if user in want.may]:
                wrong.append(f"{want.action['operation']}, {want.state}: {may} may, {want.may} should")
    assert wrong == [], "\n".join(wrong)


async def masked(ask: Ask, named: dict[str, Any], user: str) -> bool:
    """Tell whether a user sees column c through a mask; both endpoints must agree."""
    column = {"column": {**named["table"], "columnName": "c", "columnType": "varchar"}}
    one = await ask("columnMask", body({"operation": "GetColumnMask", "resource": column}, user))
    many = await ask("batchColumnMasks", body({"operation": "GetColumnMask", "filterResources": [column]}, user))
    assert bool(one) == bool(many["result"])
    return bool(one)


async def test_every_user_sees_the_wanted_rows_and_columns(tmp_path: Path) -> None:
    async with asking(TABLE, tmp_path) as ask:
        for state, (name, _) in TABLE["table_states"].items():
            for user in USERS:
                rows = await ask("rowFilters", body({"operation": "GetRowFilters", "resource": table(name)}, user))
                hidden = TABLE["filters"]["GetRowFilters"][state].get(user)
                assert [each["expression"].lower() for each in rows["result"]] == ([hidden] if hidden else []), (
                    state,
                    user,
                )
                is_masked = user in TABLE["filters"]["GetColumnMask"][state]
                assert await masked(ask, table(name), user) == is_masked, (state, user)
