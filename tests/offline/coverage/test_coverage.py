"""Coverage of policies by tests: the points that are missing, and the points that checks show."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pdp.app.facts import build_pdp
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import CaseRunner
from pdp.offline.coverage.cases import NOT_REFUSED, CaseCoverage
from pdp.offline.coverage.coverage import NOT_NEEDED, CoverageReport
from pdp.offline.coverage.rules import (
    NO_BOUNDARY,
    NO_BOUNDARY_OF_PLACE,
    NO_BOUNDARY_OF_RIGHTS,
    NO_OUTSIDER,
    NOT_NEEDED_IN_FULL,
)

HERE = Path(__file__).parent
CONFIG = {"warehouses": {"lake": {"default_ref": "main"}}}


def covered(*cases: dict[str, Any]) -> CoverageReport:
    coverage = CaseCoverage()
    with asyncio.Runner() as runner:
        cases_runner = CaseRunner(build_pdp, runner, coverage=coverage)
        for number, data in enumerate(cases):
            cases_runner.run(Case(str(number), HERE, {"config": CONFIG, **data}, HERE / "cases.yaml", number))
    return coverage.report()


def missing(*cases: dict[str, Any]) -> dict[str, set[str]]:
    return {f"{item.kind} {item.name}": set(item.missing) for item in covered(*cases).uncovered}


def check(principal: str, action: str, resource: str, **more: Any) -> dict[str, Any]:
    return {"principal": principal, "action": action, "resource": resource, **more}


READ = check("user:oidc~ann", "read_data", "table:lake/s/t")
RULES = {"rules": {"ann": "role == 'ann' && ref == 'main'"}, "forbid": {"no": "path == 's.secret'"}}


def test_rules_and_forbids_need_checks_both_ways() -> None:
    asked = {**RULES, "want": []}
    assert missing({**asked, "checks": []}) == {
        "rule ann": {
            "never true",
            "never false",
            "no check fails by `role == 'ann'` alone",
            "no check fails by `ref == 'main'` alone",
        },
        "forbid no": {"never true", "never false"},
    }
    assert missing({**asked, "checks": [READ]})["rule ann"] == {
        "never false",
        "no check fails by `role == 'ann'` alone",
        "no check fails by `ref == 'main'` alone",
    }
    others = [
        {**READ, "principal": "user:oidc~bob"},
        {**READ, "resource": "table:lake/s/t@dev"},
        {**READ, "resource": "table:lake/s/secret"},
    ]
    report = covered({**asked, "checks": [READ, *others]})
    assert (report.uncovered, report.percent, report.points) == ((), 100.0, 6)


def test_checks_of_several_tests_add_up() -> None:
    tests = [{**RULES, "checks": [one], "want": [True]} for one in (READ, {**READ, "principal": "user:oidc~bob"})]
    assert missing(*tests)["rule ann"] == {"no check fails by `ref == 'main'` alone"}


def test_rules_of_one_id_and_other_text_are_others() -> None:
    other = {"rules": {"ann": "role == 'bob'"}, "checks": [READ], "want": [True]}
    assert covered({**RULES, "checks": [READ], "want": [True]}, other).points == 8


def test_a_check_that_no_engine_decides_shows_nothing() -> None:
    """An invalid check, an unknown action and a role that nobody may assume reach no rule."""
    asked = [
        {**READ, "principal": "user:ann"},
        {**READ, "action": "read_dat"},
        {**READ, "actingRole": "role:other"},
    ]
    assert covered({**RULES, "checks": asked, "want": [False] * 3}).covered == 0


WORLD = {
    "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, "role:etl", "role:staff"],
    "grants": [
        {"principal": "role:etl", "privilege": "modify", "object": "namespace:lake/s"},
        {"principal": "role:staff", "privilege": "assignee", "object": "role:etl"},
        {"principal": "user:oidc~bob", "privilege": "assignee", "object": "role:staff"},
        {"principal": "user:oidc~mallory", "privilege": "assignee", "object": "role:etl"},
    ],
}
ETL = "grant modify on namespace:lake/s to role:etl"
ALL = {NOT_NEEDED, NOT_NEEDED_IN_FULL, NO_BOUNDARY_OF_RIGHTS, NO_BOUNDARY_OF_PLACE, NO_OUTSIDER}


def grants_missing(*checks: dict[str, Any]) -> dict[str, set[str]]:
    return missing({"engines": ["grants"], "world": WORLD, "checks": checks, "want": [False] * len(checks)})


def test_a_grant_without_checks_lacks_everything() -> None:
    assert grants_missing()[ETL] == ALL


SHOWN = {
    "a check that needs it": (check("user:oidc~bob", "write_data", "table:lake/s/t"), {NOT_NEEDED, NOT_NEEDED_IN_FULL}),
    "a check for which less would do": (check("user:oidc~bob", "read_data", "table:lake/s/t"), {NOT_NEEDED}),
    "the same by the role itself": (check("role:etl", "get_metadata", "view:lake/s/a/b"), {NOT_NEEDED}),
    "more than the privilege": (check("user:oidc~bob", "create_table", "namespace:lake/s"), {NO_BOUNDARY_OF_RIGHTS}),
    "more than that inside": (check("user:oidc~bob", "move", "table:lake/s/t"), {NO_BOUNDARY_OF_RIGHTS}),
    "another container": (check("user:oidc~bob", "write_data", "table:lake/ss/t"), {NO_BOUNDARY_OF_PLACE}),
    "somebody else": (check("user:oidc~eve", "read_data", "table:lake/s/t"), {NO_OUTSIDER}),
    "somebody else elsewhere": (check("user:oidc~eve", "read_data", "table:lake/t/t"), set()),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_check_shows_points_of_a_grant(name: str) -> None:
    asked, shown = SHOWN[name]
    assert grants_missing(asked)[ETL] == ALL - shown


def test_memberships_on_the_way_to_a_grant_are_needed() -> None:
    bob, staff, mallory = (
        f"membership assignee on {role} to {member}"
        for member, role in (("user:oidc~bob", "role:staff"), ("role:staff", "role:etl"), ("user:oidc~mallory", "role:etl"))
    )  # fmt: skip
    assert {bob, staff, mallory} <= grants_missing().keys()
    by_bob = grants_missing(check("user:oidc~bob", "write_data", "table:lake/s/t"))
    assert mallory in by_bob
    assert not {bob, staff} & by_bob.keys()
    acting = grants_missing(check("user:oidc~mallory", "write_data", "table:lake/s/t", actingRole="role:etl"))
    assert mallory not in acting
    assert {bob, staff} <= acting.keys()
    assert staff in grants_missing(check("role:etl", "write_data", "table:lake/s/t"))


ROWS = {
    "policies": [
        {"id": "eu", "table": "lake.s.t", "grantees": ["group:eu", "user:ann"], "filter": "x = 1"},
        {"id": "all", "table": "lake.s.t", "grantees": ["allUsers"], "filter": "x = 2"},
    ],
    "masks": [
        {"id": "m", "table": "lake.s.t", "column": "C", "grantees": ["user:ann", "group:eu"], "except": ["group:eu"], "kind": "null"}
    ],
}  # fmt: skip


def rows_missing(who: str, **wants: Any) -> dict[str, set[str]]:
    principal = {"id": f"user:oidc~{who}", "groups": ["eu"] if who == "eve" else []}
    asked = {"principal": principal, "action": "read_data", "resource": "table_or_view:lake/S/T"}
    return missing({"policies": ROWS, "checks": [asked], **wants})


def test_row_policies_and_masks_need_questions_for_each_grantee_and_for_others() -> None:
    group, ann, exempt = (
        "no check asks for group:eu",
        "no check asks for user:ann",
        "no check asks for group:eu, who is exempt",
    )
    eu, everybody, mask = "row policy eu of lake.s.t", "row policy all of lake.s.t", "mask m of lake.s.t column c"
    nothing = {
        eu: {group, ann, NOT_REFUSED},
        everybody: {"no check asks for allUsers"},
        mask: {ann, group, exempt, NOT_REFUSED},
    }
    assert rows_missing("ann", want=[False]) == nothing
    assert rows_missing("ann", wantFilter="x") == {eu: {group, NOT_REFUSED}, mask: nothing[mask]}
    assert rows_missing("eve", wantFilter="x")[eu] == {ann, NOT_REFUSED}
    assert rows_missing("bob", wantFilter="x")[eu] == {group, ann}
    assert rows_missing("ann", wantMask={"c": True}) == {**nothing, mask: {group, exempt, NOT_REFUSED}}
    assert rows_missing("eve", wantMask={"c": True})[mask] == {ann, group, NOT_REFUSED}
    assert rows_missing("bob", wantMask={"c": True})[mask] == {ann, group, exempt}
    assert rows_missing("ann", wantMask={"d": True}) == nothing


def test_no_policies_are_no_coverage() -> None:
    assert covered({"checks": [READ], "want": [False]}).percent == 0
    assert CoverageReport(3000, 2999, ()).percent == 99.9


# --- Cedar and scopes ---------------------------------------------------------------------------------------------

CEDAR = """\
@id("read") permit (principal, action, resource == Lakekeeper::Table::"lake/s/t");
@id("more") permit (principal == Lakekeeper::User::"oidc~ann", action, resource);
@id("never") forbid (principal, action == Lakekeeper::Action::"ReadTableData", resource) when { resource.protected };
"""


def cedar_case(*checks: dict[str, Any]) -> dict[str, Any]:
    return {"engines": ["cedar"], "cedar": {"policies": CEDAR}, "checks": [*checks], "want": [True] * len(checks)}


def test_cedar_policies_need_checks_both_ways() -> None:
    both = {"never true", "never false"}
    assert missing(cedar_case()) == {
        "cedar permit read": both,
        "cedar permit more": both,
        "cedar forbid never": both,
    }
    assert missing(cedar_case(READ)) == {
        "cedar permit read": {"never false"},
        "cedar permit more": {"never false"},
        "cedar forbid never": {"never true"},
    }
    bob = check("user:oidc~bob", "read_data", "table:lake/s/u")
    assert missing(cedar_case(READ, bob)) == {"cedar forbid never": {"never true"}}


def test_permits_beside_a_forbid_are_not_known() -> None:
    forbidding = {**cedar_case(READ), "cedar": {"policies": CEDAR.replace("when { resource.protected }", "")}}
    assert missing(forbidding) == {
        "cedar permit read": {"never true", "never false"},
        "cedar permit more": {"never true", "never false"},
        "cedar forbid never": {"never false"},
    }


PERMISSIONS = [
    {
        "name": "ann",
        "permissions": {
            "Query": [
                {"catalog": "lake", "schema": "s", "tables": ["t"]},
                {"catalog": "lake", "schema": "s", "tables": ["t", "u"]},
            ],
            "Mutation": [{"catalog": "lake", "schema": "s", "tables": ["*"]}],
        },
    },
    {"name": "ann", "permissions": {"Query": [{"catalog": "lake", "schema": "x", "tables": ["*"]}]}},
]


def scopes_case(*checks: dict[str, Any]) -> dict[str, Any]:
    return {"engines": ["scopes"], "permissions": PERMISSIONS, "checks": [*checks], "want": [True] * len(checks)}


def test_permissions_need_a_permit_and_a_denial() -> None:
    """Rules of a second entry with the same name never count."""
    first, second = "permission ann: Query lake.s [t]", "permission ann: Query lake.s [t, u]"
    write = "permission ann: Mutation lake.s [*]"
    nothing = {NOT_NEEDED, NO_BOUNDARY}
    assert missing(scopes_case()) == {first: nothing, second: nothing, write: nothing}
    assert missing(scopes_case(READ)) == {first: {NO_BOUNDARY}, second: nothing, write: nothing}
    others = [check("user:oidc~ann", "read_data", f"table:lake/{table}") for table in ("s/u", "x/t")]
    writes = [check("user:oidc~ann", "write_data", f"table:lake/{table}") for table in ("s/any", "x/t")]
    assert missing(scopes_case(READ, *others)) == {write: nothing}
    assert missing(scopes_case(READ, *others, writes[0])) == {write: {NO_BOUNDARY}}
    assert missing(scopes_case(READ, *others, *writes)) == {}
    stranger = check("user:oidc~bob", "read_data", "table:lake/s/t")
    assert missing(scopes_case(stranger)) == missing(scopes_case())
