"""Answers of the report: values that the page, the files and the tables of the lake are made of. Knows no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

Cell: TypeAlias = str | int | float | bool | date | datetime | None
CellType: TypeAlias = Literal["text", "number", "share", "flag", "time", "day"]


class ReportColumn(msgspec.Struct, frozen=True):
    """Column of an answer."""

    name: str
    type: CellType


class Remainder(NamedTuple):
    """Rows that are not shown: their number, and sums of columns."""

    rows: int
    sums: Mapping[str, int]


class ReportAnswer(msgspec.Struct, frozen=True):
    """Answer to a question: the first rows in its order. `others` counts further rows, `rest` has sums over those."""

    name: str
    title: str
    text: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    others: int = 0
    rest: Mapping[str, int] = {}
    sums: tuple[str, ...] = ()

    def types(self) -> dict[str, CellType]:
        """Return the types of the columns by name."""
        return {column.name: column.type for column in self.columns}

    def after(self, shown: int) -> Remainder:
        """Return the rows after the first ones: those at hand, and those that the lake has left out."""
        left = self.records()[shown:]
        sums = {name: self.rest.get(name, 0) + sum(row[name] or 0 for row in left) for name in self.sums}
        return Remainder(len(left) + self.others, sums)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as objects."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


class Report(msgspec.Struct, frozen=True):
    """All answers, by name. `first` and `last` are the days of the records; `days` is the time without use."""

    source: str
    first: datetime | None
    last: datetime | None
    days: int
    made: datetime
    answers: Mapping[str, ReportAnswer]
    note: str = ""

    def records(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of an answer as objects; none if there is no such answer."""
        answer = self.answers.get(name)
        return answer.records() if answer else []

    def total(self, name: str) -> Any:
        """Return a value of the one row of totals; 0 for none."""
        totals = self.records("totals")
        return (totals[0].get(name) if totals else None) or 0
