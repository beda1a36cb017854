"""Workloads of Trino's requests by rules of groups: one table, and batches of 1,000 tables in five orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from workloads.rule import PathTest, nessie_rules, quote, rego_rule, rego_set
from workloads.single_checks import DOMAINS, NOUNS, QUESTIONS, REGIONS, SCHEMAS
from workloads.workload import QUERY, RULES_FILE, Body, Side, Workload, pdp_config

CHECKED_AS: Final = {"FilterTables": "READ_CONTENT_KEY", "SelectFromColumns": "READ_ENTITY_VALUE"}
"""Trino's operation -> operation of a rule."""
GROUPS: Final = tuple(f"g{number}" for number in range(8))
CATALOGS: Final = tuple(f"cat{number}" for number in range(3))
SHAPES: Final = ("one", "grouped", "mixed", "many", "catalogs")
"""Orders of a batch. `one` is SHOW TABLES of a schema. `grouped` and `mixed` are information_schema.tables of 40
schemas: one after the other, and from a hash set as Trino's metadata gives them. `many` has 500 schemas of two tables.
`catalogs` mixes three catalogs, as a bridge of its own may.
"""
SIZE: Final = 1000
BATCHES: Final = 32


class TableName(NamedTuple):
    """Catalog, schema and table."""

    catalog: str
    schema: str
    table: str

    @property
    def path(self) -> str:
        """Path below the catalog."""
        return f"{self.schema}.{self.table}"

    def resource(self) -> Body:
        """Return the resource of a request."""
        return {"table": {"catalogName": self.catalog, "schemaName": self.schema, "tableName": self.table}}


@dataclass(frozen=True, slots=True)
class GroupRule:
    """Neutral rule: one group may do some operations on some tables. Without a catalog, it covers all catalogs."""

    id: str
    group: str
    operations: tuple[str, ...]
    catalog: str
    test: PathTest

    def allows(self, groups: Sequence[str], operation: str, table: TableName) -> bool:
        """Tell whether the rule allows a question."""
        asked = operation in self.operations and self.group in groups
        return asked and self.catalog in {"", table.catalog} and self.test.holds(table.path)


class TrinoUser(NamedTuple):
    """User of the requests, with groups."""

    name: str
    groups: list[str]

    def context(self) -> Body:
        """Return the context of a request."""
        return {
            "identity": {"user": self.name, "groups": self.groups},
            "softwareStack": {"trinoVersion": "476"},
            "queryId": f"20261122_{QUERY}_00001_abcde",
        }


def group_rules() -> list[GroupRule]:
    """Return twenty rules, most of them by prefix."""
    both = tuple(CHECKED_AS)
    rules = [GroupRule("t_admin", "admin", both, "", PathTest("any"))]
    for number in range(19):
        domain, region, noun = DOMAINS[number % 10], REGIONS[number % 4], NOUNS[number % 10]
        test = (
            PathTest("prefix", f"{domain}_"),
            PathTest("prefix", f"{domain}_{region}."),
            PathTest("prefix", f"{domain}_{region}.{noun[:3]}"),
            PathTest("any"),
        )[number % 4]
        if number in {5, 11}:
            test = PathTest("regex", rf"^[a-z]+_{region}[.]{noun}_[0-9]+$")
        if number == 14:
            test = PathTest("suffix", "_0007")
        catalog = "" if number % 5 == 4 else CATALOGS[number % 3]
        operations = both if number % 4 else ("FilterTables",)
        rules.append(GroupRule(f"t{number:02d}", f"g{number % 8}", operations, catalog, test))
    return rules


def cel_text(rules: Sequence[GroupRule]) -> str:
    """Return the rules for our service."""

    def parts(rule: GroupRule) -> Iterator[str]:
        yield f"{quote(rule.group)} in roles"
        yield f"op in [{','.join(repr(CHECKED_AS[operation]) for operation in rule.operations)}]"
        if rule.catalog:
            yield f"warehouse=={quote(rule.catalog)}"
        yield from rule.test.cel()

    return nessie_rules([("refs", ["op=='VIEW_REFERENCE'"]), *((rule.id, list(parts(rule))) for rule in rules)])


_HEAD: Final = "package trino\n\ngroups := {g | some g in input.context.identity.groups}\n"
_SINGLE: Final = """default allow := false

t := input.action.resource.table
p := concat(".", [t.schemaName, t.tableName])
"""
_BATCH: Final = """path[i] := concat(".", [x.table.schemaName, x.table.tableName]) if some i, x in input.action.filterResources
"""


