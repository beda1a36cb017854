"""The worked examples on every surface that rewrites: each gives the same rows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from support.clients.http_client import HttpClient, client_of
from support.clients.rpc_clients import GrpcClient
from support.pages.worked_examples import EXAMPLES, Example, document, example_database, ids_of
from support.rewriting import write_policies
from support.service.command_line import COMPOSITION
from support.service.serving import settings_of

from pdp.cli.main import cli
from pdp.engines.row_access.members import ANONYMOUS_MEMBER as ANONYMOUS
from pdp.surfaces.wire import decision_pb2 as wire

Surface = Callable[[Path, list[Example]], list[str]]
"""Rewrites the statements of examples by policies in a folder."""


def command_line(folder: Path, examples: list[Example]) -> list[str]:
    """One command for each example."""
    file = str(write_policies(folder, document()))
    found = []
    for example in examples:
        arguments = ["--dialect", "duckdb", "--as", example.caller, "--groups", ",".join(example.groups)]
        command = ["rewrite", "--policies", file, *arguments]
        done = CliRunner().invoke(cli, command, obj=COMPOSITION, input=example.sql)
        assert done.exit_code == 0, (example.note, done.output)
        found.append(done.stdout)
    return found


def batch(folder: Path, examples: list[Example]) -> list[str]:
    """One command for all examples."""
    file = str(write_policies(folder, document()))
    lines = [
        {
            "sql": example.sql, "dialect": "duckdb", "principal": example.caller or ANONYMOUS,
            "groups": example.groups, "authenticated": bool(example.caller),
        }
        for example in examples
    ]  # fmt: skip
    command = ["rewrite", "--policies", file, "--batch"]
    done = CliRunner().invoke(cli, command, obj=COMPOSITION, input="\n".join(map(json.dumps, lines)))
    return [json.loads(line)["sql"] for line in done.stdout.splitlines()]


# --- the service --------------------------------------------------------------------------------------------------

ADMIN = "user:oidc~admin@example.com"


@asynccontextmanager
async def serving(folder: Path, policies: list[dict[str, Any]]) -> AsyncIterator[HttpClient]:
    """Start a service in which everybody may read and ADMIN owns the warehouse."""
    (folder / "rows.json").write_text(json.dumps({**document(), "policies": policies}))
    (folder / "all.properties").write_text("nessie.server.authorization.rules.all=true")
    grants = [{"principal": ADMIN, "privilege": "ownership", "object": "warehouse:lake"}]
    grants += [
        {"principal": principal_of(example)["id"], "privilege": "select", "object": "warehouse:lake"}
        for example in EXAMPLES
        if example.caller
    ]
    objects = ["project:p1", {"object": "warehouse:lake", "parent": "project:p1"}]
    (folder / "seed.json").write_text(json.dumps({"objects": objects, "grants": grants}))
    config = {
        "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
        "store": {"url": "sqlite:///pdp.db", "seed": "seed.json"},
        "policies": {"rules": ["all.properties"], "row_access": [{"path": "rows.json", "allow_empty": True}]},
        "limits": {"rewrite_seconds": 60},
    }
    async with client_of(settings_of(config, folder)) as client:
        yield client


def principal_of(example: Example) -> dict[str, Any]:
    """Return the principal of the service whose member is the caller of an example."""
    if not example.caller:
        return {"id": "anonymous"}
    return {"id": f"user:oidc~{example.caller.partition(':')[2]}", "groups": list(example.groups)}


async def ask(client: HttpClient, sql: str, principal: Any, dialect: str = "duckdb") -> str:
    body = json.dumps({"sql": sql, "dialect": dialect, "principal": principal}).encode()
    answer = await client.send("POST", "/v1/rewrite", body, {"Content-Type": "application/json"})
    assert answer.status == 200, (sql, answer.text)
    found: str = answer.json()["sql"]
    return found


async def http(folder: Path, examples: list[Example]) -> list[str]:
    """POST /v1/rewrite with the policies of files."""
    async with serving(folder, document()["policies"]) as client:
        return [await ask(client, example.sql, principal_of(example)) for example in examples]


async def grpc_rewrite(folder: Path, examples: list[Example]) -> list[str]:
    """Rewrite over gRPC with the policies of files."""
    found = []
    async with AsyncExitStack() as held:
        client = await held.enter_async_context(serving(folder, document()["policies"]))
        address = client.service.addresses["grpc"]
        rpc = GrpcClient(await held.enter_async_context(grpc.aio.insecure_channel(address)))
        for example in examples:
            principal = wire.Principal(**principal_of(example))
            request = wire.RewriteRequest(sql=example.sql, dialect="duckdb", principal=principal)
            found.append((await rpc.call("Rewrite", request)).sql)
    return found


async def ddl(folder: Path, examples: list[Example]) -> list[str]:
    """Create all policies by DDL, and then rewrite. Policies for all authenticated users have no GRANT TO."""
    async with serving(folder, []) as client:
        for policy in document()["policies"]:
            grantees = ", ".join(f"'{grantee}'" for grantee in policy["grantees"])
            granted = "" if grantees == "'allAuthenticatedUsers'" else f"GRANT TO ({grantees}) "
            table = f"`lake.ex.{policy['table']}`"
            text = f"CREATE ROW ACCESS POLICY {policy['id']} ON {table} {granted}FILTER USING ({policy['filter']})"
            await ask(client, text, {"id": ADMIN}, "bigquery")
        return [await ask(client, example.sql, principal_of(example)) for example in examples]


USERS = [example for example in EXAMPLES if not example.caller.startswith("serviceAccount:")]
NAMED = [example for example in EXAMPLES if example.caller]
SURFACES: dict[str, tuple[Surface, list[Example]]] = {
    "command line": (command_line, NAMED),
    "batch": (batch, EXAMPLES),
}
"""Surface -> the examples that can be said there. A command line has no caller without a name."""
SERVED = {"http": http, "grpc": grpc_rewrite, "ddl": ddl}
"""Surfaces of the service, whose members are users."""


def check(examples: list[Example], rewritten: list[str]) -> None:
    database = example_database()
    assert len(rewritten) == len(examples)
    for example, sql in zip(examples, rewritten, strict=True):
        rows = [list(row) for row in database.execute(sql).fetchall()]
        assert ids_of(rows) == example.ids, (example.note, sql)


@pytest.mark.process
@pytest.mark.parametrize("name", SERVED)
async def test_a_service_gives_the_rows_of_the_worked_examples(tmp_path: Path, name: str) -> None:
    check(USERS, await SERVED[name](tmp_path, USERS))


@pytest.mark.parametrize("name", SURFACES)
def test_a_surface_gives_the_rows_of_the_worked_examples(tmp_path: Path, name: str) -> None:
    surface, examples = SURFACES[name]
    check(examples, surface(tmp_path, examples))
