"""Files of row policies and masks: what their names and values mean, and what several files come to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.oracles.rows import MASK, POLICY, RECORDED, bundle_of, load, seen
from support.paths import ROOT

from pdp.engines.row_access.engine import REASON_PREFIX
from pdp.errors import ConfigError, PolicyError
from pdp.model.question import Principal, Resource
from pdp.store.world import parse_world


def test_the_sample_loads(tmp_path: Path) -> None:
    bundle = bundle_of(RECORDED, "row_access.json")
    for who, wanted in (
        ("user:alice@example.com", ("(amount >= 800) OR (region = 'EU')", "big_for_alice,eu_only")),
        ("user:bob@example.com", ("region = 'US'", "us_only")),
        ("user:x@partner.example", ("status = 'public' AND NOT region IS NULL", "partner_public")),
        ("user:x@example.com", ("false", "no_policy")),
    ):
        found = seen(bundle, "orders", who, "sales")
        assert found.rows
        assert (found.rows.expression, found.by) == (wanted[0], REASON_PREFIX + wanted[1])
    assert seen(bundle, "items", schema="sales").reason is None
    own = seen(bundle, "salaries", schema="hr")
    assert own.rows
    assert own.rows.expression == "email = 'alice@example.com'", "SESSION_USER() is the caller"
    said = [warning for warning in bundle.warnings if "lets no row through" in warning]
    assert [warning.split("`")[1] for warning in said] == ["leads_lookup"]
    assert all("row_access.json" in warning for warning in said)


def test_files_merge_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.yaml").write_text(
        yaml.safe_dump({"default": ["lake", "s"], "policies": [POLICY | {"table": "t"}]})
    )
    (tmp_path / "rows" / "b.json").write_text(
        json.dumps({"policies": [POLICY | {"id": "q", "filter": "y = 2"}], "masks": [MASK]})
    )
    for patterns in (["rows/*"], ["rows/a.yaml", "rows/b.json"], ["rows/*.yaml", "rows/*.json", "rows/a.yaml"]):
        found = seen(bundle_of(tmp_path, *patterns))
        assert found.rows
        assert (found.rows.expression, list(found.masks)) == ("(x = 1) OR (y = 2)", ["c"])
    digests = {bundle_of(tmp_path, *patterns).digest for patterns in (["rows/a.yaml"], ["rows/b.json"], ["rows/*"], [])}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("default", "name"),
    [([], "lake.s.t"), (["lake"], "s.t"), (["lake", "s"], "t"), (["lake", "x"], "s.t"), (["x", "y"], "lake.s.t"),
     (["x"], "table:lake/s/t"), ([], "view:lake/s/t"), ([], "table_or_view:lake/s/t"), ([], "LAKE".lower() + ".S.T")],
)  # fmt: skip
def test_names_are_read_with_a_default(tmp_path: Path, default: list[str], name: str) -> None:
    found = seen(load(tmp_path, {"default": default, "policies": [POLICY | {"table": name}]}))
    assert found.by == f"{REASON_PREFIX}p"


def test_bare_values_of_yaml_are_what_they_look_like(tmp_path: Path) -> None:
    text = """
policies:
  - {id: all, table: lake.s.t, grantees: ["user:a@x"], filter: TRUE}
  - {id: none, table: lake.s.t, grantees: ["user:b@x"], filter: FALSE}
  - {id: neither, table: lake.s.t, grantees: ["user:b@x"], filter: off}
masks:
  - {id: m, table: lake.s.t, column: a, grantees: [allUsers], kind: null}
"""
    values = {"b": "5", "c": "-1.50", "d": "true", "e": "x", "f": "''", "g": "'5'", "h": "1e3", "i": "2020-01-01x"}
    for column, value in values.items():
        text += f"  - {{id: m{column}, table: lake.s.t, column: {column}, grantees: [allUsers], kind: constant, expression: {value}}}\n"
    (tmp_path / "rows.yaml").write_text(text)
    bundle = bundle_of(tmp_path, "rows.yaml")
    assert seen(bundle, who="a@x").rows is None
    hidden = seen(bundle, who="b@x").rows
    assert hidden
    assert hidden.expression == "(false) OR (false)"
    masks = seen(bundle, who="a@x").masks
    assert masks["a"].kind == "null"
    assert [masks[column].text for column in values] == ["5", "-1.5", "TRUE", "'x'", "''", "5", "1e3", "'2020-01-01x'"]


def test_a_column_is_one_that_the_table_has(tmp_path: Path) -> None:
    tables = {"lake.S.T": {"columns": {"Name": "VARCHAR"}}, "lake.s.u": {}}
    for column, name in (
        ("name", "lake.s.t"),
        ("NAME", "table:lake/s/t"),
        ("other", "lake.s.u"),
        ("other", "lake.s.v"),
    ):
        load(tmp_path, {"tables": tables, "masks": [MASK | {"table": name, "column": column}]})
    with pytest.raises(PolicyError, match=r"rows\.yaml.*no column `c`"):
        load(tmp_path, {"tables": tables, "masks": [MASK]})


@pytest.mark.parametrize("data", [None, {}, {"policies": []}, {"views": {"lake.s.v": {"sql": "SELECT 1"}}}])
def test_a_file_without_policies_restricts_nothing(tmp_path: Path, data: Any) -> None:
    assert seen(load(tmp_path, data)).reason is None


@pytest.mark.parametrize(
    "config", [{"warehouses": {"lake": {}}}, {"trino": {"catalogs": {"c": {"warehouse": "lake"}}}}]
)
def test_a_warehouse_that_nobody_knows_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    assert not any("lakes" in warning for warning in load(tmp_path, {"policies": [POLICY]}, **config).warnings)
    misspelt = {"policies": [POLICY | {"table": "lakes.s.t"}]}
    with pytest.raises(PolicyError, match=r"`lakes` is configured, the nearest known is `lake`"):
        load(tmp_path, misspelt, **config)
    with pytest.raises(ConfigError, match=r"`row_access\.protected\.0`: no warehouse `lakes` is configured"):
        load(tmp_path, {}, row_access={"protected": ["namespace:lakes/s"]}, **config)
    load(tmp_path, misspelt)


def test_the_page_s_example_gives_what_the_page_says(tmp_path: Path) -> None:
    """Of docs/row-access.md: the first YAML, and the table below it."""
    page = (ROOT / "docs" / "row-access.md").read_text()
    (tmp_path / "rows.yaml").write_text(page.partition("```yaml")[2].partition("```")[0])
    bundle = bundle_of(tmp_path, "rows.yaml")
    lines = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith(("| `user:oidc~", "| `anonymous"))]
    world = {"grants": [{"principal": "user:oidc~carol@example.com", "privilege": "assignee", "object": "role:etl"}]}
    for who, rows, email in lines:
        id = who.split("`")[1]
        kind, _, name = id.partition(":")
        principal = Principal(kind, name, groups=("eu@example.com",) if "eu@example.com" in who else ())
        found = bundle.row_access.restrict(
            principal, Resource("table", "lake", ("sales", "orders")), parse_world(world)
        )
        said = {" all ": None, " none ": "false"}.get(rows, rows.strip(" `"))
        assert (found.rows.expression if found.rows else None) == said, who
        assert ("email" in found.masks) == ("****" in email), who
    assert len(lines) == 4
