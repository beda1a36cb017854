"""Lists, and who has access, equal plain checks on generated worlds: nothing is left out, nothing is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.grant_worlds import IDS, OBJECTS, PRINCIPALS, worlds
from spec.grants import above, kind_of
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.engines.cel.rules import inline_rules
from pdp.engines.grants.model import ACTIONS
from pdp.facts.objects import key_from_text
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.management.requests import ObjectQuery, PageRequest, PageResult, Requester
from pdp.management.service import Management
from pdp.model.question import Batch, Check, Question, Resource
from pdp.model.references import parse_principal, parse_resource
from pdp.store.world import parse_world

RULES = (
    "true",
    "false",
    "role=='i~x'",
    "'r' in roles",
    "op in ['VIEW_REFERENCE', 'READ_CONTENT_KEY', 'READ_ENTRIES']",
    "op=='READ_ENTITY_VALUE' && path.startsWith('a')",
    "path=='a.t'",
    "ref=='dev'",
    "roles[0]=='r'",
)
rules = st.dictionaries(st.sampled_from("ab"), st.sampled_from(RULES), max_size=2)
EVERYTHING = PageRequest(10_000)


@st.composite
def services(draw: st.DrawFn) -> tuple[dict[str, Any], Pdp, frozenset[str]]:
    """A world, the service that decides in it, and the configured administrators."""
    world = draw(worlds())
    world["objects"] += [{"object": o} for o in draw(st.sets(st.sampled_from((*PRINCIPALS[:2], "table:v/b/t"))))]
    engines = draw(st.sampled_from((["grants"], ["grants", "cel"], ["cel", "grants"], ["cel"])))
    combine = draw(st.sampled_from(("any", "all")))
    admins = draw(st.sampled_from(((), (), ("user:i~y",), ("role:r",))))
    config = {
        "authorities": {"default": {"engines": engines, "combine": combine}},
        "warehouses": {"v": {"default_ref": "main"}},
        "store": {"bootstrap_admins": admins},
    }
    forbid = draw(st.one_of(st.just({}), rules))
    pdp = build_pdp(settings_of(config, Path()), parse_world(world), (inline_rules(draw(rules)), inline_rules(forbid)))
    return world, pdp, frozenset(admins)


async def allowed(pdp: Pdp, principal: str, action: str, resource: Resource, role: str | None = None) -> bool:
    """The plain check."""
    check = Check(Question(parse_principal(principal), action, acting_role=role), (resource,), (0,))
    answer = await pdp.check(Batch("http", EMBEDDED_CALLER, 1, (check,)))
    return bool(answer.allowed[0])


async def paged(ask: Callable[[PageRequest], Awaitable[PageResult]], size: int) -> list[str]:
    """All entries, page by page."""
    found: list[str] = []
    page = PageRequest(size)
    while True:
        part = await ask(page)
        assert len(part.entries) <= size
        found += part.entries
        if not part.next:
            return found
        assert part.entries
        page = PageRequest.at(size, part.next)


def known(world: dict[str, Any]) -> set[str]:
    """What is registered or granted on, and all above."""
    named = {entry[0]["object"] for section in ("objects", "grants") for entry in zip(world[section], strict=True)}
    return named | {o for name in named for o in above(world, name)}


@settings(max_examples=150, deadline=None)
@given(services(), st.data())
def test_a_list_is_all_that_a_check_permits(
    service: tuple[dict[str, Any], Pdp, frozenset[str]], data: st.DataObject
) -> None:
    world, pdp, admins = service
    type = data.draw(st.sampled_from(sorted(ACTIONS)))
    container = data.draw(st.one_of(st.sampled_from(OBJECTS), st.sampled_from(("server", "project:p", "warehouse:v"))))
    principal = data.draw(st.sampled_from((*PRINCIPALS, "anonymous", "user:i~stranger")))
    role = data.draw(st.sampled_from((None, None, None, "r", "s")))
    size = data.draw(st.sampled_from((1, 2, 3, 1000)))
    management = Management(pdp, None, admins)
    requester = Requester(EMBEDDED_CALLER, parse_principal(principal), role)
    # below the server is every other object, also those of a warehouse without a project
    below = [o for o in known(world) - {container} if container == "server" or container in above(world, o)]
    candidates = sorted(o for o in below if kind_of(o) == type)

    async def compare() -> None:
        for action in sorted(ACTIONS[type]):
            query = ObjectQuery(action, type, key_from_text(container))
            listed = await paged(lambda page: management.list_objects(requester, query, page), size)  # noqa: B023
            plain = [o for o in candidates if await allowed(pdp, principal, action, parse_resource(o), role)]
            assert listed == plain, action

    asyncio.run(compare())


@settings(max_examples=150, deadline=None)
@given(services(), st.data())
def test_who_has_access_is_everybody_whom_a_check_permits(
    service: tuple[dict[str, Any], Pdp, frozenset[str]], data: st.DataObject
) -> None:
    world, pdp, admins = service
    target = data.draw(st.sampled_from(OBJECTS))
    type = kind_of(target)
    ref = data.draw(st.sampled_from(("", "@dev"))) if target.count("/") else ""
    id = data.draw(st.sampled_from(IDS)) if ref else ""
    resource = parse_resource(target + ref)
    resource = Resource(type, resource.warehouse, resource.path, resource.ref, resource.name, id=id)
    management = Management(pdp, None, admins)
    size = data.draw(st.sampled_from((1, 2, 1000)))
    granted = (
        {entry["principal"] for entry in world["grants"]} | {entry["object"] for entry in world["objects"]} | admins
    )
    engines = pdp.bundle.authority(resource.warehouse).engines
    alone = [engine.name for engine in engines] == ["grants"] and type not in ("role", "user")

    async def compare() -> None:
        for action in sorted(ACTIONS[type]):
            found = await paged(
                lambda page: management.list_access(Requester(EMBEDDED_CALLER), action, resource, page),  # noqa: B023
                size,
            )
            plain = [p for p in sorted(PRINCIPALS) if await allowed(pdp, p, action, resource)]
            assert found == [p for p in plain if alone or p in granted], action

    asyncio.run(compare())


@pytest.mark.parametrize(
    ("grants", "admins", "question", "wanted"),
    [
        (["user:i~x select table:v/a/t"], (), ("read", "tag:k"), ["user:i~x"]),
        (["user:i~x assignee role:r"], ("role:r",), ("get_metadata", "project:p"), ["role:r", "user:i~x"]),
    ],
    ids=["seeing the project shows its tags", "members of a configured administrator"],
)
def test_access_that_comes_from_afar(
    grants: list[str], admins: tuple[str, ...], question: tuple[str, str], wanted: list[str]
) -> None:
    entries = [dict(zip(("principal", "privilege", "object"), text.split(), strict=True)) for text in grants]
    objects = [{"object": o, "parent": "project:p"} for o in ("warehouse:v", "tag:k", "role:r")]
    config = {"authorities": {"default": {"engines": ["grants"]}}, "store": {"bootstrap_admins": admins}}
    facts = parse_world({"objects": objects, "grants": entries})
    pdp = build_pdp(settings_of(config, Path()), facts, (inline_rules({}), inline_rules({})))
    management = Management(pdp, None, frozenset(admins))
    action, target = question
    found = asyncio.run(management.list_access(Requester(EMBEDDED_CALLER), action, parse_resource(target), EVERYTHING))
    assert list(found.entries) == wanted
