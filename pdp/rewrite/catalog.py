"""Known relations: tables with columns, and views with their text; and the policies of documents by relation.

Names, and the first parts of full names, are resolved as the engine resolves them: BigQuery compares tables letter by
letter, all others fold case.

First parts are warehouses, or an engine's catalogs. Warehouses are compared letter by letter, engines mostly fold case.
So two spellings of one folded name can be two warehouses, or one. A service knows: every spelling is a warehouse. Files
alone do not: a policy on `LAKE.a.t` beside a table `lake.a.t` means that table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pdp.engines.row_access.policies import Document, MaskBody, PolicyBody, entry_name, rule_of
from pdp.engines.row_access.policy_set import Mask, Policy, PolicySet, TablePolicies, mask_of, policy_of, table_policies
from pdp.errors import InvalidReference
from pdp.facts.objects import FoldedName, fold_name
from pdp.model.references import parse_resource
from pdp.rewrite.errors import AMBIGUOUS_NAME, FILTER_INVALID, UNKNOWN_RELATION, UNSUPPORTED_SOURCE, RewriteRefused
from pdp.rewrite.functions import NO_SITE, SiteFunctions

RelationKey: TypeAlias = FoldedName
"""Key of a relation: the container as spelled, and the folded rest, joined by dots. A short name has no container."""
FULL_NAME_PARTS: Final = 3


def key_of(parts: Sequence[str]) -> RelationKey:
    """Return the key of a name. A name of fewer than three parts has an empty container."""
    return fold_name(parts[0], parts[1:]) if len(parts) >= FULL_NAME_PARTS else fold_name("", parts)


def key_name(key: RelationKey) -> str:
    """Return a key as a text for messages."""
    return ".".join(filter(None, key))


def fold_ascii(text: str) -> str:
    """Return a text with the ASCII letters in lower case: all that every engine folds alike."""
    return (
        text.lower() if text.isascii() else text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")
    )


class Containers:
    """Known containers. Immutable."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._spellings: dict[str, tuple[str, ...]] = {}
        self._dotted = False
        self._add(names)

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            known = self._spellings.get(name.lower(), ())
            if name and name not in known:
                self._spellings[name.lower()] = (*known, name)
        self._dotted = any("." in name for name in self._spellings)

    def joined(self, names: Iterable[str]) -> Containers:
        """Return these and more containers. A new spelling is another container."""
        new = Containers(self)
        new._add(names)
        return new

    def spelled(self, names: Iterable[str]) -> Containers:
        """Return these and more containers. A new spelling of a single known container is that container."""
        return self.joined([self.spell(name) for name in names])

    def spell(self, name: str) -> str:
        """Return a name as the only known container of any case is spelled; otherwise as given."""
        known = self._spellings.get(name.lower(), ())
        return known[0] if len(known) == 1 else name

    def spell_key(self, key: RelationKey) -> RelationKey:
        """Return a key with the known spelling of the container."""
        return (self.spell(key[0]), key[1])

    def has_twins(self, name: str) -> bool:
        """Tell whether two containers differ from a name in case alone: an engine that folds case means either."""
        return len(self._spellings.get(name.lower(), ())) > 1

    def divides_two_ways(self, parts: Sequence[str]) -> bool:
        """Tell whether a name of parts that dots divide can begin with two containers: `lake.a.b.t` in `lake.a`."""
        if not self._dotted:
            return False
        divided = ".".join(parts).lower().split(".")
        return sum(".".join(divided[:end]) in self._spellings for end in range(1, len(divided) - 1)) > 1

    def __contains__(self, folded: object) -> bool:
        """Tell whether a container has a name, given in lower case."""
        return folded in self._spellings

    def __iter__(self) -> Iterator[str]:
        """Yield all containers."""
        return (name for some in self._spellings.values() for name in some)


NO_CONTAINERS: Final = Containers()
EXACT: Final = frozenset({"bigquery"})
"""Dialects that compare the names of tables letter by letter."""
_OWN_CATALOGS: Final = {"duckdb": frozenset({"memory", "system", "temp"}), "spark": frozenset({"spark_catalog"})}
"""Dialect that reads `a.t` in the catalog `a`, if there is one -> catalogs of the engine itself."""


