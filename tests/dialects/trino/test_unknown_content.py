"""A drop or rename of a schema meets the unknown objects that a forbid of CEL or Cedar names, also under other spellings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support.generators.generated_pdps import batch
from support.paths import TESTS

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

ANN = "user:oidc~ann"
DROPS = 'action in [Lakekeeper::Action::"DropTable", Lakekeeper::Action::"DropView"], '


def pdp_of(forbid: str = "", cedar: str = "", known: Sequence[str] = (), granted: str = "") -> Pdp:
    """Return a service with one forbid, of CEL or Cedar, that knows no table but those of `known`."""
    data: dict[str, Any] = {
        "config": {
            "warehouses": {"lake": {"default_ref": "main", "project": "p"}, "other": {"project": "p"}},
            "trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}},
            "authorities": {"default": {"engines": ["cedar", "grants"] if cedar else ["grants"]}},
        },
        "world": {
            "objects": [
                {"object": "project:p"},
                {"object": "warehouse:lake", "parent": "project:p"},
                *({"object": name} for name in known),
            ],
            "grants": [
                {"principal": ANN, "privilege": "ownership", "object": "warehouse:lake"},
                *([{"principal": ANN, "privilege": "describe", "object": granted}] if granted else []),
            ],
        },
        "forbid": {"f": forbid} if forbid else {},
        **({"cedar": {"policies": f'@id("f") {cedar}'}} if cedar else {}),
    }
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def permits(pdp: Pdp, schema: str) -> list[bool]:
    """Return the answers to a drop and to a rename of a schema."""
    named = {"principal": ANN, "resource": f"namespace:lake/{schema}"}
    renamed = {"context": {"arguments": {"destination": "namespace:lake/fresh"}}}
    checks = [{**named, "action": "trino:DropSchema"}, {**named, "action": "trino:RenameSchema", **renamed}]
    return [*map(bool, asyncio.run(pdp.check(batch(checks))).allowed)]


CEDAR = {
    f'{DROPS}resource in Lakekeeper::Namespace::"lake/keep");': ("keep", "kept"),
    f'{DROPS}resource in Lakekeeper::Namespace::"lake/top");': ("top/keep", "topmost/keep"),
    f'{DROPS}resource == Lakekeeper::Table::"lake/Caps/Pay");': ("caps", "cap"),
    f'{DROPS}resource == Lakekeeper::View::"lake/deep/er/v");': ("deep", "er"),
    f'{DROPS}resource in Lakekeeper::Namespace::"lake/deep/er");': ("deep/er", "deep/err"),
    f'{DROPS}resource) when {{ resource.namespace.name like "ke*" }};': ("keep", "other"),
    f'{DROPS}resource) when {{ resource.namespace.name like "top.ke*" }};': ("top/keep", "top"),
    f'{DROPS}resource) when {{ resource has namespace && resource.namespace.name == "keep" }};': ("keep", "kept"),
    f'{DROPS}resource) unless {{ !(resource in Lakekeeper::Namespace::"lake/keep") }};': ("keep", "kept"),
    'action, resource in Lakekeeper::Namespace::"lake/keep") unless { resource is Lakekeeper::Namespace };': ("keep", "kept"),
}  # fmt: skip


CEDAR |= {
    f'{DROPS}resource) when {{ resource.name like "*pay*" && resource in Lakekeeper::Namespace::"lake/c15" }};': ("c15/a", "c16/a"),
    f'{DROPS}resource) when {{ resource.namespace.name like "c8*" && resource.name == "pay" }};': ("c8/x", "c9/x"),
    f'{DROPS}resource) when {{ if resource.name == "pay" then resource.namespace.name like "c13.*" else false }};': ("c13/x/y", "c1/x"),
    f'{DROPS}resource) when {{ resource.namespace.name like "c16.*.x" }};': ("c16/m", "c17/m"),
    f'{DROPS}resource) when {{ resource.namespace.name like "c18.*" && resource.namespace.name like "*.hr" }};': ("c18/m", "c19/m"),
    f'{DROPS}resource) when {{ resource.namespace.name like "top.*" }};': ("top/a/b", "topmost/a/b"),
}  # fmt: skip


@pytest.mark.parametrize("scope", CEDAR)
def test_a_forbid_of_cedar_on_unknown_objects_binds_for_their_schema(scope: str) -> None:
    bound, free = CEDAR[scope]
    pdp = pdp_of(cedar=f"forbid(principal, {scope}")
    assert (permits(pdp, bound), permits(pdp, free)) == ([False, False], [True, True])


CEL = {
    "path.startsWith('top.')": ("top/keep", "topmost/keep"),
    "path.startsWith('top.keep.')": ("top/keep", "top/kept"),
    "path.startsWith('Caps.')": ("caps/in", "cap/in"),
    "path.contains('.keep.')": ("top/keep", "top/kept"),
    "path.matches('^top[.]')": ("top/keep", "other"),
    "path.startsWith('top.') && path.endsWith('.pay')": ("top/keep", "topmost/keep"),
    "path.startsWith('top.') && path.contains('secret')": ("top", "topmost"),
    "path.startsWith('HR.') && path.endsWith('.Secret')": ("hr/in", "hrs"),
    "path.endsWith('_keep') && path.startsWith('ow.')": ("ow/x", "ox"),
    "path.matches('^v2[.].*[.]pay$')": ("v2/x/y", "v3"),
    "path.endsWith('keep.pay')": ("top/keep", "top/kept"),
    "path.contains('p.keep.pa')": ("top/keep", "top/kept"),
    "path.contains('.keep.') ": ("keep/keep", "keep"),
    "path.contains('.keep.pay.')": ("top/keep", "top/kept"),
}


@pytest.mark.parametrize("test", CEL)
@pytest.mark.parametrize("kind", ["contentType == 'ICEBERG_TABLE'", "contentType in ['ICEBERG_VIEW', 'X']"])
def test_a_forbid_on_tables_alone_binds_for_schemas_below_its_path(kind: str, test: str) -> None:
    bound, free = CEL[test]
    pdp = pdp_of(f"op == 'DELETE_ENTITY' && {kind} && {test}")
    assert (permits(pdp, bound), permits(pdp, free)) == ([False, False], [True, True])


@pytest.mark.parametrize("kind", ["view", "table", "generic_table", "dataset"])
def test_a_grant_on_a_name_does_not_tell_what_is_there(kind: str) -> None:
    """A forbid on drops of tables binds for whatever may have the name, but not beside a registered view."""
    pdp = pdp_of(
        "op == 'DELETE_ENTITY' && contentType == 'ICEBERG_TABLE' && path.startsWith('nd.')", known=[f"{kind}:lake/nd/p"]
    )
    granted = pdp_of(
        "op == 'DELETE_ENTITY' && contentType == 'ICEBERG_TABLE' && path.startsWith('nd.')", granted=f"{kind}:lake/nd/p"
    )
    check = {"principal": ANN, "action": "trino:CreateView", "resource": "table_or_view:lake/nd/p"}
    found = [bool(asyncio.run(one.check(batch([check]))).allowed[0]) for one in (pdp, granted)]
    assert found == [kind != "table", False]


def renames(pdp: Pdp, *pairs: tuple[str, str]) -> list[bool]:
    """Return the answers to renames of schemas, as Trino asks."""
    checks = [
        {
            "principal": ANN,
            "action": "trino:RenameSchema",
            "resource": f"namespace:lake/{source}",
            "context": {"arguments": {"destination": f"namespace:lake/{target}"}},
        }
        for source, target in pairs
    ]
    return [*map(bool, asyncio.run(pdp.check(batch(checks))).allowed)]


RENAMES = [
    "action == 'rename' && path.startsWith('rr.')",
    "action == 'rename' && path.startsWith('RR.')",
    "action == 'rename' && path.contains('r.')",
    "action == 'rename' && path == 'rr.Pay'",
    "op == 'DELETE_ENTITY' && 'CATALOG_RENAME_ENTITY_FROM' in actions && path.startsWith('rr.')",
]


@pytest.mark.parametrize(
    "known", [(), ("table:lake/Rr/T",), ("table:lake/rr/t",), ("view:lake/RR/v", "table:lake/RR/x")]
)
@pytest.mark.parametrize("forbid", RENAMES)
def test_a_forbid_of_renames_binds_for_known_and_unknown_objects_of_a_schema(
    forbid: str, known: tuple[str, ...]
) -> None:
    assert renames(pdp_of(forbid, known=known), ("rr", "zz"), ("gold", "zz")) == [False, True]


ARRIVALS = [
    "op == 'CREATE_ENTITY' && contentType == 'ICEBERG_TABLE' && path.startsWith('rr.')",
    "op == 'CREATE_ENTITY' && contentType == 'ICEBERG_VIEW' && path.startsWith('Rr.')",
    "'CATALOG_RENAME_ENTITY_TO' in actions && path == 'rr.pay'",
    "action == 'create_view' && path.startsWith('rr')",
    "action == 'create_table' && path.contains('r.pay')",
]


@pytest.mark.parametrize("known", [(), ("table:lake/Mm/T",)])
@pytest.mark.parametrize("forbid", ARRIVALS)
def test_a_forbid_at_the_new_name_of_a_schema_binds_for_what_may_come_along(
    forbid: str, known: tuple[str, ...]
) -> None:
    assert renames(pdp_of(forbid, known=known), ("mm", "rr"), ("mm", "zz")) == [False, True]


@pytest.mark.parametrize("action", ["CreateTable", "CreateView"])
def test_a_forbid_of_cedar_at_the_new_name_binds_for_what_may_come_along(action: str) -> None:
    pdp = pdp_of(
        cedar=f'forbid(principal, action == Lakekeeper::Action::"{action}", resource == Lakekeeper::Namespace::"lake/rr");'
    )
    assert renames(pdp, ("mm", "rr"), ("mm", "zz")) == [False, True]


def test_a_forbid_without_a_path_sees_no_unknown_object() -> None:
    """As the manual says, of CEL and Cedar."""
    for pdp in (
        pdp_of("op == 'DELETE_ENTITY' && contentType == 'ICEBERG_TABLE'"),
        pdp_of(cedar=f"forbid(principal, {DROPS}resource);"),
        pdp_of(cedar=f'forbid(principal, {DROPS}resource) unless {{ principal in Lakekeeper::Role::"keep" }};'),
        pdp_of(
            cedar=f"forbid(principal, {DROPS}resource) when {{ resource is Lakekeeper::Table && resource.protected }};"
        ),
    ):
        assert permits(pdp, "keep") == [True, True]


def test_a_creation_over_an_unknown_name_meets_a_forbid_of_cedar() -> None:
    """Trino does not tell `CREATE OR REPLACE`: a forbid of the drop keeps it from creating, as one of CEL does."""
    pdp = pdp_of(cedar=f'forbid(principal, {DROPS}resource == Lakekeeper::Table::"lake/s/pay");')
    checks = [
        {"principal": ANN, "action": f"trino:{operation}", "resource": f"table_or_view:lake/s/{name}"}
        for operation in ("CreateTable", "CreateView", "CreateMaterializedView")
        for name in ("pay", "paid")
    ]
    assert [*map(bool, asyncio.run(pdp.check(batch(checks))).allowed)] == [False, True] * 3
