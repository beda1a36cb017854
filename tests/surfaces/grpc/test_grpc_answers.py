"""Answers of gRPC as joined bytes: equal to messages that the generated classes encode decision by decision."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from pdp.model.answer import DEFAULT_DENY, Answer, Reason, Rejection
from pdp.surfaces.grpc.answers import check_response
from pdp.surfaces.wire import decision_pb2 as wire

decisions = st.lists(
    st.tuples(st.booleans(), st.sampled_from([None, "cel:a", "grants:b", "x" * 600, DEFAULT_DENY])),
    min_size=1,
    max_size=9,
)


@given(decisions, st.data())
@example([(True, "cel:a"), (False, None)], None)
@example([(True, None), (False, "cel:a")], None)
@example([(True, None), (False, None), (False, "cel:a")], None)
def test_an_answer_is_its_decisions_one_by_one(
    some: list[tuple[bool, Reason | None]], data: st.DataObject | None
) -> None:
    denied = [at for at, (allowed, _) in enumerate(some) if not allowed]
    places = st.lists(st.sampled_from(denied), max_size=2, unique=True) if data and denied else st.just([])
    raised, rejected = (data.draw(places), data.draw(places)) if data else ([], [])
    cached = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(some), max_size=len(some)))) if data else b""
    answer = Answer(
        "7", "r", bytes(allowed for allowed, _ in some), [by for _, by in some],
        dict.fromkeys(raised, ("rule",)), dict.fromkeys(rejected, Rejection("invalid_argument", "no")), {}, cached,
    )  # fmt: skip
    response = wire.CheckResponse.FromString(check_response(answer, "decisions"))
    assert (response.revision, response.decision_id) == ("r", "7")
    assert len(response.decisions) == len(some)
    for at, found in enumerate(response.decisions):
        wanted = answer.decision(at)
        assert (found.allowed, tuple(found.by), tuple(found.errors)) == (wanted.allowed, wanted.by, wanted.errors)
        assert found.cached == bool(cached and cached[at])
        assert found.HasField("error") == (at in rejected)
