"""Decoding of whole batches: equal to decoding check by check, on generated input."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.generators.batch_requests import expand, unresolved

from pdp.decision.bodies import MAX_NESTING, read_values
from pdp.decision.codec import decode_batch, decode_call, decode_checks
from pdp.errors import InvalidArgument, TooManyChecks
from pdp.model.arrays import PathArray
from pdp.model.question import BatchRequest

DEEP = "table:w/" + "/".join("p" * 300)
REFERENCES = [
    "table:w/n/t", "table:w/n/t", "table:w/n/u", "table:w/m/t", "table:w/n/o/t", "table:v/n/t", "view:w/n/t", "table:w/n/t@main",
    "table:w/n/u@main", "table:w/m/t@dev", "table:w/n/t@de%2Fv", "table:w/n/t@d/v", "table:w/n/t@", "table:w/n/t@a@b",
    "table:w/n@x/t", "table:w@x/n/t", "table:w/n/a%2Fb", "table:w/%6E/t", "table:%77/n/t", "table:w/n/%zz", "table:w/n/%C3",
    "table:w//t", "table:w/n/", "table:/n/t", "table:w/t", "table:w", "table:", "table", "", ":", "/", "tab:w/n/t", "tab/t",
    "namespace:w/n", "namespace:w/n/m", "namespace:w", "warehouse:w", "warehouse:w/n", "server", "server:x", "role:a/b", "tag:a/b",
    "user:oidc~a/b@c", "content:w/n/t", "function:w/n/f", "reference:w@main", "table:w/n/\u00e9", "table:w/n/a b", "table:w/n/a\u2028",
    "table:w/n/a\u0007", "table:w/n\u0085/a", "table:w/n/t@m\u0001", "table_or_view:w/n/t$files", "table:w/n/a:b", "table:w/n/\U0001f600",
    DEEP, DEEP.replace("/p/", "/p" * 40 + "/"), "table:" + "w" * 300 + "/n/t",
    {"type": "table", "warehouse": "w", "path": ["n", "t"]}, {"reference": "table:w/n/t", "properties": {"a": 1}},
    {"type": "table", "warehouse": "w", "path": ["n", ""]}, {"reference": "table:w/n/t", "type": "table"}, {"typ": "table"}, 7, None,
]  # fmt: skip
resources = st.sampled_from(REFERENCES)
plain_resources = st.sampled_from(REFERENCES[:10])
PRINCIPALS = [
    "user:oidc~a", "user:oidc~b", "role:r", "anonymous", "user:", {"id": "user:oidc~a"}, {"id": "user:oidc~a", "roles": ["r"]},
    {"id": "user:oidc~a", "attributes": {"a": 1}}, {"id": "user:oidc~a", "attributes": {"a": 1.0}},
    {"id": "user:oidc~a", "attributes": {"a": True}}, {"id": "x"}, 1,
]  # fmt: skip
CONTEXTS = [
    {}, {"queryId": "q"}, {"queryId": "q"}, {"queryId": "q\n"}, {"api": {}}, {"api": {"name": "Iceberg", "version": 1}},
    {"actions": ["X"]}, {"arguments": {"name": "n"}}, {"arguments": {"name": 1}}, {"arguments": {}}, {"arguments": {"a": {"b": [1, "x"]}}},
]  # fmt: skip
ROLES = st.sampled_from(["role:r", "role:", "user:oidc~a"])


def checks_of(one: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Generate checks: about one resource, about a list, about both or about none."""
    return st.fixed_dictionaries(
        {"action": st.sampled_from(["read_data", "read_data", "drop", "trino:SelectFromColumns"])},
        optional={
            "principal": st.sampled_from(PRINCIPALS),
            "delegated": st.booleans(),
            "actingRole": ROLES,
            "context": st.sampled_from(CONTEXTS),
            "resource": one,
            "resources": st.lists(one, max_size=3),
        },
    )


