"""AuthZEN's certification scenario, statements of the specification, and the data of the interoperability runners."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, Response, client_of
from support.paths import RECORDED
from support.service.serving import settings_of

one_service = pytest.mark.asyncio(loop_scope="module")
FOLDER = RECORDED / "authzen"
LEVELS = {"basic-core", "batch-core", "search-core", "discovery"}
BASE = "https://authz.example.com"
KINDS = {"decision": "evaluation", "evaluations": "evaluations"}


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


CERT = [case for case in load("cert.json")["cases"] if case["level"] in LEVELS]
EXTRA = [case for case in load("extra.json")["cases"] if case["id"] != "m4"]
TODO = [f"todo/decisions{version}.json" for version in ("", *(f"-authorization-api-1_0-0{at}" for at in range(3)))]


def grant(user: str, privilege: str, resource: str) -> dict[str, str]:
    return {"principal": f"user:authzen~{user}", "privilege": privilege, "object": f"table:lake/{resource}"}


CORE = [grant("alice", "modify", "records/record-1"), grant("bob", "select", "records/record-1")]
NAMES = {
    "base_url": BASE,
    "subjects": {"user": "user:authzen~{id}", "identity": "user:authzen~{id}"},
    "resources": {
        "record": "table:lake/records/{id}", "todo": "table:lake/todos/{id}", "route": "table:lake/routes/{id}",
        "user": "table:lake/users/{id}",
    },
    "actions": {
        "read": "read_data", "write": "write_data", "delete": "drop", "can_read_user": "read_data",
        "can_read_todos": "read_data", "can_create_todo": "write_data", "can_update_todo": "write_data",
        "can_delete_todo": "write_data", "GET": "read_data", "POST": "write_data", "PUT": "write_data",
        "DELETE": "write_data",
    },
}  # fmt: skip


def singles(data: Any) -> Iterator[tuple[Any, Any]]:
    for case in [*data.get("evaluation", []), *data.get("decisions", [])]:
        yield case["request"], case["expected"]


def items(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the items of requests about several, with their defaults."""
    for case in data.get("evaluations", []):
        for item, expected in zip(case["request"]["evaluations"], case["expected"], strict=True):
            yield {**case["request"], **item}, expected["decision"]


def granted(names: list[str]) -> Iterator[dict[str, str]]:
    """Return the grants of decisions: reading and writing of an object by its id."""
    places = {"todo": "todos", "route": "routes", "user": "users"}
    for name in names:
        for request, expected in (*singles(load(name)), *items(load(name))):
            place = f"{places[request['resource']['type']]}/{request['resource']['id'].replace('/', '%2F').replace('@', '%40')}"
            if expected:
                reads = NAMES["actions"][request["action"]["name"]] == "read_data"  # type: ignore[index]
                yield grant(request["subject"]["id"], "select" if reads else "modify", place)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """The fixture of the certification and the data of the runners, as configuration."""
    folder = tmp_path_factory.mktemp("core")
    grants = [*CORE, *granted([*TODO, "gateway.json"])]
    async with asking(folder, NAMES, [dict(each) for each in {tuple(one.items()) for one in grants}]) as client:
        yield client


def asking(folder: Any, names: Any, grants: list[Any]) -> Any:
    (folder / "world.json").write_text(json.dumps({"objects": [], "grants": grants}))
    config = {
        "warehouses": {"lake": {}}, "store": {"url": "file:world.json"}, "authzen": names,
        "authorities": {"default": {"engines": ["grants"]}},
    }  # fmt: skip
    return client_of(settings_of(config, folder))


async def send(client: HttpClient, case: Any) -> Response:
    body = case.get("raw_body", "").encode() if "raw_body" in case else case.get("request")
    return await client.send(case["method"], case["endpoint"], body, case.get("headers"))


async def first_token(client: HttpClient, case: Any) -> None:
    """Fill in the token of a page: that of the same search with one result, or of the one that the case names."""
    page = case.get("request") and case["request"].get("page")
    if not page or not page.get("token", "").startswith("<"):
        return
    first = case["request"] | {"page": {"limit": 1}}
    if "search for read" in page["token"]:
        first["action"] = {"name": "read"}
    answer = (await client.send("POST", case["endpoint"], first)).json()
    assert answer["page"]["next_token"]
    page["token"] = answer["page"]["next_token"]


