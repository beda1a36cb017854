"""View security at its edges: what surfaces answer to attacks, what the audit keeps, what an explanation says."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from support.clients.stubs import wire_grpc
from support.oracles.audit_files import audit_files, audit_records
from support.oracles.view_loads import ENGINES, LOAD, OWNER, WORLD, load_client
from support.paths import ROOT
from support.service.commands import run_pdp
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport, RecordedOutcome, ReplayCheck
from pdp.audit.records.rows import requests
from pdp.config.load import load_settings, make_settings
from pdp.engines.engine import READS_POLICIES, Cost, EngineQuestion
from pdp.errors import ConfigError, InvalidArgument, TooManyChecks, UnresolvableViewOwner
from pdp.identity.callers import EMBEDDED_CALLER, trusted_engines_of
from pdp.model.question import (
    Caller,
    ChainView,
    Check,
    Load,
    Principal,
    Question,
    Resource,
    TokenIdentity,
    TrustedEngine,
)
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.offline.replay.replay import replay
from pdp.surfaces.wire import decision_pb2 as wire
from pdp.views.chains import resolve_owner
from pdp.views.codec import LoadBody, TokenBody, ViewBody, decode_load
from pdp.views.loads import ViewSecurity

COMMIT: dict[str, Any] = {
    "principal": "user:oidc~alice",
    "view": "view:lake/ns/v",
    "operation": "commit",
    "set": {OWNER: "alice"},
}


def views_of(recorder: MemoryAudit | None = None, **data: Any) -> ViewSecurity:
    usual = {"engines": ["grants"], "world": WORLD, "config": {"trusted_engines": ENGINES}}
    pdp, settings = build_case_pdp(Case("views", ROOT, {**usual, **data}), build_pdp, recorder or MemoryAudit())
    return ViewSecurity(pdp, settings)


# --- over HTTP and gRPC -------------------------------------------------------------------------------------------


async def test_an_answer_has_every_field_of_the_contract(tmp_path: Path) -> None:
    async with load_client(tmp_path) as asked:
        status, answer = await asked.post("/v1/load", LOAD)
    step = {"resource": "table:lake/ns/t", "as": "user:oidc~bob", "delegated": True, "action": "write_data"}
    assert status == 200
    assert list(answer) == [
        "allowed", "by", "errors", "storageAccess", "referencedByUsed", "steps", "revision", "decisionId",
    ]  # fmt: skip
    assert (answer["allowed"], answer["storageAccess"], answer["referencedByUsed"]) == (True, "read", True)
    assert answer["steps"][-1] == {**step, "allowed": False, "by": ["default_deny"]}
    assert len(answer["steps"]) == 5


async def test_a_load_through_one_s_own_definer_view_is_delegated(tmp_path: Path) -> None:
    """The manual says so of a forbid on `delegated`."""
    async with load_client(tmp_path) as asked:
        status, answer = await asked.post("/v1/load", LOAD | {"principal": "user:oidc~bob"})
    assert status == 200
    behind = [step for step in answer["steps"] if step["resource"] == "table:lake/ns/t"]
    assert behind
    assert {(step["as"], step["delegated"]) for step in behind} == {("user:oidc~bob", True)}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/load", LOAD | {"extra": 1}),
        ("/v1/load", LOAD | {"caller": {"idp": "oidc", "groups": []}}),
        ("/v1/load", LOAD | {"views": [{"resource": "view:lake/ns/v"}]}),
        ("/v1/load", LOAD | {"views": [{"resource": "view:lake/ns/v", "properties": None}]}),
        ("/v1/load", LOAD | {"referencedBy": [["ns", 1]]}),
        ("/v1/load", LOAD | {"referencedBy": ["ns"]}),
        ("/v1/load", LOAD | {"referencedBy": None}),
        ("/v1/load", LOAD | {"actingRole": None}),
        ("/v1/load", b"{" + json.dumps(LOAD)[1:-1].encode() + b',"caller":{"idp":"oidc","audiences":["trino"]}}'),
        ("/v1/load", b"[" * 100_000),
        ("/v1/commit-view", COMMIT | {"extra": 1}),
        ("/v1/commit-view", COMMIT | {"remove": [1]}),
        ("/v1/commit-view", json.dumps(COMMIT).encode()[:-1] + b',"set":{}}'),
    ],
)
async def test_nonsense_is_400(tmp_path: Path, path: str, body: Any) -> None:
    async with load_client(tmp_path) as asked:
        status, answer = await asked.post(path, body)
    assert (status, answer["error"]["code"]) == (400, "invalid_argument")


async def test_both_numbers_are_in_the_text(tmp_path: Path) -> None:
    async with load_client(tmp_path, limits={"referenced_by_depth": 3}) as asked:
        status, answer = await asked.post("/v1/load", LOAD | {"referencedBy": "a,b,c,d", "caller": {"idp": "oidc"}})
    assert (status, answer["error"]["code"]) == (400, "ReferencedByDepthExceeded")
    assert {"4", "3"} <= set(answer["error"]["message"].split())


@pytest.mark.parametrize("change", [{}, {"set": {}, "remove": ["TRINO.run-as-owner"]}, {"operation": "create"}])
async def test_a_protected_property_is_403_and_recorded(tmp_path: Path, change: dict[str, Any]) -> None:
    async with load_client(tmp_path) as asked:
        status, answer = await asked.post("/v1/commit-view", COMMIT | change)
    assert (status, answer["error"]["code"]) == (403, "ProtectedPropertyModification")
    (record,) = audit_records(tmp_path)
    (request,) = requests(record)
    assert (request["allowed"], request["by"], request["as"]) == (False, ["protected_property"], "user:oidc~alice")
    assert [key.casefold() for key in request["change"]["touched"]] == [OWNER]


async def test_over_grpc_a_protected_property_is_permission_denied(tmp_path: Path) -> None:
    async with load_client(tmp_path) as asked, grpc.aio.insecure_channel(asked.service.addresses["grpc"]) as channel:
        stub = wire_grpc.DecisionServiceStub(channel)
        request = wire.CheckViewCommitRequest(
            principal=wire.Principal(id="user:oidc~alice"),
            view=wire.Resource(reference="view:lake/ns/v"),
            operation="commit",
            remove=[OWNER],
        )
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.CheckViewCommit(request)
        view = wire.View(resource=wire.Resource(reference="view:lake/ns/v"))
        load = wire.CheckLoadRequest(
            principal=request.principal,
            target=wire.Resource(reference="table:lake/ns/t"),
            action="loadTable",
            views=[view],
        )
        with pytest.raises(grpc.aio.AioRpcError) as without_properties:
            await stub.CheckLoad(load)
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert (refused.value.details() or "").startswith("ProtectedPropertyModification: ")
    assert without_properties.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "properties" in (without_properties.value.details() or "")


# --- attacks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("audience", ["trino", "other"])
@pytest.mark.parametrize(
    ("referenced_by", "code"),
    [
        ("," * 100_000, "ReferencedByDepthExceeded"),
        ("%1F" * 33_000, ""),
        ("n%1F" * 25_000 + "v", "NamespaceDepthExceeded"),
        ("n" * 100_000, ""),
        ("%" * 100_000, ""),
        ("%2C" * 33_000, ""),
        ("+" * 100_000, ""),
    ],
)
def test_a_hundred_kilobytes_of_chain_are_judged_at_once(referenced_by: str, code: str, audience: str) -> None:
    token = TokenBody("oidc", audiences=(audience,))
    body = LoadBody("table:lake/ns/t", "loadTable", "user:oidc~alice", referenced_by=referenced_by, caller=token)
    if audience == "other" and code == "NamespaceDepthExceeded":
        code = ""
    started = time.perf_counter()
    if code:
        with pytest.raises(InvalidArgument) as refused:
            asyncio.run(views_of().load(body, EMBEDDED_CALLER, "test"))
        assert refused.value.code == code
    else:
        assert not asyncio.run(views_of().load(body, EMBEDDED_CALLER, "test")).decision.allowed
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "raw", ["v", "ns.v", "ns%251Fv", "ns/v", "ns%2Fv", "NS%1Fv", "ns%1FV", "ns%1Fv ", " ns%1Fv", "ns%1F\uff56"]
)
def test_no_other_spelling_is_the_view(raw: str) -> None:
    """A view that the world lets alice pass is not what these name: they are missing, or nothing."""
    body = decode_load(json.dumps(LOAD | {"referencedBy": raw}).encode())
    loaded = asyncio.run(views_of().load(body, EMBEDDED_CALLER, "test"))
    assert not loaded.decision.allowed
    assert loaded.decision.error
    assert loaded.decision.error.code == "NoSuchView"


@pytest.mark.parametrize(
    ("separator", "read", "missing"),
    [
        ("\x1f", ("ns%1Fv", "ns%1fv"), ("ns.v", "ns/v", "ns%1F%1Fv")),
        (".", ("ns.v", "ns%2Ev", "ns%2ev"), ("ns..v", "n.s.v", "ns%252Ev", "ns,v", ".ns.v", "ns.v.", "ns")),
        ("/", ("ns/v", "ns%2Fv"), ("ns.v", "ns//v")),
        ("::", ("ns::v", "ns%3A%3Av"), ("ns:v", "ns:::v")),
    ],
)
async def test_the_catalog_s_separator_divides_namespaces(
    tmp_path: Path, separator: str, read: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    async with load_client(
        tmp_path, warehouses={"lake": {} if separator == "\x1f" else {"namespace_separator": separator}}
    ) as asked:
        for chain in read:
            answer = (await asked.post("/v1/load", LOAD | {"referencedBy": chain}))[1]
            assert (answer["allowed"], answer["referencedByUsed"]) == (True, True), chain
            assert answer["steps"][-1]["as"] == "user:oidc~bob"
        for chain in missing:
            assert (await asked.post("/v1/load", LOAD | {"referencedBy": chain}))[1]["allowed"] is False, chain


@pytest.mark.parametrize("separator", ["", " ", ",", "a,b", "\n", "123456789"])
def test_a_separator_that_chains_cannot_have_is_refused(tmp_path: Path, separator: str) -> None:
    with pytest.raises(ConfigError, match="namespace_separator"):
        settings_of({"warehouses": {"lake": {"namespace_separator": separator}}}, tmp_path)


def test_a_cycle_is_as_long_as_it_is_written() -> None:
    views = [ViewBody("view:lake/ns/v", {OWNER: "bob"}), ViewBody("view:lake/ns/w", {OWNER: "alice"})]
    token = TokenBody("oidc", audiences=("trino",))
    chain = [["ns", "v"], ["ns", "w"]] * 5
    body = LoadBody("table:lake/ns/t", "loadTable", "user:oidc~alice", referenced_by=chain, views=views, caller=token)
    loaded = asyncio.run(views_of().load(body, EMBEDDED_CALLER, "test"))
    assert len(loaded.steps) == 23
    assert {step.as_principal for step in loaded.steps} == {"user:oidc~alice", "user:oidc~bob"}
    assert not loaded.decision.allowed


@pytest.mark.parametrize("forbidden", ["read_data", "write_data"])
def test_credentials_that_write_take_the_right_to_read(forbidden: str) -> None:
    grants = [{"principal": "user:oidc~olga", "privilege": "modify", "object": "table:lake/ns/t"}]
    data: dict[str, Any] = {
        "forbid": {"f": f"action == '{forbidden}' && path == 'ns.t'"},
        "world": {"objects": [], "grants": grants},
    }
    views, found = views_of(**data), []
    for action in ("loadTable", "loadCredentials"):
        body = LoadBody("table:lake/ns/t", action, "user:oidc~olga")
        loaded = asyncio.run(views.load(body, EMBEDDED_CALLER, "test"))
        found.append((loaded.decision.allowed, loaded.storage_access))
    none, read = ([(True, "none"), (False, "none")], [(True, "read"), (True, "read")])
    assert found == (none if forbidden == "read_data" else read)


def test_engines_are_asked_once_per_group() -> None:
    """However long the chain: each user is asked each action about all of the user's views together."""
    views = views_of()
    bundle = views._pdp.bundle
    asked: list[tuple[EngineQuestion, int]] = []
    engine: Any = bundle.default.engines[0]

    class Counting:
        forbids = counts_stored_roles = False
        name, digest, reads, cost = engine.name, engine.digest, engine.reads, engine.cost
        applies, explain = engine.applies, engine.explain

        def decide(self, group: EngineQuestion, resources: Any, facts: Any) -> Any:
            asked.append((group, len(resources)))
            return engine.decide(group, resources, facts)

    counting: Any = Counting()
    default = type(bundle.default)("default", (counting,), "any")
    views._pdp.bundle = msgspec.structs.replace(bundle, authorities={}, default=default)
    names = [f"v{number}" for number in range(10)]
    body = LoadBody(
        "table:lake/ns/t",
        "loadTable",
        "user:oidc~alice",
        referenced_by=",".join(names),
        views=[ViewBody(f"view:lake/{name}", {}) for name in names],
        caller=TokenBody("oidc", audiences=("trino",)),
    )
    asyncio.run(views.load(body, EMBEDDED_CALLER, "test"))
    assert sorted(count for _, count in asked) == [1, 1, 1, 10, 10]


