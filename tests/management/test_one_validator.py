"""Faults of policies and masks, by every way in: a file, JSON, fields of gRPC, DDL, and a request of the rewriter.

Each way refuses the same entry with the same words. What is sound is taken by every way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.service.command_line import COMPOSITION

from pdp.config.load import load_settings
from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.engines.row_access.policies import parse_document
from pdp.errors import PdpError
from pdp.facts.snapshot import Facts
from pdp.management.row_policy_codec import decode_rule, make_rule
from pdp.management.row_policy_edits import RowPolicyWrite, check_rule
from pdp.management.row_policy_statements import edit_of
from pdp.model.question import Caller, Principal
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.policy_statements import read_policy_statement
from pdp.rewrite.process.local import LocalRewriter, service_of_files
from pdp.rewrite.rewriter import Rewriter

COLUMNS = {
    "id": "INTEGER", "ok": "BOOLEAN", "email": "VARCHAR", "born": "DATE", "seen": "timestamp(6) with time zone",
    "made": "DATETIME", "doc": "JSON", "code": "uuid", "tags": "ARRAY<STRING>", "odd": "mystery", "a": "STRUCT<x INT64>",
}  # fmt: skip
TABLES = {"lake.hr.pay": {"columns": COLUMNS}}
TEXT_KINDS, TIME_KINDS = ("mask-alphanum", "show-first-4", "show-last-4"), ("truncate-to-year", "truncate-to-month")
CONFIG: dict[str, Any] = {
    "warehouses": {"lake": {}},
    "authorities": {"default": {"engines": ["grants"]}},
    "policies": {"row_access": ["rows.yaml"]},
    "identity": {"providers": {name: {"issuer": f"https://{name}", "jwks": "keys"} for name in ("oidc", "okta")}},
    "trino": {"groups": {"staff": "contractor"}, "catalogs": {}},
    "store": {"url": "file:world.yaml"},
}
KEYS = {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}
ENTRY = {"id": "p", "table": "lake.hr.pay", "grantees": ["allUsers"]}
POLICY = ENTRY | {"filter": "id = 1"}
MASK = ENTRY | {"column": "email", "kind": "null"}
GRANTEES = {
    "user:oidc~alice": "write `alice`",
    "user:OKTA~alice": "write `okta~alice`",
    "user:okta:alice": "write `user:okta~alice`",
    "user:oidc:alice": "write `user:alice`",
    "user:OIDC:alice": "write `user:alice`",
    "user:user:alice": "has two kinds",
    "user:a@x.example,user:b@x.example": "has several members",
    "user:a@x.example role:b": "has several members",
    "user:a,b": "write `user:a`, `user:b`",
    "serviceAccount:user:x": "has two kinds",
    "group:oidc~eu": "write `group:eu`",
    "group:okta~eu": "write `group:eu`",
    "group:group:eu": "has two kinds",
    "group:eu;group:us": "has several members",
    "domain:https://x.example": "write `domain:x.example`",
    "domain:https://x.example/a": "write `domain:x.example`",
    "domain:@x.example": "write `domain:x.example`",
    "domain:a@x.example": "write `domain:x.example`",
    "domain:.x.example": "write `domain:x.example`",
    "domain:x.example:443": "write `domain:x.example`",
    "domain:a.example,b.example": "is no domain",
    "domain:a.example b.example": "write `domain:a.example`, `domain:b.example`",
    "domain:x com": "write `domain:x.com`",
    "domain:x . com": "write `domain:x.com`",
    " user:al": "write `user:al`",
    "user:al ": "write `user:al`",
    "user: al": "write `user:al`",
    "user :al": "write `user:al`",
    "user:okta ~ al": "write `user:okta~al`",
    "user:al @x.example": "write `user:al@x.example`",
    "role:contractor ": "write `role:contractor`",
    " group:eu": "write `group:eu`",
    " allUsers": "write `allUsers`",
    "user:al\u200b": "write `user:al`",
    "role:con\u00adtractor": "write `role:contractor`",
    "group:\ufeffeu": "write `group:eu`",
    "group:eu\u00a0west": "write `group:eu west`",
    "user:\tal": "write `user:al`",
    "user:al\n": "write `user:al`",
    "role:a,b": "write `role:a`, `role:b`",
    "role:role:a": "has two kinds",
    "role:Contractor": "write `contractor`",
    "role:*": "`*`",
    "everyone": "is no grantee",
    "user:": "is no grantee",
    "user:a\u2028b": "control characters",
    "user:" + "a" * 600: "up to 512 characters",
}
KIND_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "nil"}, f"`kind` is one of {', '.join(MASK_KINDS)}, not 'nil'"),
    ({"kind": "Null"}, "`kind` is one of"),
    ({"kind": "replace-with-null"}, "write `null`"),
    ({"kind": "sha-256-global"}, "write `hash`"),
    *(({"kind": kind, "expression": "1"}, "takes no `expression`") for kind in (*TEXT_KINDS, *TIME_KINDS)),
    *(
        (
            {"kind": kind, "column": column},
            f"is for texts, and `{column}` is {COLUMNS[column.lower()]}: write one",
        )
        for kind in TEXT_KINDS
        for column in ("id", "OK", "born", "seen", "made", "doc", "code", "tags", "a")
    ),
    *(
        ({"kind": kind, "column": column}, f"is for dates and timestamps, and `{column}` is")
        for kind in TIME_KINDS
        for column in ("id", "ok", "email", "doc", "code", "tags", "a")
    ),
    ({"kind": "mask-to-fixed-value", "column": "doc"}, "is for types with a fixed value, and `doc` is JSON"),
    ({"kind": "show-last-4", "column": "born"}, "truncate-to-month"),
]
FIELDS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    *((POLICY, {"id": id}, "an id is up to") for id in ("a b", "a/b", "x" * 257)),
    *(
        (entry, {"table": table}, words)
        for entry in (POLICY, MASK)
        for table, words in {
            "pay": "is no `<warehouse>.<namespace>.<table>`",
            "lake/hr.pay": "is no `<warehouse>|`.` stands between the parts",
            "lake.hr.pay@main": "leave out the ref",
            "lake.hr.p*": "`*`",
            "lake.hr. pay": "is no `<warehouse>.<namespace>.<table>`",
            "lake.hr.pay$files": "is covered by policies on that|shows what its table holds",
            "lake.information_schema.tables": "schema of the engine's own",
        }.items()
    ),
    *(
        (POLICY, {"filter": text}, words)
        for text, words in {
            "NULL": "is a value, not a condition",
            "id + 1": "is a value, not a condition",
            "'x'": "is a value, not a condition",
            "upper(email)": "is a value, not a condition",
            "coalesce(id, 1)": "is a value, not a condition",
            "CASE WHEN ok THEN 1 ELSE 2 END": "is a value, not a condition",
            "id": "is a column, not a condition",
            "NOT id": "takes a condition",
            "NOT (NOT id)": "takes a condition",
            "email = 'x' OR 1": "takes a condition",
            "email = 'x' OR 'a'": "takes a condition",
            "1 AND TRUE": "takes a condition",
            "ok AND (id = 1 OR email)": "takes a condition",
            "NOT upper(email)": "takes a condition",
            "id = 1 OR id + 1": "takes a condition",
            "CASE WHEN id THEN TRUE ELSE FALSE END": "takes a condition",
            "CASE WHEN ok THEN id = 1 ELSE 1 END": "takes a condition|is a value, not a condition",
            "NOT CASE WHEN ok THEN 1 ELSE 2 END": "takes a condition",
            "if(id = 1, ok, 'x')": "takes a condition|is a value, not a condition",
            "EXISTS (SELECT m.email FROM m WHERE 1)": "takes a condition",
            "id IN ()": "has no values",
            "NOT (email NOT IN ())": "has no values",
            "id = 1) OR (TRUE": "does not parse",
            "count(*) > 1": "an aggregate",
            "id = ?": "a parameter",
            "rand() < 0.5": "a random value",
            "email IN (SELECT email FROM m)": "write `m.email`",
            "email IN (SELECT email FROM (SELECT x FROM m) AS s)": "write `s.email`",
            "id = 1 OR " * 1_200 + "id = 1": "limit is 10,000",
        }.items()
    ),
    *(
        (MASK, change, words)
        for change, words in (
            ({"kind": "hash", "expression": "1"}, "takes no `expression`"),
            ({"kind": "constant"}, "takes an `expression`"),
            ({"kind": "constant", "expression": "a\u0007b"}, "no control characters"),
            ({"kind": "expression", "expression": "email)"}, "does not parse"),
            ({"kind": "expression", "expression": "max(email)"}, "an aggregate"),
            ({"column": "mail"}, "has no column `mail`"),
            ({"column": "pay.email"}, "has no column `pay.email`"),
            ({"column": "*"}, "`*`"),
            ({"table": "lake.fin.t", "column": "t.email"}, "write `email`"),
            ({"table": "lake.fin.t", "column": "address.city"}, "write `address`"),
            ({"table": "lake.fin.t", "column": '"email"'}, "write `email`"),
            ({"table": "lake.fin.t", "column": " email"}, "write `email`"),
            ({"table": "lake.fin.t", "column": "email, name"}, "write `email`"),
            ({"table": "lake.fin.t", "column": "lower(email)"}, "is no plain name of a column"),
            ({"grantees": []}, "has no grantees"),
        )
    ),
    *((MASK, change, words) for change, words in KIND_FAULTS),
    *((POLICY, {"grantees": [grantee]}, words) for grantee, words in GRANTEES.items()),
    *((MASK, {"grantees": [grantee]}, words) for grantee, words in GRANTEES.items()),
    *((MASK, {"except": [grantee]}, words) for grantee, words in GRANTEES.items()),
]
SOUND = [
    POLICY | {"filter": text}
    for text in ("coalesce(ok, true)", "CASE WHEN id = 1 THEN true ELSE false END", "ok", "TRUE", "if(id = 1, ok, false)", "NOT ok", "NOT email.id", "ok OR id = 1", "NOT NULL",
                 "id = 1 OR NULL", "CASE id WHEN 1 THEN ok ELSE FALSE END", "NOT coalesce(ok, false)")
] + [
    MASK | {"grantees": ["user:alice", "user:okta~alice", "group:eu", "domain:x.example", "role:contractor"]},
    MASK | {"grantees": ["user:system:serviceaccount:a:b", "group:CN=eu,OU=x", "role:CN=eu,OU=x", "group:okta:eu"]},
    MASK | {"except": ["user:alice@x.example", "allAuthenticatedUsers"]},
    MASK | {"table": "lake.fin.t", "column": "first name"},
    MASK | {"table": "lake.fin.t", "column": "größe"},
    MASK | {"kind": "constant", "expression": ""},
    *(entry | {"id": "p" * 256} for entry in (POLICY, MASK)),
    *(MASK | {"kind": kind, "column": column} for kind in TEXT_KINDS for column in ("email", "odd", "EMAIL")),
    *(MASK | {"kind": kind, "column": column} for kind in TIME_KINDS for column in ("born", "seen", "made", "odd")),
    *(MASK | {"kind": "mask-to-fixed-value", "column": column} for column in COLUMNS if column != "doc"),
    *(MASK | {"kind": kind, "table": "lake.fin.t"} for kind, form in MASK_KINDS.items() if not form.has_text),
    *(MASK | {"kind": kind, "column": "id"} for kind in ("hash", "partial")),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    (folder / "keys").write_text(json.dumps(KEYS))
    (folder / "world.yaml").write_text("objects: [warehouse:lake, role:contractor]\n")
    (folder / "pdp.yaml").write_text(yaml.safe_dump(CONFIG))
    return folder


@pytest.fixture(scope="module")
def access(folder: Path) -> RowAccessEngine:
    (folder / "rows.yaml").write_text(json.dumps({"tables": TABLES, "masks": [MASK | {"id": "other"}]}))
    return COMPOSITION.row_access(load_settings(folder / "pdp.yaml", (), {}))


def of_file(folder: Path, entry: dict[str, Any]) -> str:
    kind = "masks" if "column" in entry else "policies"
    (folder / "rows.yaml").write_text(json.dumps({"tables": TABLES, kind: [entry]}))
    settings = load_settings(folder / "pdp.yaml", (), {})
    try:
        COMPOSITION.build_pdp(settings, Facts.empty(), COMPOSITION.read_rules(settings))
    except PdpError as error:
        return re.sub(r"^\S+rows\.yaml:1:\d+: | \(`policies\.row_access`\)$", "", str(error))
    return ""


def said(action: Callable[[], object]) -> str:
    try:
        action()
    except PdpError as error:
        return str(error)
    return ""


def of_store(access: RowAccessEngine, entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what each way into the store says."""
    is_mask = "column" in entry

    def of_json() -> None:
        caller = Caller("c", frozenset(), may_write=True, own=Principal("user", "oidc~root"))
        check_rule(decode_rule(json.dumps(entry).encode(), caller, "", "insert", masks=is_mask)[1].rule, access)

    yield "json", said(of_json)
    yield "grpc", said(lambda: check_rule(make_rule(entry), access))
    if not is_mask and set(entry) == {"id", "table", "grantees", "filter"} and is_plain(entry):
        yield "ddl", said(lambda: of_ddl(access, entry))


