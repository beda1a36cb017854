"""Generated permissions, users and scopes: the product answers as the plain oracle, on every way to a decision."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec import scopes as spec
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.codec import decode_batch
from pdp.decision.scopes import ScopesBody, decide_scopes, make_request
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import RuleSet
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.offline.cases.cases import find_cases

NO_RULES = RuleSet((), {}, ())
NAMES = ("svc", "SVC", "")
CATALOGS, SCHEMAS, TABLES = ("hive", "lake"), ("raw", "a.b", "*"), ("t", "u", "*")

rules = st.fixed_dictionaries(
    {"catalog": st.sampled_from(CATALOGS), "schema": st.sampled_from(SCHEMAS)},
    optional={"tables": st.lists(st.sampled_from(TABLES), max_size=3)},
)
rule_lists = st.lists(rules, max_size=3) | st.none()
slots = st.fixed_dictionaries({}, optional={"Query": rule_lists, "Mutation": rule_lists})
entries = st.lists(st.fixed_dictionaries({"name": st.sampled_from(NAMES), "permissions": slots}), max_size=4)
users = st.one_of(
    st.none(),
    st.just({}),
    st.just({"sub": "svc"}),
    st.builds(lambda name: {"userName": name}, st.sampled_from(NAMES)),
)
places = st.fixed_dictionaries(
    {"catalog": st.sampled_from(CATALOGS), "schema": st.sampled_from(SCHEMAS)},
    optional={"tableName": st.sampled_from((*TABLES, None, 3))},
) | st.sampled_from([{}, {"catalog": None}, {"catalog": "hive"}, {"schema": "raw", "tableName": "t"}])
leaves = st.dictionaries(
    st.sampled_from(("readPermission", "writePermission")), places, max_size=2
) | st.fixed_dictionaries({"authorized": st.booleans() | st.none()})
maps = st.recursive(
    leaves,
    lambda inner: st.dictionaries(st.sampled_from(("$all", "$any", "readPermission")), inner, max_size=2).map(
        lambda found: {name: value for name, value in found.items() if name.startswith("$")}
    ),
    max_leaves=4,
)


def pdp_of(permissions: list[Any], *, strict: bool) -> Pdp:
    settings = make_settings({"authorities": {"default": {"engines": ["scopes"]}}, "policies": {"rules": []}}, TESTS)
    sources = {"scopes": {"permissions": permissions, "strict": strict}}
    return build_pdp(settings, Facts.empty(), (NO_RULES, NO_RULES), sources=sources)


def answer(pdp: Pdp, body: dict[str, Any]) -> bool:
    request = make_request(msgspec.convert(body, ScopesBody), "oidc", 100)
    return asyncio.run(decide_scopes(pdp, request, EMBEDDED_CALLER, "http")).decision.allowed


@settings(max_examples=300, deadline=None)
@given(entries, users, st.none() | maps, st.booleans())
def test_scopes_are_answered_as_by_the_oracle(permissions: list[Any], user: Any, scopes: Any, strict: bool) -> None:
    pdp = pdp_of(permissions, strict=strict)
    body = {"currentUser": user, "scopes": scopes}
    wanted = spec.allowed(permissions, user, scopes, strict=strict)
    assert [answer(pdp, body), answer(pdp, body)] == [wanted, wanted]  # the second time by a prepared plan


@settings(max_examples=150, deadline=None)
@given(entries, st.sampled_from(NAMES[:-1]), st.booleans(), st.sampled_from(("read_data", "write_data")))
def test_checks_and_their_batches_are_answered_as_by_the_oracle(
    permissions: list[Any], name: str, strict: bool, action: str
) -> None:
    """One prepared check, one plain check and one batch: the same answers, and those of the oracle."""
    pdp = pdp_of(permissions, strict=strict)
    user, tables = {"userName": name}, [(c, s, t) for c in CATALOGS for s in SCHEMAS for t in TABLES]
    texts = [f"table:{c}/{s.replace('.', '/')}/{t}" for c, s, t in tables]
    bodies = [{"principal": f"user:oidc~{name}", "action": action, "resource": text} for text in texts]

    wanted = []
    for c, s, t in tables:
        place = {"catalog": c, "schema": s, "tableName": t}
        scope = "readPermission" if action == "read_data" else "writePermission"
        wanted.append(spec.allowed(permissions, user, {scope: place}, strict=strict))
    assert ask(pdp, bodies) == wanted
    for c in CATALOGS:  # lists of one catalog are columns, also of several schemas
        rows = [row for row, (catalog, _, _) in enumerate(tables) if catalog == c]
        lists = {**bodies[0], "resources": [texts[row] for row in rows]}
        del lists["resource"]
        assert ask(pdp, [lists]) == [wanted[row] for row in rows]
    for _ in range(3):
        assert [ask(pdp, [body])[0] for body in bodies] == wanted


RECORDED = list(find_cases([TESTS / "recorded" / "lakeql" / "scopes.jsonl"]))


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.note)
def test_the_oracle_agrees_with_what_was_recorded(case: Any) -> None:
    for body, wanted in zip(case.data["scopeChecks"], case.data["want"], strict=True):
        assert spec.allowed(case.data["permissions"], body.get("currentUser"), body["scopes"]) is wanted


def ask(pdp: Pdp, checks: list[dict[str, Any]]) -> list[bool]:
    batch = admit(decode_batch(json.dumps({"checks": checks}).encode(), 100), EMBEDDED_CALLER)
    return [bool(each) for each in asyncio.run(pdp.check(batch)).allowed]


def test_a_user_of_another_provider_is_not_the_user_of_the_files() -> None:
    permissions = [
        {"name": "svc", "permissions": {"Mutation": [{"catalog": "hive", "schema": "raw", "tables": ["*"]}]}}
    ]
    write = {"action": "write_data", "resource": "table:hive/raw/t"}
    users = ("oidc~svc", "other~svc", "oidc~other~svc")
    checks = [{"principal": f"user:{user}", **write} for user in users]
    assert ask(pdp_of(permissions, strict=False), checks) == [True, False, False]
