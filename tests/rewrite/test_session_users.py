"""Functions of the engine's session: nobody sees what the account of the session may see, in no spelling and place."""

from __future__ import annotations

import random
import re
from typing import Any, Final

import duckdb
import pytest
from support.rewriting import code_of

from pdp.engines.row_access.policies import parse_document
from pdp.rewrite import errors
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.identity import CallerIdentity
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter
from pdp.rewrite.visible_relations import Through

ALICE: Final = "user:alice@example.com"
DIALECTS: Final = ("bigquery", "trino", "spark", "duckdb")
QUOTE: Final = {"bigquery": "`", "trino": '"', "spark": "`", "duckdb": '"'}
SPELLINGS: Final = (
    "current_user", "CURRENT_USER", "Current_User ()", "current_user()", "session_user()", "SESSION_USER ( )", "session_user",
    "user", "USER", "user()", "(current_user)", "{q}current_user{q}()", "{q}session_user{q}()", "{q}user{q}()",
    "{q}Current_User{q} ( )", "current_user /**/ ()", "current_role", "current_role()", "current_roles()", "{q}current_role{q}()",
    "@@session.user", "system.builtin.current_user()", "builtin.current_user()", "main.current_user()", "{q}user{q}",
    "{q}current_user{q}", "{q}session_user{q}", "{q}current_role{q}", "current_groups()", "current_user_id()", "current_session()",
    "identifier('current_user')()", "getvariable('user')", "current_setting('user')", "SAFE.SESSION_USER()",
)  # fmt: skip
PLACES: Final = (
    "SELECT {u} AS x FROM free",
    "SELECT {u} FROM free",
    "SELECT id FROM free WHERE email = {u}",
    "SELECT id, {u} FROM free ORDER BY id",
    "WITH c AS (SELECT {u} AS x FROM free) SELECT x FROM c",
    "SELECT CASE WHEN {u} = 'svc' THEN email END AS x FROM free",
    "SELECT coalesce(NULL, {u}) AS x FROM free",
    "SELECT id FROM free WHERE id IN (SELECT id FROM owned WHERE email = {u})",
    "SELECT a.id FROM free AS a JOIN owned AS b ON a.email = {u}",
    "SELECT count(*) FROM free HAVING max(email) = {u}",
    "SELECT x FROM (SELECT {u} AS x FROM free) AS s",
    "SELECT id FROM free UNION ALL SELECT id FROM free WHERE email = {u}",
    "INSERT INTO free SELECT id, {u} FROM free",
    "INSERT INTO free VALUES (1, {u})",
    "UPDATE free SET email = {u}",
    "DELETE FROM free WHERE email <> {u}",
    "CREATE TABLE copied AS SELECT {u} AS x FROM free",
    "SELECT max({u}) OVER () AS x FROM free",
)
_QUOTED: Final = frozenset({"{q}user{q}", "{q}current_user{q}", "{q}session_user{q}", "{q}current_role{q}"})
COLUMNS: Final = {
    "bigquery": _QUOTED | {"user", "USER", "session_user"},
    "trino": _QUOTED | {"user", "USER", "session_user"},
    "spark": frozenset({"{q}current_role{q}"}),
    "duckdb": frozenset({"@@session.user"}),
}
"""Dialect -> spellings that are a column there, or an error."""
SERVICE_USER: Final = "duckdb"
"""User of every session of DuckDB."""
_WORDS: Final = re.compile(r"(?<!\.)\b(?:current_user|session_user|user|current_role)\b|@@", re.IGNORECASE)


def service(views: dict[str, Any] | None = None, through: Through | None = None) -> LocalRewriter:
    body = {
        "default": ["memory", "main"],
        "tables": {
            "free": {"columns": {"id": "INTEGER", "email": "VARCHAR"}},
            "owned": {"columns": {"id": "INTEGER", "email": "VARCHAR"}},
            "named": {"columns": {"id": "INTEGER", "user": "VARCHAR", "current_user": "VARCHAR"}},
            "wide": {},
        },
        "views": views or {},
        "policies": [
            {
                "id": "own",
                "table": "owned",
                "grantees": ["allUsers"],
                "filter": "email = SESSION_USER()",
                "dialect": "bigquery",
            }
        ],
    }
    document = parse_document(body).document
    catalog = catalog_of([document])
    rewriter = Rewriter(catalog, through) if through else Rewriter(catalog)
    return LocalRewriter(catalog, policy_set_of([document]), rewriter)


