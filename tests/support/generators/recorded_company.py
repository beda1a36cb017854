"""A company whose service records everything: CEL rules, grants, views, Trino's operations and row views together.

The real service decides and encodes. Only the writer of segments is replaced, so that a million checks take a minute.
Some people exist for planted changes of policies: each has one right, and the company counts how often it was used.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import msgspec

from pdp.app.facts import build_pdp
from pdp.audit.facts.files import RecordedRevision
from pdp.audit.facts.writer import FactWriter
from pdp.audit.records.record import AnyRecord
from pdp.audit.records.writing import RecordEncoder
from pdp.config.load import make_settings
from pdp.config.settings import Settings
from pdp.decision.codec import decode_checks
from pdp.decision.service import Pdp
from pdp.dialects.trino.endpoints import TrinoSurface
from pdp.engines.cel.rules import inline_rules
from pdp.engines.row_access.policies import parse_document
from pdp.facts.objects import Change, Grant, GrantAdded, GrantRemoved
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.events import OPEN_GATE, AnswerHold, Event
from pdp.offline.replay.basis import RecordedFacts
from pdp.store.world import parse_world
from pdp.views.codec import decode_load
from pdp.views.loads import ViewSecurity

USERS, SCHEMAS, TABLES = 120, 20, 40
"""People, schemas, and tables of a schema."""
READS = "op in ['READ_CONTENT_KEY', 'READ_ENTITY_VALUE']"
START = 1_790_000_000
SPAN = 28 * 86_400
CONFIG: dict[str, Any] = {
    "authorities": {"default": {"engines": ["cel", "grants"], "combine": "any"}},
    "warehouses": {"lake": {"default_ref": "main", "project": "p1"}},
    "trino": {"catalogs": {"lakehouse": {"warehouse": "lake", "ref": "main"}}, "groups": {"analysts": "analyst"}},
    "trusted_engines": {
        "trino": {"type": "trino", "owner_property": "run-as-owner", "identities": {"oidc": {"audiences": ["trino"]}}}
    },
}
RULES = {
    "refs": "op in ['VIEW_REFERENCE', 'READ_ENTRIES', 'LIST_COMMIT_LOG']",
    "analysts": f"{READS} && path.startsWith('s1.') && 'analyst' in roles",
    "early_birds": f"{READS} && path.startsWith('s2.') && role.endsWith('7')",
    "engineers": "op in ['UPDATE_ENTITY', 'CREATE_ENTITY'] && path.startsWith('s3.') && role.startsWith('u1')",
    "planted_rule": f"{READS} && path == 'plant.by_rule' && role == 'rule_user'",
}
FORBID = {"vault": "path.startsWith('s19.') && op == 'DELETE_ENTITY'"}
POLICY = {"id": "eu", "table": "lake.s4.t0", "grantees": ["user:row_user"], "filter": "region = 'EU'"}
ROWS: dict[str, Any] = {
    "tables": {f"lake.s4.t{number}": {"columns": {"region": "varchar", "ssn": "varchar"}} for number in range(3)},
    "policies": [
        POLICY,
        {"id": "all", "table": "lake.s4.t0", "grantees": ["user:u1", "user:u2"], "filter": True},
        {"id": "own", "table": "lake.s4.t1", "grantees": ["role:analyst"], "filter": "region = 'US'"},
    ],
    "masks": [
        {"id": "ssn", "table": "lake.s4.t2", "column": "ssn", "grantees": ["user:row_user", "user:u3"], "kind": "null"}
    ],
}
OWNER = {"idp": "oidc", "subject": "svc", "audiences": ["trino"]}


def world() -> dict[str, Any]:
    """Return the world before the first change."""
    grants = [("role:analyst", "select", "namespace:lake/s5"), ("role:writer", "modify", "namespace:lake/s6")]
    grants += [(f"user:oidc~u{user}", "assignee", "role:analyst") for user in range(0, USERS, 3)]
    grants += [(f"user:oidc~u{user}", "assignee", "role:writer") for user in range(0, USERS, 10)]
    grants += [
        (f"user:oidc~u{user}", "select", f"table:lake/s{user % SCHEMAS}/t{user % TABLES}") for user in range(USERS)
    ]
    grants += [
        ("user:oidc~owner", "select", "namespace:lake/s7"),
        ("user:oidc~grant_user", "select", "table:lake/plant/by_grant"),
    ]
    grants += [("role:analyst", "select", "view:lake/s7/v"), ("user:oidc~idle", "ownership", "namespace:lake/s18")]
    return {
        "objects": [
            "project:p1", {"object": "warehouse:lake", "parent": "project:p1"},
            {"object": "role:analyst", "parent": "project:p1"}, {"object": "role:writer", "parent": "project:p1"},
        ],
        "grants": [{"principal": who, "privilege": what, "object": on} for who, what, on in grants],
    }  # fmt: skip


class SegmentAudit:
    """Audit that appends records to a file, and begins a new file and instance after many."""

    gate: AnswerHold = OPEN_GATE

    def __init__(self, folder: Path, per_file: int) -> None:
        self._folder = folder
        self._per_file = per_file
        self._file: BinaryIO | None = None
        self.records = self.files = 0
        (folder / "bundles").mkdir(parents=True, exist_ok=True)

    def admit(self) -> None:
        """Accept every request."""

    def append(self, record: AnyRecord) -> None:
        """Write a record."""
        at = self.records % self._per_file
        if at == 0:
            self.close()
            self._encoder = RecordEncoder(f"i{self.files}")
            self._file = (self._folder / f"decisions-i{self.files}.jsonl").open("wb")
            self.files += 1
        bundle = self._folder / "bundles" / record.bundle_digest
        if not bundle.exists():
            bundle.write_bytes(record.bundle_text)
        assert self._file
        self._file.write(self._encoder.encode(record.whole(), at) + b"\n")
        self.records += 1

    def note(self, event: Event) -> bool:
        """Drop an event."""
        return True

    def close(self) -> None:
        """End the file."""
        if self._file:
            self._file.close()


class Company:
    """Players and their service. `used` counts the checks of planted people by principal.

    `policies` are rules and a document of row access in place of those of the company, `start` is another world.
    """

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        per_file: int = 20_000,
        *,
        policies: tuple[dict[str, str], dict[str, Any]] = (RULES, ROWS),
        start: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.random = Random(seed)
        self.audit = SegmentAudit(folder, per_file)
        self.checks = 0
        self.used: Counter[str] = Counter()
        self.settings: Settings = make_settings(CONFIG, folder)
        self.facts = Facts.build("c0ffee", 4, *_parts(parse_world(start or world())))
        self._writer = FactWriter(folder, "writer")
        self._writer.begin(self.facts)
        rules, self.document = policies
        self._load(rules)

    def play(self, checks: int, writes: int = 12) -> None:
        """Ask until so many checks are recorded, with changes of grants and policies in between."""
        asyncio.run(self._play(checks, writes))
        self.close()

    async def _play(self, checks: int, writes: int) -> None:
        step, written = checks // (writes + 1) + 1, 0
        self._checks = checks
        while self.checks < checks:
            for ask in (self._native, self._listed, self._single, self._load_view, self._rows, self._planted):
                await ask()
            if self.checks // step > written:
                written += 1
                self._write(written)
            if written == writes // 2 and self.rules is RULES:
                self._load({**RULES, "interns": f"{READS} && path.startsWith('s8.') && role == 'nobody'"})

    def _load(self, rules: dict[str, str]) -> None:
        """Take policies into force."""
        self.rules = rules
        sets = inline_rules(rules), inline_rules(FORBID)
        self.pdp: Pdp = build_pdp(self.settings, Facts.empty(), sets, documents=[parse_document(self.document)])
        self.pdp.audit = self.audit
        self.trino = TrinoSurface(self.pdp, 10_000, 60.0)
        self.views = ViewSecurity(self.pdp, self.settings)
        self._take_facts()

    def use_rules(self, rules: dict[str, str]) -> None:
        """Decide by other rules from now on."""
        self._load(rules)

    def _take_facts(self) -> None:
        self.pdp.source = RecordedFacts(self.facts.with_projects({"lake": "p1"}), stale=False)

    def _write(self, number: int) -> None:
        """Change grants of people who ask nothing else about these objects."""
        grant = Grant(("table", ("lake", "s9", f"t{number % TABLES}")), "select", f"user:oidc~u{number * 7 % USERS}")
        changes: list[Change] = [GrantAdded(grant)]
        if number % 3 == 0:
            changes.append(GrantRemoved(grant))
        self.change(changes, START + SPAN * self.checks // self._checks)

    def change(self, changes: Sequence[Change], time: float) -> None:
        """Change facts at a time in seconds."""
        self.facts = self.facts.apply(self.facts.sequence + 1, changes)
        self._writer.follow(self.facts, [RecordedRevision(self.facts.sequence, time, "admin", tuple(changes))])
        self._take_facts()

    def close(self) -> None:
        """Write everything to the folder."""
        self.audit.close()
        assert self._writer.close(30)

    def _zipf(self, size: int) -> int:
        return min(int(self.random.paretovariate(1.1)) - 1, size - 1)

    def _table(self) -> tuple[str, str]:
        return f"s{self.random.randrange(SCHEMAS)}", f"t{self._zipf(TABLES)}"

    def _person(self) -> dict[str, Any]:
        number = self._zipf(USERS)
        return {"id": f"user:oidc~u{number}", "roles": ["analyst"] if number % 2 else []}

    async def _native(self) -> None:
        """Ask a batch of checks of the native interface."""
        checks = []
        for _ in range(6):
            schema, table = self._table()
            action = self.random.choice(("read_data", "read_data", "get_metadata", "write_data", "drop"))
            checks.append({"principal": self._person(), "action": action, "resource": f"table:lake/{schema}/{table}"})
        rename = {"principal": self._person(), "action": "rename", "resource": "table:lake/s3/t1"}
        await self.check([*checks, {**rename, "context": {"arguments": {"destination": "table:lake/s3/t2"}}}])

    async def check(self, checks: Sequence[dict[str, Any]]) -> Sequence[bool]:
        """Return the verdicts on checks of the native interface."""
        request = decode_checks([msgspec.json.encode(check) for check in checks]).request("http")
        batch = admit(request, EMBEDDED_CALLER)
        assert not batch.rejected, batch.rejected
        self.checks += len(checks)
        return list(map(bool, (await self.pdp.check(batch)).allowed))

    async def _listed(self) -> None:
        """Ask for a list of tables as SHOW TABLES does."""
        schema = f"s{self.random.randrange(SCHEMAS)}"
        names = [f"t{number}" for number in range(TABLES)]
        resources = [_table_of(schema, name) for name in names]
        await self.trino.batch(self._body("FilterTables", filterResources=resources), EMBEDDED_CALLER)
        self.checks += len(resources)

    async def _single(self) -> None:
        """Ask about one table as SELECT does."""
        for operation in ("SelectFromColumns", "SelectFromColumns", "InsertIntoTable"):
            resource = _table_of(*self._table())
            if operation == "SelectFromColumns":
                resource["table"]["columns"] = ["a", "b"]
            await self.trino.allow(self._body(operation, resource=resource), EMBEDDED_CALLER)
            self.checks += 1

    def _body(self, operation: str, **action: Any) -> bytes:
        number = self._zipf(USERS)
        identity = {"user": f"u{number}", "groups": ["analysts"] if number % 2 else []}
        context = {
            "identity": identity,
            "queryId": f"q{self.random.randrange(10**9)}",
            "softwareStack": {"trinoVersion": "477"},
        }
        return json.dumps({"input": {"context": context, "action": {"operation": operation, **action}}}).encode()

    async def _load_view(self) -> None:
        """Load a table through a view of another owner."""
        views = [{"resource": "view:lake/s7/v", "properties": {"run-as-owner": "owner"}}]
        body = {
            "principal": self._person(), "action": "loadTable", "target": f"table:lake/s7/t{self._zipf(TABLES)}",
            "referencedBy": "s7%1Fv", "views": views, "caller": OWNER,
        }  # fmt: skip
        await self.views.load(decode_load(json.dumps(body).encode()), EMBEDDED_CALLER, "http")
        self.checks += 1

    async def _rows(self) -> None:
        """Ask for rows and masks of a table as Trino does."""
        user = self.random.choice(["u1", "u2", "u3", "u4"])
        await self.row_view(user, "t1")

    async def row_view(self, user: str, table: str) -> None:
        """Ask for the row filter and the column masks of a table of `s4`, as Trino does."""
        resource = _table_of("s4", table)
        context = {"identity": {"user": user, "groups": []}, "queryId": "q", "softwareStack": {"trinoVersion": "477"}}
        rows = {"input": {"context": context, "action": {"operation": "GetRowFilters", "resource": resource}}}
        await self.trino.row_filters(json.dumps(rows).encode(), EMBEDDED_CALLER)
        columns = [
            {"column": {**resource["table"], "columnName": name, "columnType": "varchar"}} for name in ("region", "ssn")
        ]
        masks = {"input": {"context": context, "action": {"operation": "GetColumnMask", "filterResources": columns}}}
        await self.trino.batch_column_masks(json.dumps(masks).encode(), EMBEDDED_CALLER)
        self.checks += 2

    async def _planted(self) -> None:
        """Use, now and then, the rights that a planted change takes, and try those that it gives."""
        if self.random.random() > 0.3:
            return
        for person, table, right in (
            ("rule_user", "by_rule", True), ("rule_newcomer", "by_rule", False),
            ("grant_user", "by_grant", True), ("grant_newcomer", "by_grant", False),
        ):  # fmt: skip
            check = {"principal": f"user:oidc~{person}", "action": "read_data", "resource": f"table:lake/plant/{table}"}
            assert await self.check([check]) == [right], (person, table)
            self.used[person] += 1
        for table in ("t0", "t2"):
            await self.row_view("row_user", table)
            self.used[f"row_user/{table}"] += 1


def planted_rules(rules: dict[str, str]) -> dict[str, str]:
    """Return rules in which the newcomer has the right of the rule's user."""
    return {**rules, "planted_rule": rules["planted_rule"].replace("rule_user", "rule_newcomer")}


def planted_rows() -> dict[str, Any]:
    """Return row policies with further rows of one table, and a mask of another table gone."""
    policies = [POLICY, {**POLICY, "id": "us", "filter": "region = 'US'"}, *ROWS["policies"][1:]]
    return {**ROWS, "policies": policies, "masks": [{**ROWS["masks"][0], "grantees": ["user:u3"]}]}


def _parts(facts: Facts) -> Iterator[Any]:
    yield from (list(facts.objects()), list(facts.grants()))


def _table_of(schema: str, table: str) -> dict[str, Any]:
    return {"table": {"catalogName": "lakehouse", "schemaName": schema, "tableName": table}}
