"""Remarks on permission files: each is true of the decisions, and a file without faults has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdp.engines.scopes.explain import is_permission_file, lint_entries
from pdp.engines.scopes.permissions import parse_entries

RULE = {"catalog": "hive", "schema": "raw", "tables": ["events"]}


def codes(entries: list[Any], *, strict: bool = True) -> list[str]:
    return [remark.code for remark in lint_entries(parse_entries(entries), strict=strict)]


def entry(*rules: Any, name: str = "svc", **slots: Any) -> dict[str, Any]:
    return {"name": name, "permissions": {"Query": list(rules), "Mutation": [], **slots}}


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([entry(RULE)], []),
        ([entry({**RULE, "tables": ["*"]})], []),
        ([entry({**RULE, "tables": ["*", "events"]})], []),
        ([entry(RULE), entry(RULE)], ["scopes-shadowed"]),
        ([entry({**RULE, "tables": ["events", "*"]})], ["scopes-literal"]),
        ([entry({**RULE, "tables": ["ev*"]})], ["scopes-literal"]),
        ([entry({**RULE, "catalog": "*"})], ["scopes-literal"]),
        ([entry({**RULE, "schema": "raw.*"})], ["scopes-literal"]),
        ([entry({"catalog": "hive", "schema": "raw"})], ["scopes-no-tables"]),
        ([entry({**RULE, "tables": []})], ["scopes-empty"]),
        ([entry({**RULE, "tables": ["events "]})], ["scopes-blank"]),
        ([entry(RULE, name=" svc")], ["scopes-blank"]),
        ([entry(RULE, Mutation=[{**RULE, "schema": "*"}])], ["scopes-literal"]),
        ([entry(RULE, name="svc-*")], ["scopes-literal"]),
        ([entry(RULE, Mutation=None)], ["scopes-no-slot"]),
        ([entry(Query=None)], ["scopes-no-slot"]),
        ([{"name": "svc"}], ["scopes-no-slot", "scopes-no-slot"]),
    ],
)
def test_a_fault_has_its_remark(entries: list[Any], found: list[str]) -> None:
    assert codes(entries) == found


def test_reads_without_rules_are_a_remark_unless_strict() -> None:
    assert codes([entry()], strict=False) == ["scopes-reads-all"]
    assert codes([entry()]) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", "# ours\n- name: svc\n", True),
        ("a.yaml", "- {name: svc}\n", True),
        ("a.yaml", "---\n- useSystemUser: true\n  name: svc\n", True),
        ("a.json", '[\n  {"name": "svc"}\n]', True),
        ("a.json", '[{"uid": {"type": "T", "id": "x"}}]', False),
        ("a.yaml", "rules: {a: 'true'}\n", False),
        ("a.yaml", "cases: [{note: x}]\n", False),
        ("a.json", '{"objects": []}', False),
        ("a.txt", "- name: svc\n", False),
    ],
)
def test_permission_files_are_known_by_their_beginning(tmp_path: Path, name: str, text: str, expected: bool) -> None:
    (tmp_path / name).write_text(text)
    assert is_permission_file(tmp_path / name) is expected
