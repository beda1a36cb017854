"""Errors of policies over every surface that explains: none shows a part of a value whose key is masked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.json_format import MessageToJson, ParseDict
from structlog.processors import format_exc_info
from structlog.testing import capture_logs
from support.clients.http_client import client_of
from support.clients.rpc_clients import ConnectClient, GrpcClient
from support.generators.cel_failures import EXTENSIONS, SECRETS, SHOWN, failing_rules
from support.service.command_line import COMPOSITION
from support.service.serving import settings_of

from pdp.cli.main import cli
from pdp.engines.cel.engine import CelEngine
from pdp.engines.cel.rules import inline_rules
from pdp.errors import RuleCompileError
from pdp.surfaces.wire import decision_pb2 as wire

SHARE = 40
"""Rules between two that a service has: the engine's own test has all."""
CHECK: dict[str, Any] = {
    "principal": {"id": "user:oidc~alice", "attributes": {"password": SECRETS}},
    "action": "read_data",
    "resource": {"reference": "table:lake/s/t@main", "properties": {"password": SECRETS["text"]}},
}


def compiles(text: str) -> bool:
    try:
        inline_rules({"r": text}, EXTENSIONS)
    except RuleCompileError:
        return False
    return True


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """Return the configuration of a service whose policies fail, as written to `pdp.yaml`."""
    rules = [text for text in failing_rules()[::SHARE] if compiles(text)]
    (tmp_path / "rules.yaml").write_text(json.dumps({"rules": {f"r{at}": text for at, text in enumerate(rules)}}))
    (tmp_path / "forbid.yaml").write_text(json.dumps({"rules": {"f": "int(attributes.password.text) > 1"}}))
    policies = {"rules": ["rules.yaml"], "forbid": ["forbid.yaml"], "cel_extensions": sorted(EXTENSIONS)}
    authorities = {"default": {"engines": ["cel"]}}
    written = {"policies": policies, "authorities": authorities, "audit": {"sinks": [{"file": "audit"}]}}
    (tmp_path / "pdp.yaml").write_text(json.dumps(written))
    return written


async def test_no_surface_shows_a_secret_in_an_error(config: dict[str, Any], tmp_path: Path) -> None:
    request = ParseDict({"checks": [CHECK], "explain": True}, wire.CheckRequest())
    shown = {}
    with capture_logs() as logs:
        async with client_of(settings_of(config, tmp_path)) as client:
            shown["http"] = json.dumps(await client.check(CHECK, explain=True))
            async with grpc.aio.insecure_channel(client.service.addresses["grpc"]) as channel:
                clients = {"grpc": GrpcClient(channel)} | {
                    f"connect {form}": ConnectClient(client, json=form == "json") for form in ("json", "proto")
                }
                for surface, each in clients.items():
                    shown[surface] = MessageToJson(await each.call("Check", request))
    shown["log"] = str(logs)
    shown["audit"] = "".join(path.read_text() for path in (tmp_path / "audit").rglob("*.jsonl"))
    for surface, text in shown.items():
        assert not SHOWN.search(text), (surface, SHOWN.search(text))
    for surface in ("http", *clients):
        assert "not an integer" in shown[surface]
    assert '"***"' in shown["audit"]


def test_no_command_shows_a_secret_in_an_error(config: dict[str, Any], tmp_path: Path) -> None:
    arguments = ["check", "-c", str(tmp_path / "pdp.yaml"), "--explain"]
    found = CliRunner().invoke(cli, arguments, obj=COMPOSITION, input=json.dumps(CHECK))
    assert "not an integer" in found.output
    assert not SHOWN.search(found.output)


@pytest.mark.parametrize(
    "error", [ValueError("hunter2"), StopIteration("hunter2"), RecursionError("hunter2"), KeyError("hunter2")]
)
async def test_an_engine_that_cannot_explain_says_so(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(CelEngine, "explain", fail)
    with capture_logs([format_exc_info]) as logs:
        async with client_of(settings_of(config, tmp_path)) as client:
            plain, explained = await client.check(CHECK), await client.check(CHECK, explain=True)
    assert (plain[0], explained[0]) == (200, 200)
    decision = explained[1]["decisions"][0]
    parts = [part for part in decision["trace"]["parts"] if part["what"] == "cel"]
    assert parts == [{"what": "cel", "outcome": "not explained", "why": f"`explain` raised {type(error).__name__}"}]
    assert decision["by"] == plain[1]["decisions"][0]["by"]
    assert not SHOWN.search(str(logs) + str(explained))