def test_a_flood_of_views_is_refused() -> None:
    body = LoadBody("table:lake/ns/t", "loadTable", "user:oidc~alice", views=[ViewBody("nonsense", {})] * 10_001)
    with pytest.raises(TooManyChecks):
        asyncio.run(views_of().load(body, EMBEDDED_CALLER, "test"))


@pytest.mark.parametrize("place", ["engine", "forbid"])
@pytest.mark.parametrize("action", ["loadTable", "loadCredentials"])
def test_a_failing_engine_loads_nothing(place: str, action: str) -> None:
    views = views_of()
    bundle = views._pdp.bundle

    class Broken:
        name = "broken"
        digest = ""
        forbids = counts_stored_roles = True
        reads = READS_POLICIES
        cost = Cost.MICROSECONDS

        def applies(self, action: str, type: str) -> bool:
            return True

        def decide(self, group: EngineQuestion, resources: Any, facts: Any) -> Any:
            raise ValueError("injected")

    broken: Any = Broken()
    engines = (broken, *bundle.default.engines) if place == "engine" else bundle.default.engines
    default = type(bundle.default)("default", engines, "any")
    forbids = (broken,) if place == "forbid" else ()
    views._pdp.bundle = msgspec.structs.replace(bundle, authorities={}, default=default, forbids=forbids)
    loaded = asyncio.run(
        views.load(decode_load(json.dumps(LOAD | {"action": action}).encode()), EMBEDDED_CALLER, "test")
    )
    assert (loaded.decision.allowed, loaded.storage_access) == (False, "none")
    assert loaded.decision.by == ("view:lake/ns/v: broken:failed",)


