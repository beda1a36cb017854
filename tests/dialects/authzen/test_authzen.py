"""AuthZEN over a service: bodies, rights, names, pages, and searches against the evaluation of all candidates."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clients.http_client import HttpClient, client_of
from support.oracles.audit_files import all_records
from support.servers.idp import ISSUER, jwk, token
from support.service.serving import settings_of

from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport
from pdp.config.load import load_settings, make_settings
from pdp.errors import ConfigError
from pdp.offline.replay.replay import replay

one_service = pytest.mark.asyncio(loop_scope="module")
USERS = ["alice", "bob", "eve", "a/b", "x y", "ü", "100%", "o@x"]
RECORDS = ["r-1", "r-2", "a/b", "x y", "ü", "100%", "o@x", "%2F"]
ACTIONS = ["read", "write", "delete", "list"]
NAMES = {
    "subjects": {"user": "user:oidc~{id}", "team": "role:{id}"},
    "resources": {
        "record": "table:lake/s/{id}", "folder": "namespace:lake/{id}", "main": "table:lake/{id}/main", "lake": "warehouse:{id}",
    },
    "actions": {"read": "read_data", "write": "write_data", "delete": "drop", "list": "list_tables"},
}  # fmt: skip
ROWS = {
    "default": ["lake", "s"], "tables": {"closed": {"columns": {"id": "INTEGER"}}},
    "policies": [{"id": "p", "table": "closed", "grantees": ["user:bob"], "filter": "id > 1"}],
}  # fmt: skip
EVALUATION, EVALUATIONS = "/access/v1/evaluation", "/access/v1/evaluations"
PATHS = [EVALUATION, EVALUATIONS, *(f"/access/v1/search/{kind}" for kind in ("subject", "resource", "action"))]


def encoded(id: str) -> str:
    return id.replace("%", "%25").replace("/", "%2F").replace("@", "%40")


def world() -> dict[str, Any]:
    random_ = random.Random(7)
    places = [f"table:lake/s/{encoded(id)}" for id in RECORDS] + [
        "namespace:lake/s", "namespace:lake/s/inner", "table:lake/s/inner/r-1", "table:lake/t/main", "warehouse:lake", "warehouse:other",
    ]  # fmt: skip
    principals = [f"user:oidc~{id}" for id in USERS[:-1]] + ["role:etl", "user:other~alice"]
    grants = [
        {"principal": random_.choice(principals), "privilege": privilege, "object": random_.choice(places)}
        for privilege in ("select", "modify", "describe") * 7
    ]
    grants += [
        {"principal": "user:oidc~bob", "privilege": "select", "object": f"table:lake/s/{name}"} for name in ("closed", "r-1")
    ]  # fmt: skip
    grants += [{"principal": "user:oidc~eve", "privilege": "assignee", "object": "role:etl"}]
    grants += [{"principal": "user:oidc~x", "privilege": "select", "object": "table:lake/s/inner/r-1"}]
    return {
        "objects": [{"object": place} for place in places],
        "grants": [dict(each) for each in {tuple(each.items()): None for each in grants}],
    }


@asynccontextmanager
async def asking(folder: Path, **more: Any) -> AsyncIterator[HttpClient]:
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "forbid.yaml").write_text(json.dumps({"rules": {"lock": "path == 's.locked' || 'gone' in roles"}}))
    (folder / "world.json").write_text(json.dumps(world()))
    config: dict[str, Any] = {
        "warehouses": {"lake": {}, "other": {}}, "store": {"url": "file:world.json"}, "authzen": NAMES,
        "policies": {"rules": [], "row_access": ["rows.json"], "forbid": ["forbid.yaml"]},
        "authorities": {"default": {"engines": ["grants"]}},
    } | more  # fmt: skip
    async with client_of(settings_of(config, folder)) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    async with asking(tmp_path_factory.mktemp("shared")) as client:
        yield client


def subject(id: str = "bob", type: str = "user", **properties: Any) -> dict[str, Any]:
    return {"type": type, "id": id, **({"properties": properties} if properties else {})}


def asked(user: str, action: str, record: str, **more: Any) -> dict[str, Any]:
    return {
        "subject": subject(user), "action": {"name": action}, "resource": {"type": "record", "id": record}, **more,
    }  # fmt: skip


async def decide(client: HttpClient, body: Any) -> bool:
    status, found = await client.post(EVALUATION, body)
    assert status == 200, found
    assert found.keys() == {"decision"}
    return bool(found["decision"])


async def natively(client: HttpClient, **check: Any) -> bool:
    return bool((await client.check(check))[1]["decisions"][0]["allowed"])


def all_asked() -> list[Any]:
    return [asked(*each) for each in product([*USERS, "nobody"], ["read", "delete"], [*RECORDS, "unknown"])]


@one_service
async def test_an_evaluation_is_the_native_check_of_its_names(client: HttpClient) -> None:
    meant = {"read": "read_data", "delete": "drop"}
    permits = 0
    for body in all_asked():
        principal, record = f"user:oidc~{body['subject']['id']}", encoded(body["resource"]["id"])
        action = meant[body["action"]["name"]]
        want = await natively(client, principal=principal, action=action, resource=f"table:lake/s/{record}")
        assert await decide(client, body) == want, body
        permits += want
    assert permits


@one_service
async def test_no_id_reaches_another_object(client: HttpClient) -> None:
    """An id fills one part: the table of the inner namespace has another name."""
    assert await natively(client, principal="user:oidc~x", action="read_data", resource="table:lake/s/inner/r-1")
    owner = {"principal": "user:oidc~x", "action": "read_data", "resource": "table:lake/s/inner/r-1"}
    for id in ("inner/r-1", "../t/main", "r-1@main", "", "r-1\u0000", "inner%2Fr-1", "x" * 5000):
        body = asked("x", "read", id)
        named = (await client.check(owner | {"resource": {"type": "table", "warehouse": "lake", "path": ["s", id]}}))[1]
        assert [await decide(client, body), named["decisions"][0]["allowed"]] == [False, False]
    for one in (subject("alice", "robot"), subject("alice\n"), subject(""), subject("x" * 5000)):
        assert await decide(client, asked("alice", "read", "r-1") | {"subject": one}) is False
    for change in ({"resource": {"type": "table", "id": "lake/s/r-1"}}, {"action": {"name": "read_data"}}):
        assert await decide(client, asked("bob", "read", "r-1")) is True
        assert await decide(client, asked("bob", "read", "r-1") | change) is False


@one_service
async def test_a_right_to_data_needs_all_rows(client: HttpClient) -> None:
    """The sender shows whole tables, and searches say the same."""
    assert await decide(client, asked("bob", "read", "r-1")) is True
    assert await decide(client, asked("bob", "read", "closed")) is False
    assert await natively(client, principal="user:oidc~bob", action="read_data", resource="table:lake/s/closed")
    for _ in range(3):  # a plan that is remembered for one table serves no other
        assert await decide(client, asked("bob", "read", "r-1")) is True
        assert await decide(client, asked("bob", "read", "closed")) is False


@one_service
async def test_properties_of_a_subject_count(client: HttpClient) -> None:
    for properties in ({"roles": ["gone"]}, {"roles": ["a", "gone"], "groups": ["g"], "department": "Sales"}):
        assert await decide(client, asked("bob", "read", "r-1") | {"subject": subject("bob", **properties)}) is False
    other = subject("bob", roles=["a"], groups=["g"], department={"name": "Sales"})
    assert await decide(client, asked("bob", "read", "r-1") | {"subject": other}) is True


GOOD = asked("bob", "read", "r-1")
BAD: list[Any] = [
    b"", b"[]", b"null", b"{}", b'"x"', b"{", b"\xff", b"[" * 100_000, json.dumps(GOOD)[:-1] + ',"subject":{"type":"user","id":"eve"}}',
    json.dumps(GOOD).replace('"id": "bob"', '"id": "bob", "id": "eve"'), GOOD | {"subject": "bob"}, GOOD | {"subject": None},
    GOOD | {"subject": {"type": "user", "id": 1}}, GOOD | {"subject": {"type": ["user"], "id": "bob"}}, GOOD | {"resource": []},
    GOOD | {"action": "read"}, GOOD | {"action": {"name": None}}, GOOD | {"context": "x"}, GOOD | {"context": []},
    GOOD | {"subject": subject("bob") | {"properties": ["x"]}}, GOOD | {"resource": GOOD["resource"] | {"properties": 1}},
    GOOD | {"action": {"name": "read", "properties": "x"}}, GOOD | {"subject": subject("bob", roles="gone")},
    GOOD | {"subject": subject("bob", groups=[1])}, GOOD | {"subject": subject("bob", roles={"gone": True})},
]  # fmt: skip


@one_service
@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
async def test_what_cannot_be_read_is_400(client: HttpClient, body: Any) -> None:
    for path in (EVALUATION, EVALUATIONS):
        answer = await client.send("POST", path, body, {"X-Request-ID": "r-400"})
        assert (answer.status, answer.headers["X-Request-ID"]) == (400, "r-400"), path
        assert answer.json()["error"]["message"]


@one_service
async def test_only_json_is_read(client: HttpClient) -> None:
    body = json.dumps(GOOD)
    for path in PATHS:
        for type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx"):  # fmt: skip
            answer = await client.send("POST", path, body, {"Content-Type": type, "X-Request-ID": "r-1"})
            assert (answer.status, answer.headers["X-Request-ID"]) == (400, "r-1"), (path, type)
    answer = await client.send("POST", EVALUATION, body, {"Content-Type": "application/json; charset=utf-8"})
    assert answer.json() == {"decision": True}


@one_service
async def test_pages_cannot_ask(client: HttpClient) -> None:
    for path in PATHS:
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
            for type in ("application/json", "text/plain", ""):
                answer = await client.send("POST", path, json.dumps(GOOD), {"Content-Type": type, **headers})
                assert answer.status in (400, 403), (path, headers, type)
        assert (await client.send("GET", path)).status == 405
    assert (await client.send("GET", "/.well-known/authzen-configuration")).status == 404


# --- several evaluations ---------------------------------------------------------------------------------------------


@one_service
async def test_evaluations_are_the_single_ones_up_to_the_deciding_one(client: HttpClient) -> None:
    random_ = random.Random(3)
    pool = [*all_asked(), *[asked("bob", "read", "r-1")] * 60, {}, {"resource": 1}, 5, asked("bob", "read", "r-1") | {"subject": subject("x", roles=1)}]  # fmt: skip
    stops = {"execute_all": None, "deny_on_first_deny": False, "permit_on_first_permit": True}
    seen = set()
    for _ in range(60):
        items = random_.choices(pool, k=random_.randint(1, 9))
        body: dict[str, Any] = {"evaluations": items}
        for name in random_.sample(["subject", "action", "resource"], random_.randint(0, 3)):
            body[name] = asked("eve", "write", "r-2")[name]
            items = body["evaluations"] = [
                {key: value for key, value in item.items() if key != name} if isinstance(item, dict) and random_.random() < 0.5 else item
                for item in items
            ]  # fmt: skip
        semantic = random_.choice(list(stops))
        body |= (
            {"options": {"evaluations_semantic": semantic}}
            if semantic != "execute_all" or random_.random() < 0.5
            else {}
        )
        want = []
        for item in items:
            whole = {key: value for key, value in body.items() if key in ("subject", "action", "resource")} | item if isinstance(item, dict) else item  # fmt: skip
            status, found = await client.post(EVALUATION, whole if isinstance(whole, dict) else json.dumps(whole))
            want.append(status == 200 and found["decision"])
            if want[-1] is stops[semantic]:
                break
        status, found = await client.post(EVALUATIONS, body)
        assert status == 200
        assert [each["decision"] for each in found["evaluations"]] == want, body
        assert all(("context" in each) <= (not each["decision"]) for each in found["evaluations"])
        seen.add((semantic, len(want) < len(items)))
    assert len(seen) == 5


@one_service
async def test_defaults_are_whole_objects(client: HttpClient) -> None:
    body = {"subject": subject("bob", roles=["gone"]), "action": {"name": "read"}, "evaluations": [
        {"resource": {"type": "record", "id": "r-1"}}, {"subject": subject("bob"), "resource": {"type": "record", "id": "r-1"}},
        {"subject": {"id": "bob"}, "resource": {"type": "record", "id": "r-1"}},
    ]}  # fmt: skip
    found = (await client.post(EVALUATIONS, body))[1]["evaluations"]
    assert [each["decision"] for each in found] == [False, True, False]
    assert found[2]["context"]["error"]["status"] == 400
    many = {"subject": subject("bob"), "evaluations": [asked("bob", "read", "r-1")] * 2000}
    found = (await client.post(EVALUATIONS, many))[1]["evaluations"]
    assert found == [{"decision": True}] * 2000


# --- rights ----------------------------------------------------------------------------------------------------------


def callers(*kinds: str) -> dict[str, Any]:
    return {"identity": {"callers": {"local": {"loopback": True, "may_assert": list(kinds)}}}}


async def test_a_refused_assertion_is_403_and_false_for_an_item(tmp_path: Path) -> None:
    stated = [
        ((), GOOD), (("principals",), GOOD | {"subject": subject("bob", roles=["a"])}),
        (("principals", "roles"), GOOD | {"subject": subject("bob", groups=["a"])}),
        (("principals", "roles", "groups"), GOOD | {"subject": subject("bob", department="x")}),
        (("principals", "roles", "groups", "attributes"), GOOD | {"resource": GOOD["resource"] | {"properties": {"a": 1}}}),
    ]  # fmt: skip
    for kinds, body in stated:
        async with asking(tmp_path, policies={"rules": []}, **callers(*kinds)) as client:
            status, found = await client.post(EVALUATION, body, {"X-Request-ID": "mine"})
            assert (status, found["error"]["code"]) == (403, "assertion_not_allowed")
            status, found = await client.post(EVALUATIONS, {"evaluations": [body, GOOD]})
            assert status == 200
            assert found["evaluations"][0]["decision"] is False
            assert found["evaluations"][0]["context"]["error"]["status"] == 403
            assert found["evaluations"][1]["decision"] is bool(kinds)
            resources = {"subject": body["subject"], "action": {"name": "read"}, "resource": {"type": "record"}}
            actions = {"subject": body["subject"], "resource": body["resource"]}
            about_subject = kinds[-1:] != ("attributes",)
            assert ((await client.post("/access/v1/search/resource", resources))[0] == 403) is about_subject
            assert (await client.post("/access/v1/search/action", actions))[0] == 403
            if not about_subject or not kinds:
                subjects = {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": body["resource"]}
                assert (await client.post("/access/v1/search/subject", subjects))[0] == 403


async def test_a_token_asks_for_its_own_user_alone(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [jwk()]}))
    provider = {"issuer": ISSUER, "jwks": "jwks.json", "audiences": ["pdp"]}
    async with asking(tmp_path, identity={"providers": {"oidc": provider}, "callers": {}}) as client:
        mine = {"Authorization": f"Bearer {token(sub='bob')}", "X-Request-ID": "t"}
        assert (await client.post(EVALUATION, GOOD, mine)) == (200, {"decision": True})
        assert (await client.post(EVALUATION, asked("alice", "read", "r-1"), mine))[0] == 403
        both = {"evaluations": [GOOD, asked("alice", "read", "r-1")]}
        found = (await client.post(EVALUATIONS, both, mine))[1]["evaluations"]
        assert [each["decision"] for each in found] == [True, False]
        resources = {"subject": subject("bob"), "action": {"name": "read"}, "resource": {"type": "record"}}
        assert {"type": "record", "id": "r-1"} in (await client.post("/access/v1/search/resource", resources, mine))[1][
            "results"
        ]
        others = resources | {"subject": subject("alice")}
        assert await client.post("/access/v1/search/resource", others, mine) == (200, {"results": []})
        actions = {"subject": subject("alice"), "resource": GOOD["resource"]}
        assert (await client.post("/access/v1/search/action", actions, mine))[0] == 403
        subjects = {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": GOOD["resource"]}
        assert (await client.post("/access/v1/search/subject", subjects, mine))[0] == 403
        for path in PATHS:
            answer = await client.send("POST", path, GOOD, {"X-Request-ID": "t", "Authorization": "Bearer x"})
            assert (answer.status, answer.headers["X-Request-ID"]) == (401, "t")
            assert answer.headers["WWW-Authenticate"]
        typed = await client.send("POST", EVALUATION, json.dumps(GOOD), mine | {"Content-Type": "text/plain"})
        assert typed.status == 400


async def test_records_decide_the_same_again_and_with_a_cache(tmp_path: Path) -> None:
    async with asking(tmp_path, cache={}) as client:
        first = (await client.post(EVALUATIONS, {"evaluations": all_asked()}))[1]
        for _ in range(2):
            assert (await client.post(EVALUATIONS, {"evaluations": all_asked()}))[1] == first
        search_ = {"subject": subject("bob"), "action": {"name": "read"}, "resource": {"type": "record"}}
        assert (await client.post("/access/v1/search/resource", search_))[1]["results"]
        pdp = client.service.pdp
    again = await replay(read_audit(tmp_path / "audit", ReadReport()), None, pdp)
    assert again.checks >= 3 * len(all_asked())
    assert not again.totals


# --- searches --------------------------------------------------------------------------------------------------------


async def search(client: HttpClient, kind: str, body: Any, limits: list[int]) -> list[Any]:
    """Return the results of all pages, with changing limits."""
    results: list[Any] = []
    page: dict[str, Any] = {}
    for turn in range(1000):
        limit = {"limit": limits[turn % len(limits)]} if limits and not (page and turn % 3 == 2) else {}
        status, found = await client.post(
            f"/access/v1/search/{kind}", body | ({"page": page | limit} if page or limit else {})
        )
        assert status == 200, found
        assert not limit or len(found["results"]) <= limit["limit"]
        results += found["results"]
        token = found.get("page", {}).get("next_token", "")
        if not token:
            return results
        page = {"token": token}
    raise AssertionError("the pages have no end")


def cases() -> list[tuple[str, Any, list[tuple[Any, Any]]]]:
    """Searches, each with its candidates: a result, and the evaluation of that result."""
    found: list[tuple[str, Any, list[tuple[Any, Any]]]] = []
    objects = [{"type": "record", "id": id} for id in [*RECORDS, "closed"]] + [{"type": "folder", "id": "s"}]
    users = [*[subject(id) for id in USERS], subject("x"), subject("nobody"), subject("etl", "team")]
    for action, resource, type in product(ACTIONS, objects, ("user", "team")):
        body = {"action": {"name": action}, "resource": resource}
        candidates = [each for each in users if each["type"] == type]
        found.append(
            ("subject", body | {"subject": {"type": type}}, [(each, body | {"subject": each}) for each in candidates])
        )
    places = [*objects, {"type": "main", "id": "t"}, {"type": "lake", "id": "lake"}, {"type": "lake", "id": "other"}]
    for action, user, type in product(ACTIONS, users, ("record", "folder", "main", "lake")):
        body = {"action": {"name": action}, "subject": user}
        candidates = [each for each in places if each["type"] == type]
        found.append(
            (
                "resource",
                body | {"resource": {"type": type}},
                [(each, body | {"resource": each}) for each in candidates],
            )
        )
    for user, resource in product(users, places):
        body = {"subject": user, "resource": resource}
        found.append(("action", body, [({"name": name}, body | {"action": {"name": name}}) for name in ACTIONS]))
    return found


@one_service
async def test_a_search_is_the_filter_of_all_candidates_and_its_pages_join_to_it(client: HttpClient) -> None:
    random_ = random.Random(5)
    sizes = {"subject": 0, "resource": 0, "action": 0}
    for kind, body, candidates in cases():
        answers = (await client.post(EVALUATIONS, {"evaluations": [one for _, one in candidates]}))[1]["evaluations"]
        want = [each for (each, _), one in zip(candidates, answers, strict=True) if one["decision"]]
        try:
            whole = await search(client, kind, body, [])
        except AssertionError as error:
            assert "has no action" in str(error), (body, error)  # noqa: PT017
            assert not want
            continue
        assert sorted(map(json.dumps, whole)) == sorted(map(json.dumps, want)), body
        assert await search(client, kind, body, [*random_.choices([0, 1, 2, 3], k=2), 1]) == whole
        sizes[kind] = max(sizes[kind], len(whole))
    assert min(sizes.values()) > 1


@one_service
async def test_a_token_belongs_to_its_search(client: HttpClient) -> None:
    body = {"subject": {"type": "user"}, "action": {"name": "read"}, "resource": {"type": "record", "id": "r-1"}}
    token = (await client.post("/access/v1/search/subject", body | {"page": {"limit": 0}}))[1]["page"]["next_token"]
    for same in (
        {},
        {"subject": {"type": "user", "id": "ignored"}},
        {"page": {"token": token, "limit": 5}},
        {"foo": 1},
    ):
        assert (await client.post("/access/v1/search/subject", body | {"page": {"token": token}} | same))[0] == 200
    others: list[dict[str, Any]] = [
        {"subject": {"type": "team"}}, {"action": {"name": "write"}}, {"resource": {"type": "record", "id": "r-2"}}, {"context": {"a": 1}},
        {"resource": {"type": "record", "id": "r-1", "properties": {"a": 1}}}, {"page": {"token": "AAAA"}}, {"page": {"token": token[:-4]}},
        {"page": {"token": "é"}}, {"page": {"token": 1}}, {"page": {"limit": -1}}, {"page": {"limit": "1"}}, {"page": {"limit": 1.5}}, {"page": []},
    ]  # fmt: skip
    for other in others:
        status, found = await client.post("/access/v1/search/subject", body | {"page": {"token": token}} | other)
        assert (status, bool(found["error"]["message"])) == (400, True), other
    resources = {"subject": subject("bob"), "action": {"name": "read"}, "resource": {"type": "record"}}
    assert (await client.post("/access/v1/search/resource", resources | {"page": {"token": token}}))[0] == 400


@one_service
async def test_unknown_types_and_ids_have_no_results(client: HttpClient) -> None:
    record, user, read = {"type": "record", "id": "r-1"}, subject("bob"), {"name": "read"}
    for kind, body in (
        ("subject", {"subject": {"type": "robot"}, "action": read, "resource": record}), ("subject", {"subject": {"type": "user"}, "action": read, "resource": {"type": "ship", "id": "1"}}),
        ("subject", {"subject": {"type": "user"}, "action": {"name": "fly"}, "resource": record}), ("subject", {"subject": {"type": "user"}, "action": read, "resource": {"type": "record", "id": "\x00"}}),
        ("resource", {"subject": user, "action": read, "resource": {"type": "ship"}}), ("resource", {"subject": subject("bob", "robot"), "action": read, "resource": {"type": "record"}}),
        ("resource", {"subject": subject("nobody"), "action": read, "resource": {"type": "record"}}), ("resource", {"subject": subject(""), "action": read, "resource": {"type": "record"}}),
        ("action", {"subject": subject("nobody"), "resource": record}), ("action", {"subject": user, "resource": {"type": "ship", "id": "1"}}),
        ("action", {"subject": subject("bob", "robot"), "resource": record}), ("action", {"subject": user, "resource": {"type": "record", "id": ""}}),
    ):  # fmt: skip
        assert await client.post(f"/access/v1/search/{kind}", body) == (200, {"results": []}), body


# --- settings, metadata, records -------------------------------------------------------------------------------------


async def test_without_settings_names_are_those_of_the_service(tmp_path: Path) -> None:
    async with asking(tmp_path, authzen={}) as client:
        body = {
            "subject": subject("oidc~bob"),
            "action": {"name": "read_data"},
            "resource": {"type": "table", "id": "lake/s/r-1"},
        }
        assert await decide(client, body) is True
        found = await search(client, "resource", body, [1])
        assert {"type": "table", "id": "lake/s/r-1"} in found
        assert {"type": "user", "id": "oidc~bob"} in await search(client, "subject", body, [])
        assert {"name": "read_data"} in await search(client, "action", body, [2])


async def test_a_search_that_lists_cannot_answer_is_an_error(tmp_path: Path) -> None:
    """Nothing is cut silently."""
    names = {
        "resources": {
            "dev": "table:lake/s/{id}@dev",
            "ref": "table:lake/s/r-1@{id}",
            "either": "table_or_view:lake/s/{id}",
        }
    }
    async with asking(tmp_path, authzen=names) as client:
        read, user = {"name": "read_data"}, subject("oidc~bob")
        for type in names["resources"]:
            status, found = await client.post(
                "/access/v1/search/resource", {"subject": user, "action": read, "resource": {"type": type}}
            )
            assert (status, found["error"]["code"]) == (400, "invalid_argument"), type
        either = {"subject": user, "resource": {"type": "either", "id": "r-1"}}
        assert await decide(client, either | {"action": read}) is True
        assert (await client.post("/access/v1/search/action", either))[0] == 400
        asked_of = {
            "subject": {"type": "user"},
            "action": read | {"properties": {"name": "t"}},
            "resource": {"type": "dev", "id": "r-1"},
        }
        assert (await client.post("/access/v1/search/subject", asked_of))[0] == 400
        many: dict[str, Any] = {"evaluations": [{}] * 100_001}
        status, found = await client.post(EVALUATIONS, many)
        assert (status, found["error"]["code"]) == (400, "too_many_checks")


async def test_metadata_have_their_place_between_host_and_path(tmp_path: Path) -> None:
    for base, path in (
        ("https://h.example/t1/", "/t1"),
        ("https://h.example:8443/t1/t2", "/t1/t2"),
        ("https://h.example/", ""),
    ):
        async with asking(tmp_path, authzen={"base_url": base}) as client:
            answer = await client.send(
                "GET", f"/.well-known/authzen-configuration{path}", headers={"X-Request-ID": "m"}
            )
            assert (answer.status, answer.headers["X-Request-ID"]) == (200, "m")
            assert answer.json()["policy_decision_point"] == base
            assert answer.json()["access_evaluation_endpoint"] == f"{base.rstrip('/')}/access/v1/evaluation"
            for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "none"}, {"Host": "evil.example"}):
                assert (
                    await client.send("GET", f"/.well-known/authzen-configuration{path}", headers=headers)
                ).status == 403
            if path:
                assert (await client.send("GET", "/.well-known/authzen-configuration")).status == 404


@pytest.mark.parametrize(
    "authzen",
    [
        {"base_url": "http://h.example"}, {"base_url": "https://h.example/?a"}, {"base_url": "https://h.example/#a"}, {"base_url": "https://u@h.example"}, {"base_url": "https://h.example/.."}, {"base_url": "https://h.example/./t"},
        {"subjects": {"user": "user:oidc~alice"}}, {"subjects": {"user": "user:{id}{id}"}}, {"subjects": {"user": "table:lake/{id}"}}, {"subjects": {"user": "{id}"}},
        {"resources": {"r": "table:lake"}}, {"resources": {"r": "{id}:lake/s"}}, {"resources": {"r": "ship:lake/{id}"}}, {"resources": {"r": "table:lake/%20/{id}"}},
    ],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(authzen: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        make_settings({"policies": {"rules": []}, "authzen": authzen}, tmp_path)


def test_names_of_the_service_in_settings_are_taken(tmp_path: Path) -> None:
    """Names that nothing has are refused: `tests/config/test_generated_mistakes.py` has them."""
    names = {"read": "select", "look": "READ_ENTITY_VALUE", "ask": "trino:SelectFromColumns", "see": "read_grants"}
    resources = {"lake": "warehouse:{id}", "role": "role:{id}", "any": "namespace:{id}/s"}
    (tmp_path / "pdp.yaml").write_text(json.dumps({"warehouses": {"lake": {}}, "authzen": {"actions": names, "resources": resources}}))  # fmt: skip
    assert load_settings(tmp_path / "pdp.yaml", []).authzen.actions == names


async def test_records_tell_the_surface_and_what_was_asked(tmp_path: Path) -> None:
    async with asking(tmp_path) as client:
        await client.post(EVALUATIONS, {"evaluations": [asked("bob", "read", "closed"), asked("bob", "read", "r-1")]})
        await client.post(EVALUATION, b"", {"X-Request-ID": "bad"})
    records = all_records(tmp_path)
    (record,) = [each for each in records if each["event"] == "decision"]
    assert (record["surface"], record["inputs"]["unfiltered"]) == ("authzen", True)
    assert record["checks"][0]["by"] == ["row_access:p"]
    (refusal,) = [each for each in records if each["event"] == "refusal"]
    assert (refusal["surface"], refusal["endpoint"], refusal["requestId"]) == ("authzen", EVALUATION, "bad")


@one_service
@pytest.mark.parametrize("field", ["subject", "action", "resource"])
async def test_a_short_body_makes_no_long_questions(client: HttpClient, field: str) -> None:
    """What items leave out is counted for each of them, as native checks count what resources share."""
    around = asked("bob", "read", "r-1")
    around[field]["properties"] = {f"k{at}": at for at in range(1_500)}
    status, found = await client.post(EVALUATIONS, around | {"evaluations": [{}] * 10_000})
    assert (status, found["error"]["code"]) == (400, "invalid_argument")
    assert "share" in found["error"]["message"]
    own = {field: asked("bob", "read", "r-1")[field]}
    status, found = await client.post(EVALUATIONS, around | {"evaluations": [own] * 10_000})
    assert (status, found["evaluations"]) == (200, [{"decision": True}] * 10_000)


@one_service
@pytest.mark.parametrize("name", ["r-1$files", "r-1$snapshots", "closed$files", "r-1$files$files"])
async def test_the_id_of_a_table_names_no_metadata_table(client: HttpClient, name: str) -> None:
    assert await decide(client, asked("bob", "read", "r-1"))
    assert not await decide(client, asked("bob", "read", name))
    search = {"subject": subject("bob"), "resource": {"type": "record", "id": name}}
    assert (await client.post("/access/v1/search/action", search))[1]["results"] == []


async def test_an_operation_on_rows_shows_no_values_of_hidden_rows_by_metadata_tables(tmp_path: Path) -> None:
    (tmp_path / "open.yaml").write_text(json.dumps({"rules": {"open": "true"}}))
    policies = {"rules": ["open.yaml"], "row_access": ["rows.json"]}
    operations = ["READ_ENTITY_VALUE", "UPDATE_ENTITY"]
    async with asking(tmp_path, policies=policies, authorities={"default": {"engines": ["cel"]}}, authzen={}) as client:
        for operation, name in product(
            operations, ["closed", "closed$files", "closed$partitions", "closed$files$files"]
        ):
            body = {"subject": subject("oidc~alice"), "action": {"name": operation}, "resource": {"type": "table", "id": f"lake/s/{name}@main"}}  # fmt: skip
            assert not await decide(client, body), (operation, name)
            check = {"principal": "user:oidc~alice", "action": operation, "resource": f"table:lake/s/{name}@main"}
            assert await natively(client, **check) == (name == "closed"), (
                "the native caller applies filters to the table"
            )


async def test_a_search_about_nothing_is_recorded(tmp_path: Path) -> None:
    search = {"subject": subject("bob"), "action": {"name": "read"}, "resource": {"type": "record", "id": "r-1"}}
    nothing = [
        ("subject", search | {"subject": {"type": "alien"}}), ("resource", search | {"action": {"name": "fly"}}),
        ("resource", search | {"page": {"limit": 0}}), ("action", search | {"resource": {"type": "alien", "id": "1"}}),
    ]  # fmt: skip
    async with asking(tmp_path) as client:
        for kind, body in nothing:
            status, found = await client.post(f"/access/v1/search/{kind}", body)
            assert (status, found["results"]) == (200, [])
    records = [record for record in all_records(tmp_path) if record.get("surface") == "authzen"]
    assert [[each["error"]["code"] for each in record["checks"]] for record in records] == [["unsupported"]] * len(
        nothing
    )


@one_service
@pytest.mark.parametrize("name", ["locked", "LOCKED", "Locked"])
async def test_a_forbid_binds_a_name_in_any_case(client: HttpClient, name: str) -> None:
    assert not await decide(client, asked("bob", "read", name))
