"""Rule files that the product writes: every id and every text is read back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pdp.engines.cel.nessie_keys import rule_lines
from pdp.engines.cel.sources import read_rule_file

SIGNS = "ab.-_ \t\n\r\f=:#!%\\\"'${}[]ä\u2028\u0085\x00\ufeff😀"
"""Signs of which properties files, Quarkus or JSON take some for their own."""
TEXTS = some.text(SIGNS, min_size=1, max_size=8) | some.text(min_size=1, max_size=8)


def read_back(rules: dict[str, str]) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r.properties"
        file.write_text("".join(f"{line}\n" for line in rule_lines(rules)), encoding="utf-8", newline="")
        return {rule.id: rule.text for rule in read_rule_file(file).rules}


@given(some.dictionaries(TEXTS, TEXTS, max_size=3))
def test_written_rules_read_back_to_the_same_ids_and_texts(rules: dict[str, str]) -> None:
    assert read_back(rules) == rules


@pytest.mark.parametrize(
    "id", ["a=b", "a:b", "a b", "#a", "!a", "a\\b", '"a"', '"', "a[]", '"a[]"', " ", "%dev.a", "ä"]
)
@pytest.mark.parametrize(
    "text",
    ["path == 'a\\\\b' && path.matches('^\\\\d+$')", "role == '${role}'", "ref == '$$' || ref == '\\\\$'",
     " role in ['ä', '😀'] && ref != 'x=y:#!'\n"],
)  # fmt: skip
def test_signs_of_properties_and_of_quarkus_are_escaped(id: str, text: str) -> None:
    assert read_back({id: text}) == {id: text}
