"""Row policies and masks over gRPC and Connect: the same answers and refusals as over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient, RpcClient, RpcError
from support.service.serving import settings_of

from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.surfaces.wire import decision_pb2 as wire

ORDERS, OWNER, EVE = "table:lake/sales/orders", "user:oidc~own", "user:oidc~eve"
EU: dict[str, Any] = {"id": "eu", "table": ORDERS, "grantees": ["user:eve"], "filter": "region = 'EU'"}
MASK: dict[str, Any] = {
    "id": "m", "table": ORDERS, "column": "mail", "kind": "constant", "expression": "x", "grantees": ["allUsers"],
    "except": ["user:own"],
}  # fmt: skip


FORMS = ["grpc", "connect_json", "connect_proto"]


@asynccontextmanager
async def asking(folder: Path) -> AsyncIterator[HttpClient]:
    config = {"warehouses": {"lake": {}}, "store": {"url": f"sqlite:///{folder}/pdp.db"}}
    async with client_of(settings_of(config, folder)) as client:
        grant = {"principal": OWNER, "privilege": "ownership", "object": ORDERS}
        assert (await client.post("/v1/grants", {"add": [grant]}))[0] == 200
        yield client


@asynccontextmanager
async def calling(form: str, http: HttpClient) -> AsyncIterator[RpcClient]:
    if form == "grpc":
        async with grpc.aio.insecure_channel(http.service.addresses["grpc"]) as channel:
            yield GrpcClient(channel, "PolicyService")
    else:
        yield ConnectClient(http, json=form == "connect_json", service="PolicyService")


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[HttpClient]:
    async with asking(tmp_path) as client:
        yield client


@pytest.fixture(params=FORMS)
async def rpc(request: pytest.FixtureRequest, http: HttpClient) -> AsyncIterator[RpcClient]:
    async with calling(request.param, http) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=FORMS)
async def refusing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RpcClient]:
    """Start one service for all calls that it refuses; the last check is that none wrote a policy."""
    async with asking(tmp_path_factory.mktemp("refusing")) as http, calling(request.param, http) as client:
        yield client
        assert not (await client.call("ListRowPolicies", wire.ListRowPoliciesRequest())).policies


def actor(who: str) -> wire.Actor:
    return wire.Actor(principal=wire.Principal(id=who))


def write(entry: dict[str, Any], who: str = OWNER, *, update: bool = False) -> wire.WriteRowPolicyRequest:
    return wire.WriteRowPolicyRequest(policy=wire.RowPolicy(**entry), update=update, actor=actor(who))


async def test_the_life_of_a_policy_and_a_mask(http: HttpClient, rpc: RpcClient) -> None:
    made = (await rpc.call("WriteRowPolicy", write(EU))).policy
    assert (made.author, made.dialect, list(made.grantees)) == (OWNER, "trino", ["user:eve"])
    over_http = (await http.send("GET", f"/v1/row-access-policies/eu?table={ORDERS}")).json()
    assert (over_http["etag"], over_http["created"]) == (made.etag, made.created)
    found = await rpc.call("GetRowPolicy", wire.GetRowPolicyRequest(table=ORDERS, id="eu", actor=actor(OWNER)))
    assert found.policy == made
    changed = EU | {"filter": "TRUE", "etag": made.etag}
    newer = (await rpc.call("WriteRowPolicy", write(changed, update=True))).policy
    with pytest.raises(RpcError) as refused:
        await rpc.call("WriteRowPolicy", write(changed, update=True))
    assert refused.value.code == "conflict"
    mask = (await rpc.call("WriteRowPolicy", write(MASK))).policy
    assert (mask.column, mask.kind, mask.expression, list(getattr(mask, "except"))) == (
        "mail",
        "constant",
        "x",
        ["user:own"],
    )
    for masks, wanted in ((False, newer), (True, mask)):
        page = await rpc.call("ListRowPolicies", wire.ListRowPoliciesRequest(table=ORDERS, masks=masks))
        assert list(page.policies) == [wanted]
    drop = wire.DeleteRowPoliciesRequest(table=ORDERS, ids=["eu"], etag=newer.etag, actor=actor(OWNER))
    assert (await rpc.call("DeleteRowPolicies", drop)).revision
    await rpc.call("DeleteRowPolicies", wire.DeleteRowPoliciesRequest(table=ORDERS, ids=["m"], column="MAIL"))
    assert not (await rpc.call("ListRowPolicies", wire.ListRowPoliciesRequest())).policies


async def test_a_policy_without_grantees_is_for_all_who_are_known(rpc: RpcClient) -> None:
    made = await rpc.call("WriteRowPolicy", write({key: EU[key] for key in ("id", "table", "filter")}))
    assert list(made.policy.grantees) == ["allAuthenticatedUsers"]


async def test_every_kind_of_a_mask_is_stored(rpc: RpcClient) -> None:
    for kind, form in MASK_KINDS.items():
        mask = {**MASK, "id": kind, "kind": kind, "expression": "'x'" if form.has_text else ""}
        assert (await rpc.call("WriteRowPolicy", write(mask))).policy.kind == kind
    page = await rpc.call("ListRowPolicies", wire.ListRowPoliciesRequest(table=ORDERS, masks=True))
    assert {policy.id: policy.kind for policy in page.policies} == {kind: kind for kind in MASK_KINDS}
    with pytest.raises(RpcError) as refused:
        await rpc.call("WriteRowPolicy", write({**MASK, "kind": "replace-with-null", "expression": ""}))
    assert "write `null`" in str(refused.value)


async def test_names_that_nobody_knows_are_warnings_as_over_http(http: HttpClient, rpc: RpcClient) -> None:
    await http.post("/v1/objects", {"put": [ORDERS]})
    assert list((await rpc.call("WriteRowPolicy", write(EU))).warnings) == []
    grant = {"principal": OWNER, "privilege": "ownership", "object": "namespace:lake/sales"}
    assert (await http.post("/v1/grants", {"add": [grant]}))[0] == 200
    other = {"table": "table:lake/sales/ordrs"}
    for entry, path in ((EU | other, "/v1/row-access-policies"), (MASK | other, "/v1/column-masks")):
        made = await rpc.call("WriteRowPolicy", write(entry))
        status, over_http = await http.post(path, entry | {"id": "z", "actor": OWNER})
        wanted = [text.replace("`z`", f"`{entry['id']}`") for text in over_http["warnings"]]
        assert (status, list(made.warnings), len(wanted)) == (200, wanted, 1)
        newer = await rpc.call("WriteRowPolicy", write(entry, update=True))
        assert list(newer.warnings) == wanted


@pytest.mark.process
async def test_warnings_about_a_statement_are_those_of_http(http: HttpClient) -> None:
    await http.post("/v1/objects", {"put": [ORDERS]})
    grant = {"principal": OWNER, "privilege": "ownership", "object": "namespace:lake/sales"}
    assert (await http.post("/v1/grants", {"add": [grant]}))[0] == 200
    text = "CREATE ROW ACCESS POLICY {} ON lake.sales.nope GRANT TO ('allUsers') FILTER USING (TRUE)"
    body = {"principal": OWNER, "dialect": "bigquery", "sql": text.format("z")}
    _, over_http = await http.post("/v1/rewrite", body)
    wanted = [[warning.replace("`z`", f"`{name}`") for warning in over_http["warnings"]] for name in "abc"]
    assert len(wanted[0]) == 1
    async with grpc.aio.insecure_channel(http.service.addresses["grpc"]) as channel:
        clients: tuple[RpcClient, ...] = (
            GrpcClient(channel),
            ConnectClient(http, json=True),
            ConnectClient(http, json=False),
        )
        for name, rpc, warnings in zip("abc", clients, wanted, strict=True):
            asked = wire.RewriteRequest(
                sql=text.format(name), dialect="bigquery", principal=wire.Principal(id=OWNER)
            )  # fmt: skip
            assert list((await rpc.call("Rewrite", asked)).warnings) == warnings


async def test_permissions(rpc: RpcClient) -> None:
    for who, wanted in ((OWNER, ["rowAccessPolicies.update"]), (EVE, [])):
        request = wire.TestRowPolicyPermissionsRequest(
            table=ORDERS, permissions=["rowAccessPolicies.update"], actor=actor(who)
        )
        assert list((await rpc.call("TestRowPolicyPermissions", request)).permissions) == wanted


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("WriteRowPolicy", write(EU, EVE), "forbidden"),
        ("WriteRowPolicy", write(EU | {"filter": "FALSE) OR (1=1"}), "RAP_FILTER_INVALID"),
        ("WriteRowPolicy", write(EU | {"filter": ""}), "RAP_FILTER_INVALID"),
        ("WriteRowPolicy", write(EU, update=True), "not_found"),
        ("WriteRowPolicy", write({}), "invalid_argument"),
        ("WriteRowPolicy", write(MASK | {"filter": "TRUE"}), "invalid_argument"),
        ("WriteRowPolicy", write(MASK | {"kind": ""}), "invalid_argument"),
        ("WriteRowPolicy", write(EU | {"kind": "hash"}), "invalid_argument"),
        ("GetRowPolicy", wire.GetRowPolicyRequest(table=ORDERS, id="eu", actor=actor(EVE)), "forbidden"),
        ("GetRowPolicy", wire.GetRowPolicyRequest(table=ORDERS, id="eu"), "not_found"),
        ("GetRowPolicy", wire.GetRowPolicyRequest(id="eu"), "invalid_argument"),
        ("DeleteRowPolicies", wire.DeleteRowPoliciesRequest(table=ORDERS), "invalid_argument"),
        ("DeleteRowPolicies", wire.DeleteRowPoliciesRequest(table=ORDERS, ids=["eu"], actor=actor(EVE)), "forbidden"),
        ("DeleteRowPolicies", wire.DeleteRowPoliciesRequest(table=ORDERS, ids=["a", "b"], etag="x"), "invalid_argument"),
        ("ListRowPolicies", wire.ListRowPoliciesRequest(table=ORDERS, actor=actor(EVE)), "forbidden"),
        ("TestRowPolicyPermissions", wire.TestRowPolicyPermissionsRequest(table=ORDERS, permissions=["x"]), "invalid_argument"),
    ],
)  # fmt: skip
@pytest.mark.asyncio(loop_scope="module")
async def test_a_refusal_has_the_code_of_http(refusing: RpcClient, method: str, request_: Any, code: str) -> None:
    with pytest.raises(RpcError) as refused:
        await refusing.call(method, request_)
    assert refused.value.code == code


async def test_a_second_policy_of_an_id_is_refused(rpc: RpcClient) -> None:
    await rpc.call("WriteRowPolicy", write(EU))
    with pytest.raises(RpcError) as refused:
        await rpc.call("WriteRowPolicy", write(EU))
    assert (refused.value.code, refused.value.status.lower()) == ("already_exists", "already_exists")
