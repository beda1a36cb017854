"""Cedar through the engine, on generated worlds: equal to cedarpy with entities made by hand, whatever the batch."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from spec.cedar import LAKE, CedarSpec, ref, value

from pdp.engines.cedar.actions import CEDAR_ACTIONS
from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText
from pdp.engines.engine import EFFECT_NAMES, EngineQuestion
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal, Question, Resource
from pdp.model.references import parse_principal, parse_resource
from pdp.store.world import parse_world

PLACES = ("wh/a", "wh/b", "wh/a/b", "wh/a/a", "pond/a", "wh/a/b/a/b")
TABLES = tuple(f"table:{place}/{name}" for place in PLACES for name in ("t", "u"))
NAMESPACES = tuple(f"namespace:{place}" for place in PLACES)
ROLES = ("r", "s", "t")
USERS = ("user:oidc~ann", "user:oidc~ben")
PRINCIPALS = (*USERS, *(f"role:{role}" for role in ROLES))
ACTIONS = {"table": ("read_data", "drop"), "namespace": ("list_tables", "create_table")}

SCOPED_PRINCIPALS = [
    "principal",
    *(f'principal == {LAKE}User::"oidc~{name}"' for name in ("ann", "ben")),
    *(f'principal in {LAKE}Role::"{role}"' for role in ROLES),
]
SCOPED_RESOURCES = [
    "resource",
    f'resource in {LAKE}Project::"p"',
    f'resource in {LAKE}Warehouse::"wh"',
    *(f'resource in {LAKE}Namespace::"{place}"' for place in PLACES[:3]),
    f'resource == {LAKE}Table::"wh/a/t"',
]
CONDITIONS = [
    'resource has name && resource.name == "t"',
    "resource has protected && resource.protected",
    f'{LAKE}Table::"wh/a/t".protected',
    f'{LAKE}Namespace::"wh/a".protected',
    f'{LAKE}Warehouse::"pond".is_active',
    f'{LAKE}Warehouse::"pond" has is_active && {LAKE}Warehouse::"pond".is_active',
    f'{LAKE}Namespace::"wh/a/b" in {LAKE}Warehouse::"wh"',
    f'{LAKE}Role::"r" in {LAKE}Role::"s"',
    f'{LAKE}Role::"s" in {LAKE}Role::"r"',
    f'{LAKE}User::"oidc~ben" in {LAKE}Role::"t"',
    f'resource in [{LAKE}Namespace::"wh/b", {LAKE}Namespace::"pond/a"]',
    f'resource has namespace && resource.namespace == {LAKE}Namespace::"wh/a"',
    'resource has namespace && resource.namespace.name == "a.b"',
    f'principal is {LAKE}User && principal.roles.contains({LAKE}Role::"r")',
    f"principal is {LAKE}User && principal in principal.roles",
    f'principal is {LAKE}User && {LAKE}Role::"s" in principal.roles',
    f'principal in [{LAKE}Role::"s", {LAKE}Role::"t"]',
    f'principal in {LAKE}Project::"p"',
    f'{LAKE}User::"oidc~ben" in {LAKE}Project::"p"',
    f"resource is {LAKE}Table && principal in resource.project",
    f"resource is {LAKE}Table && resource in resource.warehouse && resource in resource.project",
    f"resource is {LAKE}Table && resource in resource.namespace",
    f'resource is {LAKE}Table && resource.namespace in {LAKE}Namespace::"wh/a"',
    f'resource is {LAKE}Namespace && {LAKE}Table::"wh/a/b/a/b/t" in resource',
    f'{LAKE}Table::"wh/a/b/a/b/t" in {LAKE}Namespace::"wh/a"',
    f'{LAKE}Namespace::"wh/a/b".protected',
    f'(if principal in {LAKE}Role::"r" then {LAKE}Table::"wh/b/t" else {LAKE}Table::"wh/b/u").protected',
    "9223372036854775807 + 1 > 0",
    f'principal is {LAKE}User && principal has derived_attributes && principal.derived_attributes.hasTag("x")',
]


@st.composite
def policies(draw: st.DrawFn) -> str:
    lines = []
    for number in range(draw(st.integers(1, 4))):
        effect = draw(st.sampled_from(["permit", "permit", "forbid"]))
        who, what = draw(st.sampled_from(SCOPED_PRINCIPALS)), draw(st.sampled_from(SCOPED_RESOURCES))
        text = f'@id("x{number}") {effect}({who}, action, {what})'
        if draw(st.booleans()):
            text += f" {draw(st.sampled_from(['when', 'unless']))} {{ {draw(st.sampled_from(CONDITIONS))} }}"
        lines.append(f"{text};")
    return "\n".join(lines)


def role_parents(roles: list[str]) -> list[Any]:
    return [ref("Role", role) for role in roles]


@st.composite
def files(draw: st.DrawFn) -> list[Any]:
    """Return entities of files, without a cycle of roles: `r` below `s` below `t` at most."""
    possible = [
        {"uid": ref("Table", "wh/a/t"), "attrs": {"protected": True}, "parents": []},
        {"uid": ref("Namespace", "wh/a"), "attrs": {"protected": True}, "parents": []},
        {"uid": ref("Warehouse", "pond"), "attrs": {"project": value("Project", "q")}, "parents": []},
        {"uid": ref("User", "oidc~ann"), "attrs": {}, "parents": role_parents(["r"])},
        {"uid": ref("Role", "r"), "attrs": {}, "parents": role_parents(["s"])},
        {"uid": ref("Role", "s"), "attrs": {}, "parents": role_parents(["t"])},
        {"uid": ref("Table", "wh/b/t"), "attrs": {}, "parents": []},
    ]
    return draw(st.lists(st.sampled_from(possible), unique_by=lambda entity: json.dumps(entity["uid"])))


MEMBERS = st.dictionaries(st.sampled_from(PRINCIPALS), st.sets(st.sampled_from(ROLES), max_size=2), max_size=3)


def world_of(members: dict[str, set[str]]) -> Facts:
    grants = [
        {"principal": member, "privilege": "assignee", "object": f"role:{role}"}
        for member, roles in members.items()
        for role in sorted(roles)
        if member != f"role:{role}"
    ]
    objects = [
        "project:p",
        {"object": "warehouse:wh", "parent": "project:p"},
        {"object": "role:r", "parent": "project:p"},
    ]
    return parse_world({"objects": objects, "grants": grants})


def engine_of(text: str, entities: list[Any]) -> CedarEngine:
    return CedarEngine(load_model(CedarSources((SourceText(text),), (SourceText(json.dumps(entities)),))))


def group_of(principal: Principal, action: str, type: str) -> EngineQuestion:
    return EngineQuestion(Question(principal, action), type, "wh", None)


def verdicts(
    engine: CedarEngine, group: EngineQuestion, resources: list[Resource], facts: Facts
) -> list[tuple[Any, ...]]:
    found = engine.decide(group, resources, facts)
    return [
        (EFFECT_NAMES[effect], by, list(found.errors.get(row, ())))
        for row, (effect, by) in enumerate(zip(found.effects, found.by, strict=True))
    ]


@settings(deadline=None, max_examples=120)
@given(policies(), files(), MEMBERS, st.sampled_from(PRINCIPALS), st.sampled_from(sorted(ACTIONS)), st.data())
def test_equals_cedarpy_with_entities_made_by_hand(
    text: str, entities: list[Any], members: dict[str, set[str]], principal: str, type: str, data: st.DataObject
) -> None:
    engine, facts = engine_of(text, entities), world_of(members)
    action = data.draw(st.sampled_from(ACTIONS[type]))
    names = data.draw(st.lists(st.sampled_from(TABLES if type == "table" else NAMESPACES), min_size=1, max_size=8))
    group = group_of(parse_principal(principal), action, type)
    found = verdicts(engine, group, [parse_resource(name) for name in names], facts)
    others = {member: {role for role in roles if member != f"role:{role}"} for member, roles in members.items()}
    spec = CedarSpec(text, entities, others, {"warehouse:wh": "p", "role:r": "p"})
    name = CEDAR_ACTIONS[action, type]
    above = [id for _, id in engine.model.schema.groups[f"{LAKE}Action", name]]
    for resource, (effect, by, errors) in zip(names, found, strict=True):
        if spec.is_torn(principal):
            assert (effect, by) == ("failed", "cedar:torn_ring")
            continue
        expected = spec.decide(principal, name, above, resource)
        assert (effect, by and by.removeprefix("cedar:"), errors) == expected


PROPERTIES = st.one_of(
    st.none(), st.dictionaries(st.sampled_from(["open", "access-x"]), st.sampled_from(["y", '["user:oidc~ann"]', None]))
)
READING_PROPERTIES = """\
@id("open") permit(principal, action, resource) when { resource has properties && resource.properties.hasTag("open") };
@id("listed") permit(principal, action, resource)
  when { resource has properties && resource.properties.hasTag("access-x")
    && principal in resource.properties.getTag("access-x").users };