plain_checks = st.builds(
    lambda who, resource: {"principal": who, "action": "read_data", "resource": resource},
    st.sampled_from(PRINCIPALS[:3]),
    resources,
)
ON_ONE_REF = [
    f"table:w/{name}@main" for name in ("n/t", "n/u", "m/t", "", "n/", "n/t@main", "n/@main b", "n/t@main b/")
]
on_one_ref = st.lists(st.sampled_from([*ON_ONE_REF, "x@main", "@main", "table:w/n/t@main b"]), max_size=6)
bodies = st.one_of(
    on_one_ref.map(lambda some: [{"action": "read_data", "resources": some}]),
    st.lists(checks_of(resources), max_size=6),
    st.lists(checks_of(plain_resources), max_size=6),
    st.lists(plain_checks, max_size=12),
    st.lists(resources, max_size=12).map(lambda some: [{"action": "read_data", "resources": some}]),
)


@given(bodies)
@example([{"action": "read_data", "resource": "table:w/n/t"}, {"action": "read_data", "resource": "table:w/%6E/u"}])
@example([{"action": "drop", "actingRole": "role:", "resources": ["table:w/n/t", "?"]}])
def test_a_batch_decodes_to_what_its_checks_decode_to(checks: list[dict[str, Any]]) -> None:
    whole = decode_batch(json.dumps({"checks": checks}, ensure_ascii=False).encode(), 1000)
    single = decode_checks([json.dumps(check).encode() for check in checks]).request("http")
    assert expand(whole) == expand(single)
    assert unresolved(whole) == unresolved(single)
    assert [check.at[0] for check in whole.checks] == sorted(check.at[0] for check in whole.checks)


@given(bodies.filter(bool), st.randoms())
def test_a_duplicate_key_anywhere_refuses_the_whole_body(checks: list[dict[str, Any]], random: Any) -> None:
    text = json.dumps({"checks": checks}, ensure_ascii=False)
    starts = [at for at, char in enumerate(text) if char == "{" and text[at + 1] == '"']
    start = random.choice(starts)
    key = text[start + 1 : text.index(":", start) + 1]
    doubled = text[: start + 1] + key + '"x", ' + text[start + 1 :]
    with pytest.raises(InvalidArgument):
        decode_batch(doubled.encode(), 1000)


@pytest.mark.parametrize("context", [{}, {"api": {}}, {"arguments": {}}, {"actions": []}])
@pytest.mark.parametrize("principal", [{"id": "role:r"}, {"id": "role:r", "attributes": {}}])
@pytest.mark.parametrize("inner", ['"a": 1, "a": 2', '"a": {"b": 1, "b": 2}'])
def test_empty_parts_do_not_hide_a_duplicate_key(context: Any, principal: Any, inner: str) -> None:
    check = {"action": "drop", "resource": "server", "principal": principal, "context": context}
    other = '{"action": "drop", "resource": "server", "context": {"arguments": {' + inner + "}}}"
    with pytest.raises(InvalidArgument, match="duplicate key"):
        decode_batch(f'{{"checks": [{json.dumps(check)}, {other}]}}'.encode(), 1000)


QUOTED = 'table:w/n/t"},{"principal":"user:oidc~b","action":"read_data","resource":"table:w/n/u'
NAMES = [
    *REFERENCES[:12],
    "table:w/n/\u00e9",
    "table:w/n/a b",
    "table:w/n/\\",
    "table:w/n/\\u0041",
    QUOTED,
    'table:w/n/"',
    "",
]
alike = st.fixed_dictionaries(
    {
        "principal": st.sampled_from(
            [*PRINCIPALS[:4], {"id": "user:oidc~a", "attributes": {"resource": "table:w/n/t", "a": 'b","resource":"c'}}]
        ),
        "action": st.sampled_from(["read_data", "drop", "trino:SelectFromColumns"]),
        "resource": st.just("table:w/n/t"),
    },
    optional={
        "delegated": st.booleans(),
        "context": st.sampled_from([*CONTEXTS, {"arguments": {"resource": "x"}}]),
        "resources": st.just([]),
    },
)


@st.composite
def checks_alike(draw: Any) -> list[dict[str, Any]]:
    """Generate many checks about resources, equal in all else but perhaps in one of them."""
    check = draw(alike)
    names = draw(st.sampled_from([REFERENCES[:10], REFERENCES[:10], NAMES]))
    checks = [check | {"resource": name} for name in draw(st.lists(st.sampled_from(names), min_size=8, max_size=12))]
    if draw(st.booleans()):
        other = draw(st.integers(0, len(checks) - 1))
        changes: list[dict[str, Any]] = [
            draw(alike),
            {"delegated": True},
            {"principal": "user:oidc~b"},
            {"resources": []},
        ]
        checks[other] = draw(st.sampled_from([{"action": "drop"}, *(checks[other] | change for change in changes)]))
    return checks


