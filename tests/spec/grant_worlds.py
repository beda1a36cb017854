"""Hypothesis strategies for tiny worlds of grants, and the engine asked in their terms."""

from typing import Any

from hypothesis import strategies as st

from pdp.engines.engine import PERMIT, Engine, EngineQuestion
from pdp.engines.grants.model import ACTIONS, STORED
from pdp.facts.objects import (
    SERVER,
    Grant,
    GrantAdded,
    GrantRemoved,
    Object,
    ObjectDeleted,
    ObjectPut,
    key_from_text,
)
from pdp.facts.snapshot import Facts
from pdp.model.question import Question, Resource
from pdp.model.references import parse_principal, parse_resource

PATHS = ("v/a", "v/b", "v/a/a", "v/a/b", "w/a", "w/a/a")
OBJECTS = (
    "server",
    "project:p",
    "project:q",
    "warehouse:v",
    "warehouse:w",
    "role:r",
    "role:s",
    "role:t",
    "tag:k",
    "user:i~x",
    "user:i~y",
    *(f"namespace:{path}" for path in PATHS),
    *(f"{type}:{path}/t" for type in ("table", "view", "generic_table", "dataset") for path in PATHS[:4]),
)
PRINCIPALS = ("user:i~x", "user:i~y", "role:r", "role:s", "role:t")
IDS = ("", "1", "2")
KEYS = [key_from_text(text) for text in OBJECTS]
_GRANTABLE = [o for o in OBJECTS if STORED[o.partition(":")[0]]]


@st.composite
def grants(draw: st.DrawFn) -> dict[str, str]:
    """One grant; roles get members as often as all the rest together, because nesting is where it is difficult."""
    target = draw(st.one_of(st.sampled_from(_GRANTABLE), st.sampled_from(("role:r", "role:s", "role:t"))))
    privilege = draw(st.sampled_from(sorted(STORED[target.partition(":")[0]])))
    principal = draw(st.sampled_from([p for p in PRINCIPALS if p != target]))
    id = draw(st.sampled_from(IDS)) if ":v/" in target else ""
    return {"principal": principal, "privilege": privilege, "object": target} | ({"id": id} if id else {})


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A world file's data."""
    parents = {o: draw(st.sampled_from(("project:p", "project:q"))) for o in OBJECTS if o[:4] in ("role", "tag:")}
    parents["warehouse:v"] = "project:p"
    objects: list[dict[str, Any]] = [{"object": o, "parent": parent} for o, parent in parents.items()]
    flags = draw(st.sets(st.sampled_from(("warehouse:w", "namespace:v/a", "namespace:v/a/b", "namespace:w/a"))))
    objects += [{"object": o, "managedAccess": True} for o in sorted(flags)]
    return {"objects": objects, "grants": draw(st.lists(grants(), max_size=9))}


@st.composite
def questions(draw: st.DrawFn, world: dict[str, Any]) -> tuple[str, str, str, str]:
    """A principal, an action on an object, and the id that the object carries: near the grants rather than far."""
    granted = [grant["object"] for grant in world["grants"]] or ["server"]
    target = draw(st.one_of(st.sampled_from(OBJECTS), st.sampled_from(granted)))
    actions = sorted(ACTIONS[target.partition(":")[0]])
    id = draw(st.sampled_from(IDS)) if ":v/" in target else ""
    return draw(st.sampled_from(PRINCIPALS)), draw(st.sampled_from(actions)), target, id


@st.composite
def registrations(draw: st.DrawFn) -> Object:
    """The registration of one object, as a catalog may put it."""
    key = draw(st.sampled_from([key for key in KEYS if key != SERVER]))
    project = draw(st.sampled_from(("", "p", "q"))) if key[0] in ("warehouse", "role", "tag") else ""
    managed = draw(st.booleans()) if key[0] in ("warehouse", "namespace") else False
    return Object(key, project, managed, draw(st.sampled_from(("", "1", "2"))) if key[1][0] == "v" else "")


def grant_of(data: dict[str, str]) -> Grant:
    """Return the grant of an entry of a world file."""
    return Grant(key_from_text(data["object"]), data["privilege"], data["principal"], data.get("id", ""))


changes = st.lists(
    st.one_of(
        st.builds(ObjectPut, registrations()),
        st.builds(ObjectDeleted, st.sampled_from(KEYS)),
        grants().map(grant_of).map(GrantAdded),
        grants().map(grant_of).map(GrantAdded),
        grants().map(grant_of).map(GrantRemoved),
    ),
    max_size=12,
)
"""Changes of one write, in order. Some change nothing."""


def group(principal: str, action: str, resource: Resource) -> EngineQuestion:
    """Return the group of a check of one resource."""
    return EngineQuestion(Question(parse_principal(principal), action), resource.type, resource.warehouse, None)


def ask(
    engine: Engine, facts: Facts, principal: str, action: str, target: str, id: str = ""
) -> tuple[bool, str | None]:
    """Return the engine's allow or deny, and `by`."""
    resource = resource_of(target, id)
    verdicts = engine.decide(group(principal, action, resource), (resource,), facts)
    return verdicts.effects[0] == PERMIT, verdicts.by[0]


def resource_of(target: str, id: str = "") -> Resource:
    """Return the resource of a reference, with an id."""
    parsed = parse_resource(target)
    return Resource(parsed.type, parsed.warehouse, parsed.path, name=parsed.name, id=id)
