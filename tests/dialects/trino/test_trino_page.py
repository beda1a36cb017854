"""docs/trino.md and the README's walk: what they say is what the service asks, names and answers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import client_of, fetch
from support.paths import RECORDED as RECORDED_FOLDER
from support.paths import ROOT
from support.service.commands import run_pdp
from support.service.serving import serve_process, settings_of

import pdp.dialects.trino
from pdp.audit.records.rows import rows
from pdp.config.load import UNSUPPORTED
from pdp.decision.plan import TOO_MANY_OBJECTS
from pdp.model.answer import OTHER_SPELLING
from pdp.model.references import parse_resource
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.offline.cases.runner import MemoryAudit

PAGE = (ROOT / "docs" / "trino.md").read_text()
README = (ROOT / "README.md").read_text()
RECORDED = RECORDED_FOLDER / "trino"
KNOWN = {line.split(" | ")[0] for line in (RECORDED / "plugin_properties.txt").read_text().splitlines()}


def page_rows() -> dict[str, list[str]]:
    """Operation -> the cells of its row."""
    table = PAGE.partition("| operation | comes by |")[2].partition("\n\n")[0].splitlines()[2:]
    found: dict[str, list[str]] = {}
    for line in table:
        names, *cells = (cell.strip() for cell in line.strip("|").split(" |"))
        for name in names.split(", "):
            assert name not in found
            found[name] = cells
    return found


ROWS = page_rows()


def recorded() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for line in map(json.loads, (RECORDED / "requests.jsonl").read_text().splitlines()):
        yield line["endpoint"], line["request"]["input"]["action"]["operation"], line["request"]


def test_every_operation_has_a_row() -> None:
    assert set(ROWS) == set(TRINO_OPERATIONS)


NEWER = {"SetMaterializedViewComment"}
"""Operations of Trinos after the recorded one."""


def test_operations_come_by_the_endpoints_at_which_a_real_trino_sent_them() -> None:
    sent: dict[str, set[str]] = {name: set() for name in TRINO_OPERATIONS}
    for endpoint, operation, _ in recorded():
        sent[operation].add(endpoint)
    for operation, endpoints in sent.items():
        said = set(re.findall(r"`(\w+)`", ROWS[operation][0]))
        if operation in NEWER:
            assert not endpoints
            continue
        assert said == endpoints - ({"allow"} if "batch" in endpoints else set()), operation


def said_checks(needs: str) -> set[tuple[str, str]]:
    """Action and type of each check that a row names; a place above may be a namespace or a warehouse."""
    return {(action, place.split()[-1]) for action, place in re.findall(r"`(\w+)` ((?:on|above)(?: [\w']+)*)", needs)}


def type_of(resource: Any) -> str:
    """The type of a record's resource, which is a reference or holds one."""
    return parse_resource(resource if isinstance(resource, str) else resource["reference"]).type


def of_ordinary_places() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The recorded bodies of operations that need checks, about what is no table of the system's."""
    for endpoint, operation, body in recorded():
        text = json.dumps(body["input"]["action"])
        if TRINO_OPERATIONS[operation].steps and not re.search(r'information_schema|"system|\$', text):
            yield endpoint, operation, body


async def test_what_a_row_says_is_asked(tmp_path: Path) -> None:
    """Every recorded body in an ordinary place comes to the checks of its operation's row, all of them."""
    catalogs = {name: {"warehouse": "w", "ref": "main"} for name in ("iceberg", "memory", "tpch", "bh")}
    asked: dict[str, set[tuple[str, str]]] = {}
    heirs = {"alice": ["bob"]}
    settings = settings_of({"trino": {"catalogs": catalogs, "impersonation": heirs}}, tmp_path)
    async with client_of(settings) as client:
        for endpoint, operation, body in of_ordinary_places():
            client.service.pdp.audit = recorder = MemoryAudit()
            assert (await client.trino(endpoint, body))[0] == 200
            for row in (row for record in recorder.records for row in rows(record)):
                assert row["delegated"] == ("`delegated`" in ROWS[operation][1]), row
                if not row["action"].startswith("trino:"):
                    asked.setdefault(operation, set()).add((row["action"], type_of(row["resource"])))
    assert asked.keys() == {name for name, operation in TRINO_OPERATIONS.items() if operation.steps} - NEWER
    for operation, checks in asked.items():
        said = said_checks(ROWS[operation][1])
        above = {action for action, place in said if place in ("above", "target")}
        assert {(action, "above" if action in above else type) for action, type in checks} == {
            (action, "above" if action in above else place) for action, place in said
        }, operation