def is_plain(entry: dict[str, Any]) -> bool:
    """Tell whether a statement can hold an entry. The grammar of statements refuses other names and quotes."""
    names = [entry["id"], *entry["table"].split(".")]
    are_plain = all(re.fullmatch(r"[\w.-]+", name) for name in names)
    return are_plain and all(re.fullmatch(r"[\w:@~. \u200b\ufeff-]+", name) for name in entry["grantees"])


def of_ddl(access: RowAccessEngine, entry: dict[str, Any]) -> None:
    grantees = ", ".join(f"'{one}'" for one in entry["grantees"])
    text = f"CREATE ROW ACCESS POLICY {entry['id']} ON {entry['table']} GRANT TO ({grantees}) FILTER USING ({entry['filter']})"
    statement = read_policy_statement(text)
    assert statement is not None
    edit = edit_of(statement, ())
    assert isinstance(edit, RowPolicyWrite)
    check_rule(edit.rule, access)


@pytest.mark.parametrize("part", range(8))
def test_every_way_refuses_a_fault_with_the_same_words(folder: Path, access: RowAccessEngine, part: int) -> None:
    for entry, change, words in FIELDS[part::8]:
        filed = of_file(folder, entry | change)
        assert re.search("|".join(map(re.escape, words.split("|"))), filed), (change, filed)
        for way, found in of_store(access, entry | change):
            if way != "ddl" or "filter" not in change:  # another dialect has another parser
                assert found == filed, (way, change)


