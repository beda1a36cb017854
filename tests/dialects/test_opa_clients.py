"""Released clients of OPA make the calls that were recorded of them, before a service that ignores their token."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.opa_requests import asks, opa_service
from support.oracles.trino_answers import WARNING
from support.paths import ROOT
from support.service.serving import Process
from support.untested import not_tested

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PYTHON = ("opa-python-client==3.0.0", "aiofiles==25.1.0")
PAGE = (ROOT / "docs" / "opa.md").read_text()
NODE = "@open-policy-agent/opa@2.0.0"
INPUTS = {user: asks(user)["input"] for user in ("alice", "bob")}
SYNC = """
import json, sys
from opa_client.opa import OpaClient
inputs, port = json.load(sys.stdin), int(sys.argv[1])
with OpaClient(host="127.0.0.1", port=port, token="abc") as client:
    said = {"connection": client.check_connection(), "health": client.check_health(),
            "bundle": client.check_health({"bundle": True}), "policies": client.get_policies_list(),
            "ready": client.wait_for_ready(query={"plugins": True})}
    for user, input in inputs.items():
        said[user] = client.query_rule(input, "trino", "allow", {"pretty": True, "metrics": True})
    said["none"] = client.query_rule(None, "trino", "allow")
    for package, rule in (("trino", "undef"), ("no.such", "x"), ("trino", "rowFilters")):
        try:
            client.query_rule({}, package, rule)
        except Exception as error:
            said[f"{package}/{rule}"] = error.response.status_code
print(json.dumps(said))
"""
ASYNC = """
import asyncio, json, sys
from opa_client.opa_async import AsyncOpaClient
inputs, port = json.load(sys.stdin), int(sys.argv[1])
async def main():
    async with AsyncOpaClient(host="127.0.0.1", port=port, token="abc") as client:
        said = {"connection": await client.check_connection(), "health": await client.check_health(),
                "bundle": await client.check_health({"bundle": True}), "policies": await client.get_policies_list(),
                "ready": await client.wait_for_ready(query={"plugins": True})}
        for user, input in inputs.items():
            said[user] = await client.query_rule(input, "trino", "allow", {"pretty": True, "metrics": True})
        said["none"] = await client.query_rule(None, "trino", "allow")
        for package, rule in (("trino", "undef"), ("no.such", "x"), ("trino", "rowFilters")):
            try:
                await client.query_rule({}, package, rule)
            except Exception as error:
                said[f"{package}/{rule}"] = error.status
        return said
print(json.dumps(asyncio.run(main())))
"""
SCRIPT = """
import { readFileSync } from "node:fs";
import { OPAClient } from "@open-policy-agent/opa";
const inputs = JSON.parse(readFileSync(0, "utf8"));
const client = new OPAClient(process.argv[2], { headers: { authorization: "Bearer abc" } });
const failed = (call) => call.then((found) => ({ found }), (error) => ({ status: error.statusCode ?? error.httpMeta?.response.status ?? error.name, code: error.code ?? "" }));
const said = {};
for (const [user, input] of Object.entries(inputs)) said[user] = await client.evaluate("trino/allow", input);
said.none = await client.evaluate("trino/allow");
said.undef = await failed(client.evaluate("trino/undef", inputs.bob));
said.unknown = await failed(client.evaluate("no/such", inputs.bob));
said.package = await failed(client.evaluate("trino", inputs.alice));
said.invalid = await failed(client.evaluate("trino/rowFilters", inputs.alice));
said.default = await failed(client.evaluateDefault({ user: "alice" }));
said.batch = await failed(client.evaluateBatch("trino/allow", inputs));
said.fallback = await client.evaluateBatch("trino/allow", inputs, { fallback: true });
said.filters = await failed(client.getFilters("trino/allow", inputs.alice, { target: "postgresql" }));
console.log(JSON.stringify(said));
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    callers = {"local": {"loopback": True, "ignore_tokens": True, "may_assert": ["principals", "groups"]}}
    with opa_service(tmp_path_factory.mktemp("clients"), identity={"callers": callers}) as process:
        yield process


def installed(command: list[str], subject: str, registry: str, folder: Path) -> None:
    """Run an installer; skip the test where it cannot reach its registry."""
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=240)
    if done.returncode:
        not_tested(subject, f"it cannot be installed: {done.stderr[-200:]}", f"a network with {registry}")


@pytest.fixture(scope="module")
def python_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    installed([*pip, "--no-compile", "--target", str(folder), *PYTHON], "with opa-python-client", "PyPI", folder)
    return folder


def run(command: list[str], folder: Path, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        command, check=False, cwd=folder, input=json.dumps(INPUTS), capture_output=True, text=True, timeout=60,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def printed(language: str, service: Process) -> str:
    """Return the block of docs/opa.md in a language, with the port of a service."""
    found = PAGE.partition(f"```{language}\n")[2].partition("```")[0]
    return found.replace("8181", service.addresses["http"].rpartition(":")[2])


def test_the_python_client_as_printed(service: Process, python_clients: Path) -> None:
    script = printed("python", service)
    for user, allowed in {"alice": True, "bob": False}.items():
        command = [sys.executable, "-c", script, user]
        assert run(command, python_clients, PYTHONPATH=str(python_clients)) == {"result": allowed}


@pytest.mark.parametrize("script", [SYNC, ASYNC], ids=["sync", "async"])
def test_the_python_client(service: Process, python_clients: Path, script: str) -> None:
    port = service.addresses["http"].rpartition(":")[2]
    said = run([sys.executable, "-c", script, port], python_clients, PYTHONPATH=str(python_clients))
    assert said == {
        "connection": True, "health": True, "bundle": True, "policies": [], "ready": True,
        "alice": {"result": True}, "bob": {"result": False}, "none": {"result": False, "warning": WARNING},
        "trino/undef": 404, "no.such/x": 404, "trino/rowFilters": 400,
    }  # fmt: skip


def test_the_node_client(service: Process, tmp_path: Path) -> None:
    if not shutil.which("npm") or not shutil.which("node"):
        not_tested("with @open-policy-agent/opa", "no `npm` on the PATH", "apt-get install npm")
    (tmp_path / "ask.mjs").write_text(SCRIPT)
    asked = f"const question = {json.dumps(INPUTS['alice'])};\n{printed('js', service)}\nconsole.log(JSON.stringify({{allowed}}));"
    (tmp_path / "printed.mjs").write_text(asked)
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", NODE]
    installed(npm, "with @open-policy-agent/opa", "npm's registry", tmp_path)
    said = run(["node", "ask.mjs", service.url("/")], tmp_path)
    assert run(["node", "printed.mjs"], tmp_path) == {"allowed": True}
    fallback, filters = said.pop("fallback"), said.pop("filters")
    assert fallback == {"alice": True, "bob": False}
    assert "found" not in filters
    assert {name: found.get("status") if isinstance(found, dict) else found for name, found in said.items()} == {
        "alice": True, "bob": False, "none": False, "undef": 404, "unknown": 404, "package": 404, "invalid": "ClientError",
        "default": "SDKValidationError", "batch": 404,
    }  # fmt: skip
    assert said["invalid"]["code"] == "invalid_parameter"
