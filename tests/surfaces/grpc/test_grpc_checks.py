"""Decoding of gRPC messages in columns: equal to the generated classes check by check, also for hostile bytes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.generators.batch_requests import expand, unresolved

from pdp.decision.batch_builder import BatchBuilder
from pdp.decision.turns import LONGEST_IMMEDIATE
from pdp.errors import InvalidArgument, PdpError, TooManyChecks
from pdp.model.answer import Rejection
from pdp.model.question import BatchRequest
from pdp.surfaces.grpc.checks import is_dense, read_checks, read_single
from pdp.surfaces.grpc.messages import read_check, read_resource
from pdp.surfaces.wire import decision_pb2 as wire

PRINCIPALS = [
    wire.Principal(id="user:oidc~alice"), wire.Principal(id="user:oidc~alice", roles=["r"]), wire.Principal(id="?"),
    wire.Principal(id="role:\u00e9"), None,
]  # fmt: skip
for principal in PRINCIPALS[1:2]:
    principal.attributes.update({"a": 1})  # type: ignore[union-attr]
REFERENCES = [
    "table:lake/n/t", "table:lake/n/u", "table:lake/m/t", "table:lake/n/t@main", "table:lake/n/\u00e9", "table:lake/n/a%2Fb",
    "table:lake/\u4e2d/t", "?", "", "server", "table:lake/n/" + "x" * 200, "table:lake/n/" + "x" * 112, "table:lake/\x1a\x04\n\x02ab",
]  # fmt: skip
RESOURCES = [
    *(wire.Resource(reference=reference) for reference in REFERENCES),
    wire.Resource(type="table", warehouse="lake", path=["n", "t"]),
    wire.Resource(reference="table:lake/n/t", id="7"),
]
CONTEXTS = [None, wire.Context(), wire.Context(query_id="q"), wire.Context(actions=["X"], api=wire.Api(name="Iceberg"))]
resources = st.sampled_from(RESOURCES)
plain = st.sampled_from(RESOURCES[:4])


def check_messages(one: st.SearchStrategy[Any]) -> st.SearchStrategy[wire.Check]:
    """Generate checks about one resource, a list, both or none."""
    return st.builds(
        lambda **fields: wire.Check(**{name: value for name, value in fields.items() if value}),
        principal=st.sampled_from(PRINCIPALS),
        action=st.sampled_from(["read_data", "drop", ""]),
        resource=one | st.none(),
        delegated=st.booleans(),
        acting_role=st.sampled_from([None, "role:r"]),
        context=st.sampled_from(CONTEXTS),
        resources=st.just([]) | st.lists(one, max_size=4),
    )


repeated = st.builds(
    lambda question, some: [wire.Check(**question, resource=resource) for resource in some],
    st.sampled_from(
        [
            {"principal": PRINCIPALS[0], "action": "read_data"},
            {"principal": PRINCIPALS[1], "action": "drop", "context": CONTEXTS[2], "acting_role": "role:r"},
            {"action": "read_data", "delegated": True},
        ]
    ),
    st.lists(resources, min_size=4, max_size=20),
)
references = st.sampled_from([*RESOURCES[:3], *RESOURCES[9:13]])
runs = st.builds(
    lambda question, some, last: [wire.Check(**question, resource=resource) for resource in [*some * 3, *last]],
    st.sampled_from(
        [
            {"principal": PRINCIPALS[0], "action": "read_data"},
            {"principal": PRINCIPALS[0], "action": "a" * 40, "context": CONTEXTS[2]},
            {"action": "\x1a"},
            {},
        ]
    ),
    st.lists(references, min_size=8, max_size=12),
    st.lists(resources, max_size=3),
)
"""Checks of one question, more than are looked at one by one."""
batches = st.one_of(
    repeated,
    runs,
    st.lists(runs, min_size=2, max_size=3).map(lambda some: [check for part in some for check in part]),
    st.lists(repeated, min_size=2, max_size=3).map(lambda some: [check for part in some for check in part]),
    st.lists(check_messages(resources), min_size=4, max_size=12),
    st.lists(check_messages(plain), min_size=4, max_size=12),
)


def read_plainly(body: bytes) -> Any:
    """Return the positions of a message as the generated classes read it, one check at a time."""
    try:
        request = wire.CheckRequest.FromString(body)
    except DecodeError:
        return "invalid"
    builder = BatchBuilder()
    for check in request.checks:
        try:
            builder.add_body(read_check(check))
        except InvalidArgument as error:
            builder.reject(Rejection(error.code, str(error)), max(1, len(check.resources)))
    done = builder.request("grpc")
    return expand(done), unresolved(done), request.explain, request.answer, request.consistency


def read_fast(body: bytes) -> Any:
    try:
        builder, rest = read_checks(body, 1000)
    except PdpError:
        return "invalid"
    done = builder.request("grpc")
    return expand(done), unresolved(done), rest.explain, rest.answer, rest.consistency


@settings(max_examples=300)
@given(batches)
@example([wire.Check(resource=wire.Resource(reference="table:lake/n/t"))] * 20)
@example([wire.Check(action="a" * 130, resource=wire.Resource(reference="table:lake/n/t"))] * 4)
def test_a_message_is_read_as_its_checks_one_by_one(checks: list[wire.Check]) -> None:
    request = wire.CheckRequest(checks=checks, explain=True, answer="indices", consistency=wire.Consistency(full=True))
    assert read_fast(request.SerializeToString()) == read_plainly(request.SerializeToString())


@given(check_messages(resources))
def test_a_single_check_is_read_as_by_the_builder(check: wire.Check) -> None:
    single = read_single(wire.CheckRequest(checks=[check]))
    builder = BatchBuilder()
    try:
        builder.add_body(read_check(check))
    except InvalidArgument:
        builder.reject(Rejection("invalid_argument", ""))
    done = builder.request("grpc")
    if single is None:
        assert done.rejected or check.resources
    else:
        assert expand(BatchRequest("grpc", 1, (single,), {})) == expand(done)


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("extra", [b"", b"\x7a\x01a"])
def test_a_resource_is_its_reference_if_there_is_nothing_else(resource: wire.Resource, extra: bytes) -> None:
    resource = wire.Resource.FromString(resource.SerializeToString() + extra)
    alone = resource.reference and resource == wire.Resource(reference=resource.reference)
    assert isinstance(read_resource(resource), str) == bool(alone)


FIELDS = [
    b"\n\x00", b"\n\x02\x12\x00", b"\x18\x01", b"\x1a\x00", b"\x1a\x04\n\x02ab", b"\x20\x01", b"\x3a\x04\n\x02ab", b"\x12\x03abc",
    b"\x7a\x06\x1a\x04\n\x02ab", b"\x0a\x80\x00", b"\x0a\x82\x00\x12\x00", b"\xff\xff", b"\x13\x14", b"\x32\x04\x22\x02qq",
]  # fmt: skip


@settings(max_examples=500)
@given(repeated | runs, st.data())
def test_hostile_bytes_are_read_as_by_the_generated_classes(checks: list[wire.Check], data: Any) -> None:
    contents = [check.SerializeToString() for check in checks]
    at = data.draw(st.integers(0, len(contents) - 1))
    where = data.draw(st.integers(0, len(contents[at])))
    extra = data.draw(st.sampled_from(FIELDS) | st.binary(max_size=3))
    cut = data.draw(st.integers(0, 2))
    contents[at] = contents[at][:where] + extra + contents[at][where + cut :]
    body = b"".join(b"\n" + _varint(len(content)) + content for content in contents)
    where = data.draw(st.integers(0, len(body)))
    body = data.draw(st.sampled_from([body, body[:where], body[:where] + extra + body[where + cut :], body + extra]))
    assert read_fast(body) == read_plainly(body)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


@pytest.mark.parametrize("lists", [False, True])
def test_the_limit_counts_resources(lists: bool) -> None:
    resource = wire.Resource(reference="table:lake/n/t")
    question = wire.Check(principal=PRINCIPALS[0], action="read_data")
    checks = [wire.Check(resources=[resource] * 30)] if lists else [wire.Check(resource=resource)] * 30
    for check in checks:
        check.MergeFrom(question)
    body = wire.CheckRequest(checks=checks).SerializeToString()
    assert read_checks(body, 30)[0].size == 30
    with pytest.raises(TooManyChecks, match="30 checks in one request, the limit is 29"):
        read_checks(body, 29)


TINY = {
    "empty": wire.Check(),
    "action": wire.Check(action="x"),
    "principal": wire.Check(principal=wire.Principal(id="")),
    "no reference": wire.Check(action="a", resource=wire.Resource(reference="")),
}


@pytest.mark.parametrize("name", TINY)
def test_thousands_of_tiny_checks_in_a_short_body_are_read_beside_the_event_loop(name: str) -> None:
    body = wire.CheckRequest(checks=[TINY[name]] * 5000).SerializeToString()
    assert len(body) < LONGEST_IMMEDIATE
    assert is_dense(body)


@pytest.mark.parametrize("count", [1, 40, 1000])
@pytest.mark.parametrize("principal", ["", "user:oidc~alice"])
def test_ordinary_checks_are_read_at_once(count: int, principal: str) -> None:
    resources = [wire.Resource(reference=f"table:lake/sales/orders_{at}") for at in range(count)]
    who = wire.Principal(id=principal) if principal else None
    checks = [wire.Check(principal=who, action="read_data", resource=one) for one in resources]
    column = [wire.Check(principal=who, action="read_data", resources=resources)]
    assert not is_dense(wire.CheckRequest(checks=checks).SerializeToString())
    assert not is_dense(wire.CheckRequest(checks=column).SerializeToString())
