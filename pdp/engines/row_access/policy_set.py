"""Policies and masks with their grantees, by table: one value for entries of files and of the store.

One set serves the filters of Trino and the rewriting of statements. An unusable entry of the store hides, and never
shows. Reads no SQL, and knows no principal: readers compare lists of grantees with their own names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec
from immutables import Map
from msgspec.structs import replace

from pdp.engines.row_access.members import ALL_USERS, Grantee, parse_grantee
from pdp.engines.row_access.policies import KINDS, Texts
from pdp.engines.row_access.trino import ROLES
from pdp.facts.objects import FoldedName, NearNames, RowPolicy, RuleKey, fold_column, widen_name
from pdp.facts.snapshot import Facts
from pdp.model.bounded_cache import BoundedCache

_PRINCIPALS: Final = ("user:", "role:")
_CLOSED: Final = "FALSE"
_EVERYBODY: Final = (Grantee(ALL_USERS),)
_MEMO_ENTRIES: Final = 20_000
_Entry = TypeVar("_Entry", "Policy", "Mask")


class Reader(Protocol):
    """Reader of a table, as lists of grantees see the reader."""

    def is_named(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether grantees certainly name the reader: for lists whose members see more."""

    def may_be_named(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether grantees possibly name the reader: for lists whose members see less."""

    def is_in_doubt(self, grantees: tuple[Grantee, ...]) -> bool:
        """Tell whether unknown evidence could make the reader a grantee."""


class Policy(msgspec.Struct, frozen=True):
    """Policy: the grantees see the rows for which `text`, a condition in `dialect`, is true.

    `others` are the texts in other dialects, for `PolicySet.written_for`. `restrictive`: the grantees need the filter
    for each row, beside another policy that shows the row. `author` is the principal who wrote the policy into the
    store, and whose rights bound what the filter may read; empty for files and operators. `person` acted as this
    principal, a role. `identity` is the user of Trino who evaluates.
    """

    id: str
    grantees: tuple[Grantee, ...]
    text: str
    dialect: str = "trino"
    others: Texts = ()
    restrictive: bool = False
    author: str = ""
    identity: str = ""
    person: str = ""

    @property
    def is_open(self) -> bool:
        """Tell whether the filter is the word TRUE: every row."""
        return self.text.strip().upper() == "TRUE"


class Mask(msgspec.Struct, frozen=True):
    """Mask of a folded column for grantees, except for exempt members. `text` is an expression or a constant.

    The other fields are those of a policy.
    """

    id: str
    column: str
    kind: str
    grantees: tuple[Grantee, ...]
    exempt: tuple[Grantee, ...] = ()
    text: str = ""
    dialect: str = "trino"
    others: Texts = ()
    identity: str = ""

    @property
    def rank(self) -> tuple[int, str]:
        """Return the place among the masks of a column. The first one hides most."""
        return KINDS.index(self.kind), self.id

    def holds(self, reader: Reader) -> bool:
        """Tell whether the mask hides the column from a reader. Doubt about a grantee masks; doubt exempts nobody."""
        return reader.may_be_named(self.grantees) and not reader.is_named(self.exempt)

    def for_reader(self, reader: Reader) -> Mask:
        """Return the mask for a reader: NULL where unknown evidence alone makes the reader a grantee."""
        if not reader.is_in_doubt(self.grantees) or reader.is_named(self.grantees):
            return self
        return self.closed()

    def closed(self) -> Mask:
        """Return the mask with NULL in place of its value."""
        return replace(self, kind="null", text="", identity="")


def policy_of(rule: RowPolicy, identity: str = "") -> Policy:
    """Return a policy with its grantees; raise ValueError for an unreadable one."""
    grantees = tuple(map(parse_grantee, rule.grantees))
    author = rule.author if rule.author.startswith(_PRINCIPALS) else ""
    texts = rule.text, rule.dialect, rule.others
    return Policy(rule.id, grantees, *texts, rule.restrictive, author, identity, rule.person)


def mask_of(rule: RowPolicy, identity: str = "") -> Mask:
    """Return a mask with its grantees; raise ValueError for an unreadable one, and without a column."""
    if not rule.column:
        raise ValueError("it names no column")
    grantees, exempt = (tuple(map(parse_grantee, texts)) for texts in (rule.grantees, rule.exempt))
    column = fold_column(rule.column)
    return Mask(rule.id, column, rule.kind, grantees, exempt, rule.text, rule.dialect, rule.others, identity)


def stored_policies(rules: Iterable[RowPolicy]) -> Iterator[Policy]:
    """Yield the policies of one table. The tombstone of a mask closes a new table of the name, too.

    A policy without a visible row has no grantees. An unusable `restrictive` policy is for everybody: no row is left.
    """
    for rule in rules:
        if rule.tombstone:
            yield Policy(rule.id, (), _CLOSED)
        elif not rule.column:
            found = _read(policy_of, rule)
            everybody = _EVERYBODY if rule.restrictive else ()
            yield found or Policy(rule.id, everybody, _CLOSED, restrictive=rule.restrictive)


def stored_masks(rules: Iterable[RowPolicy]) -> Iterator[Mask]:
    """Yield the masks of one table. The mask of an unusable rule is NULL for everybody."""
    for rule in rules:
        if rule.column:
            found = None if rule.tombstone or rule.kind not in KINDS else _read(mask_of, rule)
            mask = found or Mask(rule.id, fold_column(rule.column), "null", _EVERYBODY)
            yield replace(mask, text="", others=()) if mask.kind == "null" else mask


def _read(make: Callable[[RowPolicy], _Entry], rule: RowPolicy) -> _Entry | None:
    """Return the value of a rule; None for an unreadable one, and for one without grantees."""
    try:
        found = make(rule)
    except ValueError:
        return None
    return found if found.grantees else None


ColumnMasks: TypeAlias = Mapping[str, tuple[Mask, ...]]
"""Folded column -> masks. The mask that hides most comes first."""


class TablePolicies(msgspec.Struct, frozen=True):
    """Policies of a table by id, and masks by folded column name. The mask that hides most comes first."""

    policies: tuple[Policy, ...] = ()
    masks: ColumnMasks = {}

    def entries(self) -> Iterator[Policy | Mask]:
        """Yield all policies and masks."""
        yield from self.policies
        for masks in self.masks.values():
            yield from masks

    def matching(self, reader: Reader) -> list[Policy]:
        """Return the policies that show rows to a reader, by id."""
        return [policy for policy in self.policies if not policy.restrictive and reader.is_named(policy.grantees)]

    def limiting(self, reader: Reader) -> list[Policy]:
        """Return the restrictive policies that may name a reader, by id."""
        return [policy for policy in self.policies if policy.restrictive and reader.may_be_named(policy.grantees)]

    def joined(self, other: TablePolicies) -> TablePolicies:
        """Return the policies and masks of both."""
        return table_policies((*self.entries(), *other.entries()))

    def reads_facts(self) -> bool:
        """Tell whether memberships of roles can change the restriction."""
        lists = [one.grantees for one in self.entries()]
        lists += [mask.exempt for masks in self.masks.values() for mask in masks]
        return any(grantee.kind == "role" for grantees in lists for grantee in grantees) or any(
            ROLES in one.text for one in self.entries()
        )

    def hidden_by(self) -> frozenset[str]:
        """Return the evidence of principals that hides rows or values: groups and roles of limits and masks."""
        lists = [policy.grantees for policy in self.policies if policy.restrictive]
        lists += [mask.grantees for masks in self.masks.values() for mask in masks]
        return frozenset(f"{one.kind}s" for grantees in lists for one in grantees if one.kind in ("group", "role"))


NO_POLICIES: Final = TablePolicies()


def table_policies(entries: Iterable[Policy | Mask]) -> TablePolicies:
    """Return the policies and masks of one table, in order."""
    policies: list[Policy] = []
    masks: list[Mask] = []
    for entry in entries:
        if isinstance(entry, Mask):
            masks.append(entry)
        else:
            policies.append(entry)
    columns: dict[str, tuple[Mask, ...]] = {}
    for mask in sorted(masks, key=lambda mask: mask.rank):
        columns[mask.column] = (*columns.get(mask.column, ()), mask)
    return TablePolicies(tuple(sorted(policies, key=lambda policy: policy.id)), columns)


class PolicySet:
    """Policies and masks of all tables. A table below one of `protected` shows no rows without a policy.

    An entry of `protected` is a container and a folded path, which is empty for the whole container. `is_passing`: the
    set is that of one request.
    """

    def __init__(
        self, tables: Mapping[FoldedName, TablePolicies], protected: Sequence[FoldedName] = (), *,
        is_passing: bool = False,
    ) -> None:  # fmt: skip
        self.tables = tables
        self.is_passing = is_passing
        self._protected = tuple(map(widen_name, protected))

    @cached_property
    def _near(self) -> NearNames:
        return NearNames(self.tables)

    @property
    def has_containers(self) -> bool:
        """Tell whether some containers show no rows without a policy."""
        return bool(self._protected)

    def of(self, table: FoldedName) -> TablePolicies:
        """Return the policies and masks of a table; empty if none names the table."""
        return self.tables[table] if table in self.tables else NO_POLICIES  # noqa: SIM401  `get` of tables read on demand is slower

    def protects(self, table: FoldedName) -> bool:
        """Tell whether a table has policies, is in a protected container, or is near a table with policies."""
        known = self.tables.get(table)
        if known is None:
            return self.is_below(table) or self.is_near(table)
        return bool(known.policies) or self.is_below(table)

    def is_below(self, table: FoldedName) -> bool:
        """Tell whether a table is in a protected container."""
        if not self._protected:
            return False
        wide = widen_name(table)
        return any(_is_below(wide, above) for above in self._protected)

    def is_near(self, table: FoldedName) -> bool:
        """Tell whether a table is near another one with policies or masks.

        A near name is equal by full case folding alone, so that an engine may read the table with policies.
        """
        return self._near.has_near(table, self.tables)

    def hides(self, table: FoldedName) -> bool:
        """Tell whether a table has policies or masks, is near such a table, or is in a protected container."""
        return table in self.tables or self.is_below(table) or self.is_near(table)

    @cached_property
    def containers(self) -> frozenset[str]:
        """Return the warehouses of tables with policies or masks, and of protected containers."""
        return frozenset(name[0] for name in (*self.tables, *self._protected))

    def protects_in(self, container: FoldedName) -> bool:
        """Tell whether a protected container is a container, around the container or inside."""
        warehouse, path = widen_name(container)
        inside = f"{path}." if path else ""
        is_around = any(above == warehouse and f"{below}.".startswith(inside) for above, below in self._protected)
        return is_around or any(_is_below((warehouse, inside), above) for above in self._protected)

    def may_hide_behind(self, prefix: Sequence[str], known: Collection[FoldedName], readers: Iterable[Reader]) -> bool:
        """Tell whether a table whose name begins with a prefix may hide rows or columns, beside the known tables."""
        start = ".".join(prefix).casefold()
        hidden = (key for key in self.tables if key not in known and _full_name(key).startswith(start))
        if any(not self.shows_all(key, readers) for key in hidden):
            return True
        above = [_full_name(key).rstrip(".") + "." for key in self._protected]
        return any(name.startswith(start) or start.startswith(name) for name in above)

    def shows_all(self, key: FoldedName, readers: Iterable[Reader]) -> bool:
        """Tell whether readers see all rows and columns of a table, by the policies alone."""
        table = self.of(key)
        return all(
            any(policy.is_open for policy in table.matching(reader))
            and all(policy.is_open for policy in table.limiting(reader))
            and not any(mask.holds(reader) for masks in table.masks.values() for mask in masks)
            for reader in readers
        )

    def renamed(self, names: Callable[[FoldedName], Iterable[FoldedName]]) -> PolicySet:
        """Return a set with other names of tables and containers. A name can have several others."""
        tables = {new: some for key, some in self.tables.items() for new in names(key)}
        return PolicySet(tables, [new for above in self._protected for new in names(above)])

    @cached_property
    def has_texts(self) -> bool:
        """Tell whether any policy or mask has texts in several dialects."""
        return any(one.others for some in self.tables.values() for one in some.entries())

    def written_for(self, dialect: str) -> PolicySet:
        """Return a set with the text for engines of a dialect in each policy and mask with several texts."""
        if not self.has_texts:
            return self
        items = self.tables.items()
        return self.with_tables({name: table_policies(_written_for(some, dialect)) for name, some in items})

    def replaced(self, policies: Mapping[FoldedName, TablePolicies]) -> PolicySet:
        """Return the set of one request, with all policies of some tables replaced."""
        new = {name: replace(some, masks=self.of(name).masks) for name, some in policies.items()}
        return PolicySet({**self.tables, **new}, self._protected, is_passing=True)

    def with_tables(self, tables: Mapping[FoldedName, TablePolicies]) -> PolicySet:
        """Return a set with the policies and masks of other tables, below the same containers."""
        return PolicySet(tables, self._protected, is_passing=self.is_passing)


def _written_for(table: TablePolicies, dialect: str) -> Iterator[Policy | Mask]:
    for one in table.entries():
        text = dict(one.others).get(dialect)
        yield replace(one, others=()) if text is None else replace(one, text=text, dialect=dialect, others=())


def _full_name(key: FoldedName) -> str:
    return ".".join(key).lstrip(".").casefold()


def _is_below(table: FoldedName, above: FoldedName) -> bool:
    return table[0] == above[0] and (not above[1] or table[1].startswith(f"{above[1]}."))


Rules: TypeAlias = Map[RuleKey, RowPolicy]
"""Rules of one table."""
Join: TypeAlias = Callable[[FoldedName, TablePolicies, TablePolicies], TablePolicies]
"""Join of the policies and masks of files with those of the store, for a table of a name."""


class StoredPolicySets:
    """Policy sets of one revision after the other: those of files and of the store.

    Revisions with the same rules share one set. The rules of a table are read at the first use of the table. The first
    question for a near name, or for a warehouse, costs a look at the name of each table.
    """

    def __init__(self, filed: PolicySet, join: Join = lambda name, filed, stored: filed.joined(stored)) -> None:
        self._filed, self._join = filed, join
        self._known: BoundedCache[FoldedName, tuple[Rules, TablePolicies]] = BoundedCache(_MEMO_ENTRIES)
        self._rules: Map[FoldedName, Rules] = Map()
        self._set = filed

    def at(self, facts: Facts) -> PolicySet:
        """Return the policies and masks of files and of facts."""
        rules = facts.index.rules
        if rules is not self._rules:
            self._set = self._filed.with_tables(_Tables(self._filed.tables, rules, self)) if rules else self._filed
            self._rules = rules
        return self._set

    def joined(self, table: FoldedName, rules: Rules) -> TablePolicies:
        """Return the policies and masks of a table. They stay as long as the rules are the very same map."""
        known = self._known.get(table)
        if known is not None and known[0] is rules:
            return known[1]
        some = [rules[key] for key in sorted(rules)]
        stored = table_policies((*stored_policies(some), *stored_masks(some)))
        return self._known.keep(table, (rules, self._join(table, self._filed.of(table), stored)))[1]


class _Tables(Mapping[FoldedName, TablePolicies]):
    """Tables of files and of the rules of one revision, each read on demand."""

    def __init__(
        self, filed: Mapping[FoldedName, TablePolicies], rules: Map[FoldedName, Rules], sets: StoredPolicySets
    ) -> None:
        self._filed, self._rules, self._sets = filed, rules, sets

    def __getitem__(self, name: FoldedName) -> TablePolicies:
        rules = self._rules.get(name)
        return self._filed[name] if rules is None else self._sets.joined(name, rules)

    def __contains__(self, name: object) -> bool:
        return name in self._filed or name in self._rules

    def __iter__(self) -> Iterator[FoldedName]:
        return iter(dict.fromkeys((*self._filed, *self._rules)))

    def __len__(self) -> int:
        return len({*self._filed, *self._rules})
