"""The recorded tables in a real Trino, with the recorded policies in front of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import sqlglot
import trino.dbapi
from support.oracles.engine_cases import EngineError
from support.oracles.equivalence import DATA
from support.pages import worked_examples
from support.rewriting import FOLDER
from support.servers.real_trino import PATIENCE, access_control
from support.servers.trino_server import Setup, trino_server
from support.service.serving import serve_process
from trino.exceptions import TrinoQueryError

ROOT: Final = "root@all.example"
"""User of Trino who sees everything: rewritten statements run under this name."""
MASKED: Final = "mia@masked.example"
"""User of Trino with masks."""
OUTSIDE: Final = frozenset({"etl", "anon"})
"""Callers without a user of Trino of the same name."""
MASKS: Final[list[dict[str, Any]]] = [
    {"id": "mail", "column": "email", "kind": "partial"},
    {"id": "pay", "column": "salary", "kind": "null"},
    {"id": "dept", "column": "dept", "kind": "hash"},
    {"id": "number", "column": "emp_id", "kind": "constant", "expression": 9},
]
OWNER: Final = "olga@owns.example"
"""User of Trino who owns a view that runs as its owner."""
OWN_ROWS: Final = {
    "id": "own", "table": "lake.ex.owned", "grantees": ["allUsers"],
    "filter": "who = current_user OR contains(current_groups(), team)",
}  # fmt: skip
"""Policy by the name and the groups of the caller."""
WORKERS: Final = 4
EXAMPLES: Final = "lake.ex"
"""Schema of the worked examples."""


def trino_document() -> dict[str, Any]:
    """Return the recorded policies and those of the worked examples, with all rows for ROOT and masks for MASKED.

    Two filters read another table or the name of the caller: Trino gets both in Trino's own words.
    """
    document: dict[str, Any] = json.loads((FOLDER / "row_access.json").read_text("utf-8"))
    for policy in document["policies"]:
        if policy["id"] == "leads_lookup":
            policy["filter"] = policy["filter"].replace("SESSION_USER()", "current_user")
            policy["dialect"] = "trino"
    examples = worked_examples.document()
    document["policies"] += [{**policy, "table": f"{EXAMPLES}.{policy['table']}"} for policy in examples["policies"]]
    document["tables"] |= examples["tables"]
    document["views"] |= examples["views"]
    document["policies"].append(OWN_ROWS)
    tables = sorted({policy["table"] for policy in document["policies"]})
    seers = [f"user:{ROOT}", f"user:{MASKED}"]
    document["policies"] += [{"id": "see_all", "table": name, "grantees": seers, "filter": "TRUE"} for name in tables]
    document["masks"] = [{"table": "lake.hr.salaries", "grantees": [f"user:{MASKED}"], **mask} for mask in MASKS]
    return document


class TrinoTables:
    """Trino with the recorded tables and views. Views run for whom reads them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.execute("CREATE CATALOG lake USING memory")
        for schema in sorted({name.split(".")[1] for name in DATA["tables"]}):
            self.execute(f"CREATE SCHEMA lake.{schema}")
        self.all_at_once(*zip(*((text, ROOT) for text in map(_table, DATA["tables"])), strict=True))
        self.all_at_once(*zip(*((text, ROOT) for text in map(_rows, DATA["tables"])), strict=True))
        self._add_examples()
        for name, view in DATA["views"].items():
            if not view.get("no_engine"):
                columns = f" AS t ({', '.join(view['columns'])})" if view.get("columns") else ""
                text = f"SELECT * FROM ({view['sql']}){columns}"
                self.execute(f"CREATE VIEW {name} SECURITY INVOKER AS {text}", schema=name.split(".")[1])

    def _add_examples(self) -> None:
        self.execute(f"CREATE SCHEMA {EXAMPLES}")
        made = worked_examples.create_statements()
        for texts in (made[: len(made) // 2], made[len(made) // 2 :]):
            self.all_at_once(texts, [ROOT] * len(texts))
        for name, sql in worked_examples.VIEWS.items():
            self.execute(f"CREATE VIEW {EXAMPLES}.{name} SECURITY INVOKER AS {sql}", schema="ex")

    def execute(self, sql: str, user: str = ROOT, schema: str = "sales") -> list[list[Any]]:
        """Return the rows of a statement; raise EngineError if Trino does not run the statement."""
        with trino.dbapi.Connection(
            host="127.0.0.1", port=self._port, user=user, max_attempts=1, request_timeout=PATIENCE, catalog="lake",
            schema=schema,
        ) as connection:  # fmt: skip
            try:
                return [list(row) for row in connection.cursor().execute(sql).fetchall()]
            except TrinoQueryError as error:
                raise EngineError(f"{error.error_name}: {error.message}"[:400]) from None

    def all_at_once(self, texts: Iterable[str], users: Iterable[str]) -> None:
        """Run statements, some at a time; raise EngineError."""
        with ThreadPoolExecutor(WORKERS) as workers:
            list(workers.map(self.execute, texts, users))


@contextmanager
def trino_tables(folder: Path) -> Iterator[TrinoTables]:
    """Start a service with the recorded policies and a Trino that asks the service."""
    (folder / "pdp").mkdir()
    (folder / "trino").mkdir()
    (folder / "pdp" / "rows.json").write_text(json.dumps(trino_document()))
    (folder / "pdp" / "world.json").write_text(json.dumps(_world()))
    (folder / "pdp" / "pdp.yaml").write_text(json.dumps({
        "warehouses": {"lake": {"project": "company", "default_ref": "main"}},
        "authorities": {"default": {"engines": ["grants"]}},
        "store": {"url": "file:world.json"},
        "policies": {"rules": [], "row_access": ["rows.json"]},
        "trino": {"catalogs": {"lake": {"warehouse": "lake"}}, "admin_users": [ROOT]},
    }))  # fmt: skip
    groups = {"eu@example.com": "carol@example.com,gina@example.com", "hr@example.com": "carol@example.com"}
    with ExitStack() as held:
        service = held.enter_context(serve_process(folder / "pdp", "-c", "pdp.yaml"))
        server = held.enter_context(trino_server(folder / "trino", Setup(access_control(service), groups)))
        yield TrinoTables(server.port)


def _world() -> dict[str, Any]:
    """Return the grants: ROOT administers, all others read everything."""
    grants = [
        {"principal": f"user:oidc~{user}", "privilege": "project_admin", "object": "project:company"}
        for user in (ROOT, OWNER)
    ]
    named = [example.caller.partition(":")[2] for example in worked_examples.EXAMPLES if example.caller]
    users = {MASKED, *named, *map(user_of, DATA["callers"])}
    grants += [{"principal": f"user:oidc~{user}", "privilege": "select", "object": "warehouse:lake"} for user in users]
    objects = ["project:company", {"object": "warehouse:lake", "parent": "project:company"}]
    return {"objects": objects, "grants": grants}


def user_of(caller: str) -> str:
    """Return the user of Trino of a recorded caller."""
    member: str = DATA["callers"][caller]["principal"]
    return member.partition(":")[2]


def _table(name: str) -> str:
    text = f"CREATE TABLE t ({DATA['tables'][name]['ddl']})"
    return sqlglot.transpile(text, read="duckdb", write="trino")[0].replace("TABLE t", f"TABLE {name}")


def _rows(name: str) -> str:
    text = f"INSERT INTO {name} VALUES {DATA['tables'][name]['values']}"
    return sqlglot.transpile(text, read="duckdb", write="trino")[0]
