"""The recorded bodies of Trino, and what policy sets say that they must be told, as files that a human can check.

A file of `trino_cases/` holds a policy set and its wants: for `allow`, by operation and resource, the users who may;
for `batch`, by the names that are asked about, the names that each user gets back; row filters and masks by table.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from spec.trino import Spec
from support.clients.http_client import client_of
from support.paths import RECORDED as RECORDED_FOLDER
from support.paths import TESTS
from support.service.serving import settings_of

from pdp.config.settings import Settings

RECORDED = RECORDED_FOLDER / "trino"
FILES = sorted((TESTS / "trino_cases").glob("*.yaml"))
GROUPS = {"alice": ["analysts", "stewards"], "bob": ["analysts"], "zed": [], "admin": ["admins"]}
"""Every user of the recordings, in the groups that Trino sent."""
Asked = tuple[str, dict[str, Any]]
"""An endpoint and a body."""
Ask = Callable[[str, Any], Awaitable[Any]]
"""Asks an endpoint about a body; what it answers with status 200."""


def recorded(name: str) -> Iterator[dict[str, Any]]:
    for line in (RECORDED / name).read_text().splitlines():
        yield json.loads(line)


def bodies() -> list[Asked]:
    """Every recorded request, as it was sent."""
    return [(line["endpoint"], line["request"]) for line in recorded("requests.jsonl")]


def bodies_of_statements() -> list[Asked]:
    """Every request of every recorded statement, each once."""
    sent = [(asked["endpoint"], asked["request"]) for line in recorded("sequences.jsonl") for asked in line["requests"]]
    return list({key(*asked): asked for asked in sent}.values())


def key(endpoint: str, body: dict[str, Any]) -> str:
    """What tells two requests apart."""
    return endpoint + json.dumps(body, sort_keys=True)


def asked_by(user: str, asked: Asked) -> Asked:
    """The same request, had another user caused it."""
    endpoint, body = asked
    given = body["input"]
    identity = {"user": user, "groups": GROUPS[user]}
    return endpoint, {"input": {**given, "context": {**given["context"], "identity": identity}}}


def user_of(body: dict[str, Any]) -> str:
    return str(body["input"]["context"]["identity"]["user"])


def name_of(resource: dict[str, Any]) -> str:
    """How the files name a resource: by its parts, without columns and properties."""
    parts = []
    for named in resource.values():
        words = [named[word] for word in _WORDS if word in named]
        parts.append(".".join(words))
    return " on ".join(sorted(parts, key=lambda part: "." in part))


_WORDS = ("catalogName", "schemaName", "tableName", "functionName", "propertyName", "columnName", "name", "user")


def settings(policies: dict[str, Any], folder: Path) -> Settings:
    """The configuration of a policy set, its files written below `folder`."""
    files = {"rules": "rules", "forbid": "forbid"}
    config = {**policies["config"], "policies": {}}
    for part, file in files.items():
        (folder / f"{file}.yaml").write_text(yaml.safe_dump({"rules": policies.get(part, {})}))
        config["policies"][part] = [{"path": f"{file}.yaml", "allow_empty": True}]  # a set may have neither
    if "row_access" in policies:
        (folder / "row_access.yaml").write_text(yaml.safe_dump(policies["row_access"]))
        config["policies"]["row_access"] = [{"path": "row_access.yaml", "allow_empty": True}]
    (folder / "world.json").write_text(json.dumps(policies.get("world", {"objects": [], "grants": []})))
    return settings_of({**config, "store": {"url": "file:world.json"}}, folder)


@asynccontextmanager
async def asking(policies: dict[str, Any], folder: Path) -> AsyncIterator[Ask]:
    """A running service with these policies, to be asked at its five endpoints."""
    async with client_of(settings(policies, folder)) as client:

        async def ask(endpoint: str, body: Any) -> Any:
            status, answer = await client.trino(endpoint, body)
            assert status == 200, (body, answer)
            return answer

        yield ask


class Wants:
    """What one file says of a body."""

    def __init__(self, policies: dict[str, Any]) -> None:
        self._wants = policies["wants"]

    def answer(self, endpoint: str, body: dict[str, Any]) -> Any:
        """The whole answer that Trino must get; KeyError where the file does not cover the body."""
        action = body["input"]["action"]
        return getattr(self, f"_{endpoint}")(user_of(body), action["operation"], action)

    def _allow(self, user: str, operation: str, action: dict[str, Any]) -> Any:
        may = self._wants["allow"][operation]
        if "resource" in action:
            target = f" to {name_of(action['targetResource'])}" if "targetResource" in action else ""
            may = may[f"{name_of(action['resource'])}{target}"]
        return {"result": user in _users(may)}

    def _batch(self, user: str, operation: str, action: dict[str, Any]) -> Any:
        names = [name_of(resource) for resource in action["filterResources"]]
        want = self._wants["batch"][operation]
        if operation == "FilterColumns":
            columns = action["filterResources"][0]["table"]["columns"]
            return {"result": list(range(len(columns))) if user in _users(want[names[0]]) else []}
        gets = {tuple(case["asked"]): case["gets"] for case in want}[tuple(names)].get(user, [])
        gets = names if gets == "all" else gets
        assert set(gets) <= set(names), want
        return {"result": [at for at, name in enumerate(names) if name in gets]}

    def _rowFilters(self, user: str, operation: str, action: dict[str, Any]) -> Any:  # noqa: N802
        of_table = self._wants["rowFilters"].get(name_of(action["resource"]), {})
        return {"result": [{"expression": of_table[user]}] if user in of_table else []}

    def _mask(self, user: str, column: dict[str, Any]) -> str | None:
        table, _, name = name_of({"column": column}).rpartition(".")
        mask: str | None = self._wants["columnMasks"].get(table, {}).get(user, {}).get(name)
        return mask

    def _columnMask(self, user: str, operation: str, action: dict[str, Any]) -> Any:  # noqa: N802
        mask = self._mask(user, action["resource"]["column"])
        return {"result": {"expression": mask}} if mask else {}

    def _batchColumnMasks(self, user: str, operation: str, action: dict[str, Any]) -> Any:  # noqa: N802
        masks = [self._mask(user, resource["column"]) for resource in action["filterResources"]]
        return {"result": [{"index": at, "viewExpression": {"expression": m}} for at, m in enumerate(masks) if m]}


def _users(may: list[str]) -> list[str]:
    assert set(may) <= set(GROUPS), may
    return may


def by_the_model(policies: dict[str, Any], endpoint: str, body: dict[str, Any]) -> Any:
    """The answer by the plain model of the vocabulary."""
    identity, action = body["input"]["context"]["identity"], body["input"]["action"]
    spec, operation = Spec(policies, identity["user"], identity["groups"]), action["operation"]
    if endpoint == "allow":
        given = action.get("resource", {}), action.get("targetResource"), action.get("grantee")
        return {"result": spec.allowed(operation, *given)}
    if endpoint == "rowFilters":
        found = spec.filter(action["resource"])
        return {"result": [{"expression": found}] if found else []}
    if endpoint == "columnMask":
        found = spec.mask(action["resource"])
        return {"result": {"expression": found}} if found else {}
    named = action["filterResources"]
    if endpoint == "batchColumnMasks":
        masks = [
            {"index": at, "viewExpression": {"expression": m}} for at, one in enumerate(named) if (m := spec.mask(one))
        ]
        return {"result": masks}
    may = [at for at, resource in enumerate(named) if spec.allowed(operation, resource)]
    return {"result": list(range(len(named[0]["table"]["columns"]))) if operation == "FilterColumns" and may else may}
