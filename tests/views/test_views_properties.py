"""What must hold of loads whatever the world and the chain: over generated grants and chains of three names."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st
from spec import views as spec
from spec.grants import Spec
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.errors import PdpError
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.views.codec import LoadResult, decode_load
from pdp.views.loads import ViewSecurity

HERE = TESTS
USERS = ["a", "b", "c"]
VIEWS = ["view:w/n/u", "view:w/n/v", "view:w/n/x"]
TARGETS = ["table:w/n/t", "generic_table:w/n/t", "view:w/n/x"]
ENGINES = {
    "trino": {"type": "trino", "owner_property": "own", "identities": {"oidc": {"audiences": ["t", "ts"]}}},
    "spark": {"type": "trino", "owner_property": "Own", "identities": {"oidc": {"audiences": ["s", "ts"]}}},
    "other": {"type": "trino", "owner_property": "else", "identities": {"corp": {"audiences": ["t"]}}},
}
MATCHED = {"t": ["own"], "s": ["Own"], "ts": ["own", "Own"], "none": []}
"""Audience -> the owner properties that count."""

grants = st.lists(
    st.fixed_dictionaries(
        {
            "principal": st.sampled_from([f"user:oidc~{name}" for name in USERS]),
            "privilege": st.sampled_from(["select", "describe", "modify", "ownership"]),
            "object": st.sampled_from([*VIEWS, *TARGETS, "namespace:w/n"]),
        }
    ),
    max_size=14,
    unique_by=lambda grant: tuple(grant.values()),
)
owners = st.sampled_from([*USERS, *USERS, *USERS, "", 7, "a\x00", "role:r"])
properties = st.dictionaries(st.sampled_from(["own", "own", "Own", "OWN", "else"]), owners, max_size=2)
invoker: st.SearchStrategy[dict[str, Any]] = st.just({})
audiences_of_anyone = st.sampled_from(sorted(MATCHED))
names = st.sampled_from(VIEWS)


def encoded(views: list[str]) -> str:
    return ",".join(view.removeprefix("view:w/").replace("/", "%1F") for view in views)


@st.composite
def bodies(draw: Any, about: Any = properties, audiences: Any = audiences_of_anyone, longest: int = 4) -> Any:
    chain = draw(st.lists(names, max_size=longest))
    target = draw(st.sampled_from(TARGETS))
    action = "loadView" if target.startswith("view:") else draw(st.sampled_from(["loadTable", "loadCredentials"]))
    known = draw(st.sampled_from([VIEWS, VIEWS, VIEWS, VIEWS[:2]]))
    return {
        "principal": "user:oidc~a",
        "target": target,
        "action": action,
        "referencedBy": encoded(chain),
        "views": [{"resource": view, "properties": draw(about)} for view in known],
        "caller": {"idp": "oidc", "audiences": [draw(audiences)]},
    }


def views_of(world: Any, delegated_storage: str = "read") -> ViewSecurity:
    engines = {name: {**engine, "delegated_storage": delegated_storage} for name, engine in ENGINES.items()}
    data = {"engines": ["grants"], "world": {"objects": [], "grants": world}, "config": {"trusted_engines": engines}}
    pdp, settings = build_case_pdp(Case("generated", HERE, data), build_pdp, MemoryAudit())
    return ViewSecurity(pdp, settings)


def load(views: ViewSecurity, body: Any) -> LoadResult | str:
    """What comes of a load, or the code of its error."""
    try:
        loaded = asyncio.run(views.load(decode_load(msgspec.json.encode(body)), EMBEDDED_CALLER, "test"))
    except PdpError as error:
        return error.code
    return loaded


def told(loaded: LoadResult | str) -> Any:
    if isinstance(loaded, str):
        return {"error": loaded}
    if loaded.decision.error:
        return {"error": loaded.decision.error.code}
    steps = [(step.resource, step.as_principal, step.delegated, step.action, step.allowed) for step in loaded.steps]
    return {
        "allowed": loaded.decision.allowed,
        "storage": loaded.storage_access,
        "used": loaded.referenced_by_used,
        "steps": steps,
    }


def access(loaded: LoadResult | str) -> tuple[bool, int]:
    """How much a load hands out, in a form that compares."""
    assert not isinstance(loaded, str)
    return loaded.decision.allowed, ["none", "read", "read_write"].index(loaded.storage_access)


@given(grants, bodies(), st.sampled_from(("read", "as_owner")))
def test_a_load_is_what_the_plain_reading_says(world: Any, body: Any, storage: str) -> None:
    def may(who: str, action: str, what: str) -> bool:
        return Spec({"objects": [], "grants": world}, who, what).may(action, what)

    wanted = spec.load(body, MATCHED[body["caller"]["audiences"][0]], "oidc", may, owner_writes=storage == "as_owner")
    event(wanted.get("error", f"allowed {wanted.get('allowed')}"))
    assert told(load(views_of(world, storage), body)) == wanted


raw_chains = st.lists(
    st.sampled_from(["n%1Fu", "%", "%2C", ",", "+", "\x1f", "%1f", "%00", "a", "%FF"]), max_size=14
).map("".join)


@given(raw_chains)
def test_a_chain_parses_as_the_plain_reading_says(raw: str) -> None:
    wanted = spec.load(
        {"referencedBy": raw, "principal": "p", "target": "t", "action": "loadView"}, ["own"], "oidc", lambda *_: True
    )
    body = {"principal": "user:oidc~a", "target": "view:w/n/x", "action": "loadView", "referencedBy": raw}
    found = told(load(views_of([]), body | {"caller": {"idp": "oidc", "audiences": ["t"]}}))
    assert found.get("error") == wanted.get("error")


@given(grants, bodies(longest=12, audiences=st.just("none")))
def test_from_no_engine_a_chain_is_inert_but_for_its_length(world: Any, body: Any) -> None:
    views = views_of(world)
    found = load(views, body)
    if body["referencedBy"].count(",") >= 10:
        assert found == "ReferencedByDepthExceeded"
        return
    assert told(found) == told(load(views, body | {"referencedBy": "", "views": []}))


@given(grants, bodies(about=invoker, audiences=st.just("t")))
def test_through_invoker_views_everything_is_the_caller_s(world: Any, body: Any) -> None:
    found = load(views_of(world), body)
    assert not isinstance(found, str)
    assert {(step.as_principal, step.delegated) for step in found.steps} == {("user:oidc~a", False)}


@given(
    grants,
    bodies(audiences=st.just("t"), about=st.sampled_from([{}, {"own": "b"}, {"own": "c"}])),
    names,
    st.integers(0, 4),
)
def test_one_more_invoker_view_never_adds_access(world: Any, body: Any, more: str, at: int) -> None:
    views = views_of(world)
    body["views"] = [
        {"resource": view, "properties": {}} if view == more else {"resource": view, "properties": {"own": "b"}}
        for view in VIEWS
    ]
    chain = [f"view:w/{entry.replace('%1F', '/')}" for entry in body["referencedBy"].split(",") if entry]
    longer = [*chain[:at], more, *chain[at:]]
    assert access(load(views, body | {"referencedBy": encoded(longer)})) <= access(load(views, body))


@given(grants, st.lists(names, max_size=3), st.sampled_from(USERS), st.sampled_from(TARGETS))
def test_behind_a_definer_view_access_is_its_owner_s(world: Any, chain: list[str], owner: str, target: str) -> None:
    """The last view of a chain is DEFINER: what is loaded through it is what its owner loads, if the way there is open."""
    views = views_of(world, "as_owner")
    action = "loadView" if target.startswith("view:") else "loadTable"
    definer = "view:w/n/d"
    known = [{"resource": view, "properties": {"own": "c"} if view == VIEWS[0] else {}} for view in VIEWS]
    body = {
        "principal": "user:oidc~a",
        "target": target,
        "action": action,
        "referencedBy": encoded([*chain, definer]),
        "views": [*known, {"resource": definer, "properties": {"own": owner}}],
        "caller": {"idp": "oidc", "audiences": ["t"]},
    }
    through = load(views, body)
    alone = load(views, body | {"principal": f"user:oidc~{owner}", "referencedBy": ""})
    assert not isinstance(through, str)
    assert not isinstance(alone, str)
    hops = 2 * (len(chain) + 1)
    assert [(step.as_principal, step.action, step.allowed, step.by) for step in through.steps[hops:]] == [
        (step.as_principal, step.action, step.allowed, step.by) for step in alone.steps
    ]
    open_way = all(step.allowed for step in through.steps[:hops])
    assert access(through) == (access(alone) if open_way else (False, 0))
    allowed, most = access(through)
    assert access(load(views_of(world), body)) == (allowed, min(most, 1)), "by default, a view only reads"
