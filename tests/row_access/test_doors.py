"""Policies and masks through every door: a file, JSON, gRPC, DDL, the command line, and a row of the store's database.

One document becomes one value, whatever its door. A bad document gets one message.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from support.service.command_line import COMPOSITION, policy

from pdp.config.load import load_settings
from pdp.decision.active_policies import RowSources
from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import entry_name, parse_document, policy_path, rule_of
from pdp.engines.row_access.policy_set import PolicySet, StoredPolicySets
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import InvalidArgument, PdpError, PolicyError
from pdp.facts.objects import RowPolicy, RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.management.row_policy_codec import decode_rule, rule_body
from pdp.management.row_policy_edits import RowPolicyWrite, check_rule
from pdp.management.row_policy_statements import edit_of
from pdp.model.question import Caller, Principal, Resource
from pdp.offline.row_policies.changes import stored_findings
from pdp.rewrite.catalog import policy_set_of
from pdp.rewrite.policy_statements import read_policy_statement
from pdp.rewrite.process.local import service_of_files
from pdp.row_access.requests import listed_policies
from pdp.store.schema import read_rules
from pdp.surfaces.grpc.management import _rule as rule_of_message
from pdp.surfaces.wire import decision_pb2 as wire

Entry = Mapping[str, Any]
CALLER: Final = Caller("c", frozenset(), may_write=True, own=Principal("user", "oidc~root"))
MEMBERS: Final = Members("user:{subject}", "oidc")
ACCESS: Final = RowAccessEngine({}, MEMBERS)
TABLE: Final = Resource("table", "lake", ("sales", "orders"))
ENTRY: Final[Entry] = {"id": "p", "table": "lake.sales.orders", "grantees": ["user:ann", "group:eu"]}
POLICY: Final[Entry] = {**ENTRY, "filter": "region = 'EU'"}
MASK: Final[Entry] = {**ENTRY, "column": "Mail", "kind": "expression", "expression": "upper(mail)"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = {
        "warehouses": {"lake": {"project": "p"}},
        "policies": {"rules": []},
        "store": {"url": "sqlite:///pdp.db"},
    }
    (tmp_path / "pdp.yaml").write_text(json.dumps(settings))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kind_of(entry: Entry) -> str:
    return "masks" if "column" in entry else "policies"


def by_file(entry: Entry) -> RowPolicy:
    source = parse_document({kind_of(entry): [entry]}, "rows.yaml")
    compile_policies([source])
    return read(entry)


def by_json(entry: Entry) -> RowPolicy:
    rule = decode_rule(json.dumps(entry).encode(), CALLER, "", "insert", masks="column" in entry)[1].rule
    check_rule(rule, ACCESS)
    return rule


def by_message(entry: Entry) -> RowPolicy:
    fields = dict(entry)
    text = "expression" if "column" in entry else "filter"
    if isinstance(fields.get(text), dict):
        fields["texts"] = fields.pop(text)
    rule = rule_of_message(wire.RowPolicy(**fields))
    check_rule(rule, ACCESS)
    return rule


def by_statement(entry: Entry) -> RowPolicy:
    grantees = ", ".join(f"'{one}'" for one in entry["grantees"])
    target = f"CREATE ROW ACCESS POLICY `{entry['id']}` ON `{entry['table']}`"
    statement = read_policy_statement(f"{target} GRANT TO ({grantees}) FILTER USING ({entry['filter']})")
    assert statement is not None
    edit = edit_of(statement, ())
    assert isinstance(edit, RowPolicyWrite)
    check_rule(edit.rule, ACCESS)
    return edit.rule


def by_command(entry: Entry) -> RowPolicy:
    """Return the rule that the command writes; needs the folder."""
    options = {
        "filter": "--filter",
        "column": "--mask",
        "kind": "--kind",
        "expression": "--expression",
        "dialect": "--dialect",
    }
    words = [word for key, option in options.items() if key in entry for word in (option, str(entry[key]))]
    words += [word for one in entry["grantees"] for word in ("--grantee", one)]
    words += [word for one in entry.get("except", ()) for word in ("--except", one)]
    words += ["--restrictive"] if entry.get("restrictive") else []
    result = policy("create", "--replace", *words, "--", entry["id"], entry["table"])
    if result.exit_code:
        raise CommandError(result.stderr.removeprefix("pdp: ").strip())
    (rule,) = stored_rules()
    policy("drop", entry["id"], entry["table"], *(("--mask", entry["column"]) if "column" in entry else ()))
    return plain(rule)


class CommandError(PdpError):
    """Refusal of the command."""


def stored_rules() -> list[RowPolicy]:
    with closing(sqlite3.connect("pdp.db")) as database:
        return [*read_rules(database.execute("SELECT body FROM row_rules"))]


def plain(rule: RowPolicy) -> RowPolicy:
    return msgspec.structs.replace(rule, author="", created=0.0, updated=0.0, ahead=False, person="")


def read(entry: Entry) -> RowPolicy:
    """Return the value of an entry, unjudged; raise for one that has none."""
    body = getattr(parse_document({kind_of(entry): [entry]}).document, kind_of(entry))[0]
    return rule_of(body, policy_path(body.table))


def by_row(entry: Entry) -> RowPolicy:
    """Return the rule of a row of the database, as the lint of a store judges the row."""
    (rule,) = read_rules([(msgspec.json.encode(read(entry)).decode(),)])
    for finding in stored_findings([rule])[1]:
        if finding.severity == "error":
            raise CommandError(f"{entry_name(rule)}: {finding.message}")
    return rule


DOORS: Final[Mapping[str, Callable[[Entry], RowPolicy]]] = {
    "file": by_file, "json": by_json, "message": by_message, "statement": by_statement, "command": by_command, "row": by_row,
}  # fmt: skip


FIELDS: Final = {field.name for field in wire.RowPolicy.DESCRIPTOR.fields}


def doors_of(entry: Entry) -> Iterator[str]:
    """Yield the doors through which an entry can be said at all."""
    text = entry.get("expression" if "column" in entry else "filter")
    yield from ("file", "json")
    is_typed = isinstance(text, str | dict | None) and isinstance(entry["grantees"], list)
    # An empty field of a message is a missing one. Texts by dialect have a field of their own, beside `dialect`.
    is_whole = entry.keys() >= ({*MASK} - {"expression"} if "column" in entry else {*POLICY})
    has_field = is_whole and entry.keys() <= FIELDS and not (isinstance(text, dict) and "dialect" in entry)
    if is_typed and has_field and all(value or key in ("id", "filter") for key, value in entry.items()):
        yield "message"
    # A command without grantees is for all authenticated users. Options that it lacks cannot be said.
    has_options = entry.keys() & {"colour"} == set() and not ("column" in entry and "restrictive" in entry)
    if isinstance(text, str) and is_typed and has_options and entry["grantees"] and is_whole:
        yield "command"
    if entry.keys() == {*POLICY, "dialect"} and entry["dialect"] == "bigquery" and is_typed and is_sayable(entry):
        yield "statement"
    with suppress(PdpError, ValueError):
        read(entry)
        yield "row"


def is_sayable(entry: Entry) -> bool:
    """Tell whether a statement can hold the texts of an entry: a name is no reference, and has no dot in a part."""
    texts = [entry["filter"], *entry["grantees"]]
    names = all(re.fullmatch(r"[^`\\\n.]+", part) for part in (entry["id"], *re.split(r"[.:]", entry["table"])))
    return names and ";" not in texts[0] and ":" not in entry["table"] and not any("'" in one for one in texts[1:])


# --- one value ----------------------------------------------------------------------------------------------------

SOUND: Final[list[Entry]] = [
    POLICY,
    *({**POLICY, "dialect": dialect} for dialect in ("duckdb", "spark", "bigquery")),
    {**POLICY, "table": "table:lake/sales/orders"},
    {**POLICY, "filter": "TRUE"},
    {**POLICY, "filter": "owner = SESSION_USER()", "dialect": "bigquery"},
    {**POLICY, "filter": {"duckdb": "region = 'EU'", "spark": "region == 'EU'"}},
    {**POLICY, "restrictive": True},
    {**POLICY, "grantees": ["allUsers", "domain:X.example", "role:boss"], "filter": "id IN (SELECT m.id FROM m)"},
    MASK,
    {**MASK, "except": ["user:bob", "group:hr"]},
    {**MASK, "expression": {"trino": "upper(mail)", "bigquery": "UPPER(mail)"}},
    {**MASK, "dialect": "spark"},
    *({**ENTRY, "column": "mail", "kind": kind} for kind in ("null", "hash", "partial", "show-last-4", "mask-alphanum")),
    {**MASK, "kind": "constant", "expression": "none"},
    {**MASK, "kind": "constant", "expression": ""},
    {**MASK, "expression": ""},
]  # fmt: skip


def test_a_document_is_one_value_by_every_door(folder: Path) -> None:
    for entry in SOUND:
        wanted = by_file(entry)
        found = {door: DOORS[door](entry) for door in doors_of(entry)}
        assert found == dict.fromkeys(found, wanted), entry
        assert len(found) >= 4, entry


def test_what_is_shown_of_a_value_is_its_document_again(folder: Path) -> None:
    for entry in SOUND:
        rule = by_file(entry)
        shown = {key: value for key, value in rule_body(rule).items() if key in {*entry, "dialect"}}
        assert by_json(shown) == rule, entry


def test_a_value_of_a_file_and_of_the_store_restricts_alike(folder: Path) -> None:
    for entry in SOUND:
        source = parse_document({kind_of(entry): [entry]})
        facts = Facts.empty().apply(1, [RowPolicyPut(by_row(entry))])
        filed = compile_policies([source]).build_engine(MEMBERS, ())
        assert filed.policies_of(TABLE) == ACCESS.policies_of(TABLE, facts), entry
        sets = policy_set_of([source.document]), StoredPolicySets(PolicySet({})).at(facts)
        key = ("lake", "sales.orders")
        assert sets[0].of(key) == sets[1].of(key), entry


def test_the_view_of_policies_shows_the_values_of_files_and_of_the_store(folder: Path) -> None:
    entries = [{**entry, "id": f"p{number}"} for number, entry in enumerate(SOUND) if "column" not in entry]
    settings = json.loads((folder / "pdp.yaml").read_text()) | {"authorities": {"default": {"engines": ["grants"]}}}
    settings["policies"] = {"rules": [], "row_access": ["rows.json"]}
    (folder / "pdp.yaml").write_text(json.dumps(settings))
    (folder / "rows.json").write_text(json.dumps({"policies": entries}))
    loaded = load_settings(folder / "pdp.yaml", (), {})
    bundle = COMPOSITION.build_pdp(loaded, Facts.empty(), COMPOSITION.read_rules(loaded)).bundle
    values = [*map(read, entries)]
    assert [*listed_policies(bundle, Facts.empty())] == values
    nothing = msgspec.structs.replace(bundle, row_sources=RowSources())
    facts = Facts.empty().apply(1, map(RowPolicyPut, values))
    assert sorted(listed_policies(nothing, facts), key=values.index) == values


# --- one message --------------------------------------------------------------------------------------------------

TEXTS: Final = (
    "", "NULL", "id + 1", "'x'", "id = 1) OR (TRUE", "count(*) > 1", "rand() < 0.5", "id = ?", "NOT 'a'", "id IN ()",
    "id = 1; DROP TABLE t", "SELECT 1", "id = 1 OR 1", "sum(id) OVER () > 1", "id = :name", "*", "a, b",
)  # fmt: skip
GRANTEES: Final = (
    "everyone", "user:", "user:user:ann", "group:eu;group:us", "domain:@x.example", "role:*", " user:ann",
    "user:a,b", "user:" + "a" * 600, "role:role:a", "domain:https://x.example",
)  # fmt: skip
BAD_TABLES: Final = (
    "orders", "lake.sales", "lake.sales.*", "lake.sales.orders$files", "lake.information_schema.tables",
    "table:lake/sales/orders@main", "namespace:lake/sales", "table:lake/sales.orders", "lake/sales/orders",
    "lake.sales.orders$1", "table:", "lake..orders", "lake.sales. orders", "a:b",
)  # fmt: skip
IDS: Final = ("", "a b", "a/b", "x" * 257, "\u00e9", "a\nb")


def bad_documents() -> Iterator[Entry]:
    """Yield documents that no door takes, each with one fault."""
    for base in (POLICY, {**POLICY, "dialect": "bigquery"}, MASK):
        yield from ({**base, "id": id} for id in IDS)
        yield from ({**base, "table": table} for table in BAD_TABLES)
        yield from ({**base, "grantees": ["user:bob", grantee]} for grantee in GRANTEES)
        yield {**base, "dialect": "klingon"}
    for dialect, text in product(("trino", "duckdb", "spark", "bigquery"), TEXTS):
        yield {**POLICY, "filter": text, "dialect": dialect}
    for text in ("upper(mail", "max(mail)", "random()", "?", "SELECT 1", "mail; x"):
        yield {**MASK, "expression": text}
    yield from ({**MASK, "except": [grantee]} for grantee in GRANTEES)
    yield from ({**MASK, "column": column} for column in ("*", "a.b", "a, b", " mail", "x" * 600, "lower(mail)"))
    yield from ({**MASK, "kind": kind} for kind in ("nil", "hash", "null", "Constant"))
    yield {**ENTRY, "column": "mail", "kind": "expression"}
    yield {**MASK, "kind": "constant", "expression": "a\x07b"}
    yield {**MASK, "grantees": []}
    yield {**POLICY, "filter": {"duckdb": "id = 1", "spark": "TRUE"}}
    yield {**POLICY, "filter": {"duckdb": "id = 1", "klingon": "id = 1"}}
    yield {**POLICY, "filter": {"duckdb": "id = 1", "spark": "id +"}}
    yield {**POLICY, "filter": {}}
    yield {**POLICY, "filter": {"duckdb": "id = 1"}, "dialect": "spark"}
    yield {**MASK, "expression": {"duckdb": "id = 1"}, "dialect": "spark"}
    yield {**MASK, "kind": "constant", "expression": {"duckdb": "a", "spark": "b"}}
    yield {**POLICY, "except": ["user:ann"]}
    yield {**POLICY, "colour": "red"}
    yield {**MASK, "restrictive": True}
    yield {**POLICY, "grantees": "user:ann"}
    yield {**POLICY, "filter": 5}
    yield {key: value for key, value in POLICY.items() if key != "filter"}
    yield {key: value for key, value in MASK.items() if key != "kind"}
    yield {key: value for key, value in POLICY.items() if key != "table"}


BAD: Final = [*bad_documents()]


def said(door: str, entry: Entry) -> str:
    """Return the message of a door, without what is the door's own: the place in a file, the effect in a store."""
    try:
        DOORS[door](entry)
    except PdpError as error:
        return own_words(error)
    return ""


