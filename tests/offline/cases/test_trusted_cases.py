"""Policy tests that pass for the right reason alone, and failures that say why."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pdp.app.facts import build_pdp
from pdp.offline.cases.cases import Case
from pdp.offline.cases.outcomes import CaseOutcome
from pdp.offline.cases.runner import run_case

HERE = Path(__file__).parent
POLICIES: dict[str, Any] = {
    "rules": {"open": "op == 'READ_ENTITY_VALUE' && role == 'alice' && ref == 'main'"},
    "config": {"warehouses": {"lake": {"default_ref": "main"}}},
}
BOB: dict[str, Any] = {"principal": "user:oidc~bob", "action": "read_data", "resource": "table:lake/s/t"}
ALICE = {**BOB, "principal": "user:oidc~alice"}
RAISING = {"rules": {"boom": "roles[9] == 'x'"}}


def outcome(check: Any, want: Any, **data: Any) -> CaseOutcome:
    with asyncio.Runner() as runner:
        case = Case("case", HERE, {**POLICIES, **data, "checks": [check], "want": [want]})
        return run_case(case, build_pdp, runner)


VOID = {
    "an invalid principal": ({**BOB, "principal": "user:bob"}, "invalid_check"),
    "an unknown action": ({**BOB, "action": "read_dat"}, "unknown_action"),
    "an action of another type": ({**BOB, "action": "drop", "resource": "server"}, "unknown_action"),
    "an unknown type": ({**BOB, "resource": "tabel:lake/s/t"}, "invalid_check"),
    "an invalid path": ({**BOB, "resource": "table:lake//t"}, "invalid_check"),
    "an unknown key": ({**BOB, "acting": "role:x"}, "invalid_check"),
    "no resource": ({"principal": "user:oidc~bob", "action": "read_data"}, "invalid_check"),
    "an unknown operation": ({**BOB, "action": "trino:SelectFromColumn"}, "unknown_action"),
    "an action on both kinds": ({**BOB, "action": "read_dat", "resource": "table_or_view:lake/s/t"}, "unknown_action"),
}


@pytest.mark.parametrize("name", VOID)
def test_a_check_that_nobody_could_permit_fails_unless_wanted(name: str) -> None:
    check, reason = VOID[name]
    for want in (False, {"allowed": False}, {"allowed": False, "errors": []}):
        found = outcome(check, want)
        assert not found.passed
        assert f"`{reason}`" in (found.error or "")
    assert outcome(check, {"allowed": False, "by": reason}).passed


def test_an_invalid_check_can_be_wanted_by_its_error() -> None:
    check, _ = VOID["an invalid principal"]
    assert outcome(check, {"allowed": False, "error": {"code": "invalid_argument"}}).passed
    assert not outcome(check, {"allowed": False, "error": {"code": "forbidden"}}).passed


def test_a_void_check_without_a_want_fails_as_well() -> None:
    data = {**POLICIES, "checks": [BOB, {**BOB, "action": "read_dat"}], "wantAudit": [{"allowed": False}] * 2}
    with asyncio.Runner() as runner:
        found = run_case(Case("audit", HERE, data), build_pdp, runner)
        data["wantAudit"] = [{"allowed": False}, {"by": "unknown_action"}]
        wanted = run_case(Case("audit", HERE, data), build_pdp, runner)
    assert [problem.check for problem in found.problems] == [1]
    assert wanted.passed


@pytest.mark.parametrize("kind", ["rules", "forbid"])
def test_a_raising_rule_is_a_warning_and_fails_a_strict_run(kind: str) -> None:
    raising = {kind: {"boom": "roles[9] == 'x'"}}
    found = outcome(BOB, False, **raising)
    assert found.passed
    assert [(warning.check, warning.raised) for warning in found.warnings] == [(0, ("boom",))]
    assert "index out of bounds" in found.warnings[0].why
    assert not found.strict().passed
    for want in ({"allowed": False, "errors": ["boom"]}, {"errors": ["boom"]}):
        assert outcome(BOB, want, **raising).strict().passed
    assert not outcome(BOB, {"allowed": False, "errors": []}, **raising).passed


def test_a_missing_ref_is_a_warning_too() -> None:
    found = outcome(BOB, False, config={}, engines=["cel"], rules={"open": "ref == 'main'"})
    assert found.warnings[0].raised == ("missing_reference", "open")


def test_a_wrong_denial_names_the_nearest_rule_and_the_missing_grant() -> None:
    error = outcome(BOB, True).error or ""
    assert "`allowed` is false by default_deny, wanted true" in error
    assert "rule open lacks `role == 'alice'` (role is 'bob')" in error
    grants = [{"principal": "user:oidc~bob", "privilege": "describe", "object": "table:lake/s/t"}]
    error = outcome(BOB, True, world={"grants": grants}, engines=["grants"]).error or ""
    assert "select on table:lake/s/t to user:oidc~bob would permit it" in error


def test_a_wrong_permit_names_the_rule_with_its_text_and_place(tmp_path: Path) -> None:
    error = outcome(ALICE, False).error or ""
    assert "is true by cel:open, wanted false; rule open: op == 'READ_ENTITY_VALUE' && role == 'alice'" in error
    (tmp_path / "rules.yaml").write_text("rules:\n  all: 'true'\n")
    error = outcome(ALICE, False, rules=str(tmp_path / "rules.yaml")).error or ""
    assert f"rule all: {tmp_path}/rules.yaml:2:9: true" in error


def test_a_wrong_denial_by_a_forbid_names_the_forbid_and_no_nearest_miss() -> None:
    error = outcome(ALICE, True, forbid={"no": "path.startsWith('s.')"}).error or ""
    assert "by cel:no, wanted true; rule no: path.startsWith('s.')" in error
    assert "nearest miss" not in error


INVALID: dict[str, dict[str, Any]] = {
    "an unknown key": {"ruels": {}},
    "a value of the wrong type": {"checks": 5},
    "a filter of the wrong form": {"wantFilter": 5},
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_case_fails_even_if_it_wants_an_error(name: str) -> None:
    data = {**POLICIES, "checks": [BOB], "want": [False], **INVALID[name]}
    with asyncio.Runner() as runner:
        for wanted in ({}, {"wantError": "invalid_argument"}):
            assert not run_case(Case("invalid", HERE, {**data, **wanted}), build_pdp, runner).passed


@pytest.mark.parametrize(
    ("action", "resource", "near"),
    [
        ("read_dat", "table:lake/s/t", "read_data"),
        ("READ_ENTITY_VALU", "table:lake/s/t", "READ_ENTITY_VALUE"),
        ("trino:SelectFromColumn", "table_or_view:lake/s/t", "trino:SelectFromColumns"),
        ("get_metdata", "table_or_view:lake/s/t", "get_metadata"),
    ],
)
def test_an_unknown_action_names_the_nearest_known_one(action: str, resource: str, near: str) -> None:
    error = outcome({**BOB, "action": action, "resource": resource}, False).error or ""
    assert f"`{action}` on a {resource.partition(':')[0]}, did you mean `{near}`?" in error


PROVIDERS = {"identity": {"providers": {"oidc": {"issuer": "https://idp", "jwks": "jwks.json", "audiences": ["pdp"]}}}}


@pytest.mark.parametrize(
    ("check", "config", "text"),
    [
        (
            {**BOB, "resource": "table:lkae/s/t@main"},
            POLICIES["config"],
            "no warehouse `lkae` is configured, the nearest known is `lake`",
        ),
        (
            {**BOB, "principal": "user:odic~bob", "resource": "table:lake/s/t@main"},
            PROVIDERS,
            "no provider `odic` is configured, the nearest known is `oidc`",
        ),
    ],
)
def test_an_unknown_name_is_a_warning(check: Any, config: Any, text: str) -> None:
    found = outcome(check, False, config=config)
    assert any(text in warning.text for warning in found.warnings)
    assert not found.strict().passed
    assert not outcome(check, {"allowed": False, "by": "default_deny"}, config=config).warnings
    assert not any(text in warning.text for warning in outcome(check, False, config={}).warnings)


def test_a_case_that_wants_nothing_fails() -> None:
    assert not outcome(BOB, {}).passed
    assert outcome(BOB, {}, wantAudit=[{"allowed": False}]).passed
    load = {"principal": "user:oidc~bob", "target": "table:lake/s/t", "action": "loadTable"}
    with asyncio.Runner() as runner:
        for want, passed in (({}, False), ({"allowed": False}, True), (False, True)):
            case = Case("load", HERE, {**POLICIES, "load": load, "wantLoad": want})
            assert run_case(case, build_pdp, runner).passed is passed


def test_a_denied_load_names_the_first_denied_check() -> None:
    load = {"principal": "user:oidc~bob", "target": "table:lake/s/t", "action": "loadTable"}
    with asyncio.Runner() as runner:
        case = Case("load", HERE, {**POLICIES, "engines": ["grants"], "load": load, "wantLoad": True})
        error = run_case(case, build_pdp, runner).error or ""
    assert "`allowed` is false" in error
    assert "user:oidc~bob may not get_metadata table:lake/s/t@main: default_deny" in error