def rego_single(rules: Sequence[GroupRule]) -> str:
    """Return the rules for one resource."""
    texts = [_HEAD, _SINGLE]
    for rule in rules:
        catalog = [f"t.catalogName == {quote(rule.catalog)}"] if rule.catalog else []
        texts.append(rego_rule("allow", [*_gates(rule), *catalog, *rule.test.rego("p")]))
    return "\n".join(texts)


def rego_batch(rules: Sequence[GroupRule]) -> str:
    """Return the rules for batches, as a careful author tunes them: gates first, then the candidates.

    The form of Trino's documentation, `allow with input.action.resource as ...`, is many times slower.
    """
    texts = [_HEAD, _BATCH]
    for rule in rules:
        catalog = [f"x.table.catalogName == {quote(rule.catalog)}"] if rule.catalog else []
        candidates = ["some i, x in input.action.filterResources", *catalog, *rule.test.rego("path[i]")]
        texts.append(rego_rule("batch contains i", [*_gates(rule), *candidates]))
    return "\n".join(texts)


def _gates(rule: GroupRule) -> list[str]:
    return [f"{quote(rule.group)} in groups", f"input.action.operation in {rego_set(rule.operations)}"]


def tables_of(shape: str, number: int, random: Random, size: int = SIZE) -> list[TableName]:
    """Return the tables of one request."""

    def schema(at: int) -> str:
        if shape == "one":
            return SCHEMAS[number % 40]
        if shape == "grouped":
            return SCHEMAS[at // 25]
        return f"{SCHEMAS[at % 40]}{at // 80}" if shape == "many" else random.choice(SCHEMAS)

    def catalog() -> str:
        return CATALOGS[random.randrange(3)] if shape == "catalogs" else CATALOGS[number % 3]

    return [TableName(catalog(), schema(at), f"{random.choice(NOUNS)}_{at:04d}") for at in range(size)]


def _ours(rules: Sequence[GroupRule]) -> dict[str, str]:
    config = pdp_config(
        {name: {"kind": "nessie", "default_ref": "main"} for name in CATALOGS},
        "cel",
        policies={"rules": [RULES_FILE]},
        trino={
            "catalogs": {name: {"warehouse": name} for name in CATALOGS},
            "groups": {group: group for group in ("admin", *GROUPS)},
        },
    )
    return {"pdp.yaml": config, RULES_FILE: cel_text(rules)}


def trino_requests(random: Random) -> Iterator[Workload]:
    """Yield the workload of one table and those of batches."""
    rules = group_rules()
    files = _ours(rules)
    users = [TrinoUser(f"user{number}", sorted(random.sample(GROUPS, 3))) for number in range(64)]
    yield _one_table(rules, files, users, random)
    for shape in SHAPES:
        yield _batches(shape, rules, files, users, random)


def _one_table(
    rules: Sequence[GroupRule], files: dict[str, str], users: Sequence[TrinoUser], random: Random
) -> Workload:
    operation = "SelectFromColumns"
    bodies: list[Body] = []
    right: list[bool] = []
    for number in range(QUESTIONS):
        user = users[random.randrange(64)]
        [table] = tables_of("mixed", number, random, 1)
        resource = {"table": {**table.resource()["table"], "columns": ["a", "b", "c"]}}
        action = {"operation": operation, "resource": resource}
        bodies.append({"input": {"context": user.context(), "action": action}})
        right.append(any(rule.allows(user.groups, operation, table) for rule in rules))
    path = "/v1/data/trino/allow"
    theirs = {"policy.rego": rego_single(rules)}
    return Workload("trino-single", Side(files, path, bodies), Side(theirs, path, bodies), right)


def _batches(
    shape: str, rules: Sequence[GroupRule], files: dict[str, str], users: Sequence[TrinoUser], random: Random
) -> Workload:
    operation = "FilterTables"
    bodies: list[Body] = []
    right: list[list[int]] = []
    for number in range(BATCHES):
        user, tables = users[number], tables_of(shape, number, random)
        action = {"operation": operation, "filterResources": [table.resource() for table in tables]}
        bodies.append({"input": {"context": user.context(), "action": action}})
        allowed = (any(rule.allows(user.groups, operation, table) for rule in rules) for table in tables)
        right.append([at for at, one in enumerate(allowed) if one])
    path = "/v1/data/trino/batch"
    theirs = {"policy.rego": rego_batch(rules)}
    return Workload(f"batch-{shape}", Side(files, path, bodies), Side(theirs, path, bodies), right, (1,))