def test_every_way_takes_what_is_sound(folder: Path, access: RowAccessEngine) -> None:
    for entry in SOUND:
        assert of_file(folder, entry) == "", entry
        for way, found in of_store(access, entry):
            assert found == "", (way, entry)


FORMS = [words for words in GRANTEES if not re.match(r"user:\w+[~:]|group:\w+~|role:Contractor", words)]


@pytest.mark.parametrize("field", ["grantees", "except"])
def test_the_rewriter_refuses_the_forms_that_nobody_has(tmp_path: Path, field: str) -> None:
    for grantee in FORMS:
        kind, entry = ("masks", MASK) if field == "except" else ("policies", POLICY)
        path = tmp_path / "rows.json"
        path.write_text(json.dumps({"tables": TABLES, kind: [entry | {field: [grantee]}]}))
        with pytest.raises(PdpError, match=re.escape(GRANTEES[grantee].split("|")[0])):
            service_of_files([path])
        if field == "grantees":
            assert re.search(re.escape(GRANTEES[grantee].split("|")[0]), of_request(entry | {field: [grantee]})), (
                grantee
            )


def of_request(policy: dict[str, Any]) -> str:
    """Return the refusal of a request that brings its policy along."""
    document = parse_document({"default": ["lake", "hr"], "tables": TABLES}).document
    catalog = catalog_of([document])
    service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
    body = {"sql": "SELECT id FROM pay", "dialect": "duckdb", "principal": "user:a@x.example", "policies": [policy]}
    answer = service.answer(json.dumps(body).encode())
    assert answer.get("error", {}).get("code") == RewriteRefused("RAP_FILTER_INVALID", "").rap, answer
    return str(answer["error"]["message"])


@pytest.mark.parametrize("dialect", ["trino", "duckdb", "spark", "bigquery"])
def test_the_rewriter_takes_the_conditions_that_the_store_takes(dialect: str) -> None:
    for entry in SOUND[:5]:
        policy = entry | {"dialect": dialect}
        document = parse_document({"default": ["lake", "hr"], "tables": TABLES, "policies": [policy]}).document
        catalog = catalog_of([document])
        service = LocalRewriter(catalog, policy_set_of([document]), Rewriter(catalog))
        body = {"sql": "SELECT id FROM pay", "dialect": dialect, "principal": "user:a@x.example"}
        assert "sql" in service.answer(json.dumps(body).encode()), entry
