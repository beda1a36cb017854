"""A service with every kind of policy, and a load of every kind of request on it, with writes in between."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import grpc
from support.clients.http_client import fetch
from support.clients.stubs import wire_grpc
from support.oracles.converging import PATIENCE
from support.oracles.view_loads import ENGINES, OWNER
from support.service.serving import Process

from pdp.surfaces.wire import decision_pb2 as wire

USERS = ("alice", "bob", "carol", "boss")
RULES = {
    "reads": "op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE'] && role=='carol' && path.startsWith('s.')",
    "groups": "op=='READ_ENTITY_VALUE' && 'staff' in groups && attributes.team=='x'",
    "roles": "op=='READ_ENTITY_VALUE' && 'reader' in roles && ref=='dev'",
    "owners": "op=='READ_ENTITY_VALUE' && properties.owner==role",
    "minutes": "op=='READ_ENTITY_VALUE' && now > timestamp('2020-01-01T00:00:00Z') && path=='s.timed'",
    "raising": "roles[3]=='x' && op=='DELETE_ENTITY'",
}
LATER_RULES = {**RULES, "reads": "op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE'] && role=='carol' && path=='s.t1'"}
FORBID = {"never": "op=='READ_ENTITY_VALUE' && path=='s.t9' && role!='boss'"}
ROWS = {
    "default": ["lake", "s"],
    "policies": [
        {"id": "eu", "table": "t1", "grantees": ["user:alice"], "filter": "region = 'EU'"},
        {"id": "etl", "table": "t2", "grantees": ["role:etl"], "filter": "x = 1"},
    ],
    "masks": [{"id": "pay", "table": "t3", "column": "pay", "grantees": ["role:etl"], "kind": "null"}],
}
SEED: dict[str, Any] = {
    "objects": [
        {"object": "warehouse:lake", "parent": "project:p1"},
        {"object": "role:etl", "parent": "project:p1"},
        {"object": "table:lake/s/t1", "id": "id-1"},
    ],
    "grants": [
        {"principal": "user:oidc~boss", "privilege": "project_admin", "object": "project:p1"},
        {"principal": "user:oidc~alice", "privilege": "select", "object": "view:lake/s/v"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "namespace:lake/s"},
    ],
}


def configure_mixed(folder: Path, url: str) -> None:
    """Write the configuration and the policies of a service on a database."""
    folder.mkdir()
    write_rules(folder, RULES)
    (folder / "forbid.yaml").write_text(json.dumps({"rules": FORBID}))
    (folder / "rows.json").write_text(json.dumps(ROWS))
    (folder / "seed.json").write_text(json.dumps(SEED))
    config = {
        "policies": {"rules": ["rules.yaml"], "forbid": ["forbid.yaml"], "row_access": ["rows.json"]},
        "warehouses": {"lake": {"project": "p1", "default_ref": "main"}},
        "store": {"url": url, "seed": "seed.json"},
        "trusted_engines": ENGINES,
        "trino": {
            "catalogs": {"k": {"warehouse": "lake"}},
            "groups": {"stewards": "etl"},
            "admin_users": ["boss"],
            "impersonation": {"alice": ["bob"]},
        },
        "identity": {
            "instance_admins": ["user:oidc~root"],
            "callers": {
                "tests": {
                    "loopback": True,
                    "may_write": True,
                    "may_assert": [
                        "principals", "roles", "groups", "attributes", "delegated", "properties", "callers",
                    ],
                }
            },
        },
    }  # fmt: skip
    (folder / "pdp.yaml").write_text(json.dumps(config))


def write_rules(folder: Path, rules: dict[str, str]) -> None:
    """Write the rules of a service."""
    (folder / "rules.yaml").write_text(json.dumps({"rules": rules}))


class MixedLoad:
    """Requests of all kinds to one service, chosen by a seed. `writes` counts the writes that were done."""

    def __init__(self, process: Process, seed: int) -> None:
        self._process = process
        self._random = random.Random(seed)
        self._granted: list[dict[str, str]] = []
        self._seed = seed
        self.writes = 0

    def run(self, rounds: int) -> None:
        """Send rounds of one request of each kind, in random order."""
        kinds = [
            self.single, self.batch, self.column, self.grpc, self.load, self.trino, self.trino_column,
            self.rows, self.masks, self.listing, self.access, self.grants, self.grants, self.objects,
        ]  # fmt: skip
        for _ in range(rounds):
            self._random.shuffle(kinds)
            for kind in kinds:
                kind()

    def post(self, path: str, body: Any, *, want: tuple[int, ...] = (200,)) -> Any:
        """Send a request; return the answer."""
        response = fetch(self._process.url(path), body)
        assert response.status in want, (path, body, response.text)
        return response.json()

    def principal(self) -> dict[str, Any]:
        """Return a principal with some evidence."""
        choice = self._random.choice
        found: dict[str, Any] = {"id": f"user:oidc~{choice(USERS)}"}
        if choice((True, False)):
            found |= {"roles": ["reader"], "groups": choice(([], ["staff"])), "attributes": {"team": choice("xy")}}
        return found

    def table(self) -> str:
        """Return the name of a table."""
        return f"t{self._random.randrange(12)}"

    def question(self) -> dict[str, Any]:
        """Return a check."""
        choice = self._random.choice
        kind, name = choice(("table", "table_or_view", "view")), choice((self.table(), "timed"))
        resource: Any = f"{kind}:lake/s/{name}{choice(('', '@dev'))}"
        if choice((True, False, False)):
            properties = choice(({"owner": "alice"}, {"owner": "bob", "n": 1}))
            resource = {"type": kind, "warehouse": "lake", "path": ["s", name], "properties": properties}
        check = {
            "principal": self.principal(),
            "action": choice(("read_data", "write_data", "drop", "select")),
            "resource": resource,
        }
        if choice((True, False, False)):
            check["actingRole"] = "role:etl"
        if choice((True, False, False)):
            check["context"] = {"api": {"name": "Iceberg", "version": 1}, "actions": ["x"], "queryId": "q"}
        if choice((True, False, False, False)):
            check |= {"action": "rename", "resource": f"table:lake/s/{name}"}
            check["context"] = {"arguments": {"destination": "table:lake/target/t", "name": "t"}}
        return check

    def single(self) -> None:
        """Ask one question."""
        self.post("/v1/check", {"checks": [self.question()]})

    def batch(self) -> None:
        """Ask several questions, one of them malformed."""
        self.post("/v1/check", {"checks": [*(self.question() for _ in range(5)), {"principal": "nobody"}]})

    def column(self) -> None:
        """Ask one question about many tables."""
        tables = [f"table:lake/s/t{number}" for number in range(40)]
        self.post(
            "/v1/check", {"checks": [{"principal": self.principal(), "action": "read_data", "resources": tables}]}
        )

    def grpc(self) -> None:
        """Ask over gRPC."""
        with grpc.insecure_channel(self._process.addresses["grpc"]) as channel:
            stub: Any = wire_grpc.DecisionServiceStub(channel)
            check = wire.Check(
                principal=wire.Principal(id=f"user:oidc~{self._random.choice(USERS)}"),
                action="read_data",
                resource=wire.Resource(reference=f"table:lake/s/{self.table()}"),
            )
            stub.Check(wire.CheckRequest(checks=[check]), timeout=PATIENCE)

    def load(self) -> None:
        """Load a table through a view of another owner."""
        owner = self._random.choice(USERS)
        load = {
            "principal": f"user:oidc~{self._random.choice(USERS)}",
            "action": self._random.choice(("loadTable", "loadCredentials")),
            "target": f"table:lake/s/{self.table()}",
            "referencedBy": "s%1Fv",
            "views": [{"resource": "view:lake/s/v", "properties": {OWNER: owner}}],
            "caller": {"idp": "oidc", "subject": "svc", "audiences": ["trino"]},
        }
        self.post("/v1/load", load)

    def trino(self) -> None:
        """Ask for one operation of Trino."""
        operation = self._random.choice(("SelectFromColumns", "DropTable", "CreateTable", "InsertIntoTable"))
        resource = {"table": {"catalogName": "k", "schemaName": "s", "tableName": self.table(), "columns": ["a"]}}
        self.ask_trino("allow", {"operation": operation, "resource": resource})
        self.ask_trino("allow", {"operation": "ImpersonateUser", "resource": {"user": {"user": "bob"}}})

    def trino_column(self) -> None:
        """Filter a list of tables of two schemas."""
        names = [("s" if number % 3 else "other", f"t{number % 50}") for number in range(150)]
        named = [{"table": {"catalogName": "k", "schemaName": s, "tableName": t}} for s, t in names]
        self.ask_trino("batch", {"operation": "FilterTables", "filterResources": named})

    def rows(self) -> None:
        """Fetch the row filters of a table."""
        resource = {"table": {"catalogName": "k", "schemaName": "s", "tableName": self.table()}}
        self.ask_trino("rowFilters", {"operation": "GetRowFilters", "resource": resource})

    def masks(self) -> None:
        """Fetch the masks of columns."""
        place = {"catalogName": "k", "schemaName": "s", "tableName": self._random.choice(("t1", "t2", "t3"))}
        columns = [{"column": {**place, "columnName": name, "columnType": "bigint"}} for name in ("pay", "$path", "c")]
        self.ask_trino("batchColumnMasks", {"operation": "GetColumnMask", "filterResources": columns})
        self.ask_trino("columnMask", {"operation": "GetColumnMask", "resource": columns[0]})

    def ask_trino(self, endpoint: str, action: Any) -> None:
        """Ask as Trino does."""
        identity = {"user": self._random.choice(USERS), "groups": self._random.choice(([], ["stewards"]))}
        body = {"input": {"context": {"identity": identity, "queryId": "q1"}, "action": action}}
        self.post(f"/v1/data/trino/{endpoint}", body)

    def listing(self) -> None:
        """List the tables that a principal may read."""
        body = {"principal": self.principal(), "action": "read_data", "type": "table", "container": "warehouse:lake"}
        self.post("/v1/list", body)

    def access(self) -> None:
        """List who may read a table."""
        self.post("/v1/access", {"resource": f"table:lake/s/{self.table()}", "action": "read_data"})

    def grants(self) -> None:
        """Grant something, or revoke what this load granted."""
        choice: Any = self._random.choice
        if self._granted and choice((True, False)):
            self.write("/v1/grants", {"remove": [self._granted.pop()]})
            return
        principal = choice([*(f"user:oidc~{user}" for user in USERS), "role:etl"])
        # each load has tables of its own, so that its revocations find what it granted
        granted = {
            "principal": principal,
            "privilege": choice(("select", "modify", "ownership")),
            "object": f"table:lake/s/t{2 * self._random.randrange(6) + self._seed % 2}",
        }
        if choice((True, False, False)):
            granted = {
                "principal": f"user:oidc~{choice(USERS)}",
                "privilege": "assignee",
                "object": f"role:etl{self._seed % 2 or ''}",
            }
        if granted not in self._granted:
            self.write("/v1/grants", {"add": [granted]})
            self._granted.append(granted)

    def objects(self) -> None:
        """Register a table or a role, or make a namespace managed."""
        choice = self._random.choice
        put = choice(
            (
                {"object": f"table:lake/s/{self.table()}", "id": choice(("id-1", "id-2"))},
                {"object": "namespace:lake/s", "managedAccess": choice((True, False))},
                {"object": "role:etl1", "parent": "project:p1"},
            )
        )
        self.write("/v1/objects", {"put": [put]})

    def write(self, path: str, body: Any) -> None:
        """Send a write."""
        self.post(path, body)
        self.writes += 1
