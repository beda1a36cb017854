"""Engines of a separate package: in a stack, cached, audited, explained, and denied where they break their contract."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of
from support.oracles.audit_files import all_records, audit_records
from support.oracles.converging import awaited
from support.servers.redis_server import redis_server
from support.service.serving import settings_of

from pdp.app.archived_bundle import read_sources, rebuild_pdp
from pdp.app.service import Service
from pdp.errors import ConfigError

pytestmark = pytest.mark.process  # pip installs the package

TABLES = ("public_a", "private", "secret", "granted")
GRANTS = [
    {"principal": "user:oidc~alice", "privilege": "select", "object": f"table:lake/s/{name}"} for name in TABLES[2:]
]
ALICE = "user:oidc~alice"
ACCESS = {"resource": "table:lake/s/granted", "action": "read_data"}
LISTING = {"principal": ALICE, "action": "read_data", "type": "table", "container": "warehouse:lake"}
NAMES = {"acme_names": "acme_names", "acme_remote": "acme_remote"}


def config(engines: list[str], options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    named = {} if options is None else {engines[0]: options}
    return {
        "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
        "authorities": {"default": {"engines": engines, **more.pop("authority", {})}},
        "policies": {"rules": [], "engines": named},
        "store": {"url": "file:world.json"},
        **more,
    }


@pytest.fixture
def folder(acme: Path, tmp_path: Path) -> Path:
    objects = ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}]
    (tmp_path / "world.json").write_text(json.dumps({"objects": objects, "grants": GRANTS}))
    return tmp_path


def check(name: str) -> dict[str, Any]:
    return {"principal": "user:oidc~alice", "action": "read_data", "resource": f"table:lake/s/{name}"}


async def decide(client: Any, names: Any = TABLES, **fields: Any) -> list[dict[str, Any]]:
    status, body = await client.check(*map(check, names), **fields)
    assert status == 200
    return body["decisions"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("combine", "allowed"), [("any", [True, False, False, True]), ("all", [False, False, False, False])]
)
async def test_it_decides_in_a_stack_is_audited_and_explained(
    folder: Path, name: str, combine: str, allowed: list[bool]
) -> None:
    """The forbid wins over the grant on `secret`, in any order of engines."""
    for engines in ([name, "grants"], ["grants", name]):
        settings = settings_of(config(engines, authority={"combine": combine}), folder / "_".join(engines))
        (folder / "_".join(engines)).mkdir()
        (folder / "_".join(engines) / "world.json").write_bytes((folder / "world.json").read_bytes())
        async with client_of(settings) as client:
            found = await decide(client)
            singles = [(await decide(client, (table,)))[0] for table in TABLES]
            explained = await decide(client, explain=True)
        assert [each["allowed"] for each in found] == allowed
        assert [{**each, "cached": False} for each in singles] == found
        assert found[2]["by"] == [f"{name}:secret"]
        parts = [{part["what"].split(":")[0]: part["outcome"] for part in each["trace"]["parts"]} for each in explained]
        assert [part[name] for part in parts] == ["permit", "silent", "forbid", "silent"]
        assert [part["grants"] for part in parts] == ["silent", "silent", "permit", "permit"]
        record = audit_records(folder / "_".join(engines))[0]
        assert [row["by"] for row in record["checks"]] == [each["by"] for each in found]


@pytest.mark.parametrize("name", NAMES)
async def test_a_decision_can_be_made_again_from_its_bundle(folder: Path, name: str) -> None:
    """The options of the engine are in the bundle, and in the digest."""
    digests = set()
    for prefix in ("public_", "private"):
        service = Service(settings_of(config([name], {"options": {"prefix": prefix}}), folder))
        digests.add(service.pdp.bundle.digest)
        again = rebuild_pdp(service.pdp.bundle.text)
        assert again.bundle.digest == service.pdp.bundle.digest
        await service.stop()
    assert len(digests) == 2


async def test_options_keep_the_order_that_an_engine_may_read(folder: Path) -> None:
    orders = [["prefix", "b", "a"], ["b", "prefix", "a"]]
    digests = set()
    for order in orders:
        options = {name: {"z": 1, "y": 2} if name == "b" else "public_" for name in order}
        bundle = Service(settings_of(config(["acme_names"], {"options": options}), folder)).pdp.bundle
        found = read_sources(bundle.text).engines["acme_names"]["options"]
        assert json.dumps(found) == json.dumps(options)
        assert rebuild_pdp(bundle.text).bundle.text == bundle.text
        digests |= {bundle.digest, bundle.default.engines[0].digest}
    assert len(digests) == 4


async def test_a_costly_engine_is_cached_in_redis_for_all_services(folder: Path) -> None:
    log = folder / "asked"
    with redis_server(folder) as server:
        cache = {"redis": server.url, "mac_key": "k" * 40, "timeout_ms": 1000}
        given = config(["acme_remote", "grants"], {"options": {"log": str(log)}}, cache=cache)
        async with client_of(settings_of(given, folder)) as client:
            first = await decide(client)
            assert client.service.pdp.cache
            await client.service.pdp.cache.flush()
        async with client_of(settings_of(given, folder)) as client:
            second = await decide(client)
            await decide(client, ("other",))
    assert log.read_text().split() == [*TABLES, "other"]
    assert [each["cached"] for each in first] == [False] * 4
    assert [each["cached"] for each in second] == [True] * 4
    assert [{**each, "cached": False} for each in second] == first


@pytest.mark.parametrize(
    "form", ["raises", "none", "long", "few_reasons", "list", "effect", "no_reason", "other_reason", "truth", "errors"]
)
async def test_a_broken_answer_denies_the_whole_group(folder: Path, form: str) -> None:
    given = config(["acme_broken", "grants"], {"options": {"form": form}})
    async with client_of(settings_of(given, folder)) as client:
        found = await decide(client)
        explained = await decide(client, explain=True)
        failures = client.service.metrics().decode()
    assert [(each["allowed"], each["by"]) for each in found] == [(False, ["acme_broken:failed"])] * 4
    assert [each["allowed"] for each in explained] == [False] * 4
    assert 'pdp_engine_failures_total{engine="acme_broken"}' in failures


@pytest.mark.parametrize("combine", ["any", "all"])
@pytest.mark.parametrize("engines", [["acme_broken"], ["acme_broken", "grants"], ["grants", "acme_broken"]])
async def test_an_engine_that_cannot_tell_what_it_decides_denies_those_checks_alone(
    folder: Path, combine: str, engines: list[str]
) -> None:
    """Silence in place of the failure would open what the engine forbids."""
    authorities = {
        "default": {"engines": engines, "combine": combine},
        "other": {"engines": ["grants"], "warehouses": ["other"]},
    }
    given = config(["acme_broken"], {"options": {"form": "applies"}}) | {"authorities": authorities}
    given["warehouses"]["other"] = {"project": "p1", "default_ref": "main"}
    denied = (False, ["acme_broken:failed"])
    async with client_of(settings_of(given, folder)) as client:
        checks = [check("granted"), {**check("granted"), "action": "get_metadata"}, check("granted")]
        checks[2]["resource"] = "table:other/s/granted"
        for _ in range(2):
            for asked in (checks, checks[::-1]):
                status, body = await client.check(*asked)
                found = [(each["allowed"], each["by"]) for each in body["decisions"]]
                assert status == 200
                read, describe, other = found if asked is checks else found[::-1]
                assert (read, describe[0], other) == (denied, True, (False, ["default_deny"]))
            singles = [(await client.check(each))[1]["decisions"][0] for each in checks]
            assert [each["allowed"] for each in singles] == [read[0], describe[0], other[0]]
        explained = await client.check(*checks, explain=True)
        parts = {part["what"]: part["outcome"] for part in explained[1]["decisions"][0]["trace"]["parts"]}
        assert parts["acme_broken"] == "failed"
        assert (await client.post("/v1/access", ACCESS))[1]["principals"] == []


def reporting(engine: str, **options: Any) -> dict[str, Any]:
    """Grants answer, and an engine reports on the same warehouses."""
    given = config(["grants"])
    given["authorities"]["next"] = {"engines": [engine, "grants"], "mode": "report"}
    given["policies"]["engines"] = {engine: {"options": options, "timeout_seconds": 60}}
    return given


def reported(folder: Path) -> list[tuple[str, list[str]]]:
    events = [each for each in all_records(folder) if each["event"] == "report"]
    return [(each["resource"], each["reportBy"]) for event in events for each in event["differences"]]


def counted(service: Service, outcome: str) -> float:
    text = service.metrics().decode()
    found = re.findall(rf'pdp_report_checks_total{{authority="next",outcome="{outcome}"}} (\S+)', text)
    return float(found[0]) if found else 0.0


@pytest.mark.parametrize("form", ["applies", "raises", "none", "long"])
async def test_a_broken_engine_in_report_mode_changes_no_answer(folder: Path, form: str) -> None:
    async with client_of(settings_of(reporting("acme_broken", form=form), folder)) as client:
        found = await decide(client)
        assert [(await decide(client, (name,)))[0]["allowed"] for name in TABLES] == [each["allowed"] for each in found]
    assert [each["allowed"] for each in found] == [False, False, True, True]
    failed = [(f"table:lake/s/{name}@main", ["acme_broken:failed"]) for name in TABLES[2:]]
    assert sorted(reported(folder)) == sorted(failed * 2)


async def test_no_answer_waits_for_an_engine_in_report_mode(folder: Path) -> None:
    """The engine answers when the test has its answers. Pages of listings are not compared."""
    file = folder / "go"
    async with client_of(settings_of(reporting("acme_late", form="", file=str(file)), folder)) as client:
        assert [each["allowed"] for each in await decide(client)] == [False, False, True, True]
        assert (await client.post("/v1/list", LISTING))[1]["objects"] == ["table:lake/s/granted", "table:lake/s/secret"]
        assert [each["principal"] for each in (await client.post("/v1/access", ACCESS))[1]["principals"]] == [ALICE]
        file.touch()
        await awaited(lambda: counted(client.service, "differs"))
        assert (counted(client.service, "differs"), counted(client.service, "same")) == (2.0, 2.0)
    assert reported(folder) == [(f"table:lake/s/{name}@main", ["acme_late:yes"]) for name in TABLES[:2]]


async def test_comparisons_that_never_end_are_left_out(folder: Path) -> None:
    never = str(folder / "never")
    async with client_of(settings_of(reporting("acme_late", form="", file=never), folder)) as client:
        for _ in range(300):
            assert (await decide(client, ("granted",)))[0]["allowed"] is True
        assert counted(client.service, "left_out") == 300 - 256
    assert counted(client.service, "left_out") == 300
    assert reported(folder) == []


@pytest.mark.parametrize(("form", "reason"), [("late", "late"), ("raises", "late"), ("long", "failed")])
async def test_a_late_or_broken_answer_of_an_async_engine_denies(folder: Path, form: str, reason: str) -> None:
    given = config(["acme_late", "grants"], {"options": {"form": form}, "timeout_seconds": 0.05})
    async with client_of(settings_of(given, folder)) as client:
        found = await decide(client)
        assert (await decide(client, ("granted",)))[0]["allowed"] is False
    assert [(each["allowed"], each["by"]) for each in found] == [(False, [f"acme_late:{reason}"])] * 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acme_unknown", "no engine `acme_unknown`"),
        ("acme.engines:NameEngine", r'write `NameEngine = "acme.engines:NameEngine"` below'),
        ("acme_none", "makes no engine: TypeError: the engine lacks name, digest"),
        ("acme_missing", "cannot be loaded: ModuleNotFoundError"),
        ("acme_broken", "makes no engine: KeyError"),
    ],
)
def test_an_entry_that_makes_no_engine_stops_the_start(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Service(settings_of(config([name]), folder))


def test_options_of_an_engine_that_nobody_names_stop_the_start(folder: Path) -> None:
    (folder / "pdp.yaml").write_text(json.dumps(config(["grants"]) | {"policies": {"engines": {"acme_names": {}}}}))
    done = run(folder, "config", "check", "-c", str(folder / "pdp.yaml"))
    assert done.returncode == 1
    assert "policies.engines.acme_names" in done.stdout + done.stderr


def test_a_package_is_imported_only_if_an_authority_names_it(folder: Path) -> None:
    for engines, imported in ((["grants"], False), (["acme_names"], True)):
        (folder / "pdp.yaml").write_text(json.dumps(config(engines)))
        done = run(folder, "check", "-c", str(folder / "pdp.yaml"), text=json.dumps(check("public_a")))
        assert json.loads(done.stdout)["allowed"] is imported
        assert (folder / "imported").exists() is imported


def run(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command with the package on the path."""
    path = os.pathsep.join([str(Path(__file__).parents[3]), sys.path[0]])
    environ = {**os.environ, "PYTHONPATH": path, "ACME_IMPORTED": str(folder / "imported")}
    command = [sys.executable, "-m", "pdp", *arguments]
    return subprocess.run(
        command, check=False, env=environ, cwd=folder, input=text, capture_output=True, text=True, timeout=120
    )
