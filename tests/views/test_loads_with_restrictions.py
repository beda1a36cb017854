"""Loads of restricted tables by engines that apply read restrictions, and by all others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from msgspec.structs import replace
from support.clients.stubs import wire_grpc
from support.oracles.audit_files import audit_records
from support.oracles.view_loads import load_client
from support.paths import ROOT
from support.service.caches import with_cache
from support.service.commands import run_pdp

from pdp.app.facts import build_pdp
from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.audit.records.rows import requests
from pdp.config.load import make_settings
from pdp.engines.allow_all import AllowAllEngine
from pdp.errors import ConfigError, InvalidArgument
from pdp.facts.objects import RowPolicy, RowPolicyPut
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.question import Caller, Principal
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.offline.replay.replay import replay
from pdp.store.replica import FixedFacts
from pdp.surfaces.grpc.messages import read_load
from pdp.surfaces.wire import decision_pb2 as wire
from pdp.views.codec import columns_of, decode_load, decode_metadata, encode_load
from pdp.views.loads import ViewSecurity

OWNER: Final = "trino.run-as-owner"


def engine(audience: str, **keys: Any) -> dict[str, Any]:
    return {"type": "trino", "owner_property": OWNER, "identities": {"oidc": {"audiences": [audience]}}, **keys}


ENGINES: Final = {
    "applies": engine("applies", applies_read_restrictions=True, delegated_storage="as_owner"),
    "enforces": engine("enforces", enforces_row_access=True),
    "trino": engine("trino"),
}
GRANTS: Final = [
    *(
        {"principal": f"user:oidc~{who}", "privilege": "modify", "object": "namespace:lake/ns"}
        for who in ("alice", "bob")
    ),
    {"principal": "user:oidc~carol", "privilege": "describe", "object": "namespace:lake/ns"},
    {"principal": "user:oidc~alice", "privilege": "assignee", "object": "role:etl"},
    {"principal": "role:etl", "privilege": "modify", "object": "namespace:lake/ns"},
]
WORLD: Final[dict[str, Any]] = {"objects": [{"object": "role:etl", "parent": "project:p"}], "grants": GRANTS}
POLICIES: Final = {
    "default": ["lake", "ns"],
    "policies": [
        {"id": "eu", "table": "t", "grantees": ["user:alice", "user:carol", "role:etl"], "filter": "region <> 'EU'"},
        {"id": "own", "table": "t", "grantees": ["user:bob"], "filter": "owner = current_user"},
        {"id": "own", "table": "u", "grantees": ["allUsers"], "filter": "upper(owner) = 'X'"},
        {"id": "of_view", "table": "view:lake/ns/w", "grantees": ["allUsers"], "filter": "region = 'EU'"},
        {"id": "every", "table": "m", "grantees": ["allUsers"], "filter": "TRUE"},
    ],
    "masks": [
        {"id": "mail", "table": "t", "column": "EMAIL", "kind": "partial", "grantees": ["allUsers"], "except": ["user:bob"]},
        {"id": "pay", "table": "m", "column": "pay", "kind": "null", "grantees": ["allUsers"]},
    ],
}  # fmt: skip
FIELDS: Final[list[dict[str, Any]]] = [
    {"id": 4, "name": "region", "required": False, "type": "string", "doc": "where"},
    {"id": 9, "name": "owner", "required": True, "type": "string"},
    {"id": 7, "name": "email", "required": False, "type": "string"},
    {"id": 8, "name": "more", "required": False, "type": {"type": "list", "element-id": 10, "element-required": False, "element": "int"}},
]  # fmt: skip


def metadata(fields: list[dict[str, Any]], *older: list[dict[str, Any]]) -> dict[str, Any]:
    """Return metadata of a table, with members that nobody reads."""
    schemas = [{"type": "struct", "schema-id": at, "fields": each} for at, each in enumerate((*older, fields), 2)]
    return {"format-version": 2, "schemas": schemas, "current-schema-id": 2 + len(older), "location": "s3://b/t"}


def field(id: int, name: str, type: Any = "string", *, required: bool = False) -> dict[str, Any]:
    return {"id": id, "name": name, "required": required, "type": type}


SCHEMA: Final = metadata(FIELDS)
PAY: Final = metadata([field(1, "pay", "decimal(9, 2)")])
LOAD: Final = {"principal": "user:oidc~alice", "action": "loadTable", "target": "table:lake/ns/t", "metadata": SCHEMA}
CONFIG: Final = {"warehouses": {"lake": {}}, "trusted_engines": ENGINES}
FALSE: Final = {"required-row-filter": False}
OF_ALICE: Final = {
    "required-column-projections": [{"field-id": 7, "action": "mask-to-fixed-value"}],
    "required-row-filter": {
        "type": "and",
        "left": {"type": "not-null", "child": {"type": "reference", "id": 4}},
        "right": {
            "type": "not-eq",
            "left": {"type": "reference", "id": 4},
            "right": {"type": "literal", "value": "EU", "data-type": "string"},
        },
    },
}


def token(*audiences: str, idp: str = "oidc") -> dict[str, Any]:
    return {"idp": idp, "subject": "svc", "audiences": list(audiences)}


APPLIES: Final = LOAD | {"caller": token("applies")}


def views_of(**data: Any) -> ViewSecurity:
    usual = {"engines": ["grants"], "world": WORLD, "config": CONFIG, "policies": POLICIES}
    pdp, settings = build_case_pdp(Case("loads", ROOT, {**usual, **data}), build_pdp, MemoryAudit())
    return ViewSecurity(pdp, settings)


VIEWS: Final = views_of()


def asked(body: Mapping[str, Any], caller: Caller = EMBEDDED_CALLER, views: ViewSecurity = VIEWS) -> dict[str, Any]:
    found = asyncio.run(views.load(decode_load(json.dumps(body).encode()), caller, "test"))
    answer: dict[str, Any] = json.loads(encode_load(found))
    return answer


def given(answer: Mapping[str, Any]) -> tuple[bool, str, Any]:
    return answer["allowed"], answer["storageAccess"], answer.get("readRestrictions")


def literal(answer: Mapping[str, Any]) -> str:
    return str(answer["readRestrictions"]["required-row-filter"]["right"]["right"]["value"])


@pytest.mark.parametrize("action", ["loadTable", "loadCredentials"])
def test_the_engine_reads_with_the_restrictions_and_never_writes(action: str) -> None:
    assert given(asked(APPLIES | {"action": action})) == (True, "read", OF_ALICE)
    answer = asked(APPLIES | {"action": action, "principal": "user:oidc~bob"})
    assert (answer["storageAccess"], literal(answer)) == ("read", "bob")
    assert "required-column-projections" not in answer["readRestrictions"]


def test_a_table_without_restrictions_is_as_before() -> None:
    assert given(asked(APPLIES | {"target": "table:lake/ns/other"})) == (True, "read_write", None)


def test_masks_alone_are_no_filter() -> None:
    wanted = {"required-column-projections": [{"field-id": 1, "action": "replace-with-null"}]}
    assert given(asked(APPLIES | {"target": "table:lake/ns/m", "metadata": PAY})) == (True, "read", wanted)


@pytest.mark.parametrize("schema", [SCHEMA, PAY])
def test_who_sees_no_row_for_certain_gets_no_file(schema: Any) -> None:
    """A filter that cannot be said, and columns of filters and masks that the table lacks."""
    target = {"target": "table:lake/ns/u" if schema is SCHEMA else "table:lake/ns/t", "metadata": schema}
    assert given(asked(APPLIES | target)) == (True, "none", FALSE)
    answer = asked(APPLIES | target | {"action": "loadCredentials"})
    assert given(answer) == (False, "none", None)
    assert "row_access:" in answer["by"][0]


def test_who_may_not_read_gets_neither() -> None:
    assert given(asked(APPLIES | {"principal": "user:oidc~carol"})) == (True, "none", None)
    assert given(asked(APPLIES | {"principal": "user:oidc~dave"})) == (False, "none", None)


VIEW: Final = {"referencedBy": "ns%1Fv", "views": [{"resource": "view:lake/ns/v", "properties": {OWNER: "bob"}}]}
HIDING: Final = {"referencedBy": "ns%1Fw", "views": [{"resource": "view:lake/ns/w", "properties": {}}]}
UNTRUSTED: Final[dict[str, dict[str, Any]]] = {
    "nobody": {"caller": None},
    "without the key": {"caller": token("trino")},
    "one of two without the key": {"caller": token("applies", "trino")},
    "one of two that enforces": {"caller": token("applies", "enforces")},
    "another provider": {"caller": token("applies", idp="corp")},
    "an audience in another case": {"caller": token("Applies")},
    "no metadata": {"metadata": None},
    "an acting role": {"actingRole": "role:etl"},
    "a view with rows of its own": HIDING,
}


@pytest.mark.parametrize("action", ["loadTable", "loadCredentials"])
@pytest.mark.parametrize("change", UNTRUSTED.values(), ids=UNTRUSTED)
def test_nobody_else_gets_files_or_restrictions(change: dict[str, Any], action: str) -> None:
    body = APPLIES | change | {"action": action}
    today = {key: value for key, value in body.items() if key != "metadata"}
    answer, before = asked(body), asked(today)
    for each in (answer, before):
        del each["revision"], each["decisionId"]
    assert answer == before
    assert given(answer) == (action == "loadTable", "none", None)


def test_an_engine_that_enforces_by_itself_gets_no_restrictions() -> None:
    assert given(asked(APPLIES | {"caller": token("enforces")})) == (True, "read_write", None)


def test_who_asks_about_another_gets_neither() -> None:
    own = Principal("user", "oidc~alice")
    peer = Caller("tool", EMBEDDED_CALLER.may_assert - {"principals"}, own=own, may_inspect=True)
    assert given(asked(APPLIES, peer)) == (True, "read", OF_ALICE)
    manager = {"principal": "user:oidc~alice", "privilege": "manage_grants", "object": "namespace:lake/ns"}
    views = views_of(world=WORLD | {"grants": [*GRANTS, manager]})
    assert given(asked(APPLIES | {"principal": "user:oidc~bob"}, peer, views)) == (True, "none", None)


def test_metadata_are_evidence_of_a_peer_that_may_assert_properties() -> None:
    peer = Caller("catalog", frozenset({"principals", "callers"}))
    answer = asked(APPLIES, peer)
    assert (given(answer), answer["error"]["code"]) == ((False, "none", None), "assertion_not_allowed")
    without = {key: value for key, value in APPLIES.items() if key != "metadata"}
    assert given(asked(without, peer)) == (True, "none", None)


@pytest.mark.parametrize(("mode", "wanted"), [("owner", "bob"), ("caller", "EU"), ("both", None)])
def test_behind_a_definer_view_restrictions_are_those_that_the_setting_says(mode: str, wanted: str | None) -> None:
    grants = [*GRANTS, {"principal": "user:oidc~alice", "privilege": "select", "object": "view:lake/ns/v"}]
    views = views_of(config=CONFIG | {"row_access": {"through_views": mode}}, world=WORLD | {"grants": grants})
    answer = asked(APPLIES | VIEW, views=views)
    assert answer["storageAccess"] == "read"
    filter = answer["readRestrictions"]["required-row-filter"]
    if wanted is None:
        assert {filter[side]["right"]["right"]["value"] for side in ("left", "right")} == {"bob", "EU"}
    else:
        assert literal(answer) == wanted
    assert ("required-column-projections" in answer["readRestrictions"]) == (mode != "owner")


def test_values_of_metadata_are_counted_over_grpc() -> None:
    """The limit of values in a body counts tags of messages there, and no signs of a text inside."""
    message = wire.CheckLoadRequest(action="loadTable", target=wire.Resource(reference="table:lake/ns/t"))
    for count, is_refused in ((1_000, False), (500_000, True)):
        message.metadata = json.dumps(metadata([field(1, "a", {"type": "struct", "fields": [[]] * count})]))
        with pytest.raises(InvalidArgument, match="values") if is_refused else nullcontext():
            read_load(message)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": metadata([])},
        {"metadata": {}},
        {"metadata": []},
        {"metadata": SCHEMA | {"current-schema-id": 1}},
        {"metadata": SCHEMA | {"schemas": SCHEMA["schemas"] * 2}},
        {"metadata": {"schemas": SCHEMA["schemas"]}},
        {"metadata": metadata([field(0, "a")])},
        {"metadata": metadata([field(2**31, "a")])},
        {"metadata": metadata([field(1, "")])},
        {"metadata": metadata([{"id": 1, "name": "a", "type": "int"}])},
        {"metadata": metadata([field(1, "a"), field(1, "b")])},
        {"metadata": metadata([field(1, "a")], [field(-1, "b")])},
        {"metadata": metadata([field(at, f"c{at}") for at in range(1, 2_000)], *[[field(1, "a")] * 10_000] * 10)},
        {"target": "view:lake/ns/v", "action": "loadView"},
        {"target": "generic_table:lake/ns/t"},
    ],
)
def test_metadata_of_no_table_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        asked(APPLIES | change)


OLD: Final[dict[str, Any]] = {
    "format-version": 1,
    "schema": {"type": "struct", "fields": FIELDS},
    "location": "s3://b/t",
}
BOTH: Final = OLD | {"schemas": SCHEMA["schemas"], "current-schema-id": 2}


@pytest.mark.parametrize(
    "form",
    [
        OLD,
        {key: value for key, value in OLD.items() if key != "format-version"},
        OLD | {"schema": {**OLD["schema"], "schema-id": 0}},
        OLD | {"schema": {**OLD["schema"], "schema-id": 3}, "current-schema-id": 3},
        OLD | {"current-schema-id": 0},
        BOTH,
        BOTH | {"schema": {**OLD["schema"], "schema-id": 2}},
    ],
)
def test_metadata_of_the_first_version_have_one_schema(form: dict[str, Any]) -> None:
    """The answer is that of the same fields in the form of the second version."""
    assert given(asked(APPLIES | {"metadata": form})) == (True, "read", OF_ALICE)
    assert columns_of(decode_metadata(json.dumps(form))) == columns_of(decode_metadata(json.dumps(SCHEMA)))


@pytest.mark.parametrize(
    "form",
    [
        OLD | {"format-version": 2},
        OLD | {"format-version": 3},
        OLD | {"current-schema-id": 1},
        OLD | {"schema": {**OLD["schema"], "schema-id": 3}, "current-schema-id": 0},
        OLD | {"schemas": []},
        OLD | {"schemas": [], "current-schema-id": 0},
        OLD | {"schemas": None},
        OLD | {"schema": None},
        OLD | {"schema": {"type": "struct", "fields": []}},
        OLD | {"schema": {"type": "struct", "fields": FIELDS * 2}},
        OLD | {"schema": {"type": "struct", "fields": [field(at, f"c{at}") for at in range(1, 100_002)]}},
        BOTH | {"schema": {**OLD["schema"], "fields": FIELDS[:3]}},
        BOTH | {"schema": {**OLD["schema"], "schema-id": 3}},
        {key: value for key, value in BOTH.items() if key != "current-schema-id"},
    ],
)
def test_metadata_that_two_readers_read_differently_are_refused(form: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        asked(APPLIES | {"metadata": form})


def test_a_member_that_stands_twice_is_refused() -> None:
    """The catalog and the service could read two schemas."""
    text = json.dumps(SCHEMA)
    for twice in (
        text.replace('{"format', f'{{"schemas": {json.dumps(PAY["schemas"])}, "format'),
        text.replace('{"id"', '{"id": 3, "id"'),
    ):
        with pytest.raises(InvalidArgument):
            decode_metadata(twice)
        with pytest.raises(InvalidArgument):
            decode_load(json.dumps(APPLIES | {"metadata": 0}).replace('"metadata": 0', f'"metadata": {twice}').encode())
    assert decode_metadata(text) == decode_load(json.dumps(APPLIES).encode()).metadata


def test_a_type_that_is_none_of_the_specification_hides() -> None:
    fields = [{**one, "type": "string(3)" if one["name"] == "region" else one["type"]} for one in FIELDS]
    assert given(asked(APPLIES | {"metadata": metadata(fields)})) == (True, "none", FALSE)


def test_masks_cover_fields_of_older_schemas() -> None:
    """A column that was dropped and added again, and one that had another name, stand under their ids in old versions."""
    body = APPLIES | {"principal": "user:oidc~alice"}
    for older, wanted in {
        "again": ([field(3, "email")], {3: "mask-to-fixed-value", 7: "mask-to-fixed-value"}),
        "as a number": ([field(3, "Email", "int")], {3: "replace-with-null", 7: "mask-to-fixed-value"}),
        "renamed": ([field(7, "mail")], {7: "mask-to-fixed-value"}),
        "in another case": ([field(7, "EMAIL")], {7: "mask-to-fixed-value"}),
        "another column": ([field(4, "email")], {4: "mask-to-fixed-value", 7: "mask-to-fixed-value"}),
    }.values():
        answer = asked(body | {"metadata": metadata(FIELDS, older)})
        found = {one["field-id"]: one["action"] for one in answer["readRestrictions"]["required-column-projections"]}
        assert found == wanted, older
    nested = {"type": "struct", "fields": []}
    assert given(asked(body | {"metadata": metadata(FIELDS, [field(3, "email", nested, required=True)])}))[1:] == (
        "none",
        FALSE,
    )


def test_a_filter_on_a_name_that_was_another_field_s_shows_nothing() -> None:
    for older in ([field(3, "region")], [field(9, "REGION")]):
        assert given(asked(APPLIES | {"metadata": metadata(FIELDS, older)})) == (True, "none", FALSE)
    for older in ([field(4, "Region")], [field(4, "place")], [field(3, "place")]):
        assert asked(APPLIES | {"metadata": metadata(FIELDS, older)})["readRestrictions"] == OF_ALICE
    without = [one for one in FIELDS if one["name"] != "region"]
    assert given(asked(APPLIES | {"metadata": metadata(without, FIELDS)})) == (True, "none", FALSE)


def stored(*rules: RowPolicy) -> ViewSecurity:
    """Return the service with policies of the store, too."""
    views = views_of()
    views._pdp.source = FixedFacts(views._pdp.source.facts.apply(1, list(map(RowPolicyPut, rules))))
    return views


def test_policies_of_the_store_count_at_once_and_cached_verdicts_with_them() -> None:
    views = views_of()
    with_cache(views._pdp)
    table, facts = ("lake", "ns", "new"), views._pdp.source.facts
    body = APPLIES | {"target": "table:lake/ns/new"}
    for sequence, (text, wanted) in enumerate(
        [("", ""), ("region <> 'EU'", "EU"), ("region <> 'US'", "US"), ("lower(region) = 'x'", FALSE)]
    ):
        if text:
            facts = facts.apply(sequence, [RowPolicyPut(RowPolicy(table, "p", ("allUsers",), text))])
            views._pdp.source = FixedFacts(facts)
        for _ in range(2):
            answer = asked(body, views=views)
            if not text:
                assert given(answer) == (True, "read_write", None)
            elif wanted == FALSE:
                assert given(answer) == (True, "none", FALSE)
            else:
                assert (answer["storageAccess"], literal(answer)) == ("read", wanted)


def test_stale_facts_hand_out_nothing() -> None:
    """Grants permit nothing by old facts. Where others permit, policies of the store and of roles show no row."""
    views = stored(RowPolicy(("lake", "ns", "new"), "p", ("allUsers",), "region = 'EU'"))
    views._pdp.source.is_stale = lambda: True  # type: ignore[method-assign]
    assert given(asked(APPLIES, views=views)) == (False, "none", None)
    bundle = views._pdp.bundle
    everything = type(bundle.default)("default", (AllowAllEngine(),), "any")
    views._pdp.bundle = replace(bundle, authorities={}, default=everything)
    for target in ("t", "new"):
        assert given(asked(APPLIES | {"target": f"table:lake/ns/{target}"}, views=views)) == (True, "none", FALSE)
    assert given(asked(APPLIES | {"target": "table:lake/ns/m", "metadata": PAY}, views=views))[1] == "read"


def test_a_name_that_could_be_another_table_s_shows_nothing() -> None:
    views = stored(RowPolicy(("lake", "ns", "stra\u00dfe"), "p", ("allUsers",), "region = 'EU'"))
    assert given(asked(APPLIES | {"target": "table:lake/ns/strasse"}, views=views)) == (True, "none", FALSE)


# --- surfaces, records and settings -----------------------------------------------------------------------------------


BODIES: Final = [
    APPLIES, LOAD, APPLIES | {"principal": "user:oidc~bob"}, APPLIES | {"target": "table:lake/ns/u"},
    APPLIES | {"action": "loadCredentials"}, APPLIES | {"target": "table:lake/ns/m", "metadata": PAY},
    APPLIES | {"target": "table:lake/ns/other"}, APPLIES | {"target": "table:lake/ns/T"},
]  # fmt: skip


def message(body: Mapping[str, Any]) -> wire.CheckLoadRequest:
    caller = body.get("caller")
    return wire.CheckLoadRequest(
        principal=wire.Principal(id=body["principal"]),
        target=wire.Resource(reference=body["target"]),
        action=body["action"],
        metadata=json.dumps(body["metadata"]),
        caller=wire.TokenIdentity(**caller) if caller else None,
    )


def files(folder: Path) -> dict[str, Any]:
    """Write the policies and the world of a service; return its configuration."""
    (folder / "rows.json").write_text(json.dumps(POLICIES))
    (folder / "all.json").write_text(json.dumps(WORLD))
    return {
        "trusted_engines": ENGINES,
        "warehouses": {"lake": {}},
        "store": {"url": "file:all.json"},
        "policies": {"rules": [], "row_access": ["rows.json"]},
        "authorities": {"default": {"engines": ["grants"]}},
    }


def test_http_and_grpc_agree_and_the_record_decides_again(tmp_path: Path) -> None:
    config = files(tmp_path)

    async def loaded() -> tuple[list[Any], list[Any]]:
        async with load_client(tmp_path, **config) as client:
            answers = [(await client.post("/v1/load", body))[1] for body in BODIES]
            async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as channel:
                stub = wire_grpc.DecisionServiceStub(channel)
                others = [await stub.CheckLoad(message(body)) for body in BODIES]
        return answers, others

    answers, others = asyncio.run(loaded())
    for body, answer, other in zip(BODIES, answers, others, strict=True):
        restrictions = json.loads(other.read_restrictions) if other.read_restrictions else None
        assert given(answer) == (other.allowed, other.storage_access, restrictions) == given(asked(body))
    assert len({json.dumps(answer.get("readRestrictions")) for answer in answers}) == 5

    recorded = [next(requests(record))["load"] for record in audit_records(tmp_path)]
    columns = [{key: one[key] for key in ("id", "name", "type", "required")} for one in FIELDS]
    columns[3]["type"] = ""
    assert recorded[0]["columns"] == columns
    assert recorded[0]["restrictions"] == {"by": "row_access:eu", "masks": {"email": "row_access:mail"}}
    assert [("restrictions" in load, "columns" in load) for load in recorded[: len(BODIES)]] == [
        ("readRestrictions" in answer, body is not LOAD) for body, answer in zip(BODIES, answers, strict=True)
    ]

    found = list(read_audit(tmp_path / "audit", ReadReport()))
    again = asyncio.run(replay(found, None, views_of()._pdp))
    assert (again.checks, dict(again.totals)) == (len(found), {})


@pytest.mark.process
def test_the_command_prints_the_restrictions(tmp_path: Path) -> None:
    (tmp_path / "pdp.yaml").write_text(json.dumps(files(tmp_path)))
    (tmp_path / "load.json").write_text(json.dumps(APPLIES))
    done = run_pdp("explain", "--load", "load.json", "--format", "json", cwd=tmp_path)
    assert given(json.loads(done.stdout)) == (True, "read", OF_ALICE)
    lines = run_pdp("explain", "--load", "load.json", cwd=tmp_path).stdout.splitlines()
    assert lines[0] == "allowed, storage access read, hops: 1"
    assert json.loads(lines[1].removeprefix("read restrictions: ")) == OF_ALICE


def test_an_engine_enforces_in_one_way() -> None:
    rule = engine("x", enforces_row_access=True, applies_read_restrictions=True)
    with pytest.raises(ConfigError, match="leave one of the two out"):
        make_settings({"trusted_engines": {"both": rule}}, ROOT)