@dataclass(frozen=True, slots=True)
class View:
    """Text of a view, new names of columns if any, and the IAM member of the owner.

    `default` is the catalog and schema of short names in the text, if not those of the view; an empty catalog is that
    of the view. A view with a `problem` cannot be used.
    """

    sql: str
    columns: tuple[str, ...] = ()
    dialect: str = ""
    owner: str = ""
    default: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Relation:
    """Table or view. `columns` maps folded names to types; empty if the columns are unknown.

    `spelled` has the names of the columns as the catalog writes them, or none. A relation `is_listed` by a service that
    can have more relations by now.
    """

    name: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    view: View | None = None
    spelled: tuple[str, ...] = ()
    is_listed: bool = False
    key: RelationKey = field(init=False, repr=False, compare=False)
    """Key of the name."""

    def __post_init__(self) -> None:
        """Remember the key, which every use of the relation needs."""
        object.__setattr__(self, "key", key_of(self.name))

    @property
    def schema(self) -> tuple[str, ...]:
        """Return the catalog and schema."""
        return self.name[:-1]

    @property
    def text_schema(self) -> tuple[str, ...]:
        """Return the catalog and schema in which the text of a view resolves short names."""
        if self.view is None or not self.view.default:
            return self.schema
        catalog, *schema = self.view.default
        return (catalog or self.name[0], *schema)


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
    return full_name(parts, default)


