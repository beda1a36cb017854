"""Admission: one stage that compares the evidence of decoded requests with the caller's rights."""

from __future__ import annotations

import json
from typing import Any

from pdp.decision.batch_builder import BatchBuilder
from pdp.decision.codec import decode_checks
from pdp.identity.evidence import admit
from pdp.model.answer import Rejection
from pdp.model.question import Batch, Caller, Check, Principal, Question, Resource

ALICE = Principal("user", "oidc~alice", ("analyst",))
TABLE = "table:lake/sales/orders"
NAMELESS = Caller("gateway", frozenset({"principals"}))
OWN = Caller("alice", frozenset(), own=ALICE)
DESCRIBED = {"reference": TABLE, "properties": {"owner": "x"}}


def admitted(caller: Caller, *checks: dict[str, Any]) -> Batch:
    texts = [json.dumps({"action": "read_data", "resource": TABLE} | check).encode() for check in checks]
    return admit(decode_checks(texts).request("test"), caller)


def test_decoding_alone_fills_in_no_principal() -> None:
    request = decode_checks([json.dumps({"action": "read_data", "resource": TABLE}).encode()]).request("test")
    assert request.checks[0].question.principal.id == ""


def test_a_rejected_resource_does_not_touch_its_neighbours() -> None:
    batch = admitted(OWN, {"resource": DESCRIBED}, {}, {"resource": DESCRIBED})
    assert [(list(check.at), check.question.principal) for check in batch.checks] == [([1], ALICE)]
    assert {at: rejected.code for at, rejected in batch.rejected.items()} == dict.fromkeys(
        (0, 2), "assertion_not_allowed"
    )


def test_checks_that_name_the_own_principal_join_those_that_name_none() -> None:
    batch = admitted(OWN, {}, {"principal": ALICE.id}, {"action": "drop"}, {})
    assert [(check.question.action, list(check.at)) for check in batch.checks] == [
        ("read_data", [0, 1, 3]),
        ("drop", [2]),
    ]


def test_a_missing_principal_comes_before_an_invalid_acting_role() -> None:
    wrong: dict[str, Any] = {"actingRole": "role"}
    assert "`principal` is missing" in admitted(NAMELESS, wrong).rejected[0].message
    assert admitted(OWN, wrong | {"delegated": True}).rejected[0].message == "a name is empty"


def test_an_error_of_the_resource_comes_before_missing_evidence_in_json_only() -> None:
    assert admitted(OWN, {"principal": "user:oidc~bob", "resource": "?"}).rejected[0].code == "invalid_argument"
    builder = BatchBuilder()
    check = Check(Question(Principal("user", "oidc~bob"), "read_data"), (), ())
    builder.add_resources(check, [Rejection("ambiguous_name", "two"), Resource("table", "lake", ("a", "b"))])
    codes = {at: rejected.code for at, rejected in admit(builder.request("trino"), OWN).rejected.items()}
    assert codes == {0: "assertion_not_allowed", 1: "assertion_not_allowed"}
