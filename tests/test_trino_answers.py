"""No answer that Trino would misread can be got: whatever is sent, and whatever fails inside."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import serving
from trino_answers import ENDPOINTS, objection
from trino_wants import FILES, GROUPS, RECORDED, bodies_of_statements
from trino_wants import settings as settings_of

from pdp.app import Service

EXAMPLES = int(os.environ.get("PDP_TRINO_BODIES", "4200"))
"""Bodies that one run sends."""
BOTH = next(file for file in FILES if file.stem == "both")
SENT = bodies_of_statements()


class Running:
    """A service, and a way to send it bytes from tests that are not asynchronous."""

    def __init__(self, runner: asyncio.Runner, service: Service, session: aiohttp.ClientSession) -> None:
        self.service = service
        self._runner = runner
        self._session = session

    def post(self, endpoint: str, body: bytes, **headers: str) -> tuple[int, str, bytes]:
        """Status, media type and bytes of the answer."""
        return self._runner.run(self._post(endpoint, body, headers))

    async def _post(self, endpoint: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        url = f"http://{self.service.addresses['http']}/v1/data/trino/{endpoint}"
        named = {"content-type": "application/json", **headers}
        async with self._session.post(url, data=body, headers=named, allow_redirects=False) as response:
            return response.status, response.content_type, await response.read()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with asyncio.Runner() as runner:
        policies = yaml.safe_load(BOTH.read_text())
        context = serving(settings_of(policies, tmp_path_factory.mktemp("service")))
        service = runner.run(context.__aenter__())
        session = runner.run(_session())
        yield Running(runner, service, session)
        runner.run(session.close())
        runner.run(context.__aexit__(None, None, None))


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


# --- bodies ----------------------------------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(["s", "people", "t_new", "v_def", "iceberg", "memory", "tpch", "system", "information_schema", "ssn"]),
    st.sampled_from(["", " ", "a.b", ".", "..", "a.", "@", "t@dev", "#", "`t`", "%2F", "a/b", "\\", '"', "'", "$", "$path"]),
    st.sampled_from(["people$files", "people$snapshots", "people$", "$files", "people$x$refs", "people$all_entries"]),
    st.sampled_from(["PEOPLE", "Pe\u00f6ple", "people\u0000", "\u2028", "\u202e", "\ud83d\ude00", "\x1f", "\x7f", "\x85", "e\u0301"]),
    st.sampled_from(["x" * 5000, "a." * 2000, "$files" * 500, "\u00e9" * 3000]),
    st.text(max_size=8),
)  # fmt: skip
"""Names that may be read as something else."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OPERATIONS = st.sampled_from(sorted({body["input"]["action"]["operation"] for _, body in SENT}))
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


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A recorded body of which a few places are changed, sent where it belongs or elsewhere."""
    endpoint, body = draw(st.sampled_from(SENT))
    tree = taken_apart(json.loads(json.dumps(body)))
    for _ in range(draw(st.integers(1, 4))):
        found = list(places(tree))
        if not found:
            break
        holder, at = found[draw(st.integers(0, len(found) - 1))]
        key, value = holder[at] if isinstance(holder, Object) else ("", holder[at])
        change = draw(st.sampled_from(["drop", "rename", "twice", "again", "null", "value", "name", "suffix"]))
        new: Any = value
        if change == "null":
            new = None
        elif change == "value":
            new = taken_apart(draw(JSON))
        elif change in ("name", "suffix"):
            new = (value if change == "suffix" and isinstance(value, str) else "") + draw(NAMES)
        if change == "drop":
            del holder[at]
        elif change in ("twice", "again"):
            other = value if change == "again" else draw(JSON)
            holder.insert(at, (key, other) if isinstance(holder, Object) else other)
        else:
            key = draw(NAMES) if change == "rename" else key
            holder[at] = (key, new) if isinstance(holder, Object) else new
    endpoint = draw(st.sampled_from([endpoint] * 3 + list(ENDPOINTS)))
    return endpoint, written(tree).encode("utf-8", "surrogatepass")


@st.composite
def valid(draw: st.DrawFn) -> tuple[str, bytes]:
    """A body of a recorded shape about other things, by another user."""
    endpoint, body = draw(st.sampled_from(SENT))
    fresh = json.loads(json.dumps(body))
    user = draw(USERS)
    fresh["input"]["context"]["identity"] = {"user": user, "groups": GROUPS[user]}
    action = fresh["input"]["action"]
    for named in [action.get("resource", {}), action.get("targetResource", {}), *action.get("filterResources", [])]:
        for part in named.values():
            for word, value in part.items():
                if isinstance(value, str) and word != "columnType":
                    part[word] = draw(st.just(value) | st.sampled_from(["s", "x", "people", "t", "iceberg", "memory"]))
    return endpoint, json.dumps(fresh).encode()


def framed(draw: st.DrawFn) -> Any:
    """JSON of any kind, within as much of a request as is drawn."""
    value: Any = draw(JSON)
    identity = draw(JSON | st.just({"user": "bob", "groups": []}))
    for _ in range(draw(st.integers(0, 1))):
        operation = {
            "operation": draw(OPERATIONS | NAMES),
            draw(st.sampled_from(["resource", "filterResources", "x"])): value,
        }
        value = {"input": {"context": {"identity": identity}, "action": operation}}
    return value


arbitrary = st.composite(
    lambda draw: (draw(st.sampled_from(ENDPOINTS)), json.dumps(framed(draw)).encode("utf-8", "surrogatepass"))
)()
noise = st.tuples(st.sampled_from(ENDPOINTS), st.binary(max_size=200))
cut = st.tuples(st.sampled_from(SENT), st.floats(0, 1)).map(
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
    again = running.post(endpoint, body)
    assert again[0] == status
    assert status != 200 or again[2] == answer
    return status, answer


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
