"""Stored row policies and column masks, and the name under which they cover a table.

Must not know SQL or principals: the row access engine gives policies their meaning.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

FoldedName: TypeAlias = tuple[str, str]
"""Warehouse and path of a table, as policies compare them: the path is one text, joined by dots, in one case."""
TablePath: TypeAlias = tuple[str, ...]
"""Parts of a table or view, warehouse first, as written."""
RuleKey: TypeAlias = tuple[TablePath, str, str]
"""Table, folded column and id of a policy. The column is empty but for a mask."""
DialectText: TypeAlias = tuple[str, str]
"""Dialect of an engine, and the text of a filter or expression in it."""
KnownColumns: TypeAlias = Mapping[FoldedName, Mapping[str, str]]
"""Table -> folded columns with their types."""


def fold_name(warehouse: str, path: Iterable[str]) -> FoldedName:
    """Return the name under which policies cover a table: engines lower names, and Trino writes `[a, b]` as `a.b`."""
    return warehouse, ".".join(path).lower()


def widen_name(name: FoldedName) -> FoldedName:
    """Return a name by full case folding, where `stra\N{LATIN SMALL LETTER SHARP S}e` and `strasse` are equal."""
    return name[0], name[1].casefold()


def fold_column(column: str) -> str:
    """Return the name under which a mask covers a column, by full case folding: in doubt a column is masked."""
    return column.casefold()


class NearNames:
    """Names that are equal to others by full case folding, and not in lower case: engines may differ on them."""

    def __init__(self, names: Iterable[FoldedName]) -> None:
        self._wide = frozenset(wide for name in names if not name[1].isascii() and (wide := widen_name(name)) != name)

    def has_near(self, name: FoldedName, others: Container[FoldedName]) -> bool:
        """Tell whether a name is near one of the names, which are `others` by lower case."""
        if not self._wide and name[1].isascii():
            return False
        wide = widen_name(name)
        return wide in self._wide or (wide != name and wide in others)


class RowPolicy(msgspec.Struct, frozen=True):
    """Row policy, or the mask of `column` if there is one: the value of every way in, and the form of the store's rows.

    Names of grantees are texts, because a row stays as written, whatever a version reads in it. Times are seconds since
    1970.

    `text` is the filter of a policy, or the expression of a mask. `others` are texts for engines of other dialects than
    `dialect`: an engine without a text of its own gets the meaning of `text`. A `tombstone` is that of a dropped table:
    without grantees, a new table of the name shows no rows. `object_id` is then the stable id of the dropped table.
    `restrictive`: the grantees need the filter for each row, beside another policy that shows the row. `ahead`: written
    before a table of the name was known, so the policy belongs to the name and not to a table.
    """

    table: TablePath
    id: str
    grantees: tuple[str, ...]
    text: str = ""
    dialect: str = "trino"
    column: str = ""
    kind: str = ""
    exempt: tuple[str, ...] = ()
    author: str = ""
    created: float = 0.0
    updated: float = 0.0
    tombstone: bool = False
    object_id: str = ""
    others: tuple[DialectText, ...] = ()
    restrictive: bool = False
    ahead: bool = False

    def texts(self) -> tuple[RowPolicy, ...]:
        """Return the policy with each of its texts alone."""
        if not self.others:
            return (self,)
        given = ((self.dialect, self.text), *self.others)
        return tuple(replace(self, dialect=dialect, text=text, others=()) for dialect, text in given)

    @property
    def key(self) -> RuleKey:
        """Return the key of the policy."""
        return self.table, fold_column(self.column), self.id

    @property
    def covers(self) -> FoldedName:
        """Return the name of the table that the policy covers."""
        return fold_name(self.table[0], self.table[1:])
