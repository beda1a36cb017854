"""Policy tests of row filters and masks, compared with the answers that Trino gets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.oracles.trino_row_access import POLICIES, WORLD, RowAccessClient, row_access_client

from pdp.app.facts import build_pdp
from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.offline.cases.cases import Case
from pdp.offline.cases.outcomes import CaseOutcome
from pdp.offline.cases.runner import run_case

HERE = Path(__file__).parent
CONFIG = {"warehouses": {"lake": {"default_ref": "main"}}, "trino": {"catalogs": {"k": {"warehouse": "lake"}}}}
COLUMNS = {"Salary": "bigint", "name": "varchar", "value": "varchar", "$path": "varchar"}


def outcome(table: str, user: str = "alice", **wants: Any) -> CaseOutcome:
    principal = user if ":" in user else f"user:oidc~{user}"
    check = {"principal": principal, "action": "read_data", "resource": table}
    data = {"policies": POLICIES, "world": WORLD, "engines": ["grants"], "config": CONFIG, "checks": [check]}
    with asyncio.Runner() as runner:
        return run_case(Case("rows", HERE, {**data, **wants}), build_pdp, runner)


def as_wanted(rows: list[Mapping[str, str]]) -> Any:
    """Return Trino's row filters as a policy test wants them."""
    texts = [row["expression"] for row in rows]
    return True if not texts else False if texts == ["false"] else texts[0]


async def test_a_test_wants_what_trino_gets(tmp_path: Path) -> None:
    """Each filter and mask that Trino gets passes as an expectation, and any other expectation fails."""
    async with row_access_client(tmp_path) as client:
        for table in ("orders", "people", "roles"):
            for user in ("alice", "boss", "eve", "nobody"):
                await compare(client, table, user)


@pytest.mark.parametrize("wanted", ["mail = current_user", "mail = 'ann'", "(mail = CURRENT_USER)"])
def test_a_wanted_filter_may_name_the_caller_as_the_policy_does(wanted: str) -> None:
    policy = {"id": "own", "table": "lake.s.own", "grantees": ["allUsers"], "filter": "mail = current_user"}
    check = {"principal": "user:oidc~ann", "action": "read_data", "resource": "table:lake/s/own"}
    data = {"policies": {"policies": [policy]}, "world": WORLD, "engines": ["grants"], "config": CONFIG}
    with asyncio.Runner() as runner:
        found = [
            run_case(Case("own", HERE, {**data, "checks": [check], "wantFilter": text}), build_pdp, runner).passed
            for text in (wanted, "mail = 'bob'", 'mail = "current_user"')
        ]
    assert found == [True, False, False]


async def compare(client: RowAccessClient, table: str, user: str) -> None:
    rows = as_wanted(await client.rows(table, user))
    masks = await client.masks(table, COLUMNS, user)
    wanted: dict[str, Any] = {
        name: {"expression": masks.get(name, False), "type": type} for name, type in COLUMNS.items()
    }
    place = f"table_or_view:lake/s/{table}"
    found = await asyncio.to_thread(outcome, place, user, wantFilter=rows, wantMask=wanted)
    assert found.passed, (table, user, found.error)
    for other in (True, False, "region = 'other'"):
        if other != rows:
            assert not (await asyncio.to_thread(outcome, place, user, wantFilter=other)).passed
    for name, type in COLUMNS.items():
        wrong = {"expression": not masks.get(name), "type": type}
        assert not (await asyncio.to_thread(outcome, place, user, wantMask={name: wrong})).passed


@pytest.mark.parametrize(
    "want",
    ["region = 'EU'", "REGION  =  'EU'", "(region = 'EU')", {"expression": "region = 'EU'", "by": "row_access:eu"}],
)
def test_forms_of_a_filter(want: Any) -> None:
    assert outcome("table:lake/s/orders", wantFilter=want).passed
    assert outcome("table:lake/s/orders", wantFilter=[want]).passed


WRONG_FILTERS: list[Any] = [
    "region = 'eu'",
    "region = 'EU' OR TRUE",
    "region =",
    True,
    False,
    None,
    {"by": "row_access:all"},
    {"expression": "region = 'EU'", "identity": "root"},
]


@pytest.mark.parametrize("want", WRONG_FILTERS)
def test_wrong_filters_fail_and_name_the_policies(want: Any) -> None:
    found = outcome("table:lake/s/orders", wantFilter=want)
    assert not found.passed
    assert "row policy eu of user:alice" in (found.error or "")