class Catalog:
    """All known relations. `default` is the catalog and schema of short names.

    `containers` are those of policies and of the service, beside those of the relations.
    """

    def __init__(
        self, relations: Iterable[Relation], default: Sequence[str] = (), containers: Containers = NO_CONTAINERS,
        functions: SiteFunctions = NO_SITE,
    ) -> None:  # fmt: skip
        given, self.functions = list(relations), functions
        named = (container_of(relation.name) for relation in given)
        self.containers = containers.spelled((*named, *default[:1]))
        self.default = self._spelled(default)
        self._by_name: dict[str, list[Relation]] = {}
        self._by_key: dict[RelationKey, list[Relation]] = {}
        for one in given:
            spelled = self._spelled(one.name) if container_of(one.name) else one.name
            relation = one if spelled == one.name else replace(one, name=spelled)
            self._by_name.setdefault(_joined(spelled), []).append(relation)
            self._by_key.setdefault(relation.key, []).append(relation)

    def _spelled(self, name: Sequence[str]) -> tuple[str, ...]:
        return (*map(self.containers.spell, name[:1]), *name[1:])

    def key(self, name: Sequence[str]) -> RelationKey:
        """Return the key of a full name in any case of the container."""
        return self.containers.spell_key(key_of(name))

    def extended(self, others: Iterable[Relation], default: Sequence[str] = ()) -> Catalog:
        """Return a catalog with more relations, and with another default if there is one. Known relations stay."""
        added = [relation for relation in others if _joined(relation.name) not in self._by_name]
        return Catalog([*self, *added], default or self.default, self.containers, self.functions)

    def renamed(self, catalogs: Mapping[str, Sequence[str]]) -> Catalog:
        """Return a catalog with the names of catalogs in place of those of warehouses. A warehouse can have several."""
        names = Containers(name for one in self.containers for name in catalogs_of(one, catalogs))
        relations = [new for relation in self for new in _renamed(relation, catalogs)]
        if not self.default:
            return Catalog(relations, (), names)
        first = catalogs_of(self.default[0], catalogs)[:1]
        return Catalog(relations, (*first, *self.default[1:]) if first else (), names)

    def __iter__(self) -> Iterator[Relation]:
        """Yield all relations."""
        return (relation for relations in self._by_name.values() for relation in relations)

    def get(self, parts: Sequence[str], dialect: str, default: Sequence[str]) -> Relation | None:
        """Return the relation of a name as written; None for an unknown name.

        Raise RewriteRefused if the engine can read the name in two ways: as two relations, or in two containers.
        """
        full = full_name(parts, default)
        self._check_container(full, parts, dialect)
        found = self._by_name.get(_joined(full), [])
        if dialect in EXACT:
            exact = ".".join(full)
            found = [relation for relation in found if ".".join(relation.name) == exact]
        if len(found) > 1 or (found and self.is_short(parts, dialect)):
            raise RewriteRefused(AMBIGUOUS_NAME, f"`{'.'.join(parts)}` names more than one relation")
        if not found or dialect in EXACT:
            return found[0] if found else None
        if fold_ascii(".".join(full)) != fold_ascii(".".join(found[0].name)):
            raise RewriteRefused(AMBIGUOUS_NAME, f"write `{'.'.join(parts)}` in the case of the catalog")
        return found[0] if full[0].lower() == found[0].name[0].lower() else None

    def is_short(self, parts: Sequence[str], dialect: str) -> bool:
        """Tell whether the engine reads a name of two parts as a catalog and a table."""
        own = _OWN_CATALOGS.get(dialect) if len(parts) == 2 else None
        return own is not None and (parts[0].lower() in self.containers or parts[0].lower() in own)

    def _check_container(self, full: Sequence[str], parts: Sequence[str], dialect: str) -> None:
        """Raise RewriteRefused for a full name in one of two containers that the engine does not tell apart."""
        if len(full) < FULL_NAME_PARTS:
            return
        if self.containers.divides_two_ways(full) if dialect in EXACT else self.containers.has_twins(full[0]):
            raise RewriteRefused(AMBIGUOUS_NAME, f"`{'.'.join(parts)}` is in one of two warehouses with similar names")

    def is_ambiguous(self, relation: Relation, dialect: str) -> bool:
        """Tell whether no name of a relation is certain."""
        if len(relation.name) < FULL_NAME_PARTS:
            return False
        if dialect in EXACT:
            return self.containers.divides_two_ways(relation.name)
        return self.containers.has_twins(relation.name[0])

    def named(self, name: Sequence[str], dialect: str) -> Relation | None:
        """Return the relation of a full name with a certain container; None for an unknown name.

        Raise RewriteRefused if two relations differ in case alone and the engine folds case.
        """
        found = self.of_key(self.key(name))
        if dialect in EXACT:
            found = [relation for relation in found if ".".join(relation.name) == ".".join(name)]
        if len(found) > 1:
            raise RewriteRefused(AMBIGUOUS_NAME, f"`{'.'.join(name)}` names more than one relation")
        return found[0] if found else None

    def of_key(self, key: RelationKey) -> list[Relation]:
        """Return the relations of a key: more than one if names differ in case alone."""
        return self._by_key.get(key, [])

    def ends_with(self, parts: Sequence[str]) -> bool:
        """Tell whether the name of a relation ends with some parts, in any case."""
        return any(f".{name}".endswith(f".{_joined(parts)}") for name in self._by_name)

    def with_prefix(self, parts: Sequence[str], default: Sequence[str]) -> list[Relation]:
        """Return the relations of a wildcard: all whose names begin with the full name, in any case."""
        full = full_name(parts, default)
        self._check_container(full, parts, "bigquery")
        prefix = _joined(full)
        return [found for name, some in self._by_name.items() if name.startswith(prefix) for found in some]


