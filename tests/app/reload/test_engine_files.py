"""Reload of the files of every engine: permissions of LakeQL, and Cedar's policies, entities and schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import fetch
from support.oracles.converging import until
from support.service.serving import Process, serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]

CHECK = {"principal": "user:oidc~alice", "action": "read_data", "resource": "table:lake/s/t"}
PERMIT = """permit (principal in Lakekeeper::Role::"analyst", action, resource);"""
SCHEMA = "namespace Lakekeeper { entity Team; }\n"


def people(role: str) -> str:
    uid = {"type": "Lakekeeper::User", "id": "oidc~alice"}
    return json.dumps([{"uid": uid, "attrs": {}, "parents": [{"type": "Lakekeeper::Role", "id": role}]}])


def permissions(table: str) -> str:
    query = [{"catalog": "lake", "schema": "s", "tables": [table]}]
    return json.dumps([{"name": "alice", "useSystemUser": True, "permissions": {"Query": query}}])


@contextmanager
def serving(folder: Path, engine: str, policies: dict[str, Any], files: dict[str, str]) -> Iterator[Process]:
    for name, text in files.items():
        (folder / name).write_text(text)
    config = {
        "policies": {"rules": [], "refresh_seconds": 0.1, **policies},
        "authorities": {"default": {"engines": [engine]}},
        "warehouses": {"lake": {"project": "p1"}},
        "store": {"url": "sqlite:///pdp.db"},
    }
    (folder / "pdp.yaml").write_text(json.dumps(config))
    with serve_process(folder, "--workers", "2") as process:
        yield process
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()


def answers(process: Process) -> set[bool]:
    body = json.dumps({"checks": [CHECK]}).encode()
    return {fetch(process.url("/v1/check"), body).json()["decisions"][0]["allowed"] for _ in range(6)}


def reason(process: Process) -> str:
    return "".join(fetch(process.url("/health/ready", "diagnostics")).json().get("reasons", ()))


def test_permissions_of_lakeql(tmp_path: Path) -> None:
    policies = {"scopes": {"permissions": ["*.permissions.json"]}}
    with serving(tmp_path, "scopes", policies, {"a.permissions.json": permissions("t")}) as process:
        assert answers(process) == {True}
        (tmp_path / "a.permissions.json").write_text(permissions("u"))
        until(lambda: answers(process) == {False})
        (tmp_path / "a.permissions.json").write_text(permissions("t").replace("Query", "Qery"))
        until(lambda: "a.permissions.json:1:" in reason(process))
        assert answers(process) == {False}
        (tmp_path / "a.permissions.json").write_text(permissions("*"))
        until(lambda: answers(process) == {True} and not reason(process))


def test_policies_entities_and_schema_of_cedar(tmp_path: Path) -> None:
    """The schema is in no list of patterns."""
    policies = {
        "cedar": {"policies": ["*.cedar"], "entities": ["*.entities.json"], "schema": {"extend": "more.cedarschema"}}
    }
    files = {"a.cedar": PERMIT, "a.entities.json": people("analyst"), "more.cedarschema": SCHEMA}
    with serving(tmp_path, "cedar", policies, files) as process:
        assert answers(process) == {True}
        (tmp_path / "more.cedarschema").write_text("namespace Lakekeeper { entity")
        until(lambda: "more.cedarschema" in reason(process))
        (tmp_path / "more.cedarschema").write_text(SCHEMA)
        until(lambda: not reason(process))
        (tmp_path / "a.entities.json").write_text(people("guest"))
        until(lambda: answers(process) == {False})
        (tmp_path / "a.cedar").write_text(PERMIT.replace("analyst", "guest"))
        until(lambda: answers(process) == {True})
        (tmp_path / "a.cedar").write_text("permit (principal, action, resource")
        until(lambda: "a.cedar:1:" in reason(process))
        assert answers(process) == {True}