SERVICE: Final = service()


def some(seed: str) -> list[tuple[str, str]]:
    """Return each spelling at some places."""
    dice = random.Random(seed)
    return [(spelling, place) for spelling in SPELLINGS for place in dice.sample(PLACES, 6)]


def database() -> duckdb.DuckDBPyConnection:
    found = duckdb.connect()
    found.execute(
        """CREATE TABLE free AS SELECT 1 AS id, 'duckdb' AS email; CREATE TABLE owned AS FROM free;
        CREATE TABLE named AS SELECT 1 AS id, 'column' AS "user", 'other' AS "current_user" """
    )
    return found


def written(text: str, dialect: str, caller: str = ALICE, by: LocalRewriter = SERVICE) -> str:
    """Return the rewritten text; empty for a refusal."""
    try:
        return by.rewrite(RewriteRequest(text, dialect, caller))
    except RewriteRefused:
        return ""


def outside_of_quotes(sql: str) -> str:
    return re.sub(r"""'[^']*'|AS "[^"]*"|AS `[^`]*`""", "", sql)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_spelling_at_any_place_asks_for_the_user_of_the_session(dialect: str) -> None:
    columns = COLUMNS[dialect]
    for spelling, place in some(dialect):
        if spelling not in columns:
            text = place.format(u=spelling.format(q=QUOTE[dialect]))
            sql = written(text, dialect)
            assert not _WORDS.search(outside_of_quotes(sql)), (text, sql)


def test_duckdb_answers_no_place_with_its_own_user() -> None:
    texts = [
        place.format(u=spelling.format(q='"'))
        for spelling, place in some("executed")
        if "@@" not in spelling and place.startswith(("SELECT", "WITH"))
    ]
    by = service({f"v{at}": {"sql": text} for at, text in enumerate(texts)})
    statements = [written(text, "duckdb") for text in texts]
    statements += [written(f"SELECT * FROM v{at} AS v", "duckdb", by=by) for at in range(len(texts))]
    assert len(list(filter(None, statements))) > 120
    with database() as found:
        for sql in filter(None, statements):
            rows = found.execute(sql).fetchall()
            assert SERVICE_USER not in str(rows), sql
            assert "email = " not in sql or rows == [] or "UNION" in sql, sql


@pytest.mark.parametrize(
    "text",
    [
        "SELECT user FROM named", 'SELECT "user" FROM named', 'SELECT "current_user" FROM named', "SELECT n.user FROM named AS n",
        "SELECT user FROM (SELECT * FROM named) AS s", "WITH c AS (SELECT * FROM named) SELECT user FROM c",
        "SELECT user FROM (SELECT email AS user FROM free) AS s", "SELECT email AS user FROM free ORDER BY user",
        "SELECT user FROM free JOIN named ON user = email OR TRUE", "WITH c (user) AS (SELECT 1) SELECT user FROM c",
        "SELECT user, count(*) FROM named GROUP BY user", "SELECT email AS user FROM free GROUP BY user",
        "SELECT s.user FROM (VALUES (1)) AS s (user) WHERE user = 1", "SELECT list_transform([1], user -> user) FROM free",
        "SELECT * EXCLUDE (user) FROM named", "UPDATE named SET user = 'x' WHERE user = 'y'", "SELECT {'user': 1} FROM free",
        "SELECT free.id FROM free JOIN named AS user ON user.id = free.id", "SELECT * FROM wide AS w WHERE w.user = 1",
    ],
)  # fmt: skip
def test_a_column_of_that_name_stays_a_column(text: str) -> None:
    assert written(text, "duckdb") == text
    if "wide" not in text:
        with database() as found:
            assert SERVICE_USER not in str(found.execute(text.replace("email AS user", "'e' AS user")).fetchall())