EIGHT = [{"principal": "user:oidc~a", "action": "read_data", "resource": "table:w/n/t"}] * 8


@example([*EIGHT, EIGHT[0] | {"principal": "user:oidc~b"}], {})
@example([*EIGHT, EIGHT[0] | {"action": "read_date"}], {})
@example([check | {"resources": []} for check in EIGHT], {})
@given(
    checks_alike(), st.sampled_from([{}, {"consistency": "minimize_latency"}, {"explain": False, "answer": "indices"}])
)
def test_white_space_between_checks_changes_nothing(checks: list[dict[str, Any]], more: dict[str, Any]) -> None:
    call = {"checks": checks} | more
    compact, spaced = (
        decode_batch(json.dumps(call, ensure_ascii=False, separators=signs).encode(), 1000)
        for signs in ((",", ":"), (", ", ": "))
    )
    assert expand(compact) == expand(spaced)
    assert unresolved(compact) == unresolved(spaced)


@given(checks_alike(), st.randoms(), st.booleans())
def test_a_duplicate_key_between_checks_alike_refuses_the_body(
    checks: list[dict[str, Any]], random: Any, everywhere: bool
) -> None:
    key = random.choice(['"action":', '"resource":'])
    parts = json.dumps({"checks": checks}, ensure_ascii=False, separators=(",", ":")).split(key)
    doubled = {random.randrange(1, len(parts))} if not everywhere else range(1, len(parts))
    twice = random.choice(['"table:w/n/t",', '"read_data",'])
    text = parts[0] + "".join(
        f"{key}{twice}{key}{part}" if at in doubled else key + part for at, part in enumerate(parts[1:], 1)
    )
    with pytest.raises(InvalidArgument, match="duplicate key"):
        decode_batch(text.encode(), 1000)


def test_one_long_check_among_many_makes_no_long_text() -> None:
    """The text that is compared with a body is at most as long as the body."""
    long = {"principal": "user:oidc~a", "action": "x" * 100_000, "resource": "table:w/n/t"}
    short = long | {"action": "drop"}
    body = json.dumps({"checks": [long, *[short] * 1000]}, separators=(",", ":")).encode()
    tracemalloc.start()
    assert decode_batch(body, 2000).size == 1001
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def request_of(*checks: dict[str, Any], limit: int = 1000) -> BatchRequest:
    return decode_batch(json.dumps({"checks": [{"action": "drop"} | check for check in checks]}).encode(), limit)


def test_a_list_takes_one_position_for_each_resource() -> None:
    tables = ["table:w/n/a", "?", "table:w/n/b"]
    request = request_of({"resources": tables}, {"resources": []}, {"resource": "server"})
    by_position = expand(request)
    assert request.size == 4
    assert [by_position[at][-1].path for at in (0, 2)] == [("n", "a"), ("n", "b")]
    assert by_position[3][-1].type == "server"
    assert list(request.rejected) == [1]


def test_a_malformed_list_keeps_the_positions_of_its_neighbours() -> None:
    request = request_of(
        {"resources": ["server", "server"], "unknown": 1}, {"resource": "server"}, {"resources": "server"}, {}
    )
    assert request.size == 5
    assert list(request.rejected) == [0, 1, 3, 4]


def test_a_check_with_one_resource_and_a_list_is_malformed() -> None:
    request = request_of({"resource": "server", "resources": ["server", "server"]})
    assert {rejected.message for rejected in request.rejected.values()} == {
        "a check has `resource` or `resources`, not both"
    }
    assert request.size == 2


@pytest.mark.parametrize("odd", [{}, {"unknown": 1}, {"principal": 7}, {"action": 7}])
def test_a_resource_beside_an_empty_list_keeps_its_position(odd: dict[str, Any]) -> None:
    """Without a position of its own, its neighbour's answer would stand in its place."""
    request = request_of({"resource": "server", "resources": []} | odd, {"resource": "server"})
    assert request.size == 2
    assert list(request.rejected) == [0]
    with pytest.raises(TooManyChecks):
        request_of(*[{"resource": "server", "resources": []} | odd] * 3, limit=2)


