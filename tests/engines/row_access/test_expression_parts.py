"""Parts of filters: both readers of filters refuse the same parts, and name them alike."""

from __future__ import annotations

import pytest

from pdp.engines.row_access.dialects import translate_filter
from pdp.engines.row_access.policy_set import Policy
from pdp.rewrite.catalog import Catalog, Relation
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.filters import check_filter

NAME = ("lake", "sales", "t")
TABLE = Relation(NAME, {"id": "BIGINT", "uuid": "VARCHAR", "random": "BIGINT", "shuffle": "VARCHAR"})
REFUSED = {
    "a random value": ["id > rand()", "id > random()", "uuid = uuid()", "uuid = gen_random_uuid()", "id > secure_random()",
                       "uuid = generate_uuid()", "uuid = uuidv7()", "id IN (SELECT id FROM t WHERE random() > 1)"],
    "a parameter": ["id = ?", "id = :name", "id = @name"],
}  # fmt: skip
PASSED = [
    "lower(uuid) = 'x'",
    "random > 1",
    "abs(random) > 1",
    "uuid = 'rand()'",
    "length(shuffle) > 1",
    "uuid IS NULL",
]


def rewriters(text: str, dialect: str) -> str:
    try:
        check_filter(Policy("p", (), text, dialect), TABLE, Catalog([TABLE]))
    except RewriteRefused as error:
        return str(error).partition("not used: ")[2]
    return ""


def plugins(text: str, dialect: str) -> str:
    try:
        translate_filter(text, dialect)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("dialect", ["trino", "duckdb", "spark", "bigquery"])
@pytest.mark.parametrize(("cause", "text"), [(cause, text) for cause, texts in REFUSED.items() for text in texts])
def test_both_readers_refuse_a_part(cause: str, text: str, dialect: str) -> None:
    """Where a dialect does not know the sign, both say that the text does not parse."""
    if (dialect, text) == ("duckdb", "id = @name"):
        pytest.skip("the sign is the absolute value there")
    found = [rewriters(text, dialect), plugins(text, dialect)]
    assert all(found)
    assert all("parse" in one for one in found) or found == [f"it holds {cause}"] * 2


@pytest.mark.parametrize("text", PASSED)
def test_a_column_with_the_name_of_a_random_function_is_a_column(text: str) -> None:
    assert rewriters(text, "trino") == ""
    assert plugins(text, "trino") == ""
