"""Each pair of an operation and a state of its object gets the verdict that the table of states wants."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.oracles.trino_wants import asking
from support.paths import TESTS

from pdp.decision.plan import MOST_OBJECTS_BELOW

STATES: dict[str, Any] = yaml.safe_load((TESTS / "trino_cases" / "states" / "changes.yaml").read_text())
MOST_SCHEMAS = 10
"""Schemas that one check may name; more are denied."""
Want = tuple[dict[str, Any], list[str]]


def named(name: str) -> dict[str, Any]:
    schema, _, table = name.rpartition(".")
    return {"table": {"catalogName": "k", "schemaName": schema, "tableName": table}}


def schema(name: str) -> dict[str, Any]:
    return {"schema": {"catalogName": "k", "schemaName": name}}


def wants() -> Iterator[Want]:
    """Yield every action of the table, with the users who may."""
    for operation, by_name in STATES["tables"].items():
        for name, may in by_name.items():
            yield {"operation": operation, "resource": named(name)}, may
    for operation, by_name in STATES["schemas"].items():
        for name, may in by_name.items():
            yield {"operation": operation, "resource": schema(name)}, may
    for operation, by_name in STATES["catalogs"].items():
        for name, may in by_name.items():
            yield {"operation": operation, "resource": {"catalog": {"name": name}}}, may
    for owner, by_name in STATES["owners"].items():
        type, name = owner.split()
        grantee = {"type": type, "name": name}
        for view, may in by_name.items():
            yield {"operation": "SetViewAuthorization", "resource": named(view), "grantee": grantee}, may
    for procedure, by_name in STATES["procedures"].items():
        for table, may in by_name.items():
            resource = {**named(table), "function": {"functionName": procedure}}
            yield {"operation": "ExecuteTableProcedure", "resource": resource}, may


def policies() -> dict[str, Any]:
    """Return the policies of the table, with two large schemas."""
    found = copy.deepcopy({key: STATES[key] for key in ("config", "forbid", "world", "row_access")})
    for schema, count in (("full", MOST_OBJECTS_BELOW), ("crowded", MOST_OBJECTS_BELOW + 1)):
        found["world"]["objects"] += [{"object": f"table:lake/{schema}/t{at}"} for at in range(count)]
    return found


def body(action: dict[str, Any], user: str) -> dict[str, Any]:
    return {"input": {"context": {"identity": {"user": user, "groups": []}}, "action": action}}


async def test_every_pair_gets_the_wanted_verdict(tmp_path: Path) -> None:
    wrong = []
    async with asking(policies(), tmp_path) as ask:
        for action, may in wants():
            assert set(may) <= set(STATES["users"])
            for user in STATES["users"]:
                answer = await ask("allow", body(action, user))
                if answer["result"] != (user in may):
                    wrong.append(f"{user} {action}: {answer['result']}")
    assert wrong == []


@pytest.mark.parametrize("target", ["fresh", "s"])
async def test_a_schema_is_renamed_only_if_its_content_may_be_dropped(tmp_path: Path, target: str) -> None:
    """A rename takes each object away from its name, as a drop does. Row policies below deny a rename besides."""
    wanted: dict[str, list[str]] = {name: [] for name in ("s", "forbidden", "prefixed", "crowded", "policed")}
    wanted |= {name: ["owner"] for name in ("plain", "lone", "nested", "full")}
    async with asking(policies(), tmp_path) as ask:
        for name, may in wanted.items():
            action = {"operation": "RenameSchema", "resource": schema(name), "targetResource": schema(target)}
            got = [user for user in STATES["users"] if (await ask("allow", body(action, user)))["result"]]
            assert got == may, name


async def test_a_batch_of_changes_is_the_set_of_its_single_answers(tmp_path: Path) -> None:
    async with asking(policies(), tmp_path) as ask:
        for operations, read in ((STATES["tables"], named), (STATES["schemas"], schema)):
            for operation, by_name in operations.items():
                every = [*by_name, *by_name]
                for user, start in product(STATES["users"], range(0, len(every), MOST_SCHEMAS)):
                    names = every[start : start + MOST_SCHEMAS]
                    action = {"operation": operation, "filterResources": [read(name) for name in names]}
                    wanted = [at for at, name in enumerate(names) if user in by_name[name]]
                    assert (await ask("batch", body(action, user)))["result"] == wanted, (operation, user)
