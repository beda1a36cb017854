"""Generated audit records: every field, whether or not a service would ever fill the field so."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pdp.audit.records.record import DecidedCheck, DecisionRecord, LeafDecision
from pdp.engines.engine import PERMIT, EngineQuestion, Verdicts
from pdp.model.answer import Answer, Rejection, SchemaColumn
from pdp.model.arrays import PathArray
from pdp.model.question import (
    NO_ARGUMENTS,
    UNNAMED,
    Arguments,
    Batch,
    Caller,
    ChainView,
    Check,
    Load,
    Principal,
    Question,
    RequestContext,
    Resource,
    ViewCommit,
)

names = st.sampled_from(["a", "a_b", "ä/ö", "50%", "x@y", 'q"\\', "\x7f\u2028", "😀", "line\nend"]) | st.text(
    min_size=1
)
optional = st.none() | names
tuples = st.lists(names, max_size=2).map(tuple)
objects = st.dictionaries(names, st.none() | st.integers(-5, 5) | names | st.lists(names, max_size=2), max_size=2)
principals = st.builds(
    Principal,
    type=st.sampled_from(["user", "role", "anonymous"]),
    name=st.just("") | names,
    roles=tuples,
    groups=tuples,
    attributes=st.sampled_from(["{}", '{"a":[1,{"ä":null}]}']),
    member_of=tuples,
    unknown=tuples,
    unseen=tuples,
)
envs = st.builds(RequestContext, st.just("") | names, st.integers(0, 3), tuples)
resources = st.builds(
    Resource,
    type=st.sampled_from(["table", "view", "warehouse", "server", "role", "project", "catalog", "reference"]),
    warehouse=names,
    path=tuples,
    ref=optional,
    name=names,
    content_type=st.just("") | names,
    ref_type=st.just("") | names,
    id=st.just("") | names,
    properties=st.none() | objects,
    arguments=st.just(NO_ARGUMENTS)
    | st.builds(Arguments, given=objects, destination=st.none() | st.builds(Resource, st.just("table"), names, tuples)),
)
bare = st.builds(Resource, st.just("table"), names, tuples, optional)
securities = (
    st.none()
    | st.builds(
        Load,
        st.lists(st.builds(ChainView, tuples, st.booleans(), st.just("") | names), max_size=2).map(tuple),
        columns=st.lists(st.from_type(SchemaColumn), max_size=2).map(tuple),
    )
    | st.builds(ViewCommit, tuples)
)
reasons = st.none() | st.sampled_from(["cel:r", "default_deny"]) | names


@st.composite
def columns_of_resources(draw: st.DrawFn, count: int) -> Any:
    """Return `count` resources of any of the forms."""
    if draw(st.booleans()):
        parents = draw(st.lists(tuples, min_size=1, max_size=count, unique=True))
        others = draw(st.lists(st.integers(0, len(parents) - 1), min_size=count, max_size=count))
        parent_at = (*range(len(parents)), *others)[:count]  # each container has a row
        as_bytes = bytes(parent_at) if draw(st.booleans()) else list(parent_at)
        return PathArray(draw(bare), parents, as_bytes, draw(st.lists(names, min_size=count, max_size=count)))
    found = draw(st.lists(bare | resources, min_size=count, max_size=count))
    return tuple(found) if draw(st.booleans()) else found


@st.composite
def verdicts(draw: st.DrawFn, count: int, by: Any = None) -> Verdicts:
    """Return verdicts on `count` resources, with the column of reasons `by` if given."""
    effects = bytes(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    reason_column = draw(st.lists(reasons, min_size=count, max_size=count)) if by is None else by
    return Verdicts(effects, reason_column, draw(errors(count)))


def errors(count: int) -> Any:
    """Return a strategy of errors by row."""
    return st.dictionaries(st.integers(0, count - 1), tuples, max_size=2)


@st.composite
def decided_checks(draw: st.DrawFn, start: int) -> DecidedCheck:
    """Return a decided check whose positions begin at `start`."""
    count = draw(st.integers(1, 4))
    column = draw(columns_of_resources(count))
    positions: Any = range(start, start + count)
    at = positions if draw(st.booleans()) else list(positions)
    check = Check(Question(draw(principals), draw(names), delegated=draw(st.booleans()), acting_role=draw(optional), context=draw(envs), view_security=draw(securities), inspected=draw(st.booleans())), column, at, query_id=draw(st.just("") | names), query_user=draw(st.just("") | names))  # fmt: skip
    leaves = []
    shared = None
    for _ in range(draw(st.integers(0, 3))):
        subject = draw(st.just(check.question.principal) | principals)
        group = EngineQuestion(
            Question(subject, draw(names)), draw(st.sampled_from(["table", "view"])), "w", draw(optional),
            draw(st.just(()) | st.none() | tuples),
            draw(st.just(()) | tuples),
        )  # fmt: skip
        decided = draw(verdicts(count, shared if draw(st.booleans()) else None))
        shared = decided.by
        leaves.append(LeafDecision(group, column if draw(st.booleans()) else list(column), at, decided))
    outcome = draw(verdicts(count, shared)) if draw(st.booleans()) else None
    return DecidedCheck(check, draw(st.booleans()), tuple(leaves), outcome)


def put_outcome(decided: DecidedCheck, allowed: bytearray, by: list[Any], raised: dict[int, Any]) -> None:
    """Put the outcome of a check into the columns of the answer."""
    outcome = decided.outcome
    for row, at in enumerate(decided.check.at if outcome else ()):
        assert outcome
        allowed[at], by[at] = outcome.effects[row] == PERMIT, outcome.by[row]
        raised.pop(at, None)
        raised |= {at: outcome.errors[row]} if row in outcome.errors else {}


def cached_columns(size: int) -> st.SearchStrategy[bytes]:
    """Return which positions rest on cached verdicts: mostly none, and then usually an empty column."""
    return st.just(b"") | st.lists(st.integers(0, 1), min_size=size, max_size=size).map(bytes)


callers = st.builds(Caller, names, st.just(frozenset()), own=st.none() | principals)


@st.composite
def records(draw: st.DrawFn) -> DecisionRecord:
    """Return any record."""
    decided: list[DecidedCheck] = []
    size = 0
    for _ in range(draw(st.integers(0, 3))):
        decided.append(draw(decided_checks(size)))
        size += len(decided[-1].check.at)
    rejected = {
        size + number: draw(st.builds(Rejection, names, names, names)) for number in range(draw(st.integers(0, 2)))
    }
    size += len(rejected)
    refused = []
    for principal in draw(st.lists(st.none() | st.just(UNNAMED), max_size=2)):
        check = draw(decided_checks(size)).check
        refused.append(check if principal is None else check.asking(principal=principal))
        rejected |= dict.fromkeys(check.at, draw(st.builds(Rejection, names, names, names)))
        size += len(check.at)
    checks = tuple(one.check for one in decided)
    batch = Batch(draw(names), draw(callers), size, checks, rejected, refused=tuple(refused))
    allowed = bytearray(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    by = draw(st.lists(reasons, min_size=size, max_size=size))
    raised = draw(errors(size)) if size else {}
    for one in decided:
        put_outcome(one, allowed, by, raised)
    answer = Answer(draw(names), draw(names), bytes(allowed), by, raised, rejected, {}, draw(cached_columns(size)))
    masks = draw(st.none() | st.dictionaries(names, reasons, max_size=2))
    time = draw(st.floats(0, 4e9))
    return DecisionRecord(batch, answer, tuple(decided), "d", b"", time, draw(st.integers(0)), masks)


_subjects = st.sampled_from([Principal("user", "a"), Principal("user", "a", ("r",)), Principal("role", 'q"\\')])
_few_envs = st.sampled_from([RequestContext(), RequestContext(actions=("x",)), RequestContext("a", 1)])
_few_names = st.sampled_from(["a", 'q"\\', "ä/@"])
_few_groups = st.builds(
    EngineQuestion, st.builds(Question, _subjects, _few_names, st.booleans(), context=_few_envs),
    st.sampled_from(["table", "view", "role"]), st.just("w"), st.none() | _few_names,
)  # fmt: skip


@st.composite
def single_records(draw: st.DrawFn) -> DecisionRecord:
    """Return a record of one plain check of one resource, from few texts, so that records often share some."""
    path = draw(st.lists(_few_names, max_size=2).map(tuple))
    resource = Resource("table", "w", path, draw(st.none() | _few_names), id=draw(st.sampled_from(["", "", "i"])))
    query = draw(st.sampled_from(["", "q1", 'q"2']))
    check = Check(Question(draw(_subjects), "a", delegated=draw(st.booleans()), acting_role=draw(st.none() | _few_names), context=draw(_few_envs), inspected=draw(st.booleans())), (resource,), range(1), query_id=query, query_user=draw(st.sampled_from(["", "user:x"])))  # fmt: skip
    raised = draw(st.sampled_from([{}, {0: ("r1",)}]))
    found = Verdicts(draw(st.sampled_from([b"\0", b"\1", b"\2"])), [draw(st.none() | _few_names)], raised)
    decided = DecidedCheck(check, True, (LeafDecision(draw(_few_groups), check.resources, check.at, found),))
    batch = Batch(draw(_few_names), Caller(draw(_few_names), frozenset()), 1, (check,))
    answer = Answer(
        draw(_few_names), draw(_few_names), found.effects, found.by, found.errors, {}, {}, draw(cached_columns(1))
    )
    return DecisionRecord(batch, answer, (decided,), "d", b"", draw(st.floats(0, 4e9)), 7)


@st.composite
def split_records(draw: st.DrawFn) -> DecisionRecord:
    """Return a record of one check of one resource that the plan split, from few texts."""
    path = draw(st.lists(_few_names, max_size=2).map(tuple))
    arguments = draw(st.sampled_from([NO_ARGUMENTS, NO_ARGUMENTS, Arguments("n", given={"columns": ["c"]})]))
    type = draw(st.sampled_from(["table_or_view", "table", "role", "warehouse"]))
    resource = Resource(type, "w", path, draw(st.none() | _few_names), "n", arguments=arguments)
    check = Check(Question(draw(_subjects), draw(_few_names), delegated=draw(st.booleans()), acting_role=draw(st.none() | _few_names), context=draw(_few_envs)), (resource,), range(1), query_id=draw(st.sampled_from(["", "q1"])), query_user=draw(st.sampled_from(["", "user:x"])))  # fmt: skip
    leaves = []
    for _ in range(draw(st.integers(0, 3))):
        resources = check.resources if draw(st.integers(0, 9)) else (resource,)
        leaves.append(LeafDecision(draw(_few_groups), resources, check.at, draw(verdicts(1))))
    found = draw(verdicts(1))
    decided = DecidedCheck(check, False, tuple(leaves), found)
    batch = Batch(draw(_few_names), Caller(draw(_few_names), frozenset()), 1, (check,))
    allowed = bytes([found.effects[0] == PERMIT])
    answer = Answer(
        draw(_few_names), draw(_few_names), allowed, found.by, found.errors, {}, {}, draw(cached_columns(1))
    )
    return DecisionRecord(batch, answer, (decided,), "d", b"", draw(st.floats(0, 4e9)), 7)
