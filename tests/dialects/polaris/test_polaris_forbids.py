"""Forbids of `commit` and of rights to users bind each way to do it: Polaris, native checks, and edits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import HttpClient, client_of
from support.service.serving import settings_of

from pdp.model.polaris_operations import POLARIS_OPERATIONS
from pdp.model.vocabulary import USER_RIGHTS

CEDAR = {"commit": "CommitTable", "delete_users": "DeleteUsers", "update_users": "UpdateUsers"}
COMMITS = sorted(
    name
    for name, operation in POLARIS_OPERATIONS.items()
    if operation.target == "table" and {"write_data", "commit"} & {step.action for step in operation.steps}
)
"""Operations that change a table, but for reports of metrics and loads."""
NO_COMMIT = {"REPORT_WRITE_METRICS", "LOAD_TABLE_WITH_WRITE_DELEGATION"}


def config(folder: Path, rule: str, cedar: str = "") -> dict[str, Any]:
    """Return a configuration in which ann may do everything, without and with a forbid."""
    granted = [("operator", "server"), ("ownership", "warehouse:wh")]
    world = {
        "objects": ["project:p1", {"object": "warehouse:wh", "parent": "project:p1"}, "user:oidc~bob", "user:oidc~ann"],
        "grants": [{"principal": "user:oidc~ann", "privilege": one, "object": at} for one, at in granted],
    }
    (folder / "world.yaml").write_text(json.dumps(world))
    (folder / "forbid.yaml").write_text(json.dumps({"rules": {"f": rule} if rule else {"f": "op == 'none'"}}))
    (folder / "p.cedar").write_text("permit(principal, action, resource);\n" + cedar)
    return {
        "warehouses": {"wh": {"project": "p1"}},
        "authorities": {"default": {"engines": ["cedar" if cedar else "grants"]}},
        "policies": {
            "rules": [],
            "forbid": ["forbid.yaml"] if rule else [],
            "cedar": {"policies": ["p.cedar"] if cedar else []},
        },
        "store": {"url": "sqlite:///pdp.db", "seed": "world.yaml"},
        "polaris": {"catalogs": {"c": "wh"}},
        "identity": {"callers": {"local": {"loopback": True, "may_assert": ["principals"], "may_write": True}}},
    }


async def polaris(client: HttpClient, action: str, target: dict[str, Any]) -> bool:
    body = {"actor": {"principal": "ann", "roles": []}, "action": action, "resource": {"targets": [target]}}
    status, answer = await client.post("/v1/data/polaris/authz", {"input": body})
    assert status == 200
    return bool(answer["result"]["allow"])


async def native(client: HttpClient, action: str, resource: str, user: str = "ann") -> bool:
    check = {"principal": f"user:oidc~{user}", "action": action, "resource": resource}
    _, answer = await client.post("/v1/check", {"checks": [check]})
    return bool(answer["decisions"][0]["allowed"])


PATH = [{"type": "CATALOG", "name": "c"}, {"type": "NAMESPACE", "name": "s"}]
TABLE = {"type": "TABLE_LIKE", "name": "t", "parents": PATH}
BOB = {"type": "PRINCIPAL", "name": "bob", "parents": []}


@pytest.mark.parametrize("with_cedar", [False, True])
async def test_a_forbid_of_commits_binds_each_operation_that_commits(tmp_path: Path, with_cedar: bool) -> None:
    forbid = 'forbid(principal, action == Lakekeeper::Action::"CommitTable", resource);'
    settings = config(
        tmp_path, "" if with_cedar else "action == 'commit' && path == 's.t'", forbid if with_cedar else ""
    )
    other = {**TABLE, "name": "u"}
    async with client_of(settings_of(settings, tmp_path)) as client:
        for name in COMMITS:
            assert await polaris(client, name, TABLE) is (name in NO_COMMIT), name
            assert await polaris(client, name, other) is (name in NO_COMMIT or not with_cedar), name


OF_USERS = {
    "delete_users": ["DELETE_PRINCIPAL"],
    "update_users": ["UPDATE_PRINCIPAL", "ROTATE_CREDENTIALS", "RESET_CREDENTIALS"],
    "list_users": ["GET_PRINCIPAL", "LIST_PRINCIPAL_ROLES_ASSIGNED"],
}
"""Right of the server -> operations of Polaris on one principal."""


@pytest.mark.parametrize("right", [None, *OF_USERS])
async def test_a_forbid_of_a_right_to_users_binds_what_is_done_to_a_user(tmp_path: Path, right: str | None) -> None:
    rule = f"role == 'ann' && action == '{right}'" if right else ""
    async with client_of(settings_of(config(tmp_path, rule), tmp_path)) as client:
        for action, of_server in USER_RIGHTS.items():
            assert await native(client, action, "user:oidc~bob") is (of_server != right), action
            own = of_server != right or of_server == "list_users"
            assert await native(client, action, "user:oidc~ann") is own, action
        for of_server, names in OF_USERS.items():
            for name in names:
                assert await polaris(client, name, BOB) is (of_server != right), name
        status, _ = await client.post("/v1/objects", {"actor": "user:oidc~ann", "delete": ["user:oidc~bob"]})
        assert (status == 200) is (right != "delete_users")


@pytest.mark.parametrize(
    ("action", "names"), [("delete", OF_USERS["delete_users"]), ("update", OF_USERS["update_users"])]
)
async def test_a_forbid_of_what_is_done_to_one_user_binds_polaris(
    tmp_path: Path, action: str, names: list[str]
) -> None:
    rule = f"op == 'catalog:{action}' && has(arguments.name) && arguments.name == 'oidc~bob'"
    async with client_of(settings_of(config(tmp_path, rule), tmp_path)) as client:
        for name in names:
            assert not await polaris(client, name, BOB), name
            assert await polaris(client, name, {**BOB, "name": "ann"}), name
