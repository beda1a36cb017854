"""Recorded requests to an OPA, and its clients, before this service: each difference is a row of docs/opa.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from support.clients.http_client import Response
from support.clients.opa_requests import asks, encoded, opa_service, send
from support.paths import RECORDED, ROOT
from support.service.serving import Process

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs" / "opa.md").read_text()
CASES = [json.loads(line) for line in (RECORDED / "opa" / "rest-1.22.0.jsonl").read_text().splitlines()]


def differences() -> dict[str, tuple[str, str]]:
    """Return the rows of the page: recorded case -> the answer here, and the reason."""
    table = PAGE.partition("| recorded request |")[2].partition("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" |")] for line in table]
    return {case.strip("`"): (here, why) for cases, _, here, why in rows for case in cases.split(", ")}


DIFFERENCES = differences()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with opa_service(tmp_path_factory.mktemp("opa")) as process:
        yield process


def name_of(case: dict[str, Any]) -> str:
    return str(case["case"])


def body_of(case: dict[str, Any]) -> bytes | None:
    """Return the body of a case, with Trino's question of the same user as its input."""
    body = case["request_body"]
    if body is None:
        return None
    if isinstance(body, dict) and isinstance(user := (body.get("input") or {}).get("user"), str):
        return encoded({**body, **asks(user)})
    text = body.encode("latin-1") if isinstance(body, str) else encoded(body)
    text = text.replace(b": {", b":{").replace(b': "alice', b':"alice')
    return bytes(text.replace(b'"input":{"user":"alice"}', encoded(asks("alice"))[1:-1]))


def path_of(case: dict[str, Any]) -> str:
    """Return the path of a case, with Trino's document in place of the recorded one."""
    path: str = case["path"].replace("kafka/authz/allow", "trino/allow")
    if "?input=" in path:
        return f"{path.partition('?')[0]}?input={quote(json.dumps(asks('alice')['input']))}"
    return path


def difference(case: dict[str, Any], found: Response) -> str:
    """Return what differs in status and shape; empty if nothing does."""
    if found.status != case["status"]:
        return f"status {found.status}, not {case['status']}"
    wanted = case["response"]
    if case["status"] >= 400:
        if not isinstance(wanted, dict):
            return ""
        body = found.json()
        return "" if body.get("code") == wanted["code"] and body["message"] else "another code"
    if not isinstance(wanted, dict) or "_truncated" in wanted:
        truncated = str((wanted or {}).get("_truncated", "")) if isinstance(wanted, dict) else ""
        return "" if isinstance(wanted, dict) and truncated.startswith('{"result"') else "not that document"
    body = found.json()
    if body.keys() != wanted.keys():
        return f"keys {sorted(body)}, not {sorted(wanted)}"
    return "" if type(body.get("result")) is type(wanted.get("result")) else "a result of another type"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['config']}-{case['case']}".replace(" ", "_"))
def test_a_recorded_request_has_the_recorded_answer_or_a_row(service: Process, case: dict[str, Any]) -> None:
    headers = {name.replace("-", "_"): value for name, value in case["request_headers"].items()}
    found = send(service, case["method"], path_of(case), body_of(case), **headers)
    name = name_of(case) if case["config"] == "default" else f"{case['config']}: {name_of(case)}"
    said = difference(case, found)
    assert bool(said) == (name in DIFFERENCES), (name, said, found.status, found.content)
    if said:
        assert str(found.status) in DIFFERENCES[name][0]
    if case["status"] == 200 and not said and isinstance(case["response"].get("result"), bool):
        assert found.json()["result"] == case["response"]["result"]


def test_every_row_is_about_a_recorded_request_and_has_a_reason() -> None:
    recorded = {
        name_of(case) if case["config"] == "default" else f"{case['config']}: {name_of(case)}" for case in CASES
    }
    assert set(DIFFERENCES) <= recorded
    assert all(here and why for here, why in DIFFERENCES.values())
    assert len(CASES) > 40
