"""Row rules: stored row policies and column masks, and the name under which rules cover a table.

Knows neither SQL nor principals: the row access engine gives rules their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

FoldedName: TypeAlias = tuple[str, str]
"""Warehouse and path of a table, as policies compare them: the path is one text, joined by dots, in one case."""
TablePath: TypeAlias = tuple[str, ...]
"""Parts of a table or view, warehouse first, as written."""
RuleKey: TypeAlias = tuple[TablePath, str, str]
"""Table, folded column and id of a rule. The column of a row policy is empty."""


def fold_name(warehouse: str, path: Iterable[str]) -> FoldedName:
    """Return the name under which policies cover a table. Trino folds case, and writes `[a, b]` as `a.b`."""
    return warehouse, ".".join(path).casefold()


class RowRule(msgspec.Struct, frozen=True):
    """Stored row policy, or the mask of `column` if there is one. Times are seconds since 1970.

    `text` is the filter of a policy, or the expression of a mask. A `tombstone` is the rule of a dropped table:
    without grantees, a new table of the name shows no rows. `object_id` is then the stable id of the dropped table.
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

    @property
    def key(self) -> RuleKey:
        """Return the key of the rule."""
        return self.table, self.column.casefold(), self.id

    @property
    def covers(self) -> FoldedName:
        """Return the name of the table that the rule covers."""
        return fold_name(self.table[0], self.table[1:])
