"""A forbid that tests names by patterns holds in any case, over every surface, whichever spelling is registered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clients.http_client import client_of
from support.generators.generated_pdps import batch
from support.paths import TESTS
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.decision.service import Pdp
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.engines.engine import ANY_TEXT, ForbiddenPath
from pdp.engines.spelled_names import MOST_SPELLINGS, other_texts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp

PAT = "user:oidc~pat"
SPELL: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "title": str.title}
CEDAR: dict[str, tuple[str, str]] = {
    'resource.name like "<tmp>_*"': ("s/tmp_a", "s/a_tmp_"),
    'resource.name like "*_<bak>"': ("s/x_bak", "s/x_bak_"),
    'resource.name like "*<mid>*"': ("s/amidb", "s/a_m"),
    'resource.name like "<tmp>_*_<old>_*<z>_<bak>"': ("s/tmp_a_old_bz_bak", "s/tmp_a_old_b_bak"),
    'resource.name like "*<a>*<b>*<a>*"': ("s/xaxbxa", "s/xaxb"),
    'resource.name like "<\\u{74}mp>_*"': ("s/tmp_a", "s/a_tmp_"),
    'resource.name like "<exact>"': ("s/exact", "s/exactly"),
    'resource.name like "<a>\\*<b>*"': ("s/a%2Abx", "s/axbx"),
    'resource.name like "<a>/<b>*"': ("s/a%2Fbx", "s/abx"),
    'resource.name like "<a>.<b>*"': ("s/a.bx", "s/abx"),
    'resource.namespace.name like "<hr>*"': ("hr1/t", "ahr/t"),
    'resource.namespace.name like "<a>*" && resource.name like "<a>*"': ("ax/ay", "ax/y"),
    'resource.namespace.name like "<hr>*" && resource.name like "<tmp>_*" && resource.name like "*_<bak>"':
        ("hr1/tmp_a_bak", "hr1/tmp_a"),
    'resource in Lakekeeper::Namespace::"lake/<hr>" && resource.name like "<a>*" && resource.name like "*<b>*<c>"':
        ("hr/axbxc", "hr/axc"),
    'resource.name like "<tmp>_*" && !(resource.name like "*_<ok>")': ("s/tmp_a", "s/a_tmp_"),
    'if resource.name like "<tmp>_*" then true else false': ("s/tmp_a", "s/a_tmp_"),
    'resource has name && resource.name like "<tmp>_*"': ("s/tmp_a", "s/a_tmp_"),
    '["<one>", "<two>"].contains(resource.name) || resource.name like "<tmp>_*"': ("s/tmp_a", "s/three"),
    'principal has email || resource.name like "<tmp>_*"': ("s/tmp_a", "s/a_tmp_"),
}  # fmt: skip
"""Condition of a forbid on tables, and a table that the condition holds for, and one that it does not hold for."""
UNLESS: dict[str, tuple[str, str]] = {
    '!(resource.name like "<tmp>_*")': ("s/tmp_a", "s/a_tmp_"),
    'if resource.name like "<tmp>_*" then false else true': ("s/tmp_a", "s/a_tmp_"),
}
CEL: dict[str, tuple[str, str]] = {
    "path.startsWith('<hr>.') && path.contains('.<tmp>_') && path.endsWith('_<bak>')": ("hr/tmp_a_bak", "hr/tmp_a"),
    "path.matches('^<a>[.]<b>[.]<c>$')": ("a/b/c", "a/b/d"),
    "path.split('.').filter(part, part == '<a>').size() == 3": ("a/a/a", "a/b/a"),
    "path.contains('<a>') && path.contains('<b>') && path.contains('<c>') && !path.contains('<d>')":
        ("s/a_b_c", "s/a_b_x"),
}  # fmt: skip
FORMS = [
    *(("when", text, *names) for text, names in CEDAR.items()),
    *(("unless", text, *names) for text, names in UNLESS.items()),
    *(("cel", text, *names) for text, names in CEL.items()),
]


def spelled(text: str, spell: Callable[[str], str]) -> str:
    """Return a condition with the marked letters in a spelling. The letters of an escape stay."""
    return re.sub(r"<(\\u\{74\})?([^>]*)>", lambda found: _escape(found[1], spell) + spell(found[2]), text)


def _escape(sign: str | None, spell: Callable[[str], str]) -> str:
    return f"\\u{{{ord(spell('t')):x}}}" if sign else ""


def policies_of(kind: str, text: str) -> dict[str, Any]:
    if kind == "cel":
        return {"forbid": {"f": f"{text} && op != 'VIEW_REFERENCE'"}}
    scope = "forbid(principal, action, resource is Lakekeeper::Table)"
    return {"cedar": {"policies": f'@id("f") {scope} {kind} {{ {text} }};'}}


def pdp_of(kind: str, text: str, *known: str) -> Pdp:
    """Return a service with one forbid, and a warehouse that Pat owns."""
    data: dict[str, Any] = {
        "config": {
            "warehouses": {"lake": {"default_ref": "main", "project": "p"}},
            "trino": {"catalogs": {"k": {"warehouse": "lake", "ref": "main"}}},
            "authorities": {"default": {"engines": ["grants"] if kind == "cel" else ["cedar", "grants"]}},
            "policies": {"cel_extensions": ["strings"]},
        },
        "world": {
            "objects": ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, *map(reference, known)],
            "grants": [{"principal": PAT, "privilege": "ownership", "object": "warehouse:lake"}],
        },
        **policies_of(kind, text),
    }
    return build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())[0]


def reference(path: str) -> str:
    return f"table:lake/{path}"


def checks_of(path: str, kind: str) -> list[dict[str, Any]]:
    """Return checks about a table; for CEL, which sees both paths, also those that bring another table there."""
    return [
        *({"action": action, "resource": reference(path)} for action in ("read_data", "drop", "get_metadata")),
        *(
            {"action": action, "resource": "table:lake/o/t", "context": {"arguments": {"destination": reference(path)}}}
            for action in ("move", "rename")
            if kind == "cel"
        ),
    ]


def body_of(action: dict[str, Any]) -> bytes:
    return json.dumps({"input": {"context": {"identity": {"user": "pat", "groups": []}}, "action": action}}).encode()


async def asked_by_trino(pdp: Pdp, path: str) -> list[bool]:
    *above, name = path.split("/")
    table = {"table": {"catalogName": "k", "schemaName": ".".join(above), "tableName": name, "columns": ["c"]}}
    surface, found = TrinoSurface(pdp, 1000, 10), []
    for operation in ("SelectFromColumns", "DropTable", "TruncateTable", "InsertIntoTable"):
        body = body_of({"operation": operation, "resource": table})
        found.append(json.loads(await surface.allow(body, EMBEDDED_CALLER))["result"])
    body = body_of({"operation": "FilterTables", "filterResources": [table]})
    return [*found, bool(json.loads(await surface.batch(body, EMBEDDED_CALLER))["result"])]


@pytest.mark.parametrize(("kind", "text", "bound", "free"), FORMS)
async def test_a_pattern_binds_a_name_in_any_case(kind: str, text: str, bound: str, free: str) -> None:
    for rule, own in product(SPELL.values(), SPELL.values()):
        names = [own(bound), own(free)]
        for known in (names, ["z/z"]):
            pdp = pdp_of(kind, spelled(text, rule), *known)
            for name, is_free in zip(names, (False, True), strict=True):
                for check in checks_of(name, kind):
                    found = await pdp.check(batch([{"principal": PAT, **check}]))
                    assert bool(found.allowed[0]) is is_free, (spelled(text, rule), name, known, check)
                if "%" not in name and "." not in name:
                    assert set(await asked_by_trino(pdp, name.lower())) == {is_free}, (spelled(text, rule), name, known)


BODIES: dict[str, Callable[[str], dict[str, Any]]] = {
    "/v1/load": lambda path: {"principal": PAT, "target": reference(path), "action": "loadTable"},
    "/v1/filters": lambda path: {"principal": PAT, "resource": reference(path), "dialect": "duckdb"},
    "/v1/rewrite": lambda path: {
        "principal": PAT, "dialect": "duckdb", "sql": f"SELECT a FROM lake.{path.replace('/', '.')}",
        "catalog": {"tables": {f"lake.{path.replace('/', '.')}": {"columns": {"a": "INTEGER"}}}},
    },
    "/v1/objects": lambda path: {"actor": PAT, "delete": [reference(path)]},
    "/v1/access": lambda path: {"resource": reference(path), "action": "read_data"},
}  # fmt: skip


@pytest.mark.process
async def test_a_pattern_binds_over_every_surface(tmp_path: Path) -> None:
    names = [spell("s/tmp_a_old_b_bak") for spell in SPELL.values()]
    own = names[1]
    objects = ["project:p", {"object": "warehouse:lake", "parent": "project:p"}, reference(own), reference("s/plain")]
    grants = [{"principal": PAT, "privilege": "ownership", "object": "warehouse:lake"}]
    (tmp_path / "world.json").write_text(json.dumps({"objects": objects, "grants": grants}))
    text = "resource.name like 'tmp_*_old_*_bak'".replace("'", '"')
    (tmp_path / "p.cedar").write_text(policies_of("when", text)["cedar"]["policies"])
    tables = {f"lake.s.{name}": {"columns": {"a": "INTEGER"}} for name in ("plain", "tmp_a_old_b_bak")}
    (tmp_path / "rows.json").write_text(json.dumps({"tables": tables}))
    config = {
        "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        "store": {"url": "sqlite:///pdp.db", "seed": "world.json"},
        "authorities": {"default": {"engines": ["cedar", "grants"]}},
        "trino": {"catalogs": {"lake": {"warehouse": "lake"}}},
        "policies": {"cedar": {"policies": ["p.cedar"]}, "row_access": [{"path": "rows.json", "allow_empty": True}]},
    }
    async with client_of(settings_of(config, tmp_path)) as client:
        listed = {"principal": PAT, "action": "read_data", "type": "table", "container": "warehouse:lake"}
        assert (await client.post("/v1/list", listed))[1]["objects"] == [reference("s/plain")]
        for path, body in BODIES.items():
            for name in [*names, "s/plain"]:
                status, answer = await client.post(path, body(name))
                is_open = status == 200 and answer.get("allowed", True) and PAT not in str(answer.get("denied", ""))
                assert (path == "/v1/access") or is_open is (name == "s/plain"), (path, name, answer)
        _, answer = await client.post("/v1/access", BODIES["/v1/access"](own))
        assert PAT not in json.dumps(answer.get("principals", [])), answer


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(st.text("aAb*", max_size=3), st.sampled_from(["like", "contains", "starts", "ends"])), min_size=1, max_size=3),
    st.text("aAb", min_size=1, max_size=5),
)  # fmt: skip
def test_spellings_meet_all_tests_of_a_forbid_if_any_spelling_does(tests: list[tuple[str, str]], name: str) -> None:
    """Brute force over all spellings of a name says whether one meets all tests. Too many spellings deny."""
    texts = [_forbidden(text, kind) for text, kind in tests]
    others = other_texts(name, texts, divided=True)
    every = {"".join(letters) for letters in product(*({sign.lower(), sign.upper()} for sign in name))}
    assert every.issuperset(others)
    wanted = any(all(_meets(text, one) for text in texts) for one in every)
    found = any(all(_meets(text, one) for text in texts) for one in (name, *others))
    assert found == wanted or len(others) > MOST_SPELLINGS


def _forbidden(text: str, kind: Any) -> ForbiddenPath:
    return ForbiddenPath(text.replace("*", ANY_TEXT if kind == "like" else ""), None, kind, "f")


def _meets(text: ForbiddenPath, name: str) -> bool:
    first, last = ("" if text.kind in kinds else ".*" for kinds in (("like", "starts"), ("like", "ends")))
    pattern = ".*".join(map(re.escape, text.text.split(ANY_TEXT)))
    return re.fullmatch(f"{first}{pattern}{last}", name) is not None
