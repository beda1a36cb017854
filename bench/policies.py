"""Rule sets and checks that the benchmarks share."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

BODY = (Path(__file__).parent.parent / "tests" / "recorded" / "trino" / "filter_tables_1000.json").read_bytes()
"""Recorded body of a real Trino: SHOW TABLES of a schema with 1,000 tables, by alice of the group analysts."""
_QUERIES = count()


def fresh_body() -> bytes:
    """Return BODY with a new query id, so that no cached answer of an earlier query applies."""
    version = b'"softwareStack":{"trinoVersion":"476"}'
    return BODY.replace(version, b'%b,"queryId":"query_%08d"' % (version, next(_QUERIES)), 1)


READS = "op in ['READ_CONTENT_KEY', 'READ_ENTITY_VALUE']"

TYPICAL = {
    "ref and role": "op in ['VIEW_REFERENCE'] && ref=='prod' && role in ['Alice', 'Bob', 'Carol', 'Dave']",
    "exact path": f"{READS} && ref=='prod' && path=='Foo' && role in ['Alice', 'Dave']",
    "prefix": "op in ['VIEW_REFERENCE', 'READ_ENTITY_VALUE'] && role=='Alice' && path.startsWith('allowed.')",
    "role prefix": "op=='VIEW_REFERENCE' && role.startsWith('Al') && ref.startsWith('pr')",
    "any role": "'analysts' in roles && path.startsWith('big.')",
    "regex": "op=='VIEW_REFERENCE' && ref.matches('^(prod|dev-[0-9]+)$')",
    "literal regex": "op=='VIEW_REFERENCE' && ref.matches('.*pro.*')",
    "negation": "op=='READ_ENTITY_VALUE' && !(path in ['sys.a', 'sys.b']) && !delegated",
    "api": "api.apiName=='Iceberg' && api.apiVersion >= 1 && 'CATALOG_UPDATE_ENTITY' in actions",
    "macro": "roles.exists(r, r.startsWith('ana')) && size(path) < 40",
}
"""Ten typical rules."""


def twenty() -> dict[str, str]:
    """Return twenty rules. Some of them match alice: the main ref, two prefixes, a few tables by name."""
    others = {
        f"team{number:02d}": f"{READS} && role=='user{number}' && path.startsWith('big.table_0{number}')"
        for number in range(12)
    }
    return others | {
        "main": "op=='VIEW_REFERENCE' && ref=='main'",
        "alice": f"{READS} && role=='alice' && path.startsWith('big.table_00')",
        "pair": f"{READS} && role in ['alice', 'bob'] && path.startsWith('big.table_05')",
        "analysts": f"{READS} && 'analysts' in roles && path.startsWith('big.table_07')",
        "named": f"{READS} && path in ['big.table_0900', 'big.table_0901']",
        "admin": "role=='admin'",
        "pattern": f"{READS} && path.matches('^big[.]table_099.*')",
        "write": "op=='UPDATE_ENTITY' && role=='alice'",
    }


def many(count: int) -> dict[str, str]:
    """Return `count` rules for thousands of teams. A tenth of the rules test only the path."""
    rules = {"main": "op=='VIEW_REFERENCE' && ref=='main'"}
    for number in range(count - 1):
        if number % 10:
            rules[f"r{number}"] = f"{READS} && role=='user{number}' && path.startsWith('ns{number % 100}.t{number}')"
        else:
            rules[f"r{number}"] = f"{READS} && path.startsWith('shared{number}.')"
    return rules


def tables() -> list[str]:
    """Return the table names of BODY, in order."""
    resources = json.loads(BODY)["input"]["action"]["filterResources"]
    return [resource["table"]["tableName"] for resource in resources]


def allowed_indices() -> list[int]:
    """Return the indices that the twenty rules allow alice, computed by hand."""
    prefixes = ("table_00", "table_05", "table_07", "table_099")
    return [at for at, name in enumerate(tables()) if name.startswith(prefixes) or name in ("table_0900", "table_0901")]
