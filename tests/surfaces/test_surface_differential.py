"""Generated questions over HTTP, Connect in JSON and protobuf, and gRPC: one answer, or an error, never another allow."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import grpc
import pytest
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.clients.http_client import HttpClient, client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient, RpcClient, RpcError
from support.service.serving import settings_of

from pdp.surfaces.wire import decision_pb2 as wire

CONDITIONS = [
    "type({}) == int", "type({}) == double", "type({}) == string", "type({}) == null_type", "{} == 1", "{} == 1.0",
    "{} == 1234567890123456789", "{} == 9007199254740993", "{} > 9007199254740992", "{} != 9007199254740993",
    "{} / 2 == 0", "{} * 2.0 > 1.0", "{} + 1 > 0", "-{} < 0", "{} % 2 == 1", "string({}) == '1'", "1.0 / {} < 0.0",
    "{} == ''", "{} == null", "size({}) == 1", "{} == '\u00e9'", "{} == 'e\u0301'", "{} in [1, 2.0, 'a', null]",
    "[1, 2][{}] == 2", "type({}[0]) == int", "{}.a == 1", "type({}.a) == double", "type({}.a[0]) == int", "!{}", "{}",
]  # fmt: skip
VARIABLES = ["attributes.x", "properties.x"]
PRESENCE = ["has(attributes.x)", "!has(attributes.x)", "has(properties.x)", "!has(properties.x)", "attributes == properties"]  # fmt: skip
EXPRESSIONS = [*PRESENCE, *(text.replace("{}", name) for text in CONDITIONS for name in VARIABLES)]
TABLES = [f"table:lake/s/t{number}@main" for number in range(len(EXPRESSIONS))]
NUMBERS = [
    "0", "1", "-1", "2", "1.0", "-1.0", "0.0", "-0", "-0.0", "0.5", "-2.5", "1e0", "1E2", "10e-1", "1.5e1", "-0e0",
    "9007199254740991", "9007199254740991.0", "-9007199254740991", "9007199254740992", "9007199254740993",
    "-9007199254740993", "9007199254740992.5", "1234567890123456700", "1234567890123456789", "1.2345678901234567e18",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551615", "1e15", "1e16",
    "1e22", "1e300", "-1e300", "1e-300", "1e-400", "1e400", "-1e400", "0.99999999999999999999", "0.1", "5e-324",
    "123456789012345678901234567890", "1" + "0" * 310, "4503599627370496.3", "1.7976931348623157e308", "NaN",
    "Infinity", "-Infinity", "01", "1.", ".5", "+1",
]  # fmt: skip
TEXTS = [
    '""', '"1"', '"1.0"', '"a"', '"\\u00e9"', '"e\\u0301"', '"\u00e9"', '"e\u0301"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00x"',
    '"\\u0000"', '"\\/"', '"\u2028"', '"NaN"', '"Infinity"', '"1234567890123456789"',
]  # fmt: skip
NUMBER_TEXTS = st.sampled_from(NUMBERS) | st.integers(-(2**70), 2**70).map(str) | st.floats().map(json.dumps)
SCALARS = NUMBER_TEXTS | st.sampled_from([*TEXTS, "null", "true", "false"])
KEYS = st.sampled_from(['"a"', '"\\u0061"', '""', '"b"', '"\u00e9"', '"x"', '"null"'])


def objects(members: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Generate texts of JSON objects, sometimes with a key twice."""
    pairs = st.lists(st.tuples(KEYS, members), max_size=2)
    return pairs.map(lambda some: "{" + ", ".join(f"{key}: {value}" for key, value in some) + "}")


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2).map(lambda some: f"[{','.join(some)}]") | objects(inner),
    max_leaves=4,
)
MEMBERS = st.one_of(
    VALUES.map(lambda value: f'{{"x": {value}}}'),
    objects(VALUES),
    st.sampled_from(["null", "{}", '{"x": 1, "x": 2}', "[]", '""']),
)
FIELDS = {
    "action": ['""', "null", '"read_data"', "1"],
    "principal": ["null", "{}", '{"id": ""}', '{"id": null}', '{"id": "user:oidc~bob"}', "[]", "1"],
    "delegated": ["null", "false", "true", '"true"', "0"],
    "actingRole": ["null", '""', '"role:r"', '"role:nobody"'],
    "context": [
        "null", "{}", '{"api": {}}', '{"api": null}', '{"api": {"version": null}}',
        '{"actions": [""]}', '{"actions": null}', '{"arguments": null}', '{"arguments": {"name": null}}',
        '{"arguments": {"name": 1.0}}', '{"arguments": {"n": 9007199254740993}}', '{"queryId": ""}', '{"queryId": null}',
    ],
    "delegatd": ["true"],
    "consistency": ["null"],
}  # fmt: skip
BODIES = ["{}", '{"checks": null}', '{"check": []}', '{"checks": {}}', '{"checks": ""}', '{"checks": [null]}', '{"checks": [{}]}', "null", "[]", ""]  # fmt: skip
Outcome: TypeAlias = "list[Any]"
"""For each position, the decision or the text `error`."""