def full_name(parts: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """Return a name completed by the default: the whole default before one part, for a namespace in namespaces."""
    missing = len(default) if len(parts) == 1 else max(FULL_NAME_PARTS - len(parts), 0)
    return (*default[:missing], *parts)


def container_of(name: Sequence[str]) -> str:
    """Return the container of a full name; empty for a short name."""
    return name[0] if len(name) >= FULL_NAME_PARTS else ""


def catalogs_of(container: str, catalogs: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the catalogs of a warehouse. A warehouse without catalogs is one, unless a catalog has the name."""
    found = catalogs.get(container)
    if found is not None:
        return found
    taken = {name.lower() for some in catalogs.values() for name in some}
    return () if container.lower() in taken else (container,)


def _renamed(relation: Relation, catalogs: Mapping[str, Sequence[str]]) -> list[Relation]:
    container = container_of(relation.name)
    if not container:
        return [relation]
    return [replace(relation, name=(name, *relation.name[1:])) for name in catalogs_of(container, catalogs)]


def containers_of(documents: Iterable[Document], warehouses: Iterable[str] | None = None) -> Containers:
    """Return the containers of documents.

    With `warehouses`, the case of every name counts. Without, a policy in another case than the tables is on these.
    Raise RewriteRefused for an unreadable name of a table.
    """
    documents = list(documents)
    described, named = [], []
    for document in documents:
        described += [table_parts(name, document.default) for name in (*document.tables, *document.views)]
        tables = [*(body.table for body in document.policies), *(body.table for body in document.masks)]
        named += [table_parts(table, document.default) for table in tables]
    first = [*map(container_of, described), *(document.default[0] for document in documents if document.default)]
    rest = map(container_of, named)
    if warehouses is not None:
        return Containers(warehouses).joined((*first, *rest))
    return Containers(first).spelled(rest)


def _joined(name: Sequence[str]) -> str:
    """Return a name as engines look names up: joined by dots, in lower case."""
    return ".".join(name).lower()


def catalog_of(documents: Iterable[Document], containers: Containers | None = None) -> Catalog:
    """Return the catalog of the tables and views of documents; raise RewriteRefused for an unreadable name."""
    relations: list[Relation] = []
    default: tuple[str, ...] = ()
    for document in (documents := list(documents)):
        default = default or document.default
        for name, table in document.tables.items():
            columns = {column.lower(): kind for column, kind in table.columns.items()}
            relations.append(Relation(table_parts(name, document.default), columns, spelled=tuple(table.columns)))
        for name, body in document.views.items():
            relations.append(Relation(table_parts(name, document.default), {}, _view(body)))
    functions = SiteFunctions(one.name for document in documents for one in document.functions or ())
    return Catalog(relations, default, containers_of(documents) if containers is None else containers, functions)


def _view(body: Any) -> View:
    if not isinstance(body, Mapping) or not isinstance(body.get("sql"), str):
        raise RewriteRefused(UNSUPPORTED_SOURCE, "a view needs its text: `sql`")
    return View(
        str(body["sql"]), tuple(body.get("columns") or ()), str(body.get("dialect", "")), str(body.get("owner", ""))
    )


def policy_set_of(
    documents: Sequence[Document], protected: Sequence[RelationKey] = (), containers: Containers | None = None
) -> PolicySet:
    """Return the policies and masks of documents; raise RewriteRefused for an unreadable grantee or table.

    `containers` spell the containers of tables; by default those of the documents.
    """
    known = containers_of(documents) if containers is None else containers
    entries: dict[RelationKey, list[Policy | Mask]] = {}
    for document in documents:
        bodies: list[PolicyBody | MaskBody] = [*document.policies, *document.masks]
        for body in bodies:
            key, entry = read_entry(body, document.default, known)
            entries.setdefault(key, []).append(entry)
    return PolicySet(tables_of(entries), protected)


def tables_of(entries: Mapping[RelationKey, Iterable[Policy | Mask]]) -> dict[RelationKey, TablePolicies]:
    """Return the policies and masks of tables, in order."""
    return {key: table_policies(some) for key, some in entries.items()}


def read_entry(
    body: PolicyBody | MaskBody, default: Sequence[str], containers: Containers
) -> tuple[RelationKey, Policy | Mask]:
    """Return a policy or mask with the key of its table; raise RewriteRefused for an unreadable grantee or table."""
    path = table_parts(body.table, default)
    try:
        rule = rule_of(body, path)
        entry = mask_of(rule) if isinstance(body, MaskBody) else policy_of(rule)
    except ValueError as error:
        raise RewriteRefused(FILTER_INVALID, f"{entry_name(body)}: {error}") from None
    return containers.spell_key(key_of(path)), entry


def renamed_key(key: RelationKey, catalogs: Mapping[str, Sequence[str]]) -> list[RelationKey]:
    """Return a key with the names of catalogs in place of that of a warehouse, which can have several."""
    return [(catalog, key[1]) for catalog in catalogs_of(key[0], catalogs)] if key[0] else [key]
