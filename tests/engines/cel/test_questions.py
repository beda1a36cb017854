"""Rules that hold for no question: what the bits say, and what the engine decides for every question of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdp.config.names import KnownNames, NameCheck
from pdp.engines.cel.engine import CelForbid
from pdp.engines.cel.names import ARGUMENT_KEYS, remark_on_names
from pdp.engines.cel.program import check_rule
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import EngineQuestion
from pdp.facts.snapshot import Facts
from pdp.model.question import Arguments, Principal, Question, RequestContext, Resource
from pdp.model.redaction import DEFAULT_MASKER
from pdp.model.trino_operations import CLUSTER_ACTIONS, RULE_ACTIONS, RULE_OPS, TRINO_OPERATIONS, argument_keys
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS, OPERATIONS, rule_checks

NAMED = {"project", "tag", "role", "user"}
CONTEXT = RequestContext(actions=tuple(sorted(OPERATIONS)))


def resources_of(type: str) -> list[Resource]:
    """Return resources of a type: without more, with a type of content, with all that an action names."""
    if type in NAMED or type == "server":
        return [Resource(type, name="" if type == "server" else "a", arguments=Arguments("b"))]
    paths: dict[str, list[tuple[str, ...]]] = {
        "warehouse": [()],
        "reference": [()],
        "repository_config": [("GARBAGE_COLLECTOR",), ("a",)],
    }
    found = []
    for path in paths.get(type, [("a",), ("a", "b")]):
        named = Arguments("b", Resource(type, "w", ("b",)))
        found += [
            Resource(type, "w", path, "main", arguments=named),
            Resource(type, "w", path, "main", content_type="UDF", arguments=named),
            Resource(type, "w", path, "main", content_type="ICEBERG_TABLE", arguments=named),
        ]
    return found


@cache
def asked() -> list[tuple[EngineQuestion, list[Resource]]]:
    """Return every question of the vocabulary, with resources."""
    pairs = {(type, action) for type, actions in CATALOG_ACTIONS.items() for action in actions} | CEL_CHECKS.keys()
    pairs |= {("server", action) for action in CLUSTER_ACTIONS}
    found = []
    for type, action in sorted(pairs):
        question = Question(Principal("user", "oidc~a"), action, context=CONTEXT)
        found.append((EngineQuestion(question, type, "w", "main"), resources_of(type)))
    return found


def binds(rule: str) -> bool:
    """Tell whether a forbid binds a question of the vocabulary, or raises there."""
    engine = CelForbid(inline_rules({"r": rule}), "oidc", DEFAULT_MASKER)
    return any(any(engine.decide(question, found, Facts.empty()).effects) for question, found in asked())


def remarks_on(rule: str, *, forbid: bool = True) -> Iterator[tuple[str, str | None]]:
    for remark in remark_on_names(check_rule(rule, frozenset()), NameCheck(forbid=forbid)):
        yield remark.code, remark.severity


TEXTS = {
    "op": sorted(RULE_OPS),
    "action": sorted(RULE_ACTIONS),
    "path": ["", "a", "b", "a.b"],
    "ref": ["", "main"],
    "warehouse": ["", "w"],
    "contentType": ["", "ICEBERG_TABLE", "UDF", "NAMESPACE"],
    "type": ["", "GARBAGE_COLLECTOR", "a"],
    "role": ["a"],
}


@st.composite
def single_tests(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(TEXTS)))
    texts = draw(st.lists(st.sampled_from(TEXTS[name]), min_size=1, max_size=2))
    part = texts[0][: draw(st.integers(0, 8))]
    shape = draw(
        st.sampled_from(
            [
                "{n} == '{t}'", "{n} != '{t}'", "{n} in {all}", "{n}.startsWith('{p}')", "{n}.contains('{p}')",
                "{n}.matches('^{p}')", "size({n}) > 3", "{n} + 'x' == '{t}x'", "{n} == op", "action == {n}",
            ]
        )
    )  # fmt: skip
    return shape.format(n=name, t=texts[0], p=part, all=texts)


RULES = st.recursive(
    single_tests(),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=5,
)


def trino_resources(name: str) -> list[Resource]:
    """Return what Trino asks about for an operation, where the configuration decides."""
    tables = [
        Resource(type, "hive", path) for type in ("catalog", "system_catalog") for path in ((), ("s",), ("s", "t"))
    ]
    functions = [Resource("function", catalog, ("s", "f")) for catalog in ("hive", "lk")]
    by_rule = {
        **{rule: [Resource("user", name="oidc~a")] for rule in ("own_query", "impersonation")},
        **dict.fromkeys(("function", "procedure"), functions),
        **{rule: [Resource("server")] for rule in ("execute_query", "admin")},
        "session_property": [Resource("session_property", "system" if "System" in name else "lk", ("a",))],
        "catalog": [Resource("catalog", "hive"), Resource("warehouse", "w")],
        "filter": [],
    }
    return by_rule.get(TRINO_OPERATIONS[name].rule, tables)


@cache
def asked_of_trino() -> list[tuple[EngineQuestion, list[Resource]]]:
    """Return the questions of the vocabulary, and those of Trino about its own kinds of resources."""
    found = [(group, resources) for group, resources in asked() if not group.action.startswith("trino:")]
    for name in TRINO_OPERATIONS:
        for resource in trino_resources(name):
            question = Question(Principal("user", "oidc~a"), f"trino:{name}", context=CONTEXT)
            found.append((EngineQuestion(question, resource.type, resource.warehouse, "main"), [resource]))
    return found


def binds_in_trino(rule: str) -> bool:
    engine = CelForbid(inline_rules({"r": rule}), "oidc", DEFAULT_MASKER)
    return any(any(engine.decide(question, found, Facts.empty()).effects) for question, found in asked_of_trino())


def test_the_keys_of_arguments_are_those_of_the_questions() -> None:
    """An operation that is never asked, of row filters and masks, has none."""
    found: dict[str, set[str]] = {op: set() for op in RULE_OPS}
    for key in ARGUMENT_KEYS:
        engine = CelForbid(inline_rules({"r": f"has(arguments.{key})"}), "oidc", DEFAULT_MASKER)
        for question, resources in asked_of_trino():
            if any(engine.decide(question, resources, Facts.empty()).effects):
                (check,) = rule_checks(question.type, question.action)
                found[check.op].add(key)
    assert {op for op, keys in found.items() if not keys <= argument_keys(op)} == set()
    assert [op for op in sorted(found) if op.startswith("trino:") and found[op] != argument_keys(op)] == []


KNOWN = KnownNames(frozenset({"w"}), catalogs=frozenset({"lk"}), roles=frozenset({"boss"}), unmanaged=True)
NEEDED = {
    "op": ["READ_ENTITY_VALUE", "CREATE_ENTITY", "READ_ENTRIES", "catalog:rename", "catalog:create_role", "trino:AccessCatalog"],
    "action": ["read_data", "list_tables", "create_role", "trino:DropTable", "trino:ExecuteFunction"],
    "arguments.catalog": ["lk", "hive", "w"],
    "arguments.schema": ["s"],
    "arguments.table": ["t"],
    "arguments.function": ["lk.s.f", "hive.s.f"],
    "arguments.property": ["a", "lk.a"],
    "arguments.user": ["a"],
    "arguments.name": ["a", "b", "role:b", "a.b"],
    "path": ["a", "a.b", "lk.a.b", "w.a.b", "a$files", "b"],
    "contentType": ["TABLE", "ICEBERG_TABLE", "UDF", ""],
    "role": ["a", "boss", "user:a"],
}  # fmt: skip
NEEDED["op"] += [f"trino:{name}" for name in TRINO_OPERATIONS]


@st.composite
def needed_tests(draw: st.DrawFn) -> str:
    """Return a rule that needs each of its parts, and raises nowhere."""
    parts = [draw(st.sampled_from(["op == '{}'", "op == '{}'", "op.startsWith('trino:')", "true"]))]
    parts[0] = parts[0].format(draw(st.sampled_from(NEEDED["op"])))
    for name in draw(st.lists(st.sampled_from(sorted(NEEDED)), min_size=1, max_size=3, unique=True)):
        text = draw(st.sampled_from(NEEDED[name]))
        guard = f"has({name}) && " if name.startswith("arguments.") else ""
        shapes = ["{n} == '{t}'", "'{t}' == {n}", "{n} in ['{t}']", "bytes({n}) == b'{t}'", "dyn(string({n})) == '{t}'"]
        parts.append(guard + draw(st.sampled_from(shapes)).format(n=name, t=text))
    return " && ".join(parts)


@given(needed_tests())
@example("op.startsWith('trino:') && has(arguments.catalog) && arguments.catalog == 'lk'")
@example("op == 'trino:DropCatalog' && has(arguments.catalog) && arguments.catalog == 'w'")
@example("op == 'trino:SetCatalogSessionProperty' && has(arguments.property) && arguments.property == 'lk.a'")
@example("op == 'trino:SetSystemSessionProperty' && has(arguments.property) && bytes(arguments.property) == b'a'")
@settings(max_examples=60, deadline=None)
def test_a_forbid_that_is_refused_binds_no_question(rule: str) -> None:
    """Whatever the fault: words, arguments, catalogs with a warehouse, conversions. A warning may be of a rule that binds."""
    checked = check_rule(rule, frozenset())
    remarks = list(remark_on_names(checked, NameCheck(KNOWN, forbid=True)))
    if any(remark.severity == "error" for remark in remarks):
        assert not binds_in_trino(rule), [remark.message for remark in remarks]


@given(RULES)
@example("op == 'READ_ENTITY_VALUE' && action == 'drop'")
@example("!(op != 'CREATE_ENTITY' || contentType != 'UDF' || action != 'create_table')")
@example("(type == 'a' ? ref == 'main' : false) && path == 'a'")
@example("ref == 'main' && op == 'trino:ExecuteQuery'")
@settings(max_examples=60, deadline=None)
def test_a_rule_that_is_said_to_hold_nowhere_binds_no_question(rule: str) -> None:
    if "no-question" in {code for code, _ in remarks_on(rule)}:
        assert not binds(rule), rule


@given(st.sampled_from(TEXTS["op"]), st.sampled_from(TEXTS["action"]))
@settings(max_examples=40, deadline=None)
def test_an_op_and_an_action_that_no_question_has_are_named(op: str, action: str) -> None:
    rule = f"op == '{op}' && action == '{action}'"
    assert (("no-question", "error") in remarks_on(rule)) is not binds(rule), rule


def test_every_op_and_every_action_alone_may_bind() -> None:
    for name in ("op", "action"):
        for word in TEXTS[name]:
            assert "no-question" not in {code for code, _ in remarks_on(f"{name} == '{word}'")}, word


def test_a_permit_that_holds_nowhere_is_a_warning() -> None:
    rule = "op == 'READ_ENTITY_VALUE' && action == 'drop'"
    assert list(remarks_on(rule, forbid=False)) == [("no-question", "warning")]