def test_the_limit_counts_resources() -> None:
    lists = [{"resources": ["server"] * 3}, {"resources": ["server"] * 3}]
    assert request_of(*lists, limit=6).size == 6
    with pytest.raises(TooManyChecks, match="6 checks in one request, the limit is 5"):
        request_of(*lists, limit=5)
    with pytest.raises(TooManyChecks, match="7 checks in one request, the limit is 6"):
        request_of(*lists, {"resource": 7}, limit=6)


def test_the_form_of_the_answer_is_decisions_or_indices() -> None:
    assert decode_call(b'{"checks": []}', 1)[1] == "decisions"
    assert decode_call(b'{"checks": [], "answer": "indices"}', 1)[1] == "indices"
    with pytest.raises(InvalidArgument, match="invalid enum value 'rows'"):
        decode_call(b'{"checks": [], "answer": "rows"}', 1)
    with pytest.raises(InvalidArgument, match="`explain` needs the answer `decisions`"):
        decode_call(b'{"checks": [], "answer": "indices", "explain": true}', 1)


@pytest.mark.parametrize("action", ["trino:SelectFromColumns", "trino:FilterTables"])
def test_names_of_an_operation_of_trino_are_never_in_columns(action: str) -> None:
    """Its plans find metadata tables such as `t$files` among single resources only."""
    checks = [
        {"principal": "user:oidc~a", "action": action, "resource": f"table:w/s/{name}"} for name in ("t", "t$files")
    ]
    body = json.dumps({"checks": checks}).encode()
    assert not any(isinstance(check.resources, PathArray) for check in decode_batch(body, 10).checks)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-9, 9).map(float),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def numbers_in(value: Any) -> list[int | float]:
    """Return all numbers in a value, in order."""
    if isinstance(value, dict | list):
        return [
            number for part in (value.values() if isinstance(value, dict) else value) for number in numbers_in(part)
        ]
    return [value] if type(value) in (int, float) else []


@given(st.dictionaries(st.text(max_size=2), VALUES, max_size=3), st.integers(1, MAX_NESTING - 20))
def test_whole_numbers_are_ints_at_every_level(values: dict[str, Any], levels: int) -> None:
    for _ in range(levels):
        values = {"x": values}
    read = read_values(values, "attributes")
    assert read == values
    pairs = list(zip(numbers_in(values), numbers_in(read), strict=True))
    for written, found in pairs:
        is_int = isinstance(written, int) or (written.is_integer() and abs(written) < 2**53 and str(written) != "-0.0")
        assert (type(found), str(found)) == ((int, str(int(written))) if is_int else (float, str(written)))


def test_the_numbers_of_the_last_level_are_read() -> None:
    text = '{"x": ' * MAX_NESTING + "1.0" + "}" * MAX_NESTING
    assert json.dumps(read_values(json.loads(text), "attributes")) == text.replace("1.0", "1")
    with pytest.raises(InvalidArgument, match="nested"):
        read_values({"x": json.loads(text)}, "attributes")


@pytest.mark.parametrize("numbers", [[1.5], [2.0]])
def test_arguments_are_read_once_for_all_resources_of_a_body(numbers: list[float]) -> None:
    """Each value takes time: a body of 45 KB had 2,000 resources with 1,000 values each."""
    principal = {"id": "user:oidc~a", "attributes": {"x": numbers}}
    asked = {"principal": principal, "action": "read_data", "resources": ["table:w/n/t", "view:w/n/v"] * 2}
    body = {"checks": [{**asked, "context": {"arguments": {"x": numbers}}}] * 2}
    request, _ = decode_call(json.dumps(body).encode(), 100)
    resources = [resource for check in request.checks for resource in check.resources]
    assert len(resources) == 8
    assert len({id(resource.arguments) for resource in resources}) == 2
    assert {resource.arguments.given["x"][0] for resource in resources} == set(numbers)
    assert len({id(check.question.principal) for check in request.checks}) <= 2


def test_invalid_arguments_reject_every_resource_of_a_body() -> None:
    asked = {"principal": "user:oidc~a", "action": "create_table", "resources": ["namespace:w/n", "namespace:w/m"]}
    body = {"checks": [{**asked, "context": {"arguments": {"nmae": "t"}}}]}
    request, _ = decode_call(json.dumps(body).encode(), 100)
    assert [rejection.message for rejection in request.rejected.values()] == [
        "`context.arguments.nmae` is unknown: write `name`"
    ] * 2