class Question(NamedTuple):
    """Question in JSON text: attributes, properties, and one field beside or in place of others."""

    attributes: str
    properties: str
    field: tuple[str, str] | None = None

    def fields(self, resource: str) -> dict[str, str]:
        """Return the fields of a check of a resource, with their JSON texts."""
        principal = f'{{"id": "user:oidc~alice", "attributes": {self.attributes}}}'
        fields = {"principal": principal, "action": '"read_data"', "context": f'{{"arguments": {self.properties}}}'}
        named: dict[str, str] = json.loads(resource)
        return fields | dict([self.field] if self.field else []) | named

    def listed(self, tables: list[str]) -> str:
        """Return a body with one check of a list of tables."""
        return _body([self.fields(json.dumps({"resources": f"[{', '.join(map(self._resource, tables))}]"}))])

    def single(self, tables: list[str]) -> str:
        """Return a body with one check for each table."""
        return _body([self.fields(json.dumps({"resource": self._resource(table)})) for table in tables])

    def load(self, table: str) -> str:
        """Return the body of a load."""
        fields = self.fields(json.dumps({"target": self._resource(table), "action": '"loadTable"'}))
        view = f'{{"resource": {{"reference": "view:lake/s/v@main"}}, "properties": {self.properties}}}'
        del fields["context"]
        return _object(fields | {"views": f"[{view}]"})

    def _resource(self, table: str) -> str:
        return f'{{"reference": "{table}", "properties": {self.properties}}}'


def _object(fields: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}"


def _body(checks: list[dict[str, str]]) -> str:
    return f'{{"checks": [{", ".join(map(_object, checks))}]}}'


QUESTIONS = st.builds(
    Question,
    MEMBERS,
    MEMBERS,
    st.none() | st.sampled_from([(name, text) for name, texts in FIELDS.items() for text in texts]),
)


class Surfaces:
    """One service, asked by all of its protocols."""

    def __init__(self, http: HttpClient, channel: grpc.aio.Channel, run: Callable[[Any], Any]) -> None:
        self._http = http
        self._rpc: dict[str, RpcClient] = {
            "grpc": GrpcClient(channel),
            "connect_proto": ConnectClient(http, json=False),
        }
        self._run = run

    def answers(self, path: str, method: str, kind: type[Message], body: str, size: int) -> dict[str, Outcome]:
        """Return the outcome of a body by surface. A surface whose clients cannot write the body is absent."""
        return self._run(self._answers(path, method, kind, body, size))  # type: ignore[no-any-return]

    async def _answers(self, path: str, method: str, kind: type[Message], body: str, size: int) -> dict[str, Outcome]:
        found = {}
        for surface, where in (("http", path), ("connect_json", f"/pdp.v1.DecisionService/{method}")):
            response = await self._http.send("POST", where, body.encode())
            assert response.status in (200, 400), (surface, response)
            found[surface] = _outcome(response.json(), size)
        try:
            message = Parse(body, kind())
        except (ParseError, ValueError):  # NaN and the infinities raise the second
            return found
        return found | await self._messages(method, message, size)

    def messages(self, method: str, message: Message, size: int) -> dict[str, Outcome]:
        """Return the outcome of a message by surface."""
        return self._run(self._messages(method, message, size))  # type: ignore[no-any-return]

    async def _messages(self, method: str, message: Message, size: int) -> dict[str, Outcome]:
        found = {}
        for surface, client in self._rpc.items():
            try:
                answer = MessageToDict(await client.call(method, message), always_print_fields_with_no_presence=True)
            except RpcError as error:
                answer = {"code": error.code}
            found[surface] = _outcome(answer, size)
        return found


def _outcome(answer: Any, size: int) -> Outcome:
    if "decisions" not in answer and "allowed" not in answer:
        assert "invalid_argument" in (answer.get("code"), answer.get("error", {}).get("code")), answer
        return ["error"] * size
    decisions = answer.get("decisions", [answer])
    return [
        "error" if one.get("error") else (one["allowed"], tuple(one["by"]), tuple(one["errors"])) for one in decisions
    ]


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surfaces]:
    folder: Path = tmp_path_factory.mktemp("surfaces")
    rules = {f"r{number}": f"path == 's.t{number}' && ({text})" for number, text in enumerate(EXPRESSIONS)}
    (folder / "rules.yaml").write_text(json.dumps({"rules": rules | {"refs": "op == 'VIEW_REFERENCE'"}}))
    config = {"policies": {"rules": ["rules.yaml"]}, "authorities": {"default": {"engines": ["cel"]}}}
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> Surfaces:
            http = await stack.enter_async_context(client_of(settings_of(config, folder)))
            channel = grpc.aio.insecure_channel(http.service.addresses["grpc"])
            return Surfaces(http, await stack.enter_async_context(channel), runner.run)

        yield runner.run(start())
        runner.run(stack.aclose())