@pytest.mark.parametrize("dialect", ["bigquery", "trino"])
def test_where_the_engine_knows_no_such_function_the_name_is_a_column(dialect: str) -> None:
    quote = QUOTE[dialect]
    for text in (
        "SELECT user FROM wide",
        f"SELECT {quote}current_user{quote} FROM wide",
        "SELECT session_user FROM wide",
    ):
        assert written(text, dialect) == text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT user FROM wide", "SELECT id FROM free WHERE EXISTS (SELECT 1 FROM named WHERE TRUE) AND email = user_x(user)",
        "SELECT user FROM unnest([{'user': 1}], recursive := true)", "SELECT current_user(1) FROM free",
        "SELECT email AS user, user || 'x' FROM free", "SELECT current_user'x' FROM free",
    ],
)  # fmt: skip
def test_doubt_is_refused(text: str) -> None:
    assert code_of(SERVICE, RewriteRequest(text, "duckdb", ALICE))


def test_the_function_is_seen_where_another_query_has_the_column() -> None:
    """The engine looks for the function before it looks for columns of the queries around."""
    for text in (
        "SELECT (SELECT max(user) FROM free) AS x FROM named",
        "SELECT user AS x FROM free WHERE EXISTS (SELECT user FROM named)",
        "SELECT 1 AS x FROM named WHERE EXISTS (SELECT 1 FROM free WHERE user = 'duckdb')",
    ):
        sql = written(text, "duckdb")
        assert "'alice@example.com'" in sql
        with database() as found:
            assert found.execute(text).fetchall() != found.execute(sql).fetchall()


DYNAMIC: Final = "SELECT id, CASE WHEN {u} = 'svc' THEN email ELSE '***' END AS email FROM free"


