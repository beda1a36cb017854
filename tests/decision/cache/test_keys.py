"""Keys of cached verdicts: two questions share a key only if an engine cannot tell them apart."""

from __future__ import annotations

import pickle
import typing
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdp.decision.cache.keys import KeyMaker, is_cacheable, join_parts, resource_fields
from pdp.engines.cel.engine import CelEngine, CelForbid
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import READS_POLICIES, Cost, Dependency, EngineQuestion
from pdp.engines.grants.engine import GrantsEngine
from pdp.facts.snapshot import Facts
from pdp.model.question import Arguments, Principal, Question, RequestContext, Resource
from pdp.model.redaction import DEFAULT_MASKER

ALICE = Principal("user", "oidc~a", ("r",), ("g",), '{"k":1}', ("m",), bare=False)
GROUP = EngineQuestion(
    Question(ALICE, "read_data", context=RequestContext("Iceberg", 1, ("A",), 0)), "table", "lake", "main"
)
RESOURCE = Resource(
    "table", "lake", ("a", "b"), "main", "n", "ICEBERG_TABLE", "BRANCH", "id", {"owner": "x"},
    Arguments("new", Resource("table", "lake", ("c",)), {"columns": ["x"]}),
)  # fmt: skip


class FixedEngine:
    """An engine that declares what a test says."""

    def __init__(self, reads: frozenset[Dependency] = READS_POLICIES, name: str = "e", digest: str = "d") -> None:
        self.reads = reads
        self.name = name
        self.digest = digest
        self.cost = Cost.MILLISECONDS


def maker(
    engine: Any = None, policies: bytes = b"p", epoch: str = "e", sequence: int = 1, *, forbids: bool = False
) -> KeyMaker:
    chosen: Any = engine or FixedEngine(frozenset(Dependency) - {Dependency.TIME})
    return KeyMaker(chosen, policies, Facts(epoch, sequence), forbids=forbids)


def other_values(value: Any) -> list[Any]:
    """Values of the same type as `value`, close to it."""
    return [other for other in _values_beside(value) if other != value]


def _values_beside(value: Any) -> list[Any]:
    if isinstance(value, msgspec.Struct):
        return [changed for _, changed in changes(value)]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, str):
        return [value + "x", value[:-1] if value else "y"]
    if isinstance(value, tuple):
        return [(*value, "x"), value[:-1] if value else ("", ""), ("".join(value), "") if value else ("z",)]
    if isinstance(value, dict):
        return [{**value, "more": 1}, {}]
    if value is None:
        return ["", "x"]
    raise TypeError(type(value))


