"""Callers of the rewriter: headers of a development profile, and the recorded matches with grantees."""

from __future__ import annotations

import json
from typing import Any

from support.rewriting import FOLDER

from pdp.engines.row_access.members import parse_grantee, stated_member
from pdp.rewrite.identity import CallerIdentity


def recorded(kind: str) -> list[dict[str, Any]]:
    lines = (FOLDER / "grantee_cases.jsonl").read_text("utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["kind"] == kind]


def identity_of_headers(headers: dict[str, str]) -> CallerIdentity:
    found = stated_member(headers)
    return CallerIdentity(found.member, found.groups, authenticated=found.authenticated)


def test_the_recorded_headers_name_callers() -> None:
    cases = recorded("identity")
    assert len(cases) == 22
    for case in cases:
        found = identity_of_headers(case["headers"])
        assert {
            "principal": found.member,
            "groups": list(found.groups),
            "is_authenticated": found.authenticated,
            "session_user": found.session_user,
        } == case["expect"], case


def test_the_recorded_grantees_match() -> None:
    cases = recorded("match")
    assert len(cases) == 600
    for case in cases:
        caller = identity_of_headers(case["headers"])
        try:
            found = caller.is_named((parse_grantee(case["grantee"]),))
        except ValueError:
            found = False
        assert found == case["expect"], case


def test_a_service_account_is_a_member_of_its_own_kind() -> None:
    """As BigQuery has it: in the domain of its address, authenticated, and no `user:` of the same address."""
    address = "etl@acme.iam.gserviceaccount.com"
    caller = CallerIdentity(f"serviceAccount:{address}", ("eu@example.com",), roles=())
    named = {
        f"serviceAccount:{address}": True, f"serviceAccount:{address.replace('acme', 'ACME')}": True, f"user:{address}": False,
        "domain:acme.iam.gserviceaccount.com": True, "domain:gserviceaccount.com": False, "group:eu@example.com": True,
        "allAuthenticatedUsers": True, "allUsers": True, "serviceAccount:other@acme.iam.gserviceaccount.com": False,
    }  # fmt: skip
    assert {text: caller.is_named((parse_grantee(text),)) for text in named} == named
    assert {text: caller.may_be_named((parse_grantee(text),)) for text in named} == named
    assert caller.session_user == caller.values.user == address
