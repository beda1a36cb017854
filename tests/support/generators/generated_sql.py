"""Random statements over the recorded tables and views, for DuckDB. A seed gives the same statement always.

Results are certain: no LIMIT without an order of all columns, no window over an order with ties, no failing cast.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

NUMBER, TEXT = "number", "text"
Columns = dict[str, str]
_TABLES: Final[dict[str, Columns]] = {
    "lake.sales.orders": {"id": NUMBER, "customer_id": NUMBER, "region": TEXT, "amount": NUMBER, "status": TEXT},
    "lake.sales.customers": {"id": NUMBER, "name": TEXT, "region": TEXT, "tier": NUMBER},
    "lake.sales.items": {"order_id": NUMBER, "sku": TEXT, "qty": NUMBER},
    "lake.sales.leads": {"id": NUMBER, "region": TEXT, "score": NUMBER},
    "lake.archive.orders": {"id": NUMBER, "customer_id": NUMBER, "region": TEXT, "amount": NUMBER},
    "lake.hr.emp": {"id": NUMBER, "mgr_id": NUMBER, "name": TEXT, "dept": TEXT},
    "lake.ref.regions": {"region": TEXT, "zone": TEXT},
}
_VIEWS: Final[dict[str, Columns]] = {
    "lake.sales.v_orders": {"id": NUMBER, "region": TEXT, "amount": NUMBER},
    "lake.sales.v_big": {"id": NUMBER, "amount": NUMBER},
    "lake.sales.v_join": {"oid": NUMBER, "cname": TEXT},
    "lake.sales.v_agg": {"region": TEXT, "n": NUMBER, "s": NUMBER},
    "lake.sales.v_cols": {"k": NUMBER, "amt": NUMBER},
    "lake.sales.v_cte": {"id": NUMBER, "amount": NUMBER},
    "lake.sales.v_union": {"id": NUMBER, "region": TEXT},
    "lake.archive.v_local": {"id": NUMBER, "amount": NUMBER},
    "lake.sales.n1": {"id": NUMBER, "region": TEXT, "amount": NUMBER},
    "lake.sales.n3": {"id": NUMBER, "region": TEXT, "amount": NUMBER},
    "lake.sales.n8": {"id": NUMBER, "status": TEXT},
}
RELATIONS: Final = {**_TABLES, **_VIEWS}
_SHADOWS: Final = ("orders", "Customers", "user_regions", "v_orders", "regions", "x", "y")
"""Names of common table expressions: most are names of relations, too."""


@dataclass
class _Source:
    """Source of a query: its SQL, and the qualifier and columns that the query may use."""

    sql: str
    name: str
    columns: Columns


@dataclass
class SqlGenerator:
    """Generator of statements from one random state."""

    random: random.Random
    _names: int = 0
    _common: list[dict[str, Columns]] = field(default_factory=list)

    def statement(self) -> tuple[str, str]:
        """Return a statement, and the query that shows what the statement did; empty for a query."""
        if self.random.random() < 0.2:
            return self._change()
        return self.query(3), ""

    def query(self, depth: int) -> str:
        """Return a query of any number of columns."""
        make: Callable[[int], str] = self.random.choice(
            [self._plain, self._plain, self._grouped, self._starred, self._set_operation, self._with, self._windowed]
        )
        return make(depth)

    def _change(self) -> tuple[str, str]:
        pairs = self._pairs(2)
        condition = self._condition([_Source("", "daily", {"region": TEXT, "total": NUMBER})], 2)
        merge = (
            f"MERGE INTO sink t USING (SELECT DISTINCT c0 FROM ({pairs}) m) s ON t.id = s.c0 "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.c0, 'new')"
        )
        return self.random.choice(
            [
                (merge, "SELECT * FROM sink"),
                (f"INSERT INTO sink {pairs}", "SELECT * FROM sink"),
                (f"INSERT INTO lake.sales.sink (id, note) {self._with_pairs(2)}", "SELECT * FROM sink"),
                (f"DELETE FROM sink WHERE id IN ({self._single(NUMBER, 2)})", "SELECT * FROM sink"),
                (f"DELETE FROM sink USING ({pairs}) u WHERE sink.id = u.c0", "SELECT * FROM sink"),
                (f"UPDATE daily SET total = (SELECT COALESCE(SUM(c0), 0) FROM ({pairs}) s)", "SELECT * FROM daily"),
                (f"UPDATE daily SET total = 1 FROM ({pairs}) s WHERE s.c1 = daily.region", "SELECT * FROM daily"),
                (f"UPDATE sales.daily SET total = -1 WHERE {condition}", "SELECT * FROM daily"),
                (f"CREATE TABLE lake.sales.made AS {pairs}", "SELECT * FROM lake.sales.made"),
                ("MERGE INTO sink t USING leads ON t.id = leads.id WHEN MATCHED THEN DELETE", "SELECT * FROM sink"),
            ]
        )

    # --- queries -------------------------------------------------------------------------------------------------

    def _plain(self, depth: int) -> str:
        sources, from_ = self._sources(depth)
        shown = [
            self._value(self.random.choice([NUMBER, TEXT]), sources, depth) for _ in range(self.random.randint(1, 3))
        ]
        distinct = self.random.choice(["", "", "DISTINCT "])
        items = ", ".join(f"{sql} AS c{at}" for at, sql in enumerate(shown))
        order = f" ORDER BY ALL LIMIT {self.random.randint(1, 9)}" if self.random.random() < 0.2 else ""
        return f"SELECT {distinct}{items} FROM {from_}{self._where(sources, depth)}{order}"

    def _grouped(self, depth: int) -> str:
        sources, from_ = self._sources(depth)
        key = self._column(TEXT, sources)
        number = self._value(NUMBER, sources, 0)
        having = ""
        if self.random.random() < 0.4:
            having = f" HAVING COUNT(*) > (SELECT COUNT(*) - 9 FROM ({self._single(NUMBER, depth - 1)}) h)"
        group = self.random.choice([key, f"ROLLUP ({key})", f"GROUPING SETS (({key}), ())"])
        return (
            f"SELECT {key} AS c0, COUNT(*) AS c1, SUM({number}) AS c2, COUNT(DISTINCT {number}) AS c3 "
            f"FROM {from_}{self._where(sources, depth)} GROUP BY {group}{having}"
        )

    def _starred(self, depth: int) -> str:
        name, columns = self._relation()
        sql, qualifier = self._reference(name)
        shown = self.random.choice(["*", f"{qualifier}.*", f"* EXCLUDE ({next(iter(columns))})"])
        number = next((column for column, kind in columns.items() if kind == NUMBER), "")
        if number and self.random.random() < 0.4:
            shown = f"* REPLACE ((SELECT MAX(c0) FROM ({self._single(NUMBER, depth - 1)}) r) AS {number})"
        source = _Source(sql, qualifier, columns)
        return f"SELECT {shown} FROM {sql}{self._where([source], depth)}"

    def _set_operation(self, depth: int) -> str:
        sign = self.random.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL", "UNION BY NAME"])
        left, right = self._pairs(depth - 1), self._pairs(depth - 1)
        return f"({left}) {sign} ({right})" if self.random.random() < 0.5 else f"{left} {sign} {right}"

    def _windowed(self, depth: int) -> str:
        sources, from_ = self._sources(depth)
        number, text = self._value(NUMBER, sources, 0), self._column(TEXT, sources)
        limit = self._single(NUMBER, depth - 1)
        qualify = f" QUALIFY SUM({number}) OVER () > (SELECT COALESCE(MIN(c0), 0) FROM ({limit}) q)"
        return (
            f"SELECT {text} AS c0, {number} AS c1, COUNT(*) OVER (PARTITION BY {text}) AS c2, "
            f"RANK() OVER (ORDER BY {number}) AS c3 FROM {from_}{self._where(sources, depth)}"
            f"{self.random.choice(['', qualify])}"
        )

    def _with(self, depth: int) -> str:
        if self.random.random() < 0.2:
            return (
                "WITH RECURSIVE t AS (SELECT id, mgr_id, 0 AS level FROM hr.emp WHERE mgr_id IS NULL UNION ALL "
                "SELECT e.id, e.mgr_id, t.level + 1 FROM lake.hr.emp e JOIN t ON e.mgr_id = t.id WHERE t.level < 5) "
                f"SELECT COUNT(*) AS c0, MAX(level) AS c1 FROM t, ({self._single(NUMBER, depth - 1)}) z"
            )
        return self._with_pairs(depth)

    def _with_pairs(self, depth: int) -> str:
        if self.random.random() < 0.2:
            # a name of a table that is a common table expression further on alone
            later, number = self.random.choice([("orders", "amount"), ("customers", "tier"), ("v_orders", "id")])
            own = f"SELECT {number} AS c0, region AS c1 FROM {later}"
            return f"WITH x AS ({own}), {later} AS ({self._pairs(1)}) SELECT x.c0, x.c1 FROM x, {later}"
        bodies = []
        common: dict[str, Columns] = {}
        self._common.append(common)
        for name in self.random.sample(_SHADOWS, self.random.randint(1, 2)):
            bodies.append(f"{name} AS {self.random.choice(['', 'MATERIALIZED '])}({self._pairs(depth - 1)})")
            common[name] = {"c0": NUMBER, "c1": TEXT}
        query = self._pairs(min(depth - 1, 1))
        self._common.pop()
        return f"WITH {', '.join(bodies)} {query}"

    def _pairs(self, depth: int) -> str:
        """Return a query of a number and a text."""
        chance = self.random.random()
        if depth > 1 and chance < 0.1:
            return self._with_pairs(depth)
        if depth > 1 and chance < 0.2:
            sign = self.random.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
            left = self._pairs(1)
            right = left if sign == "INTERSECT" else self._pairs(depth - 1)  # two random queries share few rows
            return f"({left}) {sign} ({right})"
        sources, from_ = self._sources(depth)
        number, text = self._value(NUMBER, sources, depth), self._value(TEXT, sources, depth)
        return f"SELECT {number} AS c0, {text} AS c1 FROM {from_}{self._where(sources, depth)}"

    def _single(self, kind: str, depth: int) -> str:
        sources, from_ = self._sources(depth)
        return f"SELECT {self._value(kind, sources, depth - 1)} AS c0 FROM {from_}{self._where(sources, depth - 1)}"

    # --- sources -------------------------------------------------------------------------------------------------

    def _sources(self, depth: int) -> tuple[list[_Source], str]:
        sources = [self._source(depth)]
        sql = sources[0].sql
        while len(sources) < 3 and self.random.random() < (0.35 if depth > 1 else 0.1):
            source = self._source(depth - 1)
            if any(source.name.lower() == other.name.lower() for other in sources):
                continue
            kind = self.random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", ",", "SEMI JOIN"])
            if kind in ("CROSS JOIN", ","):
                sql += f"{kind if kind == ',' else ' ' + kind} {source.sql}"
            else:
                on = f"{self._column(TEXT, sources)} = {self._column(TEXT, [source])}"
                sql += f" {kind} {source.sql} ON {on}"
                if kind == "SEMI JOIN":
                    break
            sources.append(source)
        return sources, sql

    def _source(self, depth: int) -> _Source:
        common = {name: columns for names in self._common for name, columns in names.items()}
        chance = self.random.random()
        if common and chance < 0.5:
            name = self.random.choice(sorted(common))
            alias = self._alias()
            return _Source(f"{self.random.choice([name, name.upper()])} {alias}", alias, common[name])
        if depth > 1 and chance < 0.7:
            alias = self._alias()
            if self.random.random() < 0.2:
                values = "(1, 'EU'), (2, 'US'), (NULL, NULL)"
                return _Source(f"(VALUES {values}) AS {alias}(c0, c1)", alias, {"c0": NUMBER, "c1": TEXT})
            lateral = self.random.choice(["", "", "LATERAL "])
            return _Source(f"{lateral}({self._pairs(depth - 1)}) {alias}", alias, {"c0": NUMBER, "c1": TEXT})
        name, columns = self._relation()
        while not {NUMBER, TEXT} <= set(columns.values()):
            name, columns = self._relation()
        sql, qualifier = self._reference(name)
        return _Source(sql, qualifier, columns)

    def _relation(self) -> tuple[str, Columns]:
        name = self.random.choice(sorted(_TABLES if self.random.random() < 0.6 else RELATIONS))
        return name, RELATIONS[name]

    def _reference(self, name: str) -> tuple[str, str]:
        """Return a relation as written, and the name for its columns."""
        catalog, schema, table = name.split(".")
        shadowed = {shadow.lower() for names in self._common for shadow in names}
        forms = [name, f"{schema}.{table}", f'"{catalog}"."{schema}"."{table}"', name.upper()]
        if schema == "sales" and table not in shadowed and table not in {shadow.lower() for shadow in _SHADOWS}:
            forms.append(table)
        if schema == "sales" and table not in shadowed:
            forms.append(f"{table}")
        written = self.random.choice(forms)
        if self.random.random() < 0.6:
            alias = self._alias()
            return f"{written} {self.random.choice(['', 'AS '])}{alias}", alias
        return written, self.random.choice([table, f"{schema}.{table}"])

    def _alias(self) -> str:
        self._names += 1
        return f"a{self._names}"

    # --- expressions ---------------------------------------------------------------------------------------------

    def _column(self, kind: str, sources: list[_Source]) -> str:
        found = [
            f"{source.name}.{column}" for source in sources for column, type in source.columns.items() if type == kind
        ]
        return self.random.choice(found) if found else ("0" if kind == NUMBER else "'EU'")

    def _value(self, kind: str, sources: list[_Source], depth: int) -> str:
        column = self._column(kind, sources)
        chance = self.random.random()
        if depth > 1 and chance < 0.15:
            return f"(SELECT MAX(c0) FROM ({self._single(kind, depth - 1)}) s)"
        if depth > 1 and kind == NUMBER and chance < 0.2:
            return f"COALESCE((SELECT MIN(c0) FROM ({self._single(kind, depth - 1)}) s), 0)"
        if depth > 1 and chance < 0.25:
            return f"CASE WHEN {self._condition(sources, depth - 1)} THEN {column} END"
        if kind == NUMBER:
            return self.random.choice([column, f"COALESCE({column}, 0) + 1", f"({column} % 7)"])
        return self.random.choice([column, f"UPPER({column})", f"COALESCE({column}, '-') || 'x'"])

    def _where(self, sources: list[_Source], depth: int) -> str:
        return f" WHERE {self._condition(sources, depth)}" if self.random.random() < 0.6 else ""

    def _condition(self, sources: list[_Source], depth: int) -> str:
        number, text = self._column(NUMBER, sources), self._column(TEXT, sources)
        plain = [
            f"{number} > {self.random.randint(0, 700)}", f"{text} = 'EU'", f"{text} IS NULL", f"{text} <> 'US'",
            f"{number} IN (1, 2, 3, 10, 20)", f"TRUE OR {text} = 'JP'", f"{text} LIKE '%a%'",
        ]  # fmt: skip
        if depth <= 1 or self.random.random() < 0.5:
            return self.random.choice(plain)
        inner = self._source(1)
        correlated = f"{self._column(TEXT, [inner])} = {text}"
        return self.random.choice(
            [
                f"{number} IN ({self._single(NUMBER, depth - 1)})",
                f"({self._condition(sources, depth)})",
                f"{number} NOT IN (SELECT COALESCE(c0, -1) FROM ({self._single(NUMBER, depth - 1)}) n)",
                f"EXISTS (SELECT 1 FROM {inner.sql} WHERE {correlated})",
                f"NOT EXISTS (SELECT 1 FROM {inner.sql} WHERE {correlated})",
                f"{number} >= ALL ({self._single(NUMBER, depth - 1)})",
                f"{self.random.choice(plain)} OR {self._condition(sources, depth - 1)}",
            ]
        )
