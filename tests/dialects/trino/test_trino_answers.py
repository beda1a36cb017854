"""No answer that Trino would misread can be got: whatever is sent, and whatever fails inside."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clients.http_client import HttpClient, client_of
from support.oracles.trino_answers import ENDPOINTS, objection
from support.oracles.trino_wants import FILES, GROUPS, RECORDED, Asked, bodies_of_statements
from support.oracles.trino_wants import settings as settings_of

from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import parse_document
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import PolicyError
from pdp.model.answer import TypedColumn
from pdp.model.question import Principal, Resource
from pdp.store.world import parse_world

EXAMPLES = int(os.environ.get("PDP_TRINO_BODIES", "3000"))
"""Bodies that one run sends."""
BOTH = next(file for file in FILES if file.stem == "both")
SENT: dict[str, list[Asked]] = {
    endpoint: [asked for asked in bodies_of_statements() if asked[0] == endpoint] for endpoint in ENDPOINTS
}
"""What a real Trino sent, by endpoint."""


class Running:
    """A service, and a way to send it bytes from tests that are not asynchronous."""

    def __init__(self, runner: asyncio.Runner, client: HttpClient) -> None:
        self.service = client.service
        self._runner = runner
        self._client = client

    def post(self, endpoint: str, body: bytes, **headers: str) -> tuple[int, str, bytes]:
        """Status, media type and bytes of the answer."""
        path = f"/v1/data/trino/{endpoint}"
        response = self._runner.run(self._client.send("POST", path, body, headers, allow_redirects=False))
        return response.status, response.media_type, response.content


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with asyncio.Runner() as runner:
        policies = yaml.safe_load(BOTH.read_text())
        context = client_of(settings_of(policies, tmp_path_factory.mktemp("service")))
        yield Running(runner, runner.run(context.__aenter__()))
        runner.run(context.__aexit__(None, None, None))


# --- bodies ----------------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(["s", "people", "t_new", "v_def", "iceberg", "memory", "tpch", "system", "information_schema", "ssn"]),
    st.sampled_from(["", " ", "a.b", ".", "..", "a.", "@", "t@dev", "#", "`t`", "%2F", "a/b", "\\", '"', "'", "$", "$path"]),
    st.sampled_from(["people$files", "people$snapshots", "people$", "$files", "people$x$refs", "people$all_entries"]),
    st.sampled_from(["PEOPLE", "Pe\u00f6ple", "people\u0000", "\u2028", "\u202e", "\U0001f600", "\x1f", "\x7f", "\x85", "e\u0301"]),
    st.sampled_from(["x" * 5000, "a." * 2000, "$files" * 500, "\u00e9" * 3000]),
    st.text(max_size=8),
)  # fmt: skip
"""Names that may be read as something else."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OPERATIONS = st.sampled_from(
    sorted({body["input"]["action"]["operation"] for some in SENT.values() for _, body in some})
)
USERS = st.sampled_from(sorted(GROUPS))


class Object(list[tuple[str, Any]]):
    """A JSON object that may hold a key twice."""


