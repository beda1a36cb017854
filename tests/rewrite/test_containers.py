"""Warehouses with similar names: policies of one never count for another, and no name opens a table."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import pytest

from pdp.engines.row_access.policies import parse_document
from pdp.facts.objects import RowPolicy
from pdp.rewrite.catalog import Containers, catalog_of, containers_of, policy_set_of
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.process.messages import DIALECTS, FilterCall, PolicyState, RewriteCall, StatementUser
from pdp.rewrite.process.worker import RewriteProcess
from pdp.rewrite.rewriter import Rewriter

READER = StatementUser("user", "oidc~bob")
PAIRS = [
    (("lake", "a", "t"), ("Lake", "a", "t")),
    (("LAKE", "a", "t"), ("lake", "A", "T")),
    (("lake", "a", "b", "t"), ("lake.a", "b", "t")),
    (("lake", "a.b", "t"), ("lake.a", "b", "t")),
    (("x", "y", "z", "s", "t"), ("x.y", "z", "s", "t")),
    (("x.y", "z", "s", "t"), ("X.y.z", "s", "t")),
]
"""Two tables each whose full names are equal by dots or case."""


def reference(path: tuple[str, ...]) -> str:
    return f"table:{'/'.join(path)}"


def document(*described: tuple[str, ...], policies: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"tables": {reference(path): {"columns": {"n": "INT"}} for path in described}, "policies": policies or []}


def entry(path: tuple[str, ...], filter: str) -> dict[str, Any]:
    return {"id": "p", "table": reference(path), "grantees": ["allUsers"], "filter": filter, "dialect": "duckdb"}


def setup(documents: list[Any], rules: tuple[RowPolicy, ...] = (), **more: Any) -> PolicyState:
    return PolicyState("1", documents, more.pop("protected", ()), "user:{subject}", "oidc", {}, rules=rules, **more)


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("closed", [(True, True), (True, False), (False, True)])
def test_a_policy_counts_in_its_own_warehouse_alone(
    one: tuple[str, ...], other: tuple[str, ...], stored: bool, closed: tuple[bool, bool]
) -> None:
    paths = (one, other)
    filters = [f"n = {at + 1}" if closed[at] else "" for at in (0, 1)]
    chosen = [(path, filter) for path, filter in zip(paths, filters, strict=True) if filter]
    rules = tuple(RowPolicy(path, "p", ("allUsers",), filter, "duckdb") for path, filter in chosen) if stored else ()
    entries = [] if stored else [entry(path, filter) for path, filter in chosen]
    rewriting = RewriteProcess(setup([document(*paths, policies=entries)], rules, warehouses=(one[0], other[0])))
    for path, filter in zip(paths, filters, strict=True):
        reply = rewriting.answer(FilterCall(path, "duckdb", READER))
        assert (reply.error, reply.rows) == ("", filter), path


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("described", [0, 1, 2])
def test_a_written_name_shows_the_rows_of_the_table_that_the_engine_reads(
    one: tuple[str, ...], other: tuple[str, ...], dialect: str, described: int
) -> None:
    """The table that closes is known or unknown to the catalog: a name that may mean the table never passes."""
    known = [(one,), (other,), (one, other)][described]
    for closed in (one, other):
        rules = (RowPolicy(closed, "p", ("allUsers",), "n = 1", "duckdb"),)
        rewriting = RewriteProcess(setup([document(*known)], rules, warehouses=(one[0], other[0])))
        for parts in {closed, tuple(".".join(closed).split(".")), tuple(part.upper() for part in closed)}:
            quotes = ("", "`") if dialect in ("bigquery", "spark") else ("", '"')
            for quote in quotes:
                name = ".".join(f"{quote}{part}{quote}" for part in parts)
                reply = rewriting.answer(RewriteCall(f"SELECT n FROM {name}", dialect, READER))
                passes = not reply.error and "n = 1" not in reply.sql
                assert not passes or not may_mean(parts, quote, dialect, closed), name


def read_by_engine(parts: tuple[str, ...], quote: str, dialect: str) -> tuple[str, str]:
    """Return the warehouse and the folded rest of a name, as an engine divides the name at dots outside of quotes."""
    divided = parts if quote and dialect != "bigquery" else tuple(".".join(parts).split("."))
    return divided[0], ".".join(divided[1:]).lower()


def may_mean(parts: tuple[str, ...], quote: str, dialect: str, path: tuple[str, ...]) -> bool:
    """Tell whether an engine may read a name as a table: engines that fold case take any case of the warehouse."""
    read, wanted = read_by_engine(parts, quote, dialect), (path[0], ".".join(path[1:]).lower())
    if dialect == "bigquery":
        return ".".join(parts) == ".".join(path)
    return (read[0].lower(), read[1]) == (wanted[0].lower(), wanted[1])


def test_protected_containers_cover_their_own_warehouse_alone() -> None:
    paths = (("lake", "a", "t"), ("Lake", "a", "t"), ("lake.a", "b", "t"), ("lake", "ab", "t"))
    for protected, wanted in (
        (("lake", ""), [True, False, False, True]),
        (("lake", "a"), [True, False, False, False]),
        (("lake.a", ""), [False, False, True, False]),
        (("Lake", "a"), [False, True, False, False]),
    ):
        rewriting = RewriteProcess(setup([document(*paths)], protected=(protected,)))
        shown = [rewriting.answer(FilterCall(path, "duckdb", READER)).rows for path in paths]
        assert shown == ["FALSE" if closed else "" for closed in wanted], protected


def test_modes_of_views_hold_in_their_own_warehouse_alone() -> None:
    view = {"sql": "SELECT n FROM t", "owner": "user:owner"}
    paths = {"lake": ("lake", "a"), "Lake": ("Lake", "a"), "hr.x": ("hr.x", "b")}
    body: dict[str, Any] = {"tables": {}, "views": {}, "policies": []}
    for namespace in paths.values():
        body["tables"] |= document((*namespace, "t"))["tables"]
        body["views"][reference((*namespace, "v"))] = view
        for who, filter in (("user:bob", "n = 1"), ("user:owner", "n = 2")):
            body["policies"].append(entry((*namespace, "t"), filter) | {"id": who.replace(":", ""), "grantees": [who]})
    through: dict[str, Literal["owner", "caller", "both"]] = {"": "owner", "lake": "caller", "hr.x": "caller"}
    found = {}
    for warehouse, namespace in paths.items():
        made = PolicyState("1", [{**body, "default": list(namespace)}], (), "user:{subject}", "oidc", through)
        reply = RewriteProcess(made).answer(RewriteCall("SELECT n FROM v", "bigquery", READER))
        found[warehouse] = reply.error or [text for text in ("n = 1", "n = 2") if text in reply.sql]
    assert found == {"lake": ["n = 1"], "Lake": ["n = 2"], "hr.x": ["n = 1"]}


CATALOGS = [
    {"one": "lake", "two": "Lake"},
    {"lake": "Lake", "other": "lake"},
    {"Lake": "lake", "other": "Lake"},
    {"lake": "Lake"},
    {"other": "lake", "lake": ""},
]


@pytest.mark.parametrize("catalogs", CATALOGS)
def test_a_catalog_of_trino_has_the_policies_of_its_warehouse(catalogs: dict[str, str]) -> None:
    paths = [("lake", "a", "t"), ("Lake", "a", "t")]
    rules = tuple(RowPolicy(path, "p", ("allUsers",), f"n = {at + 1}") for at, path in enumerate(paths))
    rewriting = RewriteProcess(setup([document(*paths)], rules, catalogs=catalogs, warehouses=("lake", "Lake")))
    numbers = {"lake": "n = 1", "Lake": "n = 2"}
    for name in {*catalogs, "lake", "Lake", "LAKE"}:
        reply = rewriting.answer(RewriteCall(f"SELECT n FROM {name}.a.t", "trino", READER))
        read = {at for known, at in catalogs.items() if known.lower() == name.lower()}
        if read:
            wanted = numbers.get(next(iter(read)))
            assert reply.error if wanted is None else (reply.error or wanted in reply.sql), name
            assert not any(other in reply.sql for other in numbers.values() if other != wanted)
        assert reply.error or "n = " in reply.sql, name
        for use in reply.uses:
            assert use.name[0] in read or not read or reply.error


def test_no_table_is_made_in_a_catalog_on_another_ref_or_in_a_twin() -> None:
    made = setup([document(("lake", "a", "t"))], catalogs={"hive": "", "main": "lake"}, warehouses=("lake", "hive"))
    rewriting = RewriteProcess(made)
    text = "CREATE TABLE {}.a.new AS SELECT 1 AS n"
    assert rewriting.answer(RewriteCall(text.format("hive"), "trino", READER)).error
    (use,) = rewriting.answer(RewriteCall(text.format("MAIN"), "trino", READER)).uses
    assert use.name == ("lake", "a", "new")
    twins = RewriteProcess(setup([document(("lake", "a", "t"))], warehouses=("lake", "Lake")))
    assert twins.answer(RewriteCall(text.format("lake"), "duckdb", READER)).error == "RAP_AMBIGUOUS_NAME"


def test_files_alone_take_a_policy_in_another_case_as_one_on_the_table() -> None:
    for spelled, written in itertools.product(("lake", "Lake", "LAKE"), repeat=2):
        body = document(("lake", "a", "t"), policies=[entry((spelled, "A", "T"), "n = 1")])
        parsed = parse_document(body).document
        catalog = catalog_of([parsed])
        service = LocalRewriter(catalog, policy_set_of([parsed]), Rewriter(catalog))
        request = RewriteRequest(f"SELECT n FROM {written}.a.t", "duckdb", "user:bob")
        assert "n = 1" in service.rewrite(request)


def test_the_only_known_spelling_counts() -> None:
    known = Containers(["lake", "Hr", "x.y"])
    assert [known.spell(name) for name in ("LAKE", "hr", "other", "X.Y")] == ["lake", "Hr", "other", "x.y"]
    twins = known.joined(["LAKE"])
    assert (twins.spell("Lake"), twins.has_twins("lake"), twins.has_twins("hr")) == ("Lake", True, False)
    assert list(known.spelled(["LAKE"])) == list(known)
    parsed = parse_document(document(("lake", "a", "t"), policies=[entry(("LAKE", "a", "t"), "n = 1")])).document
    assert sorted(containers_of([parsed])) == ["lake"]
    assert sorted(containers_of([parsed], ())) == ["LAKE", "lake"]
