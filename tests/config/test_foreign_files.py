"""Advice for files of other systems."""

from __future__ import annotations

import pytest

from pdp.config.regular_files import advice_for, is_cedar_entity

POLICY = "create or replace row access policy if not exists p on `a`.`b`\n grant to (\"user:x@y\", 'allUsers')\n filter using (c > 1)"


@pytest.mark.parametrize(
    ("suffix", "text", "words"),
    [
        (".cedar", "", "name the file in `policies.cedar.policies`"),
        (".rego", "", "Rego is not read"),
        (".ts", "", "permissions in code are not read"),
        (".sql", "SELECT 1", "write row policies in YAML"),
        (".sql", POLICY, '{id: p, table: a.b, grantees: ["user:x@y", "allUsers"], dialect: bigquery, filter: "c > 1"}'),
        (".sql", "CREATE ROW ACCESS POLICY p ON t FILTER USING (TRUE)", 'grantees: ["allAuthenticatedUsers"]'),
    ],
)
def test_advice(suffix: str, text: str, words: str) -> None:
    assert words in advice_for(suffix, text)


@pytest.mark.parametrize("suffix", [".yaml", ".properties", ".json", ""])
def test_own_files_have_no_advice(suffix: str) -> None:
    assert advice_for(suffix, "x") == ""


def test_entities_of_cedar() -> None:
    assert is_cedar_entity({"uid": {"type": "Lakekeeper::User", "id": "x"}})
    assert not is_cedar_entity({"user": "user:a"})
    assert not is_cedar_entity("uid")
