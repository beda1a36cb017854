"""Masks by relation and column, with grantees. Reads no SQL but the literals of constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from pdp.engines.row_access.dialects import translate_constant
from pdp.engines.row_access.members import Grantee, parse_grantee
from pdp.engines.row_access.policies import KINDS, MaskBody
from pdp.facts.row_policies import fold_column
from pdp.rewrite.catalog import NO_CONTAINERS, table_parts
from pdp.rewrite.containers import Containers, RelationKey, key_of
from pdp.rewrite.errors import FILTER_INVALID, RewriteRefused
from pdp.rewrite.identity import CallerIdentity

_LITERALS: Final = 1_024
"""Constants with remembered literals."""


@dataclass(frozen=True, slots=True)
class MaskPolicy:
    """Mask of a column for grantees, except for exempt members. `text` is an expression or a constant, as written."""

    id: str
    table: RelationKey
    column: str
    kind: str
    grantees: tuple[Grantee, ...]
    exempt: tuple[Grantee, ...] = ()
    text: str = ""
    dialect: str = "trino"

    @property
    def value(self) -> str:
        """Return the expression, or the constant as a literal of Trino. The first use of a constant parses the text."""
        return _literal(self.text) if self.kind == "constant" else self.text

    @property
    def rank(self) -> tuple[int, str]:
        """Return the place among the masks of a column. The first one hides most."""
        return KINDS.index(self.kind), self.id

    def holds(self, caller: CallerIdentity) -> bool:
        """Tell whether the mask hides the column from a caller. Doubt about a grantee masks; doubt exempts nobody."""
        return caller.may_be_named(self.grantees) and not caller.is_named(self.exempt)


_literal: Final = lru_cache(_LITERALS)(translate_constant)


def mask_policy(body: MaskBody, default: Sequence[str], containers: Containers = NO_CONTAINERS) -> MaskPolicy:
    """Return the mask of a body; raise RewriteRefused for an unreadable grantee, table or constant."""
    try:
        grantees, exempt = (tuple(map(parse_grantee, texts)) for texts in (body.grantees, body.exempt))
    except ValueError as error:
        raise RewriteRefused(FILTER_INVALID, f"mask `{body.id}`: {error}") from None
    if not body.column:
        raise RewriteRefused(FILTER_INVALID, f"mask `{body.id}` names no column")
    kind = body.kind or "null"
    table = containers.spell_key(key_of(table_parts(body.table, default)))
    return MaskPolicy(body.id, table, fold_column(body.column), kind, grantees, exempt, body.text, body.dialect)


ColumnMasks: TypeAlias = Mapping[str, tuple[MaskPolicy, ...]]
"""Column in lower case -> masks. The mask that hides most comes first."""


def masks_by_table(masks: Iterable[MaskPolicy]) -> dict[RelationKey, ColumnMasks]:
    """Return masks by table and column."""
    tables: dict[RelationKey, ColumnMasks] = {}
    for mask in sorted(masks, key=lambda mask: mask.rank):
        columns = tables.get(mask.table, {})
        tables[mask.table] = {**columns, mask.column: (*columns.get(mask.column, ()), mask)}
    return tables