def own_words(error: PdpError) -> str:
    message = error.message if isinstance(error, PolicyError) else str(error)
    message = re.sub(r" - at `\$\.(?:policies|masks)\[0\]", " - at `$", message).removesuffix(" - at `$`")
    return message.removesuffix("; the policy shows no row").removesuffix("; the column is NULL for everybody")


@pytest.mark.parametrize("part", range(6))
def test_a_bad_document_gets_one_message_by_every_door(folder: Path, part: int) -> None:
    for entry in BAD[part::6]:
        wanted = said("file", entry)
        assert wanted, entry
        found = {door: said(door, entry) for door in doors_of(entry)}
        assert found == dict.fromkeys(found, wanted), entry


def by_rewriter(entry: Entry) -> str:
    """Return the refusal of a file of the rewriter, but for names of tables: short ones are names there."""
    Path("rows.json").write_text(json.dumps({kind_of(entry): [entry]}))
    try:
        service_of_files([Path("rows.json")])
    except PolicyError as error:
        return own_words(error)
    except InvalidArgument:
        assert entry["table"] != ENTRY["table"], entry
    return ""


def test_the_rewriter_refuses_with_the_same_message(folder: Path) -> None:
    """It judges a filter where somebody uses the filter, so it takes some of the documents."""
    found = [(entry, message) for entry in BAD if (message := by_rewriter(entry))]
    assert len(found) >= 60
    for entry, message in found:
        assert message == said("file", entry), entry


def test_there_are_many_bad_documents() -> None:
    assert len({json.dumps(entry) for entry in BAD}) >= 200
