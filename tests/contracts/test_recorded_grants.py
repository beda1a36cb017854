"""Recorded decisions asked of services whose worlds were written through the management API, over both surfaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.grpc_messages import check_message
from support.clients.http_client import HttpClient, client_of
from support.clients.stubs import wire_grpc
from support.paths import RECORDED as RECORDED_FOLDER
from support.service.serving import serving, settings_of

from pdp.surfaces.wire import decision_pb2 as wire

RECORDED = RECORDED_FOLDER / "lakekeeper"
CASES = [json.loads(line) for line in (RECORDED / "golden.jsonl").read_text(encoding="utf-8").splitlines()]
WORLDS = sorted({case["world"] for case in CASES})


async def done(client: HttpClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any]
    status, answer = await client.post(path, body)
    assert status == 200, answer
    return answer


def test_every_recorded_decision_is_asked() -> None:
    assert sum(case["world"] in WORLDS for case in CASES) == 910


@pytest.mark.parametrize("world", WORLDS)
async def test_written_through_the_api_every_recorded_decision_holds(world: str, url: str, tmp_path: Path) -> None:
    """One service writes and answers over HTTP; another, which only follows the store, answers over gRPC."""
    operator = {"loopback": True, "may_assert": ["principals"], "may_write": True}
    config = {
        "authorities": {"default": {"engines": ["grants"]}},
        "store": {"url": url, "wait_seconds": 20},
        "identity": {"callers": {"operator": operator}},
    }
    content = json.loads((RECORDED / world).read_text(encoding="utf-8"))
    checks = [check for case in CASES if case["world"] == world for check in case["checks"]]
    wanted = [want for case in CASES if case["world"] == world for want in case["want"]]
    folders = [tmp_path / "writing", tmp_path / "following"]
    for folder in folders:
        folder.mkdir()
    async with (
        client_of(settings_of(config, folders[0])) as writing,
        serving(settings_of(config, folders[1])) as following,
        grpc.aio.insecure_channel(following.addresses["grpc"]) as channel,
    ):
        await done(writing, "/v1/objects", {"put": content.get("objects", [])})
        half = len(content["grants"]) // 2
        await done(writing, "/v1/grants", {"add": content["grants"][half:]})
        revision = (await done(writing, "/v1/grants", {"add": content["grants"][:half]}))["revision"]
        answer = await done(writing, "/v1/check", {"checks": checks})
        assert [decision["allowed"] for decision in answer["decisions"]] == wanted
        request = wire.CheckRequest(checks=map(check_message, checks), consistency=wire.Consistency(at_least=revision))
        response = await wire_grpc.DecisionServiceStub(channel).Check(request)
        assert [decision.allowed for decision in response.decisions] == wanted
        assert response.revision == answer["revision"] == revision
