"""Properties that callers choose: odd keys and long access lists change no answer of a neighbour."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pdp.engines.cedar.engine import CedarEngine
from pdp.engines.cedar.entity_files import MOST_ENTRIES
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText
from pdp.engines.engine import ABSTAIN, FAILED, PERMIT, EngineQuestion, Verdicts
from pdp.facts.snapshot import Facts
from pdp.model.question import Arguments, Question, Resource
from pdp.model.references import parse_principal

POLICIES = """
@id("own") permit(principal, action, resource is Lakekeeper::Table) when {
  resource.properties.hasTag("owner") && resource.properties.getTag("owner").raw == "a" };
@id("reader") permit(principal, action, resource is Lakekeeper::Table) when {
  resource.properties.hasTag("access-readers") && principal in resource.properties.getTag("access-readers").users };
"""
ENGINE = CedarEngine(load_model(CedarSources((SourceText(POLICIES),))))
KEYS = st.one_of(
    st.sampled_from(["__entity", "__extn", "__expr", "__EXPR", "type", "id", "fn", "arg", "uid", "attrs", "tags", ""]),
    st.text(max_size=4),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "{}", "x", "Lakekeeper::User", "\x00"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)
USER = "user:oidc~a"


def decide(action: str, *rows: dict[str, Any], arguments: bool = False) -> Verdicts:
    group = EngineQuestion(Question(parse_principal(USER), action), "table", "lake", None)
    resources = [
        Resource("table", "lake", ("a", f"t{at}"), arguments=Arguments(given={"properties": row}))
        if arguments
        else Resource("table", "lake", ("a", f"t{at}"), properties=row)
        for at, row in enumerate(rows)
    ]
    return ENGINE.decide(group, resources, Facts.empty())


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_odd_properties_change_nothing_for_neighbours(odd: list[dict[str, Any]]) -> None:
    found = decide("read_data", {"owner": "a"}, *odd, {"owner": "b"}, {"owner": "a"})
    assert (found.effects[0], found.effects[-2], found.effects[-1]) == (PERMIT, ABSTAIN, PERMIT)
    assert FAILED not in found.effects
    for row in odd:
        assert decide("read_data", {**row, "owner": "a"}).effects[0] == PERMIT
    changed = decide("commit", {}, *odd, {}, arguments=True)
    assert (changed.effects[0], changed.effects[-1]) == (ABSTAIN, ABSTAIN)


def readers(count: int, more: int = 0) -> dict[str, Any]:
    """Properties with two access lists, the first with the user in the last place."""
    listed = [f"role:r{number}" for number in range(count - 1)] + [USER]
    return {"access-readers": json.dumps(listed), "access_x": [f"role:r{number}" for number in range(more)]}


def test_long_access_lists_deny_their_own_check_alone() -> None:
    rows = [
        (1, 0),
        (MOST_ENTRIES, 0),
        (MOST_ENTRIES + 1, 0),
        (MOST_ENTRIES - 9, 9),
        (MOST_ENTRIES - 9, 10),
        (50_000, 0),
    ]
    found = decide("read_data", *(readers(*row) for row in rows), {"owner": "a"})
    fits = [sum(row) <= MOST_ENTRIES for row in rows]
    assert [effect == PERMIT for effect in found.effects] == [*fits, True]
    assert [found.by[at] for at, fit in enumerate(fits) if not fit] == ["cedar:access_lists_too_long"] * 3
    for row, fit in zip(rows, fits, strict=True):
        assert decide("read_data", readers(*row)).effects[0] == (PERMIT if fit else FAILED)
        assert (decide("commit", readers(*row), arguments=True).effects[0] == FAILED) != fit


def test_a_refusal_is_explained() -> None:
    group = EngineQuestion(Question(parse_principal(USER), "read_data"), "table", "lake", None)
    resource = Resource("table", "lake", ("a", "t"), properties=readers(MOST_ENTRIES + 1))
    trace = ENGINE.explain(group, resource, Facts.empty())
    assert (trace.outcome, f"more than {MOST_ENTRIES} entries" in trace.why) == ("failed", True)