def is_exact(body: str) -> bool:
    """Tell whether a Struct carries all numbers of a JSON text: no whole number of 2^53 or more."""
    numbers: list[float] = []

    def note(text: str) -> float:
        try:
            numbers.append(float(text))
        except OverflowError:
            numbers.append(math.inf)
        return 0.0

    json.loads(body, parse_int=note, parse_float=note)
    return all(math.isfinite(number) and (abs(number) < 2**53 or not number.is_integer()) for number in numbers)


def compare(found: Mapping[str, Outcome], body: str) -> None:
    """Check that all surfaces gave the answers of HTTP, or errors where they may."""
    wanted = found["http"]
    if "error" in wanted:  # clients of protobuf may leave out what HTTP refuses, such as a null
        found = {surface: outcome for surface, outcome in found.items() if surface in ("http", "connect_json")}
    for surface, outcome in found.items():
        assert len(outcome) == len(wanted), (surface, body)
        for one, other in zip(outcome, wanted, strict=True):
            assert one == other or (one == "error" and not is_exact(body)), (surface, body)


ONE = '{"x": 1}'


@settings(max_examples=100)
@given(QUESTIONS)
@example(Question('{"x": 1234567890123456700}', ONE))
@example(Question('{"x": 1}', '{"x": 1234567890123456789}'))
@example(Question('{"x": 1.0}', '{"x": [1.0, {"a": 2.0}]}'))
@example(Question('{"x": -0.0}', '{"x": {"a": 1.0}}'))
@example(Question('{"x": 1' + "0" * 310 + "}", ONE))
@example(Question('{"x": NaN}', ONE))
@example(Question(ONE, ONE, ("actingRole", "null")))
@example(Question(ONE, ONE, ("principal", "null")))
@example(Question(ONE, ONE, ("delegated", "null")))
@example(Question(ONE, "null", ("context", "{}")))
def test_generated_checks_have_one_answer(surfaces: Surfaces, question: Question) -> None:
    body = question.listed(TABLES)
    compare(surfaces.answers("/v1/check", "Check", wire.CheckRequest, body, len(TABLES)), body)


@settings(max_examples=60)
@given(QUESTIONS, st.sampled_from(TABLES))
def test_generated_single_checks_and_loads_have_one_answer(surfaces: Surfaces, question: Question, table: str) -> None:
    for tables in ([table], TABLES[:3]):
        body = question.single(tables)
        compare(surfaces.answers("/v1/check", "Check", wire.CheckRequest, body, len(tables)), body)
    body = question.load(table)
    compare(surfaces.answers("/v1/load", "CheckLoad", wire.CheckLoadRequest, body, 1), body)


@pytest.mark.parametrize(
    ("number", "condition", "allowed"),
    [
        ("1", "type({}) == int", True),
        ("1.0", "type({}) == int", True),
        ("1e0", "type({}) == double", False),
        ("-0.0", "type({}) == double", True),
        ("0.5", "type({}) == double", True),
        ("9007199254740991", "type({}) == int", True),
    ],
)
def test_a_whole_number_is_an_int_everywhere(surfaces: Surfaces, number: str, condition: str, allowed: bool) -> None:
    for name in VARIABLES:
        question = Question(f'{{"x": {number}}}', f'{{"x": {number}}}')
        at = EXPRESSIONS.index(condition.replace("{}", name))
        found = surfaces.answers("/v1/check", "Check", wire.CheckRequest, question.single([TABLES[at]]), 1)
        assert {outcome[0][0] for outcome in found.values()} == {allowed}
        assert len(found) == 4


UNREADABLE = {"nothing": Value(), "nan": Value(number_value=math.nan), "rounded": Value(number_value=2.0**53)}


@pytest.mark.parametrize("value", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("field", ["attributes", "properties", "arguments"])
def test_what_json_cannot_mean_is_invalid_in_protobuf(surfaces: Surfaces, value: Value, field: str) -> None:
    deep = Value(struct_value=Struct(fields={"a": Value(list_value=ListValue(values=[value]))}))
    for part in (value, deep):
        struct = Struct(fields={"x": part})
        check = wire.Check(principal=wire.Principal(id="user:oidc~alice"), action="read_data")
        check.resource.reference = TABLES[0]
        target = {"attributes": check.principal, "properties": check.resource, "arguments": check.context}[field]
        getattr(target, field).CopyFrom(struct)
        found = surfaces.messages("Check", wire.CheckRequest(checks=[check]), 1)
        assert found == {"grpc": ["error"], "connect_proto": ["error"]}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_without_checks_is_invalid_everywhere(surfaces: Surfaces, body: str) -> None:
    found = surfaces.answers("/v1/check", "Check", wire.CheckRequest, body, 1)
    assert all(outcome == ["error"] for outcome in found.values()), found
