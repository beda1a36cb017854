"""A remembered plan equals the plan that is made anew, whatever was asked before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pdp.app.assembly import PLANNERS
from pdp.app.facts import build_pdp
from pdp.config.load import make_settings
from pdp.decision.acting_roles import context_of, plan
from pdp.decision.plan import FixedDenial, Leaf
from pdp.decision.plan_cache import PlanCache
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import inline_rules
from pdp.engines.row_access.policies import parse_document
from pdp.model.arrays import PathArray
from pdp.model.question import NO_ARGUMENTS, Arguments, Check, Load, Principal, Question, RequestContext, Resource
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.store.world import parse_world

CONFIG: dict[str, Any] = {
    "authorities": {"default": {"engines": ["cel", "grants"]}, "strict": {"engines": ["cel"], "warehouses": ["v"]}},
    "identity": {"instance_admins": ["user:oidc~admin"]},
    "warehouses": {"w": {"default_ref": "main"}},
    "trino": {"catalogs": {"w": {"warehouse": "w"}}, "admin_users": ["admin"]},
}
WORLD = {
    "objects": [
        *({"object": f"table:w/{path}"} for path in ("a/t", "b/T", "b/t", "A/x", "c/t$files", "d/t", "d/U")),
        {"object": "view:w/d/t"},
        {"object": "view:v/d/x"},
        {"object": "table:w/d/x/t"},
    ],
    "grants": [{"principal": "user:oidc~bob", "privilege": "assignee", "object": "role:r"}],
}
NAMES = st.sampled_from(["t", "T", "u", "t$files", "T$files", "t$other", "a.b", "x"])
FOLDERS = st.sampled_from(["a", "A", "b", "c", "d", "information_schema"])
TYPES = st.sampled_from(
    ["table", "view", "table_or_view", "namespace", "warehouse", "metadata_table", "system_schema", "catalog"]
)
ACTIONS = st.sampled_from(
    ["read_data", "drop", "rename", "commit", "create_table", "DELETE_ENTITY", "READ_CONTENT_KEY", "select", "nothing"]
) | st.sampled_from(sorted(TRINO_OPERATIONS)).map("trino:".__add__)


ROWS = {
    "policies": [{"id": "some", "table": "w.c.u", "grantees": ["user:admin"], "filter": "TRUE"}],
    "masks": [{"id": "pay", "table": "w.d.x", "column": "c", "grantees": ["user:bob"], "kind": "null"}],
}
FORBIDS = {"kept": "op == 'DELETE_ENTITY' && path in ['c.x', 'a.b']"}


def build() -> Pdp:
    rules, forbid = inline_rules({"a": "op=='READ_CONTENT_KEY'"}), inline_rules(FORBIDS)
    return build_pdp(make_settings(CONFIG, Path()), parse_world(WORLD), (rules, forbid), None, [parse_document(ROWS)])


@st.composite
def checks(draw: st.DrawFn) -> Check:
    type, warehouse = draw(TYPES), draw(st.sampled_from("wv"))
    ref = draw(st.sampled_from([None, "main"]))
    principal = Principal("user", draw(st.sampled_from(["oidc~bob", "oidc~admin"])))
    action, delegated = draw(ACTIONS), draw(st.booleans())
    role, env = draw(st.sampled_from([None, None, "r"])), RequestContext(actions=draw(st.sampled_from([(), ("X",)])))
    if draw(st.booleans()) and type in ("table", "view", "table_or_view"):
        like = Resource(type, warehouse, ref=ref)
        resources: Any = PathArray.in_one(like, (draw(FOLDERS),), draw(st.lists(NAMES, min_size=1, max_size=3)))
        at: Any = range(len(resources))
    else:
        path = () if type == "warehouse" else (draw(FOLDERS), draw(NAMES))[: draw(st.sampled_from([1, 2, 2]))]
        destination = draw(st.sampled_from([None, None, Resource("table", "w", ("b", "t"))]))
        arguments = Arguments(destination=destination) if destination else NO_ARGUMENTS
        resources, at = (Resource(type, warehouse, path, ref, arguments=arguments),), (0,)
    load = draw(st.sampled_from([None, None, None, Load()])) if type == "table" else None
    return Check(
        Question(principal, action, delegated=delegated, acting_role=role, context=env, view_security=load),
        resources,
        at,
    )


def listed(node: Any) -> Any:
    """Return a plan with lists in place of columns, which are equal only to themselves."""
    if isinstance(node, FixedDenial):
        # a denial that looks at no name is about the caller's names, or about the objects' own
        folded = [replace(found, path=tuple(map(str.lower, found.path))) for found in node.resources]
        return replace(node, resources=folded)
    if isinstance(node, Leaf):
        return replace(node, resources=list(node.resources))
    return replace(node, parts=tuple(map(listed, node.parts)))


def plan_or_error(make: Any) -> Any:
    try:
        return listed(make())
    except Exception as error:  # noqa: BLE001  both ways must fail alike
        return type(error)


@settings(max_examples=300, deadline=None)
@given(st.lists(checks(), min_size=2, max_size=8), st.booleans())
def test_a_remembered_plan_equals_a_new_one(asked: list[Check], stale: bool) -> None:
    pdp = build()
    facts = pdp.source.facts
    memo = PlanCache(PLANNERS, pdp.bundle, facts, stale=stale)
    for check in [*asked, *asked]:
        context = context_of(check, pdp.bundle, facts, stale=stale)
        assert plan_or_error(lambda c=check: memo.plan(c)) == plan_or_error(
            lambda c=check, k=context: plan(c, k, PLANNERS.checks)
        )


@pytest.mark.parametrize(("warehouse", "ref"), [("w" * 5000, None), ("w", "r" * 5000)])
def test_a_long_question_is_not_remembered(warehouse: str, ref: str | None) -> None:
    pdp = build()
    memo = PlanCache(PLANNERS, pdp.bundle, pdp.source.facts, stale=False)
    principal = Principal("user", "oidc~bob")
    for resource in (Resource("table", warehouse, ("a", "t"), ref), Resource("table", "w", ("a", "t"))):
        memo.plan(Check(Question(principal, "read_data"), (resource,), (0,)))
    assert len(memo._plans) == 1
