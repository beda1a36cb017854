"""Sizes of filters and masks: the same bounds in files and in the store, with an error that names the bound."""

from __future__ import annotations

from typing import Any

import pytest

from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import LONGEST_CONSTANT, LONGEST_SQL, parse_document
from pdp.engines.row_access.validation import compile_policies
from pdp.errors import InvalidArgument, PolicyError
from pdp.facts.objects import RowPolicy
from pdp.management.row_policy_edits import check_rule

NO_ACCESS = RowAccessEngine({}, Members("user:{subject}", "oidc"))
START = "region = '"


def filter_of(size: int) -> str:
    return f"{START}{'x' * (size - len(START) - 1)}'"


ENTRIES: list[tuple[dict[str, Any], str]] = [
    ({"filter": filter_of(LONGEST_SQL)}, ""),
    ({"filter": filter_of(LONGEST_SQL + 1)}, "10,001 characters, the limit is 10,000"),
    ({"kind": "expression", "expression": "upper(c)".ljust(LONGEST_SQL)}, ""),
    ({"kind": "expression", "expression": "upper(c)".ljust(LONGEST_SQL + 1)}, "the limit is 10,000"),
    ({"kind": "constant", "expression": "x" * LONGEST_CONSTANT}, ""),
    ({"kind": "constant", "expression": "x" * (LONGEST_CONSTANT + 1)}, "up to 1,000 characters, not 1,001"),
    ({"kind": "constant", "expression": "\N{SNOWMAN} it's ${x} \\"}, ""),
    *(
        ({"kind": "constant", "expression": f"a{sign}b"}, "no control characters")
        for sign in ("\0", "\n", "\x1b", "\x7f", "\x85", "\u2028", "\ud800")
    ),
]


@pytest.mark.parametrize(("entry", "problem"), ENTRIES)
def test_files_and_the_store_take_the_same_sizes(entry: dict[str, Any], problem: str) -> None:
    is_mask = "kind" in entry
    more = {"column": "c"} if is_mask else {}
    body = {"id": "p", "table": "lake.s.t", "grantees": ["allUsers"], "dialect": "trino", **entry, **more}
    document = parse_document({"masks" if is_mask else "policies": [body]})
    text = entry["expression"] if is_mask else entry["filter"]
    rule = RowPolicy(
        ("lake", "s", "t"), "p", ("allUsers",), text, column=more.get("column", ""), kind=entry.get("kind", "")
    )
    if not problem:
        compile_policies([document])
        check_rule(rule, NO_ACCESS)
        return
    with pytest.raises(PolicyError, match=problem):
        compile_policies([document])
    with pytest.raises(InvalidArgument, match=problem):
        check_rule(rule, NO_ACCESS)
