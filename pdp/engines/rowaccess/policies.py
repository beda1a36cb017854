"""Compiled row policies of all files, before an engine has the members. Compiles nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pdp.engines.rowaccess.engine import RowAccess
from pdp.engines.rowaccess.members import Members
from pdp.engines.rowaccess.table_policies import TablePolicies
from pdp.errors import InvalidReference, Notice
from pdp.facts.row_policies import FoldedName, TablePath
from pdp.model.references import parse_resource

_CONTAINERS: Final = frozenset({"warehouse", "namespace"})


class RowPolicies(msgspec.Struct, frozen=True):
    """Policies of all files: by table, as canonical data, with warnings, and with the columns of described tables."""

    tables: dict[FoldedName, TablePolicies]
    texts: Sequence[dict[str, Any]]
    warnings: tuple[Notice, ...]
    columns: Mapping[FoldedName, Mapping[str, str]] = {}

    def build_engine(self, members: Members, protected: Iterable[str]) -> RowAccess:
        """Return the engine; raise ValueError if an entry of `protected` is not a container."""
        return RowAccess(self.tables, members, [_container(text) for text in protected], self.columns)


def _container(text: str) -> TablePath:
    try:
        resource = parse_resource(text)
    except InvalidReference as error:
        raise ValueError(str(error)) from None
    if resource.type not in _CONTAINERS:
        raise ValueError(f"`{text}` is no warehouse or namespace")
    return resource.warehouse, *resource.path
