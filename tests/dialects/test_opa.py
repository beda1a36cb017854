"""OPA's REST API: any content type, GET, answers without an input, errors, health; and pages of browsers refused."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients.http_client import Response
from support.clients.opa_requests import asks, encoded, opa_service, send
from support.oracles.trino_answers import ENDPOINTS, WARNING, objection, readers_that_allow, readers_that_show_all
from support.service.serving import Process

from pdp.dialects.opa import lacks_input, read_input
from pdp.errors import InvalidArgument

pytestmark = pytest.mark.process

DECISIONS = {"allow": False, "batch": []}
"""Endpoint -> its denial."""
VIEWS = [endpoint for endpoint in ENDPOINTS if endpoint not in DECISIONS]
PATHS = [f"/v1/data/trino/{endpoint}" for endpoint in ENDPOINTS]
NEW = [("GET", "/health"), ("GET", "/health?bundles"), ("GET", "/v1/policies"), ("GET", "/v1/policies/")]
OPA_CODES = {400: "invalid_parameter", 401: "unauthorized", 403: "unauthorized", 404: "resource_not_found",
             405: "invalid_operation", 413: "invalid_parameter", 415: "invalid_parameter", 503: "internal_error"}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with opa_service(tmp_path_factory.mktemp("opa")) as process:
        yield process


# --- content types and GET ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    "type", ["text/plain", "application/octet-stream", "application/x-www-form-urlencoded", "a", ""]
)
def test_json_is_read_under_any_content_type_or_none(service: Process, endpoint: str, type: str) -> None:
    for user in ("alice", "bob"):
        body = encoded(asks(user, endpoint))
        wanted = send(service, "POST", f"/v1/data/trino/{endpoint}", body, content_type="application/json")
        found = send(service, "POST", f"/v1/data/trino/{endpoint}", body, **({"content_type": type} if type else {}))
        assert (found.status, found.content) == (wanted.status, wanted.content) == (200, wanted.content)


@pytest.mark.parametrize("path", ["/v1/check", "/v1/list", "/v1/filters", "/v1/grants", "/v1/scopes", "/v1/load"])
@pytest.mark.parametrize("type", ["text/plain", ""])
def test_native_paths_take_json_alone(service: Process, path: str, type: str) -> None:
    found = send(service, "POST", path, b"{}", **({"content_type": type} if type else {}))
    assert found.status == 415
    assert found.json()["error"]["code"] == "unsupported_media_type"
    assert found.json().keys() == {"error"}


@pytest.mark.parametrize(("endpoint", "denial"), DECISIONS.items())
def test_get_decides_as_post(service: Process, endpoint: str, denial: object) -> None:
    for user in ("alice", "bob"):
        asked = asks(user, endpoint)
        path = f"/v1/data/trino/{endpoint}"
        wanted = send(service, "POST", path, encoded(asked)).content
        text = quote(json.dumps(asked["input"]))
        for query in (f"input={text}", f"pretty=true&input={text}&explain=bogus&x=%zz", f"%69nput={text}&metrics"):
            assert send(service, "GET", f"{path}?{query}").content == wanted
        assert (wanted == encoded({"result": denial}).replace(b" ", b"")) == (user == "bob")


def test_no_input_is_denied_with_a_warning(service: Process) -> None:
    for endpoint, denial in DECISIONS.items():
        path = f"/v1/data/trino/{endpoint}"
        for body in (b"", b"{}", b'{"user":"alice"}', b'{"input":null}', b' { "input" : null , "a" : [1] } '):
            for type in ("application/json", "text/plain"):
                found = send(service, "POST", path, body, content_type=type)
                assert (found.status, found.json()) == (200, {"result": denial, "warning": WARNING})
        for query in ("", "?", "?pretty=true", "?inputs={}", "?INPUT={}", "?input=null"):
            found = send(service, "GET", path + query)
            assert (found.status, found.json()) == (200, {"result": denial, "warning": WARNING})
        assert found.headers["X-Decision-ID"]


def test_requests_without_input_have_a_record(service: Process) -> None:
    ids = {send(service, "POST", "/v1/data/trino/allow", b"{}").headers["X-Decision-ID"],
           send(service, "GET", "/v1/data/trino/batch").headers["X-Decision-ID"]}  # fmt: skip
    for _ in range(500):  # the audit writes behind the answers
        records = [record for record in service.records() if record["id"] in ids]
        if len(records) == len(ids):
            break
        time.sleep(0.01)
    assert [record["surface"] for record in records] == ["trino", "trino"]
    assert {check["error"]["message"] for record in records for check in record["checks"]} == {
        "the request has no `input`"
    }


@pytest.mark.parametrize("endpoint", VIEWS)
def test_filters_and_masks_need_an_input(service: Process, endpoint: str) -> None:
    for body in (b"", b"{}", b'{"input":null}'):
        found = send(service, "POST", f"/v1/data/trino/{endpoint}", body)
        assert (found.status, found.json()["code"]) == (400, "invalid_parameter")
    assert send(service, "GET", f"/v1/data/trino/{endpoint}").status == 405


BAD = [b"[1]", b"1", b"null", b" ", b"{", b"{}x", b'{} {"input":null}', b'{"input":1}', b'{"input":{}}', b"input: {}",
       b'{"input":null,"input":null}', b'{"a":1,"a":1}', b'{"input":{"a":1,"a":1}}', b"\xef\xbb\xbf{}", b'{"\xff":1}']  # fmt: skip


@pytest.mark.parametrize("body", BAD)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_what_is_no_request_is_an_error(service: Process, endpoint: str, body: bytes) -> None:
    for type in ("application/json", "text/plain", "application/x-yaml"):
        found = send(service, "POST", f"/v1/data/trino/{endpoint}", body, content_type=type)
        assert found.status == 400
        assert_error(found)


GOOD = quote(json.dumps(asks("alice")["input"]))


@pytest.mark.parametrize(
    "query",
    ["input=", "input={", "input=1,", f"input={GOOD}x", f"input={GOOD}&input={GOOD}", f"input={GOOD}&%69nput=null",
     f"input={GOOD},%22input%22:1", f"input={GOOD}%7D,%7B", "input=%zz", "input=%7B%22a%22:%22%ff%22%7D", "input=%",
     "input={}", "input=[]", 'input={"a":1,"a":2}'],
)  # fmt: skip
def test_an_input_that_readers_may_take_differently_is_an_error(service: Process, query: str) -> None:
    for endpoint in DECISIONS:
        found = send(service, "GET", f"/v1/data/trino/{endpoint}?{query}")
        assert found.status == 400
        assert_error(found)


@given(st.binary(max_size=30))
def test_an_input_is_one_json_value(text: bytes) -> None:
    """Whatever the bytes, the body that is made of them has them as the value of one key."""
    query = b"input=" + quote(text).encode()
    try:
        found = read_input(query)
    except InvalidArgument:
        return
    assert found == text
    assert json.loads(b'{"input":%b}' % found) == {"input": json.loads(text)}


@given(st.dictionaries(st.sampled_from(["a", "b", "input"]), st.none() | st.integers() | st.lists(st.none())))
def test_an_input_is_missing_or_null(body: dict[str, Any]) -> None:
    assert lacks_input(json.dumps(body).encode()) == (body.get("input") is None)


def test_compressed_bodies_and_bodies_of_get_are_refused(service: Process) -> None:
    found = send(service, "POST", PATHS[0], encoded(asks("alice")), content_encoding="gzip")
    assert found.status == 415
    assert_error(found)
    assert send(service, "GET", PATHS[0], encoded(asks("alice"))).status == 413


# --- errors, health, policies -------------------------------------------------------------------------------------


def assert_error(found: Response) -> None:
    """Check that an error has our fields, and OPA's beside."""
    body = found.json()
    assert body.keys() == {"error", "code", "message"}
    assert body["error"].keys() == {"code", "message"}
    assert body["code"] == OPA_CODES[found.status]
    assert body["message"] == body["error"]["message"] != ""


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [*PATHS, "/v1/policies", "/v1/policies/", "/health"])
def test_writes_are_refused(service: Process, method: str, path: str) -> None:
    found = send(service, method, path, b"{}")
    assert found.status == 405
    if method != "HEAD":
        assert_error(found)