@id("other") forbid(principal, action, resource) when { Lakekeeper::Namespace::"wh/a".properties.hasTag("open") };
@id("above") permit(principal, action, resource)
  when { resource has namespace && resource.namespace.properties.hasTag("open") };
"""


@settings(deadline=None, max_examples=80)
@given(st.data(), files(), st.sampled_from(["table", "namespace"]))
def test_a_batch_equals_its_singles_whatever_properties_checks_bring(
    data: st.DataObject, entities: list[Any], type: str
) -> None:
    tags = {"open": {"raw": "", "roles": [], "users": [], "global_role_ids": []}}
    shared = {"uid": ref("ResourceProperties", "namespace:wh/a"), "attrs": {}, "parents": [], "tags": tags}
    if data.draw(st.booleans()):
        entities = [*entities, shared]
    engine, facts = engine_of(READING_PROPERTIES, entities), world_of({})
    names = TABLES if type == "table" else NAMESPACES
    resources = []
    for name in data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=8)):
        bare = parse_resource(name)
        own = data.draw(PROPERTIES)
        resources.append(Resource(bare.type, bare.warehouse, bare.path, properties=own))
    group = group_of(parse_principal("user:oidc~ann"), ACTIONS[type][0], type)
    together = verdicts(engine, group, resources, facts)
    alone = [verdicts(engine_of(READING_PROPERTIES, entities), group, [each], facts)[0] for each in resources]
    assert together == alone


RING_ROLES = ("r", "s", "t", "u")
EDGES = st.sets(st.tuples(st.sampled_from(RING_ROLES), st.sampled_from(RING_ROLES)), max_size=7)
ASKING = ("role:r", "role:s", "user:oidc~ann", "user:oidc~ben")
SHAPES = {
    "resource": 'permit(principal, action, resource in {role}::"{target}");',
    "principal": 'permit(principal in {role}::"{target}", action, resource);',
    "named": 'permit(principal, action, resource) when {{ {role}::"{left}" in {role}::"{target}" }};',
    "asked": "permit(principal, action, resource) when {{ principal in resource }};",
    "asking": "permit(principal, action, resource) when {{ resource in principal }};",
}


def closure(edges: set[tuple[str, str]], role: str) -> set[str]:
    """Return a role and all roles above."""
    found = {role}
    while new := {above for below, above in edges if below in found} - found:
        found |= new
    return found


@settings(deadline=None, max_examples=150)
@given(EDGES, EDGES, st.sampled_from(ASKING), st.sampled_from(RING_ROLES), st.sampled_from(RING_ROLES), st.data())
def test_a_role_in_a_ring_is_in_all_roles_of_the_ring_and_above(
    stored: set[tuple[str, str]], filed: set[tuple[str, str]], principal: str, left: str, target: str, data: Any
) -> None:
    """Roles are registered nowhere. Where Cedar cannot hold all edges that are asked, the check fails and is denied."""
    filed = {(low, high) for low, high in filed if low < high}  # files alone have no ring
    edges = {(low, high) for low, high in stored | filed if low != high}
    grants = [("role:" + low, high) for low, high in stored if low != high] + [("user:oidc~ann", "r")]
    facts = parse_world(
        {"grants": [{"principal": who, "privilege": "assignee", "object": f"role:{role}"} for who, role in grants]}
    )
    entities = [
        {"uid": ref("Role", low), "attrs": {}, "parents": role_parents([high for one, high in filed if one == low])}
        for low in sorted({low for low, _ in filed})
    ]
    shape = data.draw(st.sampled_from(sorted(SHAPES)))
    engine = engine_of(SHAPES[shape].format(role=f"{LAKE}Role", left=left, target=target), entities)
    group = group_of(parse_principal(principal), "assume", "role")
    found = verdicts(engine, group, [Resource("role", name=name) for name in RING_ROLES], facts)
    who = {"user:oidc~ann": closure(edges, "r"), "user:oidc~ben": set()}.get(principal, closure(edges, principal[-1]))
    own = {principal[-1]} if principal.startswith("role:") else set()
    for resource, (effect, _, _) in zip(RING_ROLES, found, strict=True):
        sides = {"resource": closure(edges, resource), "principal": who, "named": closure(edges, left)}
        if shape in ("asked", "asking"):
            sides["asked"] = {target} if resource in who else set()
            sides["asking"] = {target} if own & closure(edges, resource) else set()
        asked = own | {resource} | ({left} if shape == "named" else set())
        is_torn = any(
            one != other and one in closure(edges, other) and other in closure(edges, one)
            for one in asked
            for other in asked
        )
        assert effect == ("failed" if is_torn else "permit" if target in sides[shape] else "silent")
