"""Rules that hold for no question: what the bits say, and what the engine decides for every question of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdp.config.names import NameCheck
from pdp.engines.cel.engine import CelForbid
from pdp.engines.cel.names import remark_on_names
from pdp.engines.cel.program import check_rule
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import EngineQuestion
from pdp.facts.snapshot import Facts
from pdp.model.question import Arguments, Principal, Question, RequestContext, Resource
from pdp.model.redaction import DEFAULT_MASKER
from pdp.model.trino_operations import CLUSTER_ACTIONS, RULE_ACTIONS, RULE_OPS
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS, OPERATIONS

NAMED = {"project", "tag", "role", "user"}


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
    context = RequestContext(actions=tuple(sorted(OPERATIONS)))
    found = []
    for type, action in sorted(pairs):
        question = Question(Principal("user", "oidc~a"), action, context=context)
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
