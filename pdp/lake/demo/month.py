"""Month of a small company as requests: working hours, habits, and a few events that an auditor should notice.

Pure: sends nothing. The requests are those of engines, catalogs and tools. Queries of a person follow the interests of
the team; within a namespace the tables follow Zipf's law, and so do the members of a team. The same seed gives the same
month.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pdp.lake.demo.company import IDP, WAREHOUSE, Company, Team

Sender: TypeAlias = Literal["trino", "svc-catalog", "svc-console", "svc-airflow", "svc-old-etl"]
"""Sender of a request: Trino is known by its address, all others by the subject of a token."""
CATALOG: Final = "lakehouse"
TableName: TypeAlias = tuple[str, str]
"""Namespace and name."""


class PlayedRequest(msgspec.Struct, frozen=True, order=True):
    """A request, or the start of new policies where there is no `path`. `time` in seconds since 1970."""

    time: float
    path: str
    body: bytes = b""
    sender: Sender = "trino"


def select_query(time: float, user: str, table: TableName, query: str) -> PlayedRequest:
    """Return the request of Trino before a query of a user reads a table or view."""
    resource = {"table": {**_trino_table(table), "columns": ["id", "updated_at"]}}
    return _trino("allow", time, user, {"operation": "SelectFromColumns", "resource": resource}, query)


def insert_query(time: float, user: str, table: TableName, query: str) -> PlayedRequest:
    """Return the request of Trino before a user inserts rows into a table."""
    action = {"operation": "InsertIntoTable", "resource": {"table": _trino_table(table)}}
    return _trino("allow", time, user, action, query)


def row_filter(time: float, user: str, table: TableName, query: str) -> PlayedRequest:
    """Return the request of Trino for the visible rows of a table."""
    action = {"operation": "GetRowFilters", "resource": {"table": _trino_table(table)}}
    return _trino("rowFilters", time, user, action, query)


def column_masks(time: float, user: str, table: TableName, columns: Sequence[str], query: str) -> PlayedRequest:
    """Return the request of Trino for the masks of columns."""
    place = _trino_table(table)
    resources = [{"column": {**place, "columnName": name, "columnType": "varchar"}} for name in columns]
    return _trino("batchColumnMasks", time, user, {"operation": "GetColumnMask", "filterResources": resources}, query)


def show_tables(time: float, user: str, tables: Sequence[TableName], query: str) -> PlayedRequest:
    """Return the request of Trino for the tables that a user sees in a list."""
    resources = [{"table": _trino_table(table)} for table in tables]
    return _trino("batch", time, user, {"operation": "FilterTables", "filterResources": resources}, query)


def load_through_views(time: float, user: str, table: TableName, chain: Sequence[tuple[str, str]]) -> PlayedRequest:
    """Return the request of a catalog for a table that a user reaches through views, each with the user it runs as."""
    body = {
        "principal": f"user:{IDP}~{user}",
        "action": "loadTable",
        "target": f"table:{WAREHOUSE}/{table[0]}/{table[1]}",
        "referencedBy": [["reports", view] for view, _ in chain],
        "views": [
            {
                "resource": f"view:{WAREHOUSE}/reports/{view}",
                "properties": {"trino.run-as-owner": owner} if owner else {},
            }
            for view, owner in chain
        ],
        "caller": {"idp": IDP, "subject": "svc-trino", "audiences": ["trino"]},
    }
    return _request(time, "/v1/load", body, "svc-catalog")


def check_tables(time: float, action: str, tables: Sequence[TableName]) -> PlayedRequest:
    """Return the request of the scheduler before a job does something to tables."""
    checks = [{"action": action, "resource": f"table:{WAREHOUSE}/{namespace}/{table}"} for namespace, table in tables]
    return _request(time, "/v1/check", {"checks": checks}, "svc-airflow")


def check_for(time: float, user: str, action: str, table: TableName) -> PlayedRequest:
    """Return the request of a catalog that a program of a user asked for a table."""
    resource = f"table:{WAREHOUSE}/{table[0]}/{table[1]}"
    checks = [{"principal": f"user:{IDP}~{user}", "action": action, "resource": resource}]
    return _request(time, "/v1/check", {"checks": checks}, "svc-catalog")


def change_grants(time: float, actor: str, **changes: Sequence[tuple[str, str, str]]) -> PlayedRequest:
    """Return the request of the console that adds or removes grants: principal, privilege, object."""
    edits = {
        edit: [{"principal": who, "privilege": what, "object": where} for who, what, where in grants]
        for edit, grants in changes.items()
    }
    return _request(time, "/v1/grants", {"actor": f"user:{IDP}~{actor}", **edits}, "svc-console")


def malformed_check(time: float) -> PlayedRequest:
    """Return a request of a client with a mistake: the service refuses it as a whole."""
    return PlayedRequest(time, "/v1/check", b'{"checks":[{"action":"read_data","resource":', "svc-catalog")


def unknown_token(time: float) -> PlayedRequest:
    """Return a request with a token that is not valid any more."""
    return _request(time, "/v1/check", {"checks": []}, "svc-old-etl")


def new_policies(time: float) -> PlayedRequest:
    """Return the step that restarts the service with other policies."""
    return PlayedRequest(time, "")


def _trino(endpoint: str, time: float, user: str, action: Mapping[str, Any], query: str) -> PlayedRequest:
    context = {"identity": {"user": user, "groups": []}, "queryId": query}
    return _request(time, f"/v1/data/trino/{endpoint}", {"input": {"context": context, "action": action}}, "trino")


def _trino_table(table: TableName) -> dict[str, str]:
    namespace, name = table
    return {"catalogName": CATALOG, "schemaName": namespace, "tableName": name}


def _request(time: float, path: str, body: Any, sender: Sender) -> PlayedRequest:
    return PlayedRequest(time, path, msgspec.json.encode(body), sender)


DAYS: Final = 31
SEED: Final = 20
_HOURS: Final = (1, 0, 0, 0, 0, 2, 6, 24, 70, 100, 98, 90, 48, 70, 98, 95, 82, 52, 22, 10, 8, 7, 5, 2)
"""Weight of each hour (UTC) of a working day."""
_WEEK: Final = (1.0, 1.12, 1.1, 1.02, 0.82, 0.07, 0.05)
"""Share of a day's work, from Monday on."""
_RESTRICTED: Final = {("sales", "orders"), ("sales", "customers")}
REPORTS: Final[tuple[tuple[tuple[tuple[str, str], ...], TableName, int], ...]] = (
    ((("daily_revenue", "lena"),), ("sales", "orders"), 40),
    ((("daily_revenue", "lena"),), ("finance", "ledger"), 26),
    ((("margin", "lena"), ("cost_base", "tomas")), ("finance", "invoices"), 18),
    ((("headcount", "hugo"),), ("hr", "people"), 12),
    ((("campaign_roi", ""),), ("marketing", "campaigns"), 9),
    ((("supplier_costs", "kai"),), ("finance", "payments"), 3),
)
"""Chain of views with the users that they run as, the table behind them, and a weight. `kai` may not read payments."""
CONTRACTOR: Final = "rafael"
CONTRACTOR_LEAVES: Final = 13
NEW_POLICIES: Final = 16
"""Days of the month, from 0, on which the contractor leaves and the policies change."""