def test_a_peer_s_own_token_makes_it_an_engine_unless_the_body_tells_of_another() -> None:
    engine = TrustedEngine("trino", "trino", OWNER, "corp")
    peer = Caller("catalog", EMBEDDED_CALLER.may_assert, engines=(engine,))
    own = {key: value for key, value in LOAD.items() if key != "caller"}
    for body, who in (
        (own, "user:corp~bob"),
        (LOAD, "user:oidc~bob"),
        (LOAD | {"caller": {"idp": "x"}}, "user:oidc~alice"),
    ):
        loaded = asyncio.run(views_of().load(decode_load(json.dumps(body).encode()), peer, "test"))
        assert loaded.steps[-1].as_principal == who


RULES: dict[str, Any] = {
    "a": {"type": "trino", "owner_property": "p", "identities": {"oidc": {"audiences": ["x"], "subjects": ["s"]}}},
    "b": {
        "type": "trino",
        "owner_property": "q",
        "identities": {"corp": {"subjects": ["s"]}},
        "enforces_row_access": True,
        "delegated_storage": "as_owner",
    },
    "c": {"type": "trino", "owner_property": "p", "identities": {"oidc": {"audiences": ["x", "y"]}}},
}


@pytest.mark.parametrize(
    ("idp", "subject", "audiences", "names"),
    [
        ("oidc", "", ["x"], "ac"),
        ("oidc", "s", [], "a"),
        ("oidc", "s", ["y", "z"], "ac"),
        ("corp", "s", ["x"], "b"),
        ("corp", "x", ["s"], ""),
        ("oidc", "x", ["s"], ""),
        ("other", "s", ["x", "y"], ""),
        ("oidc", "", [], ""),
        ("oidc", "", [""], ""),
    ],
)
def test_engines_are_matched_by_provider_and_audience_or_subject(
    idp: str, subject: str, audiences: list[str], names: str
) -> None:
    rules = make_settings({"trusted_engines": RULES}, ROOT).trusted_engines
    found = trusted_engines_of(TokenIdentity(idp, subject, tuple(audiences)), rules)
    assert "".join(engine.name for engine in found) == names
    assert all(engine.enforces_row_access == engine.owner_writes == (engine.name == "b") for engine in found)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"identities": {}}, "identities"),
        ({"identities": {"oidc": {}}}, "must name somebody"),
        ({"identities": {"OIDC": {"subjects": ["s"]}}}, "OIDC"),
        ({"owner_property": ""}, "owner_property"),
        ({"type": "spark"}, "type"),
        ({"owner": "x"}, "owner"),
    ],
)
def test_an_engine_that_nobody_or_anybody_could_be_stops_the_start(rule: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make_settings({"trusted_engines": {"trino": {**RULES["a"], **rule}}}, ROOT)


def test_an_engine_can_come_from_the_environment() -> None:
    start = "PDP__TRUSTED_ENGINES__TRINO__"
    given = {"TYPE": "trino", "OWNER_PROPERTY": OWNER, "IDENTITIES__OIDC__AUDIENCES": "[trino]"}
    settings = load_settings(environ={start + key: value for key, value in given.items()})
    found = trusted_engines_of(TokenIdentity("oidc", "", ("trino",)), settings.trusted_engines)
    assert [engine.owner_property for engine in found] == [OWNER]


# --- audit --------------------------------------------------------------------------------------------------------


async def test_a_record_says_why_the_identity_switched(tmp_path: Path) -> None:
    async with load_client(tmp_path) as asked:
        await asked.post("/v1/load", LOAD)
        await asked.post("/v1/load", LOAD | {"caller": {"idp": "oidc"}})
        await asked.post("/v1/load", LOAD | {"referencedBy": "a,,b"})
        await asked.post("/v1/load", LOAD | {"referencedBy": "ns%1Fgone,ns%1Fv"})
    loads = [next(requests(record))["load"] for record in audit_records(tmp_path)]
    switched = {"view": "view:lake/ns/v", "owner": "user:oidc~bob", "engine": "trino", "property": OWNER}
    assert loads == [
        {"chain": [switched], "entries": 1, "ignored": ""},
        {"chain": [], "entries": 1, "ignored": "no trusted engine"},
        {"chain": [], "entries": 3, "ignored": "malformed: a path part is empty"},
        {
            "chain": [{"view": "view:lake/ns/gone", "found": False}, {"view": "view:lake/ns/v"}],
            "entries": 2,
            "ignored": "",
        },
    ]


MORE: list[dict[str, Any]] = [
    {},
    {"action": "loadCredentials"},
    {"referencedBy": "ns%1Fv,ns%1Fgone"},
    {"referencedBy": "a,,b"},
    {"caller": {"idp": "oidc"}},
    {"target": "view:lake/ns/w", "action": "loadView"},
    {"target": "generic_table:lake/ns/t"},
    {"target": "table:lake/ns/u"},
    {
        "target": "table:lake/ns/t@dev",
        "views": [{"resource": "view:lake/ns/v@dev", "properties": {OWNER: "role:x@y/z"}}],
    },
    {"actingRole": "role:etl"},
    {"principal": {"id": "user:oidc~alice", "roles": ["r"], "groups": ["g"], "attributes": {"a": 1}}},
]


async def test_records_of_loads_decide_again(tmp_path: Path) -> None:
    """What is read back is decided again as it was then; and a record asked under other policies shows who gains."""
    changes: list[dict[str, Any]] = [
        {},
        {"set": {}},
        {"operation": "create", "set": {}},
        {"operation": "replace", "remove": [OWNER]},
    ]
    async with load_client(tmp_path) as asked:
        for more in MORE:
            assert (await asked.post("/v1/load", LOAD | more))[0] == 200
        for change in changes:
            await asked.post("/v1/commit-view", COMMIT | change)
        pdp = asked.service.pdp
    reading = ReadReport()
    recorded = list(read_audit(tmp_path / "audit", reading))
    assert (len(recorded), reading.skipped, reading.rejected) == (len(MORE) + len(changes), {}, 0)
    assert not any(one.check.question.delegated for one in recorded), "the hops are, the load is not"
    assert not await replay(recorded, None, pdp)
    everything = {
        "grants": [{"principal": "user:oidc~bob", "privilege": "modify", "object": "warehouse:lake"}],
        "objects": [],
    }
    other, _ = build_case_pdp(
        Case("other", ROOT, {"engines": ["grants"], "world": everything}), build_pdp, MemoryAudit()
    )
    found = await replay(recorded, None, other)
    assert found.totals["gained"] == 0
    assert found.totals["lost"] > 0


async def test_loads_through_different_chains_are_different_loads() -> None:
    """They are alike in all but their chains, and came out alike; who lost the table is the owner of one of them."""
    alice, table = Principal("user", "oidc~alice"), Resource("table", "lake", ("ns", "t"))
    then = RecordedOutcome(True, "grants:select on view:lake/ns/v via user:oidc~alice")
    recorded = [
        ReplayCheck(
            Check(
                Question(alice, "loadTable", view_security=Load((ChainView(("ns", "v"), owner=owner),))), (table,), (0,)
            ),
            "t",
            then,
        )
        for owner in ("oidc~bob", "oidc~carol")
    ]
    found = await replay(recorded, None, views_of()._pdp)
    assert (found.checks, dict(found.totals)) == (2, {"lost": 1})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"action":"loadTable","as"', '"action":"read_data","as"'),
        ('"resource":"table:lake/ns/t","allowed":true,"by":["grants:select on view', '"resource":"server","allowed":true,"by":["grants:select on view'),
        ('"view":"view:lake/ns/v"', '"view":"table:lake/ns/v"'),
        ('"owner":"user:oidc~bob"', '"owner":"role:bob"'),
        ('"property":"', '"because":"'),
    ],
)  # fmt: skip
async def test_a_record_that_was_not_written_here_is_not_decided(tmp_path: Path, old: str, new: str) -> None:
    async with load_client(tmp_path) as asked:
        await asked.post("/v1/load", LOAD)
    (file,) = audit_files(tmp_path)
    text = file.path.read_text()
    assert old in text
    file.path.write_text(text.replace(old, new))
    reading = ReadReport()
    assert list(read_audit(tmp_path / "audit", reading)) == []
    assert reading.skipped


