"""Names that Trino cannot tell apart: found in the facts as they change, and denied whatever is asked of them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.codec import decode_batch
from pdp.decision.service import Pdp
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.dialects.trino.requests import RequestDecoder
from pdp.engines import known_names
from pdp.engines.cel.rules import inline_rules
from pdp.engines.known_names import AMBIGUOUS, names_of_schema, need_care
from pdp.facts.objects import Grant, GrantAdded, GrantRemoved, Object, ObjectDeleted, ObjectKey, ObjectPut
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.answer import Answer
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.store.replica import FixedFacts


def known(*objects: tuple[str, ...]) -> Facts:
    """Facts that know some objects: a type, and the path below `lake`."""
    return Facts.build("e", 1, [Object((type, ("lake", *path))) for type, *path in objects], [])


def schema(facts: Facts, *path: str) -> bool:
    return names_of_schema(facts, "lake", path) is AMBIGUOUS


def table(facts: Facts, *path: str) -> bool:
    names = names_of_schema(facts, "lake", path[:-1])
    return names is AMBIGUOUS or (names is not None and names.own_spelling(path[-1]) is None)


# --- what the facts say -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "name", "ambiguous"),
    [
        ([("namespace", "a", "b"), ("namespace", "a.b")], ["a", "b"], True),
        ([("namespace", "a", "b"), ("namespace", "a.b")], ["A", "B"], True),
        ([("namespace", "a", "b"), ("namespace", "a.b")], ["a"], False),
        ([("namespace", "A"), ("namespace", "a")], ["a"], True),
        ([("namespace", "A", "b"), ("namespace", "a", "b")], ["a", "b"], True),
        ([("table", "A", "t"), ("table", "a", "u")], ["a"], True),
        ([("namespace", "a", "b", "c"), ("namespace", "a.b", "c")], ["a", "b", "c"], True),
        ([("namespace", "a.b.c"), ("namespace", "a", "b.c")], ["a", "b", "c"], True),
        ([("namespace", "stra\u00dfe"), ("namespace", "STRASSE")], ["strasse"], True),
        ([("namespace", "a", "b")], ["a", "b"], False),
        ([("namespace", "A")], ["a"], False),
        ([], ["a"], False),
        ([("table", "a"), ("view", "A")], ["a"], False),
        ([("namespace", "a", "b"), ("namespace", "a.b")], ["a", "b", "c"], True),
        ([("namespace", "a", "b", "c"), ("namespace", "a.b")], ["a", "b", "c"], False),
        ([("namespace", "a", "b"), ("namespace", "a.b")], ["a", "bc"], False),
        ([("namespace", "a.b")], ["a", "b"], True),
        ([("namespace", "a.b")], ["a", "b", "c"], True),
        ([("namespace", "a.b", "c")], ["a", "b", "c"], True),
        ([("namespace", "A", "b")], ["a", "b"], False),
        ([("namespace", "stra\u00dfe")], ["strasse"], True),
        ([("namespace", "Stra\u00dfe")], ["stra\u00dfe"], False),
        ([("namespace", "\u212aelvin")], ["kelvin"], False),
        ([("namespace", "\u0130l")], ["i\u0307l"], False),
        ([("namespace", "\u0130l")], ["il"], False),
        ([("namespace", "\u017fales")], ["sales"], True),
        ([("namespace", "cafe\u0301")], ["caf\u00e9"], False),
    ],
)
def test_a_schema_is_ambiguous(objects: list[tuple[str, ...]], name: list[str], ambiguous: bool) -> None:
    assert schema(known(*objects), *name) == ambiguous
    assert names_of_schema(known(*objects), "pond", tuple(name)) is not AMBIGUOUS


@pytest.mark.parametrize(
    ("objects", "name", "ambiguous"),
    [
        ([("table", "s", "Orders"), ("table", "s", "orders")], ["s", "ORDERS"], True),
        ([("table", "s", "Orders"), ("view", "s", "orders")], ["s", "orders"], True),
        ([("table", "S", "Orders"), ("table", "S", "orders")], ["s", "orders"], True),
        ([("table", "s", "orders"), ("view", "s", "orders")], ["s", "orders"], False),
        ([("table", "s", "Orders")], ["s", "orders"], False),
        ([("table", "s", "Orders"), ("namespace", "s", "orders")], ["s", "orders"], False),
        ([("table", "s", "Orders"), ("table", "s", "orders")], ["s", "order"], False),
        ([("table", "a", "b", "t"), ("table", "a.b", "u")], ["a", "b", "x"], True),
        ([("table", "a", "b", "t"), ("table", "a.b", "u")], ["a", "b", "c", "x"], True),
    ],
)
def test_a_table_is_ambiguous(objects: list[tuple[str, ...]], name: list[str], ambiguous: bool) -> None:
    assert table(known(*objects), *name) == ambiguous


def plainly(spaces: list[tuple[str, ...]], asked: tuple[str, ...], name: str) -> bool:
    """Whether a name means several namespaces or one with other parts, or what holds it does where nothing has it."""
    meant = [space for space in spaces if ".".join(space).lower() == name.lower()]
    if not meant:
        return "." in name and plainly(spaces, asked, name.rpartition(".")[0])
    there = [part.lower() for part in meant[0]]
    return len(meant) > 1 or there != [part.lower() for part in asked[: len(there)]]


parts = st.sampled_from(["a", "A", "b", "a.b", "a.a"])
paths = st.lists(parts, min_size=1, max_size=3).map(tuple)


@settings(max_examples=200)
@given(st.lists(st.tuples(paths, st.sampled_from(["t", "T", "u"]), st.booleans()), max_size=8), paths)
def test_ambiguity_is_what_brute_force_finds(
    changes: list[tuple[tuple[str, ...], str, bool]], asked: tuple[str, ...]
) -> None:
    """Of facts that grow and shrink, asked after each change."""
    facts, tables = Facts.empty(), set[tuple[str, ...]]()
    for sequence, (path, name, there) in enumerate(changes):
        key: ObjectKey = ("table", ("lake", *path, name))
        facts = facts.apply(sequence, [ObjectPut(Object(key)) if there else ObjectDeleted(key)])
        tables = tables | {(*path, name)} if there else tables - {(*path, name)}
        spaces = sorted({known[:end] for known in tables for end in range(1, len(known))})
        spelt = ".".join(asked)
        assert schema(facts, *asked) == plainly(spaces, asked, spelt)
        here = [known for known in tables if ".".join(known[:-1]).lower() == spelt.lower()]
        doubled = len({known[-1] for known in here if known[-1] in "tT"}) > 1
        assert table(facts, *asked, "T") == (plainly(spaces, asked, spelt) or doubled)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(paths, st.sampled_from(["t", "T"]), st.booleans()), max_size=6),
    st.lists(st.tuples(st.sampled_from(["lake", "sea"]), st.lists(paths, min_size=1, max_size=4)), max_size=4),
)
def test_many_schemas_need_care_like_one_after_the_other(
    changes: list[tuple[tuple[str, ...], str, bool]], asked: list[tuple[str, list[tuple[str, ...]]]]
) -> None:
    facts = Facts.empty()
    for sequence, (path, name, there) in enumerate(changes):
        key: ObjectKey = ("table", ("lake", *path, name))
        facts = facts.apply(sequence, [ObjectPut(Object(key)) if there else ObjectDeleted(key)])
        for warehouse, schemas in asked:
            alone = any(names_of_schema(facts, warehouse, schema) is not None for schema in schemas)
            assert need_care(facts, warehouse, schemas) == alone


def test_a_grant_makes_an_object_known_and_its_end_unknown() -> None:
    facts = known(("table", "s", "orders"))
    grant = Grant(("table", ("lake", "s", "Orders")), "select", "user:oidc~a")
    more = facts.apply(2, [GrantAdded(grant)])
    less = more.apply(3, [GrantRemoved(grant)])
    assert [table(at, "s", "orders") for at in (facts, more, less, more, facts)] == [False, True, False, True, False]


def test_what_is_remembered_does_not_grow_with_revisions() -> None:
    facts = Facts.build("e", 1, [Object(("table", ("lake", f"n{number}", "t"))) for number in range(2000)], [])
    assert not schema(facts, "n1")
    before = psutil.Process().memory_info().rss
    for number in range(600):
        facts = facts.apply(number + 2, [ObjectPut(Object(("table", ("lake", f"x{number}", "t"))))])
        assert not schema(facts, "n1")
    assert psutil.Process().memory_info().rss - before < 20_000_000


def test_what_is_remembered_does_not_grow_with_names() -> None:
    facts = known(*[("table", f"n{number}", "t") for number in range(5000)])
    for number in range(10_000):
        assert not schema(facts, f"n{number}")
    assert len(known_names._schemas.names) <= 4096
    for number in range(100):
        assert not need_care(facts, f"w{number}", [(f"n{name}",) for name in range(5000)])
    assert len(known_names._schemas._plain) <= 16
    assert sum(map(len, known_names._schemas._plain.values())) <= 4096 * 16
    assert len(known_names._doubled_tables.values) <= 4096


@pytest.mark.parametrize("part", ["a", "a" * 60])
@pytest.mark.parametrize("more", [0, 1, 56])
def test_a_long_name_is_read_at_once(part: str, more: int) -> None:
    """Names in a chain of known namespaces, beside names with dots that end on the way."""
    chain = [("namespace", *[part] * depth) for depth in range(1, 201)]
    dotted = [("namespace", *[part] * depth, f"{part}.{part}") for depth in range(198)]
    facts = known(*chain, *dotted)
    began = time.process_time()
    assert not schema(facts, *[part] * 200, *["b"] * more)
    assert schema(facts, *[part] * 199, *["b"] * more)
    assert time.process_time() - began < 0.2


def asked_as_trino(pdp: Pdp, operation: str, *resources: dict[str, Any]) -> Answer:
    """Ask about resources in a list as Trino does."""
    body = {"input": {"context": {"identity": {"user": "a"}},
                      "action": {"operation": operation, "filterResources": resources}}}  # fmt: skip
    decoder = RequestDecoder(pdp, 1000)
    batch = admit(
        decoder.to_batch_request(decoder.decode_batch(json.dumps(body).encode()), EMBEDDED_CALLER), EMBEDDED_CALLER
    )
    return asyncio.run(pdp.decide(batch)).answer


LONG_PATHS = [
    *([*["a"] * (depth - 1), "t"] for depth in (2, 31, 32, 33, 34, 40, 128, 255, 256, 257, 258, 300)),
    *(["a" * length, "t"] for length in (255, 256, 257, 4095, 4096, 4097)),
    *([*["a" * 4000] * parts, "t" * length] for parts in (2, 3, 4) for length in (1, 383, 384, 385, 4096, 4097)),
    ["\u00e4" * 4096, "\u00e4" * 4096, "\u00e4" * 4096, "\u00e4" * 4095, "t"],
]


@pytest.mark.parametrize("path", LONG_PATHS, ids=lambda path: f"{len(path)} parts, {len(''.join(path))} signs")
@pytest.mark.parametrize("privilege", ["select", "nothing"])
def test_a_long_name_has_one_answer_on_all_surfaces(path: list[str], privilege: str) -> None:
    """As a table and as a schema, alone and in lists, in columns and one by one."""
    service = LocalService(*[("namespace", *path[:1])])
    service.facts = service.facts.apply(3, [GrantRemoved(grant) for grant in MINE])
    if privilege == "select":
        service.facts = service.facts.apply(4, [GrantAdded(Grant(("warehouse", ("lake",)), "select", "user:oidc~a"))])
    for form, action, operation in (
        ("table_or_view", "read_data", "SelectFromColumns"),
        ("namespace", "get_metadata", "FilterSchemas"),
    ):
        own = path if form == "table_or_view" else path[:-1]
        asked = {"principal": "user:oidc~a", "action": action,
                 "resource": {"type": form, "warehouse": "lake", "path": own, "ref": "main"}}  # fmt: skip
        native = asyncio.run(
            service.pdp.decide(admit(decode_batch(json.dumps({"checks": [asked]}).encode(), 10), EMBEDDED_CALLER))
        ).answer
        resource = named(".".join(path[:-1]), path[-1]) if form == "table_or_view" else named(".".join(own))
        plain = named("a", "plain") if form == "table_or_view" else named("a")
        operations = ("FilterTables", operation) if form == "table_or_view" else (operation,)
        alone = asked_as_trino(service.pdp, operation, resource)
        for each in operations:
            several = asked_as_trino(service.pdp, each, plain, resource, plain)
            assert several.allowed[1] == native.allowed[0]
            assert [one.code for one in several.rejected.values()] == [one.code for one in native.rejected.values()]
        assert (alone.allowed, list(alone.by)) == (native.allowed, list(native.by))
        assert [one.code for one in alone.rejected.values()] == [one.code for one in native.rejected.values()]


# --- what Trino is told -------------------------------------------------------------------------------------------

MINE = [Grant(("warehouse", ("lake",)), privilege, "user:oidc~a") for privilege in ("ownership", "modify")]
TWO_TABLES = [("table", "s", "Orders"), ("table", "s", "orders")]
TWO_SCHEMAS = [("table", "a", "b", "t"), ("table", "a.b", "t")]


class LocalService:
    """A service in this process, asked as Trino asks; `a` owns the warehouse."""

    def __init__(self, *objects: tuple[str, ...], **config: Any) -> None:
        whole = {
            "authorities": {"default": {"engines": ["grants"]}},
            "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}}},
            **config,
        }
        self.pdp: Pdp = build_pdp(make_settings(whole, Path()), Facts.empty(), (inline_rules({}), inline_rules({})))
        self.surface = TrinoSurface(self.pdp, 1000, 10)
        self.facts = known(*objects).apply(2, map(GrantAdded, MINE))

    @property
    def facts(self) -> Facts:
        return self.pdp.source.facts

    @facts.setter
    def facts(self, facts: Facts) -> None:
        self.pdp.source = FixedFacts(facts)

    async def ask(self, operation: str, *resources: Any, endpoint: str = "allow", **more: Any) -> Any:
        named = {"filterResources": list(resources)} if endpoint.startswith("batch") else {"resource": resources[0]}
        body = {
            "input": {
                "context": {"identity": {"user": "a", "groups": []}},
                "action": {"operation": operation, **named, **more},
            }
        }
        called = {"rowFilters": "row_filters", "columnMask": "column_mask", "batchColumnMasks": "batch_column_masks"}
        answer = await getattr(self.surface, called.get(endpoint, endpoint))(json.dumps(body).encode(), EMBEDDED_CALLER)
        decoded = json.loads(answer)
        return decoded if endpoint == "columnMask" else decoded["result"]


def named(schema: str, name: str = "", **more: Any) -> dict[str, Any]:
    place = {"catalogName": "k", "schemaName": schema}
    return {"table": {**place, "tableName": name, **more}} if name else {"schema": place}


ABOUT_SCHEMAS = [
    *("CreateSchema", "DropSchema", "FilterSchemas", "ShowTables", "ShowFunctions", "ShowCreateSchema"),
    "SetSchemaAuthorization",
]
ABOUT_TABLES = sorted(
    name
    for name, operation in TRINO_OPERATIONS.items()
    if not operation.rule and name not in ABOUT_SCHEMAS and not re.search("Schema|Catalog", name)
)


@pytest.mark.parametrize("operation", ABOUT_TABLES)
async def test_no_operation_on_an_ambiguous_table_is_allowed(operation: str) -> None:
    service = LocalService(*TWO_TABLES, *TWO_SCHEMAS)
    for name in (named("s", "orders"), named("a.b", "t"), named("a.b", "unknown"), named("a.b.c", "unknown")):
        assert await service.ask(operation, name) is False
    assert await service.ask(operation, named("s", "other")) is True, "so that the denials are by the names"


@pytest.mark.parametrize("operation", ABOUT_SCHEMAS)
async def test_no_operation_on_an_ambiguous_schema_is_allowed(operation: str) -> None:
    service = LocalService(*TWO_SCHEMAS, ("namespace", "S"), ("namespace", "s"))
    for name in (named("a.b"), named("s")):
        assert await service.ask(operation, name) is False
    assert await service.ask(operation, named("z")) is True


@pytest.mark.parametrize("operation", ["RenameTable", "RenameView", "RenameMaterializedView"])
async def test_nothing_is_renamed_to_an_ambiguous_name(operation: str) -> None:
    service = LocalService(*TWO_TABLES, *TWO_SCHEMAS)
    source = named("s", "other")
    for target in (named("s", "orders"), named("a.b", "new"), named("a.b.c", "new")):
        assert await service.ask(operation, source, targetResource=target) is False
    assert await service.ask(operation, source, targetResource=named("s", "new")) is True
    assert await service.ask("RenameSchema", named("z"), targetResource=named("a.b")) is False


@pytest.mark.parametrize(
    "operation",
    [
        "CreateFunction",
        "DropFunction",
        "ExecuteFunction",
        "FilterFunctions",
        "ShowCreateFunction",
        "CreateViewWithExecuteFunction",
    ],
)
async def test_no_function_of_an_ambiguous_schema_is_allowed(operation: str) -> None:
    service = LocalService(*TWO_SCHEMAS)
    for schema_name, wanted in (("a.b", False), ("a.b.c", False), ("s", True)):
        function = {"function": {"catalogName": "k", "schemaName": schema_name, "functionName": "f"}}
        assert await service.ask(operation, function) is wanted


async def test_a_batch_is_the_set_of_its_singles() -> None:
    service = LocalService(*TWO_TABLES, *TWO_SCHEMAS, ("view", "s", "v"), ("table", "s", "v"))
    names = [("s", "orders"), ("s", "ORDERS"), ("s", "v"), ("s", "x"), ("s", "orders$snapshots"), ("s", "orders$other")]
    names += [("a.b", "t"), ("a", "t"), ("a.b", "u"), ("S", "Orders")]
    resources = [named(*name) for name in names]
    singles = [at for at, resource in enumerate(resources) if await service.ask("FilterTables", resource)]
    assert singles == [2, 3, 5, 7]
    assert await service.ask("FilterTables", *resources, endpoint="batch") == singles
    plain = [named("s", name) for name in ("x", "orders", "v", *(f"t{number}" for number in range(20)))]
    assert await service.ask("FilterTables", *plain, endpoint="batch") == [0, *range(2, 23)]


async def test_nothing_is_seen_of_what_a_name_may_mean() -> None:
    service = LocalService(*TWO_TABLES, *TWO_SCHEMAS)
    for schema_name, name in (("s", "orders"), ("a.b", "t"), ("s", "orders$files"), ("a.b", "x$snapshots")):
        assert await service.ask("GetRowFilters", named(schema_name, name), endpoint="rowFilters") == [
            {"expression": "false"}
        ]
        column = {
            "catalogName": "k",
            "schemaName": schema_name,
            "tableName": name,
            "columnName": "c",
            "columnType": "date",
        }
        mask = {"expression": "CAST(NULL AS date)"}
        assert await service.ask("GetColumnMask", {"column": column}, endpoint="columnMask") == {"result": mask}
        masks = await service.ask("GetColumnMask", {"column": column}, endpoint="batchColumnMasks")
        assert masks == [{"index": 0, "viewExpression": mask}]
    assert await service.ask("GetRowFilters", named("s", "other"), endpoint="rowFilters") == []


async def test_a_name_means_one_object_again_once_the_other_is_gone() -> None:
    service = LocalService(*TWO_TABLES, *TWO_SCHEMAS)
    names = [named("s", "orders", columns=["c"]), named("a.b", "t", columns=["c"])]
    assert [await service.ask("SelectFromColumns", name) for name in names] == [False, False]
    before = service.facts
    gone = [ObjectDeleted(("table", ("lake", *path))) for path in (("s", "Orders"), ("a.b", "t"))]
    service.facts = before.apply(3, gone)
    assert [await service.ask("SelectFromColumns", name) for name in names] == [True, True]
    service.facts = service.facts.apply(4, [ObjectPut(Object(("view", ("lake", "s", "ORDERS"))))])
    assert [await service.ask("SelectFromColumns", name) for name in names] == [False, True]
