"""Combination by columns and by rows: the same verdicts on generated columns."""

from __future__ import annotations

from typing import Any, Literal

from hypothesis import event, given
from hypothesis import strategies as st

from pdp.decision.combine import combine_columns, combine_rows
from pdp.engines.engine import ABSTAIN, FAILED, FORBID, PERMIT, Verdicts

ROWS = {
    ABSTAIN: st.sampled_from([(None, ()), (None, ()), ("e:silent", ()), (None, ("r",)), (None, ("r", "s"))]),
    PERMIT: st.sampled_from([("e:a", ()), ("e:b", ())]),
    FORBID: st.sampled_from([("e:f", ()), ("e:f", ("f",))]),
    FAILED: st.just(("e:failed", ())),
}
"""Effect -> possible reasons and errors of a row."""


@st.composite
def columns(draw: Any, count: int, effects: tuple[int, ...]) -> Verdicts:
    given = [draw(st.sampled_from(effects)) for _ in range(count)]
    plain = draw(st.booleans())
    rows = [(None, ()) if plain and effect == ABSTAIN else draw(ROWS[effect]) for effect in given]
    errors = {at: raised for at, (_, raised) in enumerate(rows) if raised}
    return Verdicts(bytes(given), [by for by, _ in rows], errors)


@st.composite
def stacks(draw: Any) -> tuple[list[Verdicts], int]:
    """Draw the columns of forbidding engines, then of permitting ones; return them with the number of the former."""
    count = draw(st.integers(1, 4))
    forbids = draw(st.lists(columns(count, draw(st.sampled_from([(ABSTAIN,), (ABSTAIN, FORBID, FAILED)]))), max_size=2))
    usual = st.sampled_from([(ABSTAIN,), (PERMIT,), (ABSTAIN, PERMIT), (ABSTAIN, PERMIT, FORBID, FAILED)])
    permitters = draw(st.lists(usual.flatmap(lambda effects: columns(count, effects)), max_size=3))
    return (forbids + permitters or [draw(columns(count, (ABSTAIN,)))]), len(forbids)


@given(stacks(), st.sampled_from(["any", "all"]))
def test_columns_combine_like_rows(stack: tuple[list[Verdicts], int], combine: Literal["any", "all"]) -> None:
    verdicts, forbids = stack
    silence = None if len(verdicts) > forbids else "unknown_action"
    by_rows = combine_rows(verdicts, forbids, combine, [silence] * len(verdicts[0].effects))
    found = combine_columns(verdicts, forbids, combine, silence)
    event(f"by columns: {found is not None}")
    if found is not None:
        assert (found.effects, list(found.by), dict(found.errors)) == (
            by_rows.effects,
            list(by_rows.by),
            by_rows.errors,
        )


def test_the_usual_columns_need_no_rows() -> None:
    silent, some = Verdicts(b"\0\0", [None, None]), Verdicts(b"\0\1", [None, "e:a"])
    every = Verdicts(b"\1\1", ["g:a", "g:b"])
    assert combine_columns([silent, some], 1, "any", None) is some
    assert combine_columns([silent, some, every], 1, "any", None) == Verdicts(b"\1\1", ["g:a", "e:a"])
    assert combine_columns([silent, some, every], 1, "all", None) == Verdicts(b"\0\1", [None, "e:a"])
    fewer = combine_columns([every, some], 0, "any", None)
    assert fewer == every
    assert fewer.by is every.by  # the record writes the reasons of one list once
    assert combine_columns([silent], 1, "any", "unknown_action") == Verdicts(b"\0\0", ["unknown_action"] * 2)