# --- pdp explain --load -------------------------------------------------------------------------------------------


def explain(folder: Path, body: Any, *arguments: str) -> Any:
    (folder / "world.json").write_text(json.dumps(WORLD))
    config = {
        "trusted_engines": ENGINES,
        "authorities": {"default": {"engines": ["grants"]}},
        "policies": {"rules": []},
        "store": {"url": "file:world.json"},
    }
    (folder / "pdp.yaml").write_text(json.dumps(config))
    (folder / "load.json").write_text(json.dumps(body))
    return run_pdp("explain", "--load", "load.json", *arguments, cwd=folder)


W = {"resource": "view:lake/ns/w", "properties": {}}


@pytest.mark.process
@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "allowed, storage access read, hops: 2"),
        ({"target": "table:lake/ns/x"}, "denied at hop 2 of 2: owner bob lacks get_metadata on table:lake/ns/x"),
        (
            {"referencedBy": "ns%1Fv,ns%1Fw", "views": [*LOAD["views"], W]},
            "denied at hop 2 of 3: owner bob lacks get_metadata and select on view:lake/ns/w",
        ),
        ({"referencedBy": "ns%1Fv,ns%1Fw"}, "denied at hop 2 of 3: view:lake/ns/w is not there"),
        ({"principal": "user:oidc~carol"}, "denied at hop 1 of 2: caller carol lacks get_metadata and select on view:lake/ns/v"),
        ({"principal": "role:etl"}, "denied at hop 1 of 2: caller role:etl lacks get_metadata and select on view:lake/ns/v"),
        ({"actingRole": "role:etl"}, "denied by cannot_assume"),
        ({"caller": {"idp": "oidc"}}, "denied at hop 1 of 1: caller alice lacks get_metadata on table:lake/ns/t"),
    ],
)  # fmt: skip
def test_an_explanation_names_the_hop_and_whom_it_runs_as(tmp_path: Path, more: dict[str, Any], line: str) -> None:
    done = explain(tmp_path, LOAD | more)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, line), done.stderr
    if "caller" in more:
        assert "referencedBy is ignored: no trusted engine" in done.stdout