def changes(struct: msgspec.Struct, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the struct with each of its fields changed, in every struct inside, too."""
    for name in struct.__struct_fields__:
        for other in other_values(getattr(struct, name)):
            yield f"{path}{name}", msgspec.structs.replace(struct, **{name: other})
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            for inner, changed in changes(value, f"{path}{name}."):
                yield inner, msgspec.structs.replace(struct, **{name: changed})


def test_every_field_of_a_question_changes_the_key() -> None:
    key = maker().key(GROUP)
    fields = set()
    for name, changed in changes(GROUP):
        fields.add(name)
        question = msgspec.structs.replace(GROUP.question, context=changed.context)
        if changed == msgspec.structs.replace(GROUP, question=question) and changed.context.now:
            assert maker().key(changed) == key, "the time: engines that read it are not cached"
        else:
            assert maker().key(changed) != key, name
    principal = {f"question.principal.{name}" for name in ("roles", "attributes", "member_of", "bare")}
    assert principal | {"question.context.now"} <= fields
    assert {name for name in fields if "." not in name} == set(EngineQuestion.__struct_fields__)
    assert {name.split(".")[1] for name in fields if "." in name} == set(Question.__struct_fields__)


def test_every_field_of_a_resource_changes_the_field() -> None:
    (digest,) = resource_fields([RESOURCE]) or (b"",)
    fields = set()
    for name, changed in changes(RESOURCE):
        fields.add(name)
        assert resource_fields([changed]) != [digest], name
    assert {name for name in fields if "." not in name} == set(Resource.__struct_fields__)
    assert {"arguments.destination.path", "arguments.given", "arguments.name"} <= fields


def test_keys_are_the_same_in_every_process() -> None:
    """Whatever the order of sets and the seed of hashes: services must share hits."""
    again = pickle.loads(pickle.dumps(GROUP))
    assert maker().key(again) == maker().key(GROUP)


def test_policies_facts_engine_and_role_change_the_key() -> None:
    engine = FixedEngine(frozenset({Dependency.POLICIES, Dependency.FACTS}))
    makers = [
        maker(engine),
        maker(engine, b"q"),
        maker(engine, epoch="f"),
        maker(engine, sequence=2),
        maker(engine, forbids=True),
        maker(FixedEngine(engine.reads, name="f")),
        maker(FixedEngine(engine.reads, digest="e")),
        maker(FixedEngine(READS_POLICIES)),
    ]
    keys = [each.key(GROUP) for each in makers]
    assert len(set(keys)) == len(makers)


def test_a_write_does_not_change_the_key_of_an_engine_without_facts() -> None:
    engine = FixedEngine(READS_POLICIES)
    assert maker(engine, sequence=1).key(GROUP) == maker(engine, sequence=2).key(GROUP)


def test_the_product_version_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = maker().key(GROUP)
    monkeypatch.setattr("pdp.decision.cache.keys.__version__", "0.0.0-other")
    assert maker().key(GROUP) != before


def test_engines_say_what_they_read() -> None:
    def cel(text: str) -> CelEngine:
        return CelEngine(inline_rules({"r": text}), "oidc", DEFAULT_MASKER)

    assert cel("true").reads == READS_POLICIES
    assert cel("now > timestamp('2020-01-01T00:00:00Z')").reads == {Dependency.POLICIES, Dependency.TIME}
    assert GrantsEngine().reads == {Dependency.POLICIES, Dependency.FACTS}
    assert is_cacheable(cel("true"))
    assert is_cacheable(GrantsEngine())
    assert not is_cacheable(cel("now > timestamp('2020-01-01T00:00:00Z')"))
    undeclared: Any = FixedEngine(frozenset())
    assert not is_cacheable(undeclared)


def test_a_forbidding_and_a_permitting_engine_of_the_same_rules_share_no_key() -> None:
    rules = inline_rules({"r": "true"})
    permitting, forbidding = CelEngine(rules, "oidc", DEFAULT_MASKER), CelForbid(rules, "oidc", DEFAULT_MASKER)
    assert maker(permitting).key(GROUP) != maker(forbidding, forbids=True).key(GROUP)


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_no_two_lists_of_parts_join_to_the_same_text(first: list[bytes], second: list[bytes]) -> None:
    assert (join_parts(first) == join_parts(second)) == (first == second)


scalars = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=3) | st.floats(allow_nan=False)
given_values = st.dictionaries(
    st.text(max_size=2), st.recursive(scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=3), max_size=2
)
texts = st.text("ab/\x00é", max_size=3)
resources = st.builds(
    Resource, texts, texts, st.lists(texts, max_size=3).map(tuple), st.none() | texts, texts,
    properties=st.none() | given_values, arguments=st.builds(Arguments, st.none() | texts, given=given_values),
)  # fmt: skip


def strictly_equal(first: Any, second: Any) -> bool:
    """Tell whether two values are the same for every engine: 1, 1.0 and true are not, nor is another order of keys."""
    return repr(first) == repr(second)


@given(resources, resources)
def test_resources_share_a_field_only_if_they_are_the_same(first: Resource, second: Resource) -> None:
    same = resource_fields([first]) == resource_fields([second])
    assert same == strictly_equal(first, second)
    copied = msgspec.structs.replace(first)
    assert resource_fields([copied]) == resource_fields([first])


@pytest.mark.parametrize(
    "value",
    [2**70, "\ud800", object(), {"a": 2**70}, MappingProxyType({1: object()})],
    ids=["long", "surrogate", "object", "long inside", "object inside"],
)
def test_values_that_cannot_be_written_are_not_cached(value: Any) -> None:
    assert resource_fields([RESOURCE, Resource("table", properties={"k": value})]) is None


def test_a_group_that_cannot_be_written_is_not_cached() -> None:
    assert maker().key(msgspec.structs.replace(GROUP, type="\ud800")) is None


def test_the_types_of_a_question_are_known() -> None:
    """A field of a type that `changes` cannot vary would be forgotten by the tests above."""
    for struct in (EngineQuestion, Principal, RequestContext, Resource, Arguments):
        assert set(typing.get_type_hints(struct)) >= set(struct.__struct_fields__)