class MonthPlan(msgspec.Struct, frozen=True):
    """Choice of a month: the first day, a seed, and the share of the usual work."""

    first: date
    seed: int = SEED
    share: float = 1.0

    def at(self, day: int, hour: float) -> float:
        """Return a time of the month in seconds since 1970."""
        start = datetime.combine(self.first, datetime.min.time(), UTC)
        return (start + timedelta(days=day, hours=hour)).timestamp()

    def weekday(self, day: int) -> int:
        """Return the day of the week: 0 is Monday."""
        return (self.first + timedelta(days=day)).weekday()


def month(company: Company, plan: MonthPlan) -> list[PlayedRequest]:
    """Return all requests of a month, in order of time."""
    played = _Month(company, plan)
    return sorted([*played.work(), *played.reports(), *played.jobs(), *played.events()])


class _Month:
    """Generator of the parts of a month."""

    def __init__(self, company: Company, plan: MonthPlan) -> None:
        self._company = company
        self._plan = plan
        self._random = Random(plan.seed)  # noqa: S311  no secret
        self._queries = 0

    def work(self) -> Iterator[PlayedRequest]:
        """Yield the queries of all people."""
        for day in range(DAYS):
            for role, team in self._company.teams.items():
                for rank, member in enumerate(team.members):
                    if role == "contractor" and day >= CONTRACTOR_LEAVES:
                        continue
                    for time in self._times(day, team.queries * 3 / (1 + rank) ** 0.7):
                        yield from self._query(time, member, team)

    def reports(self) -> Iterator[PlayedRequest]:
        """Yield the loads of reports, mostly by executives and analysts in the morning."""
        readers = [*self._company.teams["executive"].members * 4, *self._company.teams["analyst"].members]
        weights = [weight for *_, weight in REPORTS]
        for day in range(DAYS):
            for hour in range(6, 20, 2):  # the wall screen
                yield load_through_views(self._plan.at(day, hour), "svc-dashboards", REPORTS[0][1], REPORTS[0][0])
            for time in self._times(day, 46):
                chain, table, _ = self._random.choices(REPORTS, weights)[0]
                reader = "nadia" if chain[0][0] == "campaign_roi" else self._random.choice(readers)
                yield load_through_views(time, reader, table, chain)

    def jobs(self) -> Iterator[PlayedRequest]:
        """Yield the jobs of the scheduler: a large one at night, small ones each hour, weekends included."""
        sources = [("raw", name) for name in self._company.tables["raw"][:3]]
        targets = [("staging", name) for name in self._company.tables["staging"]]
        for hour in range(DAYS * 24):
            time = self._plan.at(0, hour) + self._random.uniform(60, 300)
            yield check_tables(time, "read_data", sources)
            yield check_tables(time + 40, "write_data", targets)
            if hour % 24 == 2:
                shop = [
                    (space, name) for space in ("sales", "web", "logistics") for name in self._company.tables[space]
                ]
                yield check_tables(time + 90, "write_data", shop)

    def events(self) -> Iterator[PlayedRequest]:
        """Yield all that is not work as usual."""
        at = self._plan.at
        yield from self._contractor_leaves()
        yield new_policies(at(NEW_POLICIES, 19.5))
        for day in range(3, DAYS):  # a notebook that nobody repaired
            if self._plan.weekday(day) < 5:
                read = partial(check_for, user="nadia", action="read_data", table=("sales", "customers"))
                yield from self._each_minute(day, 7.9, 3, read)
        for day in (9, 10, 18, 23):  # salaries are forbidden to scientists, machines raise
            for hour, user, table in ((14.2, "lucia", ("hr", "salaries")), (11.6, "joao", ("roastery", "machines"))):
                yield from self._each_minute(day, hour, 3, partial(self._select, user=user, table=table))
        for day in (25, 26):  # somebody looks around at night
            tables = [
                ("hr", "people"),
                ("hr", "leave"),
                ("hr", "salaries"),
                ("finance", "payroll"),
                ("raw", "erp_dump"),
            ]
            for number, table in enumerate(tables):
                yield self._select(at(day, 23.2) + 70 * number, "theo", table)
        for day in range(6, 11):  # a service that nobody switched off
            yield from self._each_minute(day, 4, 6, unknown_token)
        yield from self._each_minute(20, 10, 34, malformed_check)  # a client with a mistake, until noon
        for day in range(17, 21):  # a model that waits for its right, then gets it
            write = partial(check_for, user="svc-ml", action="write_data", table=("ml", "predictions"))
            yield from self._each_minute(day, 6.5, 4, write)
        yield change_grants(at(20, 9.7), "anna", add=[("user:oidc~svc-ml", "modify", "table:lake/ml/predictions")])
        for day in range(21, DAYS):
            yield check_for(at(day, 6.5), "svc-ml", "write_data", ("ml", "predictions"))

    def _contractor_leaves(self) -> Iterator[PlayedRequest]:
        """Yield the end of the contractor's rights, and what the contractor tries afterwards."""
        last = self._plan.at(CONTRACTOR_LEAVES, 17.5)
        member = (f"user:oidc~{CONTRACTOR}", "assignee", "role:contractor")
        yield change_grants(last, "anna", remove=[member])
        tables = [*(("raw", name) for name in self._company.tables["raw"]), ("staging", "orders_clean")]
        for day in range(CONTRACTOR_LEAVES, CONTRACTOR_LEAVES + 4):
            for _ in range(9):
                time = self._plan.at(day, self._random.uniform(20, 23.8))
                yield self._select(time, CONTRACTOR, self._random.choice(tables))

    def _query(self, time: float, user: str, team: Team) -> Iterator[PlayedRequest]:
        namespace = self._random.choices(list(team.interests), list(team.interests.values()))[0]
        table = namespace, self._zipf(self._company.tables[namespace])
        chance = self._random.random()
        query = self._query_id(time)
        if chance < 0.04:
            yield show_tables(time, user, self._company.all_tables(), query)
        yield select_query(time, user, table, query)
        if table in _RESTRICTED:
            yield row_filter(time + 0.05, user, table, query)
            yield column_masks(time + 0.06, user, table, ("id", "email", "region"), query)
        if chance > 0.9 and team.writes and namespace == next(iter(team.interests)):
            yield insert_query(time + 20, user, table, self._query_id(time))
        if chance > 0.995:  # curiosity
            yield self._select(time + 45, user, self._random.choice(self._company.all_tables()))

    def _select(self, time: float, user: str, table: TableName) -> PlayedRequest:
        return select_query(time, user, table, self._query_id(time))

    def _query_id(self, time: float) -> str:
        self._queries += 1
        return f"{datetime.fromtimestamp(time, UTC):%Y%m%d_%H%M%S}_{self._queries % 100_000:05}_ferns"

    def _zipf(self, names: Sequence[str]) -> str:
        return self._random.choices(names, [1 / (1 + rank) for rank in range(len(names))])[0]

    def _times(self, day: int, usual: float) -> list[float]:
        """Return times of a day, about as many as usual on a working day."""
        wanted = usual * self._plan.share * _WEEK[self._plan.weekday(day)] * self._random.uniform(0.75, 1.25)
        count = int(wanted) + (self._random.random() < wanted % 1)
        hours = self._random.choices(range(24), _HOURS, k=count)
        return [self._plan.at(day, hour + self._random.random()) for hour in hours]

    def _each_minute(
        self, day: int, hour: float, count: int, request: Callable[[float], PlayedRequest]
    ) -> Iterator[PlayedRequest]:
        for number in range(count):
            yield request(self._plan.at(day, hour) + 60 * number + self._random.uniform(0, 20))
