"""Owners of views as readers: an owner of another identity provider is a member of no domain of ours."""

from __future__ import annotations

import itertools

import pytest

from pdp.engines.row_access.members import Grantee, Members, parse_grantee
from pdp.facts.objects import RowPolicy
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, unshown_user
from pdp.rewrite.identity import CallerIdentity, owner_identity
from pdp.rewrite.process.messages import (
    PolicyState,
    RewriteCall,
    StatementUser,
    SuppliedCatalog,
    SuppliedTable,
    SuppliedView,
)
from pdp.rewrite.process.worker import RewriteProcess

TEMPLATES = [
    "user:{subject}",
    "user:{idp}~{subject}",
    "user:{subject}@{idp}.example",
    "user:{subject}@example.com",
    "user:{subject}/{subject}",
]
USERS = ["oidc~bob", "oidc~bob@example.com", "partner~bob@example.com", "oidc~partner~bob@example.com", "partner~bob"]
GRANTEES = ["domain:example.com", "domain:partner.example", "user:bob@example.com", "user:partner~bob@example.com"]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("accounts", [(), ("*@example.com",)])
def test_the_user_behind_a_member_has_that_member(template: str, accounts: tuple[str, ...]) -> None:
    members = Members(template, "oidc", service_accounts=accounts)
    for name in USERS:
        user = unshown_user(name)
        assert members.principal_of(members.member(user)) == user
    for text in ("user:", "group:eu", "role:x", "", "bob", "user", "serviceAccount:x@other.example"):
        found = members.principal_of(text)
        assert found is None or members.member(found) == text


def test_with_a_claim_nobody_knows_the_user_behind_a_member() -> None:
    assert Members("user:{subject}", "oidc", "email").principal_of("user:bob@example.com") is None


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("grantee", GRANTEES)
@pytest.mark.parametrize("claim", ["", "email"])
def test_behind_a_view_the_owner_sees_what_the_owner_sees_outside(template: str, grantee: str, claim: str) -> None:
    members = Members(template, "oidc", claim)
    rule = RowPolicy(("lake", "s", "t"), "p", (grantee,), "n = 1", "duckdb")
    for name in USERS:
        user = Principal("user", name, attributes='{"email": "x@example.com"}' if claim else "{}", bare=True)
        member = members.member(user)
        shown = behind_view(PolicyState("1", [], (), template, "oidc", {}, rules=(rule,), claim=claim), member)
        grantees = members.matches(user, parsed(rule), Facts.empty())
        if not claim:
            assert ("n = 1" in shown) == grantees, (name, member)
        assert "n = 1" not in shown or not grantee.startswith("domain:") or (grantees and not claim)


def parsed(rule: RowPolicy) -> tuple[Grantee, ...]:
    return tuple(map(parse_grantee, rule.grantees))


def behind_view(made: PolicyState, owner: str) -> str:
    supplied = SuppliedCatalog(
        ("lake", "s"), {"t": SuppliedTable({"n": "INT"})}, {"v": SuppliedView("SELECT n FROM t", owner=owner)}
    )
    reply = RewriteProcess(made).answer(
        RewriteCall("SELECT n FROM v", "duckdb", StatementUser("user", "oidc~eve"), supplied)
    )
    assert not reply.error
    return reply.sql


def test_members_alone_are_of_a_domain_unless_of_another_provider() -> None:
    """Files and services that verify callers themselves know members and no users."""
    for bare, qualified in itertools.product((False, True), repeat=2):
        member = f"user:{'partner~' if qualified else ''}bob@example.com"
        caller = owner_identity(member) if bare else CallerIdentity(member)
        domain = parsed(RowPolicy(("lake", "s", "t"), "p", ("domain:example.com",)))
        assert caller.is_named(domain) is not qualified
        assert caller.may_be_named(domain)
        assert caller.explain_policy(domain)[0] is not qualified
        assert caller.explain_mask(domain, domain)[0] is qualified