@pytest.mark.parametrize(
    "path",
    ["/v1/data", "/v1/data/", "/v1/data/trino", "/v1/data/trino/", "/v1/data/no/such/path", "/v1/data/trino/allow/",
     "/v1/data/trino/Allow", "/v1/policies/x", "/health/live", "/health/ready", "/health/"],
)  # fmt: skip
def test_an_unknown_path_is_404_with_codes_of_opa(service: Process, path: str) -> None:
    for method in ("GET", "POST", "PUT"):
        found = send(service, method, path, b"{}")
        assert found.status == 404
        assert_error(found)


@pytest.mark.parametrize(
    "path",
    ["/", "/v0/data/trino/allow", "/v1/query", "/v1/compile", "/v1/compile/trino/allow", "/v1/batch/data/trino/allow",
     "/v1/config", "/v1/status", "/metrics"],
)  # fmt: skip
def test_the_rest_of_opa_is_not_there(service: Process, path: str) -> None:
    for method in ("GET", "POST"):
        found = send(service, method, path, b"{}")
        assert found.status == 404
        assert found.json().keys() == {"error"}


def test_policies_are_an_empty_list(service: Process) -> None:
    for path in ("/v1/policies", "/v1/policies/", "/v1/policies?pretty=true"):
        found = send(service, "GET", path)
        assert (found.status, found.json(), found.media_type) == (200, {"result": []}, "application/json")


