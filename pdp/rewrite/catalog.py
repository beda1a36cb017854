"""Known relations: tables with columns, and views with their text. Knows no policy.

Names are resolved as the engine resolves them: BigQuery compares tables letter by letter, all others fold case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pdp.engines.rowaccess.document import Document
from pdp.errors import InvalidReference
from pdp.model.references import parse_resource
from pdp.rewrite.errors import AMBIGUOUS_NAME, UNKNOWN_RELATION, UNSUPPORTED_SOURCE, RewriteRefused

RelationKey: TypeAlias = str
"""Full name of a relation, joined by dots, in lower case. However dots divide a name, the key is the same."""
EXACT: Final = frozenset({"bigquery"})
"""Dialects that compare the names of tables letter by letter."""
_NAME_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class View:
    """Text of a view, new names of columns if any, and the IAM member of the owner."""

    sql: str
    columns: tuple[str, ...] = ()
    dialect: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """Table or view. `columns` maps folded names to types; empty if the columns are unknown.

    `spelled` has the names of the columns as the catalog writes them, or none.
    """

    name: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    view: View | None = None
    spelled: tuple[str, ...] = ()

    @property
    def key(self) -> RelationKey:
        """Return the key of the name."""
        return key_of(self.name)

    @property
    def schema(self) -> tuple[str, ...]:
        """Return the catalog and schema, in which a view resolves short names."""
        return self.name[:-1]


def key_of(parts: Iterable[str]) -> RelationKey:
    """Return the key of a full name."""
    return ".".join(parts).lower()


def table_parts(text: str, default: Sequence[str]) -> tuple[str, ...]:
    """Return the full name of a table in a policy file: divided by dots, or a reference such as `table:lake/a/b`.

    Raise RewriteRefused for an unreadable name.
    """
    if ":" in text:
        try:
            resource = parse_resource(text)
        except InvalidReference as error:
            raise RewriteRefused(UNKNOWN_RELATION, str(error)) from None
        return (resource.warehouse, *resource.path)
    parts = text.split(".")
    if not all(parts):
        raise RewriteRefused(UNKNOWN_RELATION, f"`{text}` is no name of a table")
    return (*default, *parts) if len(parts) == 1 else full_name(parts, default)


class Catalog:
    """All known relations. `default` is the catalog and schema of short names."""

    def __init__(self, relations: Iterable[Relation], default: Sequence[str] = ()) -> None:
        self.default = tuple(default)
        self._relations: dict[RelationKey, list[Relation]] = {}
        for relation in relations:
            self._relations.setdefault(relation.key, []).append(relation)
        known = [relation.name[0].lower() for some in self._relations.values() for relation in some]
        self.containers = frozenset((*known, *(part.lower() for part in self.default[:1])))
        """First parts of all names."""

    def extended(self, others: Iterable[Relation], default: Sequence[str] = ()) -> Catalog:
        """Return a catalog with more relations, and with another default if there is one. Known relations stay."""
        added = [relation for relation in others if relation.key not in self._relations]
        return Catalog([*self, *added], default or self.default)

    def renamed(self, catalogs: Mapping[str, Sequence[str]]) -> Catalog:
        """Return a catalog with the names of catalogs in place of those of warehouses, by warehouse in lower case."""
        relations = [
            replace(relation, name=(catalog, *relation.name[1:]))
            for relation in self
            for catalog in catalogs.get(relation.name[0].lower(), relation.name[:1])
        ]
        first, *rest = self.default or ("",)
        default = (*catalogs.get(first.lower(), (first,))[:1], *rest) if self.default else ()
        return Catalog(relations, default)

    def __iter__(self) -> Any:
        """Yield all relations."""
        return (relation for relations in self._relations.values() for relation in relations)

    def get(self, parts: Sequence[str], dialect: str, default: Sequence[str]) -> Relation | None:
        """Return the relation of a name as written; None for an unknown name.

        Raise RewriteRefused if two relations differ in case alone and the engine folds case.
        """
        full = full_name(parts, default)
        found = self._relations.get(key_of(full), [])
        if dialect in EXACT:
            exact = ".".join(full)
            found = [relation for relation in found if ".".join(relation.name) == exact]
        if len(found) > 1:
            raise RewriteRefused(AMBIGUOUS_NAME, f"`{'.'.join(parts)}` names more than one relation")
        return found[0] if found else None

    def of_key(self, key: RelationKey) -> list[Relation]:
        """Return the relations of a key: more than one if names differ in case alone."""
        return self._relations.get(key, [])

    def with_prefix(self, parts: Sequence[str], default: Sequence[str]) -> list[Relation]:
        """Return the relations of a wildcard: all whose names begin with the full name, in any case."""
        prefix = key_of(full_name(parts, default))
        return [found for key, some in self._relations.items() if key.startswith(prefix) for found in some]


def full_name(parts: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """Return a name completed by the default."""
    missing = max(_NAME_PARTS - len(parts), 0)
    return (*default[:missing], *parts)


def catalog_of(documents: Iterable[Document]) -> Catalog:
    """Return the catalog of the tables and views of documents."""
    relations: list[Relation] = []
    default: tuple[str, ...] = ()
    for document in documents:
        default = default or document.default
        for name, table in document.tables.items():
            columns = {column.lower(): kind for column, kind in table.columns.items()}
            spelled = tuple(table.columns)
            relations.append(Relation(table_parts(name, document.default), columns, spelled=spelled))
        for name, body in document.views.items():
            relations.append(Relation(table_parts(name, document.default), {}, _view(body)))
    return Catalog(relations, default)


def _view(body: Any) -> View:
    if not isinstance(body, Mapping) or not isinstance(body.get("sql"), str):
        raise RewriteRefused(UNSUPPORTED_SOURCE, "a view needs its text: `sql`")
    return View(
        str(body["sql"]), tuple(body.get("columns") or ()), str(body.get("dialect", "")), str(body.get("owner", ""))
    )
