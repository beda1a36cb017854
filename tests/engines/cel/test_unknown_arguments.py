"""Arguments that an operation takes and a question lacks are unknown: a forbid that tests for one denies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.oracles.trino_wants import asking

from pdp.engines.cel.engine import CelForbid
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import EngineQuestion
from pdp.facts.snapshot import Facts
from pdp.model.question import NO_ARGUMENTS, Principal, Question, Resource, named
from pdp.model.redaction import DEFAULT_MASKER
from pdp.model.trino_operations import (
    MADE_WITH,
    OBJECT_KEYS,
    TAKEN_WITH,
    TRINO_OPERATIONS,
    TRINO_PREFIX,
    argument_keys,
    object_keys,
)
from pdp.model.vocabulary import ARGUMENTS, CEL_CHECKS

FORMS = [
    "arguments.{k} == '{v}'",
    "arguments['{k}'] == '{v}'",
    "has(arguments.{k}) && arguments.{k} == '{v}'",
    "'{k}' in arguments && arguments['{k}'] == '{v}'",
    "has(arguments.{k}) ? arguments.{k} == '{v}' : false",
    "'{k}' in arguments ? arguments.{k} == '{v}' : false",
    "has(arguments.{k}) && !arguments.{k}.startsWith('tmp')",
    "!(!has(arguments.{k}) || arguments.{k} != '{v}')",
    "arguments.exists(k, arguments[k] == '{v}')",
    "arguments.exists(k, k == '{k}' && arguments[k] == '{v}')",
    "!arguments.all(k, arguments[k] != '{v}')",
    "['{v}', 'x'].exists(v, has(arguments.{k}) && arguments.{k} == v)",
    "['{k}'].exists(k, k in arguments && arguments[k] == '{v}')",
    "'{v}' in arguments.map(k, arguments[k])",
    "size(arguments.filter(k, arguments[k] == '{v}')) > 0",
    "size(arguments) == {n}",
    "arguments.size() > 0 && arguments.exists_one(k, k == '{k}')",
    "arguments == {all}",
    "arguments in [{all}]",
    "dyn(arguments) == {all}",
    "has(dyn(arguments).{k}) && dyn(arguments).{k} == '{v}'",
]
"""Forms of a forbid about the value `{v}` of the argument `{k}`."""
COUNTING = {text for text in FORMS if "size(arguments) ==" in text or "exists_one" in text or "startsWith" in text}
"""Forms that hold for another value, too."""
NAMES = ("pg", "hr", "pay")


def binds(rule: str, action: str, resource: Resource) -> bool:
    """Tell whether a forbid binds one resource: alone, and beside another."""
    engine = CelForbid(inline_rules({"r": rule}), "oidc", DEFAULT_MASKER)
    group = EngineQuestion(Question(Principal("user", "oidc~a"), action), resource.type, resource.warehouse, "main")
    alone = engine.decide(group, [resource], Facts.empty()).effects[0]
    assert engine.decide(group, [resource, resource], Facts.empty()).effects == bytes([alone, alone])
    explained = engine.explain(group, resource, Facts.empty()).outcome
    assert explained == ("forbid" if alone else "silent")
    return bool(alone)


def form(text: str, key: str, value: str, every: dict[str, str]) -> str:
    return text.replace("{k}", key).replace("{v}", value).replace("{n}", str(len(every))).replace("{all}", str(every))


LACKING = [(name, keys) for name in TRINO_OPERATIONS if len(keys := object_keys(TRINO_PREFIX + name)) > 1]
"""Operations on objects below a catalog, with the keys that each takes."""


def at(count: int, *names: str) -> Resource:
    catalog, *path = (names or NAMES)[:count]
    return Resource("catalog", catalog, tuple(path))


@pytest.mark.parametrize("text", FORMS)
def test_a_forbid_on_a_name_binds_where_the_operation_is_asked_without(text: str) -> None:
    for name, keys in LACKING:
        every = dict(zip(keys, NAMES, strict=False))
        rule, action = form(text, keys[-1], every[keys[-1]], every), TRINO_PREFIX + name
        assert binds(rule, action, at(len(keys) - 1)), name
        assert binds(rule, action, at(len(keys))), name
        assert not binds(f"op == '{action}' && arguments.catalog == 'my' && ({rule})", action, at(len(keys) - 1)), name
        other = at(len(keys), "pg", *["other"] * (len(keys) - 1))
        assert binds(rule, action, other) is (text in COUNTING), name


def test_an_operation_takes_no_names_below_its_object() -> None:
    for name in TRINO_OPERATIONS:
        keys = object_keys(TRINO_PREFIX + name)
        for key in OBJECT_KEYS[len(keys) :]:
            if keys:
                assert not binds(f"has(arguments.{key}) && arguments.{key} == 'x'", TRINO_PREFIX + name, at(len(keys)))
        assert set(keys) <= argument_keys(TRINO_PREFIX + name)
    for table in (TAKEN_WITH, MADE_WITH):
        for schema in (name for name in table if "Schema" in name):
            takes_tables = [len(object_keys(TRINO_PREFIX + kin)) == 3 for kin in table[schema] if "Schema" not in kin]
            assert all(takes_tables), schema


MADE = [key for key, argument in ARGUMENTS.items() if argument == "name" and key not in CEL_CHECKS]


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize(("type", "action"), MADE)
def test_a_forbid_on_a_new_name_binds_where_nobody_knows_the_name(text: str, type: str, action: str) -> None:
    place = Resource(type, name="" if type == "server" else "p1")
    every = {"name": "boss"} if type == "server" else {"name": "boss", "project": "p1"}
    rule = form(text, "name", "boss", every)

    def asked(rule: str, arguments: Any) -> bool:
        return binds(rule, action, Resource(type, name=place.name, arguments=arguments))

    assert asked(rule, NO_ARGUMENTS)
    assert asked(rule, named("boss"))
    assert asked(rule, named("team")) is (text in COUNTING)
    if type == "project":
        assert not asked(f"arguments.project == 'p2' && ({rule})", NO_ARGUMENTS)


def test_a_warehouse_has_its_name_among_the_arguments() -> None:
    for text in FORMS:
        rule = form(text, "name", "lake", {"name": "lake"})
        assert binds(rule, "update_storage", Resource("warehouse", "lake")), text
        other = binds(rule, "update_storage", Resource("warehouse", "other"))
        assert other is (text in COUNTING), text


async def test_schemas_of_unmanaged_catalogs_take_their_tables_along(tmp_path: Path) -> None:
    def schema(name: str, catalog: str = "pg") -> dict[str, Any]:
        return {"schema": {"catalogName": catalog, "schemaName": name}}

    asked = [
        {"operation": "DropSchema", "resource": schema("hr")},
        {"operation": "RenameSchema", "resource": schema("hr"), "targetResource": schema("x")},
        {"operation": "DropSchema", "resource": schema("other")},
        {"operation": "RenameSchema", "resource": schema("x"), "targetResource": schema("y")},
    ]
    for number, text in enumerate(FORMS):
        (tmp_path / str(number)).mkdir()
        rule = form(text, "table", "pay", dict(zip(OBJECT_KEYS, NAMES, strict=True)))
        forbid = {"f": f"op == 'trino:DropTable' && arguments.schema == 'hr' && ({rule})"}
        world = {"config": {"trino": {"unmanaged_catalogs": "allow"}}, "rules": {}, "forbid": forbid}
        async with asking(world, tmp_path / str(number)) as ask:
            bodies = [
                {"input": {"context": {"identity": {"user": "bob", "groups": []}}, "action": action}}
                for action in asked
            ]
            assert [(await ask("allow", body))["result"] for body in bodies] == [False, False, True, True], text