def test_every_reason_that_no_engine_gives_is_on_the_page_and_no_other() -> None:
    source = "".join(path.read_text() for folder in pdp.dialects.trino.__path__ for path in Path(folder).glob("*.py"))
    given = set(re.findall(r'"((?:rule|config):[a-z_.]+)"', source))
    shared = {"TOO_MANY_OBJECTS": TOO_MANY_OBJECTS, "OTHER_SPELLING": OTHER_SPELLING}
    given.update(reason for name, reason in shared.items() if name in source)
    said = set(re.findall(r"`((?:rule|config):[a-z_.]+)`", PAGE))
    assert given == said


def test_every_key_on_the_page_is_one() -> None:
    documented = (ROOT / "docs" / "configuration.md").read_text()
    keys = {*re.findall(r"^\| `([^`]+)`", documented, re.MULTILINE), *UNSUPPORTED}
    said = set(re.findall(r"`((?:trino|limits|server|identity|policies|store)\.[a-z_.]+)`", PAGE))
    assert len(said) > 15
    assert {name for name in said if not any(f"{key}.".startswith(f"{name}.") for key in keys)} == set()


def test_every_property_on_the_page_is_one_of_the_plugin() -> None:
    said = set(re.findall(r"\bopa\.[a-z0-9.-]+[a-z]", PAGE))
    assert len(said) > 10
    assert said <= KNOWN


# --- the README's walk --------------------------------------------------------------------------------------------

CURL = re.compile(
    r"```sh\ncurl -s http://127\.0\.0\.1:8181(\S+) -H '[^']*' -d '(.*?)'\n```(.*?)```json\n(.*?)```", re.DOTALL
)


@pytest.fixture(scope="module")
def walk() -> str:
    return README.partition("## Trino\n")[2].partition("\n## ")[0]


@pytest.mark.process
def test_the_readmes_requests_are_answered_as_printed(tmp_path: Path) -> None:
    examples = CURL.findall(README)
    assert len(examples) == 3
    with serve_process(tmp_path) as process:
        for path, body, _, printed in examples:
            answer, wanted = fetch(process.url(path), body).json(), json.loads(printed)
            for changing in ("revision", "decisionId"):
                assert (changing in answer) == (changing in wanted)
                answer.pop(changing, None), wanted.pop(changing, None)
            assert answer == wanted


@pytest.mark.process
def test_the_walks_commands_do_what_it_says(tmp_path: Path, walk: str) -> None:
    commands = [shlex.split(line)[1:] for line in re.findall(r"^\.venv/bin/(pdp .*)$", walk, re.MULTILINE)]
    assert [command[0] for command in commands] == ["explain", "grants"]
    explained = run_pdp(*commands[0], cwd=tmp_path)
    assert explained.stdout.startswith("denied by default_deny\n")
    assert commands[0][1:3] == ["--example", "--principal"]
    bob = [*commands[0][:3], "user:oidc~Bob", *commands[0][4:-1], "table_or_view:tpch/tiny/nation"]
    assert run_pdp(*bob, cwd=tmp_path).stdout.startswith("denied by default_deny\n")
    assert run_pdp(*commands[1], cwd=tmp_path).returncode == 0
    assert run_pdp(*bob, cwd=tmp_path).stdout.startswith("allowed by grants:select on table:tpch/tiny/nation")


async def test_a_creator_owns_nothing_through_trino_alone(tmp_path: Path) -> None:
    assert "**A creator owns nothing through Trino alone.**" in PAGE
    world = {
        "objects": [],
        "grants": [{"principal": "user:oidc~eve", "privilege": "create", "object": "namespace:lake/s"}],
    }
    (tmp_path / "world.json").write_text(json.dumps(world))
    settings = {
        "store": {"url": "file:world.json"},
        "warehouses": {"lake": {}},
        "trino": {"catalogs": {"k": {"warehouse": "lake"}}},
    }
    table = {"table": {"catalogName": "k", "schemaName": "s", "tableName": "new"}}
    async with client_of(settings_of(settings, tmp_path)) as client:

        async def allows(operation: str) -> bool:
            action = {"operation": operation, "resource": table}
            question = {"input": {"context": {"identity": {"user": "eve", "groups": []}}, "action": action}}
            answer: dict[str, bool] = (await client.trino("allow", question))[1]
            return answer["result"]

        assert await allows("CreateTable")
        later = ("SelectFromColumns", "InsertIntoTable", "DropTable", "SetTableAuthorization")
        assert [await allows(operation) for operation in later] == [False] * len(later)