@pytest.mark.process
async def test_a_dry_run_reads_loads_from_the_audit(tmp_path: Path) -> None:
    async with load_client(tmp_path) as asked:
        await asked.post("/v1/load", LOAD)
    for name, grants in (("same", WORLD["grants"]), ("none", WORLD["grants"][:1])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"objects": [], "grants": grants}))
    for world, code in (("same", 0), ("none", 3)):
        arguments = ("--baseline", "same.json", "--candidate", f"{world}.json", "--audit", "audit")
        done = await asyncio.to_thread(run_pdp, "dry-run", *arguments, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
    assert "loadTable" in done.stdout
    assert "table:lake/ns/t: default_deny" in done.stdout


@pytest.mark.process
def test_an_explanation_as_json_is_the_answer_with_its_trace(tmp_path: Path) -> None:
    answer = json.loads(explain(tmp_path, LOAD, "--format", "json").stdout)
    assert (answer["allowed"], answer["storageAccess"], len(answer["steps"])) == (True, "read", 5)
    assert len(answer["trace"]["parts"]) == 4


@pytest.mark.process
def test_a_load_can_come_from_stdin_and_errors_are_one_line(tmp_path: Path) -> None:
    explain(tmp_path, LOAD)
    done = run_pdp("explain", "--load", "-", stdin=json.dumps(LOAD), cwd=tmp_path)
    assert done.stdout.startswith("allowed, ")
    for stdin, word in (("{", "truncated"), (json.dumps(LOAD | {"referencedBy": "," * 20}), "21 views")):
        done = run_pdp("explain", "--load", "-", stdin=stdin, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert word in done.stderr.lower()
        assert done.stderr.count("\n") == 1
    assert run_pdp("explain", "--load", "none.json", cwd=tmp_path).returncode == 2


@pytest.mark.process
def test_what_is_ignored_is_logged_where_debug_is_asked_for(tmp_path: Path) -> None:
    explain(tmp_path, LOAD)
    ignored = json.dumps(LOAD | {"caller": {"idp": "oidc"}})
    for level, logged in (("debug", True), ("info", False)):
        done = run_pdp("explain", "--load", "-", stdin=ignored, cwd=tmp_path, env={"PDP_LOG_LEVEL": level})
        assert ("referenced-by is ignored" in done.stderr) == logged
    assert run_pdp("explain", "--vocabulary", env={"PDP_LOG_LEVEL": "loud"}).returncode == 2


@pytest.mark.parametrize(
    ("owner", "users", "found"),
    [
        ("bob", {"oidc": {"alice", "bob"}}, "oidc~bob"),
        ("ghost", {"oidc": {"alice", "bob"}}, None),
        ("Bob", {"oidc": {"alice", "bob"}}, None),
        ("oidc~bob", {"oidc": {"alice", "bob"}}, None),
        ("ghost", {}, "oidc~ghost"),
        ("ghost", {"corp": {"alice"}}, "oidc~ghost"),
    ],
)
def test_an_owner_is_one_of_the_users_whom_the_provider_lists(owner: str, users: Any, found: str | None) -> None:
    """Without a list, every subject may be a user. The error does not show the owner."""
    engine = TrustedEngine("trino", "trino", "run-as", "oidc")
    known = {idp: frozenset(names) for idp, names in users.items()}
    if found is not None:
        assert resolve_owner(("ns", "v"), {"run-as": owner}, (engine,), known).owner == found
        return
    message = r"`run-as` of view `ns\.v` names no user that `identity\.providers\.oidc\.users` lists"
    with pytest.raises(UnresolvableViewOwner, match=message):
        resolve_owner(("ns", "v"), {"run-as": owner}, (engine,), known)