@pytest.mark.parametrize(
    "want",
    [
        {"salary": "NULL"},
        {"Salary": "CAST(NULL AS varchar)"},
        {"SALARY": True},
        {"salary": {"by": "row_access:pay"}, "name": {"by": "row_access:stars"}},
        {"salary": {"expression": "NULL", "type": "bigint"}},
        {"salary": "null", "name": "partial"},
    ],
)
def test_forms_of_a_mask(want: Any) -> None:
    assert outcome("table:lake/s/people", wantMask=want).passed


@pytest.mark.parametrize(
    "want",
    [
        {"salary": False},
        {"salary": None},
        {"salary": "1"},
        {"salary": {"by": "row_access:stars"}},
        {"salary": "hash"},
        {"name": "hash"},
    ],
)
def test_wrong_masks_fail(want: Any) -> None:
    assert not outcome("table:lake/s/people", wantMask=want).passed


@pytest.mark.parametrize("kind", [kind for kind, form in MASK_KINDS.items() if not form.has_text])
def test_every_kind_of_a_mask_can_be_wanted(kind: str) -> None:
    mask = {"id": "m", "table": "lake.s.t", "column": "c", "grantees": ["allUsers"], "kind": kind}
    check = {"principal": "user:oidc~a", "action": "read_data", "resource": "table:lake/s/t"}
    data = {"policies": {"masks": [mask]}, "world": WORLD, "engines": ["grants"], "config": CONFIG, "checks": [check]}
    with asyncio.Runner() as runner:
        for wanted in MASK_KINDS:
            case = Case("rows", HERE, {**data, "wantMask": {"c": wanted}})
            is_null = wanted == "null" and kind.startswith("truncate")  # of a `varchar`
            assert run_case(case, build_pdp, runner).passed == (wanted == kind or is_null), wanted


VOID = {
    "a misspelt table": "table:lake/s/order",
    "another warehouse": "table:lak/s/orders",
    "a schema": "namespace:lake/s",
    "an invalid table": "table:lake//orders",
}


@pytest.mark.parametrize("name", VOID)
@pytest.mark.parametrize("wants", [{"wantFilter": None}, {"wantFilter": True}, {"wantMask": {"salary": False}}])
def test_no_restriction_must_have_the_right_reason(name: str, wants: dict[str, Any]) -> None:
    assert not outcome(VOID[name], **wants).passed


def test_a_table_without_policies_can_be_wanted() -> None:
    open_ = {"by": "row_access:unrestricted"}
    assert outcome("table:lake/s/free", wantFilter=open_, wantMask={"a": open_}).passed


def test_an_invalid_principal_fails_although_it_sees_nothing() -> None:
    assert not outcome("table:lake/s/orders", "user:alice", wantFilter=False).passed
    assert outcome("table:lake/s/orders", "user:alice", wantFilter={"by": "invalid_check"}).passed


def test_a_misspelt_column_is_a_warning() -> None:
    found = outcome("table:lake/s/people", wantMask={"salry": False})
    assert found.passed
    assert "`salry`" in found.warnings[0].text
    assert outcome("table:lake/s/people", wantMask={"x": {"by": "row_access:unrestricted"}}).strict().passed


@pytest.mark.parametrize(
    "wants", [{"wantFilter": [True, True]}, {"wantFilter": 5}, {"wantFilter": {"sql": "x"}}, {"wantMask": ["x"]}]
)
def test_expectations_of_the_wrong_form_fail(wants: dict[str, Any]) -> None:
    assert not outcome("table:lake/s/orders", **wants).passed


def test_rows_and_decisions_are_wanted_together() -> None:
    assert outcome("table:lake/s/orders", want=[True], wantFilter="region = 'EU'").passed
    assert not outcome("table:lake/s/orders", want=[False], wantFilter="region = 'EU'").passed
    assert not outcome("table:lake/s/orders", want=[True], wantFilter="region = 'US'").passed


def test_empty_lists_are_no_filter_and_no_mask() -> None:
    assert outcome("table:lake/s/orders", "boss", wantFilter=[], wantMask=[]).passed
    empty: list[dict[str, Any]] = [{"wantFilter": {}}, {"wantMask": {}}, {"wantMask": {"name": {"type": "varchar"}}}]
    for nothing in empty:
        assert not outcome("table:lake/s/orders", "boss", **nothing).passed
    assert not outcome("table:lake/s/orders", wantFilter=[]).passed


def test_a_null_in_place_of_a_mask_is_a_warning() -> None:
    found = outcome("table:lake/s/people", "boss", wantMask={"salary": None})
    assert found.passed
    assert "null means no mask of `salary`" in found.warnings[0].text
    assert outcome("table:lake/s/people", "boss", wantMask={"salary": False}).strict().passed