@pytest.mark.parametrize("user", ["CURRENT_USER", "session_user()", "current_user()"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_view_shows_values_to_its_reader_and_not_to_the_session(dialect: str, user: str) -> None:
    views = {"v": {"sql": DYNAMIC.format(u=user)}, "around": {"sql": "SELECT * FROM v AS x"}}
    by = service(views)
    for name in ("v", "around", "memory.main.v"):
        sql = written(f"SELECT email FROM {name}", dialect, by=by)
        assert "CASE WHEN 'alice@example.com' = 'svc'" in sql
        assert "'svc' = 'svc'" in written(f"SELECT email FROM {name}", dialect, "user:svc", by)
        with pytest.raises(RewriteRefused, match="user's name"):
            by._rewriter.filter(("memory", "main", "around"), dialect, CallerIdentity(ALICE), by._policies)


def test_a_view_of_an_owner_runs_with_the_name_of_the_owner() -> None:
    views = {"v": {"sql": DYNAMIC.format(u="current_user"), "owner": "user:owner@example.com"}}
    text = "SELECT email FROM v WHERE email <> current_user"
    sql = written(text, "duckdb", by=service(views))
    assert "CASE WHEN 'owner@example.com' = 'svc'" in sql
    assert "email <> 'alice@example.com'" in sql
    assert "CASE WHEN 'alice@example.com' = 'svc'" in written(text, "duckdb", by=service(views, Through("caller")))
    assert (
        code_of(service(views, Through("both")), RewriteRequest(text, "duckdb", ALICE)) == errors.UNSUPPORTED_FUNCTION
    )
    assert written(text, "duckdb", "user:owner@example.com", service(views, Through("both")))


@pytest.mark.parametrize(
    "condition",
    [
        "current_role = 'admin'", "current_role() = 'admin'", "current_schema() = 'private'", "current_schema = 'private'",
        '"current_schema" = \'private\'', "current_catalog = 'x'", "current_database() = 'x'", "current_schemas(true) IS NULL",
        "EXISTS (SELECT 1 FROM information_schema.enabled_roles)", "EXISTS (SELECT 1 FROM information_schema.APPLICABLE_ROLES)",
    ],
)  # fmt: skip
def test_a_view_decides_by_nothing_of_the_session(condition: str) -> None:
    views = {"v": {"sql": f"SELECT id, CASE WHEN {condition} THEN email END AS email FROM free"}}
    assert not written("SELECT * FROM v", "duckdb", by=service(views))


@pytest.mark.parametrize(
    "word", ["current_path", "CURRENT_PATH", "current_schema", "Current_Schema", "current_catalog"]
)
@pytest.mark.parametrize(
    "place", ["WHERE {w} = 'x'", "WHERE id IN (SELECT id FROM free WHERE {w} <> 'x')", "ORDER BY {w}"]
)
def test_a_view_of_trino_decides_by_no_place_of_the_session(word: str, place: str) -> None:
    """The words are reserved: without quotes they are never a column."""
    text = f"SELECT id FROM free {place.format(w=word)}"
    by = service({"v": {"sql": text}, "q": {"sql": text.replace(word, f'"{word}"')}})
    assert not written("SELECT * FROM v", "trino", by=by)
    assert written("SELECT * FROM q", "trino", by=by)
    assert written(text, "trino") == text


KEYS: Final = (
    "SELECT id FROM free ORDER BY {u}", "SELECT id FROM free ORDER BY ({u}) DESC, id", "SELECT DISTINCT ON ({u}) id FROM free",
    "SELECT DISTINCT ON (id, {u}) id FROM free", "SELECT string_agg(email, ',' ORDER BY {u}) AS x FROM free",
    "SELECT count(*) AS n FROM free GROUP BY {u}", "SELECT id FROM free GROUP BY id, ({u}) ORDER BY id, {u} LIMIT 1",
    "SELECT id FROM (SELECT id FROM free ORDER BY {u} LIMIT 1) AS s", "SELECT id FROM free ORDER BY lower({u})",
    "SELECT row_number() OVER (PARTITION BY {u} ORDER BY {u}) AS x FROM free", "SELECT {u} AS x FROM free ORDER BY {u}",
)  # fmt: skip


@pytest.mark.parametrize("user", ["user", "current_user", "session_user", '"user"'])
def test_duckdb_orders_and_groups_by_the_name_of_the_reader(user: str) -> None:
    """DuckDB refuses to order by a literal."""
    by = service({f"v{at}": {"sql": text.format(u=user)} for at, text in enumerate(KEYS)})
    with database() as found:
        for at, text in enumerate(KEYS):
            for statement in (text.format(u=user), f"SELECT * FROM v{at} AS v"):
                sql = written(statement, "duckdb", by=by)
                assert "'alice@example.com'" in sql, text
                assert found.execute(sql).fetchall() in ([(1,)], [("duckdb",)], [("alice@example.com",)]), sql


def test_bigquery_orders_by_a_typed_literal_and_has_no_prefix() -> None:
    sql = written("SELECT id FROM free ORDER BY SESSION_USER()", "bigquery")
    assert sql == "SELECT id FROM free ORDER BY CAST('alice@example.com' AS STRING)"
    for text in (
        "SAFE.SESSION_USER()",
        "SAFE . SESSION_USER()",
        "safe.session_user ()",
        "SAFE. /* x */ SESSION_USER()",
    ):
        with pytest.raises(RewriteRefused, match="has a prefix here: write the name alone"):
            SERVICE.rewrite(RewriteRequest(f"SELECT {text} AS x FROM free", "bigquery", ALICE))


@pytest.mark.parametrize(
    "text", ["SELECT current_schema()", "SELECT current_database() AS d", "SELECT CURRENT_DATE FROM free"]
)
def test_a_statement_may_ask_for_the_schema_and_the_time(text: str) -> None:
    assert written(text, "duckdb") == text


def test_views_that_keep_the_name_of_the_user_are_new_and_not_materialized() -> None:
    text = "CREATE VIEW nv AS SELECT id, current_user AS who FROM free"
    assert written(text, "duckdb") == text
    views = {"nv": {"sql": "SELECT 1 AS id"}}
    for refused in (
        "CREATE TEMP VIEW nw AS SELECT current_user AS who",
        "CREATE OR REPLACE VIEW nv AS SELECT current_user AS who",
    ):
        assert not written(refused, "duckdb", by=service(views))
    assert not written("CREATE MATERIALIZED VIEW nw AS SELECT current_user AS who FROM free", "trino")


def test_a_name_with_quotes_stays_a_text() -> None:
    sql = written("SELECT current_user AS x FROM free", "duckdb", "user:o'; DROP TABLE free; --")
    with database() as found:
        assert found.execute(sql).fetchall() == [("o'; DROP TABLE free; --",)]
    assert not written("SELECT current_user AS x FROM free", "spark", "user:${env:HOME}")
    assert (
        written("SELECT current_user FROM free", "spark", "user:a\\'b")
        == "SELECT 'a\\\\\\'b' AS `current_user` FROM free"
    )


def test_the_outputs_of_a_query_keep_their_names() -> None:
    by = service({"v": {"sql": "SELECT id, current_user FROM free"}})
    with database() as found:
        sql = written("SELECT v.current_user FROM v", "duckdb", by=by)
        assert found.execute(sql).fetchall() == [("alice@example.com",)]