def test_health(service: Process) -> None:
    for query in ("", "?", "?bundle=True", "?bundles", "?bundles=true&plugins", "?plugins=false", "?exclude-plugin=x"):
        found = send(service, "GET", f"/health{query}")
        assert (found.status, found.json()) == (200, {})


def test_health_with_bundles_or_plugins_is_readiness(tmp_path_factory: pytest.TempPathFactory) -> None:
    with opa_service(tmp_path_factory.mktemp("unready"), "--set", "server.lame_duck_seconds=60") as stopping:
        assert send(stopping, "GET", "/health?plugins").status == 200
        stopping.process.send_signal(signal.SIGTERM)
        for query in (
            "bundle=True",
            "bundles",
            "plugins",
            "bundles=true&plugins",
            "plugins=1",
            "bundles=false&plugins",
        ):
            for _ in range(200):
                found = send(stopping, "GET", f"/health?{query}")
                if found.status != 200:
                    break
            assert found.status == 503
            assert_error(found)
            assert "stopping" not in found.text
        for query in ("", "?bundles=false", "?plugins=False", "?pretty"):
            assert send(stopping, "GET", f"/health{query}").status == 200
        stopping.process.send_signal(signal.SIGTERM)  # at once


# --- pages of browsers --------------------------------------------------------------------------------------------

SIGNS = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Mode": "no-cors"},
    {"Sec_Fetch_Mode": "navigate"},
    {"Sec_Fetch_Mode": "cors", "Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"},
    {"Sec_Fetch_Mode": "cors", "Origin": "http://evil.example"},
    {"Sec_Fetch_Mode": "cors", "host": "evil.example"},
    {"Sec_Fetch_Dest": "image"},
    {"Referer": "http://evil.example/"},
    {"host": "evil.example:8181"},
    {"host": "127.0.0.1.evil.example"},
    {"X_Forwarded_For": "192.0.2.1"},
]


@pytest.mark.parametrize("signs", SIGNS, ids=lambda signs: "-".join(f"{name}-{value}" for name, value in signs.items()))
def test_a_page_is_refused_on_every_path(service: Process, signs: dict[str, str]) -> None:
    good = [(path, encoded(asks("alice", path.rpartition("/")[2]))) for path in PATHS]
    for path, body in good:
        for type in ({}, {"content_type": "text/plain"}, {"content_type": "application/json"}):
            for sent in (body, b"{}", b""):
                found = send(service, "POST", path, sent, **type, **signs)
                assert found.status == 403
                assert_error(found)
    gets = [(method, path) for method, path in NEW] + [("GET", f"{PATHS[0]}?input={GOOD}"), ("GET", PATHS[1])]
    for method, path in gets:
        found = send(service, method, path, None, **signs)
        assert found.status == 403
        assert_error(found)


def test_fetch_of_node_is_no_page_where_nothing_changes(service: Process) -> None:
    node = {"Sec_Fetch_Mode": "cors"}
    for path in PATHS:
        for type in ("application/json", "text/plain"):
            body = encoded(asks("alice", path.rpartition("/")[2]))
            assert send(service, "POST", path, body, content_type=type, **node).status == 200
    for method, path in NEW:
        assert send(service, method, path, None, **node).status == 200
    for path in ("/v1/check", "/v1/grants"):
        assert send(service, "POST", path, b"{}", content_type="application/json", **node).status == 403
    twice = http.client.HTTPConnection(service.addresses["http"], timeout=30)
    twice.putrequest("GET", "/health")
    for mode in ("cors", "navigate"):
        twice.putheader("Sec-Fetch-Mode", mode)
    twice.endheaders()
    assert twice.getresponse().status == 403
    twice.close()


