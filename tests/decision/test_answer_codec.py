"""Encoding of answers: in columns as one by one, and in indices."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pdp.decision.codec import decision_body, encode_answer
from pdp.model.answer import Answer, Rejection, Trace

REJECTIONS = [Rejection("invalid_argument", "`?`"), Rejection("ambiguous_name", "two", "ambiguous_name")]
rows = st.lists(
    st.fixed_dictionaries(
        {"allowed": st.booleans(), "by": st.sampled_from([None, "cel:a", 'grants:"q"'])},
        optional={
            "errors": st.sampled_from([("r",), ("r", "s")]),
            "rejected": st.sampled_from(REJECTIONS),
            "trace": st.just(Trace("cel", "permit")),
            "cached": st.booleans(),
        },
    ),
    max_size=8,
)


def answer_of(some: list[dict[str, Any]]) -> Answer:
    def column(key: str) -> dict[int, Any]:
        return {at: row[key] for at, row in enumerate(some) if key in row}

    allowed = bytes(row["allowed"] for row in some)
    by = [row["by"] for row in some]
    cached = bytes(row.get("cached", False) for row in some) if column("cached") else b""
    return Answer("id", "e.1.d", allowed, by, column("errors"), column("rejected"), column("trace"), cached)


@given(rows)
def test_an_answer_is_encoded_as_its_decisions_one_by_one(some: list[dict[str, Any]]) -> None:
    answer = answer_of(some)
    decisions = [decision_body(answer.decision(at)) for at in range(len(some))]
    plain = msgspec.json.encode({"decisions": decisions, "revision": answer.revision, "decisionId": answer.id})
    assert encode_answer(answer) == plain


@given(rows)
def test_indices_say_what_the_decisions_say(some: list[dict[str, Any]]) -> None:
    answer = answer_of(some)
    decisions = msgspec.json.decode(encode_answer(answer))["decisions"]
    indices = msgspec.json.decode(encode_answer(answer, "indices"))
    assert indices["allowed"] == [at for at, decision in enumerate(decisions) if decision["allowed"]]
    assert indices["size"] == len(decisions)
    rejected = {at: entry["error"] for entry in indices.get("rejected", []) for at in entry["at"]}
    assert rejected == {at: decision["error"] for at, decision in enumerate(decisions) if "error" in decision}
    raised = {at: entry["errors"] for entry in indices.get("errors", []) for at in entry["at"]}
    assert raised == {at: decision["errors"] for at, decision in enumerate(decisions) if decision.get("errors")}
    assert (indices["revision"], indices["decisionId"]) == ("e.1.d", "id")