def expected(case: Any, answer: Response) -> None:
    want = case["expect"]
    assert answer.status == want["status"], answer.text
    if answer.status == 400:
        assert answer.json()["error"]["message"]
        return
    found = answer.json()
    if "decision" in want:
        assert found == {"decision": want["decision"]}
    decisions = want.get("decisions", want.get("evaluations"))
    if decisions is not None:
        given = [item["decision"] for item in found["evaluations"]]
        assert len(given) == len(decisions)
        assert all(each is None or each == one for each, one in zip(decisions, given, strict=True))
    results = found.get("results")
    for wanted in want.get("results_include", []):
        assert wanted in results
    if "results_equal" in want:
        assert results == want["results_equal"]
    if "keysOfResults" in want:
        assert results
        assert all(list(each) == want["keysOfResults"] for each in results)
    if want.get("results_is_array") or "page" in want:
        assert isinstance(results, list)
        assert isinstance(found["page"]["next_token"], str)
    assert set(want.get("includes", ())) <= {each.get("name") for each in results or ()}
    assert set(want.get("keys", want.get("required", ()))) <= found.keys()
    assert not found.keys() & set(want.get("absent", ()))
    for name, value in want.get("headers", {}).items():
        assert answer.headers[name] == value


@one_service
@pytest.mark.parametrize("case", CERT + EXTRA, ids=lambda case: case["id"])
async def test_a_case_has_its_answer(client: HttpClient, case: Any) -> None:
    await first_token(client, case)
    for _ in range(case.get("repeat", 1)):
        answer = await send(client, case)
        expected(case, answer)
    if case["expect"].get("everyResultEvaluatesTrue"):
        for each in answer.json()["results"]:
            one = await client.send("POST", "/access/v1/evaluation", case["request"] | {"action": each})
            assert one.json() == {"decision": True}


@one_service
async def test_the_metadata_name_the_base_url_and_what_is_below(client: HttpClient) -> None:
    answer = await client.send("GET", "/.well-known/authzen-configuration")
    found = answer.json()
    assert (answer.media_type, found.pop("policy_decision_point")) == ("application/json", BASE)
    assert found == {
        "access_evaluation_endpoint": f"{BASE}/access/v1/evaluation",
        "access_evaluations_endpoint": f"{BASE}/access/v1/evaluations",
        "search_subject_endpoint": f"{BASE}/access/v1/search/subject",
        "search_resource_endpoint": f"{BASE}/access/v1/search/resource",
        "search_action_endpoint": f"{BASE}/access/v1/search/action",
    }


@one_service
@pytest.mark.parametrize("name", [*TODO, "gateway.json"])
async def test_runners_find_the_decisions_of_their_data(client: HttpClient, name: str) -> None:
    data = load(name)
    for request, wanted in singles(data):
        answer = await client.send("POST", "/access/v1/evaluation", request)
        assert answer.status == 200, answer.text
        assert answer.json()["decision"] == wanted, request
    for case in data.get("evaluations", []):
        answer = await client.send("POST", "/access/v1/evaluations", case["request"])
        assert json.dumps(answer.json()["evaluations"]) == json.dumps(case["expected"])


SEARCHES = ("search/resource-results.json", "search/subject-results.json")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def records(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """The data of the search runner: what each user may do with each record, as grants."""
    privileges = {"view": "select", "edit": "modify", "delete": "ownership"}
    grants = [
        grant(case["request"]["subject"]["id"], privileges[case["request"]["action"]["name"]], f"records/{each['id']}")
        for case in load(SEARCHES[0])["evaluation"]
        for each in case["expected"]["results"]
    ]
    actions = {"view": "read_data", "edit": "write_data", "delete": "change_ownership"}
    async with asking(tmp_path_factory.mktemp("search"), NAMES | {"actions": actions}, grants) as client:
        yield client


@one_service
@pytest.mark.parametrize("name", SEARCHES)
async def test_runners_find_the_results_of_their_searches(records: HttpClient, name: str) -> None:
    kind = name.partition("/")[2].partition("-")[0]
    for case in load(name)["evaluation"]:
        answer = await records.send("POST", f"/access/v1/search/{kind}", case["request"])
        found, wanted = answer.json()["results"], case["expected"]["results"]
        assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, wanted)), case["request"]
