"""Trino lowers every name. Each policy on an object with capitals decides at the endpoints as on one without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pdp.app.facts import build_pdp
from pdp.audit.records.record import DecidedCheck
from pdp.config.load import make_settings
from pdp.decision.service import Pdp
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.engines.cel.rules import inline_rules
from pdp.engines.row_access.policies import parse_document
from pdp.facts.objects import Grant, Object, ObjectKey
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.question import Arguments, Batch, Caller, Check, Principal, Question, RequestContext, Resource
from pdp.model.references import parse_resource
from pdp.model.trino_operations import TRINO_OPERATIONS

Spell = Callable[[str], str]
SPELLINGS: dict[str, Spell] = {"upper": str.upper, "mixed": str.title}
PARTS: dict[str, Spell] = {
    "tables": lambda name: name.title() if name in ("salaries", "pay") else name,
    "schemas": lambda name: name.upper() if name in ("hr", "eu") else name,
}
"""Spellings of some names: remembered plans of plain names must not answer for the others."""
REGISTERED = ("table:Lake/hr/eu/salaries", "view:Lake/hr/eu/pay", "table:Lake/hr/eu/free", "table:Lake/hr/near")
OWNER = [f"{privilege} warehouse:Lake" for privilege in ("ownership", "modify")]


class Names:
    """Names of the objects in one spelling, as each kind of policy writes them."""

    def __init__(self, spell: Spell) -> None:
        self.spell = spell

    def path(self, *parts: str) -> str:
        return ".".join(map(self.spell, parts))

    def reference(self, text: str) -> str:
        type, _, rest = text.partition(":")
        warehouse, *path = rest.split("/")
        return f"{type}:{'/'.join([warehouse, *map(self.spell, path)])}"

    def uid(self, type: str, *parts: str) -> str:
        return f'Lakekeeper::{type}::"{self.uid_id(*parts)}"'

    def uid_id(self, *parts: str) -> str:
        return "/".join(["Lake", *map(self.spell, parts)])


SALARIES = ("hr", "eu", "salaries")


def forbidding(condition: str) -> Callable[[Names], dict[str, Any]]:
    """Return a world with a CEL forbid for a user who owns everything. `%s` is the path of a table, `@` its schema."""
    return lambda names: {
        "engines": ["grants"],
        "grants": OWNER,
        "forbid": condition.replace("%s", names.path(*SALARIES)).replace("@", names.path("hr", "eu")),
    }


def cedar(policy: str, *entities: tuple[str, str, dict[str, Any]]) -> Callable[[Names], dict[str, Any]]:
    """Return a world of Cedar policies: `T`, `V`, `N` and `name` stand for a table, a view, a schema and a name."""

    def world(names: Names) -> dict[str, Any]:
        words = {
            "<T>": names.uid("Table", *SALARIES),
            "<V>": names.uid("View", "hr", "eu", "pay"),
            "<N>": names.uid("Namespace", "hr", "eu"),
            "<name>": names.spell("salaries"),
        }
        text = policy
        for word, value in words.items():
            text = text.replace(word, value)
        declared = [
            {
                "uid": {"type": f"Lakekeeper::{type}", "id": names.reference(id).removeprefix("-:")},
                "attrs": {},
                "parents": [],
                **more,
            }
            for type, id, more in entities
        ]
        return {"engines": ["cedar"], "cedar": text, "entities": declared}

    return world


ANY = "permit (principal, action, resource);"
PROTECTED = ("Table", "-:Lake/hr/eu/salaries", {"attrs": {"protected": True}})
PII = {"raw": "yes", "roles": [], "users": [], "global_role_ids": []}
TAGGED = ("ResourceProperties", "table:Lake/hr/eu/salaries", {"attrs": {}, "tags": {"pii": PII}})
ROWS = {"id": "rows", "filter": "id = 1", "grantees": ["user:u"]}
MASK = {"id": "mask", "column": "c", "kind": "null", "grantees": ["user:u"]}
KINDS: dict[str, Callable[[Names], dict[str, Any]]] = {
    "rule": lambda names: {
        "engines": ["cel"],
        "rules": f"path in ['{names.path(*SALARIES)}', '{names.path('hr', 'eu')}', '{names.path('hr', 'eu', 'pay')}']",
    },
    "rule on a beginning": lambda names: {"engines": ["cel"], "rules": f"path.startsWith('{names.path('hr', 'eu')}')"},
    "forbid": forbidding("path == '%s'"),
    "forbid in a list": forbidding("path in ['x.y', '%s'] && op != 'VIEW_REFERENCE'"),
    "forbid on a schema": forbidding("path == '@' || path.startsWith('@.')"),
    "forbid on a beginning": forbidding("path.startsWith('@.')"),
    "forbid on a pattern": forbidding("path.matches('^@[.].*$')"),
    "forbid on all else": forbidding("!path.startsWith('@') && path != ''"),
    "forbid but for one": forbidding("op != 'READ_ENTITY_VALUE' && path != '%s'"),
    "grant": lambda names: {"engines": ["grants"], "grants": ["ownership table:Lake/hr/eu/salaries"]},
    "grant on a schema": lambda names: {"engines": ["grants"], "grants": ["ownership namespace:Lake/hr/eu"]},
    "cedar permit": cedar("permit (principal, action, resource == <T>); permit (principal, action, resource == <V>);"),
    "cedar permit in a schema": cedar("permit (principal, action, resource in <N>);"),
    "cedar permit of a property": cedar("permit (principal, action, resource) when { resource has protected && "
                                        "resource.protected };", PROTECTED),
    "cedar forbid": cedar(ANY + "forbid (principal, action, resource == <T>);"),
    "cedar forbid in a schema": cedar(ANY + "forbid (principal, action, resource in <N>);"),
    "cedar forbid of a property": cedar(
        ANY + "forbid (principal, action, resource) when { resource has protected && resource.protected };", PROTECTED
    ),
    "cedar forbid of a tag": cedar(
        ANY + 'forbid (principal, action, resource is Lakekeeper::Table) when { resource.properties.hasTag("pii") };',
        TAGGED,
    ),
    "cedar forbid of a name": cedar(
        ANY + 'forbid (principal, action, resource is Lakekeeper::Table) when { resource.name == "<name>" };'
    ),
    "row policy": lambda names: {
        "engines": ["grants"], "grants": OWNER, "rows": {"policies": [ROWS | {"table": f"Lake.{names.path(*SALARIES)}"}]}
    },
    "mask": lambda names: {
        "engines": ["grants"], "grants": OWNER, "rows": {"masks": [MASK | {"table": f"Lake.{names.path(*SALARIES)}"}]}
    },
    "scope": lambda names: {
        "engines": ["scopes"],
        "scopes": [{"name": "u", "permissions": {slot: [{
            "catalog": "Lake", "schema": names.path("hr", "eu"), "tables": [names.spell("salaries")],
        }] for slot in ("Query", "Mutation")}}],
    },
}  # fmt: skip


def facts_of(objects: Sequence[str], grants: Sequence[str]) -> Facts:
    """Return facts of references, and of grants to `u`."""
    granted = []
    for text in grants:
        privilege, _, object = text.partition(" ")
        granted.append(Grant(key(object), privilege, "user:oidc~u"))
    return Facts.build("e", 1, [Object(key(text)) for text in objects], granted)


def key(text: str) -> ObjectKey:
    found = parse_resource(text)
    return found.type, (found.warehouse, *found.path)


def service(folder: Path, world: dict[str, Any], facts: Facts) -> Pdp:
    """Return a service of one kind of policy."""
    folder.mkdir(parents=True, exist_ok=True)
    policies: dict[str, Any] = {}
    if "cedar" in world:
        (folder / "p.cedar").write_text(world["cedar"])
        policies["cedar"] = {"policies": ["p.cedar"]}
        if world["entities"]:
            (folder / "e.json").write_text(json.dumps(world["entities"]))
            policies["cedar"]["entities"] = ["e.json"]
    if "scopes" in world:
        (folder / "s.json").write_text(json.dumps(world["scopes"]))
        policies["scopes"] = {"permissions": ["s.json"]}
    settings = make_settings(
        {
            "authorities": {"default": {"engines": world["engines"]}},
            "warehouses": {"Lake": {"default_ref": "main"}},
            "trino": {"catalogs": {"k": {"warehouse": "Lake"}}},
            "policies": policies,
        },
        folder,
    )
    rules = {name: {"r": world[name]} if name in world else {} for name in ("rules", "forbid")}
    documents = [parse_document(world["rows"])] if "rows" in world else []
    return build_pdp(
        settings, facts, (inline_rules(rules["rules"]), inline_rules(rules["forbid"])), documents=documents
    )


# --- the questions ------------------------------------------------------------------------------------------------
Action = dict[str, Any]


def table(schema: str, name: str, **more: Any) -> dict[str, Any]:
    return {"table": {"catalogName": "k", "schemaName": schema, "tableName": name, **more}}


def schema(name: str) -> dict[str, Any]:
    return {"schema": {"catalogName": "k", "schemaName": name}}


def function(name: str) -> dict[str, Any]:
    return {"function": {"catalogName": "k", "schemaName": name, "functionName": "f"}}


TABLES = [
    *(("hr.eu", name) for name in ("salaries", "pay", "free", "unknown", "salaries$files", "pay$snapshots")),
    ("hr", "near"),
    ("other", "t"),
]
SCHEMAS = ["hr.eu", "hr", "hr.eu.below", "other"]
ELSEWHERE = {"server", "user", "session_property", "catalog"}


def about_schema(operation: str) -> bool:
    return "Schema" in operation or operation in ("ShowTables", "ShowFunctions")


def actions() -> Iterator[Action]:
    """Yield every operation on objects of a warehouse: of operations with equal checks, the first on every object."""
    seen = set()
    for operation, how in TRINO_OPERATIONS.items():
        if operation in ("GetRowFilters", "GetColumnMask", "ShowSchemas") or "Catalog" in operation:
            continue
        if how.rule == "function":
            yield from ({"operation": operation, "resource": function(name)} for name in SCHEMAS)
        elif about_schema(operation):
            targets = [schema("hr.eu.new"), schema("hr.eu")] if "Rename" in operation else [None]
            for name in SCHEMAS:
                yield from (_action(operation, schema(name), target) for target in targets)
        elif how.steps:
            targets = [table("hr.eu", "new"), table("hr.eu", "salaries")] if "Rename" in operation else [None]
            for at in TABLES if operation.startswith("Filter") or how not in seen else TABLES[:2]:
                yield from (_action(operation, table(*at), target) for target in targets)
            seen.add(how)


def _action(operation: str, resource: dict[str, Any], target: dict[str, Any] | None) -> Action:
    action: Action = {"operation": operation, "resource": resource}
    if target:
        action["targetResource"] = target
    if operation.endswith("Authorization"):
        action["grantee"] = {"type": "USER", "name": "u"}
    if operation == "ExecuteTableProcedure":
        action["resource"] = {**resource, "function": {"functionName": "OPTIMIZE"}}
    return action


async def ask(pdp: Pdp, endpoint: str, action: Action) -> Any:
    body = {"input": {"context": {"identity": {"user": "u", "groups": []}}, "action": action}}
    return json.loads(await getattr(TrinoSurface(pdp, 1000, 10), endpoint)(json.dumps(body).encode(), EMBEDDED_CALLER))


async def answers(pdp: Pdp) -> dict[str, Any]:
    """Return the answer to every question by its text. A batch must be the set of its single answers."""
    found: dict[str, Any] = {}
    for action in actions():
        found[json.dumps(action)] = (await ask(pdp, "allow", action))["result"]
    for operation, named in (
        ("FilterTables", [table(*at) for at in TABLES]),
        ("FilterTables", [table(*at) for at in TABLES[:4] for _ in range(3)]),
        ("FilterSchemas", [schema(name) for name in SCHEMAS]),
        ("FilterFunctions", [function(name) for name in SCHEMAS]),
    ):
        got = (await ask(pdp, "batch", {"operation": operation, "filterResources": named}))["result"]
        singles = [found[json.dumps({"operation": operation, "resource": one})] for one in named]
        assert got == [at for at, single in enumerate(singles) if single], operation
    for at in TABLES:
        columns = {"operation": "FilterColumns", "filterResources": [table(*at, columns=["c", "d"])]}
        one = found[json.dumps({"operation": "FilterColumns", "resource": table(*at)})]
        assert (await ask(pdp, "batch", columns))["result"] == ([0, 1] if one else [])
        found[f"rows {at}"] = await ask(pdp, "row_filters", {"operation": "GetRowFilters", "resource": table(*at)})
        column = {"column": {**table(*at)["table"], "columnName": "c", "columnType": "varchar"}}
        found[f"mask {at}"] = await ask(pdp, "column_mask", {"operation": "GetColumnMask", "resource": column})
        many = {"operation": "GetColumnMask", "filterResources": [column]}
        masks = (await ask(pdp, "batch_column_masks", many))["result"]
        assert [mask["viewExpression"] for mask in masks] == list(found[f"mask {at}"].values())
    return found


def registered(resource: dict[str, Any], names: Names) -> Resource | None:
    """Return the registered object that a plain name of Trino means; None for other names."""
    known = {reference.partition(":")[2].lower(): reference for reference in REGISTERED}
    named = resource.get("table")
    if named is None:
        return None
    text = known.get(f"lake/{named['schemaName'].replace('.', '/')}/{named['tableName']}")
    if text is None:
        return None
    found = parse_resource(names.reference(text))
    return Resource("table_or_view", found.warehouse, found.path, "main")


def checked(pdp: Pdp, operation: str, resource: Resource) -> bool:
    """Return the answer to the concrete check of an operation on an object, as `/v1/check` decides it."""
    how = TRINO_OPERATIONS[operation]
    (step,) = how.steps
    type = step.on if step.on in ("table", "view") else resource.type
    question = Question(
        Principal("user", "oidc~u"), step.action, how.delegated, context=RequestContext(actions=step.also)
    )
    named = Resource(type, resource.warehouse, resource.path, resource.ref, arguments=Arguments())
    decided = pdp.decide_now(Batch("http", EMBEDDED_CALLER, 1, (Check(question, (named,), range(1)),)))
    assert decided is not None
    return bool(decided.answer.allowed[0])


@pytest.mark.parametrize("kind", KINDS)
async def test_every_policy_decides_in_every_spelling(tmp_path: Path, kind: str) -> None:
    """The endpoints answer as in a world without capitals, and as the check of the registered object."""
    found = {}
    for number, (spelling, spell) in enumerate({"lower": str.lower, "mixed": str.title, **PARTS}.items()):
        names = Names(spell)
        world = KINDS[kind](names)
        grants = [text.replace(object, names.reference(object)) for text in world.get("grants", ())
                  for object in text.split()[1:]]  # fmt: skip
        pdp = service(tmp_path / f"{number}", world, facts_of([names.reference(text) for text in REGISTERED], grants))
        found[spelling] = await answers(pdp)
        for action in actions():
            operation = action["operation"]
            how = TRINO_OPERATIONS[operation]
            own = registered(action["resource"], names)
            if own is not None and not how.rule and how.steps[0].on != "parent":
                assert found[spelling][json.dumps(action)] == checked(pdp, operation, own), (spelling, action)
            if spelling == "tables":
                assert (await ask(pdp, "allow", action))["result"] == found[spelling][json.dumps(action)], action
        assert found[spelling] == found["lower"], spelling
    assert len({json.dumps(answer) for answer in found["lower"].values()}) > 1, "so that the policy is seen to decide"


# --- names that nobody registered, names of two objects, and forbids in another spelling ------------------------------
READS = ("SelectFromColumns", "InsertIntoTable", "DropTable", "TruncateTable", "RenameTable", "FilterTables")


async def allowed(pdp: Pdp, at: tuple[str, str] = ("hr.eu", "salaries")) -> set[str]:
    """Return the operations that the user may use on a table."""
    found = set()
    for operation in READS:
        target = table("free", "new") if operation == "RenameTable" else None
        if (await ask(pdp, "allow", _action(operation, table(*at), target)))["result"]:
            found.add(operation)
    return found


FORBIDS = [kind for kind in KINDS if "forbid" in kind and kind not in ("forbid on all else", "forbid but for one")]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", FORBIDS)
@pytest.mark.parametrize("known", [(), ("table:Lake/hr/eu/salaries",), ("table:Lake/Hr/EU/sAlaries",)])
async def test_a_forbid_holds_in_any_case(tmp_path: Path, kind: str, spelling: str, known: tuple[str, ...]) -> None:
    """Nobody registered the object, or it has another spelling than the forbid."""
    world = KINDS[kind](Names(SPELLINGS[spelling]))
    pdp = service(tmp_path, world, facts_of(known, world.get("grants", ())))
    assert await allowed(pdp) == set()
    assert await allowed(pdp, ("free", "other")) == set(READS)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_name_of_two_objects_is_denied_whatever_the_policies(tmp_path: Path, kind: str) -> None:
    names = Names(str.title)
    world = KINDS[kind](names)
    grants = [text.replace("hr/eu", "Hr/Eu").replace("salaries", "Salaries") for text in world.get("grants", ())]
    for other in ("table:Lake/Hr/Eu/SALARIES", "view:Lake/Hr/Eu/SALARIES", "table:Lake/HR/eu/t"):
        facts = facts_of([names.reference(REGISTERED[0]), other], grants)
        pdp = service(tmp_path, world, facts)
        assert await allowed(pdp) == set()
        asked = {"operation": "GetRowFilters", "resource": table("hr.eu", "salaries")}
        assert await ask(pdp, "row_filters", asked) == {"result": [{"expression": "false"}]}


# --- questions of others, and what else has a name -------------------------------------------------------------------
@pytest.mark.parametrize(
    "asked", ["hr/salaries", "hr/SALARIES", "HR/Salaries", "hr/Salaries$files", "hr/salaries$files"]
)
async def test_a_guard_is_asked_for_the_object_that_a_name_means(tmp_path: Path, asked: str) -> None:
    """Who may not read the grants on a table learns nothing about others there, whatever the spelling."""
    policy = """
    permit (principal, action, resource);
    forbid (principal, action == Lakekeeper::Action::"IntrospectTableAuthorization",
            resource == Lakekeeper::Table::"Lake/hr/Salaries");
    """
    world = {"engines": ["cedar"], "cedar": policy, "entities": []}
    pdp = service(tmp_path, world, facts_of(["table:Lake/hr/Salaries", "table:Lake/hr/free"], []))
    caller = Caller("c", frozenset(), own=Principal("user", "oidc~a"), may_inspect=True)

    def told(path: str) -> tuple[bool, str]:
        question = Question(Principal("user", "oidc~u"), "trino:SelectFromColumns", inspected=True)
        resource = parse_resource(f"table:Lake/{path}")
        batch = Batch("http", caller, 1, (Check(question, (resource,), range(1)),))
        decided = pdp.decide_now(batch)
        assert decided is not None
        rejected = decided.answer.rejected.get(0)
        return bool(decided.answer.allowed[0]), rejected.code if rejected else ""

    assert told("hr/free") == (True, "")
    assert told("hr/Salaries") == (False, "assertion_not_allowed")
    assert told(asked) == (False, "assertion_not_allowed")


async def test_a_denied_session_property_is_denied_in_any_case(tmp_path: Path) -> None:
    trino = {"catalogs": {"k": {"warehouse": "Lake"}}, "session_properties": {"deny": ["K.Target", "Join_Type"]}}
    settings = make_settings({"authorities": {"default": {"engines": ["grants"]}}, "trino": trino}, tmp_path)
    pdp = build_pdp(settings, Facts.empty(), (inline_rules({}), inline_rules({})))
    for operation, named, allowed in (
        (
            "SetCatalogSessionProperty",
            {"catalogSessionProperty": {"catalogName": "k", "propertyName": "target"}},
            False,
        ),
        ("SetCatalogSessionProperty", {"catalogSessionProperty": {"catalogName": "k", "propertyName": "free"}}, True),
        ("SetSystemSessionProperty", {"systemSessionProperty": {"name": "join_type"}}, False),
    ):
        assert await ask(pdp, "allow", {"operation": operation, "resource": named}) == {"result": allowed}


# --- what Trino's fold and full case folding see in different ways -----------------------------------------------------
@pytest.mark.parametrize(
    ("own", "asked", "is_found"),
    [
        ("Stra\u00dfe", "stra\u00dfe", True),
        ("Stra\u00dfe", "strasse", False),
        ("\u212aelvin", "kelvin", True),
        ("\u0130l", "i\u0307l", True),
        ("\u0131l", "\u0131l", True),
        ("\u017fales", "\u017fales", True),
        ("\u017fales", "sales", False),
        ("\u0391\u03a3", "\u03b1\u03c2", True),
        ("\u0391\u03a3", "\u03b1\u03c3", False),
        ("\u1e9e", "\u00df", True),
        ("Caf\u00c9", "caf\u00e9", True),
        ("\u0378a", "\u0378a", False),
    ],
)
async def test_a_name_is_found_as_trino_lowers_it(tmp_path: Path, own: str, asked: str, is_found: bool) -> None:
    """A name that only full case folding finds is denied: it may be another object."""
    world = {"engines": ["grants"], "forbid": f"path in ['hr.{own}', '{own}.t'] && op == 'DELETE_ENTITY'"}
    for known, at in ((f"table:Lake/hr/{own}", ("hr", asked)), (f"table:Lake/{own}/t", (asked, "t"))):
        pdp = service(tmp_path, world, facts_of([known], [f"ownership {known}"]))
        read = {"operation": "SelectFromColumns", "resource": table(*at)}
        assert await ask(pdp, "allow", read) == {"result": is_found}
        assert await ask(pdp, "allow", {"operation": "DropTable", "resource": table(*at)}) == {"result": False}


async def test_a_composed_sign_is_no_sign_with_a_mark(tmp_path: Path) -> None:
    """Neither Trino nor the service normalises names."""
    pdp = service(tmp_path, {"engines": ["grants"]}, facts_of([], ["ownership table:Lake/hr/CAF\u00c9"]))
    for name, is_found in (("caf\u00e9", True), ("cafe\u0301", False)):
        read = {"operation": "SelectFromColumns", "resource": table("hr", name)}
        assert await ask(pdp, "allow", read) == {"result": is_found}


async def test_a_forbid_with_too_many_spellings_of_a_name_denies(tmp_path: Path) -> None:
    for letter, is_allowed in (("Q", True), ("A", False)):
        world = {"engines": ["grants"], "grants": OWNER, "forbid": f"path.contains('{letter}') && op == 'NONE'"}
        pdp = service(tmp_path, world, facts_of([], OWNER))
        read = {"operation": "SelectFromColumns", "resource": table("hr", "bananarama" * 4)}
        assert await ask(pdp, "allow", read) == {"result": is_allowed}


async def test_two_texts_of_a_forbid_meet_one_name(tmp_path: Path) -> None:
    forbid = "path.startsWith('HR.') && path.endsWith('.Salaries') && op != 'VIEW_REFERENCE'"
    pdp = service(tmp_path, {"engines": ["grants"], "forbid": forbid}, facts_of([], OWNER))
    assert await allowed(pdp, ("hr", "salaries")) == set()
    assert await allowed(pdp, ("hr", "others")) == set(READS)


async def test_a_permit_with_capitals_says_nothing_about_an_unknown_object(tmp_path: Path) -> None:
    world = {"engines": ["cel"], "rules": "path == 'hr.Salaries'"}
    for objects, is_allowed in (([], False), (["table:Lake/hr/Salaries"], True), (["table:Lake/hr/salaries"], False)):
        pdp = service(tmp_path, world, facts_of(objects, []))
        read = {"operation": "SelectFromColumns", "resource": table("hr", "salaries")}
        assert await ask(pdp, "allow", read) == {"result": is_allowed}


DROPS = (
    "path == 'e.a' || path.startsWith('e.b.')", "path.startsWith('e.') ? true : false", "!(path != 'e.a')",
    "!(!path.startsWith('e.'))", "path.matches('^e[.].*$')", "path.matches('^(e|f)[.]')", "path.matches('^(?:e[.]a|e[.]b)$')",
    "path.matches('^e[.](pay|sal)$')", "path.startsWith('e' + '.')", "path in ['e.a'] || role == 'nobody'",
)  # fmt: skip


@pytest.mark.parametrize("test", DROPS)
@pytest.mark.parametrize("operation", ["DropSchema", "RenameSchema"])
async def test_a_schema_with_a_name_that_a_forbid_of_drops_may_mean_stays(
    tmp_path: Path, operation: str, test: str
) -> None:
    """However the forbid spells the name: nobody need have registered the table."""
    world = {"engines": ["grants"], "forbid": f"op == 'DELETE_ENTITY' && ({test})"}
    pdp = service(tmp_path, world, facts_of([], OWNER))
    for schema, is_allowed in (("e", False), ("other", True)):
        action = {"operation": operation, "resource": {"schema": {"catalogName": "k", "schemaName": schema}}}
        if operation == "RenameSchema":
            action["targetResource"] = {"schema": {"catalogName": "k", "schemaName": "new"}}
        assert await ask(pdp, "allow", action) == {"result": is_allowed}, schema


async def test_a_repeated_question_keeps_both_names_in_the_record(tmp_path: Path) -> None:
    """A plan that is remembered for a known object names the object as asked and by its own name, as a new plan does."""
    world = {"engines": ["grants"], "grants": ["select table:Lake/Hr/Salaries"]}
    pdp = service(tmp_path, world, facts_of(["table:Lake/Hr/Salaries"], world["grants"]))
    question = Question(Principal("user", "oidc~u"), "trino:SelectFromColumns")

    def decided(path: str) -> DecidedCheck:
        resource = parse_resource(f"table_or_view:{path}")
        result = pdp.decide_now(Batch("trino", EMBEDDED_CALLER, 1, (Check(question, (resource,), range(1)),)))
        assert result is not None
        (check,) = result.record.checks
        return check

    first, *again = [decided("Lake/hr/salaries") for _ in range(4)]
    assert again == [first] * 3
    assert first.check.resources[0].path == ("hr", "salaries")
    assert not first.plain
    assert {leaf.resources[0].path for leaf in first.concrete} == {("Hr", "Salaries")}
    assert [decided("Lake/Hr/Salaries").outcome for _ in range(3)] == [first.outcome] * 3
