"""Statements for engines beside DuckDB: the recorded cases and generated ones, with the rows that DuckDB gives.

Wanted rows come from tables with the visible rows and values alone, made without the rewriter.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import sqlglot
from sqlglot.errors import SqlglotError
from support.generators.generated_sql import SqlGenerator
from support.oracles.equivalence import CALLERS, DATA, service_of
from support.oracles.secure_views import filtered_database, random_masks, random_policies
from support.rewriting import full_database, plain_value, recorded_cases, rows_of, sorted_rows

from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest

_TRAVEL: Final = re.compile(r"\b(?:AS\s+OF|SYSTEM_TIME)\b", re.IGNORECASE)


_CAPITALS: Final = re.compile(r"\bLAKE\.[A-Z_.]+")
_ONLY_DUCKDB: Final = re.compile(
    r"ALL \(SELECT|\* REPLACE|\* EXCLUDE|QUALIFY|GROUPING SETS|ROLLUP|BY NAME|SEMI JOIN|ORDER BY ALL"
)
"""Forms that other engines do not have, or read otherwise. An empty set of groups has a row in DuckDB alone."""


@dataclass(frozen=True)
class EngineCase:
    """Statement in the dialect of an engine, for a caller. `after` is the query for the result of a change.

    `duckdb` is the statement for DuckDB.
    """

    id: str
    sql: str
    caller: str
    rows: list[list[Any]]
    ordered: bool = False
    after: str = ""
    duckdb: str = ""

    def request(self, dialect: str) -> RewriteRequest:
        who = DATA["callers"][self.caller]
        return RewriteRequest(
            self.sql, dialect, who["principal"], tuple(who["groups"]), authenticated=who["authenticated"]
        )


class EngineError(Exception):
    """Statement that an engine cannot run."""


Execute = Callable[[str], list[list[Any]]]
"""Runs a statement on the full tables and returns the rows; raises EngineError."""


@dataclass(frozen=True)
class Way:
    """Way of a case to its rows: the statement for the engine, and the engine for the caller and for everything."""

    statement: Callable[[EngineCase], str]
    ask: Callable[[EngineCase, str], list[list[Any]]]
    execute: Execute


def rewriting(service: LocalRewriter, dialect: str, execute: Execute) -> Way:
    """Return the way by rewritten statements."""
    return Way(lambda case: service.rewrite(case.request(dialect)), lambda _, sql: execute(sql), execute)


@dataclass
class Tally:
    """Outcomes of cases by kind, and the differences."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: str, note: str = "") -> None:
        self.outcomes[kind] += 1
        if note:
            self.notes.append(f"{kind}: {note}")


def recorded(dialect: str) -> Iterator[EngineCase]:
    """Yield the recorded cases with rows that can be said in a dialect."""
    for case in recorded_cases():
        wanted = case["expect"]
        if "rows" in wanted and not _TRAVEL.search(case["sql"]):
            sql = _translated(case["sql"], case["dialect"], dialect)
            if sql:
                yield EngineCase(
                    case["id"], sql, case["caller"], wanted["rows"], wanted["ordered"],
                    _translated(case.get("after", ""), "duckdb", dialect), _translated(case["sql"], case["dialect"], "duckdb"),
                )  # fmt: skip


@dataclass(frozen=True)
class World:
    """Random policies and masks, a caller, and statements with the rows that the caller must get."""

    service: LocalRewriter
    cases: list[EngineCase]


def worlds(dialect: str, seed: int, count: int, size: int) -> Iterator[World]:
    """Yield worlds of generated queries. Masks hold in every world where one names the caller."""
    dice = random.Random(seed)
    for at in range(count):
        policies, caller = random_policies(dice), dice.choice(CALLERS)
        masks = [mask | ({"dialect": dialect} if "dialect" in mask else {}) for mask in _masks(dice)]
        filtered = filtered_database(policies, caller, masks)
        cases = list(_generated(filtered, dialect, caller, (dice, f"{seed}-{at}", size)))
        filtered.close()
        yield World(service_of(policies, masks), cases)


def _masks(dice: random.Random) -> list[dict[str, Any]]:
    while not (masks := random_masks(dice)):
        pass
    return masks


def _generated(
    filtered: duckdb.DuckDBPyConnection, dialect: str, caller: str, choice: tuple[random.Random, str, int]
) -> Iterator[EngineCase]:
    dice, name, size = choice
    found = 0
    while found < size:
        text = SqlGenerator(random.Random(dice.random())).query(3)
        # Catalogs of folders know one spelling of a name.
        text = _CAPITALS.sub(lambda name: name[0].lower(), text).replace("AS MATERIALIZED", "AS")
        sql = "" if _ONLY_DUCKDB.search(text) else _translated(text, "duckdb", dialect)
        try:
            rows = rows_of(filtered, text)[1]
        except duckdb.Error:
            continue
        if sql:
            found += 1
            yield EngineCase(f"{name}-{found}", sql, caller, rows, duckdb=text)


def _translated(sql: str, source: str, dialect: str) -> str:
    """Return a statement in another dialect; empty if the library cannot say the statement there."""
    if not sql or source == dialect:
        return sql
    try:
        return sqlglot.transpile(sql, read=source, write=dialect, unsupported_level=sqlglot.ErrorLevel.RAISE)[0]
    except SqlglotError:
        return ""


def run_case(case: EngineCase, way: Way, tally: Tally) -> None:
    """Run a case on an engine, and note what comes out.

    Where the rows differ, the engine may differ from DuckDB: then the statement of the caller differs on open tables.
    """
    try:
        sql = way.statement(case)
    except RewriteRefused as error:
        tally.add("refused", f"{case.id} {error.rap} {error}: {case.sql}")
        return
    try:
        rows = _rows(case, sql, lambda text: way.ask(case, text))
    except EngineError as error:
        try:
            _rows(case, case.sql, way.execute)
        except EngineError:
            tally.add("not of the engine", f"{case.id} {case.sql}: {error}")
            return
        tally.add("broken")
        tally.wrong.append(f"{case.id} {case.caller}: {case.sql}\n  -> {sql}\n  {error}")
        return
    if rows == _comparable(case.rows, case.ordered):
        tally.add("same")
    elif _differs_on_open_tables(case, way.execute):
        tally.add("another engine", f"{case.id} {case.sql}")
    else:
        tally.add("differs")
        tally.wrong.append(f"{case.id} {case.caller}: {case.sql}\n  -> {sql}\n  {rows}\n  wanted {case.rows}")


def _rows(case: EngineCase, sql: str, execute: Execute) -> list[list[Any]]:
    rows = execute(sql)
    return _comparable(execute(case.after) if case.after else rows, case.ordered)


def _comparable(rows: Sequence[Sequence[Any]], ordered: bool) -> list[list[Any]]:
    plain = [list(map(plain_value, row)) for row in rows]
    return plain if ordered else sorted_rows(plain)


def _differs_on_open_tables(case: EngineCase, execute: Execute) -> bool:
    """Tell whether engine and DuckDB give different rows for the statement of the caller on the full tables."""
    if case.after or not case.duckdb:
        return False
    database = full_database(DATA)
    try:
        return rows_of(database, case.duckdb, ordered=case.ordered)[1] != _rows(case, case.sql, execute)
    except (duckdb.Error, EngineError):
        return False
    finally:
        database.close()
