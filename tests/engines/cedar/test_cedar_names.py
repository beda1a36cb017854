"""Ids and texts of Cedar policies that no check has: a forbid with one does not load, and says what to write.

The reports behind: forbids over a scope or attribute that could match nobody, which loaded without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.service.command_line import COMPOSITION

from pdp.config.load import load_settings
from pdp.config.names import KnownNames, NameCheck
from pdp.engines.cedar.lint import CedarRemark, lint_cedar
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText
from pdp.errors import PdpError, PolicyError
from pdp.facts.snapshot import Facts

LAKE = frozenset({"lake"})
KNOWN = KnownNames(
    LAKE,
    projects=frozenset({"p1"}),
    roles=frozenset({"contractor"}),
    token_roles=frozenset({"EXT"}),
    providers=frozenset({"oidc", "kc"}),
    provider="oidc",
)
PERMIT = '@id("all") permit(principal, action, resource);\n'
ENTITIES = [
    {"uid": {"type": "Lakekeeper::Role", "id": "auditor"}, "attrs": {}, "parents": []},
    {"uid": {"type": "Lakekeeper::Table", "id": "lake/raw.events"}, "attrs": {}, "parents": []},
]


def full(text: str) -> str:
    """Return a text with the namespace before the types, which the cases leave out."""
    for name in ("User", "Role", "Project", "Warehouse", "Namespace", "Table", "View", "Tag", "Server", "Action"):
        text = text.replace(f"{name}::", f"Lakekeeper::{name}::").replace(f"is {name}", f"is Lakekeeper::{name}")
    return text


def sources(
    effect: str, scope: str, condition: str = "", *, strict: bool = False, entities: Any = ENTITIES
) -> CedarSources:
    when = f" when {{ {condition} }}" if condition else ""
    text = full(f'{PERMIT}@id("it")\n{effect}({scope}){when};')
    files = (SourceText(json.dumps(entities), "e.json"),)
    return CedarSources((SourceText(text, "p.cedar"),), files, names=NameCheck(KNOWN, strict=strict))


def error_of(given: CedarSources) -> str:
    try:
        load_model(given)
    except PolicyError as error:
        return str(error)
    return ""


def remarks(given: CedarSources) -> list[CedarRemark]:
    return [remark for remark in lint_cedar(given) if remark.code in ("cedar-policy", "cedar-name")]


EVERYBODY = "principal, action, resource"
WRONG: dict[tuple[str, str], str] = {
    ('principal == User::"user:oidc~alice", action, resource', ""): "`<idp>~<subject>`",
    ('principal == User::"alice", action, resource', ""): "`<idp>~<subject>`",
    ('principal == User::"OIDC~alice", action, resource', ""): "`<idp>~<subject>`",
    ('principal in Role::"role:analyst", action, resource', ""): "write `analyst`",
    ('principal in Role::"user:oidc~alice", action, resource', ""): "is a user and no role",
    ('principal in Role::"Contractor", action, resource', ""): "write `contractor`",
    ('principal in Role::"Auditor", action, resource', ""): "write `auditor`",
    ('principal is User in Role::"CONTRACTOR", action, resource', ""): "write `contractor`",
    ('principal == Role::"analyst", action, resource', ""): 'write `principal in Lakekeeper::Role::"analyst"`',
    (EVERYBODY, 'principal == Role::"analyst"'): "write `principal in",
    (EVERYBODY, 'Role::"analyst" == principal'): "write `principal in",
    (EVERYBODY, 'resource is Table && (resource.protected || principal == Role::"a")'): "write `principal in",
    (EVERYBODY, '!(principal != Role::"analyst")'): "write `principal in",
    (EVERYBODY, 'principal in [Role::"x", Role::"role:y"]'): "write `y`",
    ('principal, action, resource in Warehouse::"Lake"', ""): "nearest known is `lake`",
    ('principal, action, resource in Warehouse::"warehouse:lake"', ""): "no warehouse",
    ('principal, action, resource in Project::"P1"', ""): "the project `p1`",
    ('principal, action, resource in Project::"project:p1"', ""): "write `p1`",
    ('principal, action, resource == Server::"Server"', ""): "there is one server",
    ('principal, action, resource == Table::"table:lake/sales/orders"', ""): "no warehouse `table:lake`",
    ('principal, action, resource == Table::"lake.sales.orders"', ""): "`lake/sales/orders`",
    ('principal, action, resource == Table::"lake/hr.salaries"', ""): "write `lake/hr/salaries`",
    ('principal, action, resource == View::"lake/hr.eu.v"', ""): "write `lake/hr/eu/v`",
    ('principal, action, resource == Table::"Lake/sales/orders"', ""): "nearest known is `lake`",
    ('principal, action, resource == Table::"lake/sales/orders@main"', ""): "the id begins with the warehouse",
    ('principal, action, resource in Namespace::"sales"', ""): "begins with the warehouse",
    ('principal, action, resource in Namespace::"lake/sales/"', ""): "begins with the warehouse",
    (EVERYBODY, 'resource is Table && resource.warehouse.name == "Lake"'): "the warehouse `lake`",
    (EVERYBODY, 'resource is Table && "Lake" == resource.warehouse.name'): "the warehouse `lake`",
    (EVERYBODY, 'resource is Table && ["lake", "LAKE"].contains(resource.warehouse.name)'): "the warehouse `lake`",
    (EVERYBODY, 'resource is Table && resource.warehouse.name like "La*"'): "the warehouse `lake`",
    (EVERYBODY, 'resource is Table && resource.namespace.warehouse.name == "lake/x"'): "write `lake`",
    (EVERYBODY, 'resource is Warehouse && resource.name == "warehouse:lake"'): "dots between its parts",
    ("principal, action, resource is Warehouse", 'resource.name == "Lake"'): "the warehouse `lake`",
    (EVERYBODY, 'resource is Table && resource.namespace.name == "lake/sales"'): "write `sales`",
    (EVERYBODY, 'resource is Table && resource.namespace.name like "sales/*"'): "write `sales.`",
    (EVERYBODY, 'resource is Table && resource.name == "lake/sales/orders"'): "write `sales.orders`",
    (EVERYBODY, 'principal is User && principal.source_id == "oidc~alice"'): "write `alice`",
    (EVERYBODY, 'principal is User && principal.source_id == "user:oidc~alice"'): "write `alice`",
    (EVERYBODY, 'principal is User && principal.provider_id == "OIDC"'): "write `oidc`",
    (EVERYBODY, 'principal is User && principal.provider_id == "oidc~"'): "no id of a provider",
    (EVERYBODY, 'principal is User && principal.project_roles.contains({provider_id: "KC", source_id: "x"})'): "`kc`",
    ('principal//c\n== Role::"analyst", action, resource', ""): "write `principal in",
    (EVERYBODY, 'principal // c\r == Role::"analyst"'): "write `principal in",
    (EVERYBODY, '(principal) == Role::"analyst"'): "write `principal in",
    (EVERYBODY, 'Role::"analyst" ==//c\n (principal)'): "write `principal in",
    (EVERYBODY, 'resource is Table && ("Lake")//c\n == resource.warehouse.name'): "the warehouse `lake`",
    (EVERYBODY, 'resource is Table && resource.warehouse.name ==//c\r ("Lake")'): "the warehouse `lake`",
    (EVERYBODY, 'resource is Table && ["LAKE"].//c\ncontains(resource.warehouse.name)'): "the warehouse `lake`",
}


@pytest.mark.parametrize(("policy", "wanted"), WRONG.items())
def test_a_forbid_in_a_form_that_no_check_has_does_not_load(policy: tuple[str, str], wanted: str) -> None:
    error = error_of(sources("forbid", *policy))
    assert wanted in error
    assert error.startswith(("p.cedar:2:", "p.cedar:3:", "p.cedar:4:"))
    found = remarks(sources("forbid", *policy))
    assert any(remark.severity == "error" and wanted in remark.message for remark in found)


@pytest.mark.parametrize(("policy", "wanted"), WRONG.items())
def test_the_same_of_a_permit_is_a_remark_unless_names_are_strict(policy: tuple[str, str], wanted: str) -> None:
    """Ids that are no id of the type stay errors of every policy."""
    found = remarks(sources("permit", *policy))
    assert any(wanted in remark.message for remark in found)
    assert wanted in error_of(sources("permit", *policy, strict=True))
    is_nothing = any("is nothing" in remark.message for remark in found)
    assert bool(error_of(sources("permit", *policy))) is is_nothing


UNKNOWN: dict[tuple[str, str], str] = {
    ('principal, action, resource in Project::"00000000-0000-0000-0000-000000000000"', ""): "no project",
    ('principal == User::"okta~alice", action, resource', ""): "no provider `okta`",
    ('principal, action, resource in Namespace::"lake/a.b"', ""): "write `a/b`",
    ('principal, action, resource == Table::"lake/a.b/t"', ""): "write `a/b`",
    (EVERYBODY, 'resource is Table && resource.warehouse.name == "hive"'): "no warehouse `hive`",
    (EVERYBODY, 'resource is Table && resource.namespace.name == "lake.sales"'): "begins with the warehouse",
    (
        'principal, action in [Action::"ReadTableData", Action::"CreateProject"], resource is Table',
        "",
    ): "`CreateProject`",
}


@pytest.mark.parametrize(("policy", "wanted"), UNKNOWN.items())
def test_an_unknown_name_is_a_remark_unless_names_are_strict(policy: tuple[str, str], wanted: str) -> None:
    assert error_of(sources("forbid", *policy)) == ""
    (found,) = remarks(sources("forbid", *policy))
    assert (found.severity, found.code, wanted in found.message) == ("warning", "cedar-name", True)
    assert wanted in error_of(sources("forbid", *policy, strict=True))


SOUND: tuple[tuple[str, str], ...] = (
    ('principal == User::"oidc~alice", action, resource', ""),
    ('principal == User::"anonymous", action, resource', ""),
    ('principal == User::"kc~a:b~c/d@e", action, resource', ""),
    ('principal in Role::"contractor", action, resource', ""),
    ('principal in Role::"analyst", action, resource in Namespace::"lake/sales/eu"', ""),
    ('principal in Role::"auditor", action, resource == Role::"analyst"', ""),
    ('principal is Role in Role::"p1/kc~x", action, resource', ""),
    ('principal, action, resource == Table::"lake/raw.events"', ""),
    ('principal, action, resource == Table::"lake/sales/or.ders"', ""),
    ('principal, action, resource in Namespace::"lake"', ""),
    ('principal, action in Action::"TableModifyActions", resource is Table', ""),
    ('principal, action == Action::"UpdateUsers", resource == Server::"server"', ""),
    (EVERYBODY, 'resource is Table && resource.warehouse.name == "lake" && resource.namespace.name == "sales.eu"'),
    (EVERYBODY, 'resource is Table && resource.name like "*.tmp" && resource.name != "a.b"'),
    (EVERYBODY, 'resource is Table && resource.name == "a/b" || resource is View && resource.name like "x/*"'),
    (EVERYBODY, 'principal is User && principal.provider_id == "kc" && principal.source_id like "svc-*"'),
    (EVERYBODY, 'principal is User && principal has email && principal.email like "*@corp.example"'),
)


@pytest.mark.parametrize("policy", SOUND)
def test_a_name_that_a_check_may_have_is_no_fault(policy: tuple[str, str]) -> None:
    assert error_of(sources("forbid", *policy, strict=True)) == ""
    assert remarks(sources("forbid", *policy)) == []


def test_policies_that_decided_before_are_not_judged() -> None:
    """An archive has policies of earlier versions: they decide again as they did."""
    text = full('@id("it") forbid(principal == Role::"role:x", action, resource);')
    entities = json.dumps([{"uid": {"type": "Lakekeeper::User", "id": "oidc~u"}, "parents": [
        {"type": "Lakekeeper::Project", "id": "p1"}]}])  # fmt: skip
    old = CedarSources((SourceText(text),), (SourceText(entities),))
    model = load_model(old)
    assert ([one.id for one in model.policies.policies], len(model.files.by_uid)) == (["it"], 1)
    with pytest.raises(PdpError):
        load_model(replace(old, names=NameCheck(KnownNames(), forbid=True)))


@pytest.mark.parametrize(
    ("type", "id", "parent"),
    [
        ("Table", "lake/s/t", ("Warehouse", "lake")),
        ("User", "oidc~u", ("Project", "p1")),
        ("Namespace", "lake/s", ("Project", "p1")),
        ("Role", "x", ("Server", "server")),
    ],
)
def test_a_parent_of_a_type_that_stands_not_directly_above(type: str, id: str, parent: tuple[str, str]) -> None:
    above = [{"type": f"Lakekeeper::{parent[0]}", "id": parent[1]}]
    entities = [{"uid": {"type": f"Lakekeeper::{type}", "id": id}, "attrs": {}, "parents": above}]
    error = error_of(sources("forbid", EVERYBODY, entities=entities))
    assert "does not fit the schema: parent" in error
    assert error.startswith("e.json:1:")


@pytest.mark.parametrize(
    ("condition", "is_never"),
    [
        ("false", True),
        ("resource is Lakekeeper::Table && resource.protected && false", True),
        ("true", False),
        ("false || resource is Lakekeeper::Table", False),
    ],
)
def test_a_policy_that_never_holds_is_a_remark(condition: str, is_never: bool) -> None:
    codes = [remark.code for remark in lint_cedar(sources("forbid", EVERYBODY, condition))]
    assert ("cedar-never" in codes) is is_never


def test_attributes_of_a_user_that_no_schema_has_do_not_load() -> None:
    """Claims of a token are no attributes of Cedar: a policy on one is refused, and never silent."""
    for condition in ('principal.department == "eng"', 'context.now == "x"', 'context.ip == "x"'):
        assert "does not fit the schema" in error_of(sources("forbid", EVERYBODY, f"principal is User && {condition}"))


PREFIXES = {"User": "user:", "Role": "role:", "Project": "project:", "Warehouse": "warehouse:", "Namespace": "namespace:",
            "Table": "table:", "View": "view:"}  # fmt: skip
SOUND_IDS = {"User": "oidc~ann", "Role": "contractor", "Project": "p1", "Warehouse": "lake", "Namespace": "lake/a/b",
             "Table": "lake/a/t", "View": "lake/a/v"}  # fmt: skip
MISTAKES: dict[str, Callable[[str, str], str]] = {
    "prefix": lambda type, id: PREFIXES[type] + id,
    "case": lambda type, id: id.title() if type in ("Role", "Project", "Warehouse") else id.replace("lake", "LAKE").replace("oidc", "OIDC"),
    "dots": lambda type, id: id.replace("/", ".").replace("~", "."),
    "ref": lambda type, id: f"{id}@main",
    "star": lambda type, id: id[:-1] + "*",
    "leading": lambda type, id: f"/{id}",
}  # fmt: skip


@given(
    st.sampled_from(sorted(SOUND_IDS)), st.sampled_from(sorted(MISTAKES)), st.sampled_from(["==", "in", "when", "set"])
)
@settings(max_examples=80, deadline=None)
def test_generated_mistakes_in_ids(type: str, mistake: str, form: str) -> None:
    """A mistake in an id is refused, wherever a forbid has the id. The id without the mistake loads."""
    id = SOUND_IDS[type]
    variable, other = ("principal", "resource") if type in ("User", "Role") else ("resource", "principal")

    def loads(id: str) -> bool:
        uid = f'{type}::"{id}"'
        form_ = "in" if type == "Role" else form  # a principal that equals a role is another mistake
        if form_ in ("when", "set"):
            asked = f"{variable} in [{uid}]" if form_ == "set" else f"{variable} == {uid}"
            return error_of(sources("forbid", EVERYBODY, f"{asked} && {other} == {other}")) == ""
        scope = (
            f"principal, action, resource {form_} {uid}"
            if variable == "resource"
            else f"principal {form_} {uid}, action, resource"
        )
        return error_of(sources("forbid", scope)) == ""

    assert loads(id)
    mistaken = MISTAKES[mistake](type, id)
    # roles have any id, so a dot, a slash or an `@` is no mistake there, and a subject has any sign but no other case
    if (
        mistaken == id
        or (type == "Role" and mistake in ("dots", "ref", "leading"))
        or (type, mistake) == ("User", "ref")
    ):
        return
    if mistake == "dots" and type in ("Project", "Warehouse"):
        return
    if mistake == "ref" and type == "Project":
        assert not loads(mistaken)  # an `@` of a name is an escape
        return
    assert not loads(mistaken), mistaken


def test_the_start_and_its_configuration(tmp_path: Path) -> None:
    """The known names are those of the configuration, and the permit loads with a warning of `config check` alone."""
    (tmp_path / "p.cedar").write_text(
        full(f'{PERMIT}@id("f") forbid(principal in Role::"Contractor", action, resource);')
    )
    data = {
        "warehouses": {"lake": {"project": "p1"}},
        "authorities": {"default": {"engines": ["cedar"]}},
        "policies": {"rules": [], "cedar": {"policies": ["p.cedar"]}},
        "trino": {"groups": {"staff": "contractor"}},
    }
    (tmp_path / "pdp.yaml").write_text(yaml.safe_dump(data))
    settings = load_settings(tmp_path / "pdp.yaml", (), {})
    with pytest.raises(PdpError, match="write `contractor`"):
        COMPOSITION.build_pdp(settings, Facts.empty(), COMPOSITION.read_rules(settings))


TRINO = replace(KNOWN, catalogs=frozenset({"lk"}))
CAPITALS = ("Sec*", "*Sec", "se*T", "*.Pay", "[A-Z]*", "\\u{53}ec*")


@pytest.mark.parametrize("attribute", ["name", "namespace.name"])
@pytest.mark.parametrize("pattern", CAPITALS)
def test_a_pattern_with_capitals_is_a_finding_where_trino_asks(pattern: str, attribute: str) -> None:
    """A text that is compared whole is a spelling to ask about; a part of a name is none."""

    def of(pattern: str, names: NameCheck, effect: str = "forbid") -> CedarSources:
        condition = f'resource is Table && resource.{attribute} like "{pattern}"'
        return replace(sources(effect, EVERYBODY, condition), names=names)

    (found,) = remarks(of(pattern, NameCheck(TRINO)))
    assert (found.severity, found.code) == ("warning", "cedar-name")
    assert "in lower case" in found.message
    assert "in lower case" in error_of(of(pattern, NameCheck(TRINO, strict=True)))
    for other in (of(pattern, NameCheck(KNOWN)), of("sec*", NameCheck(TRINO)), of("Sec", NameCheck(TRINO))):
        assert remarks(other) == []
    assert remarks(of(pattern, NameCheck(TRINO), "permit")) == []


OF_TRINO: dict[tuple[str, str], str] = {
    ('principal, action, resource == Table::"lake/hr/pay$files"', ""): "write `lake/hr/pay`",
    (EVERYBODY, 'resource in [Table::"lake/hr/pay$materialized_view_storage"]'): "write `lake/hr/pay`",
    ('principal, action, resource in Namespace::"lake/lk/hr"', ""): "write `lake/hr`",
    (EVERYBODY, 'resource == View::"lake/lk/hr/v"'): "write `lake/hr/v`",
    (EVERYBODY, 'resource is Table && resource.name == "pay$partitions"'): "write `pay`",
    ('principal, action == Action::"CreateTable", resource', 'context has table_name && context.table_name == "hr.pay"'): "write `pay`",
    ('principal, action == Action::"CreateView", resource', 'context has view_name && "lake/hr/v" == context.view_name'): "`lake/hr/v`",
}  # fmt: skip
OF_ANYBODY = (
    ('principal, action, resource == Table::"lake/hr/pay$x"', ""),
    ('principal, action, resource in Namespace::"lake/lk"', ""),
    ('principal, action, resource == Table::"lake/lk/t"', ""),
    (EVERYBODY, 'resource is Table && resource.name == "$files"'),
    ('principal, action == Action::"CreateTable", resource', 'context has table_name && context.table_name == "pay"'),
)


@pytest.mark.parametrize(("policy", "wanted"), [*OF_TRINO.items(), *((policy, "") for policy in OF_ANYBODY)])
def test_a_name_as_trino_has_it_is_a_finding_where_trino_asks(policy: tuple[str, str], wanted: str) -> None:
    found = [
        remark.message for remark in remarks(replace(sources("forbid", *policy), names=NameCheck(TRINO, forbid=True)))
    ]
    assert [wanted in message for message in found] == [True] * bool(wanted), found


NEVER = (
    ('principal has display_name && principal.display_name == "x"', "display_name"),
    ('context.delegated && (principal has derived_attributes) && principal.derived_attributes.hasTag("x")', "derived_attributes"),
    ("principal has display_name || false", ""),
    ("!(principal has display_name)", ""),
    ("resource has pii && true", "pii"),
    ("resource is Table && resource has protectd && true", "protectd"),
    ("context has table_nam && true", "table_nam"),
    ('principal has email && principal.email like "*@x"', ""),
    ("resource has protected && resource has name && context has table_name", ""),
)  # fmt: skip


@pytest.mark.parametrize(("condition", "attribute"), NEVER)
def test_an_attribute_that_no_entity_has_keeps_a_forbid_from_holding(condition: str, attribute: str) -> None:
    found = [each for each in remarks(sources("forbid", EVERYBODY, condition)) if "has the attribute" in each.message]
    assert [f"`{attribute}`" in each.message and each.severity == "warning" for each in found] == [True] * bool(
        attribute
    )
    if attribute:
        assert attribute in error_of(sources("forbid", EVERYBODY, condition, strict=True))


def test_an_attribute_of_a_file_is_given() -> None:
    user = {"uid": {"type": "Lakekeeper::User", "id": "oidc~u"}, "attrs": {"display_name": "x"}, "parents": []}
    given = sources("forbid", EVERYBODY, NEVER[0][0], entities=[*ENTITIES, user])
    assert remarks(given) == []
    (found,) = remarks(sources("forbid", EVERYBODY, f"!({NEVER[3][0]}) && true"))
    assert "`display_name`" in found.message
    (found,) = remarks(replace(given, entities=(), policies=(SourceText(full(
        '@id("it") forbid(principal, action, resource) unless { !(principal has display_name) || context.delegated };'
    ), "p.cedar"),)))  # fmt: skip
    assert "`display_name`" in found.message


@pytest.mark.parametrize("condition", ["", "context.delegated", 'principal is User && principal.source_id == "x"'])
def test_a_forbid_below_a_namespace_may_name_an_action_of_tables(condition: str) -> None:
    scope = 'principal, action == Action::"DropTable", resource in Namespace::"lake/pg"'
    assert error_of(sources("forbid", scope, condition, strict=True)) == ""
    assert [one.message for one in remarks(sources("forbid", scope, condition))] == []
    exact = scope.replace("resource in", "resource ==")
    assert "no check asks about a `Lakekeeper::Namespace`" in error_of(sources("forbid", exact, condition, strict=True))
