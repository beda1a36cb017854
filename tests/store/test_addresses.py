"""Addresses of PostgreSQL: what would be read as another part, and no error that shows a password."""

from __future__ import annotations

import pytest

from pdp.errors import ConfigError
from pdp.store.postgres import PostgresDatabase

SECRET = ("Ab3", "Xy9")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:Ab3/Xy9@h/db",
        "postgresql://u:Ab3@Xy9@h/db",
        "postgresql://u:Ab3/Xy9@h:5432/db?sslmode=disable",
        "postgresql://u@corp:Ab3Xy9@h/db",
        "postgresql://u:Ab3//Xy9@/db",
    ],
)
def test_a_sign_of_a_password_that_divides_an_address_is_an_error_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match="is written as `%2F` or `%40`") as raised:
        PostgresDatabase(url)
    assert not any(part in str(raised.value) for part in SECRET)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:Ab3%2FXy9%40@h/db",
        "postgresql://u@h1:1,h2:2/db?application_name=a@b",
        "postgresql:///db?host=/run/x@y",
        "postgresql://h/db",
    ],
)
def test_an_address_with_escaped_signs_is_taken(url: str) -> None:
    database = PostgresDatabase(url)
    assert not any(part in database.name for part in SECRET)
    database.close()


@pytest.mark.parametrize(
    "place", ["u:Ab3%CAXy9", "%CAAb3", "u:Ab3%FF", "u:%C3%28", "u:Ab3%ED%A0%80", "u:Ab3%00Xy9", "u:Ab3%ZZ"]
)
@pytest.mark.parametrize("rest", ["@h/db", "@h/db?application_name=%CA", "@/db"])
def test_escapes_of_no_text_are_an_error_without_the_password(place: str, rest: str) -> None:
    with pytest.raises(ConfigError, match="is no address") as raised:
        PostgresDatabase(f"postgresql://{place}{rest}")
    assert not any(part in str(raised.value) for part in (*SECRET, "0x"))
    assert raised.value.__suppress_context__
