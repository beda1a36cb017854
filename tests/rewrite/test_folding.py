"""Names on which foldings differ: no spelling of a closed table is open, in the service and in rewritten SQL alike."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.policy_set import Policy, PolicySet, StoredPolicySets, TablePolicies
from pdp.engines.row_access.validation import compile_policies
from pdp.facts.objects import RowPolicy, RowPolicyPut, fold_name, widen_name
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Resource
from pdp.rewrite.process.messages import DIALECTS, FilterCall, PolicyState, RewriteCall, RewriteReply, StatementUser
from pdp.rewrite.process.worker import RewriteProcess

BOB = Principal("user", "oidc~bob")
PAIRS = [
    ("strasse", "stra\u00dfe"),
    ("STRASSE", "Stra\u00dfe"),
    ("stra\u1e9ee", "strasse"),
    ("\u0130zmir", "i\u0307zmir"),
    ("\u212a", "k"),
    ("\u017f", "S"),
    ("\ufb01x", "fix"),
    ("\u03bf\u03b4\u03bf\u03c2", "\u039f\u0394\u039f\u03a3"),
    ("\u03bf\u03b4\u03bf\u03c3", "\u03bf\u03b4\u03bf\u03c2"),
    ("\u00c4pfel", "\u00e4pfel"),
]
"""Two spellings each that some folding makes equal."""


def both_ways() -> list[tuple[str, str]]:
    return [*PAIRS, *((two, one) for one, two in PAIRS)]


def access_of(body: dict[str, Any]) -> RowAccessEngine:
    return compile_policies([parse_document(body)]).build_engine(Members("user:{subject}", "oidc"), ())


def rewriting_of(known: tuple[str, ...], rules: tuple[RowPolicy, ...]) -> RewriteProcess:
    tables = {f"table:lake/s/{name}": {"columns": {"n": "INT"}} for name in known}
    document = {"default": ["lake", "s"], "tables": tables}
    return RewriteProcess(
        PolicyState("1", [document], (), "user:{subject}", "oidc", {}, rules=rules, warehouses=("lake",))
    )


@pytest.mark.parametrize(("closed", "other"), both_ways())
@pytest.mark.parametrize("stored", [False, True])
def test_a_spelling_of_a_closed_table_is_closed_in_the_service_and_in_the_rewriter(
    closed: str, other: str, stored: bool
) -> None:
    rule = RowPolicy(("lake", "s", closed), "p", ("user:alice",), "TRUE", "duckdb")
    entry = {"id": "p", "table": f"table:lake/s/{closed}", "grantees": ["user:alice"], "filter": True}
    facts = Facts.empty().apply(1, [RowPolicyPut(rule)]) if stored else Facts.empty()
    access = access_of({"policies": [] if stored else [entry]})
    for name in (closed, other):
        shown = access.restrict(BOB, Resource("table", "lake", ("s", name)), facts)
        assert not shown.shows_rows, name
        assert access.covers(Resource("table", "lake", ("s", name)), facts)
    rewriting = rewriting_of((closed, other), (rule,))
    for name in (closed, other):
        reply = rewriting.answer(FilterCall(("lake", "s", name), "duckdb", StatementUser("user", "oidc~bob")))
        assert reply.error or reply.rows == "FALSE", name


@pytest.mark.parametrize(("closed", "other"), both_ways())
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_spelling_reads_a_closed_table(closed: str, other: str, dialect: str) -> None:
    rule = RowPolicy(("lake", "s", closed), "p", ("user:alice",), "TRUE", "duckdb")
    quote = "`" if dialect in ("bigquery", "spark") else '"'
    for known in ((closed,), (other,), (closed, other)):
        rewriting = rewriting_of(known, (rule,))
        for name in (closed, other):
            reply = answered(rewriting, f"SELECT n FROM {quote}{name}{quote}", dialect)
            assert reply.error or "WHERE FALSE" in reply.sql, (known, name)


def answered(rewriting: RewriteProcess, text: str, dialect: str) -> RewriteReply:
    return rewriting.answer(RewriteCall(text, dialect, StatementUser("user", "oidc~bob")))


@pytest.mark.parametrize(("one", "other"), both_ways())
def test_real_rows_stay_closed(one: str, other: str) -> None:
    """The engine of these tests folds ASCII alone, so that the spellings can be tables beside each other."""
    database = duckdb.connect()
    database.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.s; USE lake.s")
    for name in dict.fromkeys((one, other)):
        database.execute(f'CREATE TABLE IF NOT EXISTS "{name}" (n INT)')
        database.execute(f"""INSERT INTO "{name}" VALUES ({1 if name == one else 2})""")
    rule = RowPolicy(("lake", "s", one), "p", ("user:alice",), "TRUE", "duckdb")
    for known in ((one,), (one, other)):
        rewriting = rewriting_of(known, (rule,))
        for text in (
            f'SELECT n FROM "{one}"',
            f'SELECT n FROM "{other}"',
            f'WITH "{one}" AS (SELECT 7 AS n) SELECT n FROM "{other}"',
            f'WITH "{other}" AS (SELECT 7 AS n) SELECT n FROM "{one}"',
            f'WITH RECURSIVE "{other}" AS (SELECT 7 AS n UNION ALL SELECT n FROM "{one}") SELECT n FROM "{other}"',
        ):
            reply = answered(rewriting, text, "duckdb")
            rows = [] if reply.error else database.execute(reply.sql).fetchall()
            assert (1,) not in rows, text


@pytest.mark.parametrize(("masked", "other"), both_ways())
def test_a_mask_covers_every_spelling_of_a_column(masked: str, other: str) -> None:
    entry = {"id": "m", "table": "lake.s.t", "column": masked, "kind": "null", "grantees": ["allUsers"]}
    restriction = access_of({"masks": [entry]}).restrict(BOB, Resource("table", "lake", ("s", "t")), Facts.empty())
    rule = RowPolicy(("lake", "s", "t"), "m", ("allUsers",), column=masked, kind="null")
    document = {"tables": {"lake.s.t": {"columns": {other: "VARCHAR", "n": "INT"}}}}
    made = PolicyState("1", [document], (), "user:{subject}", "oidc", {}, rules=(rule,))
    shown = RewriteProcess(made).answer(FilterCall(("lake", "s", "t"), "duckdb", StatementUser("user", "oidc~bob")))
    assert restriction.mask_column(other, "varchar")[0] is not None
    assert [name for name, _ in shown.columns] == [other]


def folded_characters() -> Iterator[str]:
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        if character.lower() != character or character.casefold() != character:
            yield character


def test_lower_case_is_narrower_than_full_folding_for_every_character() -> None:
    """Near names are looked up by the full folding of a name in lower case."""
    seen = 0
    for character in folded_characters():
        lower = fold_name("lake", (f"a{character}b",))
        assert widen_name(lower)[1] == f"a{character}b".casefold(), hex(ord(character))
        seen += 1
    assert seen > 1_000


def test_every_character_closes_all_its_spellings() -> None:
    for character in folded_characters():
        closed = ("lake", f"a{character}b".lower())
        policies = PolicySet({closed: TablePolicies((Policy("p", (), "FALSE"),))})
        for spelling in (character.lower(), character.casefold(), character.casefold().upper(), character.upper()):
            near = fold_name("lake", (f"a{spelling}b",))
            if widen_name(near) == widen_name(closed):
                assert policies.protects(near), (hex(ord(character)), spelling)


def test_a_name_near_a_closed_one_with_policies_of_its_own_keeps_these() -> None:
    rules = [
        RowPolicy(("lake", "s", "stra\u00dfe"), "p", ("allUsers",), "n = 1", "duckdb"),
        RowPolicy(("lake", "s", "strasse"), "p", ("allUsers",), "n = 2", "duckdb"),
    ]
    facts = Facts.empty().apply(1, map(RowPolicyPut, rules))
    sets = StoredPolicySets(PolicySet({})).at(facts)
    for rule, wanted in zip(rules, ("n = 1", "n = 2"), strict=True):
        assert [policy.text for policy in sets.of(rule.covers).policies] == [wanted]
        shown = access_of({}).restrict(BOB, Resource("table", "lake", rule.table[1:]), facts).rows
        assert shown is not None
        assert shown.expression.replace('"', "") == wanted
