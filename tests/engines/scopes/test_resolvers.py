"""Resolvers of a separate package decide as recorded, save that anything but a boolean denies."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of
from support.oracles.audit_files import audit_records
from support.paths import TESTS
from support.servers.acme import install_acme
from support.service.serving import settings_of

from pdp.app.service import Service
from pdp.errors import ConfigError

pytestmark = pytest.mark.process  # pip installs the package
RECORDED = [json.loads(line) for line in (TESTS / "recorded" / "lakeql" / "resolvers.jsonl").read_text().splitlines()]
CUSTOM = [case for case in RECORDED if "custom" in case]
VALUES: dict[str, Any] = {
    "0": 0, "1": 1, "true": True, "false": False, "undefined": None, "null": None, "''": "", "'no'": "no",
    "NaN": float("nan"), "{}": {}, "[]": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_acme(tmp_path_factory.mktemp("acme"))


@pytest.fixture
def acme(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(site))
    import acme_engines  # type: ignore[import-not-found]  # noqa: PLC0415  on the path from here on

    yield acme_engines
    sys.modules.pop("acme_engines", None)


def resolver_of(custom: dict[str, Any], calls: list[Any]) -> Any:
    """Return the resolver that a recorded case describes."""

    def result(user: Any) -> Any:
        if "throws" in custom or "rejects" in custom:
            raise RuntimeError(custom.get("throws") or custom.get("rejects"))
        if "rule" in custom:
            assert custom["rule"] == "role==admin"
            return user is not None and user.get("role") == "admin"
        return VALUES[custom["returns"]]

    def resolve(user: Any, *names: Any) -> Any:
        calls.append((user, *names))
        return result(user)

    async def resolve_later(user: Any, *names: Any) -> Any:
        calls.append((user, *names))
        return result(user)

    return resolve_later if custom.get("async") or "rejects" in custom else resolve


def config(folder: Path, permissions: Any, **resolvers: Any) -> dict[str, Any]:
    (folder / "permissions.json").write_text(json.dumps(permissions))
    files = [{"path": "permissions.json", "allow_empty": True}]
    return {
        "authorities": {"default": {"engines": ["scopes"]}},
        "policies": {"rules": [], "scopes": {"permissions": files, **resolvers}},
        "store": {"url": "sqlite:///p.db"},
    }


@pytest.mark.parametrize("case", CUSTOM, ids=lambda case: case["desc"])
async def test_a_recorded_resolver(acme: Any, tmp_path: Path, case: dict[str, Any]) -> None:
    calls: list[Any] = []
    acme.RESULTS["resolver"] = resolver_of(case["custom"], calls)
    kind = "write" if case["desc"].startswith("custom write") else "read"
    given = config(tmp_path, case["permissions"], **{f"{kind}_resolver": "acme_recorded"})
    async with client_of(settings_of(given, tmp_path)) as client:
        body = {"currentUser": case["current_user"], "scopes": case["scopes"]}
        status, answer = await client.post("/v1/scopes", body)
    value = VALUES.get(case["custom"].get("returns", "true"))
    wanted = case["expect"]["allow"] and isinstance(value, bool)
    assert (status, answer) == (200, {"allowed": wanted})
    names = next(iter(case["scopes"].values()))
    asked = f"{kind}Permission" in case["scopes"]
    assert calls == ([(case["current_user"], names["catalog"], names["schema"], names["tableName"])] if asked else [])


async def test_the_cause_of_a_failure_is_in_the_audit(acme: Any, tmp_path: Path) -> None:
    acme.RESULTS["resolver"] = resolver_of({"throws": "the quota is used up"}, [])
    given = config(tmp_path, [], read_resolver="acme_recorded")
    check = {"principal": "user:oidc~svc", "action": "read_data", "resource": "table:hive/raw/t"}
    claims = {"id": "user:oidc~svc", "attributes": {"profile": [{"password": "hunter2"}]}}
    async with client_of(settings_of(given, tmp_path)) as client:
        found = (await client.check(check, explain=True))[1]["decisions"][0]
        hidden = (await client.check({**check, "principal": claims}))[1]["decisions"][0]
        acme.RESULTS["resolver"] = lambda *_: 1
        second = (await client.check(check))[1]["decisions"][0]
    assert found["by"] == ["scopes:acme_recorded: RuntimeError: the quota is used up"]
    assert hidden["by"] == ["scopes:acme_recorded: RuntimeError"], "the text may quote the password"
    assert found["errors"] == ["acme_recorded"]
    assert found["trace"]["parts"][0]["outcome"] == "failed"
    assert (second["allowed"], second["by"]) == (False, ["scopes:acme_recorded: returned int, not a boolean"])
    assert audit_records(tmp_path)[0]["checks"][0]["by"] == found["by"]


async def test_equal_tables_of_a_batch_are_resolved_once(acme: Any, tmp_path: Path) -> None:
    calls: list[Any] = []
    acme.RESULTS["resolver"] = resolver_of({"returns": "true", "async": True}, calls)
    given = config(tmp_path, [], write_resolver="acme_recorded")
    check = {"principal": "user:oidc~svc", "action": "write_data", "resource": "table:hive/raw/t"}
    async with client_of(settings_of(given, tmp_path)) as client:
        decisions = (await client.check(check, check, {**check, "resource": "table:hive/raw/u"}))[1]["decisions"]
    assert [each["allowed"] for each in decisions] == [True] * 3
    assert [call[-1] for call in calls] == ["t", "u"]


async def test_a_late_resolver_denies(acme: Any, tmp_path: Path) -> None:
    import asyncio  # noqa: PLC0415

    async def never(*_: Any) -> bool:
        await asyncio.sleep(60)
        return True

    acme.RESULTS["resolver"] = never
    given = config(tmp_path, [], read_resolver="acme_recorded", resolver_seconds=0.05)
    check = {"principal": "user:oidc~svc", "action": "read_data", "resource": "table:hive/raw/t"}
    async with client_of(settings_of(given, tmp_path)) as client:
        found = (await client.check(check))[1]["decisions"][0]
    assert (found["allowed"], found["by"]) == (False, ["scopes:late"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody", "no installed package"),
        ("acme_constant", "is no function"),
        ("acme_recordd", "the nearest known is `acme_recorded`"),
        (
            "acme.rules:Team.is_admin",
            r'write `is_admin = "acme.rules:Team.is_admin"` below `\[project.entry-points."pdp.scopes"\]`',
        ),
    ],
)
def test_a_resolver_that_is_not_there_stops_the_start(acme: Any, tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"`policies\.scopes\.read_resolver`: .*{message}"):
        Service(settings_of(config(tmp_path, [], read_resolver=name), tmp_path))