def test_a_token_is_refused_without_a_provider(service: Process) -> None:
    for method, path in [*NEW, ("POST", PATHS[0]), ("GET", PATHS[0])]:
        found = send(service, method, path, authorization="Bearer abc")
        assert found.status == 401
        assert_error(found)


# --- no answer reads as an allow ----------------------------------------------------------------------------------

URIS = {"rowFilters": "opa.policy.row-filters-uri", "columnMask": "opa.policy.column-masking-uri",
        "batchColumnMasks": "opa.policy.batch-column-masking-uri", "allow": "opa.policy.uri",
        "batch": "opa.policy.batched-uri"}  # fmt: skip


def mistyped(endpoint: str) -> list[str]:
    """Return paths that a person may write in place of an endpoint's."""
    path = f"/v1/data/trino/{endpoint}"
    return [
        path[:-1], f"{path}s", f"{path}/", path.upper(), path.lower() if path.lower() != path else f"{path}.",
        path.replace("trino", "trnio"), path.replace("/v1", ""), path.replace("v1", "v2"), path.replace("/trino", ""),
        f"/{path}", path.replace("trino/", "trino/row_"), f"{path}%20", f"{path}%3F", "/v1/data", "/v1/policies/trino",
    ]  # fmt: skip


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_mistyped_uri_shows_nothing_more(service: Process, endpoint: str) -> None:
    """An unknown path is an error for Trino, which fails its query."""
    for user in ("alice", "bob"):
        asked = asks(user, endpoint)
        for path in mistyped(endpoint):
            found = send(service, "POST", path, encoded(asked), content_type="application/json")
            assert found.status == 404, path
            assert objection(endpoint, asked, found.status, found.content) in UNKNOWN, (path, found.content)


UNKNOWN = (None, "an error without a code and a message")
"""Judgements of a path that is unknown: paths of OPA have its codes, all others the native form."""


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_path_of_another_endpoint_shows_nothing_more(service: Process, endpoint: str) -> None:
    """Its answer is an error for Trino, or one that shows nothing."""
    for user in ("alice", "bob"):
        asked = asks(user, endpoint)
        for other in ENDPOINTS:
            if other == endpoint:
                continue
            found = send(service, "POST", f"/v1/data/trino/{other}", encoded(asked), content_type="application/json")
            is_error = found.status != 200 or objection(endpoint, asked, found.status, found.content) is not None
            assert is_error or found.content in (b'{"result":false}', b'{"result":[]}'), (other, found.content)
            if endpoint in VIEWS:
                assert is_error, (other, found.content)


OF_STARROCKS = [f"/v1/data/starrocks/{name}" for name in ("allow", "rowFilters", "columnMask", "batchColumnMasks")]
ANY_PATH = st.sampled_from([*PATHS, *OF_STARROCKS, *(path for _, path in NEW)]) | st.text(
    "/v1datrinolwbchRFsmkCM.%?=&{}", max_size=20
).map(lambda text: f"/v1/data/{text.replace('%', '')}")
FRAGMENTS = st.lists(
    st.sampled_from(
        [b"{", b"}", b'"input"', b":", b"null", b",", b"true", b'"result"', b"[", b"]", b'"allow"', b"1", b" "]
    ),
    max_size=8,
).map(b"".join)


@given(
    st.sampled_from(["GET", "POST"]), ANY_PATH, FRAGMENTS | st.binary(max_size=40), st.sampled_from(["", "text/plain"])
)
def test_generated_bytes_never_read_as_allow(service: Process, method: str, path: str, body: bytes, type: str) -> None:
    headers = {"content_type": type} if type else {}
    if method == "GET":
        found = send(service, method, f"{path}?input={quote(body)}", None, **headers)
    else:
        found = send(service, method, path, body, **headers)
    assert found.status in (200, 400, 404, 405)
    assert readers_that_allow(found.status, found.content) == set(), (found.status, found.content)
    if path in OF_STARROCKS:
        assert not readers_that_show_all(found.status, found.content), (found.status, found.content)
    endpoint = path.removeprefix("/v1/data/trino/")
    if found.status == 200 and endpoint in ENDPOINTS:
        parsed = found.json()
        assert parsed["warning"] == WARNING
        assert parsed["result"] == DECISIONS[endpoint]
