"""Lines by the frames of prepared plans: byte for byte those of the encoder, and none where a field is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.generators import worlds
from support.generators.generated_pdps import batch, make_pdp

from pdp.audit.queue.waiting import RecordBatcher
from pdp.audit.records import writing
from pdp.audit.records import writing as frames
from pdp.audit.records.record import AnyRecord, DecisionRecord, PlannedRecord
from pdp.audit.records.writing import KNOWN_FIELDS, Frame, RecordEncoder, is_known
from pdp.decision.service import Pdp
from pdp.model.events import OPEN_GATE, AnswerHold, Event
from pdp.model.question import Arguments, Batch, Caller, Principal
from pdp.model.redaction import DEFAULT_MASKER
from pdp.model.vocabulary import NAMING_ACTIONS

CALLERS = [
    Caller("a", frozenset({"principals"})),
    Caller("a", frozenset({"principals"}), request_id="r-1"),
    Caller("a", frozenset({"principals"}), own=Principal("user", 'oidc~"svc'), trace_id="1" * 32, span_id="2" * 16),
    Caller("a", frozenset({"principals"}), own=Principal("user", "x")),
    Caller('b"\u2028', frozenset({"principals"}), own=Principal("user", "x"), request_id="probe"),
]
PATHS = [("n", "t"), ("n", "u"), ("m", "\u00e9"), ('q"', "\\/%@\x7f"), ("probe", "probe"), ("a" * 300, "t")]
EXTRAS: list[dict[str, Any]] = [
    {}, {}, {"id": "i"}, {"properties": {"p": 'v"', "password": "x"}}, {"content_type": "ICEBERG_TABLE"},
    {"arguments": Arguments(given={"columns": ["a", "\u2028"]})}, {"ref_type": "BRANCH", "id": "\x00\x01"},
]  # fmt: skip
QUERIES = [("", ""), ("q-1", ""), ("q-2", "user:oidc~z")]
CONFIG = {"warehouses": {"w": {"project": "p", "default_ref": "main"}}}
LEAF = {"principal": "user:oidc~a", "action": "read_data", "resource": "table:w/n/t"}
TREE = {**LEAF, "resource": "table_or_view:w/n/t"}


class Records:
    """Audit that keeps records as they come."""

    gate: AnswerHold = OPEN_GATE

    def __init__(self) -> None:
        self.kept: list[AnyRecord] = []

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: AnyRecord) -> None:
        self.kept.append(record)

    def note(self, event: Event) -> bool:
        return True


def recording(*parts: Any) -> tuple[Pdp, list[AnyRecord]]:
    """Return a service, and the list that its records go to."""
    pdp, audit = make_pdp(*parts), Records()
    pdp.audit = audit
    return pdp, audit.kept


def planned(pdp: Pdp, kept: list[AnyRecord], asked: Batch) -> PlannedRecord:
    """Return the record of a batch whose plan is prepared."""
    for _ in range(3):
        pdp.decide_now(asked)
    record = kept[-1]
    assert isinstance(record, PlannedRecord)
    return record


def frames_of(record: PlannedRecord) -> list[Any]:
    return list(record.plan.frames.values())


@st.composite
def variants(draw: st.DrawFn, asked: Batch) -> Batch:
    """Draw a batch about the same question, from any surface and caller, with other texts in all holes of a frame."""
    check = asked.checks[0]
    resource = check.resources[0]
    if resource.path:
        more = draw(st.sampled_from(EXTRAS))
        resource = msgspec.structs.replace(resource, path=draw(st.sampled_from(PATHS)), **more)
    query, user = draw(st.sampled_from(QUERIES))
    check = msgspec.structs.replace(check, resources=(resource,), query_id=query, query_user=user)
    surface = draw(st.sampled_from(["http", "grpc", "trino", "authzen", 's"']))
    return msgspec.structs.replace(asked, surface=surface, caller=draw(st.sampled_from(CALLERS)), checks=(check,))


@given(worlds.configs, worlds.rules, worlds.rules, worlds.grants, worlds.checks, st.data())
def test_lines_by_frames_are_those_of_the_encoder(
    config: Any, rules: Any, forbids: Any, grants: Any, checks: Any, data: st.DataObject
) -> None:
    pdp, kept = recording(config, rules, grants, forbids)
    for check in checks[:2]:
        asked = batch([check])
        for one in [asked] * 2 + [data.draw(variants(asked)) for _ in range(12 if len(asked.checks) == 1 else 0)]:
            pdp.decide_now(one)
    encoders = RecordEncoder('i"1'), RecordEncoder("i2")
    for seq, record in enumerate(kept):
        for encoder in encoders:
            line = encoder.planned_line(record, seq) if isinstance(record, PlannedRecord) else b""
            assert line in (b"", encoder.encode(record.whole(), seq) + b"\n")
    by_frame = [
        any(isinstance(one, Frame) for one in frames_of(each)) for each in kept if isinstance(each, PlannedRecord)
    ]
    event(f"planned: {bool(by_frame)}")
    assert all(by_frame)


OUTCOMES = {
    "permit": ("true", ()), "silence": ("false", ()), "error": ("roles[7] == 'x'", ()), "forbid": ("true", ["true"]),
}  # fmt: skip


@pytest.mark.parametrize("check", [LEAF, TREE], ids=["leaf", "tree"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_of_a_plan_has_the_line_of_the_encoder(outcome: str, check: Any) -> None:
    rule, forbids = OUTCOMES[outcome]
    pdp, kept = recording(CONFIG, {"r": f"path == 'n.t' && {rule}", "s": f"path == 'n.u' && {rule}"}, [], {f"f{at}": text for at, text in enumerate(forbids)})  # fmt: skip
    asked = planned(pdp, kept, batch([check])).batch
    for path, caller, (query, user), more in product(PATHS, CALLERS, QUERIES, EXTRAS[1:]):
        resource = msgspec.structs.replace(asked.checks[0].resources[0], path=path, **more)
        about = msgspec.structs.replace(asked.checks[0], resources=(resource,), query_id=query, query_user=user)
        pdp.decide_now(msgspec.structs.replace(asked, caller=caller, checks=(about,)))
    encoder = RecordEncoder("i")
    for seq, record in enumerate(kept):
        if isinstance(record, PlannedRecord):
            assert encoder.planned_line(record, seq) == encoder.encode(record.whole(), seq) + b"\n"
            assert {type(one) for one in frames_of(record)} == {Frame}


def test_each_plan_keeps_few_frames_and_few_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    pdp, kept = recording(CONFIG, {"r": "true"})
    asked = planned(pdp, kept, batch([TREE])).batch
    encoder = RecordEncoder("i")
    for number in range(40):
        record = planned(pdp, kept, msgspec.structs.replace(asked, surface=f"s{number}"))
        for seq in range(2):
            encoder.planned_line(record, seq)
        assert len(frames_of(record)) <= frames.MOST_FRAMES
    assert all(len(frame.tails) == 1 for frame in frames_of(record))
    monkeypatch.setattr(writing, "LONGEST_FRAME", 100)
    record.plan.frames.clear()
    assert encoder.planned_line(record, 1) == encoder.encode(record.whole(), 1) + b"\n"
    assert frames_of(record) == [()]


@pytest.mark.parametrize("action", sorted(NAMING_ACTIONS & {"create_table", "create_view", "create_namespace"}))
def test_a_check_that_may_lack_a_name_has_no_frame(action: str) -> None:
    pdp, kept = recording(CONFIG, {"r": "true"})
    asked = {"principal": "user:oidc~a", "action": action, "resource": "namespace:w/n"}
    for name in ("a", "b", "c"):
        pdp.decide_now(batch([{**asked, "context": {"arguments": {"name": name}}}]))
    pdp.decide_now(batch([asked]))
    encoder = RecordEncoder("i")
    records = [record for record in kept if isinstance(record, PlannedRecord)]
    for record in records * 2:
        assert encoder.planned_line(record, 1) == encoder.encode(record.whole(), 1) + b"\n"
        assert frames_of(record) == [()]
    assert records


def test_a_record_that_cannot_be_encoded_keeps_its_outcome() -> None:
    pdp, kept = recording(CONFIG, {"r": "true"})
    asked = planned(pdp, kept, batch([LEAF])).batch
    check = asked.checks[0]
    resource = msgspec.structs.replace(check.resources[0], path=("n", "\ud800"))
    pdp.decide_now(msgspec.structs.replace(asked, checks=(msgspec.structs.replace(check, resources=(resource,)),)))
    failures: list[None] = []
    batcher = RecordBatcher("i", DEFAULT_MASKER, None, lambda: failures.append(None))
    for record in kept[-3:]:
        batcher.put(record, 1)
    batcher.encode_all()
    taken = batcher.take()
    assert taken
    lines = [msgspec.json.decode(line) for line in taken.lines]
    assert [line.get("unencodable", "") for line in lines] == ["", "", "UnicodeEncodeError"]
    assert [line["seq"] for line in lines] == [0, 1, 2]
    assert (lines[2]["allowed"], len(failures)) == ("1", 1)
    assert all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in taken.lines)


VALUES: dict[str, tuple[bool, dict[str, Any]]] = {
    "names": (False, {}),
    "arguments": (True, {"context": {"arguments": {"x": [[["password"]]]}}}),
    "properties": (
        True,
        {"resources": [{"type": "table", "warehouse": "w", "path": ["n", "t"], "properties": {"x": [[1]]}}] * 65},
    ),
}


@pytest.mark.parametrize("kind", VALUES)
async def test_free_values_of_many_rows_are_encoded_beside_the_event_loop(kind: str) -> None:
    is_beside, more = VALUES[kind]
    pdp, kept = recording(CONFIG, {"r": "true"})
    asked = {"principal": "user:oidc~a", "action": "read_data", "resources": ["table:w/n/t"] * 65, **more}
    await pdp.decide(batch([asked]))
    called = []

    async def run_beside(work: Callable[..., bytes], *arguments: object) -> bytes:
        called.append(work)
        return work(*arguments)

    batcher = RecordBatcher("i", DEFAULT_MASKER, run_beside, lambda: None)
    batcher.put(kept[-1], 65)
    batcher.encode()
    assert batcher.has_work() is (len(called) > 0)  # nothing waits for an encoder
    await asyncio.sleep(0)
    assert (len(called) == 1) is is_beside
    assert batcher.take()


def test_a_frame_keeps_few_tails() -> None:
    names = [f"t{number}" for number in range(40)]
    pdp, kept = recording(CONFIG, {name: f"path == 'n.{name}'" for name in names})
    encoder = RecordEncoder("i")
    for name in [*names, *names]:
        record = planned(pdp, kept, batch([{**TREE, "resource": f"table_or_view:w/n/{name}"}]))
        for seq in range(2):
            assert encoder.planned_line(record, seq) == encoder.encode(record.whole(), seq) + b"\n"
        (frame,) = frames_of(record)
        assert 1 <= len(frame.tails) <= 4


# --- fields that nobody has thought of --------------------------------------------------------------------------------


def test_frames_know_every_field_of_a_record() -> None:
    assert is_known()


@pytest.mark.parametrize("type", KNOWN_FIELDS, ids=lambda type: type.__name__)
def test_a_new_field_of_a_record_leaves_no_frame(type: type[msgspec.Struct], monkeypatch: pytest.MonkeyPatch) -> None:
    new = msgspec.defstruct("New", [("added", str, "")], bases=(type,), frozen=True)
    fields = {new if one is type else one: names for one, names in KNOWN_FIELDS.items()}
    assert not is_known(fields)
    monkeypatch.setattr(writing, "is_known", lambda: is_known(fields))
    pdp, kept = recording(CONFIG, {"r": "true"})
    record, encoder = planned(pdp, kept, batch([LEAF])), RecordEncoder("i")
    for seq in range(3):
        assert encoder.planned_line(record, seq) == encoder.encode(record.whole(), seq) + b"\n"
    assert frames_of(record) == [()]


NEW_TEXTS: dict[str, Callable[[DecisionRecord], Any]] = {
    "path": lambda record: len(record.batch.checks[0].resources[0].path[-1]),
    "outcome": lambda record: int(record.answer.allowed[0]),
    "reason": lambda record: len(record.answer.by[0] or ""),
    "id": lambda record: record.answer.id,
    "time": lambda record: int(record.time),
    "query": lambda record: record.batch.checks[0].query_id,
    "sender": lambda record: record.batch.caller.request_id,
}


@pytest.mark.parametrize("rule", ["true", "false"])
@pytest.mark.parametrize("check", [LEAF, TREE], ids=["leaf", "tree"])
@pytest.mark.parametrize("source", NEW_TEXTS)
def test_a_new_text_that_depends_on_a_hole_leaves_no_frame(
    source: str, check: Any, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = RecordEncoder._body

    def more(self: RecordEncoder, record: DecisionRecord) -> str:
        return f'"new":"{NEW_TEXTS[source](record)}",{body(self, record)}'

    monkeypatch.setattr(RecordEncoder, "_body", more)
    pdp, kept = recording(CONFIG, {"r": rule})
    record, encoder = planned(pdp, kept, batch([check])), RecordEncoder("i")
    for seq in range(3):
        assert encoder.planned_line(record, seq) == encoder.encode(record.whole(), seq) + b"\n"
    assert frames_of(record) == [()]


def test_a_new_text_about_the_question_is_in_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    body = RecordEncoder._body
    monkeypatch.setattr(
        RecordEncoder, "_body", lambda self, record: f'"new":"{record.batch.surface}",{body(self, record)}'
    )
    pdp, kept = recording(CONFIG, {"r": "true"})
    record, encoder = planned(pdp, kept, batch([LEAF])), RecordEncoder("i")
    for _ in range(2):
        assert b'"new":"case"' in encoder.planned_line(record, 0)
    assert [type(one) for one in frames_of(record)] == [Frame]