def written(value: Any) -> str:
    """JSON, keys that stand twice included."""
    if isinstance(value, Object):
        return "{" + ",".join(f"{json.dumps(key)}:{written(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def taken_apart(value: Any) -> Any:
    if isinstance(value, dict):
        return Object((key, taken_apart(item)) for key, item in value.items())
    return [taken_apart(item) for item in value] if isinstance(value, list) else value


def places(value: Any) -> Iterator[tuple[Any, int]]:
    """Every place of a tree: what holds it, and where in there."""
    for at, item in enumerate(value if isinstance(value, list) else ()):
        yield value, at
        yield from places(item[1] if isinstance(value, Object) else item)


def recorded() -> st.SearchStrategy[Asked]:
    return st.sampled_from(ENDPOINTS).flatmap(lambda endpoint: st.sampled_from(SENT[endpoint]))


def changed(draw: st.DrawFn, change: str, value: Any) -> Any:
    """Something else in a value's place."""
    if change == "null":
        return None
    if change == "value":
        return taken_apart(draw(JSON))
    return (value if change == "suffix" and isinstance(value, str) else "") + draw(NAMES | st.just("\ud800"))


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A recorded body of which a few places are changed, sent where it belongs or elsewhere."""
    endpoint, body = draw(recorded())
    tree = taken_apart(json.loads(json.dumps(body)))
    for _ in range(draw(st.integers(1, 3))):
        found = list(places(tree))
        if not found:
            break
        holder, at = found[draw(st.integers(0, len(found) - 1))]
        key, value = holder[at] if isinstance(holder, Object) else ("", holder[at])
        names = ["name", "suffix"] * 4 if isinstance(value, str) else []
        change = draw(st.sampled_from([*names, "drop", "rename", "add", "again", "null", "value"]))
        if change == "drop":
            del holder[at]
        elif change in ("add", "again"):
            other, name = (value, key) if change == "again" else (draw(JSON), draw(NAMES))
            holder.insert(at, (name, other) if isinstance(holder, Object) else other)
        elif change == "rename":
            holder[at] = (draw(NAMES), value) if isinstance(holder, Object) else value
        else:
            new = changed(draw, change, value)
            holder[at] = (key, new) if isinstance(holder, Object) else new
    endpoint = draw(st.sampled_from([endpoint] * 8 + list(ENDPOINTS)))
    return endpoint, written(tree).encode("utf-8", "surrogatepass")


@st.composite
def valid(draw: st.DrawFn) -> tuple[str, bytes]:
    """A body of a recorded shape about other things, however they are called, by any user."""
    endpoint, body = draw(recorded())
    fresh = json.loads(json.dumps(body))
    user = draw(USERS | NAMES)
    groups = draw(
        st.just(GROUPS.get(user, [])) | st.lists(NAMES | st.sampled_from(["analysts", "stewards"]), max_size=2)
    )
    fresh["input"]["context"]["identity"] = {"user": user, "groups": groups}
    action = fresh["input"]["action"]
    few = st.sampled_from(["s", "x", "people", "t", "iceberg", "memory"])
    for named in [action.get("resource", {}), action.get("targetResource", {}), *action.get("filterResources", [])]:
        for part in named.values():
            for word, value in part.items():
                if isinstance(value, str) and word != "columnType" and draw(st.integers(0, 3)) == 0:
                    part[word] = draw(few | NAMES)
    for named in action.get("filterResources", []):
        if "column" in named:  # which are those of one table
            first = action["filterResources"][0]["column"]
            named["column"] |= {word: first[word] for word in ("catalogName", "schemaName", "tableName")}
    return endpoint, json.dumps(fresh, ensure_ascii=draw(st.booleans())).encode()


def framed(draw: st.DrawFn) -> Any:
    """JSON of any kind, within as much of a request as is drawn."""
    value: Any = draw(JSON)
    if draw(st.integers(0, 3)) == 0:
        return value
    identity = draw(st.just({"user": "bob", "groups": []}) | JSON)
    if draw(st.booleans()):
        kinds = st.sampled_from(["table", "schema", "catalog", "column", "user", "function", "x"])
        value = draw(
            st.dictionaries(kinds, st.fixed_dictionaries({}, optional=dict.fromkeys(WORDS, NAMES)), max_size=2)
        )
    within = {"resource": value, "filterResources": [value] if draw(st.booleans()) else value, "targetResource": value}
    kept = draw(st.sets(st.sampled_from(sorted(within)), max_size=2))
    action = {"operation": draw(OPERATIONS | NAMES), **{name: within[name] for name in kept}}
    return {"input": {"context": {"identity": identity}, "action": action}}


WORDS = ("catalogName", "schemaName", "tableName", "columnName", "columnType", "functionName", "name", "user")
arbitrary = st.composite(
    lambda draw: (draw(st.sampled_from(ENDPOINTS)), json.dumps(framed(draw)).encode("utf-8", "surrogatepass"))
)()
noise = st.tuples(st.sampled_from(ENDPOINTS), st.binary(max_size=200))
cut = st.tuples(recorded(), st.floats(0, 1)).map(
    lambda drawn: (drawn[0][0], (text := json.dumps(drawn[0][1]).encode())[: int(len(text) * drawn[1])])
)


def parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def check(running: Running, endpoint: str, body: bytes) -> tuple[int, bytes]:
    """Send it, twice, and hold the answers against what Trino takes."""
    status, media, answer = running.post(endpoint, body)
    assert media == "application/json"
    assert objection(endpoint, parsed(body), status, answer) is None, (status, answer)
    assert status < 500, answer
    if endpoint == "rowFilters" and status == 200 and is_kept_from(parsed(body)):
        assert answer != b'{"result":[]}'
    again = running.post(endpoint, body)
    assert again[0] == status
    assert status != 200 or again[2] == answer
    return status, answer


def is_kept_from(body: Any) -> bool:
    """Whether a body is about the table of which only stewards see every row, and by nobody of them."""
    table = body["input"]["action"]["resource"]["table"]
    groups = body["input"]["context"]["identity"].get("groups", [])
    named = (table["catalogName"], table["schemaName"].casefold(), table["tableName"].casefold())
    return named == ("iceberg", "s", "people") and "stewards" not in groups


@settings(max_examples=EXAMPLES // 2)
@given(mutated())
def test_no_change_of_a_body_brings_an_answer_that_is_misread(running: Running, sent: tuple[str, bytes]) -> None:
    check(running, *sent)


@settings(max_examples=EXAMPLES // 6)
@given(valid())
def test_a_body_of_a_known_shape_is_always_answered(running: Running, sent: tuple[str, bytes]) -> None:
    assert check(running, *sent)[0] == 200


@settings(max_examples=EXAMPLES // 6)
@given(arbitrary)
def test_json_of_any_kind_is_answered_or_refused(running: Running, sent: tuple[str, bytes]) -> None:
    check(running, *sent)


@settings(max_examples=EXAMPLES // 6)
@given(noise | cut)
def test_bytes_of_any_kind_are_answered_or_refused(running: Running, sent: tuple[str, bytes]) -> None:
    check(running, *sent)


# --- the judge: what was recorded of Trino ----------------------------------------------------------------------------

TAKEN = {
    "allow": {"deny", "AccessCatalog deny", "delay 5s then true"},
    "batch": {"batch [] ", "batch [0,2]", "columns [0]", "columns [0,2]"},
    "rowFilters": {"rowfilter one ok", "rowfilter two = AND", "rowfilter with identity"},
    "columnMask": set[str](),
    "batchColumnMasks": {"mask ok"},
}
"""Recorded answers that say what they mean."""
SQL = {
    "rowFilters": {
        "rowfilter bad column", "rowfilter syntax error", "rowfilter not boolean", "rowfilter subquery other table",
        "rowfilter subquery same table", "rowfilter current_user",
    },
    "batchColumnMasks": {"mask wrong type", "mask syntax", "mask other column"},
}  # fmt: skip
"""Recorded answers of the right shape whose expression is the policy's author's, and is judged when it is loaded."""


def recorded_answers() -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = json.loads((RECORDED / "failures.json").read_text())
    assert len(answers) == 82
    return answers


def body_behind(recorded: dict[str, Any]) -> Any:
    """A body of the size that the recorded answer was given to."""
    columns = {"operation": "FilterColumns", "filterResources": [{"table": {"columns": ["a", "b", "c", "d"]}}]}
    size = 2 if recorded["endpoint"] == "batchColumnMasks" else 8
    action = columns if recorded["case"].startswith("columns") else {"operation": "", "filterResources": [{}] * size}
    return {"input": {"action": action}}


def test_the_judge_refuses_what_trino_misread() -> None:
    """Every recorded answer that was dangerous, an error, or taken as something else is one that is objected to."""
    for recorded in recorded_answers():
        endpoint, case, given = recorded["endpoint"], recorded["case"], recorded["answer"]
        if given.get("drop") or "body" not in given:
            continue
        found = objection(endpoint, body_behind(recorded), given.get("status", 200), given["body"].encode())
        taken = case in TAKEN[endpoint] | SQL.get(endpoint, set())
        assert (found is None) == taken or case.startswith("delay"), (endpoint, case, found)


def test_the_judge_can_refuse_at_every_endpoint() -> None:
    """A judge that cannot fail judges nothing: an undefined answer, null, another type, another status."""
    body = {"input": {"action": {"operation": "FilterTables", "filterResources": [{}, {}]}}}
    for endpoint in ENDPOINTS:
        for status, answer in [(200, b"null"), (200, b'{"result":null}'), (200, b'{"result":1}'), (200, b""), (204, b""),
                               (201, b'{"result":true}'), (302, b"{}"), (200, b'{"result":[true]}'), (400, b"{}"),
                               (503, b""), (200, b'{"result":"true"}'), (200, b'{"result":[2]}')]:  # fmt: skip
            assert objection(endpoint, body, status, answer) is not None, (endpoint, answer)


# --- expressions: what is loaded of those that were recorded -----------------------------------------------------------

UNREADABLE = {"rowfilter syntax error", "mask syntax"}


@pytest.mark.parametrize("case", sorted({case for cases in SQL.values() for case in cases}))
def test_an_expression_that_does_not_parse_is_refused_when_it_is_loaded(case: str) -> None:
    """Every other one fails the query that it filters, and masks are cast to the type of their column."""
    [recorded] = [one for one in recorded_answers() if one["case"] == case]
    [said] = json.loads(recorded["answer"]["body"])["result"]
    common = {"id": "p", "table": "memory.f.t", "grantees": ["allUsers"]}
    policy = {**common, "filter": said.get("expression", "TRUE")}
    mask = {
        **common,
        "column": "a",
        "kind": "expression",
        "expression": said.get("viewExpression", {}).get("expression", "a"),
    }
    source = parse_document({"policies": [policy], "masks": [mask]})
    if case in UNREADABLE:
        with pytest.raises(PolicyError):
            compile_policies([source])
        return
    rows = compile_policies([source]).build_engine(Members("user:{subject}", "oidc"), ())
    restriction = rows.restrict(Principal("user", "oidc~bob"), Resource("table", "memory", ("f", "t")), parse_world({}))
    seen, _ = restriction.row_view([TypedColumn("a", "integer")])
    [shown] = seen.masks
    assert shown is not None
    assert (shown.expression.startswith("CAST("), shown.expression.endswith(" AS integer)")) == (True, True)
    if "expression" in said:
        assert seen.rows is not None
        assert seen.rows.expression == said["expression"].replace("current_user", "'bob'")
