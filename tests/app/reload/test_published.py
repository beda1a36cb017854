"""Published bundles: the bundle of a text is the bundle of the files, and shares all that did not change."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.generators.generated_pdps import decide
from support.service.serving import settings_of

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.assembly import build_bundle, read_rules
from pdp.app.facts import build_pdp
from pdp.app.reload.published import build_published, load_bundle, prepare_bundle
from pdp.config.settings import Settings
from pdp.decision.active_policies import ActivePolicies
from pdp.errors import ConfigError, PdpError
from pdp.facts.snapshot import Facts

RULES = ["op=='READ_ENTITY_VALUE'", "role=='alice'", "path.startsWith('s.')", "ref.matches('m.*')", "'r' in roles"]
texts = st.lists(st.sampled_from(RULES), min_size=1, max_size=3).map(" && ".join)
rule_sets = st.dictionaries(st.sampled_from("abcdef"), texts, max_size=5)
ROWS = {
    "policies": [
        {"id": "own", "table": "lake.s.t", "grantees": ["user:alice"], "filter": "owner = 'alice'"},
        {"id": "all", "table": "lake.s.u", "grantees": ["role:r"], "filter": True},
    ],
    "masks": [
        {"id": "m", "table": "lake.s.t", "column": "c", "grantees": ["role:r"], "kind": "constant", "expression": 5}
    ],
}


def configured(folder: Path, rules: dict[str, str], forbid: dict[str, str], rows: dict[str, Any]) -> Settings:
    for name, content in (("rules", {"rules": rules}), ("forbid", {"rules": forbid}), ("rows", rows)):
        (folder / f"{name}.json").write_text(json.dumps(content))
        (folder / f"{name}.yaml").write_text(json.dumps(content))
    entry = {"allow_empty": True}
    policies = {
        "rules": [{"path": "rules.yaml", **entry}],
        "forbid": [{"path": "forbid.yaml", **entry}],
        "row_access": [{"path": "rows.json", **entry}],
    }
    return settings_of({"policies": policies, "warehouses": {"lake": {"default_ref": "main"}}}, folder)


@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rule_sets, rule_sets, st.sampled_from([{}, ROWS]))
def test_the_bundle_of_a_text_is_that_of_the_files(
    tmp_path: Path, rules: dict[str, str], forbid: dict[str, str], rows: dict[str, Any]
) -> None:
    settings = configured(tmp_path, rules, forbid, rows)
    read, counts = load_bundle(settings, b"")
    published, same_counts = load_bundle(settings, read.text)
    assert (published.text, published.digest, same_counts) == (read.text, read.digest, counts)
    assert published.undroppable == read.undroppable
    assert published.unmovable == read.unmovable
    assert [type(engine) for engine in published.forbids] == [type(engine) for engine in read.forbids]
    assert published.row_access.count() == read.row_access.count()


def test_both_bundles_decide_alike(tmp_path: Path) -> None:
    settings = configured(tmp_path, {str(n): rule for n, rule in enumerate(RULES)}, {"f": "path=='s.x'"}, ROWS)
    checks = [
        {"principal": f"user:oidc~{name}", "action": action, "resource": f"table:lake/s/{table}"}
        for name in ("alice", "bob")
        for action in ("read_data", "write_data", "drop", "rename")
        for table in "tux"
    ]
    pdp = build_pdp(settings, Facts.empty(), read_rules(settings))
    by_files = decide(pdp, checks)
    pdp.bundle = build_published(settings, pdp.bundle.text)
    by_text = decide(pdp, checks)
    assert {*by_files.allowed} == {0, 1}
    assert (by_text.allowed, by_text.by, by_text.errors) == (by_files.allowed, by_files.by, by_files.errors)
    assert by_text.revision == by_files.revision


def test_a_start_searches_no_garbage_among_its_policies(tmp_path: Path) -> None:
    rules = [f"nessie.server.authorization.rules.r{n}=role=='r{n}' && path.startsWith('n{n}.')\n" for n in range(1000)]
    (tmp_path / "many.properties").write_text("".join(rules))
    settings = settings_of({"policies": {"rules": ["many.properties"]}}, tmp_path)
    searches: list[str] = []

    def note(phase: str, _: object) -> None:
        searches.append(phase)

    gc.callbacks.append(note)
    try:
        bundle, counts = load_bundle(settings, b"")
        assert load_bundle(settings, bundle.text)[1] == counts
    finally:
        gc.callbacks.remove(note)
    assert counts["rules"] == 1000
    assert gc.isenabled()
    assert searches.count("start") <= 2, "one after each load"


names = st.lists(st.sampled_from(["id", "region", "email", "Ä", "a b", "_z"]), min_size=1, max_size=6, unique=True)


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["lake.s.c", "lake.s.b", "lake.s.a"]), names, min_size=1), st.randoms())
def test_columns_keep_their_order_and_another_order_is_another_bundle(
    tmp_path: Path, tables: dict[str, list[str]], random: Random
) -> None:
    """`SELECT *` has the columns in the order of `tables`. The order of tables means nothing."""

    def bundle(columns: dict[str, list[str]]) -> ActivePolicies:
        described = {name: {"columns": dict.fromkeys(some, "VARCHAR")} for name, some in columns.items()}
        settings = configured(tmp_path, {"a": "true"}, {}, ROWS | {"tables": described})
        read, _ = load_bundle(settings, b"")
        published, _ = load_bundle(settings, read.text)
        assert published.text == read.text
        for found in (read, published, rebuild_pdp(read.text).bundle):
            assert found.digest == read.digest
            (document,) = found.row_sources.documents
            assert {name: list(table["columns"]) for name, table in document["tables"].items()} == columns
        return read

    shuffled = {name: random.sample(some, len(some)) for name, some in tables.items()}
    assert (bundle(shuffled).digest == bundle(tables).digest) == (shuffled == tables)
    assert bundle(dict(reversed(tables.items()))).digest == bundle(tables).digest


def test_a_text_with_sorted_columns_keeps_its_digest(tmp_path: Path) -> None:
    """Archives of earlier versions, which sorted columns, can be decided again."""
    tables = {"lake.s.x": {"columns": {"b": "VARCHAR", "a": "VARCHAR"}}}
    read, _ = load_bundle(configured(tmp_path, {"a": "true"}, {}, ROWS | {"tables": tables}), b"")
    earlier = msgspec.json.encode(msgspec.json.decode(read.text), order="sorted")
    assert earlier != read.text
    assert rebuild_pdp(earlier).bundle.text == earlier


def test_rules_that_did_not_change_are_not_compiled_again(tmp_path: Path) -> None:
    rules = {str(number): f"role=='r{number}' && path.size() > {number}" for number in range(20)}
    settings = configured(tmp_path, rules, {}, {})
    before = read_rules(settings)[0]
    rules["7"] = "role=='other' && path.size() > 1"
    (tmp_path / "rules.yaml").write_text(json.dumps({"rules": rules}))
    after = read_rules(settings)[0]
    shared = [old.id for old, new in zip(before.rules, after.rules, strict=True) if old.program is new.program]
    assert shared == [rule.id for rule in before.rules if rule.id != "7"]


def test_a_bundle_ends_with_its_last_use_without_a_collection(tmp_path: Path) -> None:
    settings = configured(tmp_path, {"a": "role=='a' && path.size() > 1"}, {"f": "role=='f'"}, ROWS)
    rules, forbid = read_rules(settings)
    bundle = build_bundle(settings, rules, forbid)
    ends: list[weakref.ref[Any]] = [weakref.ref(rules.rules[0].program), weakref.ref(bundle.default.engines[0])]
    gc.disable()
    try:
        del rules, forbid, bundle
        assert [end() for end in ends] == [None, None]
    finally:
        gc.enable()


async def test_a_text_of_other_settings_is_refused(tmp_path: Path) -> None:
    settings = configured(tmp_path, {"a": "true"}, {}, {})
    text = build_bundle(settings, *read_rules(settings)).text
    other = settings.model_copy(update={"warehouses": {}})
    with pytest.raises(ConfigError, match="other settings"):
        build_published(other, text)
    with pytest.raises(PdpError):
        await prepare_bundle(settings, text.replace(b'"true"', b'"role =="'))
    with pytest.raises(PdpError):
        await prepare_bundle(settings, b"{}")
    assert load_bundle(other, text)[0].digest != load_bundle(settings, text)[0].digest


ASKED = [
    {"principal": "user:oidc~alice", "action": action, "resource": "table:lake/s/t@main"}
    for action in ("READ_ENTITY_VALUE", "VIEW_REFERENCE", "read_data", "drop")
]


@hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rule_sets, rule_sets, rule_sets)
def test_a_bundle_made_ready_for_the_checks_of_another_decides_the_same(
    tmp_path: Path, before: dict[str, str], rules: dict[str, str], forbid: dict[str, str]
) -> None:
    settings = configured(tmp_path, before, {"f": "role=='nobody'"}, {})
    pdp = build_pdp(settings, Facts.empty(), read_rules(settings))
    decide(pdp, ASKED)
    settings = configured(tmp_path, rules, forbid, {})
    text = build_bundle(settings, *read_rules(settings)).text
    ready = asyncio.run(prepare_bundle(settings, text, pdp.bundle))
    assert {"READ_ENTITY_VALUE", "VIEW_REFERENCE"} <= {*ready.default.engines[0]._selector._by_op}  # type: ignore[attr-defined]
    pdp.bundle = ready
    found = decide(pdp, ASKED)
    pdp.bundle = build_published(settings, text)
    assert (list(found.allowed), list(found.by)) == (list(decide(pdp, ASKED).allowed), list(decide(pdp, ASKED).by))
